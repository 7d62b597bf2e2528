"""Train with torchrun while workers come and go: a PyTorchJob with an elastic policy.

While it runs, change its size or kill a worker; training goes on from the last checkpoint with those that are there::

    kubectl get pytorchjobs,pods
    kubectl scale pytorchjob/NAME --replicas 3

Worker 0 holds torchrun's rendezvous: when it is killed, all of them end, and start again.
"""

from __future__ import annotations

from pathlib import Path

import pendulum
from airflow.sdk import DAG, task

from airflow_kftrain.operators.groups import Limits, Replica
from airflow_kftrain.operators.pytorch import PyTorchJobOperator
from example_dags import data

TRAINING = Path(__file__).parent / "training"

with DAG(
    "kftrain_pytorch_elastic",
    schedule=None,
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    params={"epochs": 100, "pause": 0.1},
    tags=["kftrain", "example"],
    doc_md=__doc__,
) as dag:

    @task
    def prepare(run: str) -> str:
        """Write all rows as one shard: how they are divided follows from how many workers there are."""
        target = data.folder("elastic", run)
        data.write_shards(target, shards=1, name="digits")
        return str(target)

    prepared = prepare("{{ run_id }}")

    PyTorchJobOperator(
        task_id="train",
        image="kftrain/pytorch:local",
        command=[
            "python", str(TRAINING / "torchrun.py"), str(TRAINING / "pytorch_elastic.py"),
            "--data", prepared, "--checkpoint", f"{prepared}/checkpoint.pt",
            "--epochs", "{{ params.epochs }}", "--pause", "{{ params.pause }}",
        ],
        workers=2,
        elastic={
            "minReplicas": 1,
            "maxReplicas": 4,
            "rdzvBackend": "c10d",
            # When a worker is lost, those that remain restart as well, and it counts for each.
            "maxRestarts": 10,
            # Seconds that a rendezvous stays open for more workers than the least; torchrun's own default is 30.
            "rdzvConf": [{"key": "last_call_timeout", "value": "5"}],
        },
        nproc_per_node=1,
        replicas={"Worker": Replica(restart_policy="OnFailure")},
        cpu="500m",
        memory="512Mi",
        limits=Limits(start="5m", run="30m"),
        logs="all",
    )  # fmt: skip
