"""The kinds that real clusters get from CustomResourceDefinitions: kubeflow.org's jobs and the PodGroup.

Columns and subresources are those of training-operator v1.8.1's and scheduler-plugins' definitions: the kubeflow kinds
have no short names, and only the PyTorchJob can be scaled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_kftrain.local.apiserver.kinds import Column, Kind, Scale

_JOB_COLUMNS = (
    Column("State", "status.conditions[-1:].type"),
    Column("Age", "metadata.creationTimestamp", type="date"),
)
_PYTORCH_SCALE = Scale(
    replicas=("spec", "pytorchReplicaSpecs", "Worker", "replicas"),
    status_replicas=("status", "replicaStatuses", "Worker", "active"),
    selector=("status", "replicaStatuses", "Worker", "selector"),
)
_QUANTITY = {"x-kubernetes-int-or-string": True}
_POD_GROUP_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "minMember": {"type": "integer", "format": "int32", "minimum": 1},
                "minResources": {"type": "object", "additionalProperties": _QUANTITY},
                "scheduleTimeoutSeconds": {"type": "integer", "format": "int32"},
            },
        },
        "status": {
            "type": "object",
            "properties": {
                "phase": {"type": "string"},
                "occupiedBy": {"type": "string"},
                "scheduled": {"type": "integer", "format": "int32"},
                "running": {"type": "integer", "format": "int32"},
                "succeeded": {"type": "integer", "format": "int32"},
                "failed": {"type": "integer", "format": "int32"},
                "scheduleStartTime": {"type": "string", "format": "date-time"},
            },
        },
    },
}


def custom_kinds(job_schemas: Mapping[str, Mapping[str, Any]]) -> tuple[Kind, ...]:
    """The custom kinds.

    :param job_schemas: per job kind (``PyTorchJob``) the structural schema of the whole object
    """
    jobs = (
        Kind(
            "kubeflow.org",
            "v1",
            f"{name.lower()}s",
            name,
            categories=("all",),
            custom=True,
            status=True,
            generation=True,
            scale=_PYTORCH_SCALE if name == "PyTorchJob" else None,
            columns=_JOB_COLUMNS,
            schema=schema,
        )
        for name, schema in job_schemas.items()
    )
    return (
        *jobs,
        Kind(
            "scheduling.x-k8s.io",
            "v1alpha1",
            "podgroups",
            "PodGroup",
            short=("pg", "pgs"),
            custom=True,
            status=True,
            generation=True,
            columns=(
                Column("Phase", "status.phase"),
                Column("MinMember", "spec.minMember", type="integer"),
                Column("Running", "status.running", type="integer"),
                Column("Succeeded", "status.succeeded", type="integer"),
                Column("Failed", "status.failed", type="integer"),
                Column("Age", "metadata.creationTimestamp", type="date"),
            ),
            schema=_POD_GROUP_SCHEMA,
        ),
    )


_OPEN: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def job_schemas() -> dict[str, Mapping[str, Any]]:
    """The schema of each kind of training job."""
    return {
        kind: {"type": "object", "properties": {"spec": _OPEN, "status": _OPEN}}
        for kind in ("TFJob", "PyTorchJob", "XGBoostJob")
    }
