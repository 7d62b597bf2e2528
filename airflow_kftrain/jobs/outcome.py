"""The one final value of a job, as plain JSON that fits into an XCom."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_kftrain.jobs.causes import Cause
from airflow_kftrain.jobs.gang import Gang, Replica
from airflow_kftrain.jobs.plain import clean, cut_text, json_size
from airflow_kftrain.jobs.progress import Metric, Progress
from airflow_kftrain.jobs.status import State, parse_time

LARGEST = 48 * 1024
"""Bytes of an outcome as JSON text."""
# Shares of the bytes that remain once nothing can be left whole; together with names and times they stay below LARGEST.
_MESSAGE, _PROGRESS, _REPLICAS, _SHORT = 8 * 1024, 12 * 1024, 20 * 1024, 512


@dataclass(frozen=True, slots=True)
class ReplicaResult:
    """How one replica ended.

    :param phase: ``Succeeded``, ``Failed``, or what it was in when the job ended
    :param starts: pods that were made for it, when they were counted
    """

    name: str
    phase: str
    exit_code: int | None = None
    restarts: int = 0
    reason: str | None = None
    uid: str | None = None
    starts: int | None = None

    @classmethod
    def of(cls, replica: Replica, *, starts: int | None = None) -> ReplicaResult:
        """The result of a replica as its pod shows it."""
        return cls(
            replica.name,
            replica.phase,
            replica.exit_code,
            replica.restarts,
            replica.reason or (replica.waiting.cause.value if replica.waiting else None),
            replica.uid,
            starts,
        )


@dataclass(frozen=True, slots=True)
class Times:
    """When a job passed each mark, in UTC; None for those it never reached.

    :param queued: the object was made
    :param admitted: it was released to run (in single-job mode, when it was made)
    :param gang_up: the whole gang ran for the first time
    :param finished: it reached its final state
    """

    queued: dt.datetime | None = None
    admitted: dt.datetime | None = None
    gang_up: dt.datetime | None = None
    finished: dt.datetime | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended, with all that is worth knowing once its object is gone.

    :param state: ``succeeded`` or ``failed``
    :param cause: why it failed, None when it did not
    :param reason: of the deciding condition or limit, a word
    :param message: for people, a sentence
    :param replicas: those that lead first
    :param progress: the last that the training code said
    :param cut: what was left out to keep the size, one note each
    """

    state: State
    kind: str
    namespace: str
    name: str
    uid: str
    cause: Cause | None = None
    reason: str = ""
    message: str = ""
    replicas: tuple[ReplicaResult, ...] = ()
    times: Times = field(default_factory=Times)
    progress: Progress = field(default_factory=Progress)
    cut: tuple[str, ...] = ()

    @property
    def succeeded(self) -> bool:
        """Whether it ended well."""
        return self.state is State.SUCCEEDED

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """The last metrics the training code reported."""
        return self.progress.metrics

    @property
    def exit_codes(self) -> dict[str, int]:
        """Exit code of each replica that has one."""
        return {r.name: r.exit_code for r in self.replicas if r.exit_code is not None}

    def to_json(self) -> dict[str, Any]:
        """Plain JSON of at most :data:`LARGEST` bytes; what was left out is noted under ``cut``."""
        whole = _to_json(self)
        return whole if json_size(whole) <= LARGEST else _to_json(_bounded(self))

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Outcome:
        """What :meth:`to_json` gave.

        :raises KeyError: it is not that
        :raises ValueError: it is not that
        """
        job = value["job"]
        replicas = value.get("replicas") or {}
        times = value.get("times") or {}
        said = {n: value.get(n) for n in ("metrics", "model", "checkpoint") if value.get(n) is not None}
        return cls(
            state=State(value["state"]),
            kind=job["kind"],
            namespace=job["namespace"],
            name=job["name"],
            uid=job["uid"],
            cause=Cause(value["cause"]) if value.get("cause") else None,
            reason=value.get("reason") or "",
            message=value.get("message") or "",
            replicas=tuple(ReplicaResult(name, **fields) for name, fields in replicas.items()),
            times=Times(**{name: parse_time(text) for name, text in times.items()}),
            progress=Progress.from_json({**(value.get("progress") or {}), **said}),
            cut=tuple(value.get("cut") or ()),
        )


