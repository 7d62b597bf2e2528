"""The status a kubelet writes, made from what it knows of a pod's containers; pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_kftrain.local.kubelet.environment import Object
from airflow_kftrain.local.kubelet.rewrite import LOOPBACK

FINAL_PHASES = ("Succeeded", "Failed")
UNKNOWN_EXIT_CODE = 137
"""What a kubelet reports for a container that was lost: as if it had been killed, hence worth another try."""


@dataclass(frozen=True)
class Terminated:
    """How a container's last start ended."""

    exit_code: int
    reason: str
    started_at: dt.datetime | None
    finished_at: dt.datetime
    message: str = ""
    signal: int = 0

    def to_dict(self, container_id: str) -> dict[str, Any]:
        written: dict[str, Any] = {
            "exitCode": self.exit_code,
            "reason": self.reason,
            "startedAt": rfc3339(self.started_at or self.finished_at),
            "finishedAt": rfc3339(self.finished_at),
        }
        written |= {"containerID": container_id} if container_id else {}
        return written | ({"message": self.message} if self.message else {})


@dataclass
class ContainerState:
    """One container as the kubelet knows it: waiting, running since ``started_at``, or ``terminated``."""

    name: str
    image: str
    sidecar: bool = False
    waiting: tuple[str, str] | None = ("ContainerCreating", "")
    started_at: dt.datetime | None = None
    terminated: Terminated | None = None
    last: Terminated | None = None
    restart_count: int = 0
    container_id: str = ""

    @property
    def running(self) -> bool:
        return self.started_at is not None and self.terminated is None and self.waiting is None

    @property
    def succeeded(self) -> bool:
        return self.terminated is not None and self.terminated.exit_code == 0

    def to_dict(self, *, init: bool) -> dict[str, Any]:
        """The ``ContainerStatus``. An init container is ready once it succeeded."""
        ready = self.succeeded if init and not self.sidecar else self.running
        last = {"terminated": self.last.to_dict(self.container_id)} if self.last else {}
        return {
            "name": self.name,
            "image": self.image,
            "imageID": "",
            "containerID": self.container_id,
            "ready": ready,
            "started": self.running,
            "restartCount": self.restart_count,
            "state": self._state(),
            "lastState": last,
        }

    def _state(self) -> dict[str, Any]:
        if self.waiting is not None:
            reason, message = self.waiting
            return {"waiting": {"reason": reason} | ({"message": message} if message else {})}
        if self.terminated is not None:
            return {"terminated": self.terminated.to_dict(self.container_id)}
        return {"running": {"startedAt": rfc3339(self.started_at)}}


@dataclass
class PodState:
    """A pod as the kubelet knows it.

    :param verdict: a final (phase, reason, message) that does not follow from containers: evicted, deadline, lost node
    """

    containers: list[ContainerState]
    init_containers: list[ContainerState] = field(default_factory=list)
    start_time: dt.datetime | None = None
    verdict: tuple[str, str, str] | None = None

    @classmethod
    def new(cls, pod: Object) -> PodState:
        """The state before anything was started."""
        inits = pod["spec"].get("initContainers") or ()
        first = "PodInitializing" if inits else "ContainerCreating"
        return cls(
            [_unstarted(c, first) for c in pod["spec"]["containers"]],
            [_unstarted(c, "ContainerCreating" if not n else "PodInitializing") for n, c in enumerate(inits)],
        )

    def find(self, name: str) -> ContainerState:
        return next(c for c in [*self.init_containers, *self.containers] if c.name == name)

    @property
    def initialized(self) -> bool:
        return all(c.running or c.succeeded if c.sidecar else c.succeeded for c in self.init_containers)

    def phase(self, restart_policy: str) -> str:
        """Pending until all init containers are through and a container has run; final when none will run again.

        Never final while a process of the pod runs: sidecars end after the others, and a verdict takes its time.
        """
        phase = self.verdict[0] if self.verdict is not None else self._phase(restart_policy)
        alive = any(c.running for c in [*self.init_containers, *self.containers])
        return "Running" if alive and phase in FINAL_PHASES else phase

    def _phase(self, restart_policy: str) -> str:
        ended_init = [c for c in self.init_containers if c.terminated is not None and not c.succeeded]
        if restart_policy == "Never" and any(not c.sidecar and c.waiting is None for c in ended_init):
            return "Failed"
        if all(c.terminated is not None and c.waiting is None for c in self.containers):
            return self._final_phase(restart_policy)
        begun = [c for c in self.containers if c.started_at is not None or c.last is not None]
        return "Running" if begun else "Pending"

    def _final_phase(self, restart_policy: str) -> str:
        if restart_policy == "Always":
            return "Running"
        if all(c.succeeded for c in self.containers):
            return "Succeeded"
        return "Failed" if restart_policy == "Never" else "Running"


