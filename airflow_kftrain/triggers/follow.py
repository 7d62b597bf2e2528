"""What a trigger does next, from what it sees of a job; pure.

:func:`advance` takes the memory so far and one look at the cluster, and returns the new memory with what is to be said,
written and decided. It is called at each change, and again when its own ``look_again`` has passed.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from airflow_kftrain.jobs.causes import Cause
from airflow_kftrain.jobs.durations import format_duration
from airflow_kftrain.jobs.frameworks import framework
from airflow_kftrain.jobs.gang import Gang
from airflow_kftrain.jobs.limits import Limit, LimitSeconds
from airflow_kftrain.jobs.spec import ReplicaSpec, TrainingJobSpec
from airflow_kftrain.jobs.status import JobStatus, State, is_suspended, parse_time
from airflow_kftrain.jobs.times import JobTimes, admitted_at, resumed_at, suspended_at
from airflow_kftrain.jobs.waits import distinct_events
from airflow_kftrain.triggers.storms import Storm, storm_of

NUDGE_AFTER = 10.0
"""Seconds after admission without any pod; then the job is touched once, as operators were seen to look away."""

EXPLAIN_AFTER = 5.0
"""Seconds an incomplete gang may wait before events are read for a cause."""

EXPLAIN_AGAIN, EXPLAIN_SELDOM = 60.0, 960.0
"""Seconds between two readings of events while the gang stays incomplete: at first, then twice as many, at the most."""


@dataclass(frozen=True, slots=True)
class Breach:
    """A limit, in seconds, has passed."""

    limit: Limit
    seconds: float

    def __str__(self) -> str:
        span = format_duration(self.seconds)
        return {
            Limit.QUEUE: f"not admitted within its queue limit of {span}",
            Limit.START: f"the gang was not whole within its start limit of {span}",
            Limit.RUN: f"not done within its run limit of {span}",
        }[self.limit]


class End(StrEnum):
    """How the following of a job ends."""

    FINISHED = "finished"
    GONE = "gone"
    BREACHED = "breached"
    HOLLOW = "hollow"


@dataclass(frozen=True, slots=True)
class Look:
    """What is seen of a job at one moment.

    :param job: the object; None when it does not exist (any more)
    :param pods: its pods
    :param events: warnings about the job and its pods, as far as they were read
    :param gone: its pods that are no more, as they were last
    """

    job: Mapping[str, Any] | None
    pods: Sequence[Mapping[str, Any]] = ()
    events: Sequence[Mapping[str, Any]] = ()
    gone: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class Memory:
    """What is kept between two looks.

    :param said: the last line about state and gang, so that it is not repeated
    :param told: warnings that were told
    :param nudged: whether the job was touched in the present admission
    :param explained: how often events were asked for in the present admission
    :param explained_at: when that was last
    :param up_at: when the gang was whole in the present admission
    """

    said: str = ""
    told: frozenset[str] = frozenset()
    nudged: bool = False
    explained: int = 0
    explained_at: dt.datetime | None = None
    up_at: dt.datetime | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """What follows from a look.

    :param lines: for the task's log
    :param times: for the ``kftrain/times`` annotation
    :param nudge: touch the job
    :param explain: read events, then look again
    :param end: how it ends, if it does
    :param breach: the limit that has passed, if one has; its text says which
    :param look_again: seconds until the next look is due though nothing changed; None: only a change matters
    """

    memory: Memory
    lines: tuple[str, ...] = ()
    times: JobTimes | None = None
    nudge: bool = False
    explain: bool = False
    end: End | None = None
    breach: Breach | Storm | None = None
    look_again: float | None = None


def advance(
    memory: Memory, look: Look, *, limits: LimitSeconds, now: dt.datetime, wait_for: Sequence[str] = ()
) -> Step:
    """What follows from ``look``.

    Limits count from instants that the cluster keeps: ``queue`` from the job's creation, ``start`` from its admission
    (creation or resumption), ``run`` from ``kftrain/times``, ``after`` from its completion.

    :param wait_for: replicas or replica types whose end is waited for after the job has succeeded, or ``all``
    """
    if look.job is None:
        return Step(memory, end=End.GONE)
    status = JobStatus.from_object(look.job)
    if status.state.final:
        hollow = status.state is State.SUCCEEDED and is_hollow(look)
        if hollow or status.state is not State.SUCCEEDED:
            return Step(memory, end=End.HOLLOW if hollow else End.FINISHED)
        return _after_success(memory, _still_running(look, wait_for), status.completion_time, limits, now)
    if is_suspended(look.job):
        return _while_suspended(memory, look.job, limits, now)
    return _while_admitted(memory, look, limits, now)


def is_hollow(look: Look) -> bool:
    """Whether a job that was resumed succeeded although its gang never ran whole since.

    The training operator takes the end of a pod that was still terminating for the end of the new run.
    """
    job = look.job
    if job is None or resumed_at(job) is None or present_times(job).gang_up_at is not None:
        return False
    return any(replica.phase == "Pending" for replica in gang_of(look).replicas)


def gang_of(look: Look) -> Gang:
    """The gang that the job object asks for."""
    assert look.job is not None
    return Gang.from_pods(seen_spec(look.job), look.pods, look.events)


def seen_spec(job: Mapping[str, Any]) -> TrainingJobSpec:
    """The replicas and their restart policies as a job object has them, whatever else it holds.

    It is not checked: the API server took it, and a newer operator may have added fields.
    """
    kind = framework(job["kind"])
    given = (job.get("spec") or {}).get(kind.replica_specs_field) or {}
    replicas = {
        known: ReplicaSpec(
            replicas=(spec or {}).get("replicas", 1), restart_policy=(spec or {}).get("restartPolicy")
        )
        for name, spec in given.items()
        if (known := kind.replica_type(name)) is not None
    }
    return TrainingJobSpec(kind.kind, replicas, name=job["metadata"].get("name"))


def present_times(job: Mapping[str, Any]) -> JobTimes:
    """The job's times without a gang-up of an earlier admission that nobody took off."""
    times, resumed = JobTimes.of(job), resumed_at(job)
    stale = times.gang_up_at is not None and resumed is not None and times.gang_up_at < resumed
    return replace(times, gang_up_at=None) if stale else times


