"""Runs the DAG of a module by ``dag.test()``; the last line on stdout is JSON of how it ended.

``python -m tests.examples.dag_run MODULE[:NAME] [CONF]``: the DAG is called ``dag`` there when no name is given;
the configuration of the run is JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path


def main(where: str, conf: str = "{}") -> None:
    module, _, name = where.partition(":")
    # Airflow runs only what it finds in its folder of DAGs.
    os.environ["AIRFLOW__CORE__DAGS_FOLDER"] = str(Path(find_spec(module).origin).parent)

    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    run = getattr(importlib.import_module(module), name or "dag").test(run_conf=json.loads(conf))
    with create_session() as session:
        found = session.scalars(
            select(XComModel).where(XComModel.run_id == run.run_id, XComModel.key == "return_value")
        ).all()
        values = {_name(xcom): xcom.value for xcom in found}
    states = {_name(instance): str(instance.state) for instance in run.get_task_instances()}
    print(json.dumps({"state": str(run.state), "states": states, "values": values}))


def _name(row) -> str:
    return row.task_id if row.map_index < 0 else f"{row.task_id}[{row.map_index}]"


if __name__ == "__main__":
    main(*sys.argv[1:])
