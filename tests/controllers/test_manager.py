"""The manager with all its parts at work, by itself, as two replicas, and as a command."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
import signal
import sys
import uuid

import pytest

from airflow_kftrain.clock import SystemClock
from airflow_kftrain.cluster.informer import Informer
from airflow_kftrain.cluster.resources import (
    LEASES,
    NAMESPACES,
    PODS,
    PYTORCHJOBS,
    TFJOBS,
    XGBOOSTJOBS,
    Resource,
)
from airflow_kftrain.controllers import ControllerManager, LeaseSettings
from airflow_kftrain.controllers.conditions import is_finished
from airflow_kftrain.controllers.xgboostjob import XGBoostJobReconciler
from airflow_kftrain.exceptions import ApiUnreachable, InvalidInput, NotFound
from tests.controllers.recorded import OBJECTS
from tests.controllers.stage import NAMESPACE, PATIENCE, pod_status

RESOURCES = {"XGBoostJob": XGBOOSTJOBS, "PyTorchJob": PYTORCHJOBS, "TFJob": TFJOBS}
LEADERS = ("-master-0", "-chief-0")


def named(recording, name):
    job = copy.deepcopy(OBJECTS[recording]["manifest"])
    job["metadata"]["name"] = name
    return RESOURCES[job["kind"]], job


class Audience:
    """Sees jobs and pods, runs the pods, and ends the leaders of those whose whole gang runs."""

    def __init__(self, cluster, namespace=NAMESPACE):
        self.cluster = cluster
        self.jobs = {kind: Informer(cluster, resource, namespace) for kind, resource in RESOURCES.items()}
        self.pods = Informer(cluster, PODS, namespace)
        self.made: list[str] = []
        self.states: dict[str, list[str]] = {}
        self._changed = asyncio.Event()
        for kind in self.jobs:
            self.jobs[kind].add_handler(self._on_job)
        self.pods.add_handler(self._on_pod)

    def _on_job(self, change, old, new):
        self._changed.set()
        if new is not None:
            conditions = (new.get("status") or {}).get("conditions") or [{"type": "-"}]
            states = self.states.setdefault(new["metadata"]["name"], [])
            if not states or states[-1] != conditions[-1]["type"]:
                states.append(conditions[-1]["type"])

    def _on_pod(self, change, old, new):
        self._changed.set()
        if change == "ADDED":
            self.made.append(new["metadata"]["name"])

    @contextlib.asynccontextmanager
    async def watching(self):
        informers = [*self.jobs.values(), self.pods]
        tasks = [asyncio.create_task(i.run()) for i in informers]
        try:
            await asyncio.wait_for(asyncio.gather(*(i.synced() for i in informers)), PATIENCE)
            yield self
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def until(self, condition, *, play=False):
        async with asyncio.timeout(PATIENCE):
            while not condition():
                self._changed.clear()
                if play:
                    await self._play()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), 1)

    async def _play(self):
        for pod in list(self.pods.store.values()):
            phase, name = pod["status"].get("phase", "Pending"), pod["metadata"]["name"]
            job = self._job_of(pod)
            if phase == "Pending":
                await self._set(pod, "Running", {"running": {}})
            # The watch of pods may be ahead of the watch of jobs.
            elif (
                phase == "Running" and name.endswith(LEADERS) and self.states.get(job, [""])[-1] == "Running"
            ):
                await self._set(pod, "Succeeded", {"terminated": {"exitCode": 0}})

    def _job_of(self, pod):
        return pod["metadata"]["labels"].get("training.kubeflow.org/job-name")

    async def _set(self, pod, phase, state):
        patch = {"status": pod_status(pod, phase, state)}
        with contextlib.suppress(NotFound):
            await self.cluster.patch(PODS, pod["metadata"]["name"], patch, NAMESPACE, subresource="status")

    def finished(self, name):
        jobs = [o for i in self.jobs.values() for (_, n), o in i.store.items() if n == name]
        return bool(jobs) and is_finished((jobs[0].get("status") or {}).get("conditions") or [])


@contextlib.asynccontextmanager
async def managed(cluster, **options):
    manager, stop = ControllerManager(cluster, clock=SystemClock(), **options), asyncio.Event()
    task = asyncio.create_task(manager.run(stop))
    try:
        yield manager, task
    finally:
        stop.set()
        await asyncio.wait_for(task, PATIENCE)


async def test_jobs_of_all_kinds_run_beside_each_other(cluster):
    names = [f"{recording}-{n}" for recording in ("xgb-1-2", "pt-1-3", "tf-chief-ps-eval") for n in range(4)]
    async with Audience(cluster).watching() as audience, managed(cluster):
        for name in names:
            resource, job = named(name.rsplit("-", 1)[0], name)
            await cluster.create(resource, job, NAMESPACE)
        await audience.until(lambda: all(audience.finished(name) for name in names), play=True)
    assert {audience.states[name][-1] for name in names} == {"Succeeded"}
    assert len(audience.made) == len(set(audience.made)) == 4 * (3 + 4 + 5)


async def test_jobs_that_were_there_before_are_taken_up(cluster):
    resource, job = named("xgb-1-2", "early")
    await cluster.create(resource, job, NAMESPACE)
    async with Audience(cluster).watching() as audience, managed(cluster):
        await audience.until(lambda: audience.finished("early"), play=True)


async def test_only_the_kinds_and_namespaces_asked_for(cluster):
    team = f"team-{uuid.uuid4().hex[:8]}"
    await cluster.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team}})
    for name, recording, where in (
        ("mine", "xgb-1-2", team),
        ("kind", "pt-1-3", team),
        ("place", "xgb-1-2", NAMESPACE),
    ):
        resource, job = named(recording, name)
        await cluster.create(resource, job, where)
    options = {"kinds": ["XGBoostJob"], "namespaces": [team], "gang_scheduling": False}
    async with Audience(cluster, None).watching() as audience, managed(cluster, **options):
        await audience.until(lambda: (team, "mine-worker-1") in audience.pods.store)
    made = {name.split("-")[0] for where, name in audience.pods.store if where in (team, NAMESPACE)}
    assert made == {"mine"}
    pod = audience.pods.store[team, "mine-master-0"]
    assert pod["spec"]["schedulerName"] == "default-scheduler"


async def test_one_job_that_breaks_our_code_does_not_stop_the_others(cluster, monkeypatch, caplog):
    judge = XGBoostJobReconciler.judge

    def broken(self, job, draft):
        if job.name == "bad":
            raise ZeroDivisionError("a fault of ours")
        judge(self, job, draft)

    monkeypatch.setattr(XGBoostJobReconciler, "judge", broken)
    with caplog.at_level(logging.ERROR):
        async with Audience(cluster).watching() as audience, managed(cluster, workers=1):
            for name in ("bad", "good"):
                await cluster.create(*named("xgb-1-2", name), NAMESPACE)
            await audience.until(lambda: audience.finished("good"), play=True)
    assert "XGBoostJob default/bad cannot be reconciled" in caplog.text


async def test_two_replicas_make_no_pod_twice_and_the_second_goes_on(cluster):
    def lease(name):
        return LeaseSettings(name, namespace=NAMESPACE, duration=1.0, renew_deadline=0.7, retry=0.1)

    async with Audience(cluster).watching() as audience, contextlib.AsyncExitStack() as second:
        async with managed(cluster, lease=lease("a")) as (first, _):
            await asyncio.wait_for(first.ready(), PATIENCE)
            standby, _ = await second.enter_async_context(managed(cluster, lease=lease("b")))
            await cluster.create(*named("xgb-1-2", "one"), NAMESPACE)
            await audience.until(lambda: audience.states.get("one", ["-"])[-1] == "Created")
            assert not standby._ready.is_set()
        await asyncio.wait_for(standby.ready(), PATIENCE)
        await cluster.create(*named("xgb-1-2", "two"), NAMESPACE)
        await audience.until(lambda: audience.finished("one") and audience.finished("two"), play=True)
    assert len(audience.made) == len(set(audience.made)) == 6
    released = await cluster.get(LEASES, "airflow-kftrain-controllers", NAMESPACE)
    assert released["spec"].get("holderIdentity", "") == ""


async def test_a_kind_without_controller_is_named():
    with pytest.raises(InvalidInput, match=r"MPIJob.*TFJob, PyTorchJob, XGBoostJob"):
        ControllerManager(None, kinds=["MPIJob"])


async def test_a_cluster_without_the_kind_is_told_what_to_install(cluster, monkeypatch):
    elsewhere = Resource("kubeflow.org", "v9", "xgboostjobs", "XGBoostJob")
    monkeypatch.setattr(XGBoostJobReconciler, "resource", elsewhere)
    manager = ControllerManager(cluster, kinds=["XGBoostJob"])
    with pytest.raises(NotFound, match=r"does not know XGBoostJob \(kubeflow.org/v9\): install its CRD"):
        await asyncio.wait_for(manager.run(asyncio.Event()), PATIENCE)


async def test_the_command_runs_until_it_is_told_to_stop(cluster, kubeconfig):
    async with Audience(cluster).watching() as audience:
        command = ("controllers", "run", "--kubeconfig", str(kubeconfig), "--namespace", NAMESPACE)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            "from airflow_kftrain.cli.app import main; main()",
            *command,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            await cluster.create(*named("xgb-1-2", "one"), NAMESPACE)
            await audience.until(lambda: audience.finished("one"), play=True)
            process.send_signal(signal.SIGTERM)
            _, text = await asyncio.wait_for(process.communicate(), PATIENCE)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert process.returncode == 0, text.decode()
    assert "leading as" in text.decode()
    lease = await cluster.get(LEASES, "airflow-kftrain-controllers", NAMESPACE)
    assert lease["spec"].get("holderIdentity", "") == ""


async def test_an_api_that_goes_away_and_comes_back_is_taken_up_again(api, cluster):
    if api is None:
        pytest.skip("KFTRAIN_TEST_KUBECONFIG names a cluster that tests do not stop")
    async with Audience(cluster).watching() as audience, managed(cluster) as (manager, task):
        await asyncio.wait_for(manager.ready(), PATIENCE)
        await api.stop()
        with pytest.raises(ApiUnreachable):
            await cluster.list(PODS, NAMESPACE)
        await api.start()
        await cluster.create(*named("xgb-1-2", "after"), NAMESPACE)
        await audience.until(lambda: audience.finished("after"), play=True)
        assert not task.done()
