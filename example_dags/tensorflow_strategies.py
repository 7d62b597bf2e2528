"""Train one model with two of TensorFlow's strategies side by side, and keep the better one.

**mirrored** (MultiWorkerMirroredStrategy): two equal workers sum their gradients in a ring after each batch; worker 0
decides that the job is done. **parameter_server** (ParameterServerStrategy): a Chief gives out steps, workers apply
their gradients to a parameter server without waiting for each other. On the local cluster the image
``kftrain/tensorflow:*`` needs an interpreter that has TensorFlow (see ``docs/frameworks.md``).

The file is not named ``tensorflow.py``, because beside other DAGs that would hide the package of that name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pendulum
from airflow.sdk import DAG, task

from airflow_kftrain.operators.groups import Limits, Replica
from airflow_kftrain.operators.tensorflow import TFJobOperator
from example_dags import data

WORKERS = 2
TRAINING = Path(__file__).parent / "training"

with DAG(
    "kftrain_tensorflow",
    schedule=None,
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    default_args={
        "image": "kftrain/tensorflow:local",
        "cpu": "500m",
        "memory": "1Gi",
        "limits": Limits(start="5m", run="30m"),
        "logs": "all",
    },
    tags=["kftrain", "example"],
    doc_md=__doc__,
) as dag:

    @task
    def prepare(run: str) -> str:
        """Write a shard of the digits for each worker and return their folder."""
        target = data.folder("tensorflow", run)
        data.write_shards(target, shards=WORKERS, name="digits")
        return str(target)

    prepared = prepare("{{ run_id }}")

    def words(script: str, model: str) -> list[Any]:
        """The command of a replica."""
        return [
            "python", str(TRAINING / script), "--data", prepared, "--model", f"{prepared}/{model}.npz",
        ]  # fmt: skip

    mirrored = TFJobOperator(
        task_id="mirrored",
        command=words("tensorflow_multiworker.py", "mirrored"),
        workers=WORKERS,
    )
    parameter_server = TFJobOperator(
        task_id="parameter_server",
        command=words("tensorflow_parameter_server.py", "parameter_server"),
        chief=1,
        ps=1,
        workers=WORKERS,
        # The Chief goes on without a worker that is lost, and takes it in again.
        replicas={"Worker": Replica(restart_policy="OnFailure")},
        # PS and workers serve until they are removed: do it as soon as the Chief is done.
        run_policy={"cleanPodPolicy": "Running"},
    )

    @task
    def better(outcomes: list[dict[str, Any]]) -> dict[str, Any]:
        """The outcome with the higher accuracy on rows that nobody trained on."""
        best = max(outcomes, key=lambda outcome: outcome["metrics"]["accuracy"])
        return {"model": best["model"], "metrics": best["metrics"]}

    better([mirrored.output, parameter_server.output])
