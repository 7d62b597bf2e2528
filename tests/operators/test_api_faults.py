"""Every fault that an API or the way to it can show, before a job is there, while it is waited for, and in its logs.

A proxy makes them, so that they are the same before the local API and before a real one.
"""

from __future__ import annotations

import asyncio

import pytest
import yaml

from airflow_kftrain.cluster.watch import list_and_watch
from airflow_kftrain.jobs.identity import token
from tests.operators.airflow_side import watching
from tests.operators.test_operator_faults import finish, options_of, start
from tests.support.faulty_proxy import (
    cut_in_mid_line,
    dropped,
    lost_answer,
    slow,
    status,
    token_expired,
    watch_closed,
    watch_gone,
    watch_silent,
)

pytestmark = pytest.mark.slow

GANG = ("master-0", "worker-0", "worker-1")
JOBS = "/xgboostjobs$"
WATCHED = "/(xgboostjobs|pods)$"

REFUSALS = {
    "429 with Retry-After": status(429, "TooManyRequests", retry_after=1),
    "429 without Retry-After": status(429, "TooManyRequests"),
    "409": status(409, "Conflict", "the quota object was modified"),
    "500": status(500, "InternalError", "etcdserver: request timed out"),
    "503": status(503, "ServiceUnavailable", "the server is currently unable to handle the request"),
    "a dropped connection": dropped(),
    "a lost answer": lost_answer(),
    "a slow answer": slow(2.0),
}
STREAMS = {
    "410": watch_gone(),
    "silence": watch_silent(),
    "an end at once": watch_closed(),
    "a cut in mid-line": cut_in_mid_line(),
    "a dropped connection": dropped(),
    "429": status(429, "TooManyRequests", retry_after=1),
    "500": status(500, "InternalError"),
}


async def submitted(player, task):
    """The operator that has submitted, its job, and the trigger that it leaves, to be run."""
    training, trigger = await start(task)
    (job,) = await player.jobs()
    return training, job, watching(job, task, **options_of(trigger))


@pytest.fixture
def impatient(monkeypatch):
    """A watch that is silent counts as dead after two seconds instead of a minute and a half."""
    monkeypatch.setitem(list_and_watch.__kwdefaults__, "stall_seconds", 2.0)


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("fault", REFUSALS.values(), ids=REFUSALS)
async def test_a_fault_while_the_job_is_made_gives_one_job_and_no_more(player, task, proxy, fault, times):
    proxy.fail("POST", JOBS, fault, times=times)
    await start(task)
    (job,) = await player.jobs()
    assert token(job) == task.id


@pytest.mark.parametrize("fault", REFUSALS.values(), ids=REFUSALS)
async def test_a_fault_while_the_job_is_deleted_leaves_none(player, task, proxy, fault):
    training, job, following = await submitted(player, task)
    async with following as watch:
        await player.gang(job, *GANG, phase="Succeeded")
        await player.says(job, "Succeeded=True")
        event = await watch.event()
    proxy.fail("DELETE", "/xgboostjobs/", fault, times=2)
    outcome = await finish(training, task, event)
    assert outcome["state"] == "succeeded"
    assert await player.jobs() == []


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("fault", STREAMS.values(), ids=STREAMS)
async def test_a_fault_of_the_watches_loses_no_change_and_no_end(follow, player, requested, proxy, fault):
    proxy.fail("GET", WATCHED, fault, times=4, watch=True)
    async with follow() as watch:
        pods = await player.gang(requested, *GANG)
        await watch.said("gang is whole")
        await player.becomes(pods[1], "Failed", exit_code=9)
        await player.says(requested, "Failed=True")
        event = await watch.event()
    assert (event.end, event.outcome["replicas"]["worker-0"]["exit_code"]) == ("failed", 9)


@pytest.mark.parametrize("fault", REFUSALS.values(), ids=REFUSALS)
async def test_a_fault_while_the_state_is_read_is_outlived(follow, player, requested, proxy, fault):
    proxy.fail("GET", WATCHED, fault, times=4, watch=False)
    async with follow() as watch:
        await player.gang(requested, *GANG)
        await watch.said("gang is whole")
        await player.says(requested, "Succeeded=True")
        assert (await watch.event()).end == "succeeded"


LOG_FAULTS = {
    "a cut in mid-line": cut_in_mid_line(),
    "a dropped connection": dropped(),
    "500": status(500, "InternalError"),
    "a slow answer": slow(1.0),
}


@pytest.mark.parametrize("fault", LOG_FAULTS.values(), ids=LOG_FAULTS)
async def test_airflow33498_a_fault_of_the_log_stream_repeats_no_line_and_loses_none(
    follow, player, requested, proxy, fault
):
    proxy.fail("GET", "/log$", fault, times=2)
    async with follow() as watch:
        pods = await player.gang(requested, *GANG)
        for number in range(20):
            player.writes(pods[0], f"step {number}\n".encode())
        await watch.said("step 19")
        player.writes(pods[0], b"the end\n")
        player.ends_log(pods[0])
        await player.becomes(pods[0], "Succeeded")
        await player.says(requested, "Succeeded=True")
        assert (await watch.event()).end == "succeeded"
    shown = [line for line in watch.lines if line.startswith("[master-0]")]
    assert shown == [f"[master-0] step {number}" for number in range(20)] + ["[master-0] the end"]


async def test_a_log_that_cannot_be_had_does_not_change_how_the_task_ends(follow, player, requested, proxy):
    proxy.fail("GET", "/log$", status(500, "InternalError", "the node does not answer"), times=999)
    async with follow() as watch:
        pods = await player.gang(requested, *GANG)
        await watch.said("gang is whole")
        for pod in pods:
            await player.becomes(pod, "Succeeded")
        await player.says(requested, "Succeeded=True")
        assert (await watch.event()).end == "succeeded"


async def test_a_token_that_expires_while_waiting_is_read_anew(
    follow, player, requested, proxy, kubeconfig, tmp_path
):
    proxied = tmp_path / "proxied"
    old = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]["token"]
    async with follow() as watch:
        await watch.said("0/3")
        content = yaml.safe_load(proxied.read_text())
        content["users"][0]["user"]["token"] = "renewed"
        proxied.write_text(yaml.safe_dump(content))
        proxy.fail("*", "", token_expired(old, "renewed"), times=999)
        proxy.hang_up()
        await player.gang(requested, *GANG)
        await watch.said("gang is whole")
        await player.says(requested, "Succeeded=True")
        assert (await watch.event()).end == "succeeded"


async def test_an_api_that_is_slow_in_all_it_does_only_takes_longer(player, task, proxy):
    proxy.fail("*", "", slow(0.5), times=9999)
    training, job, following = await submitted(player, task)
    async with following as watch:
        await player.gang(job, *GANG, phase="Succeeded")
        await player.says(job, "Succeeded=True")
        event = await asyncio.wait_for(watch.event(), 60)
    assert (await finish(training, task, event))["state"] == "succeeded"
