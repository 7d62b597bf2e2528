"""Faults that real operators have, on our controllers and the real API, with pods that take their time to end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from airflow_kftrain.cluster.client import Cluster, Object
from airflow_kftrain.cluster.resources import EVENTS, PYTORCHJOBS, RESOURCEQUOTAS, XGBOOSTJOBS
from airflow_kftrain.controllers.manager import ControllerManager
from tests.controlplane.conformance.cases import job, replica
from tests.controlplane.conformance.world import JobWorld, World

SECONDS = 60.0
ENDS_AFTER = 5


@pytest_asyncio.fixture
async def world(cluster: Cluster, namespace: str) -> AsyncIterator[World]:
    """Our controllers at work in the namespace, and what becomes of its jobs."""
    stop = asyncio.Event()
    manager = ControllerManager(cluster, namespaces=[namespace])
    async with asyncio.TaskGroup() as group:
        group.create_task(manager.run(stop))
        await manager.ready()
        async with World(cluster, namespace).watched() as watched:
            yield watched
        stop.set()


def slow_to_end(kind: str, replicas: int, exit_code: int) -> Object:
    """Replicas whose pods end some seconds after they are told to, with this code."""
    made = replica(kind, replicas)
    notes = {"termination-seconds": ENDS_AFTER, "termination-exit-code": exit_code}
    made["template"]["metadata"] = {
        "annotations": {f"kftrain.test/{key}": str(value) for key, value in notes.items()}
    }
    return made


def condition(world: JobWorld, kind: str) -> str | None:
    """The status of one of the job's conditions."""
    conditions = ((world.job or {}).get("status") or {}).get("conditions") or ()
    return next((one["status"] for one in conditions if one["type"] == kind), None)


def all_run(world: JobWorld, count: int) -> bool:
    """Whether just so many pods exist, all run, and the job says so."""
    pods = world.pods.values()
    alive = [
        pod
        for pod in pods
        if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
    ]
    return len(pods) == len(alive) == count and condition(world, "Running") == "True"


def uids(world: JobWorld) -> dict[str, str]:
    """Which pod is which replica."""
    return {name: pod["metadata"]["uid"] for name, pod in world.pods.items()}


def suspend(value: bool) -> dict[str, Any]:
    """The patch that suspends or resumes."""
    return {"spec": {"runPolicy": {"suspend": value}}}


@pytest.mark.parametrize("exit_code", [0, 143])
async def test_b25_a_job_resumed_while_its_old_master_ends_trains_again(
    cluster: Cluster, namespace: str, world: World, exit_code: int
) -> None:
    made = job(
        "XGBoostJob",
        "early",
        {
            "Master": slow_to_end("XGBoostJob", 1, exit_code),
            "Worker": slow_to_end("XGBoostJob", 2, exit_code),
        },
    )
    await cluster.create(XGBOOSTJOBS, made, namespace)
    early = world.job("early")
    assert await early.until(lambda seen: all_run(seen, 3), SECONDS)
    first = set(uids(early).values())
    await cluster.patch(XGBOOSTJOBS, "early", suspend(True), namespace)
    assert await early.until(lambda seen: condition(seen, "Suspended") == "True", SECONDS)
    assert early.pods, "the old pods were to be ending still"
    await cluster.patch(XGBOOSTJOBS, "early", suspend(False), namespace)
    assert await early.until(lambda seen: all_run(seen, 3), SECONDS)
    assert first.isdisjoint(uids(early).values())
    assert not any(
        one["type"] in ("Succeeded", "Failed")
        for status in early.statuses
        for one in status.get("conditions") or ()
    )


@pytest.mark.parametrize("exit_code", [0, 143])
async def test_b26_an_elastic_job_that_shrinks_goes_on_and_makes_no_pod_twice(
    cluster: Cluster, namespace: str, world: World, exit_code: int
) -> None:
    made = job(
        "PyTorchJob",
        "shrinks",
        {"Worker": slow_to_end("PyTorchJob", 4, exit_code)},
        elasticPolicy={"minReplicas": 1, "maxReplicas": 4},
        runPolicy={"schedulingPolicy": {"minAvailable": 1}},
    )
    await cluster.create(PYTORCHJOBS, made, namespace)
    shrinks = world.job("shrinks")
    assert await shrinks.until(lambda seen: all_run(seen, 4), SECONDS)
    before = uids(shrinks)
    patch = {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}}
    await cluster.patch(PYTORCHJOBS, "shrinks", patch, namespace)
    assert await shrinks.until(lambda seen: all_run(seen, 2), SECONDS)
    assert uids(shrinks) == {name: before[name] for name in ("worker-0", "worker-1")}
    created = [event for event in shrinks.of(EVENTS).values() if event["reason"] == "SuccessfulCreatePod"]
    assert len(created) == 4
    assert condition(shrinks, "Succeeded") is None


async def test_b09_a_quota_that_is_exceeded_is_told_in_one_event_and_the_gang_comes_once_there_is_room(
    cluster: Cluster, namespace: str, world: World
) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "gpu"},
        "spec": {"hard": {"requests.nvidia.com/gpu": "1"}},
    }
    await cluster.create(RESOURCEQUOTAS, quota, namespace)
    made = job("XGBoostJob", "refused", {"Master": replica("XGBoostJob"), "Worker": replica("XGBoostJob", 2)})
    await cluster.create(XGBOOSTJOBS, made, namespace)
    refused = world.job("refused")

    def told(seen: JobWorld) -> bool:
        return any("exceeded quota" in event["message"] for event in seen.of(EVENTS).values())

    assert await refused.until(told, SECONDS)
    assert condition(refused, "Running") is None
    await cluster.patch(
        RESOURCEQUOTAS, "gpu", {"spec": {"hard": {"requests.nvidia.com/gpu": "3"}}}, namespace
    )
    assert await refused.until(lambda seen: all_run(seen, 3), SECONDS)
