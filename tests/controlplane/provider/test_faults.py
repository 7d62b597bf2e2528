"""Faults of neighbouring products, with our operator and trigger before the real operator and schedulers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from airflow_kftrain.cluster.client import Cluster, Object
from airflow_kftrain.cluster.resources import PODS, RESOURCEQUOTAS
from airflow_kftrain.operators.training_job import TrainingJobFailed
from tests.controlplane.conformance.cases import job, replica
from tests.controlplane.conftest import GANG_NAMESPACES, PLAIN_NAMESPACES
from tests.controlplane.provider.stage import Task, deferred, is_condition, played

GANG, QUOTED, PLAIN = GANG_NAMESPACES[0], GANG_NAMESPACES[1], PLAIN_NAMESPACES[0]
ROLES = {"XGBoostJob": ("Master", "Worker"), "PyTorchJob": ("Master", "Worker"), "TFJob": ("Chief", "Worker")}

pytestmark = pytest.mark.usefixtures("connected")


def gang(
    kind: str,
    name: str,
    workers: int = 2,
    *,
    first: dict[str, Any] | None = None,
    worker: dict[str, Any] | None = None,
    policy: str = "Never",
    **spec: Any,
) -> Object:
    """A job of one that leads and some workers, whose pods are played as the annotations say."""
    lead, rest = ROLES[kind]
    replicas = {
        lead: played(replica(kind, 1, policy), **(first or {})),
        rest: played(replica(kind, workers, policy), **(worker or {})),
    }
    return job(kind, name, replicas, **spec)


async def test_b07_a_worker_that_fails_for_ever_ends_the_job_at_its_backoff_limit(cluster: Cluster) -> None:
    made = gang(
        "XGBoostJob",
        "storm",
        1,
        worker={"exit_codes": "137"},
        policy="ExitCode",
        runPolicy={"backoffLimit": 3},
    )
    async with deferred(cluster, PLAIN, made) as task, task.followed() as watch:
        event = await watch.event(90)
        for part in ("worker-0", "137", "4 starts"):
            assert part in event.message
        assert event.outcome["cause"] == "BackoffLimit"
        with pytest.raises(TrainingJobFailed, match="backoff limit of 3"):
            await task.finish(event)
        await task.live.until(task.resource, task.name, lambda found: found is None)


async def test_b08_an_image_that_cannot_be_pulled_fails_at_the_start_limit_by_its_name(
    cluster: Cluster,
) -> None:
    made = gang("XGBoostJob", "pull", worker={"waiting_reason": "ErrImagePull"})
    async with deferred(cluster, GANG, made, limits={"start": "8s"}) as task, task.followed() as watch:
        await watch.said("ErrImagePull")
        event = await watch.event(60)
        for part in ("start limit of 8s", "worker-0", "train:1", "ErrImagePull"):
            assert part in event.message
        await task.live.until(task.resource, task.name, lambda found: found is None)


async def test_b09_a_quota_that_is_exceeded_is_told_and_stands_in_the_failure(cluster: Cluster) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "gpu"},
        "spec": {"hard": {"requests.nvidia.com/gpu": "1"}},
    }
    await cluster.create(RESOURCEQUOTAS, quota, QUOTED)
    try:
        made = gang("XGBoostJob", "quota")
        async with deferred(cluster, QUOTED, made, limits={"start": "15s"}) as task, task.followed() as watch:
            await watch.said("exceeded quota")
            event = await watch.event(60)
            assert "exceeded quota" in event.message
            told = Counter(line for line in watch.lines if line.startswith("Warning of the cluster"))
            assert set(told.values()) == {1}, told
    finally:
        await cluster.delete(RESOURCEQUOTAS, "gpu", QUOTED)


async def test_b12_a_job_that_fails_or_goes_while_its_task_is_deferred_has_not_succeeded(
    cluster: Cluster,
) -> None:
    made = gang("PyTorchJob", "deleted")
    async with deferred(cluster, GANG, made) as task, task.followed() as watch:
        await watch.said("gang is whole", 60)
        await cluster.delete(task.resource, task.name, GANG)
        event = await watch.event(60)
        assert event.end == "gone"
        with pytest.raises(TrainingJobFailed, match="deleted by somebody else"):
            await task.finish(event)
    failing = gang("PyTorchJob", "fails", worker={"exit_codes": "3", "run_seconds": 1})
    async with deferred(cluster, GANG, failing) as task, task.followed() as watch:
        event = await watch.event(60)
        with pytest.raises(TrainingJobFailed, match="exit code 3"):
            await task.finish(event)


@pytest.mark.parametrize("kind", ROLES)
async def test_b25_the_success_of_a_master_that_was_still_ending_is_none(cluster: Cluster, kind: str) -> None:
    slow = {"termination_seconds": 10, "termination_exit_code": 0}
    made = gang(kind, f"early-{kind.lower()}", first=slow, policy="OnFailure")
    async with deferred(cluster, GANG, made) as task, task.followed() as watch:
        await watch.said("gang is whole", 60)
        await task.suspend(True)
        await task.suspend(False)
        event = await watch.event(60)
        ended = await cluster.get(task.resource, task.name, GANG)
        # Which of the two the real operator says is chance; its gang ran in neither.
        said = [one for one in ("Succeeded", "Failed") if is_condition(ended, one, True)]
        print(f"the operator called the {kind} {said}")
        assert len(said) == 1
        assert event.end == "failed"
        assert said == ["Failed"] or event.outcome["cause"] == "GangNeverWhole"
        with pytest.raises(TrainingJobFailed):
            await task.finish(event)


async def test_b25_a_job_resumed_when_its_pods_are_gone_ends_with_its_second_run(cluster: Cluster) -> None:
    slow = {"termination_seconds": 3, "termination_exit_code": 0}
    made = gang("XGBoostJob", "second", first={**slow, "exit_codes": "0", "run_seconds": 8}, worker=slow)
    async with deferred(cluster, GANG, made) as task, task.followed() as watch:
        await watch.said("gang is whole", 60)
        await task.suspend(True)
        for role in ("master-0", "worker-0", "worker-1"):
            await task.live.until(PODS, f"{task.name}-{role}", lambda pod: pod is None)
        await task.suspend(False)
        event = await watch.event(60)
        assert event.end == "succeeded"
        assert event.outcome["replicas"]["master-0"]["starts"] == 2
        assert (await task.finish(event))["state"] == "succeeded"


async def test_b26_an_elastic_job_that_its_user_makes_smaller_one_by_one_goes_on(cluster: Cluster) -> None:
    workers = played(replica("PyTorchJob", 4, "OnFailure"), termination_seconds=5)
    made = job(
        "PyTorchJob", "shrinks", {"Worker": workers}, elasticPolicy={"minReplicas": 1, "maxReplicas": 4}
    )
    async with deferred(cluster, PLAIN, made) as task, task.followed() as watch:
        await watch.said("gang is whole", 60)
        uids = await uids_of(task)
        for size in (3, 2):
            await task.patch({"pytorchReplicaSpecs": {"Worker": {"replicas": size}}})
            await task.live.until(PODS, f"{task.name}-worker-{size}", lambda pod: pod is None)
        await watch.said("2/2 replicas are up")
        left = await uids_of(task)
        assert left == {name: uids[name] for name in left}
        assert len(left) == 2
        assert not watch.running.done()
        found = await cluster.get(task.resource, task.name, PLAIN)
        assert is_condition(found, "Running", True)


async def uids_of(task: Task) -> dict[str, str]:
    pods = (await task.live.cluster.list(PODS, task.live.namespace)).items
    return {
        p["metadata"]["name"]: p["metadata"]["uid"]
        for p in pods
        if p["metadata"]["name"].startswith(f"{task.name}-")
    }


@pytest.mark.parametrize("policy", ["All", "Running", "None"])
async def test_cleaned_pods_and_a_job_past_its_ttl_change_nothing_of_the_result(
    cluster: Cluster, policy: str
) -> None:
    ends = {"exit_codes": "0", "run_seconds": 2}
    clean = {"cleanPodPolicy": policy, "ttlSecondsAfterFinished": 1}
    made = gang("XGBoostJob", "cleaned", first=ends, worker=ends, runPolicy=clean)
    async with deferred(cluster, GANG, made) as task, task.followed() as watch:
        event = await watch.event(60)
        await task.live.until(task.resource, task.name, lambda found: found is None, timeout=60)
        outcome = await task.finish(event)
    assert outcome["state"] == "succeeded"
    assert outcome["replicas"]["master-0"]["exit_code"] == 0


async def test_flyte5417_a_job_without_workers_is_a_gang_of_one(cluster: Cluster) -> None:
    made = job("XGBoostJob", "alone", {"Master": played(replica("XGBoostJob"), exit_codes=0, run_seconds=1)})
    async with deferred(cluster, GANG, made) as task, task.followed() as watch:
        event = await watch.event(60)
    assert event.end == "succeeded"
    assert list(event.outcome["replicas"]) == ["master-0"]
