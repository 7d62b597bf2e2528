"""A replica that bears witness: it writes down that it ran, and really exchanges numbers with its gang meanwhile.

Standard library only. The Master gathers a number from each worker, and sends all of them the sum, again and again for
``SECONDS``; a rank that gets a wrong sum exits 3, one that loses its peers exits 4. Each process appends its records to
a file of its own, ``$WITNESS/<pod uid>.jsonl``: one at its start, one at its end if it ends by itself.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

RANK, WORLD_SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
SECONDS = float(os.environ.get("SECONDS", "5"))
EXIT = int(os.environ.get("EXIT", "0"))


def main() -> int:
    witness("start", rank=RANK, pid=os.getpid())
    try:
        rounds = gather() if RANK == 0 else contribute()
    except (OSError, EOFError) as error:
        print(f"rank {RANK} lost its gang: {error}", flush=True)
        return 4
    witness("end", rank=RANK, rounds=rounds)
    return EXIT


def witness(what: str, **facts: Any) -> None:
    uid = os.environ["POD_UID"]
    record = {
        "what": what,
        "job": os.environ["JOB_NAME"],
        "pod": os.environ["POD_NAME"],
        "uid": uid,
        "try": os.environ["TRY_NUMBER"],
        "at": time.time(),
        **facts,
    }
    with (Path(os.environ["WITNESS"]) / f"{uid}.jsonl").open("a") as file:
        file.write(json.dumps(record) + "\n")


def gather() -> int:
    server = socket.create_server(("", int(os.environ["MASTER_PORT"])))
    server.settimeout(60)
    peers = [server.accept()[0].makefile("rw") for _ in range(WORLD_SIZE - 1)]
    until, rounds = time.monotonic() + SECONDS, 0
    while time.monotonic() < until:
        total = RANK + rounds
        for peer in peers:
            total += read(peer)
        for peer in peers:
            send(peer, total)
        rounds += 1
        if rounds % 10 == 1:
            done = 100 - int(100 * (until - time.monotonic()) / SECONDS)
            print(
                "KFTRAIN " + json.dumps({"progressPercentage": done, "metrics": {"rounds": rounds}}),
                flush=True,
            )
        time.sleep(0.1)
    for peer in peers:
        send(peer, -1)
    print("KFTRAIN " + json.dumps({"progressPercentage": 100, "model": f"witness://{rounds}"}), flush=True)
    return rounds


def contribute() -> int:
    peer = connect().makefile("rw")
    rounds = 0
    while True:
        send(peer, RANK + rounds)
        total = read(peer)
        if total == -1:
            return rounds
        expected = sum(rank + rounds for rank in range(WORLD_SIZE))
        if total != expected:
            print(f"rank {RANK}, round {rounds}: the sum is {total}, not {expected}", flush=True)
            sys.exit(3)
        rounds += 1


def connect() -> socket.socket:
    deadline = time.monotonic() + 60
    while True:
        try:
            return socket.create_connection(
                (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), timeout=60
            )
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def read(peer: Any) -> int:
    line = peer.readline()
    if not line:
        raise EOFError("the connection was closed")
    return int(line)


def send(peer: Any, number: int) -> None:
    peer.write(f"{number}\n")
    peer.flush()


if __name__ == "__main__":
    sys.exit(main())
