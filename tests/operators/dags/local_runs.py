"""DAGs that run on the local cluster: one that trains and is swept, one whose worker fails."""

from __future__ import annotations

import datetime as dt

from airflow.sdk import DAG, task

from airflow_kftrain.operators.xgboost import XGBoostJobOperator

REPORTS = """
import json, os
rank = os.environ["RANK"]
print("rank", rank, "rate", os.environ.get("RATE"), "rows", os.environ.get("ROWS"), flush=True)
if rank == "0":
    print("KFTRAIN " + json.dumps({"progressPercentage": 100, "metrics": {"rate": float(os.environ["RATE"])}}))
"""

FAILS = """
import os, sys, time
print("about to fail", flush=True)
if os.environ["RANK"] == "2":
    sys.exit(3)
time.sleep(60)  # a master that ends well would make the job's success
"""

common = {"image": "python:3.11", "workers": 2}

with DAG("trains", schedule=None, start_date=dt.datetime(2026, 1, 1, tzinfo=dt.UTC)) as trains:

    @task
    def rows() -> int:
        return 42

    sweep = XGBoostJobOperator.partial(
        task_id="sweep", command=["python", "-c", REPORTS], logs="all", **common
    ).expand(env=[{"RATE": "0.1"}, {"RATE": "0.2"}])
    one = XGBoostJobOperator(
        task_id="one",
        command=["python", "-c", REPORTS],
        env={"RATE": "{{ 1 / 2 }}", "ROWS": rows()},
        deferrable=False,
        **common,
    )

    @task
    def best(outcomes) -> float:
        return max(outcome["metrics"]["rate"] for outcome in outcomes)

    best(sweep.output)

with DAG("fails", schedule=None, start_date=dt.datetime(2026, 1, 1, tzinfo=dt.UTC)) as fails:
    XGBoostJobOperator(task_id="train", command=["python", "-c", FAILS], logs="none", **common)
