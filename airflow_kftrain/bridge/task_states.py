"""What became of task instances, from Airflow's database."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any
from uuid import UUID

from airflow_kftrain.admission.ports import TaskTry

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

_BATCH = 500


class AirflowTaskStates:
    """Answers :class:`~airflow_kftrain.admission.ports.TaskStates` in a process that may use Airflow's database."""

    def tries(self, tokens: Collection[str]) -> Mapping[str, TaskTry]:
        """The tries with these UUIDs: present ones from ``task_instance``, earlier ones from its history."""
        from airflow.utils.session import create_session

        found: dict[str, TaskTry] = {}
        with create_session() as session:
            for batch in _batches(_uuids(tokens)):
                found |= _past(session, batch)
                found |= _present(session, batch)
        return found


def _present(session: Session, ids: list[UUID]) -> dict[str, TaskTry]:
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.state import State
    from sqlalchemy import select

    rows = session.execute(
        select(
            TaskInstance.id,
            TaskInstance.dag_id,
            TaskInstance.task_id,
            TaskInstance.run_id,
            TaskInstance.map_index,
            TaskInstance.state,
            TaskInstance.end_date,
        ).where(TaskInstance.id.in_(ids))
    )
    return {
        str(row.id): TaskTry(
            _label(row), row.state, over=row.state in State.finished, replaced=False, ended_at=row.end_date
        )
        for row in rows
    }


def _past(session: Session, ids: list[UUID]) -> dict[str, TaskTry]:
    from airflow.models.taskinstancehistory import TaskInstanceHistory
    from sqlalchemy import select

    rows = session.execute(
        select(
            TaskInstanceHistory.task_instance_id,
            TaskInstanceHistory.dag_id,
            TaskInstanceHistory.task_id,
            TaskInstanceHistory.run_id,
            TaskInstanceHistory.map_index,
            TaskInstanceHistory.state,
            TaskInstanceHistory.end_date,
        ).where(TaskInstanceHistory.task_instance_id.in_(ids))
    )
    return {
        str(row.task_instance_id): TaskTry(
            _label(row), row.state, over=False, replaced=True, ended_at=row.end_date
        )
        for row in rows
    }


def _label(row: Any) -> str:
    mapped = f"[{row.map_index}]" if row.map_index >= 0 else ""
    return f"{row.dag_id}.{row.task_id}{mapped} of {row.run_id}"


def _uuids(tokens: Collection[str]) -> Iterator[UUID]:
    """Those of ``tokens`` that are UUIDs; annotations are anybody's to write."""
    for token in sorted(tokens):
        try:
            yield UUID(token)
        except ValueError:
            continue


def _batches(ids: Iterator[UUID]) -> Iterator[list[UUID]]:
    while batch := list(islice(ids, _BATCH)):
        yield batch
