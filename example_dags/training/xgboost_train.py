"""Train one XGBoost model on shards that are held by different processes.

Runs as every replica of an XGBoostJob: the Master (rank 0) starts XGBoost's tracker, all ranks join it, each reads its
own shard, and the gradient histograms are summed over all of them in every round. All ranks end with the same model,
which the Master writes. The environment (``MASTER_ADDR``, ``MASTER_PORT``, ``RANK``, ``WORLD_SIZE``) is that of the
Kubeflow training operator.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import xgboost
from xgboost import collective
from xgboost.tracker import RabitTracker

from reporting import report


def main() -> None:
    arguments = _arguments()
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    address, port = socket.gethostbyname(os.environ["MASTER_ADDR"]), int(os.environ["MASTER_PORT"])
    if rank == 0:
        _start_tracker(address, port, world_size)
    else:
        _wait_for_tracker(address, port)
    with collective.CommunicatorContext(
        dmlc_tracker_uri=address,
        dmlc_tracker_port=port,
        dmlc_task_id=f"{rank:05d}",  # the tracker sorts ranks by this text
        dmlc_retry=10,
        dmlc_timeout=60,
    ):
        booster = _train(arguments, rank)
        model = booster.save_raw("json")
        digest = hashlib.sha256(model).hexdigest()
        _check_all_ranks_agree(digest)
        print(f"rank {rank} of {world_size}: model {digest[:16]}", flush=True)
        if rank == 0:
            arguments.model.parent.mkdir(parents=True, exist_ok=True)
            arguments.model.write_bytes(model)
            report(progressPercentage=100, model=str(arguments.model))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with shard-<rank>.npz and holdout.npz"
    )
    parser.add_argument("--model", type=Path, required=True, help="where the Master writes the model")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--max-depth", type=int, default=int(os.environ.get("MAX_DEPTH", "4")))
    parser.add_argument("--eta", type=float, default=float(os.environ.get("ETA", "0.3")))
    return parser.parse_args()


def _start_tracker(address: str, port: int, world_size: int) -> None:
    tracker = RabitTracker(n_workers=world_size, host_ip=address, port=port, sortby="task", timeout=300)
    print(
        "a worker that asks whether the tracker listens makes it warn of a 'worker proxy': harmless",
        flush=True,
    )
    tracker.start()
    threading.Thread(target=tracker.wait_for, daemon=True).start()


def _wait_for_tracker(address: str, port: int, seconds: float = 120.0) -> None:
    """Return once the Master listens. XGBoost retries by itself, with pauses that soon exceed the training."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection((address, port), timeout=5).close()
        except OSError as error:
            if time.monotonic() > deadline:
                raise SystemExit(
                    f"the Master at {address}:{port} did not answer for {seconds:.0f} s: {error}"
                ) from None
            time.sleep(0.1)
        else:
            return


def _train(arguments: argparse.Namespace, rank: int) -> xgboost.Booster:
    with np.load(arguments.data / f"shard-{rank}.npz") as shard:
        train = xgboost.DMatrix(shard["x"], shard["y"])
    with np.load(arguments.data / "holdout.npz") as rows:
        holdout = xgboost.DMatrix(rows["x"], rows["y"])
    parameters = {
        "objective": "binary:logistic",
        "eval_metric": ["logloss", "auc"],
        "tree_method": "hist",
        "max_depth": arguments.max_depth,
        "eta": arguments.eta,
    }
    callbacks = [_Report(arguments.rounds)] if rank == 0 else []
    return xgboost.train(
        parameters,
        train,
        num_boost_round=arguments.rounds,
        evals=[(holdout, "holdout")],
        verbose_eval=False,
        callbacks=callbacks,
    )


class _Report(xgboost.callback.TrainingCallback):
    """Tells how far the training is, at most some twenty times."""

    def __init__(self, rounds: int) -> None:
        super().__init__()
        self._rounds = rounds
        self._every = max(1, rounds // 20)

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:  # noqa: ARG002 - the name is XGBoost's
        if epoch % self._every == 0 or epoch + 1 == self._rounds:
            metrics = {name: round(float(values[-1]), 6) for name, values in evals_log["holdout"].items()}
            report(progressPercentage=int(100 * (epoch + 1) / self._rounds), metrics=metrics)
        return False


def _check_all_ranks_agree(digest: str) -> None:
    """Stop when the ranks did not end with one and the same model."""
    mine = np.array([int(digest[:12], 16)], dtype=np.int64)
    lowest = collective.allreduce(mine.copy(), collective.Op.MIN)
    highest = collective.allreduce(mine.copy(), collective.Op.MAX)
    if lowest[0] != highest[0]:
        raise SystemExit(f"the ranks hold different models: {lowest[0]:x} and {highest[0]:x}")


if __name__ == "__main__":
    main()
