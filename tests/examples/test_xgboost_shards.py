"""The XGBoost example really trains on all shards: its model is one, and none that a shard alone would give."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from example_dags import data
from tests.e2e.postgres import free_port

TRAIN = Path(data.__file__).parent / "training" / "xgboost_train.py"
RANKS = 3


def train(folder: Path, world_size: int) -> set[str]:
    """Hashes of the models that the ranks of one gang end with."""
    port = str(free_port())
    ranks = [
        subprocess.Popen(
            [
                sys.executable,
                str(TRAIN),
                "--data",
                str(folder),
                "--model",
                str(folder / "model.json"),
                "--rounds",
                "5",
            ],
            env={
                **os.environ,
                "MASTER_ADDR": "localhost",
                "MASTER_PORT": port,
                "RANK": str(rank),
                "WORLD_SIZE": str(world_size),
                "OMP_NUM_THREADS": "1",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(world_size)
    ]
    try:
        outputs = [process.communicate(timeout=120)[0] for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    assert [process.returncode for process in ranks] == [0] * world_size, "\n".join(outputs)
    return {digest for output in outputs for digest in re.findall(r"rank \d+ of \d+: model (\w+)", output)}


def test_all_ranks_end_with_one_model_unlike_that_of_any_shard_alone(tmp_path: Path) -> None:
    shared = tmp_path / "gang"
    data.write_shards(shared, shards=RANKS)
    together = train(shared, RANKS)
    assert len(together) == 1
    alone: set[str] = set()
    for shard in range(RANKS):
        folder = tmp_path / f"shard-{shard}"
        folder.mkdir()
        shutil.copy(shared / "holdout.npz", folder)
        shutil.copy(shared / f"shard-{shard}.npz", folder / "shard-0.npz")
        alone |= train(folder, 1)
    assert len(alone) == RANKS
    assert not together & alone
