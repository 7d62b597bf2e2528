"""A cache that lags behind the controller's own writes leads to no second write."""

from __future__ import annotations

import pytest

from airflow_kftrain.cluster.resources import PODS
from airflow_kftrain.exceptions import AlreadyExists, ApiError
from tests.controllers.faulty import Client
from tests.controllers.stage import NAMESPACE, Stage
from tests.controllers.test_lifecycle import manifest, running

KEY = (NAMESPACE, "job")


@pytest.fixture
async def lagging(cluster):
    """A stage whose caches stand still inside ``async with stage.frozen()``; its writes are counted."""
    client = Client(cluster)
    async with Stage(cluster, "XGBoostJob", acting=client).open() as stage:
        yield stage, client


async def turns_without_news(stage, client, turns=3):
    """One turn that works, then others before any of its writes is seen: how many writes each made."""
    made = []
    async with stage.frozen():
        for _ in range(turns):
            before = client.writes
            await stage.controller.reconcile(KEY)
            made.append(client.writes - before)
    return made


async def test_new_pods_are_not_made_twice(lagging):
    stage, client = lagging
    await stage.submit(manifest("xgb-1-2"))
    await stage.caught_up()
    first, *others = await turns_without_news(stage, client)
    assert first == 1 + 3 + 3 + 1  # PodGroup, pods, services, status
    assert others == [0, 0]
    await stage.settle()
    await stage.play()
    assert len(stage.made) == 3


async def test_a_status_is_not_written_twice(lagging):
    stage, client = lagging
    await stage.submit(manifest("xgb-1-2"))
    await stage.settle()
    for pod in (await stage.pods()).values():
        await stage.set_pod(pod, "Running", {"running": {}})
    await stage.caught_up()
    assert await turns_without_news(stage, client) == [1, 0, 0]


async def test_a_failed_pod_is_replaced_once(lagging):
    stage, client = lagging
    await running(stage, manifest("xgb-1-2", policy="ExitCode", backoffLimit=3))
    pod = (await stage.pods())["job-worker-0"]
    await stage.set_pod(pod, "Failed", {"terminated": {"exitCode": 137}})
    await stage.caught_up()
    assert await turns_without_news(stage, client) == [3, 0, 0]  # annotation, deletion, status


async def test_a_job_past_its_backoff_limit_is_not_started_anew_on_its_old_status(lagging):
    stage, client = lagging
    await running(stage, manifest("xgb-1-2", policy="ExitCode", backoffLimit=0))
    pod = (await stage.pods())["job-worker-0"]
    await stage.set_pod(pod, "Failed", {"terminated": {"exitCode": 137}})
    await stage.caught_up()
    assert await turns_without_news(stage, client) == [1, 0, 0]
    await stage.settle()
    assert (await stage.pods(), len(stage.made)) == ({}, 3)


async def test_a_write_that_never_comes_back_is_given_up(lagging):
    """Somebody deletes a pod before the cache has ever shown it: the watch tells nothing of it."""
    stage, _ = lagging
    await stage.submit(manifest("xgb-1-2"))
    await stage.caught_up()
    async with stage.frozen():
        await stage.controller.reconcile(KEY)
        await stage.cluster.delete(PODS, "job-worker-1", NAMESPACE)
    await stage.caught_up()
    assert await stage.controller.reconcile(KEY) == 30
    await stage.clock.advance(31)
    await stage.wake("job")
    await stage.play()
    assert sorted(await stage.pods()) == ["job-master-0", "job-worker-0", "job-worker-1"]


async def test_pods_that_are_there_already_count_as_made(lagging):
    """A controller that takes over with a cache that misses them: names are fixed, so nothing is doubled."""
    stage, _ = lagging
    await running(stage, manifest("xgb-1-2"))
    async with stage.frozen():
        for key in list(stage.world.pods.store):
            stage.world.pods._set(key, None)
        stage.controller.expectations.forget(KEY)
        await stage.controller.reconcile(KEY)
    await stage.settle()
    kinds = await stage.event_kinds("job")
    assert ["Warning", "FailedCreatePod"] not in kinds
    assert len(await stage.pods()) == 3


async def test_a_pod_of_a_stranger_is_neither_taken_nor_deleted(lagging):
    stage, _ = lagging
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "job-worker-1", "labels": {"mine": "yes"}},
        "spec": {"containers": [{"name": "c", "image": "x"}]},
    }
    stranger = await stage.cluster.create(PODS, pod, NAMESPACE)
    await stage.submit(manifest("xgb-1-2"))
    await stage.caught_up()
    with pytest.raises(AlreadyExists):
        await stage.controller.reconcile(KEY)
    assert (await stage.pods())["job-worker-1"]["metadata"]["uid"] == stranger["metadata"]["uid"]
    assert ["Warning", "FailedCreatePod"] in await stage.event_kinds("job")


async def test_an_object_is_deleted_by_its_uid_alone(lagging):
    """What has come in the place of the object that was looked at stays."""
    stage, _ = lagging
    await running(stage, manifest("xgb-1-2", policy="ExitCode"))
    pod = (await stage.pods())["job-worker-0"]
    await stage.set_pod(pod, "Failed", {"terminated": {"exitCode": 137}})
    await stage.caught_up()
    async with stage.frozen():
        await stage.cluster.delete(PODS, "job-worker-0", NAMESPACE)
        fresh = {name: pod["metadata"][name] for name in ("name", "labels", "ownerReferences")}
        made = await stage.cluster.create(
            PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": fresh, "spec": _unbound(pod)}, NAMESPACE
        )
        try:
            await stage.controller.reconcile(KEY)
        except ApiError as error:
            stage.errors.append(error)
    assert (await stage.pods())["job-worker-0"]["metadata"]["uid"] == made["metadata"]["uid"]


def _unbound(pod):
    return {"containers": pod["spec"]["containers"]}