def results(gang: Gang, *, starts: Mapping[str, int] | None = None) -> tuple[ReplicaResult, ...]:
    """The results of a gang.

    :param starts: replica name to the pods that were made for it, where they were counted
    """
    counted = starts or {}
    return tuple(ReplicaResult.of(replica, starts=counted.get(replica.name)) for replica in gang.replicas)


# Ends that come from outside the code; the exit codes of the others often only follow from them.
_FIRST_BLAMED = (Cause.OOM_KILLED, Cause.EVICTED, Cause.PREEMPTED, Cause.NODE_LOST)


def blame(gang: Gang, *, fallback: Cause = Cause.UNKNOWN) -> tuple[Cause, str]:
    """Why a gang failed or does not start, and a sentence that names the replica to blame (empty for none).

    :param fallback: the cause when the pods tell none
    """
    failed = min(gang.failed, key=lambda replica: replica.cause not in _FIRST_BLAMED, default=None)
    if failed is not None:
        known = failed.cause if failed.cause is not Cause.UNKNOWN else None
        return known or fallback, f"{failed}: {failed.message}" if failed.message else str(failed)
    for replica in gang.waiting:
        if replica.waiting is not None and replica.waiting.cause is not Cause.TERMINATING:
            return replica.waiting.cause, str(replica)
    return fallback, ""


def _to_json(outcome: Outcome) -> dict[str, Any]:
    said = outcome.progress.to_json()
    reported = {name: said.pop(name, None) for name in ("metrics", "model", "checkpoint")}
    found: dict[str, Any] = {
        "state": outcome.state.value,
        "cause": outcome.cause.value if outcome.cause else None,
        "reason": outcome.reason,
        "message": outcome.message,
        "job": {n: getattr(outcome, n) for n in ("kind", "namespace", "name", "uid")},
        "times": {
            f.name: moment.isoformat() if (moment := getattr(outcome.times, f.name)) else None
            for f in dataclasses.fields(Times)
        },
        "replicas": {r.name: _result_to_json(r) for r in outcome.replicas},
        "progress": said,
        **reported,
        "cut": list(outcome.cut),
    }
    return {name: clean(value) for name, value in found.items()}


def _result_to_json(result: ReplicaResult) -> dict[str, Any]:
    return {f.name: getattr(result, f.name) for f in dataclasses.fields(result) if f.name != "name"}


def _bounded(outcome: Outcome) -> Outcome:
    """The outcome with its message, its progress and its replicas each cut to their share."""
    notes: list[str] = []
    message = cut_text(outcome.message, _MESSAGE)
    if message != outcome.message:
        notes.append(f"message: cut from {len(outcome.message)} characters")
    progress = _bounded_progress(outcome.progress, notes)
    short = [
        dataclasses.replace(r, reason=cut_text(r.reason, _SHORT) if r.reason else None)
        for r in outcome.replicas
    ]
    kept = _first_that_fit(_by_interest(short), _REPLICAS, lambda r: {r.name: _result_to_json(r)})
    if len(kept) < len(short):
        notes.append(f"replicas: {len(kept)} of {len(short)} kept, those that failed first")
    names = {r.name for r in kept}
    return dataclasses.replace(
        outcome,
        reason=cut_text(outcome.reason, _SHORT),
        message=message,
        progress=progress,
        replicas=tuple(r for r in short if r.name in names),
        cut=(*outcome.cut[:10], *notes),
    )


def _bounded_progress(progress: Progress, notes: list[str]) -> Progress:
    pairs = _first_that_fit(list(progress.metrics.items()), _PROGRESS, lambda pair: {pair[0]: pair[1]})
    if len(pairs) < len(progress.metrics):
        notes.append(f"metrics: the first {len(pairs)} of {len(progress.metrics)} kept")
    return dataclasses.replace(progress, metrics=dict(pairs))


def _by_interest(replicas: Iterable[ReplicaResult]) -> list[ReplicaResult]:
    return sorted(replicas, key=lambda r: r.phase != "Failed")


def _first_that_fit(items: Sequence[Any], budget: int, shown: Any) -> list[Any]:
    kept = []
    for item in items:
        budget -= json_size(shown(item))
        if budget < 0:
            break
        kept.append(item)
    return kept
