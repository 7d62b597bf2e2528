"""What became of a job, without what must differ between two runs: a value to compare."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_kftrain.cluster.client import Object
from airflow_kftrain.cluster.resources import EVENTS, PODGROUPS, SERVICES
from tests.controlplane.conformance.world import JobWorld

# What differs from run to run, or what somebody else than the job's controller writes.
_METADATA = (
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    "managedFields",
    "namespace",
    "selfLink",
)
_POD_SPEC = ("nodeName", "serviceAccount", "serviceAccountName", "automountServiceAccountToken")
_SERVICE_SPEC = ("clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy")
_ADMISSION_TOLERATIONS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
# One for each pod and service.
_COUNTED = ("Normal SuccessfulCreatePod", "Normal SuccessfulCreateService")
# Said when a look came before the news of the last one's work, or between a pod's creation and its binding; by what
# the message then says.
_NOISE = {"FailedDeletePodGroup": "not found", "FailedCreateService": "already exists", "Unschedulable": ""}
EVENT_BUDGET = 25
SPENT = "(budget spent)"
_PLAYER_PREFIX = "kftrain.test/"


@dataclass(frozen=True)
class Record:
    """One case as one column had it; ``value`` is plain JSON."""

    value: dict[str, Any]


def checkpoint(world: JobWorld, before: Mapping[str, str], names: Mapping[str, str]) -> dict[str, Any]:
    """What is there now.

    :param before: uids of the pods at the checkpoint before, by replica
    :param names: texts to replace, for instance the namespace, with what stands for them
    """
    job = world.job
    shown = {
        "job": None if job is None else _job(job),
        "pods": {replica: _pod(pod, before.get(replica)) for replica, pod in world.pods.items()},
        "services": {_short(world, name): _service(obj) for name, obj in world.of(SERVICES).items()},
        "podgroups": {_short(world, name): _plain(obj, "spec") for name, obj in world.of(PODGROUPS).items()},
    }
    return _replaced(shown, names)


def condition_changes(world: JobWorld) -> list[str]:
    """Each change of a condition, in order."""
    changes: list[str] = []
    latest: dict[str, str] = {}
    for status in world.statuses:
        for condition in status.get("conditions") or ():
            said = f"{condition['type']}={condition['status']} {condition.get('reason')}"
            if latest.get(condition["type"]) != said:
                latest[condition["type"]] = said
                changes.append(said)
    return changes


def job_events(world: JobWorld) -> dict[str, Any]:
    """How many different things were said by reason; how often each was depends on how often a controller looks."""
    mine = [event for event in world.of(EVENTS).values() if event["involvedObject"].get("uid") == world.uid]
    said: Counter[str] = Counter()
    for event in mine:
        if not _is_foreign(event):
            said[f"{event['type']} {event['reason']}"] += 1
    shown: dict[str, Any] = {key: count if key in _COUNTED else 1 for key, count in sorted(said.items())}
    # client-go lets a source say no more about an object: what would have come after is missing.
    spent = sum(event.get("count") or 1 for event in mine) >= EVENT_BUDGET
    return shown | ({SPENT: True} if spent else {})


def _job(job: Object) -> dict[str, Any]:
    status = job.get("status") or {}
    conditions = {
        one["type"]: f"{one['status']} {one.get('reason')}" for one in status.get("conditions") or ()
    }
    finished = any(conditions.get(final, "").startswith("True") for final in ("Succeeded", "Failed"))
    # An absent count is a zero. At its end the operator forgets the selectors of the replica types that it has not
    # come to, in an order that is random.
    left_out = ("selector",) if finished else ()
    return {
        "conditions": conditions,
        "replicaStatuses": {
            replica_type: {key: value for key, value in counts.items() if value and key not in left_out}
            for replica_type, counts in (status.get("replicaStatuses") or {}).items()
        },
        "startTime": "startTime" in status,
        "completionTime": "completionTime" in status,
        "spec": _named(job["spec"]),
    }


def _pod(pod: Object, before: str | None) -> dict[str, Any]:
    spec = {key: value for key, value in pod["spec"].items() if key not in _POD_SPEC}
    spec["tolerations"] = [
        one for one in spec.get("tolerations") or () if one.get("key") not in _ADMISSION_TOLERATIONS
    ]
    uid = pod["metadata"]["uid"]
    return {
        "metadata": _metadata(pod),
        "spec": _named(spec),
        "phase": (pod.get("status") or {}).get("phase"),
        "identity": "first seen" if before is None else "same" if before == uid else "made anew",
        "terminating": "deletionTimestamp" in pod["metadata"],
    }


def _service(service: Object) -> dict[str, Any]:
    spec = {key: value for key, value in service["spec"].items() if key not in _SERVICE_SPEC}
    return {"metadata": _metadata(service), "spec": _named(spec)}


def _plain(obj: Object, *keys: str) -> dict[str, Any]:
    return {"metadata": _metadata(obj), **{key: _named(obj.get(key)) for key in keys}}


def _metadata(obj: Object) -> dict[str, Any]:
    kept = {
        key: value for key, value in obj["metadata"].items() if key not in (*_METADATA, "deletionTimestamp")
    }
    kept.pop("deletionGracePeriodSeconds", None)
    kept["ownerReferences"] = [
        {key: value for key, value in owner.items() if key != "uid"}
        for owner in kept.get("ownerReferences") or ()
    ]
    annotations = kept.get("annotations") or {}
    kept["annotations"] = {k: v for k, v in annotations.items() if not k.startswith(_PLAYER_PREFIX)}
    return kept


def _named(value: Any) -> Any:
    """``value`` with lists of named entries (containers, ports, variables) as objects by name.

    A difference then has the entry's name in its path. JSON in a variable (``TF_CONFIG``) is compared as JSON.
    """
    if isinstance(value, dict):
        return {key: _named(entry) for key, entry in value.items()}
    if isinstance(value, list):
        if value and all(isinstance(entry, dict) and "name" in entry for entry in value):
            return {entry["name"]: _entry(entry) for entry in value}
        return [_named(entry) for entry in value]
    return value


def _entry(entry: Object) -> Any:
    rest = {key: value for key, value in entry.items() if key != "name"} or {"value": ""}
    if set(rest) == {"value"} and str(rest["value"]).startswith("{"):
        return json.loads(rest["value"])
    return rest["value"] if set(rest) == {"value"} else _named(rest)


def _short(world: JobWorld, name: str) -> str:
    return name.removeprefix(f"{world.name}-")


def _is_foreign(event: Object) -> bool:
    """Whether it is a scheduler's or a kubelet's, or the noise of a look that came too early."""
    source = (event.get("source") or {}).get("component") or event.get("reportingComponent") or ""
    reason = event["reason"]
    noise = _NOISE.get(reason) is not None and _NOISE[reason] in event["message"]
    return noise or not source.endswith("job-controller")


def _replaced(value: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    text = json.dumps(value)
    for name, stand_in in names.items():
        text = text.replace(name, stand_in)
    return dict(json.loads(text))
