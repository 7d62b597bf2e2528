"""Train with PyTorch DistributedDataParallel: prepare → train on a gang of three → accept if good enough.

Each replica reads a shard of its own, gradients are averaged over all of them after each batch, and all end with the
same weights. On the local cluster the image ``kftrain/pytorch:*`` needs an interpreter that has PyTorch (see
``docs/frameworks.md``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pendulum
from airflow.sdk import DAG, task
from airflow.sdk.exceptions import AirflowFailException

from airflow_kftrain.operators.groups import Limits
from airflow_kftrain.operators.pytorch import PyTorchJobOperator
from example_dags import data

WORKERS = 2
GOOD_ENOUGH = 0.9
TRAIN = Path(__file__).parent / "training" / "pytorch_ddp.py"

with DAG(
    "kftrain_pytorch_ddp",
    schedule=None,
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    tags=["kftrain", "example"],
    doc_md=__doc__,
) as dag:

    @task
    def prepare(run: str) -> str:
        """Write a shard of the digits for each replica (the Master trains too) and return their folder."""
        target = data.folder("ddp", run)
        data.write_shards(target, shards=1 + WORKERS, name="digits")
        return str(target)

    prepared = prepare("{{ run_id }}")

    train = PyTorchJobOperator(
        task_id="train",
        image="kftrain/pytorch:local",
        command=["python", str(TRAIN), "--data", prepared, "--model", f"{prepared}/model.pt"],
        workers=WORKERS,
        cpu="500m",
        memory="512Mi",
        limits=Limits(start="5m", run="30m"),
        logs="all",
    )

    @task
    def accept(outcome: dict[str, Any]) -> str:
        """The model's path, if it is right about enough rows that no replica trained on."""
        accuracy = outcome["metrics"]["accuracy"]
        if accuracy < GOOD_ENOUGH:
            raise AirflowFailException(f"accuracy {accuracy} is below {GOOD_ENOUGH}")
        return str(outcome["model"])

    accept(train.output)
