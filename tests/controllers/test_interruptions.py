"""A controller that is killed between any two writes, or whose writes fail, comes to the same end."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import itertools

import pytest

from airflow_kftrain.cluster.informer import Informer
from airflow_kftrain.cluster.resources import PODGROUPS, PODS
from tests.controllers.faulty import Flaky, Killed, Mortal
from tests.controllers.stage import NAMESPACE, PATIENCE, Stage, shown_status
from tests.controllers.test_lifecycle import manifest

KIND = "XGBoostJob"


class Play:
    """A job's life in acts, each followed by the controller's work; survives the controller.

    ``made`` counts the pods that were ever made, by name, as a witness of its own sees them.
    """

    def __init__(self, cluster, acting):
        self._cluster = cluster
        self._acting = acting
        self._stack = contextlib.AsyncExitStack()
        self.stage: Stage | None = None
        self.killed = 0
        self.made: dict[str, int] = {}

    async def __aenter__(self):
        witness = Informer(self._cluster, PODS, NAMESPACE)
        witness.add_handler(self._note)
        task = asyncio.create_task(witness.run())
        self._stack.callback(task.cancel)
        await asyncio.wait_for(witness.synced(), PATIENCE)
        await self._open(self._acting)
        return self

    async def __aexit__(self, *error):
        await self._controller.aclose()
        await self._stack.aclose()

    async def _open(self, acting):
        self._controller = contextlib.AsyncExitStack()
        self.stage = await self._controller.enter_async_context(
            Stage(self._cluster, KIND, acting=acting).open()
        )

    def _note(self, change, old, new):
        if change == "ADDED":
            name = new["metadata"]["name"]
            self.made[name] = self.made.get(name, 0) + 1

    async def work(self):
        """The controller works until it wants no more; if it is killed, another takes over."""
        try:
            await self.stage.settle(turns=200)
        except Killed:
            self.killed += 1
            await self._controller.aclose()
            await self._open(self._cluster)
            await self.stage.settle()

    async def status(self):
        return shown_status(await self.stage.job("job"))


async def run_waiting(play):
    for pod in (await play.stage.pods()).values():
        if pod["status"].get("phase", "Pending") == "Pending":
            await play.stage.set_pod(pod, "Running", {"running": {}})
    await play.work()


async def end(play, name, code):
    pod = (await play.stage.pods())[name]
    state = {"terminated": {"exitCode": code}}
    await play.stage.set_pod(pod, "Succeeded" if code == 0 else "Failed", state)
    await play.work()


async def life(play):
    """Start, a retryable failure, suspension, resumption, success, clean-up; what was seen on the way."""
    seen = []

    async def note():
        names = sorted(await play.stage.pods())
        groups = (await play.stage.cluster.list(PODGROUPS, NAMESPACE)).items
        seen.append((await play.status(), names, await play.stage.services(), len(groups)))

    await play.stage.submit(manifest("xgb-1-2", policy="ExitCode", backoffLimit=5, cleanPodPolicy="All"))
    await play.work()
    await run_waiting(play)
    await note()
    await end(play, "job-worker-0", 137)
    await run_waiting(play)
    await note()
    for suspend in (True, False):
        await play.stage.change("job", {"runPolicy": {"suspend": suspend}})
        await play.work()
        await run_waiting(play)
        await note()
    await end(play, "job-master-0", 0)
    await note()
    annotations = (await play.stage.job("job"))["metadata"]["annotations"]
    return seen, dict(play.made), [len(value.split(",")) for value in annotations.values()]


async def whole_life(api_factory, acting):
    async with api_factory() as cluster, Play(cluster, client := acting(cluster)) as play:
        return await life(play), client.writes, play.killed


@pytest.mark.slow
async def test_killed_after_any_write_another_controller_comes_to_the_same_end(api_factory):
    undisturbed, writes, _ = await whole_life(api_factory, lambda cluster: Mortal(cluster, None))
    statuses = [status["conditions"][-1][:2] for status, *_ in undisturbed[0]]
    assert statuses == [
        ["Running", "True"],
        ["Running", "True"],
        ["Suspended", "True"],
        ["Running", "True"],
        ["Succeeded", "True"],
    ]
    assert undisturbed[1] == {"job-master-0": 2, "job-worker-0": 3, "job-worker-1": 2}
    for last in itertools.count(1):
        outcome, _, killed = await whole_life(api_factory, lambda cluster, n=last: Mortal(cluster, n))
        assert outcome == undisturbed, f"killed after write {last} of about {writes}"
        if not killed:  # it came to the end in fewer writes
            break
    assert last > 30


async def test_writes_that_fail_or_lose_their_answer_come_to_the_same_end(api_factory):
    undisturbed, _, _ = await whole_life(api_factory, lambda cluster: Mortal(cluster, None))
    outcome, writes, _ = await whole_life(api_factory, Flaky)
    assert writes > 60
    assert outcome == undisturbed


async def test_a_job_that_failed_by_a_limit_is_cleaned_up_by_the_next_controller(api_factory):
    """The failure is written first: were the pods deleted first, a killed controller would leave no trace of it."""
    job = manifest("xgb-1-2", policy="ExitCode", backoffLimit=0, cleanPodPolicy="None")

    async def failing(acting):
        async with api_factory() as cluster, Play(cluster, client := acting(cluster)) as play:
            await play.stage.submit(copy.deepcopy(job))
            await play.work()
            await run_waiting(play)
            first = client.writes
            await end(play, "job-worker-0", 137)
            outcome = await play.status(), await play.stage.pods(), await play.stage.services(), play.made
            return outcome, first, client.writes

    undisturbed, first, writes = await failing(lambda cluster: Mortal(cluster, None))
    assert undisturbed[0]["conditions"][-1][:2] == ["Failed", "True"]
    assert undisturbed[1:] == ({}, [], {"job-master-0": 1, "job-worker-0": 1, "job-worker-1": 1})
    for last in range(first + 1, writes + 1):
        outcome, *_ = await failing(lambda cluster, n=last: Mortal(cluster, n))
        assert outcome == undisturbed, f"killed after write {last}"
