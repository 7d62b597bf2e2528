"""DAGs whose jobs succeed while some of their replicas still run, until a file appears that ``release`` names."""

from __future__ import annotations

import pendulum
from airflow.sdk import DAG

from airflow_kftrain.operators.groups import Limits, Replica
from airflow_kftrain.operators.pytorch import PyTorchJobOperator
from airflow_kftrain.operators.tensorflow import TFJobOperator

TRAIN = """print('KFTRAIN {"metrics": {"loss": 0.5}, "model": "m"}')"""
LINGER = """
import pathlib, sys, time
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.05)
print('KFTRAIN {"metrics": {"auc": 0.97}}')
"""
COMMON = {"image": "kftrain/plain:1", "command": ["python", "-c", TRAIN]}
LINGERS = Replica(command=["python", "-c", LINGER, "{{ params.release }}"])
SCHEDULE = {"schedule": None, "start_date": pendulum.datetime(2026, 1, 1, tz="UTC"), "catchup": False}

with DAG("evaluator_waited_for", params={"release": "", "after": "5m"}, **SCHEDULE) as evaluator_waited_for:
    TFJobOperator(
        task_id="train",
        chief=1,
        workers=1,
        evaluator=1,
        replicas={"Evaluator": LINGERS},
        wait_for="evaluator",
        limits=Limits(after="{{ params.after }}"),
        **COMMON,
    )

with DAG("workers_waited_for", params={"release": ""}, **SCHEDULE) as workers_waited_for:
    PyTorchJobOperator(
        task_id="train", workers=2, gpus=1, wait_for="worker",
        replicas={"Master": Replica(gpus=0), "Worker": LINGERS}, **COMMON,
    )  # fmt: skip

with DAG("workers_left_alone", params={"release": ""}, **SCHEDULE) as workers_left_alone:
    PyTorchJobOperator(
        task_id="train", workers=2, gpus=1, on_finish_action="keep",
        replicas={"Master": Replica(gpus=0), "Worker": LINGERS}, **COMMON,
    )  # fmt: skip

with DAG("workers_deleted", params={"release": ""}, **SCHEDULE) as workers_deleted:
    PyTorchJobOperator(
        task_id="train", workers=2, gpus=1,
        replicas={"Master": Replica(gpus=0), "Worker": LINGERS}, **COMMON,
    )  # fmt: skip
