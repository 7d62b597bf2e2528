"""Structural OpenAPI v3 schemas of the kinds, made from the specs: for validation, pruning and defaulting.

They say what the CRDs of training-operator v1.8.1 say (``manifests/base/crds``): types, not the rules that
:mod:`airflow_kftrain.jobs.validation` knows beyond them, so that an API that uses them takes what a real one takes.
``managedBy`` is v1.9's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_kftrain.jobs.fields import record_schema
from airflow_kftrain.jobs.frameworks import Framework
from airflow_kftrain.jobs.spec import ReplicaSpec, RunPolicy

PRINTER_COLUMNS = (
    {"name": "State", "type": "string", "jsonPath": ".status.conditions[-1:].type"},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
)

_TEXT = {"type": "string"}
_TIME = {"type": "string", "format": "date-time"}
_COUNT = {"type": "integer", "format": "int32"}


def job_schema(kind: Framework, *, pod_template: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The schema of a kind's objects, as it stands under ``openAPIV3Schema``.

    :param pod_template: schema of pod templates; any object passes untouched when absent
    """
    replica = record_schema(ReplicaSpec)
    if pod_template is not None:
        replica["properties"]["template"] = dict(pod_template)
    options = record_schema(kind.options)["properties"]
    replicas = {"type": "object", "additionalProperties": replica}
    spec = {
        "type": "object",
        "required": [kind.replica_specs_field],
        "properties": {"runPolicy": record_schema(RunPolicy), **options, kind.replica_specs_field: replicas},
    }
    properties = {
        "apiVersion": dict(_TEXT),
        "kind": dict(_TEXT),
        "metadata": {"type": "object"},
        "spec": spec,
        "status": status_schema(),
    }
    return {"type": "object", "properties": properties}


def status_schema() -> dict[str, Any]:
    """The schema of ``status``, the same for all kinds."""
    condition = {
        "type": "object",
        "required": ["status", "type"],
        "properties": {
            **{name: dict(_TEXT) for name in ("type", "status", "reason", "message")},
            **{name: dict(_TIME) for name in ("lastUpdateTime", "lastTransitionTime")},
        },
    }
    counts = {
        "type": "object",
        "properties": {
            **{name: dict(_COUNT) for name in ("active", "succeeded", "failed")},
            "selector": dict(_TEXT),
            "labelSelector": _label_selector(),
        },
    }
    return {
        "type": "object",
        "properties": {
            "conditions": {"type": "array", "items": condition},
            "replicaStatuses": {"type": "object", "additionalProperties": counts},
            **{name: dict(_TIME) for name in ("startTime", "completionTime", "lastReconcileTime")},
        },
    }


def scale_subresource(kind: Framework) -> dict[str, str] | None:
    """The ``scale`` subresource of a kind, None when it has none (only PyTorchJob has, of those here)."""
    if kind.scale_type is None:
        return None
    return {
        "specReplicasPath": f".spec.{kind.replica_specs_field}.{kind.scale_type}.replicas",
        "statusReplicasPath": f".status.replicaStatuses.{kind.scale_type}.active",
        "labelSelectorPath": f".status.replicaStatuses.{kind.scale_type}.selector",
    }


def custom_resource_definition(
    kind: Framework, *, pod_template: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The CustomResourceDefinition of a kind; the real ones have no short names either.

    :param pod_template: as for :func:`job_schema`
    """
    scale = scale_subresource(kind)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced",
            "names": {
                "kind": kind.kind,
                "listKind": f"{kind.kind}List",
                "plural": kind.plural,
                "singular": kind.singular,
            },
            "versions": [
                {
                    "name": kind.version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": job_schema(kind, pod_template=pod_template)},
                    "subresources": {"status": {}, **({"scale": scale} if scale else {})},
                    "additionalPrinterColumns": [dict(column) for column in PRINTER_COLUMNS],
                }
            ],
        },
    }


def _label_selector() -> dict[str, Any]:
    expression = {
        "type": "object",
        "required": ["key", "operator"],
        "properties": {
            "key": dict(_TEXT),
            "operator": dict(_TEXT),
            "values": {"type": "array", "items": dict(_TEXT)},
        },
    }
    return {
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchExpressions": {"type": "array", "items": expression},
            "matchLabels": {"type": "object", "additionalProperties": dict(_TEXT)},
        },
    }
