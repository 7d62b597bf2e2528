"""Retrain nightly: prepare → train on a gang of three → evaluate → promote if better.

The promoted model is an asset: other DAGs can be scheduled on it.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pendulum
from airflow.sdk import DAG, Asset, task
from airflow.sdk.exceptions import AirflowSkipException

from airflow_kftrain.operators.groups import Limits
from airflow_kftrain.operators.xgboost import XGBoostJobOperator
from example_dags import data

WORKERS = 2
TRAIN = Path(__file__).parent / "training" / "xgboost_train.py"
MODEL = Asset("kftrain-example-model", uri="file:///kftrain/example/model.json")

with DAG(
    "kftrain_retraining",
    schedule="0 2 * * *",
    start_date=pendulum.datetime(2026, 1, 1, tz="Europe/Berlin"),
    catchup=False,
    max_active_runs=1,
    tags=["kftrain", "example"],
    doc_md=__doc__,
) as dag:

    @task
    def prepare(run: str) -> str:
        """Write a shard for each replica (the Master trains too) and return their folder."""
        target = data.folder("data", run)
        rows = data.write_shards(target, shards=1 + WORKERS)
        print(f"{rows} rows in {1 + WORKERS} shards under {target}")
        return str(target)

    prepared = prepare("{{ run_id }}")

    train = XGBoostJobOperator(
        task_id="train",
        image="kftrain/xgboost:local",
        command=[
            "python",
            str(TRAIN),
            "--data",
            prepared,
            "--model",
            f"{prepared}/model.json",
            "--rounds",
            "40",
        ],
        workers=WORKERS,
        cpu="500m",
        memory="512Mi",
        limits=Limits(start="5m", run="30m"),
        logs="master",
        retries=1,
    )

    @task
    def evaluate(outcome: dict[str, Any], folder: str) -> dict[str, Any]:
        """Score the new model on rows that no replica trained on."""
        scores = data.score(Path(outcome["model"]), Path(folder))
        print(f"{outcome['model']}: {scores}")
        return {"model": outcome["model"], **scores}

    @task(outlets=[MODEL])
    def promote(candidate: dict[str, Any]) -> str:
        """Put the model in place if it is at least as good as the one in use."""
        target = data.folder("promoted")
        record = target / "scores.json"
        if record.exists():
            current = json.loads(record.read_text())
            if current["auc"] > candidate["auc"]:
                raise AirflowSkipException(
                    f"AUC {candidate['auc']} is below {current['auc']} of the model in use"
                )
        target.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(candidate["model"], target / "model.json")
        record.write_text(json.dumps(candidate))
        return str(target / "model.json")

    promote(evaluate(train.output, prepared))
