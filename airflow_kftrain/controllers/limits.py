"""When a job has run too long, or failed too often."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from airflow_kftrain.controllers.objects import is_of_type
from airflow_kftrain.controllers.replicas import is_active, is_restarted
from airflow_kftrain.controllers.status import FAILED_BY_LIMIT, StatusDraft
from airflow_kftrain.controllers.view import JobView, Object

REPLACED_PODS = "kftrain/replaced-pods"
"""Annotation on the job: uids of the failed pods that its controller has made anew, as a JSON list.

Written before such a pod is deleted, and only where ``backoffLimit`` asks for the count.
"""

_BACKOFF, _DEADLINE = FAILED_BY_LIMIT


@dataclass(frozen=True)
class Failures:
    """Failed pods of a job.

    :param known: uids in the annotation
    :param fresh: uids of failed pods that are still there and not in it
    """

    known: list[str]
    fresh: list[str]

    @property
    def total(self) -> int:
        return len(self.known) + len(self.fresh)

    def annotation(self) -> str:
        """The annotation's value with the fresh ones in it."""
        return json.dumps([*self.known, *self.fresh])


def failures(job: JobView, pods: Iterable[Object]) -> Failures:
    """Pods that were, or are about to be, made anew."""
    known = _replaced(job)
    fresh = [
        pod["metadata"]["uid"]
        for replica in job.replicas.values()
        for pod in pods
        if is_of_type(pod, replica)
        and (pod.get("status") or {}).get("phase") == "Failed"
        and is_restarted(replica, pod, job.framework.container)
        and pod["metadata"]["uid"] not in known
    ]
    return Failures(known, fresh)


def exceeded(job: JobView, draft: StatusDraft, pods: Sequence[Object]) -> str | None:
    """Why the job must be failed now; None while it may go on."""
    if _past_backoff_limit(job, draft, pods):
        return f"Job {job.name} {_BACKOFF}"
    remaining = until_deadline(job, draft.start_time, draft.now)
    if remaining is not None and remaining <= 0:
        return f"Job {job.name} {_DEADLINE}"
    return None


def until_deadline(job: JobView, start: dt.datetime | None, now: dt.datetime) -> float | None:
    """Seconds until the active deadline, counted from the job's start; None without deadline or start."""
    if job.active_deadline is None or start is None:
        return None
    return (start + dt.timedelta(seconds=job.active_deadline) - now).total_seconds()


def until_expiry(job: JobView, draft: StatusDraft) -> float | None:
    """Seconds a finished job is to be kept; None: for ever."""
    if job.ttl is None or draft.finish_time is None:
        return None
    return (draft.finish_time + dt.timedelta(seconds=job.ttl) - draft.now).total_seconds()


def _past_backoff_limit(job: JobView, draft: StatusDraft, pods: Sequence[Object]) -> bool:
    limit = job.backoff_limit
    if limit is None:
        return False
    restarts = _container_restarts(job, pods)
    if restarts > 0 and restarts >= limit:
        return True
    if limit == 0:
        # Any failure that the status does not know yet is one too many, whatever the restart policy.
        failed = sum((pod.get("status") or {}).get("phase") == "Failed" for pod in pods)
        known = sum(counts.failed for counts in draft.counts.values())
        active = sum(is_active(pod) for pod in pods)
        return failed > known and active != job.total
    return failures(job, pods).total > limit


def _container_restarts(job: JobView, pods: Sequence[Object]) -> int:
    """Restarts of containers by the kubelet, in running pods whose policy restarts them."""
    counted = [replica for replica in job.replicas.values() if replica.restart_policy != "Never"]
    total = 0
    for pod in pods:
        status = pod.get("status") or {}
        if status.get("phase") == "Running" and any(is_of_type(pod, replica) for replica in counted):
            containers = [
                *(status.get("initContainerStatuses") or ()),
                *(status.get("containerStatuses") or ()),
            ]
            total += sum(int(container.get("restartCount", 0)) for container in containers)
    return total


def _replaced(job: JobView) -> list[str]:
    try:
        uids = json.loads(job.annotations.get(REPLACED_PODS, "[]"))
    except ValueError:
        return []
    return [str(uid) for uid in uids] if isinstance(uids, list) else []
