"""What admission asks of Airflow, as protocols: :mod:`airflow_kftrain.bridge` answers them from Airflow's database."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class TaskTry:
    """One try of a task instance, as Airflow knows it.

    :param label: the task instance for people, ``dag.task`` and run
    :param state: its state, ``None`` before it has one
    :param over: whether the try is in a final state
    :param replaced: whether the task instance has a newer try
    :param ended_at: when the try was over or replaced, if that is known
    """

    label: str
    state: str | None
    over: bool
    replaced: bool
    ended_at: dt.datetime | None = None


class TaskStates(Protocol):
    """What became of task instances."""

    def tries(self, tokens: Collection[str]) -> Mapping[str, TaskTry]:
        """The tries with these UUIDs; one that Airflow does not know is absent. May block."""
