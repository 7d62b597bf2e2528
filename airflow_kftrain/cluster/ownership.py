"""Deleting and taking over jobs under the ownership token ``kftrain/ti``.

Several may want to delete one job: its trigger, the next try, the janitor. Whoever comes first, one DELETE succeeds,
and none ever hits a job that has passed to another owner or a new job of the same name.
"""

from __future__ import annotations

from typing import Any

from airflow_kftrain.clock import Clock, SystemClock
from airflow_kftrain.cluster.client import Cluster
from airflow_kftrain.cluster.resources import Resource
from airflow_kftrain.cluster.retry import with_retries
from airflow_kftrain.exceptions import Conflict, NotFound
from airflow_kftrain.jobs.identity import HOLD, TI, token
from airflow_kftrain.jobs.status import JobStatus


async def read_owned(
    cluster: Cluster, resource: Resource, name: str, namespace: str, *, uid: str | None, owner: str | None
) -> dict[str, Any] | None:
    """The job, or None when it is gone, has another uid, or belongs to another task instance.

    :param uid: ``None`` when it is not known (the answer to the POST was lost)
    """
    try:
        job = await cluster.get(resource, name, namespace)
    except NotFound:
        return None
    if token(job) != owner or (uid is not None and job["metadata"]["uid"] != uid):
        return None
    return job


async def delete_owned(
    cluster: Cluster,
    resource: Resource,
    name: str,
    namespace: str,
    *,
    uid: str | None,
    owner: str | None,
    unfinished_only: bool = False,
    clock: Clock | None = None,
) -> bool:
    """Delete the job while it is the owner's; whether this call did it.

    Read, then delete what was read (uid and resourceVersion); on 409 read again.

    :param unfinished_only: leave a finished job
    :raises ApiError: the API refuses for good
    """

    async def once() -> bool:
        job = await read_owned(cluster, resource, name, namespace, uid=uid, owner=owner)
        if job is None or (unfinished_only and JobStatus.from_object(job).state.final):
            return False
        if job["metadata"].get("deletionTimestamp"):
            return False
        try:
            await cluster.delete(
                resource,
                name,
                namespace,
                uid=job["metadata"]["uid"],
                resource_version=job["metadata"]["resourceVersion"],
                propagation_policy="Background",
            )
        except NotFound:
            return False
        return True

    return await with_retries(once, clock=clock or SystemClock(), attempts=8, also=(Conflict,))


async def take_over(
    cluster: Cluster,
    resource: Resource,
    name: str,
    namespace: str,
    *,
    uid: str | None,
    owner: str | None,
    new_owner: str,
    try_number: int,
    clock: Clock | None = None,
) -> dict[str, Any] | None:
    """Make ``new_owner`` the owner of an unfinished job of ``owner``; the job, or None when there is none to take."""

    async def once() -> dict[str, Any] | None:
        job = await read_owned(cluster, resource, name, namespace, uid=uid, owner=owner)
        if job is None or job["metadata"].get("deletionTimestamp") or JobStatus.from_object(job).state.final:
            return None
        metadata = {
            "resourceVersion": job["metadata"]["resourceVersion"],
            "uid": job["metadata"]["uid"],
            "annotations": {TI: new_owner},
            "labels": {"try_number": str(try_number)},
        }
        try:
            return await cluster.patch(resource, name, {"metadata": metadata}, namespace)
        except NotFound:
            return None

    return await with_retries(once, clock=clock or SystemClock(), attempts=8, also=(Conflict,))


async def suspend_owned(
    cluster: Cluster,
    resource: Resource,
    name: str,
    namespace: str,
    *,
    uid: str | None,
    owner: str | None,
    clock: Clock | None = None,
) -> bool:
    """End the job's pods and keep the job, while it is the owner's and unfinished; whether this call did it."""

    async def once() -> bool:
        job = await read_owned(cluster, resource, name, namespace, uid=uid, owner=owner)
        if job is None or job["metadata"].get("deletionTimestamp") or JobStatus.from_object(job).state.final:
            return False
        metadata = {
            "uid": job["metadata"]["uid"],
            "resourceVersion": job["metadata"]["resourceVersion"],
            "annotations": {HOLD: "user"},
        }
        patch = {"metadata": metadata, "spec": {"runPolicy": {"suspend": True}}}
        try:
            await cluster.patch(resource, name, patch, namespace)
        except NotFound:
            return False
        return True

    return await with_retries(once, clock=clock or SystemClock(), attempts=8, also=(Conflict,))


async def end_leftovers(
    cluster: Cluster,
    resource: Resource,
    name: str,
    namespace: str,
    *,
    uid: str | None,
    owner: str | None,
    clock: Clock | None = None,
) -> bool:
    """Have the controller end what still runs of the owner's finished job; whether this call did it.

    Pods that have ended stay, with their logs. A ``cleanPodPolicy`` that ends pods anyway is left as it is.
    """

    async def once() -> bool:
        job = await read_owned(cluster, resource, name, namespace, uid=uid, owner=owner)
        if job is None or job["metadata"].get("deletionTimestamp"):
            return False
        policy = (job["spec"].get("runPolicy") or {}).get("cleanPodPolicy")
        if policy not in (None, "None") or not JobStatus.from_object(job).state.final:
            return False
        metadata = {"uid": job["metadata"]["uid"], "resourceVersion": job["metadata"]["resourceVersion"]}
        patch = {"metadata": metadata, "spec": {"runPolicy": {"cleanPodPolicy": "Running"}}}
        try:
            await cluster.patch(resource, name, patch, namespace)
        except NotFound:
            return False
        return True

    return await with_retries(once, clock=clock or SystemClock(), attempts=8, also=(Conflict,))
