"""DAGs of the end-to-end test: gangs that bear witness (see ``tests/e2e/witness.py``)."""

from __future__ import annotations

import os

import pendulum
from airflow.sdk import DAG

from airflow_kftrain.operators.groups import Limits
from airflow_kftrain.operators.xgboost import XGBoostJobOperator

FIELDS = {
    "POD_UID": "metadata.uid",
    "POD_NAME": "metadata.name",
    "JOB_NAME": "metadata.labels['training.kubeflow.org/job-name']",
    "TRY_NUMBER": "metadata.labels['try_number']",
}


def gang(task_id: str, seconds: float | str, **given: object) -> XGBoostJobOperator:
    """A Master and two workers that run for ``seconds``."""
    env: list[dict[str, object]] = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in FIELDS.items()
    ]
    env += [{"name": "WITNESS", "value": os.environ["WITNESS"]}, {"name": "SECONDS", "value": str(seconds)}]
    return XGBoostJobOperator(
        task_id=task_id,
        image="kftrain/any:local",
        command=["python", os.environ["WITNESS_SCRIPT"]],
        env=env,
        workers=2,
        cpu="100m",
        limits=Limits(start="3m", run="10m"),
        logs="master",
        retries=0,
        **given,  # type: ignore[arg-type]
    )


START = pendulum.datetime(2026, 1, 1, tz="UTC")

with DAG("witness_long", schedule=None, start_date=START, catchup=False):
    gang("train", 300)

with DAG("witness_clear", schedule=None, start_date=START, catchup=False):
    # The first try would go on for long: only its being cleared ends it.
    gang("train", "{{ 300 if ti.try_number == 1 else 12 }}")

with DAG("witness_many", schedule=None, start_date=START, catchup=False, max_active_tasks=8):
    for number in range(3):
        gang(f"train_{number}", 60)
