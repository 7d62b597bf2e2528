"""Deleting and taking over jobs under the ownership token ``kftrain/ti``.

Several may want to delete one job: its trigger, the next try, the janitor. Whoever comes first, one DELETE succeeds,
and none ever hits a job that has passed to another owner or a new job of the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from airflow_kftrain.clock import Clock, SystemClock
from airflow_kftrain.cluster.client import Cluster
from airflow_kftrain.cluster.resources import Resource
from airflow_kftrain.cluster.retry import with_retries
from airflow_kftrain.exceptions import Conflict, NotFound
from airflow_kftrain.jobs.identity import HOLD, TI, token
from airflow_kftrain.jobs.status import JobStatus

T = TypeVar("T")


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

    async def delete(job: dict[str, Any]) -> bool:
        if unfinished_only and JobStatus.from_object(job).state.final:
            return False
        await cluster.delete(
            resource,
            name,
            namespace,
            uid=job["metadata"]["uid"],
            resource_version=job["metadata"]["resourceVersion"],
            propagation_policy="Background",
        )
        return True

    read = partial(read_owned, cluster, resource, name, namespace, uid=uid, owner=owner)
    return await _while_owned(read, delete, clock) or False


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

    def change(job: dict[str, Any]) -> dict[str, Any] | None:
        if JobStatus.from_object(job).state.final:
            return None
        return {"metadata": {"annotations": {TI: new_owner}, "labels": {"try_number": str(try_number)}}}

    return await _patch_owned(cluster, resource, name, namespace, change, uid=uid, owner=owner, clock=clock)


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

    def change(job: dict[str, Any]) -> dict[str, Any] | None:
        if JobStatus.from_object(job).state.final:
            return None
        return {"metadata": {"annotations": {HOLD: "user"}}, "spec": {"runPolicy": {"suspend": True}}}

    patched = await _patch_owned(
        cluster, resource, name, namespace, change, uid=uid, owner=owner, clock=clock
    )
    return patched is not None


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

    def change(job: dict[str, Any]) -> dict[str, Any] | None:
        policy = (job["spec"].get("runPolicy") or {}).get("cleanPodPolicy")
        if policy not in (None, "None") or not JobStatus.from_object(job).state.final:
            return None
        return {"metadata": {}, "spec": {"runPolicy": {"cleanPodPolicy": "Running"}}}

    patched = await _patch_owned(
        cluster, resource, name, namespace, change, uid=uid, owner=owner, clock=clock
    )
    return patched is not None


async def _patch_owned(
    cluster: Cluster,
    resource: Resource,
    name: str,
    namespace: str,
    change: Callable[[dict[str, Any]], dict[str, Any] | None],
    *,
    uid: str | None,
    owner: str | None,
    clock: Clock | None,
) -> dict[str, Any] | None:
    """Patch the job as ``change`` says, bound to what it saw; the job as stored, None where there was nothing to do.

    :param change: from the job to a merge patch, or None
    """

    async def patch(job: dict[str, Any]) -> dict[str, Any] | None:
        wanted = change(job)
        if wanted is None:
            return None
        seen = {key: job["metadata"][key] for key in ("uid", "resourceVersion")}
        bound = {**wanted, "metadata": {**wanted["metadata"], **seen}}
        return await cluster.patch(resource, name, bound, namespace)

    read = partial(read_owned, cluster, resource, name, namespace, uid=uid, owner=owner)
    return await _while_owned(read, patch, clock)


async def _while_owned(
    read: Callable[[], Coroutine[Any, Any, dict[str, Any] | None]],
    act: Callable[[dict[str, Any]], Coroutine[Any, Any, T | None]],
    clock: Clock | None,
) -> T | None:
    """Read the job and act on it, again after each 409; None when it is no longer the owner's, or going already."""

    async def once() -> T | None:
        job = await read()
        if job is None or job["metadata"].get("deletionTimestamp"):
            return None
        try:
            return await act(job)
        except NotFound:
            return None

    return await with_retries(once, clock=clock or SystemClock(), attempts=8, also=(Conflict,))
