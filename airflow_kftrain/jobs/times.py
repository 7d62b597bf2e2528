"""When things happened to a job: the ``kftrain/times`` annotation, and what the object itself tells.

The annotation outlives every process that follows the job, so a limit that counts from it is kept across restarts.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_kftrain.jobs.identity import TIMES
from airflow_kftrain.jobs.status import parse_time

_ADMITTED, _UP, _RUN = "admittedAt", "gangUpAt", "runSeconds"


@dataclass(frozen=True)
class JobTimes:
    """The annotation's content.

    :param admitted_at: when the present admission began, if a planner wrote it
    :param gang_up_at: when the whole gang first ran in the present admission; None before, and while suspended
    :param run_seconds: seconds it ran in earlier admissions
    :param others: fields this class does not use (admissions, preemptions, restarts), kept as they are
    """

    admitted_at: dt.datetime | None = None
    gang_up_at: dt.datetime | None = None
    run_seconds: float = 0.0
    others: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, job: Mapping[str, Any]) -> JobTimes:
        """What stands on the job; what cannot be read counts as absent."""
        text = (job["metadata"].get("annotations") or {}).get(TIMES)
        try:
            held = json.loads(text) if text else {}
        except ValueError:
            held = {}
        held = dict(held) if isinstance(held, dict) else {}
        return cls(
            parse_time(held.pop(_ADMITTED, None)),
            parse_time(held.pop(_UP, None)),
            _seconds(held.pop(_RUN, None)),
            held,
        )

    def to_text(self) -> str:
        """The annotation's value."""
        own = {
            _ADMITTED: _text(self.admitted_at),
            _UP: _text(self.gang_up_at),
            _RUN: round(self.run_seconds, 3),
        }
        return json.dumps(
            {**self.others, **{name: value for name, value in own.items() if value is not None}}
        )

    def elapsed(self, now: dt.datetime) -> float:
        """Seconds the whole gang has run, suspended time excluded."""
        present = (now - self.gang_up_at).total_seconds() if self.gang_up_at else 0.0
        return self.run_seconds + max(0.0, present)

    def suspended(self, at: dt.datetime) -> JobTimes:
        """The times after the present admission ended at ``at``."""
        return replace(self, gang_up_at=None, run_seconds=self.elapsed(at))


def admitted_at(job: Mapping[str, Any]) -> dt.datetime | None:
    """When the job's present admission began: made, resumed, or as the planner wrote, whichever is last."""
    known = [
        parse_time(job["metadata"].get("creationTimestamp")),
        resumed_at(job),
        JobTimes.of(job).admitted_at,
    ]
    return max((when for when in known if when is not None), default=None)


def resumed_at(job: Mapping[str, Any]) -> dt.datetime | None:
    """When the job was last resumed; None when it was not."""
    return _changed(job, "Suspended", "False")


def suspended_at(job: Mapping[str, Any]) -> dt.datetime | None:
    """When the job was last suspended; None when it is not."""
    return _changed(job, "Suspended", "True")


def _changed(job: Mapping[str, Any], condition: str, status: str) -> dt.datetime | None:
    for entry in (job.get("status") or {}).get("conditions") or ():
        if entry.get("type") == condition and entry.get("status") == status:
            return parse_time(entry.get("lastTransitionTime"))
    return None


def _seconds(value: object) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return max(0.0, float(value)) if number else 0.0  # type: ignore[arg-type]


def _text(when: dt.datetime | None) -> str | None:
    return when.astimezone(dt.UTC).isoformat().replace("+00:00", "Z") if when else None
