"""The ``scale`` subresource: a kind's replicas as an ``autoscaling/v1`` Scale."""

from __future__ import annotations

from typing import Any

from airflow_kftrain.local.apiserver.errors import bad_request, invalid, wrong
from airflow_kftrain.local.apiserver.kinds import Kind, Scale
from airflow_kftrain.local.apiserver.store import Json, Record


def scale_of(record: Record, paths: Scale) -> Json:
    """The Scale that stands for an object."""
    metadata = record.obj["metadata"]
    shown = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: Json = {"replicas": _at(record.obj, paths.status_replicas) or 0}
    selector = _at(record.obj, paths.selector)
    if selector:
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in shown if name in metadata},
        "spec": {"replicas": _at(record.obj, paths.replicas) or 0},
        "status": status,
    }


def scaled(kind: Kind, record: Record, paths: Scale, given: Any) -> Json:
    """The object with the replicas that a Scale asks for.

    :raises StatusError: 400 or 422, not a Scale, or not a count
    """
    if not isinstance(given, dict) or given.get("kind", "Scale") != "Scale":
        raise bad_request("the body must be a Scale object of autoscaling/v1")
    replicas = (given.get("spec") or {}).get("replicas", 0)
    if isinstance(replicas, bool) or not isinstance(replicas, int) or replicas < 0:
        raise invalid(
            kind, record.name, [wrong("spec.replicas", replicas, "must be a number that is zero or more")]
        )
    new = record.copy()
    version = (given.get("metadata") or {}).get("resourceVersion")
    if version:
        new["metadata"]["resourceVersion"] = version
    place: Any = new
    for name in paths.replicas[:-1]:
        if not isinstance(place.get(name), dict):
            text = f"{'.'.join(paths.replicas[:-1])} is not there, so it cannot be scaled"
            raise invalid(kind, record.name, [wrong("spec.replicas", replicas, text)])
        place = place[name]
    place[paths.replicas[-1]] = replicas
    return new


def _at(obj: Json, path: tuple[str, ...]) -> Any:
    value: Any = obj
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value
