"""The one event of a trigger: all that the task needs, since the object may be gone when the task resumes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from airflow_kftrain.exceptions import InvalidInput

ENDS = ("succeeded", "failed", "gone", "limit", "unreadable", "error")


@dataclass(frozen=True)
class JobRef:
    """Where a job is, and whose.

    :param uid: of the object; a new object of the same name is another job
    :param owner: the ownership token, the UUID of the task instance
    """

    kind: str
    namespace: str
    name: str
    uid: str
    owner: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


@dataclass(frozen=True)
class FinalEvent:
    """How a job ended.

    :param job: which job
    :param end: ``succeeded``, ``failed``, ``gone`` (deleted by somebody else), ``limit`` (a limit passed),
        ``unreadable`` (the cluster refuses to be read), ``error`` (a fault of this package)
    :param message: the cause for people; empty for a success
    :param outcome: the job's outcome as JSON
    """

    job: JobRef
    end: str
    message: str = ""
    outcome: Mapping[str, Any] = field(default_factory=dict)

    def to_payload(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    @classmethod
    def of(cls, payload: object) -> Self:
        """The event that a payload holds. :raises InvalidInput: it holds none"""
        if not isinstance(payload, Mapping) or payload.get("end") not in ENDS:
            raise InvalidInput(
                "event", payload, "it is no event of a TrainingJobTrigger; the task cannot go on from it"
            )
        return cls(
            JobRef(**payload["job"]),
            payload["end"],
            str(payload.get("message") or ""),
            dict(payload.get("outcome") or {}),
        )
