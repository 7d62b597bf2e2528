"""Pods, services and PodGroups of a job, field by field as training-operator v1.8.1 makes them."""

from __future__ import annotations

import copy
from typing import Any

from airflow_kftrain.controllers.reconciler import Reconciler
from airflow_kftrain.controllers.view import JobView, Object, ReplicaView
from airflow_kftrain.jobs.resources import Resources

JOB_NAME = "training.kubeflow.org/job-name"
OPERATOR_NAME = "training.kubeflow.org/operator-name"
REPLICA_TYPE = "training.kubeflow.org/replica-type"
REPLICA_INDEX = "training.kubeflow.org/replica-index"
JOB_ROLE = "training.kubeflow.org/job-role"
POD_GROUP = "scheduling.x-k8s.io/pod-group"


def job_labels(reconciler: Reconciler, job: JobView) -> dict[str, str]:
    """What all objects of a job bear, and by which they are found."""
    return {OPERATOR_NAME: reconciler.controller_name, JOB_NAME: job.name}


def replica_labels(reconciler: Reconciler, job: JobView, replica: ReplicaView, index: int) -> dict[str, str]:
    """What the objects of one replica bear."""
    return job_labels(reconciler, job) | {REPLICA_TYPE: replica.label, REPLICA_INDEX: str(index)}


def type_selector(reconciler: Reconciler, job: JobView, replica: ReplicaView) -> str:
    """The label selector of one replica type's pods, as the scale subresource shows it."""
    labels = job_labels(reconciler, job) | {REPLICA_TYPE: replica.label}
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items()))


def owner_reference(job: JobView) -> Object:
    """The reference by which an object belongs to ``job``."""
    return {
        "apiVersion": job.framework.api_version,
        "kind": job.kind,
        "name": job.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def controller_of(obj: Object) -> Object | None:
    """The owner reference of an object's controller."""
    references = obj["metadata"].get("ownerReferences") or ()
    return next((r for r in references if r.get("controller")), None)


def replica_index(obj: Object) -> int | None:
    """The index in an object's labels; None when it is absent or no number."""
    text = (obj["metadata"].get("labels") or {}).get(REPLICA_INDEX, "")
    return int(text) if text.isdecimal() else None


def is_of_type(obj: Object, replica: ReplicaView) -> bool:
    """Whether an object belongs to a replica type."""
    return (obj["metadata"].get("labels") or {}).get(REPLICA_TYPE) == replica.label


def replica_name(job: JobView, replica_type: str, index: int) -> str:
    """The name of a replica's pod and service."""
    return f"{job.name}-{replica_type.lower()}-{index}"


def pod(
    reconciler: Reconciler, job: JobView, replica: ReplicaView, index: int, *, gang_scheduler: str | None
) -> Object:
    """The pod of one replica.

    :param gang_scheduler: name of the scheduler that places gangs whole; None when there is none
    """
    template = copy.deepcopy(replica.template)
    metadata = template.get("metadata") or {}
    spec = template["spec"]
    reconciler.set_cluster_spec(job, spec, replica, index)
    # ExitCode is no policy of pods: this controller restarts them itself.
    spec["restartPolicy"] = "Never" if replica.restart_policy == "ExitCode" else replica.restart_policy
    labels = (metadata.get("labels") or {}) | replica_labels(reconciler, job, replica, index)
    if reconciler.is_master_role(job, replica, index):
        labels[JOB_ROLE] = "master"
    if gang_scheduler is not None:
        spec["schedulerName"] = spec.get("schedulerName") or gang_scheduler
        labels[POD_GROUP] = job.name
    made = {"name": replica_name(job, replica.replica_type, index), "namespace": job.namespace}
    kept = {name: metadata[name] for name in ("annotations", "finalizers") if metadata.get(name)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": made | kept | {"labels": labels, "ownerReferences": [owner_reference(job)]},
        "spec": spec,
    }


def pod_warnings(job: JobView, replica: ReplicaView, *, gang_scheduler: str | None) -> list[tuple[str, str]]:
    """Reason and message of what a person should know about a pod template that is not taken as it is."""
    found = []
    if replica.template["spec"].get("restartPolicy"):
        text = "Restart policy in pod template will be overwritten by restart policy in replica spec"
        found.append(("SetPodTemplateRestartPolicy", text))
    schedulers = {r.template["spec"].get("schedulerName") or gang_scheduler for r in job.replicas.values()}
    if gang_scheduler is not None and schedulers != {gang_scheduler}:
        text = "Another scheduler is specified when gang-scheduling is enabled and it will not be overwritten"
        found.append(("SetPodTemplateSchedulerName", text))
    return found


def service(reconciler: Reconciler, job: JobView, replica: ReplicaView, index: int) -> Object:
    """The headless service that gives a replica its host name."""
    labels = replica_labels(reconciler, job, replica, index)
    containers = replica.template["spec"]["containers"]
    training: Object = next((c for c in containers if c.get("name") == job.framework.container), {})
    ports = [{"name": p.get("name", ""), "port": p["containerPort"]} for p in training.get("ports") or ()]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": replica_name(job, replica.replica_type, index),
            "namespace": job.namespace,
            "labels": labels,
            "ownerReferences": [owner_reference(job)],
        },
        "spec": {"clusterIP": "None", "selector": dict(labels), "ports": ports},
    }


def pod_group(job: JobView) -> Object:
    """The PodGroup (``scheduling.x-k8s.io``) by which a gang scheduler places the job whole or not at all."""
    annotations = {"annotations": dict(job.annotations)} if job.annotations else {}
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {
            "name": job.name,
            "namespace": job.namespace,
            **annotations,
            "ownerReferences": [owner_reference(job)],
        },
        "spec": pod_group_spec(job),
    }


def pod_group_spec(job: JobView) -> Object:
    """Fewest members (``minAvailable``, else all replicas), and what these ask for in sum."""
    policy = job.run_policy.get("schedulingPolicy") or {}
    members = policy.get("minAvailable")
    members = job.total if members is None else int(members)
    resources = policy.get("minResources") or _resources_of(job, members)
    spec: Object = {"minMember": members}
    spec |= {"minResources": resources} if resources else {}
    timeout = policy.get("scheduleTimeoutSeconds")
    return spec | ({"scheduleTimeoutSeconds": timeout} if timeout is not None else {})


def _resources_of(job: JobView, members: int) -> dict[str, str]:
    """The requests (where a container has none: limits) of the first ``members`` replicas, those that lead first."""
    total = Resources()
    for replica in job.replicas.values():
        counted = min(replica.count, members)
        members -= counted
        total += counted * _pod_resources(replica.template["spec"])
    return total.to_dict()


def _pod_resources(spec: dict[str, Any]) -> Resources:
    resources = [c.get("resources") or {} for c in spec["containers"]]
    return Resources.total(Resources(r.get("requests") or r.get("limits") or {}) for r in resources)
