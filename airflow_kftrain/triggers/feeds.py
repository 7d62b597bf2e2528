"""What the waiters of one process share: one watch for jobs and one for pods per (API, credentials, namespace)."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import AbstractAsyncContextManager
from typing import Any

from airflow_kftrain.cluster.client import Cluster, Object
from airflow_kftrain.cluster.resources import PODS, Resource
from airflow_kftrain.cluster.shared import Following, SharedWatches, Source
from airflow_kftrain.cluster.watch import Scope
from airflow_kftrain.exceptions import NotFound
from airflow_kftrain.jobs.identity import JOB_NAME, MANAGED

_MANAGED = f"{MANAGED}=true"


def follow_job(
    watches: SharedWatches,
    connect: Callable[[], Cluster],
    identity: str,
    resource: Resource,
    namespace: str,
    name: str,
    uid: str,
) -> AbstractAsyncContextManager[Following]:
    """Follow one job by its uid."""

    async def fetch(cluster: Cluster) -> list[Object]:
        try:
            return [await cluster.get(resource, name, namespace)]
        except NotFound:
            return []

    source = Source(connect, Scope(resource, namespace, label_selector=_MANAGED), route=_uid, slim=slim_job)
    return watches.follow((identity, namespace, resource.plural), source, uid, fetch)


def follow_pods(
    watches: SharedWatches,
    connect: Callable[[], Cluster],
    identity: str,
    namespace: str,
    job_name: str,
    job_uid: str,
) -> AbstractAsyncContextManager[Following]:
    """Follow the pods that a job controls."""

    async def fetch(cluster: Cluster) -> list[Object]:
        return (await cluster.list(PODS, namespace, label_selector=f"{JOB_NAME}={job_name}")).items

    source = Source(
        connect, Scope(PODS, namespace, label_selector=_MANAGED), route=_controller, slim=slim_pod
    )
    return watches.follow((identity, namespace, PODS.plural), source, job_uid, fetch)


def slim_job(job: Object) -> Object:
    """A job without its pod templates, which nobody reads while it is followed."""
    spec = {name: _without_templates(value) for name, value in (job.get("spec") or {}).items()}
    return {**job, "metadata": _slim_metadata(job["metadata"]), "spec": spec}


def slim_pod(pod: Object) -> Object:
    """A pod's metadata, place and status."""
    spec = pod.get("spec") or {}
    kept = {"nodeName": spec.get("nodeName"), "restartPolicy": spec.get("restartPolicy")}
    return {**pod, "metadata": _slim_metadata(pod["metadata"]), "spec": kept}


def _without_templates(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {
        name: {k: v for k, v in held.items() if k != "template"} if isinstance(held, dict) else held
        for name, held in value.items()
    }


def _slim_metadata(metadata: Object) -> Object:
    return {name: value for name, value in metadata.items() if name != "managedFields"}


def _uid(obj: Object) -> Hashable:
    return str(obj["metadata"]["uid"])


def _controller(obj: Object) -> Hashable | None:
    """The uid of the job that controls a pod."""
    owners = obj["metadata"].get("ownerReferences") or ()
    return next((str(owner["uid"]) for owner in owners if owner.get("controller")), None)
