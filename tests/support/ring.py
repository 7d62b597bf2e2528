"""A gang that trains with nothing but the standard library: linear regression, gradients summed over sockets.

Run as the replicas of an XGBoostJob or PyTorchJob (``MASTER_ADDR``, ``MASTER_PORT``, ``RANK``, ``WORLD_SIZE``). Each
rank holds a shard of its own; the result is that of all data, alike on every rank and unlike that of any shard alone.

``--record DIR``  append ``{"event": "start"|"half"|"end", …}`` to a file of this process's own
``--steps N``     steps to train
``--hold PATH``   after half the steps, wait until PATH exists
``--exit R:CODE`` rank R ends with CODE after that
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import random
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any

FEATURES = 4
TRUE = [2.0, -1.0, 0.5, 3.0]


def shard(rank: int) -> list[tuple[list[float], float]]:
    source = random.Random(rank)
    rows = []
    for _ in range(40):
        x = [source.gauss(0, 1) for _ in range(FEATURES)]
        rows.append((x, sum(w * v for w, v in zip(TRUE, x, strict=True)) + source.gauss(0, 0.3)))
    return rows


def gradient(model: list[float], rows: list[tuple[list[float], float]]) -> list[float]:
    total = [0.0] * FEATURES
    for x, y in rows:
        error = sum(w * v for w, v in zip(model, x, strict=True)) - y
        for i, value in enumerate(x):
            total[i] += error * value / len(rows)
    return total


def step(model: list[float], summed: list[float], world: int) -> list[float]:
    return [w - 0.1 * g / world for w, g in zip(model, summed, strict=True)]


def add(vectors: list[list[float]]) -> list[float]:
    """The sum, exactly rounded, so that it is the same in whatever order members join."""
    return [math.fsum(column) for column in zip(*vectors, strict=True)]


def digest_of(model: list[float]) -> str:
    return hashlib.sha256(json.dumps(model).encode()).hexdigest()[:16]


def trained_on(ranks: list[int], steps: int = 50) -> str:
    """The digest of the model that a gang of these ranks ends with, computed in one process."""
    shards, model = [shard(rank) for rank in ranks], [0.0] * FEATURES
    for _ in range(steps):
        parts = [gradient(model, rows) for rows in shards]
        model = step(model, add(parts), len(ranks))
    return digest_of(model)


class Gang:
    """Sums vectors over all ranks: rank 0 listens, the others connect to it."""

    def __init__(self, rank: int, world: int, address: str, port: int) -> None:
        self.rank, self.world, self.peers = rank, world, []
        if rank == 0:
            # Kept open to the end: a second gang on this port cannot slip in after the last member has joined.
            self.listener = socket.create_server(("", port))
            self.listener.settimeout(120)
            self.peers = [self.listener.accept()[0] for _ in range(world - 1)]
        else:
            self.peers = [self._connect(address, port)]
        for peer in self.peers:
            peer.settimeout(120)

    @staticmethod
    def _connect(address: str, port: int) -> socket.socket:
        deadline = time.monotonic() + 120
        while True:
            try:
                return socket.create_connection((address, port), timeout=5)
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def sum(self, vector: list[float]) -> list[float]:
        if self.rank == 0:
            total = add([vector] + [self._receive(peer) for peer in self.peers])
            for peer in self.peers:
                self._send(peer, total)
            return total
        self._send(self.peers[0], vector)
        return self._receive(self.peers[0])

    @staticmethod
    def _send(peer: socket.socket, vector: list[float]) -> None:
        peer.sendall(struct.pack(f"!{FEATURES}d", *vector))

    @staticmethod
    def _receive(peer: socket.socket) -> list[float]:
        data = b""
        while len(data) < 8 * FEATURES:
            chunk = peer.recv(8 * FEATURES - len(data))
            if not chunk:
                raise ConnectionError("a member of the gang is gone")
            data += chunk
        return list(struct.unpack(f"!{FEATURES}d", data))


def record(directory: str | None, event: str, **fields: object) -> None:
    if directory:
        path = Path(directory) / f"{os.environ.get('HOSTNAME')}-{os.getpid()}.jsonl"
        pod, uid = os.environ.get("HOSTNAME"), os.environ.get("KFTRAIN_LOCAL_POD")
        entry = {"event": event, "pod": pod, "uid": uid, "pid": os.getpid(), "time": time.time()}
        with path.open("a") as file:
            file.write(json.dumps(entry | fields) + "\n")


def recorded(directory: Path) -> list[dict[str, Any]]:
    """All that processes recorded, in order of time."""
    lines = (line for file in directory.glob("*.jsonl") for line in file.read_text().splitlines())
    return sorted(map(json.loads, lines), key=lambda entry: entry["time"])


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--record")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--exit", default="")
    parser.add_argument("--hold")
    options = parser.parse_args()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    record(options.record, "start")
    gang = Gang(rank, world, os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    rows, model = shard(rank), [0.0] * FEATURES
    for number in range(options.steps):
        if number == options.steps // 2:
            record(options.record, "half")
            while options.hold and not Path(options.hold).exists():
                time.sleep(0.05)
            failing, _, code = options.exit.partition(":")
            if failing == str(rank):
                record(options.record, "end", code=int(code))
                return int(code)
        summed = gang.sum(gradient(model, rows))
        model = step(model, summed, world)
        if rank == 0 and number % 10 == 0:
            print("KFTRAIN", json.dumps({"progressPercentage": 100 * number // options.steps}), flush=True)
    digest = digest_of(model)
    print(f"rank {rank} of {world} ends with model {digest}", flush=True)
    record(options.record, "end", code=0, model=digest)
    return 0


if __name__ == "__main__":
    sys.exit(main())
