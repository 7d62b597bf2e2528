"""Replicas that fail again and again, which the training operator does not count for restartPolicy ExitCode; pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_kftrain.jobs.causes import Cause
from airflow_kftrain.jobs.gang import Gang
from airflow_kftrain.jobs.spec import TrainingJobSpec
from airflow_kftrain.jobs.status import parse_time

COUNTED = frozenset({Cause.EXIT_CODE, Cause.OOM_KILLED})
"""Ends that the code has to answer for; a node that is lost, drained or wanted by others is not one."""


@dataclass(frozen=True, slots=True)
class Storm:
    """A replica that failed more often than the job's ``backoffLimit``.

    :param failures: pods of the replica that failed in the present admission
    :param exit_code: of the last one
    """

    replica: str
    failures: int
    exit_code: int | None
    limit: int

    def __str__(self) -> str:
        return (
            f"{self.replica} failed after each of its {self.failures} starts, last with exit code {self.exit_code}: "
            f"the backoff limit of {self.limit} has passed"
        )


def storm_of(
    job: Mapping[str, Any], spec: TrainingJobSpec, pods: Iterable[Mapping[str, Any]], since: dt.datetime
) -> Storm | None:
    """The storm that a job is in, if it has a ``backoffLimit`` that its operator may not hold.

    :param pods: of the job, those that are no more included
    :param since: when the present admission began; older pods count for nothing
    """
    limit = ((job.get("spec") or {}).get("runPolicy") or {}).get("backoffLimit")
    retried = {t for t in spec.counts if spec.restart_policy(t) == "ExitCode"}
    if limit is None or not retried:
        return None
    found: dict[str, list[Any]] = {}
    for pod in sorted(pods, key=lambda one: str(one["metadata"].get("creationTimestamp"))):
        created = parse_time(pod["metadata"].get("creationTimestamp"))
        if created is None or created < since or _disrupted(pod):
            continue
        for replica in Gang.from_pods(spec, [pod]).replicas:
            if replica.uid is not None and replica.cause in COUNTED and replica.replica_type in retried:
                found.setdefault(replica.name, []).append(replica)
    for name, failed in found.items():
        if len(failed) > limit:
            return Storm(name, len(failed), failed[-1].exit_code, limit)
    return None


def _disrupted(pod: Mapping[str, Any]) -> bool:
    """Whether the cluster itself ended the pod: eviction, preemption, a drained node."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "DisruptionTarget" and c.get("status") == "True" for c in conditions)
