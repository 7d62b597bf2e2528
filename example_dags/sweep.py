"""Try several settings side by side, one gang each, and keep the best: dynamic task mapping over ``env``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pendulum
from airflow.sdk import DAG, task

from airflow_kftrain.operators.xgboost import XGBoostJobOperator
from example_dags import data

TRAIN = Path(__file__).parent / "training" / "xgboost_train.py"
FOLDER = str(data.folder("sweep", "{{ run_id }}"))

with DAG(
    "kftrain_sweep",
    schedule=None,
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    tags=["kftrain", "example"],
    doc_md=__doc__,
) as dag:

    @task
    def prepare(folder: str) -> list[dict[str, str]]:
        """Write the shards; return one environment for each setting to try."""
        data.write_shards(Path(folder), shards=2)
        return [{"MAX_DEPTH": depth, "ETA": eta} for depth, eta in (("2", "0.3"), ("4", "0.3"), ("4", "0.1"))]

    train = XGBoostJobOperator.partial(
        task_id="train",
        image="kftrain/xgboost:local",
        command=[
            "python", str(TRAIN), "--data", FOLDER, "--rounds", "20",
            "--model", FOLDER + "/model-{{ ti.map_index }}.json",
        ],
        workers=1,
        cpu="500m",
    ).expand(env=prepare(FOLDER))  # fmt: skip

    @task
    def best(outcomes: list[dict[str, Any]]) -> dict[str, Any]:
        """The outcome with the lowest log loss on the holdout rows."""
        ranked = sorted(outcomes, key=lambda outcome: outcome["metrics"]["logloss"])
        for outcome in ranked:
            print(outcome["model"], outcome["metrics"])
        return {"model": ranked[0]["model"], "metrics": ranked[0]["metrics"]}

    best(train.output)