def last_start(gang: Gang, pods: Iterable[Mapping[str, Any]]) -> dt.datetime | None:
    """When the last replica of a whole gang started, as the cluster tells it; None where it does not."""
    uids = {replica.uid for replica in gang.replicas}
    starts = [_started(pod) for pod in pods if pod["metadata"].get("uid") in uids]
    known = [start for start in starts if start is not None]
    return max(known, default=None) if len(known) == gang.total else None


def _still_running(look: Look, wait_for: Sequence[str]) -> tuple[str, ...]:
    """Those to wait for whose pods exist and have not ended."""
    wanted = {name.lower() for name in wait_for}
    return tuple(
        replica.name
        for replica in (gang_of(look).replicas if wanted else ())
        if wanted & {"all", replica.name, replica.replica_type.lower()}
        and not (replica.final or replica.phase == "Missing")
    )


def _after_success(
    memory: Memory,
    running: tuple[str, ...],
    succeeded: dt.datetime | None,
    limits: LimitSeconds,
    now: dt.datetime,
) -> Step:
    """A success stays one, however those end that are still at work."""
    if not running:
        return Step(memory, end=End.FINISHED)
    names = ", ".join(running)
    left = None if limits.after is None else _left(limits.after, succeeded, now)
    if left is not None and left <= 0:
        span = format_duration(limits.after or 0.0)
        return _say(
            Step(memory, end=End.FINISHED), f"{names} did not end within {span} after the job's success"
        )
    return _say(Step(memory, look_again=left), f"The job has succeeded; waiting for the end of {names}")


def _while_suspended(memory: Memory, job: Mapping[str, Any], limits: LimitSeconds, now: dt.datetime) -> Step:
    times = JobTimes.of(job)
    written = times.suspended(suspended_at(job) or now) if times.gang_up_at is not None else None
    memory = replace(memory, nudged=False, explained=0, explained_at=None, up_at=None)
    never_admitted = (job.get("status") or {}).get("startTime") is None and not times.elapsed(now)
    left = None
    if limits.queue is not None and never_admitted:
        left = _left(limits.queue, admitted_at(job), now)
        if left <= 0:
            return Step(memory, end=End.BREACHED, breach=Breach(Limit.QUEUE, limits.queue), times=written)
    return _say(Step(memory, times=written, look_again=left), "The job is suspended: it waits to be admitted")


