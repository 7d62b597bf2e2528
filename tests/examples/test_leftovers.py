"""Faults B01 and B05 by the operators on a local cluster: jobs that succeed while some of their replicas still run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from airflow_kftrain.cluster.capacity import capacity_of, nodes_of
from airflow_kftrain.cluster.resources import NODES, PODS, PYTORCHJOBS, TFJOBS
from tests.examples.stage import Stage
from tests.support.live import Live, final_state, live

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("examples")]

DAGS = "tests.examples.dags.leftovers"
GPUS = 8


@pytest.fixture
async def kube(stage: Stage) -> AsyncIterator[Live]:
    async with live(stage.kubeconfig, stage.namespace) as found:
        yield found


async def free_gpus(kube: Live) -> int:
    """GPUs that the account of capacity has left, over all nodes."""
    nodes = (await kube.cluster.list(NODES)).items
    pods = (await kube.cluster.list(PODS)).items
    return int(capacity_of(nodes_of(nodes, pods)).free.amount("nvidia.com/gpu"))


async def phases(kube: Live, job: str) -> dict[str, str]:
    pods = (await kube.cluster.list(PODS, kube.namespace)).items
    mine = [p for p in pods if p["metadata"]["name"].startswith(f"{job}-")]
    return {p["metadata"]["name"].removeprefix(f"{job}-"): p["status"]["phase"] for p in mine}


async def only(kube: Live, resource) -> str:
    """The name of the one job that is there."""
    [job] = (await kube.cluster.list(resource, kube.namespace)).items
    return str(job["metadata"]["name"])


async def test_b05_an_evaluator_that_is_waited_for_brings_its_metric(
    stage: Stage, kube: Live, tmp_path: Path
) -> None:
    release = tmp_path / "release"
    async with stage.running(f"{DAGS}:evaluator_waited_for", {"release": str(release)}) as run:
        await run.until_said("The job has succeeded; waiting for the end of evaluator-0")
        name = await only(kube, TFJOBS)
        assert final_state(await kube.cluster.get(TFJOBS, name, kube.namespace)) == "Succeeded"
        assert (await phases(kube, name))["evaluator-0"] == "Running"
        release.touch()
        ended = await run.ended()
    outcome = ended.values["train"]
    assert ended.state == "success"
    assert outcome["metrics"] == {"loss": 0.5, "auc": 0.97}
    assert outcome["replicas"]["evaluator-0"]["exit_code"] == 0
    assert (await kube.cluster.list(TFJOBS, kube.namespace)).items == []


async def test_b05_an_evaluator_that_does_not_end_is_given_up_and_the_success_stays_one(
    stage: Stage, kube: Live, tmp_path: Path
) -> None:
    conf = {"release": str(tmp_path / "never"), "after": "2s"}
    ended = await stage.run(f"{DAGS}:evaluator_waited_for", conf)
    outcome = ended.values["train"]
    assert "evaluator-0 did not end within 2s after the job's success" in ended.log
    assert outcome["metrics"] == {"loss": 0.5}
    assert outcome["replicas"]["evaluator-0"]["phase"] == "Running"
    await kube.until(PODS, f"{outcome['job']['name']}-evaluator-0", lambda pod: pod is None)


async def test_b01_workers_that_are_waited_for_hold_their_gpus_until_they_end(
    stage: Stage, kube: Live, tmp_path: Path
) -> None:
    release = tmp_path / "release"
    assert await free_gpus(kube) == GPUS
    async with stage.running(f"{DAGS}:workers_waited_for", {"release": str(release)}) as run:
        await run.until_said("The job has succeeded; waiting for the end of worker-0, worker-1")
        assert await free_gpus(kube) == GPUS - 2
        release.touch()
        ended = await run.ended()
    assert ended.state == "success"
    assert {r["exit_code"] for r in ended.values["train"]["replicas"].values()} == {0}
    assert await free_gpus(kube) == GPUS


async def test_b01_the_task_follows_the_master_and_workers_left_alone_are_charged_until_they_end(
    stage: Stage, kube: Live, tmp_path: Path
) -> None:
    release = tmp_path / "release"
    ended = await stage.run(f"{DAGS}:workers_left_alone", {"release": str(release)})
    assert ended.values["train"]["state"] == "succeeded"
    name = await only(kube, PYTORCHJOBS)
    assert await phases(kube, name) == {
        "master-0": "Succeeded",
        "worker-0": "Running",
        "worker-1": "Running",
    }
    assert await free_gpus(kube) == GPUS - 2
    release.touch()
    for worker in ("worker-0", "worker-1"):
        await kube.ended(f"{name}-{worker}")
    assert await free_gpus(kube) == GPUS
    await kube.cluster.delete(PYTORCHJOBS, name, kube.namespace)


async def test_b01_workers_still_at_work_go_with_the_job_by_default(
    stage: Stage, kube: Live, tmp_path: Path
) -> None:
    ended = await stage.run(f"{DAGS}:workers_deleted", {"release": str(tmp_path / "never")})
    outcome = ended.values["train"]
    assert outcome["replicas"]["master-0"]["exit_code"] == 0
    for worker in ("worker-0", "worker-1"):
        await kube.until(PODS, f"{outcome['job']['name']}-{worker}", lambda pod: pod is None)
    assert await free_gpus(kube) == GPUS
