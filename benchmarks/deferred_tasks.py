"""Fill Airflow's database with deferred task instances, as an operator that defers would leave them.

Reads ``{"classpath": …, "kwargs": [{…}, …]}`` from standard input.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pendulum


def main() -> None:
    """One run of one DAG; a task instance, and its trigger, for each set of arguments."""
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.trigger import Trigger
    from airflow.utils.session import create_session
    from airflow.utils.state import DagRunState, TaskInstanceState
    from airflow.utils.types import DagRunTriggeredByType, DagRunType

    wanted: dict[str, Any] = json.load(sys.stdin)
    now = pendulum.now("UTC")
    with create_session() as session:
        dag = SerializedDagModel.get_dag("bench", session=session)
        if dag is None:
            raise SystemExit("the DAG `bench` is not serialized: run airflow dags reserialize first")
        run = dag.create_dagrun(
            run_id=f"bench-{now.timestamp()}",
            run_after=now,
            run_type=DagRunType.MANUAL,
            state=DagRunState.RUNNING,
            triggered_by=DagRunTriggeredByType.TEST,
            session=session,
        )
        version = run.task_instances[0].dag_version_id
        session.flush()
        for number, kwargs in enumerate(wanted["kwargs"]):
            trigger = Trigger(classpath=wanted["classpath"], kwargs={}, created_date=now)
            # As the execution API stores what a worker sends: plain JSON.
            trigger.encrypted_kwargs = json.dumps(kwargs)
            session.add(trigger)
            session.flush()
            instance = TaskInstance(
                dag.get_task("wait"), run_id=run.run_id, map_index=number, dag_version_id=version
            )
            instance.state = TaskInstanceState.DEFERRED
            instance.trigger_id = trigger.id
            instance.next_method = "execute_complete"
            instance.try_number = 1
            instance.start_date = now
            session.add(instance)


if __name__ == "__main__":
    main()