def _while_admitted(memory: Memory, look: Look, limits: LimitSeconds, now: dt.datetime) -> Step:
    assert look.job is not None
    gang = gang_of(look)
    admitted = admitted_at(look.job) or now
    storm = storm_of(look.job, seen_spec(look.job), (*look.gone, *look.pods), admitted)
    if storm is not None:
        return Step(memory, end=End.BREACHED, breach=storm)
    times = present_times(look.job)
    written = None
    if times.gang_up_at is None and memory.up_at is not None and memory.up_at >= admitted:
        times = written = replace(times, gang_up_at=memory.up_at)  # it could not be written so far
    elif times.gang_up_at is None and gang.whole:
        times = written = replace(times, gang_up_at=max(last_start(gang, look.pods) or now, admitted))
    limit, left = _limit_left(limits, times, admitted, now)
    if left is not None and left <= 0:
        span = limits.start if limit is Limit.START else limits.run
        return Step(memory, times=written, end=End.BREACHED, breach=Breach(limit, span or 0.0))
    waited = (now - admitted).total_seconds()
    no_pods = all(replica.pod is None for replica in gang.replicas)
    nudge = no_pods and not memory.nudged and times.gang_up_at is None and waited >= NUDGE_AFTER
    explain = not gang.whole and _explain_due(memory, waited, now)
    told = () if gang.whole else _untold(memory, gang, look.events)
    step = Step(
        replace(
            memory,
            nudged=memory.nudged or nudge,
            explained=memory.explained + explain,
            explained_at=now if explain else memory.explained_at,
            told=memory.told.union(told),
            up_at=times.gang_up_at,
        ),
        lines=tuple(f"Warning of the cluster: {text}" for text in told),
        times=written,
        nudge=nudge,
        explain=explain,
        look_again=_next_look(memory, left, waited, now, whole=gang.whole, no_pods=no_pods),
    )
    return _say(step, _gang_line(gang, times, admitted))


def _limit_left(
    limits: LimitSeconds, times: JobTimes, admitted: dt.datetime, now: dt.datetime
) -> tuple[Limit, float | None]:
    """The limit that applies, and the seconds left of it."""
    if times.gang_up_at is None:
        return Limit.START, None if limits.start is None else _left(limits.start, admitted, now)
    return Limit.RUN, None if limits.run is None else limits.run - times.elapsed(now)


def _left(limit: float, since: dt.datetime | None, now: dt.datetime) -> float:
    return limit - (now - since).total_seconds() if since is not None else limit


def _explain_due(memory: Memory, waited: float, now: dt.datetime) -> bool:
    return _until_explained(memory, waited, now) <= 0


def _until_explained(memory: Memory, waited: float, now: dt.datetime) -> float:
    if memory.explained_at is None:
        return EXPLAIN_AFTER - waited
    return _period(memory) - (now - memory.explained_at).total_seconds()


def _period(memory: Memory) -> float:
    return float(min(EXPLAIN_AGAIN * 2 ** max(memory.explained - 1, 0), EXPLAIN_SELDOM))


def _next_look(
    memory: Memory, left: float | None, waited: float, now: dt.datetime, *, whole: bool, no_pods: bool
) -> float | None:
    due = [left] if left is not None else []
    if not whole:
        due.append(_until_explained(memory, waited, now))
    if no_pods and not memory.nudged:
        due.append(NUDGE_AFTER - waited)
    # What is due in this very step comes again only after its own period.
    return min((span if span > 0 else _period(memory) for span in due), default=None)


def _gang_line(gang: Gang, times: JobTimes, admitted: dt.datetime) -> str:
    if gang.whole:
        after = (times.gang_up_at - admitted).total_seconds() if times.gang_up_at else 0.0
        return f"The gang is whole, {format_duration(after)} after admission: {gang.ready}/{gang.total} replicas are up"
    return gang.explain()


def _say(step: Step, line: str) -> Step:
    """``step`` with ``line``, unless it was the last one said."""
    if line == step.memory.said:
        return step
    return replace(step, memory=replace(step.memory, said=line), lines=(line, *step.lines))


def _untold(memory: Memory, gang: Gang, events: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Warnings not told yet; what every pod, its PodGroup and its gang repeat of full nodes is in the gang's line."""
    full = [r.waiting.text for r in gang.replicas if r.waiting and r.waiting.cause is Cause.UNSCHEDULABLE]
    reasons = {text.partition(": ")[2] for text in full} - {""}
    texts = (
        f"{reason}: {' '.join(message.split())}"
        for reason, message in distinct_events(events)
        if not any(known in message for known in reasons)
    )
    return tuple(text for text in texts if text not in memory.told)


def _started(pod: Mapping[str, Any]) -> dt.datetime | None:
    status = pod.get("status") or {}
    starts = []
    for container in status.get("containerStatuses") or ():
        state = container.get("state") or {}
        starts.append(parse_time((state.get("running") or state.get("terminated") or {}).get("startedAt")))
    known = [start for start in starts if start is not None]
    return max(known, default=parse_time(status.get("startTime")))
