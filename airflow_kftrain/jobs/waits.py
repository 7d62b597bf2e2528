"""What a replica waits for, told from its pod and from events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_kftrain.jobs import identity
from airflow_kftrain.jobs.causes import Cause

_IMAGE_PULL = frozenset(
    {
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImageInspectError",
        "ImagePullBackOff",
        "InvalidImageName",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    }
)
_CONFIG = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PostStartHookError"}
)


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a replica waits for.

    :param text: a full clause, for instance ``image acme/train:1 cannot be pulled (ImagePullBackOff): …``
    """

    cause: Cause
    text: str


@dataclass(frozen=True, slots=True)
class Told:
    """What events tell of pods: refusals in order, and by pod uid the last volume that cannot be mounted."""

    refusals: tuple[str, ...]
    mounts: Mapping[str, str]

    @classmethod
    def of(cls, events: Sequence[Mapping[str, Any]]) -> Told:
        """What ``events`` tell, newest last."""
        refusals = tuple(text for reason, text in distinct_events(events) if reason == "FailedCreatePod")
        mounts = {
            str((event.get("involvedObject") or {}).get("uid")): str(event.get("message"))
            for event in events
            if event.get("reason") in ("FailedMount", "FailedAttachVolume")
        }
        return cls(refusals, mounts)


def distinct_events(events: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Reason and message of warnings, each once however often it was repeated, in order of first sight."""
    found = dict.fromkeys(
        (str(event.get("reason") or ""), str(event.get("message") or ""))
        for event in events
        if event.get("type") == "Warning"
    )
    return list(found)


def missing(replica_type: str, index: int, told: Told) -> Waiting:
    """What a replica without a pod waits for."""
    name = identity.replica_name(replica_type, index)
    # The text names the pod in quotes: "worker-1" must not be found in "worker-10".
    text = next((t for t in reversed(told.refusals) if f'-{name}"' in t), None)
    if text is None and told.refusals:
        text = told.refusals[-1]
    if text is None:
        return Waiting(Cause.NO_POD, "its pod has not been made")
    cause = Cause.QUOTA if "exceeded quota" in text else Cause.POD_REFUSED
    return Waiting(cause, f"its pod is refused: {text}")


def waiting(
    pod: Mapping[str, Any],
    container: Mapping[str, Any],
    terminating: bool,
    told: Told,
) -> Waiting | None:
    """What a replica waits for whose pod has not ended; None when it runs.

    :param container: status of the container that trains
    :param terminating: the pod is on its way out
    """
    if terminating:
        return Waiting(Cause.TERMINATING, "its pod is on its way out")
    if _phase_of(pod) == "Unknown":
        return Waiting(Cause.NODE_LOST, "its node does not answer")
    return (
        _unscheduled(pod)
        or _init_container(pod)
        or _container_waiting(pod, container)
        or _not_started(pod, container, told)
    )


def _unscheduled(pod: Mapping[str, Any]) -> Waiting | None:
    if (pod.get("spec") or {}).get("nodeName"):
        return None
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            gated = condition.get("reason") == "SchedulingGated"
            text = condition.get("message") or condition.get("reason") or "no reason given"
            return Waiting(Cause.GATED if gated else Cause.UNSCHEDULABLE, f"it has no node: {text}")
    return Waiting(Cause.UNSCHEDULABLE, "it has no node yet") if _phase_of(pod) == "Pending" else None


def _init_container(pod: Mapping[str, Any]) -> Waiting | None:
    """The first init container that has not done its part; sidecars have when they have started."""
    if _phase_of(pod) != "Pending":
        return None
    for status in (pod.get("status") or {}).get("initContainerStatuses") or ():
        state = status.get("state") or {}
        ended = state.get("terminated")
        if (ended and ended.get("exitCode") == 0) or status.get("started"):
            continue
        name = status.get("name")
        pulled = _pull(status)
        if pulled:
            return Waiting(Cause.IMAGE_PULL, f"init container {name}: {pulled}")
        if ended:
            return Waiting(Cause.INIT_CONTAINER, f"init container {name} ended with {ended.get('exitCode')}")
        waiting = state.get("waiting") or {}
        said = waiting.get("message") or waiting.get("reason") or ""
        doing = "runs" if state.get("running") else f"waits ({said})" if said else "waits"
        return Waiting(Cause.INIT_CONTAINER, f"init container {name} {doing}")
    return None


def _container_waiting(pod: Mapping[str, Any], trains: Mapping[str, Any]) -> Waiting | None:
    """What keeps a container from running; the one that trains is asked first."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    others = [s for s in statuses if s is not trains and _phase_of(pod) == "Pending"]
    for status in (trains, *others):
        waiting = (status.get("state") or {}).get("waiting") or {}
        reason, message = waiting.get("reason") or "", waiting.get("message") or ""
        pulled = _pull(status)
        if pulled:
            return Waiting(Cause.IMAGE_PULL, pulled)
        if reason == "CrashLoopBackOff":
            code = last_end(status).get("exitCode")
            return Waiting(
                Cause.CRASH_LOOP,
                f"container {status.get('name')} ends again and again, last with exit code {code}, "
                f"after {status.get('restartCount', 0)} restarts",
            )
        if reason in _CONFIG:
            return Waiting(Cause.CONTAINER_CONFIG, f"container {status.get('name')}: {reason}: {message}")
    return None


def _pull(status: Mapping[str, Any]) -> str | None:
    waiting = (status.get("state") or {}).get("waiting") or {}
    reason = waiting.get("reason")
    if reason not in _IMAGE_PULL:
        return None
    said = f": {waiting['message']}" if waiting.get("message") else ""
    return f"image {status.get('image') or '?'} cannot be pulled ({reason}){said}"


def _not_started(pod: Mapping[str, Any], trains: Mapping[str, Any], told: Told) -> Waiting | None:
    if _phase_of(pod) == "Running":
        restarts = (trains.get("state") or {}).get("terminated") or (trains.get("state") or {}).get("waiting")
        return Waiting(Cause.CRASH_LOOP, "its container starts again") if restarts else None
    mount = told.mounts.get(str(_metadata(pod).get("uid")))
    if mount is not None:
        return Waiting(Cause.VOLUME, f"a volume cannot be mounted: {mount}")
    return Waiting(Cause.CREATING, "its container is being made")


def last_end(container: Mapping[str, Any]) -> Mapping[str, Any]:
    """The last end of a container: of this run, else of the one before it was restarted."""
    for state in ("state", "lastState"):
        found = (container.get(state) or {}).get("terminated")
        if found:
            return dict(found)
    return {}


def _phase_of(pod: Mapping[str, Any]) -> str:
    return str((pod.get("status") or {}).get("phase") or "Pending")


def _metadata(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    return pod.get("metadata") or {}
