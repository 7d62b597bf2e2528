"""The elastic example: workers are added, killed and removed, and training goes on from the checkpoint to its end."""

# ruff: noqa: ASYNC240 (nothing else runs in the loop while files are read)
from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from airflow_kftrain.cluster.resources import PODS, PYTORCHJOBS
from airflow_kftrain.jobs.identity import pod_name
from airflow_kftrain.local.home import Home
from airflow_kftrain.local.kubelet.sweep import marked
from tests.examples.stage import Stage
from tests.support.interpreters import require_torch
from tests.support.live import live

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("examples")]

STARTED = r"rank (\d) of (\d) from epoch (\d+)"


async def test_training_goes_on_when_a_worker_is_added_and_one_is_killed(stage: Stage) -> None:
    require_torch()
    conf = {"epochs": 400, "pause": 0.1}
    async with (
        stage.running("example_dags.pytorch_elastic", conf) as run,
        live(stage.kubeconfig, stage.namespace) as kube,
    ):
        line = await run.until_said(r"\[worker-1\] rank \d of 2 from epoch 0")
        [job] = (await kube.cluster.list(PYTORCHJOBS, kube.namespace)).items
        name = job["metadata"]["name"]
        line = await run.until_said(r"Progress: ", after=line)

        scale = {"spec": {"replicas": 3}}
        await kube.cluster.patch(PYTORCHJOBS, name, scale, kube.namespace, subresource="scale")
        line = await run.until_said(r"\[worker-2\] rank \d of 3 from epoch [1-9]", after=line)

        pod = await kube.cluster.get(PODS, pod_name(name, "Worker", 2), kube.namespace)
        assert pod["status"]["phase"] == "Running"
        first_process(stage.machine, pod["metadata"]["name"]).send_signal(signal.SIGKILL)
        await run.until_said(r"\[worker-0\] rank \d of \d from epoch [1-9]", after=line)
        ended = await run.ended()

    assert ended.state == "success", run.tail
    starts = [(r, int(world), int(epoch)) for r, _, world, epoch in ended.said(STARTED)]
    worker_0 = [(world, epoch) for replica, world, epoch in starts if replica == "worker-0"]
    assert [world for world, _ in worker_0][:2] == [2, 3], worker_0
    assert len(worker_0) >= 3, "the killed worker was to restart the others"
    epochs = [epoch for _, epoch in worker_0]
    assert epochs == sorted(epochs), "each start goes on where the last one was"
    assert 0 < epochs[1] <= epochs[2] < conf["epochs"]

    outcome = ended.values["train"]
    models = ended.said(r"rank \d of (\d): model ([0-9a-f]{12})")
    assert len({digest for _, _, digest in models}) == 1, models
    assert len(models) == int(models[0][1]) >= 2, "those that trained last all hold the model"
    assert outcome["metrics"]["accuracy"] > 0.9
    assert outcome["replicas"]["worker-2"]["restarts"] >= 1
    assert Path(outcome["model"]).is_file()


async def test_training_goes_on_when_a_worker_is_removed(stage: Stage) -> None:
    require_torch()
    async with (
        stage.running("example_dags.pytorch_elastic", {"epochs": 300, "pause": 0.1}) as run,
        live(stage.kubeconfig, stage.namespace) as kube,
    ):
        line = await run.until_said(r"\[worker-1\] rank \d of 2 from epoch 0")
        [job] = (await kube.cluster.list(PYTORCHJOBS, kube.namespace)).items
        line = await run.until_said(r"Progress: ", after=line)
        scale = {"spec": {"replicas": 1}}
        await kube.cluster.patch(
            PYTORCHJOBS, job["metadata"]["name"], scale, kube.namespace, subresource="scale"
        )
        # A worker that ended well on SIGTERM would have ended the job.
        await run.until_said(r"\[worker-0\] rank 0 of 1 from epoch [1-9]", after=line)
        ended = await run.ended()

    assert ended.state == "success", run.tail
    assert [replica for replica, *_ in ended.said(r"rank \d of 1: model ([0-9a-f]{12})")] == ["worker-0"]
    outcome = ended.values["train"]
    assert outcome["metrics"]["workers"] == 1
    assert outcome["metrics"]["accuracy"] > 0.9


def first_process(machine: Path, pod: str) -> psutil.Process:
    """The process that a pod's container began with, which leads its group."""
    [leader] = [
        process
        for process in marked(Home(machine).cluster_id())
        if os.getpgid(process.pid) == process.pid and process.environ().get("HOSTNAME") == pod
    ]
    return leader