def pod_status(pod: Object, state: PodState, now: dt.datetime) -> dict[str, Any]:
    """The pod's whole ``status``, as a merge patch over what it was; ``now`` stamps conditions that changed."""
    phase = state.phase(pod["spec"].get("restartPolicy") or "Always")
    previous = {c["type"]: c for c in pod.get("status", {}).get("conditions") or ()}
    kept = [c for kind, c in previous.items() if kind not in _OWN_CONDITIONS]
    stamped = [_stamped(c, previous.get(c["type"]), now) for c in _conditions(state, phase)]
    _, reason, message = state.verdict or ("", None, None)
    return {
        "phase": phase,
        "reason": reason,
        "message": message,
        "conditions": stamped + kept,
        "hostIP": LOOPBACK,
        "hostIPs": [{"ip": LOOPBACK}],
        "podIP": LOOPBACK,
        "podIPs": [{"ip": LOOPBACK}],
        "startTime": rfc3339(state.start_time or now),
        "containerStatuses": [c.to_dict(init=False) for c in state.containers],
        "initContainerStatuses": [c.to_dict(init=True) for c in state.init_containers] or None,
    }


_OWN_CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")


def _conditions(state: PodState, phase: str) -> list[dict[str, Any]]:
    """Initialized, Ready and ContainersReady with a kubelet's reasons."""
    done = {"reason": "PodCompleted"} if phase == "Succeeded" else None
    unready = [c.name for c in state.containers if not c.running]
    not_ready = {
        "status": "False",
        "reason": "ContainersNotReady",
        "message": f"containers with unready status: [{' '.join(unready)}]",
    }
    if phase == "Failed":
        not_ready = {"status": "False", "reason": "PodFailed"}
    ready: dict[str, Any] = (
        {"status": "False", **done} if done else not_ready if unready else {"status": "True"}
    )
    incomplete = [c.name for c in state.init_containers if not (c.succeeded or (c.sidecar and c.running))]
    initialized: dict[str, Any] = {"status": "True", **(done or {})}
    if incomplete and not done:
        initialized = {
            "status": "False",
            "reason": "ContainersNotInitialized",
            "message": f"containers with incomplete status: [{' '.join(incomplete)}]",
        }
    live = "False" if phase in FINAL_PHASES else "True"
    return [
        {"type": "PodReadyToStartContainers", "status": live},
        {"type": "Initialized", **initialized},
        {"type": "Ready", **ready},
        {"type": "ContainersReady", **ready},
    ]


def _stamped(condition: dict[str, Any], before: Mapping[str, Any] | None, now: dt.datetime) -> dict[str, Any]:
    same = before is not None and before.get("status") == condition["status"]
    when = before.get("lastTransitionTime") if same and before else None
    return {**condition, "lastTransitionTime": when or rfc3339(now)}


def lost(pod: Object, now: dt.datetime, message: str) -> dict[str, Any]:
    """The status of a pod whose processes ended with its kubelet: Failed, reason NodeLost.

    Containers that ran count as killed, which every restart policy but Never tries again.
    """
    state = PodState.new(pod)
    old = {s["name"]: s for s in _statuses(pod)}
    for container in [*state.init_containers, *state.containers]:
        _lose(container, old.get(container.name), now)
    started = pod.get("status", {}).get("startTime")
    state.start_time = dt.datetime.fromisoformat(started) if started else now
    state.verdict = ("Failed", "NodeLost", message)
    return pod_status(pod, state, now)


def _lose(container: ContainerState, old: Mapping[str, Any] | None, now: dt.datetime) -> None:
    if old is None:
        return
    container.restart_count = int(old.get("restartCount", 0))
    container.container_id = old.get("containerID") or ""
    ended = old.get("state", {}).get("terminated")
    container.waiting = None
    if ended:
        container.terminated = Terminated(
            int(ended["exitCode"]),
            ended.get("reason", ""),
            _instant(ended.get("startedAt")),
            _instant(ended.get("finishedAt")) or now,
            ended.get("message", ""),
        )
    else:
        text = "The container could not be located when the pod was terminated"
        began = _instant((old.get("state", {}).get("running") or {}).get("startedAt"))
        container.terminated = Terminated(UNKNOWN_EXIT_CODE, "ContainerStatusUnknown", began, now, text)


def _statuses(pod: Object) -> Sequence[Mapping[str, Any]]:
    status = pod.get("status", {})
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _unstarted(container: Object, reason: str) -> ContainerState:
    sidecar = container.get("restartPolicy") == "Always"
    return ContainerState(container["name"], container.get("image") or "", sidecar, waiting=(reason, ""))


def _instant(text: str | None) -> dt.datetime | None:
    return dt.datetime.fromisoformat(text) if text else None


def rfc3339(instant: dt.datetime | None) -> str | None:
    """As the API writes times: UTC, whole seconds."""
    return None if instant is None else instant.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
