"""Gangs on the coscheduling scheduler: whole or not at all."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from airflow_kftrain.cluster.client import Cluster, Object
from airflow_kftrain.cluster.resources import EVENTS, PODS, XGBOOSTJOBS, Resource
from airflow_kftrain.cluster.watch import Listed, list_and_watch
from airflow_kftrain.controllers.manager import ControllerManager
from tests.controlplane.conformance.cases import job, replica
from tests.controlplane.conftest import GANG_NAMESPACES
from tests.controlplane.rig import Rig

SECONDS = 60.0
ROOM = "kftrain.test/room"


@pytest_asyncio.fixture(params=["training operator", "our controllers"])
async def gang_namespace(
    request: pytest.FixtureRequest, cluster: Cluster, namespace: str
) -> AsyncIterator[str]:
    """A namespace whose jobs get PodGroups from the one or the other."""
    if request.param == "training operator":
        yield GANG_NAMESPACES[0]
        return
    stop = asyncio.Event()
    manager = ControllerManager(cluster, namespaces=[namespace])
    async with asyncio.TaskGroup() as group:
        group.create_task(manager.run(stop))
        await manager.ready()
        yield namespace
        stop.set()


@pytest.fixture
def room(rig: Rig, namespace: str) -> str:
    """Three nodes of 8 GPUs that nobody else uses; the value of their label."""
    rig.add_nodes((f"{namespace}-{number}" for number in range(3)), labels={ROOM: namespace})
    return namespace


def gang(name: str, room: str, workers: int) -> Object:
    """A job that needs ``workers`` + 1 whole nodes of the room."""
    specs = {
        role: replica("XGBoostJob", count, gpus=8, nodeSelector={ROOM: room})
        for role, count in (("Master", 1), ("Worker", workers))
    }
    return job("XGBoostJob", name, specs)


async def seen(
    cluster: Cluster, resource: Resource, namespace: str, holds: Callable[[dict[str, Object]], bool]
) -> dict[str, Object]:
    """Objects of a kind by name, once ``holds`` is true of them."""
    objects: dict[str, Object] = {}
    async with asyncio.timeout(SECONDS):
        async for event in list_and_watch(cluster, resource, namespace):
            if isinstance(event, Listed):
                objects = {one["metadata"]["name"]: one for one in event.items}
            elif event.type == "DELETED":
                objects.pop(event.object["metadata"]["name"], None)
            else:
                objects[event.object["metadata"]["name"]] = event.object
            if holds(objects):
                return objects
    raise AssertionError("a watch never ends")


def bound(pods: dict[str, Object], prefix: str) -> int:
    """How many pods of a job have a node."""
    return sum(name.startswith(prefix) and "nodeName" in pod["spec"] for name, pod in pods.items())


def running(pods: dict[str, Object], prefix: str) -> int:
    """How many pods of a job run."""
    return sum(name.startswith(prefix) and pod["status"]["phase"] == "Running" for name, pod in pods.items())


@contextlib.asynccontextmanager
async def submitted(cluster: Cluster, namespace: str, *jobs: Object) -> AsyncIterator[None]:
    """The jobs, all submitted at once, deleted afterwards."""
    await asyncio.gather(*(cluster.create(XGBOOSTJOBS, one, namespace) for one in jobs))
    try:
        yield
    finally:
        for one in jobs:
            await cluster.delete(XGBOOSTJOBS, one["metadata"]["name"], namespace)


async def unschedulable(cluster: Cluster, namespace: str, name: str) -> None:
    """Return once a scheduler said that it has no place for a pod of the job."""

    def said(events: dict[str, Object]) -> bool:
        return any(
            event["reason"] in ("FailedScheduling", "Unschedulable")
            and event["involvedObject"]["name"].startswith(name)
            for event in events.values()
        )

    await seen(cluster, EVENTS, namespace, said)


async def test_a_gang_that_does_not_fit_binds_no_pod(
    cluster: Cluster, gang_namespace: str, room: str
) -> None:
    async with submitted(cluster, gang_namespace, gang("too-wide", room, workers=3)):
        await unschedulable(cluster, gang_namespace, "too-wide")
        pods = await seen(cluster, PODS, gang_namespace, lambda pods: len(pods) >= 4)
        assert bound(pods, "too-wide") == 0


async def test_of_two_gangs_that_fit_one_at_a_time_one_runs_whole_and_the_other_holds_nothing(
    cluster: Cluster, gang_namespace: str, room: str
) -> None:
    jobs = [gang(name, room, workers=1) for name in ("left", "right")]
    async with submitted(cluster, gang_namespace, *jobs):

        def one_runs(pods: dict[str, Object]) -> bool:
            return any(running(pods, name) == 2 for name in ("left", "right")) and len(pods) >= 4

        pods = await seen(cluster, PODS, gang_namespace, one_runs)
        loser = "left" if running(pods, "right") == 2 else "right"
        await unschedulable(cluster, gang_namespace, loser)
        pods = await seen(cluster, PODS, gang_namespace, lambda pods: bound(pods, loser) == 0)
        assert sorted(running(pods, name) for name in ("left", "right")) == [0, 2]
