"""Objects that the suite creates."""

from __future__ import annotations

from typing import Any

from airflow_kftrain.cluster.resources import Resource

Json = dict[str, Any]
PRIORITYCLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)


def config_map(name: str = "cm", labels: Json | None = None, **data: str) -> Json:
    return {"metadata": {"name": name, **({"labels": labels} if labels else {})}, "data": data or {"a": "1"}}


def pod(name: str = "p", *, labels: Json | None = None, resources: Json | None = None, **spec: Any) -> Json:
    container: Json = {"name": "main", "image": "busybox:1.36", "command": ["sleep", "3600"]}
    if resources:
        container["resources"] = resources
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **({"labels": labels} if labels else {})},
        "spec": {"containers": [container], "restartPolicy": "Never", **spec},
    }


def job(name: str = "job", *, kind: str = "XGBoostJob", workers: int = 1, labels: Json | None = None) -> Json:
    field, container = {
        "XGBoostJob": ("xgbReplicaSpecs", "xgboost"),
        "PyTorchJob": ("pytorchReplicaSpecs", "pytorch"),
        "TFJob": ("tfReplicaSpecs", "tensorflow"),
    }[kind]
    template = {"spec": {"containers": [{"name": container, "image": "acme/train:1", "command": ["true"]}]}}
    replicas: Json = {"Worker": {"replicas": workers, "restartPolicy": "OnFailure", "template": template}}
    if kind != "TFJob":
        replicas["Master"] = {"replicas": 1, "restartPolicy": "OnFailure", "template": template}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": name, **({"labels": labels} if labels else {})},
        "spec": {field: replicas},
    }


def owned_by(obj: Json, owner: Json, *, block: bool = True) -> Json:
    """``obj`` with ``owner``, as it was read from the server, as its controller."""
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": block,
    }
    return {**obj, "metadata": {**obj["metadata"], "ownerReferences": [reference]}}
