"""What is to be done about the pods and services of one replica type; decided here, done by the JobController."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from airflow_kftrain.controllers.objects import is_of_type, replica_index
from airflow_kftrain.controllers.status import Counts, Note
from airflow_kftrain.controllers.view import JobView, Object, ReplicaView

FIRST_RETRYABLE_EXIT_CODE = 128
"""From here on an exit code means a signal, and policy ExitCode makes the replica anew; below it is permanent."""


@dataclass(frozen=True)
class PodPlan:
    """The pods of one replica type, compared with what is wanted.

    :param live: by index, the pod that holds the place
    :param missing: indices without a pod
    :param surplus: pods beyond the wanted number, to be deleted
    :param failed: pods to be deleted so that they are made anew
    :param condemned: whether a replica ended by a code that no restart can mend
    :param counts: of the places, by what became of them; surplus pods do not count
    :param notes: events about them
    """

    live: dict[int, Object]
    missing: list[int]
    surplus: list[Object] = field(default_factory=list)
    failed: list[Object] = field(default_factory=list)
    condemned: bool = False
    counts: Counts = field(default_factory=Counts)
    notes: list[Note] = field(default_factory=list)


def plan_pods(job: JobView, replica: ReplicaView, pods: Iterable[Object]) -> PodPlan:
    """Compare ``pods`` of a job with one replica type.

    A pod beyond the wanted number is deleted and otherwise ignored: that it ends with 0 says nothing of the job, and
    no place below it is filled for its sake.
    """
    places, surplus = _places(pods, replica)
    live = {index: _holder(candidates) for index, candidates in sorted(places.items())}
    counts = Counts()
    for index, pod in live.items():
        counts.add(index, pod)
    broken = [pod for pod in live.values() if _phase(pod) == "Failed"]
    failed = [pod for pod in broken if is_restarted(replica, pod, job.framework.container)]
    return PodPlan(
        live,
        missing=[index for index in range(replica.count) if index not in live],
        surplus=[pod for pod in surplus if not is_terminating(pod)],
        failed=failed,
        condemned=replica.restart_policy == "ExitCode" and len(broken) > len(failed),
        counts=counts,
        notes=[note for pod in live.values() if (note := _exit_note(pod, job.framework.container))],
    )


def is_restarted(replica: ReplicaView, pod: Object, container: str) -> bool:
    """Whether a failed pod is made anew under the replica's restart policy."""
    if replica.restart_policy == "ExitCode":
        code = exit_code(pod, container)
        # A pod that failed without its container having run (evicted, node lost) is made anew as well.
        return code is None or code >= FIRST_RETRYABLE_EXIT_CODE
    return replica.restart_policy in ("OnFailure", "Always")


def plan_services(replica: ReplicaView, services: Iterable[Object]) -> tuple[list[int], list[Object]]:
    """Indices without a service, and services beyond the wanted number."""
    places, surplus = _places(services, replica)
    missing = [index for index in range(replica.count) if index not in places]
    return missing, [service for service in surplus if not is_terminating(service)]


def is_terminating(obj: Object) -> bool:
    """Whether an object is being deleted."""
    return obj["metadata"].get("deletionTimestamp") is not None


def is_active(pod: Object) -> bool:
    """Whether a pod still works or will."""
    return _phase(pod) not in ("Succeeded", "Failed") and not is_terminating(pod)


def exit_code(pod: Object, container: str) -> int | None:
    """How the training container ended; None while it has not, or never ran."""
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        terminated = (status.get("state") or {}).get("terminated")
        if status.get("name") == container and terminated is not None:
            return int(terminated.get("exitCode", 0))
    return None


def abnormal_notes(pods: Iterable[Object]) -> list[Note]:
    """What hinders active pods: how containers ended or what they wait for, else the newest condition not met."""
    return [note for pod in pods if is_active(pod) for note in _abnormal(pod)]


def _abnormal(pod: Object) -> list[Note]:
    status, name = pod.get("status") or {}, pod["metadata"]["name"]
    for field_name in ("containerStatuses", "initContainerStatuses"):
        if status.get(field_name):
            found = (_container_note(name, container) for container in status[field_name])
            return [note for note in found if note]
    conditions: Sequence[Object] = status.get("conditions") or ()
    if not conditions:
        return []
    newest = max(conditions, key=lambda condition: condition.get("lastTransitionTime") or "")
    if newest.get("status") == "True" or not newest.get("reason"):
        return []
    text = f"Error pod {name} condition message: {newest.get('message', '')}"
    return [Note("Warning", newest["reason"], text)]


def _container_note(pod_name: str, container: Object) -> Note | None:
    where = f"Error pod {pod_name} container {container.get('name')}"
    state = container.get("state") or {}
    terminated, waiting = state.get("terminated") or {}, state.get("waiting") or {}
    if terminated.get("exitCode"):
        text = f"exitCode: {terminated['exitCode']} terminated message: {terminated.get('message', '')}"
        return Note("Warning", terminated.get("reason") or "Error", f"{where} {text}")
    if waiting.get("message"):
        text = f"{where} waiting message: {waiting['message']}"
        return Note("Warning", waiting.get("reason") or "Waiting", text)
    return None


def _exit_note(pod: Object, container: str) -> Note | None:
    code = exit_code(pod, container)
    if code is None:
        return None
    metadata = pod["metadata"]
    text = f"Pod: {metadata.get('namespace')}.{metadata['name']} exited with code {code}"
    return Note("Normal", "ExitedWithCode", text)


def _places(objects: Iterable[Object], replica: ReplicaView) -> tuple[dict[int, list[Object]], list[Object]]:
    """Objects of a replica type by index, and those whose index is not wanted (any more)."""
    places: dict[int, list[Object]] = {}
    surplus = []
    for obj in objects:
        index = replica_index(obj)
        if index is None or not is_of_type(obj, replica):
            continue
        if index < replica.count:
            places.setdefault(index, []).append(obj)
        else:
            surplus.append(obj)
    return places, surplus


def _holder(candidates: list[Object]) -> Object:
    """Which of several pods with one index holds the place: one that is not being deleted, the oldest."""
    return min(
        candidates, key=lambda pod: (is_terminating(pod), pod["metadata"].get("creationTimestamp") or "")
    )


def _phase(pod: Object) -> str | None:
    phase: str | None = (pod.get("status") or {}).get("phase")
    return phase
