"""What a job's pods say: how many of the gang are up, which wait for something, how each ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_kftrain.jobs import identity, waits
from airflow_kftrain.jobs.causes import Cause
from airflow_kftrain.jobs.spec import TrainingJobSpec
from airflow_kftrain.jobs.status import JobStatus, State
from airflow_kftrain.jobs.waits import Told, Waiting, distinct_events

__all__ = ["Gang", "Replica", "Waiting", "distinct_events", "observed_state"]

_ENDED_BY_NODE = {
    "Evicted": Cause.EVICTED,
    "Preempting": Cause.PREEMPTED,
    "Preempted": Cause.PREEMPTED,
    "NodeLost": Cause.NODE_LOST,
    "NodeShutdown": Cause.NODE_LOST,
    "Shutdown": Cause.NODE_LOST,
    "Terminated": Cause.NODE_LOST,
    "DeadlineExceeded": Cause.DEADLINE,
}


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica of a gang and its newest pod.

    :param phase: of the container that trains, sidecars left aside: ``Missing``, ``Pending``, ``Running``,
        ``Succeeded`` or ``Failed``
    :param waiting: what it waits for; None once it runs or has ended
    :param restarts: in place, of the container that trains
    :param exit_code: of its last end, if it has ended
    :param reason: of that end: ``OOMKilled``, ``Error``, ``Evicted`` …
    """

    replica_type: str
    index: int
    phase: str = "Missing"
    waiting: Waiting | None = None
    pod: str | None = None
    uid: str | None = None
    node: str | None = None
    restarts: int = 0
    exit_code: int | None = None
    reason: str | None = None
    message: str = ""
    terminating: bool = False

    @property
    def name(self) -> str:
        """For instance ``worker-0``."""
        return identity.replica_name(self.replica_type, self.index)

    @property
    def up(self) -> bool:
        """Whether it runs, or has ended well."""
        return self.phase in ("Running", "Succeeded") and not self.terminating and self.waiting is None

    @property
    def final(self) -> bool:
        """Whether it has ended for good."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def cause(self) -> Cause | None:
        """Why it failed; None when it has not."""
        if self.phase != "Failed":
            return None
        if self.reason == "OOMKilled":
            return Cause.OOM_KILLED
        return _ENDED_BY_NODE.get(self.reason or "", Cause.EXIT_CODE if self.exit_code else Cause.UNKNOWN)

    @property
    def plight(self) -> str:
        """What it waits for, or how it ended."""
        if self.waiting is not None:
            return self.waiting.text
        ended = "" if self.exit_code is None else f", exit code {self.exit_code}"
        return f"{self.phase}{ended}{f' ({self.reason})' if self.reason else ''}"

    def __str__(self) -> str:
        return f"{self.name}: {self.plight}"


@dataclass(frozen=True, slots=True)
class Gang:
    """All replicas that a job should have, those that lead first.

    :param extra: pods beyond them (an elastic job that shrinks, a pod on its way out)
    """

    replicas: tuple[Replica, ...]
    extra: tuple[str, ...] = ()

    @classmethod
    def from_pods(
        cls,
        spec: TrainingJobSpec,
        pods: Iterable[Mapping[str, Any]],
        events: Sequence[Mapping[str, Any]] = (),
    ) -> Gang:
        """The gang of a job.

        Where a replica has several pods (one was replaced), the newest that is not on its way out counts.

        :param pods: the job's own pods, in any order
        :param events: of the job and its pods, newest last; they tell what pods that do not exist wait for
        """
        newest, extra = _newest(spec, pods)
        told = Told.of(events)
        replicas = tuple(
            _replica(spec, t, n, newest.get((t.lower(), n)), told)
            for t, count in spec.counts.items()
            for n in range(count)
        )
        return cls(replicas, tuple(sorted(extra)))

    @property
    def total(self) -> int:
        """Replicas the gang should have."""
        return len(self.replicas)

    @property
    def ready(self) -> int:
        """Replicas that run or have ended well."""
        return sum(replica.up for replica in self.replicas)

    @property
    def whole(self) -> bool:
        """Whether every replica is up."""
        return self.ready == self.total

    @property
    def failed(self) -> tuple[Replica, ...]:
        """Replicas that ended badly."""
        return tuple(replica for replica in self.replicas if replica.phase == "Failed")

    @property
    def waiting(self) -> tuple[Replica, ...]:
        """Replicas that wait for something."""
        return tuple(replica for replica in self.replicas if replica.waiting is not None)

    @property
    def idle(self) -> bool:
        """Whether no pod of the job exists any more, or all have ended for good."""
        return not self.extra and all(r.final or r.phase == "Missing" for r in self.replicas)

    def replica(self, name: str) -> Replica:
        """The replica of that name.

        :raises KeyError: there is none
        """
        return {replica.name: replica for replica in self.replicas}[name]

    def explain(self, *, most: int = 3) -> str:
        """``3/4 replicas are up; worker-1: …``; those that wait for the same are named together.

        :param most: how many such groups, and names in each, are told
        """
        groups: dict[str, list[str]] = {}
        for replica in (*self.failed, *self.waiting):
            groups.setdefault(replica.plight, []).append(replica.name)
        told = [f"{_names(names, most)}: {plight}" for plight, names in list(groups.items())[:most]]
        untold = sum(len(names) for names in list(groups.values())[most:])
        more = [f"{untold} more wait"] if untold else []
        return "; ".join([f"{self.ready}/{self.total} replicas are up", *told, *more])


def _names(names: Sequence[str], most: int) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def observed_state(status: JobStatus, gang: Gang, *, was_whole: bool = False) -> State:
    """The state of a job from its status and its pods together.

    A final state and suspension are the status's alone. Otherwise the pods decide whether it starts or runs: the
    training operator says Running when the first pods run.

    :param was_whole: the gang has been up in this admission; then a replica that is missing does not make it start
    """
    if status.state.final or status.state in (State.QUEUED, State.SUSPENDED, State.RESTARTING):
        return status.state
    if gang.whole or was_whole:
        return State.RUNNING
    if gang.ready or status.state is State.RUNNING:
        return State.STARTING
    return status.state


def _newest(
    spec: TrainingJobSpec, pods: Iterable[Mapping[str, Any]]
) -> tuple[dict[tuple[str, int], Mapping[str, Any]], list[str]]:
    wanted = {(t.lower(), n) for t, count in spec.counts.items() for n in range(count)}
    newest: dict[tuple[str, int], Mapping[str, Any]] = {}
    extra: list[str] = []
    for pod in sorted(pods, key=_age):
        place = _place(pod)
        if place not in wanted:
            extra.append(_metadata(pod).get("name", ""))
            continue
        replaced = newest.get(place)
        if replaced is not None:
            extra.append(_metadata(replaced).get("name", ""))
        newest[place] = pod
    return newest, extra


def _age(pod: Mapping[str, Any]) -> tuple[bool, str]:
    """Sorts pods on their way out first, then old ones."""
    metadata = _metadata(pod)
    return not metadata.get("deletionTimestamp"), str(metadata.get("creationTimestamp") or "")


def _place(pod: Mapping[str, Any]) -> tuple[str, int]:
    labels = _metadata(pod).get("labels") or {}
    index = str(labels.get(identity.REPLICA_INDEX, ""))
    return str(labels.get(identity.REPLICA_TYPE, "")).lower(), int(index) if index.isdecimal() else -1


def _replica(
    spec: TrainingJobSpec,
    replica_type: str,
    index: int,
    pod: Mapping[str, Any] | None,
    told: Told,
) -> Replica:
    if pod is None:
        return Replica(replica_type, index, waiting=waits.missing(replica_type, index, told))
    metadata, status = _metadata(pod), pod.get("status") or {}
    container = _container(status.get("containerStatuses"), spec.framework.container)
    ended = waits.last_end(container)
    phase = _phase(spec.restart_policy(replica_type), status.get("phase") or "Pending", container)
    terminating = bool(metadata.get("deletionTimestamp"))
    return Replica(
        replica_type,
        index,
        phase=phase,
        waiting=None
        if phase in ("Succeeded", "Failed")
        else waits.waiting(pod, container, terminating, told),
        pod=metadata.get("name"),
        uid=metadata.get("uid"),
        node=(pod.get("spec") or {}).get("nodeName"),
        restarts=int(container.get("restartCount") or 0),
        exit_code=ended.get("exitCode"),
        reason=status.get("reason") or ended.get("reason"),
        message=str(ended.get("message") or status.get("message") or ""),
        terminating=terminating,
    )


def _phase(restart_policy: str, pod_phase: str, container: Mapping[str, Any]) -> str:
    """The phase of the container that trains: a sidecar may keep its pod running after it has ended."""
    ended = (container.get("state") or {}).get("terminated")
    if pod_phase != "Running" or not ended:
        return "Pending" if pod_phase == "Unknown" else pod_phase
    if ended.get("exitCode") == 0:
        return "Running" if restart_policy == "Always" else "Succeeded"
    return "Failed" if restart_policy in ("Never", "ExitCode") else "Running"


def _metadata(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    return pod.get("metadata") or {}


def _container(statuses: Any, name: str) -> Mapping[str, Any]:
    found = [s for s in statuses or () if isinstance(s, Mapping)]
    return next((s for s in found if s.get("name") == name), found[0] if found else {})
