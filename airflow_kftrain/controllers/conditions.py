"""Conditions of a job and how they follow each other, as in training-operator v1.8.1."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Any, Literal

Condition = dict[str, Any]
Truth = Literal["True", "False", "Unknown"]

CREATED = "Created"
RUNNING = "Running"
RESTARTING = "Restarting"
SUSPENDED = "Suspended"
SUCCEEDED = "Succeeded"
FAILED = "Failed"
FINAL = (SUCCEEDED, FAILED)

# A job is either running or restarting: each of the two takes the other's place.
_RIVALS = {RUNNING: RESTARTING, RESTARTING: RUNNING}


def timestamp(moment: dt.datetime) -> str:
    """As the API writes times: UTC, whole seconds."""
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment(text: str) -> dt.datetime:
    """The time that the API wrote."""
    return dt.datetime.fromisoformat(text)


def find(conditions: Iterable[Condition], kind: str) -> Condition | None:
    """The condition of a type."""
    return next((c for c in conditions if c.get("type") == kind), None)


def is_true(conditions: Iterable[Condition], kind: str) -> bool:
    """Whether the type is there with status "True"; "False", "Unknown" and absent are not."""
    return any(c.get("type") == kind and c.get("status") == "True" for c in conditions)


def is_finished(conditions: Sequence[Condition]) -> bool:
    """Whether the job came to its end."""
    return any(is_true(conditions, kind) for kind in FINAL)


def with_condition(
    conditions: Sequence[Condition], kind: str, truth: Truth, reason: str, message: str, now: dt.datetime
) -> list[Condition]:
    """``conditions`` after one has been set.

    A failed job changes no more. The new one goes last, in place of its older self; a repeated one (same status and
    reason) changes nothing. Running and Restarting replace each other, and a final condition turns Running "False".
    """
    current = find(conditions, kind)
    same_status = current is not None and current["status"] == truth
    if is_true(conditions, FAILED) or (same_status and current is not None and current["reason"] == reason):
        return list(conditions)
    since = current["lastTransitionTime"] if current is not None and same_status else timestamp(now)
    kept = [
        c | {"status": "False"} if kind in FINAL and c["type"] == RUNNING else c
        for c in conditions
        if c["type"] not in (kind, _RIVALS.get(kind))
    ]
    return [
        *kept,
        {
            "type": kind,
            "status": truth,
            "reason": reason,
            "message": message,
            "lastUpdateTime": timestamp(now),
            "lastTransitionTime": since,
        },
    ]
