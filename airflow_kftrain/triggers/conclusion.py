"""From the last look at a job to the final event; pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any

from airflow_kftrain.jobs.causes import Cause
from airflow_kftrain.jobs.gang import Gang
from airflow_kftrain.jobs.identity import REPLICA_INDEX, REPLICA_TYPE
from airflow_kftrain.jobs.limits import Limit
from airflow_kftrain.jobs.outcome import Outcome, Times, blame, results
from airflow_kftrain.jobs.progress import Progress
from airflow_kftrain.jobs.status import JobStatus, State, parse_time
from airflow_kftrain.jobs.times import JobTimes, admitted_at
from airflow_kftrain.triggers.events import FinalEvent, JobRef
from airflow_kftrain.triggers.follow import Breach, End, Look, Step, gang_of
from airflow_kftrain.triggers.storms import Storm

_LIMIT_CAUSES = {Limit.QUEUE: Cause.QUEUE_LIMIT, Limit.START: Cause.START_LIMIT, Limit.RUN: Cause.RUN_LIMIT}


def conclude(ref: JobRef, step: Step, look: Look, *, progress: Progress, now: dt.datetime) -> FinalEvent:
    """The final event of a job.

    :param step: the last one, with its ``end``
    :param look: what was seen last of the job and of all its pods, those that are no more included
    """
    status = JobStatus.from_object(look.job) if look.job is not None else None
    gang = gang_of(look) if look.job is not None else Gang(())
    end, cause, message = _verdict(step, status, gang)
    reason = status.reason if status is not None and step.breach is None else ""
    outcome = Outcome(
        state=State.SUCCEEDED if end == "succeeded" else State.FAILED,
        kind=ref.kind,
        namespace=ref.namespace,
        name=ref.name,
        uid=ref.uid,
        cause=cause,
        reason=reason,
        message=message,
        replicas=results(gang, starts=_starts(gang, look.pods)),
        times=_times(look.job, step, status, now),
        progress=progress,
    )
    return FinalEvent(ref, end, message, outcome.to_json())


def _verdict(step: Step, status: JobStatus | None, gang: Gang) -> tuple[str, Cause | None, str]:
    if isinstance(step.breach, Storm):
        return "limit", Cause.BACKOFF_LIMIT, str(step.breach)
    if step.breach is not None:
        return "limit", _LIMIT_CAUSES[step.breach.limit], _explained(step.breach, gang)
    if step.end is End.HOLLOW:
        return (
            "failed",
            Cause.NEVER_WHOLE,
            f"the job says Succeeded, but since it was resumed its gang never ran whole: {gang.explain()}",
        )
    if status is not None and status.state is State.SUCCEEDED:
        return "succeeded", None, ""
    if status is not None and status.state is State.FAILED:
        cause, culprit = blame(gang)
        return (
            "failed",
            cause,
            "; ".join(text for text in (culprit, status.message) if text) or "the job failed",
        )
    return "gone", Cause.DELETED, "the job was deleted by somebody else before it ended"


def _explained(breach: Breach, gang: Gang) -> str:
    return f"{breach}: {gang.explain()}" if breach.limit is Limit.START and gang.replicas else str(breach)


def _times(job: Mapping[str, Any] | None, step: Step, status: JobStatus | None, now: dt.datetime) -> Times:
    if job is None:
        return Times(finished=now)
    finished = status.completion_time if status is not None else None
    return Times(
        queued=parse_time(job["metadata"].get("creationTimestamp")),
        admitted=admitted_at(job),
        gang_up=JobTimes.of(job).gang_up_at or step.memory.up_at,
        finished=finished or now,
    )


def _starts(gang: Gang, pods: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """How many pods were seen of each replica."""
    uids: dict[str, set[str]] = {}
    types = {(replica.replica_type.lower(), str(replica.index)): replica.name for replica in gang.replicas}
    for pod in pods:
        labels = pod["metadata"].get("labels") or {}
        name = types.get((str(labels.get(REPLICA_TYPE, "")).lower(), str(labels.get(REPLICA_INDEX, ""))))
        if name is not None:
            uids.setdefault(name, set()).add(str(pod["metadata"].get("uid")))
    return {name: len(found) for name, found in uids.items()}
