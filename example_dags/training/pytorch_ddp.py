"""Train one classifier with PyTorch DistributedDataParallel, each rank on its own shard of the digits.

Runs as every replica of a PyTorchJob. Gradients are averaged over all ranks after each batch (gloo, so no GPU is
needed); all ranks end with the same weights, which rank 0 saves. Needs PyTorch 1.13 or newer and numpy.
"""

from __future__ import annotations

import argparse
import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from reporting import report


def main() -> None:
    arguments = _arguments()
    torch.manual_seed(7)
    dist.init_process_group("gloo")  # MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE: the environment of the job
    rank, world_size = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(network())
    _train(model, arguments, rank)
    digest = fingerprint(model.module)
    _check_all_ranks_agree(digest)
    print(f"rank {rank} of {world_size}: model {digest:012x}", flush=True)
    if rank == 0:
        arguments.model.parent.mkdir(parents=True, exist_ok=True)
        torch.save(model.module.state_dict(), arguments.model)
        report(progressPercentage=100, model=str(arguments.model))
    dist.barrier()  # rank 0 holds the store that the others still need to leave the group
    dist.destroy_process_group()


def network() -> nn.Module:
    """64 pixels in, 10 digits out."""
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def fingerprint(model: nn.Module) -> int:
    """48 bits of a hash over all weights."""
    buffer = io.BytesIO()
    for value in model.state_dict().values():
        buffer.write(value.numpy().tobytes())
    return int(hashlib.sha256(buffer.getvalue()).hexdigest()[:12], 16)


def read(path: Path) -> tuple[Any, Any]:
    """Rows and labels of one file as tensors."""
    with np.load(path) as rows:
        return torch.tensor(rows["x"], dtype=torch.float32) / 16, torch.tensor(rows["y"], dtype=torch.long)


def accuracy(model: nn.Module, x: Any, y: Any) -> float:
    """Share of rows classified rightly."""
    with torch.no_grad():
        return round(float((model(x).argmax(1) == y).float().mean()), 6)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with shard-<rank>.npz and holdout.npz"
    )
    parser.add_argument("--model", type=Path, required=True, help="where rank 0 saves the weights")
    parser.add_argument("--epochs", type=int, default=10)
    return parser.parse_args()


def _train(model: Any, arguments: argparse.Namespace, rank: int) -> None:
    x, y = read(arguments.data / f"shard-{rank}.npz")
    holdout = read(arguments.data / "holdout.npz")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    # All ranks must take part in the same number of averages: the smallest shard decides.
    rows = torch.tensor([len(y)])
    dist.all_reduce(rows, dist.ReduceOp.MIN)
    for epoch in range(arguments.epochs):
        for batch in range(0, int(rows), 32):
            optimizer.zero_grad()
            end = min(batch + 32, int(rows))
            loss = nn.functional.cross_entropy(model(x[batch:end]), y[batch:end])
            loss.backward()
            optimizer.step()
        if rank == 0:
            metrics = {"accuracy": accuracy(model.module, *holdout), "loss": round(float(loss), 6)}
            report(progressPercentage=int(100 * (epoch + 1) / arguments.epochs), metrics=metrics)


def _check_all_ranks_agree(digest: int) -> None:
    lowest, highest = torch.tensor([digest]), torch.tensor([digest])
    dist.all_reduce(lowest, dist.ReduceOp.MIN)
    dist.all_reduce(highest, dist.ReduceOp.MAX)
    if int(lowest) != int(highest):
        raise SystemExit(f"the ranks hold different weights: {int(lowest):x} and {int(highest):x}")


if __name__ == "__main__":
    main()
