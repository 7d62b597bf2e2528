"""Train with torchrun while workers come and go: a PyTorchJob with an elastic policy.

``torch.distributed.run`` restarts this script in every worker when their number changes; each start goes on from the
last checkpoint, with the rows divided anew. ``PET_*`` variables of the job configure torchrun.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from pytorch_ddp import accuracy, fingerprint, network, read
from reporting import report


def main() -> None:
    arguments = _arguments()
    torch.manual_seed(7)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    plain = network()
    optimizer = torch.optim.Adam(plain.parameters(), lr=0.01)
    first = _resume(arguments.checkpoint, plain, optimizer)
    print(f"rank {rank} of {world_size} from epoch {first}", flush=True)
    model = DistributedDataParallel(plain)
    shard = read(arguments.data / "shard-0.npz")
    x, y = shard[0][rank::world_size], shard[1][rank::world_size]
    holdout = read(arguments.data / "holdout.npz")
    for epoch in range(first, arguments.epochs):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if rank == 0:
            _save(arguments.checkpoint, plain, optimizer, epoch + 1)
        # Worker 0 is listened to, and torchrun may give rank 0 to another one: all report, as all hold the same.
        report(
            progressPercentage=int(100 * (epoch + 1) / arguments.epochs),
            metrics={"accuracy": accuracy(plain, *holdout), "workers": world_size},
            checkpoint=str(arguments.checkpoint),
        )
        time.sleep(arguments.pause)
    print(f"rank {rank} of {world_size}: model {fingerprint(plain):012x}", flush=True)
    report(progressPercentage=100, model=str(arguments.checkpoint))
    dist.barrier()  # the first worker that ends well ends the job, and with it those that are not done yet
    dist.destroy_process_group()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with shard-0.npz and holdout.npz")
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument(
        "--pause", type=float, default=0.1, help="seconds between epochs, to watch workers come and go"
    )
    return parser.parse_args()


def _resume(checkpoint: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load the last checkpoint; the epoch to go on with."""
    if not checkpoint.exists():
        return 0
    state = torch.load(checkpoint)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["epoch"])


def _save(checkpoint: Path, model: nn.Module, optimizer: torch.optim.Optimizer, epoch: int) -> None:
    """Write whole or not at all: a worker may be killed at any moment."""
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    partial = checkpoint.with_suffix(".partial")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, partial)
    partial.replace(checkpoint)


if __name__ == "__main__":
    main()
