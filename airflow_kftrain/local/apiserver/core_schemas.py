"""Schemas of the core kinds, made from the models of the installed ``kubernetes_asyncio`` client.

Each model class tells the type of every field (``openapi_types``), its JSON name (``attribute_map``), by its setter
whether it is required, and by its docstring what it means. What the models do not tell (quantities, merge keys) stands
in the tables here; the merge keys are the ``patchMergeKey`` tags of ``k8s.io/api/core/v1/types.go``.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

MERGE = "x-kubernetes-patch-strategy"
MERGE_KEY = "x-kubernetes-patch-merge-key"

_MERGE_KEYS: dict[str, dict[str, str]] = {
    "V1ObjectMeta": {"ownerReferences": "uid", "finalizers": ""},
    "V1PodSpec": {
        "volumes": "name",
        "containers": "name",
        "initContainers": "name",
        "ephemeralContainers": "name",
        "imagePullSecrets": "name",
        "hostAliases": "ip",
        "topologySpreadConstraints": "topologyKey",
        "schedulingGates": "name",
        "resourceClaims": "name",
    },
    "V1Container": {
        "ports": "containerPort",
        "env": "name",
        "volumeMounts": "mountPath",
        "volumeDevices": "devicePath",
    },
    "V1PodStatus": {"conditions": "type", "podIPs": "ip", "hostIPs": "ip"},
    "V1ServiceSpec": {"ports": "port"},
    "V1ServiceStatus": {"conditions": "type"},
    "V1ServiceAccount": {"secrets": "name", "imagePullSecrets": "name"},
    "V1NodeSpec": {"podCIDRs": ""},
    "V1NodeStatus": {"conditions": "type", "addresses": "type"},
    "V1NamespaceStatus": {"conditions": "type"},
    "V1PersistentVolumeClaimStatus": {"conditions": "type"},
}
_MERGE_KEYS["V1EphemeralContainer"] = _MERGE_KEYS["V1Container"]

_QUANTITIES: dict[str, frozenset[str]] = {
    "V1ResourceRequirements": frozenset({"limits", "requests"}),
    "V1VolumeResourceRequirements": frozenset({"limits", "requests"}),
    "V1ResourceQuotaSpec": frozenset({"hard"}),
    "V1ResourceQuotaStatus": frozenset({"hard", "used"}),
    "V1NodeStatus": frozenset({"capacity", "allocatable"}),
    "V1ContainerStatus": frozenset({"allocatedResources"}),
    "V1PodSpec": frozenset({"overhead"}),
    "V1PersistentVolumeClaimStatus": frozenset({"capacity", "allocatedResources"}),
    "V1EmptyDirVolumeSource": frozenset({"sizeLimit"}),
    "V1ResourceFieldSelector": frozenset({"divisor"}),
}
_BYTES = {("V1Secret", "data"), ("V1ConfigMap", "binaryData")}
_SIMPLE: dict[str, dict[str, Any]] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "datetime": {"type": "string", "format": "date-time"},
    "object": {},
}
_LIST = re.compile(r"list\[(.+)\]")
_MAP = re.compile(r"dict[(\[]str, (.+)[)\]]")


def metadata_schema() -> dict[str, Any]:
    """The schema of ``metadata``."""
    return model_schema("V1ObjectMeta")


@cache
def model_schema(name: str) -> dict[str, Any]:
    """The structural schema of one model of the client, for instance ``V1Pod``.

    :raises AttributeError: the client has no such model
    """
    from kubernetes_asyncio.client import models

    model = getattr(models, name)
    properties = {}
    for attribute, kind in model.openapi_types.items():
        json_name = model.attribute_map[attribute]
        properties[json_name] = {
            **_field(name, json_name, kind),
            **_described(getattr(model, attribute).__doc__ or ""),
        }
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    needed = [model.attribute_map[a] for a in model.openapi_types if _is_required(model, a)]
    return {**schema, "required": needed} if needed else schema


def _field(model: str, name: str, kind: str) -> dict[str, Any]:
    merge = _MERGE_KEYS.get(model, {}).get(name)
    schema = dict(_of_type(kind))
    if name in _QUANTITIES.get(model, ()):
        quantity = {"type": "string", "format": "quantity"}
        schema = {**schema, "additionalProperties": quantity} if schema["type"] == "object" else quantity
    if (model, name) in _BYTES:
        schema["additionalProperties"] = {"type": "string", "format": "byte"}
    if merge is not None:
        schema[MERGE] = "merge"
        if merge:
            schema[MERGE_KEY] = merge
    return schema


def _of_type(kind: str) -> dict[str, Any]:
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if found := _LIST.fullmatch(kind):
        return {"type": "array", "items": _of_type(found[1])}
    if found := _MAP.fullmatch(kind):
        return {"type": "object", "additionalProperties": _of_type(found[1])}
    return model_schema(kind)


def _is_required(model: Any, attribute: str) -> bool:
    """Whether the model's own setter refuses None."""
    probe = model.__new__(model)
    probe.local_vars_configuration = _Validating
    try:
        setattr(probe, attribute, None)
    except ValueError:
        return True
    return False


class _Validating:
    """The part of the client's configuration that model setters read."""

    client_side_validation = True


def _described(doc: str) -> dict[str, str]:
    """The field's meaning, which stands between the summary line and ``:return:``."""
    _, _, rest = doc.partition("\n\n")
    text = rest.partition(":return:")[0].replace("# noqa: E501", "").strip()
    return {"description": text} if text else {}
