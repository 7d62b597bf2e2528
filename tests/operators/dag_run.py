"""Runs a DAG of ``local_runs`` by ``dag.test()``; the last line on stdout is JSON of how it ended."""

from __future__ import annotations

import json
import sys


def main(dag_id: str) -> None:
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    from tests.operators.dags import local_runs

    run = getattr(local_runs, dag_id).test()
    with create_session() as session:
        found = session.scalars(
            select(XComModel).where(XComModel.run_id == run.run_id, XComModel.key == "return_value")
        ).all()
        values = {f"{x.task_id}[{x.map_index}]": x.value for x in found}
    states = {f"{ti.task_id}[{ti.map_index}]": str(ti.state) for ti in run.get_task_instances()}
    print(json.dumps({"state": str(run.state), "tasks": states, "values": values}, default=str))


if __name__ == "__main__":
    main(sys.argv[1])
