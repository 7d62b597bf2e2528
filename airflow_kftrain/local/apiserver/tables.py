"""Tables: the columns that ``kubectl get`` prints."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from airflow_kftrain.local.apiserver.cells import age, ports, printed
from airflow_kftrain.local.apiserver.kinds import Kind
from airflow_kftrain.local.apiserver.pod_cells import pod_cells
from airflow_kftrain.local.apiserver.store import Json

Cells = Callable[[Json, dt.datetime], list[Any]]
_Definition = tuple[str, str, int]


def _column(name: str, kind: str = "string", priority: int = 0) -> _Definition:
    return name, kind, priority


def table(
    kind: Kind,
    objects: Sequence[Json],
    now: dt.datetime,
    metadata: Mapping[str, Any],
    include: str,
    version: str,
) -> Json:
    """A ``meta.k8s.io`` Table of ``objects``.

    :param metadata: of the list
    :param include: what each row carries of its object: ``Metadata`` (default), ``Object`` or ``None``
    :param version: ``v1`` or ``v1beta1``
    """
    columns, cells = _printer(kind)
    definitions = [
        {
            "name": name,
            "type": type_,
            "format": "name" if name == "Name" else "",
            "description": "",
            "priority": p,
        }
        for name, type_, p in columns
    ]
    rows = [{"cells": cells(obj, now), **_carried(obj, include)} for obj in objects]
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": dict(metadata),
        "columnDefinitions": definitions,
        "rows": rows,
    }


def partial(obj: Json) -> Json:
    """An object's metadata alone."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def _carried(obj: Json, include: str) -> Json:
    if include == "None":
        return {}
    return {"object": obj if include == "Object" else partial(obj)}


def _printer(kind: Kind) -> tuple[list[_Definition], Cells]:
    if kind.custom:
        columns = [_column("Name"), *(_column(c.name, c.type, c.priority) for c in kind.columns)]
        return columns, lambda obj, now: [
            obj["metadata"]["name"],
            *(printed(obj, column.path, column.type, now) for column in kind.columns),
        ]
    return _PRINTERS.get(kind.kind, _PLAIN)


def _named(*columns: _Definition) -> list[_Definition]:
    return [_column("Name"), *columns]


def _created(obj: Json, now: dt.datetime) -> str:
    return age(obj["metadata"].get("creationTimestamp"), now)


def _node(obj: Json, now: dt.datetime) -> list[Any]:
    status = obj.get("status", {})
    ready = next((c["status"] for c in status.get("conditions") or () if c["type"] == "Ready"), "Unknown")
    state = {"True": "Ready", "False": "NotReady"}.get(ready, "Unknown")
    if obj.get("spec", {}).get("unschedulable"):
        state += ",SchedulingDisabled"
    prefix = "node-role.kubernetes.io/"
    labels = obj["metadata"].get("labels") or {}
    roles = ",".join(sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix)))
    info = status.get("nodeInfo", {})
    addresses = {a["type"]: a["address"] for a in status.get("addresses") or ()}
    return [
        obj["metadata"]["name"],
        state,
        roles or "<none>",
        _created(obj, now),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP", "<none>"),
        info.get("osImage", "<unknown>"),
    ]


def _service(obj: Json, now: dt.datetime) -> list[Any]:
    spec = obj["spec"]
    selector = ",".join(f"{k}={v}" for k, v in sorted((spec.get("selector") or {}).items()))
    return [
        obj["metadata"]["name"],
        spec.get("type", ""),
        spec.get("clusterIP", "<none>"),
        spec.get("externalName") or "<none>",
        ports(spec.get("ports") or []) or "<none>",
        _created(obj, now),
        selector or "<none>",
    ]


def _event(obj: Json, now: dt.datetime) -> list[Any]:
    involved = obj.get("involvedObject", {})
    seen = obj.get("lastTimestamp") or obj.get("eventTime") or obj["metadata"].get("creationTimestamp")
    return [
        age(seen, now),
        obj.get("type", ""),
        obj.get("reason", ""),
        f"{involved.get('kind', '').lower()}/{involved.get('name', '')}",
        str(obj.get("message", "")).strip(),
        obj["metadata"]["name"],
        obj.get("count", 1),
    ]


