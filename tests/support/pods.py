"""Builders of pods, nodes and PodGroups as the API gives them."""

from __future__ import annotations

import itertools
from typing import Any

_serial = itertools.count(1)


def container(name: str = "main", command: list[str] | None = None, **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": "acme/train:1", "command": command or ["true"], **fields}


def pod(
    name: str = "p",
    *,
    namespace: str = "default",
    node: str | None = None,
    phase: str = "Pending",
    group: str | None = None,
    gpus: int = 0,
    labels: dict[str, str] | None = None,
    created: str = "2026-01-01T00:00:00Z",
    deleted: bool = False,
    containers: list[dict[str, Any]] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    all_labels = dict(labels or {}) | ({"scheduling.x-k8s.io/pod-group": group} if group else {})
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{name}-{next(_serial)}",
        "labels": all_labels,
        "creationTimestamp": created,
    }
    metadata |= {"deletionTimestamp": created} if deleted else {}
    body: dict[str, Any] = {"containers": containers or [container(resources=resources)], **spec}
    body |= {"nodeName": node} if node else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": body,
        "status": {"phase": phase},
    }


def node(
    name: str,
    *,
    gpus: int = 0,
    cpu: str = "64",
    ready: str = "True",
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    amounts = {"cpu": cpu, "memory": "256Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": spec,
        "status": {"allocatable": amounts, "conditions": [{"type": "Ready", "status": ready}]},
    }


def pod_group(name: str, least: int, *, namespace: str = "default") -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"minMember": least},
    }


def service(
    name: str, selector: dict[str, str], ports: list[tuple[int, int | str]], *, namespace: str = "default"
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": selector, "ports": [{"port": p, "targetPort": t} for p, t in ports]},
    }
