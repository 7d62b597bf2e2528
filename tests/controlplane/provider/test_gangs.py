"""Gangs as a task sees them, on the real gang scheduler: what does not fit, and what the operator forgot."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from airflow_kftrain.cluster.client import Cluster
from airflow_kftrain.cluster.resources import PODS, XGBOOSTJOBS
from airflow_kftrain.triggers.observer import NUDGE
from tests.controlplane.conftest import GANG_NAMESPACES
from tests.controlplane.provider.stage import deferred
from tests.controlplane.rig import Rig
from tests.controlplane.test_gangs import gang
from tests.support.faulty_proxy import FaultyProxy
from tests.support.player import Player

ROOM = "kftrain.test/room"
GANG = GANG_NAMESPACES[0]


@pytest.mark.usefixtures("connected")
async def test_a_gang_that_does_not_fit_starts_no_pod_and_its_task_says_why(
    rig: Rig, cluster: Cluster, namespace: str
) -> None:
    rig.add_nodes((f"{namespace}-{number}" for number in range(3)), labels={ROOM: namespace})
    made = gang("wide", namespace, workers=3)
    async with deferred(cluster, GANG, made, limits={"start": "20s"}) as task, task.followed() as watch:
        await watch.said("0/4")
        await watch.said("Unschedulable", 30)
        pods = (
            await cluster.list(PODS, GANG, label_selector=f"training.kubeflow.org/job-name={task.name}")
        ).items
        assert len(pods) == 4
        assert not any("nodeName" in pod["spec"] for pod in pods)
        event = await watch.event(60)
        assert event.outcome["cause"] == "StartLimit"
        assert "0/4 replicas are up" in event.message
        await task.live.until(task.resource, task.name, lambda found: found is None)


@pytest.mark.usefixtures("connected")
async def test_two_tasks_that_fit_one_at_a_time_never_hold_half_a_gang_each(
    rig: Rig, cluster: Cluster, namespace: str
) -> None:
    rig.add_nodes((f"{namespace}-{number}" for number in range(3)), labels={ROOM: namespace})
    async with AsyncExitStack() as stack:
        tasks = [
            await stack.enter_async_context(
                deferred(cluster, GANG, gang(name, namespace, workers=1), limits={"start": "25s"})
            )
            for name in ("left", "right")
        ]
        watches = [await stack.enter_async_context(task.followed()) for task in tasks]
        events = [asyncio.create_task(watch.event(90)) for watch in watches]
        done, _ = await asyncio.wait(events, return_when=asyncio.FIRST_COMPLETED, timeout=90)
        (lost,) = done
        loser, winner = (0, 1) if events[0] is lost else (1, 0)
        assert "0/2 replicas are up" in lost.result().message
        assert "gang is whole" in watches[winner].log
        assert "1/2 replicas are up" not in watches[loser].log


async def test_b28_a_resumed_job_that_its_operator_forgot_is_touched_once_and_the_log_says_so(
    cluster: Cluster, namespace: str, proxy: FaultyProxy
) -> None:
    # Nobody sees to this namespace: that is what a job looks like whose operator has looked away.
    made = gang("forgotten", namespace, workers=1)
    async with deferred(cluster, namespace, made, limits={"start": "25s"}) as task:
        await Player(cluster, None, namespace).says(task.job, "Created=True", "Suspended=False")
        async with task.followed() as watch:
            await watch.said("touched once", 40)
            await task.live.until(
                XGBOOSTJOBS, task.name, lambda job: job and NUDGE in job["metadata"]["annotations"]
            )
            event = await watch.event(60)
    assert event.outcome["cause"] == "StartLimit"
    assert sum("touched once" in line for line in watch.lines) == 1
    assert len(proxy.seen("PATCH", f"/xgboostjobs/{task.name}$")) == 1


@pytest.mark.usefixtures("connected")
async def test_b28_gangs_that_are_suspended_and_resumed_in_haste_are_whole_in_the_end(
    rig: Rig, cluster: Cluster, namespace: str
) -> None:
    rig.add_nodes((f"{namespace}-{number}" for number in range(8)), labels={ROOM: namespace})

    async def hasty(number: int) -> bool:
        """Whether the job needed a nudge."""
        made = gang(f"hasty-{number}", namespace, workers=1)
        async with deferred(cluster, GANG, made) as task, task.followed() as watch:
            await watch.said("gang is whole", 60)
            for _ in range(5):
                await task.suspend(True)
                await task.suspend(False)
            await task.live.until(
                PODS,
                f"{task.name}-worker-0",
                lambda pod: pod and pod["status"].get("phase") == "Running",
                timeout=60,
            )
            assert not watch.running.done()
            return "touched once" in watch.log

    nudged = await asyncio.gather(*(hasty(number) for number in range(4)))
    print(f"{sum(nudged)} of {len(nudged)} hasty jobs were forgotten by the operator and nudged")