def _namespace(obj: Json, now: dt.datetime) -> list[Any]:
    return [obj["metadata"]["name"], obj.get("status", {}).get("phase", ""), _created(obj, now)]


def _config_map(obj: Json, now: dt.datetime) -> list[Any]:
    count = len(obj.get("data") or {}) + len(obj.get("binaryData") or {})
    return [obj["metadata"]["name"], count, _created(obj, now)]


def _secret(obj: Json, now: dt.datetime) -> list[Any]:
    return [obj["metadata"]["name"], obj.get("type", ""), len(obj.get("data") or {}), _created(obj, now)]


def _lease(obj: Json, now: dt.datetime) -> list[Any]:
    return [obj["metadata"]["name"], obj.get("spec", {}).get("holderIdentity", ""), _created(obj, now)]


def _quota(obj: Json, now: dt.datetime) -> list[Any]:
    status = obj.get("status", {})
    hard, used = status.get("hard", {}), status.get("used", {})
    amounts = [f"{name}: {used.get(name, 0)}/{limit}" for name, limit in sorted(hard.items())]
    limits = [text for text in amounts if text.startswith("limits.")]
    requests = [text for text in amounts if not text.startswith("limits.")]
    return [obj["metadata"]["name"], ", ".join(requests), ", ".join(limits), _created(obj, now)]


def _priority(obj: Json, now: dt.datetime) -> list[Any]:
    default = str(bool(obj.get("globalDefault"))).lower()
    return [
        obj["metadata"]["name"],
        obj.get("value", 0),
        default,
        _created(obj, now),
        obj["preemptionPolicy"],
    ]


def _claim(obj: Json, now: dt.datetime) -> list[Any]:
    spec, status = obj.get("spec", {}), obj.get("status", {})
    return [
        obj["metadata"]["name"],
        status.get("phase", ""),
        spec.get("volumeName", ""),
        status.get("capacity", {}).get("storage", ""),
        ",".join(spec.get("accessModes") or ()),
        spec.get("storageClassName", ""),
        _created(obj, now),
    ]


_AGE = _column("Age")
_PLAIN: tuple[list[_Definition], Cells] = (
    _named(_AGE),
    lambda obj, now: [obj["metadata"]["name"], _created(obj, now)],
)
_PRINTERS: dict[str, tuple[list[_Definition], Cells]] = {
    "Pod": (
        _named(
            _column("Ready"),
            _column("Status"),
            _column("Restarts"),
            _AGE,
            _column("IP", priority=1),
            _column("Node", priority=1),
            _column("Nominated Node", priority=1),
            _column("Readiness Gates", priority=1),
        ),
        pod_cells,
    ),
    "Node": (
        _named(
            _column("Status"),
            _column("Roles"),
            _AGE,
            _column("Version"),
            _column("Internal-IP", priority=1),
            _column("OS-Image", priority=1),
        ),
        _node,
    ),
    "Service": (
        _named(
            _column("Type"),
            _column("Cluster-IP"),
            _column("External-IP"),
            _column("Port(s)"),
            _AGE,
            _column("Selector", priority=1),
        ),
        _service,
    ),
    "Event": (
        [
            _column("Last Seen"),
            _column("Type"),
            _column("Reason"),
            _column("Object"),
            _column("Message"),
            _column("Name", priority=1),
            _column("Count", "integer", priority=1),
        ],
        _event,
    ),
    "Namespace": (_named(_column("Status"), _AGE), _namespace),
    "ConfigMap": (_named(_column("Data", "integer"), _AGE), _config_map),
    "Secret": (_named(_column("Type"), _column("Data", "integer"), _AGE), _secret),
    "Lease": (_named(_column("Holder"), _AGE), _lease),
    "ResourceQuota": (_named(_column("Request"), _column("Limit"), _AGE), _quota),
    "PriorityClass": (
        _named(_column("Value", "integer"), _column("Global-Default"), _AGE, _column("PreemptionPolicy")),
        _priority,
    ),
    "PersistentVolumeClaim": (
        _named(
            _column("Status"),
            _column("Volume"),
            _column("Capacity"),
            _column("Access Modes"),
            _column("StorageClass"),
            _AGE,
        ),
        _claim,
    ),
}
