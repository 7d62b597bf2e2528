"""The status of a job while a reconciliation works on it."""

from __future__ import annotations

import copy
import datetime as dt
from dataclasses import dataclass
from typing import Any

from airflow_kftrain.controllers import conditions as cond
from airflow_kftrain.controllers.conditions import Condition, Truth

FAILED_BY_LIMIT = (
    "has failed because it has reached the specified backoff limit",
    "has failed because it was active longer than specified deadline",
)
"""How the messages end by which a job's failure is known as that of a limit: it is cleaned up whole."""


@dataclass(frozen=True)
class Note:
    """An event to be recorded on the job."""

    type: str
    reason: str
    message: str


@dataclass
class Counts:
    """Replicas of one type by what has become of them.

    :param first_succeeded: whether replica 0 is among the succeeded; known from pods alone, not kept
    :param selector: label selector of the type's pods, where the kind has a scale subresource
    """

    active: int = 0
    succeeded: int = 0
    failed: int = 0
    selector: str | None = None
    first_succeeded: bool = False

    @classmethod
    def from_dict(cls, status: dict[str, Any] | None) -> Counts:
        given = status or {}
        return cls(
            int(given.get("active", 0)),
            int(given.get("succeeded", 0)),
            int(given.get("failed", 0)),
            given.get("selector"),
        )

    def add(self, index: int, pod: dict[str, Any]) -> None:
        """Count the pod of one replica.

        A running pod that is being deleted counts as failed: its node may be gone, and it would never get there. So
        does one that ended with 0 because it was told to: it has not done its work.
        """
        phase = (pod.get("status") or {}).get("phase")
        terminating = pod["metadata"].get("deletionTimestamp") is not None
        if phase == "Succeeded" and not _told_to_end(pod):
            self.succeeded += 1
            self.first_succeeded |= index == 0
        elif phase in ("Failed", "Succeeded") or (phase == "Running" and terminating):
            self.failed += 1
        elif phase == "Running":
            self.active += 1

    def to_dict(self) -> dict[str, Any]:
        numbers = {"active": self.active, "succeeded": self.succeeded, "failed": self.failed}
        shown: dict[str, Any] = {name: number for name, number in numbers.items() if number}
        return shown | ({"selector": self.selector} if self.selector else {})


def _told_to_end(pod: dict[str, Any]) -> bool:
    """Whether a pod's containers ended after somebody asked for its deletion."""
    metadata = pod["metadata"]
    if metadata.get("deletionTimestamp") is None:
        return False
    grace = dt.timedelta(seconds=int(metadata.get("deletionGracePeriodSeconds") or 0))
    asked = cond.moment(metadata["deletionTimestamp"]) - grace
    states = [c.get("state") or {} for c in (pod.get("status") or {}).get("containerStatuses") or ()]
    ends = [end for state in states if (end := (state.get("terminated") or {}).get("finishedAt"))]
    return not ends or max(map(cond.moment, ends)) >= asked


class StatusDraft:
    """A copy of a job's status that rules change, and the events that they want recorded.

    :param kind: prefix of all reasons, for instance ``XGBoostJob``
    :param status: as read; not touched
    :param now: the time of this reconciliation
    """

    def __init__(self, kind: str, status: dict[str, Any] | None, now: dt.datetime) -> None:
        self.kind = kind
        self.now = now
        self.notes: list[Note] = []
        self._original: dict[str, Any] = status or {}
        self._rest = copy.deepcopy(self._original)
        self.conditions: list[Condition] = self._rest.pop("conditions", None) or []
        replica_statuses = self._rest.pop("replicaStatuses", None) or {}
        self.counts = {name: Counts.from_dict(given) for name, given in replica_statuses.items()}

    def reason(self, name: str) -> str:
        """``Running`` → ``XGBoostJobRunning``."""
        return f"{self.kind}{name}"

    def note(self, kind: str, reason: str, message: str) -> None:
        """Have an event recorded."""
        self.notes.append(Note(kind, reason, message))

    def is_true(self, condition: str) -> bool:
        return cond.is_true(self.conditions, condition)

    @property
    def finished(self) -> bool:
        return cond.is_finished(self.conditions)

    @property
    def failed_by_limit(self) -> bool:
        """Whether a limit ended the job; all its pods go then, whatever the clean-pod policy says."""
        failed = cond.find(self.conditions, cond.FAILED)
        return failed is not None and str(failed.get("message", "")).endswith(FAILED_BY_LIMIT)

    def set(self, condition: str, message: str, *, truth: Truth = "True", reason: str | None = None) -> None:
        """Set a condition; its reason is the kind and ``reason``, by default the condition's own type."""
        self.conditions = cond.with_condition(
            self.conditions, condition, truth, self.reason(reason or condition), message, self.now
        )

    @property
    def start_time(self) -> dt.datetime | None:
        text = self._rest.get("startTime")
        return cond.moment(text) if text else None

    def start(self) -> None:
        """The job's time begins now."""
        self._rest["startTime"] = cond.timestamp(self.now)

    @property
    def finish_time(self) -> dt.datetime | None:
        """When the job ended.

        A failure by a permanent exit code leaves no ``completionTime`` (as the training operator has it); the
        transition of its condition stands in.
        """
        text = self._rest.get("completionTime")
        final = next((c for c in self.conditions if c["type"] in cond.FINAL and c["status"] == "True"), None)
        text = text or (final or {}).get("lastTransitionTime")
        return cond.moment(text) if text else None

    def complete(self) -> None:
        """The job's time ends now, unless it did before."""
        self._rest.setdefault("completionTime", cond.timestamp(self.now))

    def succeed(self, message: str) -> None:
        """The job has done its work."""
        self.note("Normal", self.reason(cond.SUCCEEDED), message)
        self.complete()
        self.set(cond.SUCCEEDED, message)

    def fail(self, message: str) -> None:
        """The job has failed for good."""
        self.note("Normal", self.reason(cond.FAILED), message)
        self.complete()
        self.set(cond.FAILED, message)

    def restart(self, message: str) -> None:
        """A replica is made anew."""
        self.note("Warning", self.reason(cond.RESTARTING), message)
        self.set(cond.RESTARTING, message)

    def settle_success(self) -> None:
        """Once the job has succeeded, replicas that were still at work count as succeeded."""
        for counts in self.counts.values():
            counts.succeeded += counts.active
            counts.active = 0

    def to_dict(self) -> dict[str, Any]:
        """The status as the API keeps it."""
        shown = dict(self._rest)
        if self.conditions:
            shown["conditions"] = self.conditions
        if self.counts:
            shown["replicaStatuses"] = {name: counts.to_dict() for name, counts in self.counts.items()}
        return shown

    @property
    def changed(self) -> bool:
        """Whether there is anything to write."""
        return self.to_dict() != self._original
