"""What training-operator v1.8.1 was seen to do, and objects in the form of those recordings."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"
OBJECTS: dict[str, dict[str, Any]] = json.loads((DATA / "recorded-objects.json").read_text())
ENDS: dict[str, dict[str, Any]] = json.loads((DATA / "recorded-ends.json").read_text())

UID = "JOB-UID"


def job_of(manifest: dict[str, Any], *, uid: str = UID) -> dict[str, Any]:
    """A manifest as the API would give it back, with the identity that recordings use."""
    job = copy.deepcopy(manifest)
    job["metadata"] |= {"namespace": "default", "uid": uid, "resourceVersion": "1", "generation": 1}
    return job


def as_recorded(obj: dict[str, Any], job_uid: str) -> dict[str, Any]:
    """An object with its defaults, without what differs from run to run."""
    kind = obj["kind"]
    full = copy.deepcopy(obj)
    metadata = {
        name: value
        for name, value in full["metadata"].items()
        if name in ("name", "namespace", "labels", "annotations", "ownerReferences", "finalizers") and value
    }
    for reference in metadata.get("ownerReferences", ()):
        if reference["uid"] == job_uid:
            reference["uid"] = UID
    if kind == "PodGroup":
        return {"apiVersion": full["apiVersion"], "kind": kind, "metadata": metadata, "spec": full["spec"]}
    if kind == "Pod":
        return {"metadata": metadata | {"generation": 1}, "spec": _pod_defaults(full["spec"])}
    return {"metadata": metadata, "spec": _service_defaults(full["spec"]), "status": {"loadBalancer": {}}}


def _pod_defaults(spec: dict[str, Any]) -> dict[str, Any]:
    """What kube-apiserver 1.37 fills into a pod's spec."""
    defaults = {
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
        "priority": 0,
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
    }
    full = defaults | {name: value for name, value in spec.items() if name != "nodeName"}
    # Which of these an API server adds depends on its admission plugins, and recordings leave them out.
    tolerations = [t for t in full.pop("tolerations", ()) if t.get("tolerationSeconds") != 300]
    full |= {"tolerations": tolerations} if tolerations else {}
    for field in ("containers", "initContainers"):
        if field in full:
            full[field] = [_container_defaults(container) for container in full[field]]
    return full


def _container_defaults(container: dict[str, Any]) -> dict[str, Any]:
    full = {
        "imagePullPolicy": "IfNotPresent",
        "resources": {},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    } | copy.deepcopy(container)
    resources = {
        kind: {name: str(amount) for name, amount in amounts.items()}
        for kind, amounts in full["resources"].items()
    }
    if "limits" in resources:
        resources["requests"] = resources["limits"] | resources.get("requests", {})
    full["resources"] = resources
    if "ports" in full:
        full["ports"] = [{"protocol": "TCP"} | port for port in full["ports"]]
    return full


def _service_defaults(spec: dict[str, Any]) -> dict[str, Any]:
    defaults = {
        "clusterIPs": ["None"],
        "internalTrafficPolicy": "Cluster",
        "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack",
        "sessionAffinity": "None",
        "type": "ClusterIP",
    }
    ports = [{"protocol": "TCP", "targetPort": port["port"]} | port for port in spec["ports"]]
    return defaults | spec | {"ports": ports}
