"""What a job's status says: conditions in any order become one state."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class State(StrEnum):
    """Where a job stands."""

    SUBMITTED = "submitted"
    """The object exists; no controller has looked at it."""
    QUEUED = "queued"
    """Suspended since it was made: it waits to be admitted."""
    SUSPENDED = "suspended"
    """Suspended after it had been admitted."""
    PENDING = "pending"
    """A controller works on it; nothing runs."""
    STARTING = "starting"
    """Some of its pods run, not the whole gang (told from the pods alone)."""
    RUNNING = "running"
    RESTARTING = "restarting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"

    @property
    def final(self) -> bool:
        """Whether nothing follows it."""
        return self in (State.SUCCEEDED, State.FAILED)


@dataclass(frozen=True, slots=True)
class Condition:
    """One entry of ``status.conditions``; ``status`` is ``True``, ``False`` or ``Unknown``, as text."""

    type: str
    status: str
    reason: str = ""
    message: str = ""

    @property
    def true(self) -> bool:
        """Whether it holds; ``Unknown`` and ``False`` both say that it does not."""
        return self.status == "True"


@dataclass(frozen=True, slots=True)
class ReplicaCounts:
    """How many replicas of a type are active, succeeded, failed, as the controller counts them."""

    active: int = 0
    succeeded: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job's state, and what its status adds to it.

    :param reason: of the condition that decided, for instance ``XGBoostJobFailed``
    :param message: of the same
    :param deleting: somebody has asked for the object's deletion
    :param start_time: when the controller took the job up; it is set anew when a suspended job resumes
    """

    state: State
    reason: str = ""
    message: str = ""
    deleting: bool = False
    conditions: tuple[Condition, ...] = ()
    replicas: Mapping[str, ReplicaCounts] = field(default_factory=dict)
    start_time: dt.datetime | None = None
    completion_time: dt.datetime | None = None

    @classmethod
    def from_object(cls, job: Mapping[str, Any]) -> JobStatus:
        """The status of a job object, whatever is missing or malformed in it.

        Only conditions with status ``"True"`` count, in whatever order they stand. A final one wins over all others,
        Failed over Succeeded. Whether the job is suspended is read from its spec: the Suspended condition lags.
        """
        status = _mapping(job.get("status"))
        conditions = tuple(_conditions(status))
        start = parse_time(status.get("startTime"))
        state, decided = _decide(conditions, suspended=is_suspended(job), ever_started=start is not None)
        return cls(
            state=state,
            reason=decided.reason if decided else "",
            message=decided.message if decided else "",
            deleting=bool(_mapping(job.get("metadata")).get("deletionTimestamp")),
            conditions=conditions,
            replicas={str(t): _counts(c) for t, c in _mapping(status.get("replicaStatuses")).items()},
            start_time=start,
            completion_time=parse_time(status.get("completionTime")),
        )


def is_suspended(job: Mapping[str, Any]) -> bool:
    """Whether the job's spec suspends it."""
    return _mapping(_mapping(job.get("spec")).get("runPolicy")).get("suspend") is True


def parse_time(value: Any) -> dt.datetime | None:
    """A Kubernetes time stamp as an aware datetime in UTC; None for anything else."""
    if not isinstance(value, str):
        return None
    try:
        parsed = dt.datetime.fromisoformat(value)
    except ValueError:
        return None
    return parsed.astimezone(dt.UTC) if parsed.tzinfo else parsed.replace(tzinfo=dt.UTC)


def _decide(
    conditions: tuple[Condition, ...], *, suspended: bool, ever_started: bool
) -> tuple[State, Condition | None]:
    held = {condition.type: condition for condition in conditions if condition.true}
    for final in (State.FAILED, State.SUCCEEDED):
        if final.name.title() in held:
            return final, held[final.name.title()]
    if suspended:
        admitted = ever_started or any(c.type in ("Running", "Restarting") for c in conditions)
        return (State.SUSPENDED if admitted else State.QUEUED), held.get("Suspended")
    # Restarting before Running: where both are said, less is claimed.
    for type_, state in (
        ("Restarting", State.RESTARTING),
        ("Running", State.RUNNING),
        ("Created", State.PENDING),
    ):
        if type_ in held:
            return state, held[type_]
    return (State.PENDING if conditions else State.SUBMITTED), None


def _conditions(status: Mapping[str, Any]) -> Iterator[Condition]:
    found = status.get("conditions")
    for entry in found if isinstance(found, list | tuple) else ():
        given = _mapping(entry)
        if isinstance(given.get("type"), str) and isinstance(given.get("status"), str):
            yield Condition(
                given["type"],
                given["status"],
                str(given.get("reason") or ""),
                str(given.get("message") or ""),
            )


def _counts(value: Any) -> ReplicaCounts:
    given = _mapping(value)
    numbers = {n: given.get(n) for n in ("active", "succeeded", "failed")}
    return ReplicaCounts(**{n: v for n, v in numbers.items() if isinstance(v, int)})


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
