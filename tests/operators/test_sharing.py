"""Many waiting tasks of one process, and clusters that cannot be read."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from airflow_kftrain.cluster.resources import XGBOOSTJOBS
from airflow_kftrain.triggers import follow as follow_module
from airflow_kftrain.triggers import observer, trouble
from tests.operators.airflow_side import TaskInstance, request, watching
from tests.support.faulty_proxy import dropped, status
from tests.support.live import Live

GANG = ("master-0", "worker-0", "worker-1")


async def test_many_triggers_share_one_watch_of_each_kind(player, proxy):
    tasks = [TaskInstance(task_id=f"t{n}") for n in range(20)]
    jobs = [await request(player.cluster, task) for task in tasks]
    async with AsyncExitStack() as stack:
        watches = [
            await stack.enter_async_context(watching(job, task))
            for job, task in zip(jobs, tasks, strict=True)
        ]
        for watch in watches:
            await watch.said("0/3")
        for job in jobs:
            await player.says(job, "Succeeded=True")
        events = await asyncio.gather(*[watch.event() for watch in watches])
    assert [event.end for event in events] == ["succeeded"] * 20
    assert len(proxy.seen("GET", "/xgboostjobs$", watch=True)) == 1
    assert len(proxy.seen("GET", "/pods$", watch=True)) == 1


async def test_what_is_due_for_many_at_one_moment_is_asked_a_few_at_a_time(player, proxy, monkeypatch):
    monkeypatch.setattr(observer, "CALLS_AT_ONCE", 2)
    monkeypatch.setattr(follow_module, "EXPLAIN_AFTER", 0.1)
    tasks = [TaskInstance(task_id=f"t{n}") for n in range(12)]
    jobs = [await request(player.cluster, task) for task in tasks]
    await player.warns(jobs[0], "FailedCreatePod", "exceeded quota")
    async with AsyncExitStack() as stack:
        watches = [
            await stack.enter_async_context(watching(job, task))
            for job, task in zip(jobs, tasks, strict=True)
        ]
        for watch in watches:
            await watch.said("0/3")
        await watches[0].said("exceeded quota")
    assert 0 < proxy.busiest["GET events"] <= 2


async def test_an_api_that_is_away_for_a_while_ends_nothing(follow, player, requested, proxy):
    proxy.fail("GET", "/(xgboostjobs|pods)$", dropped(), times=6)
    async with follow() as watch:
        await player.gang(requested, *GANG)
        await watch.said("gang is whole")
        await player.says(requested, "Succeeded=True")
        assert (await watch.event()).end == "succeeded"


async def test_credentials_that_stay_refused_end_the_wait_with_the_servers_words(
    follow, player, requested, proxy, monkeypatch
):
    monkeypatch.setattr(trouble, "FATAL_AFTER", 1.0)
    monkeypatch.setattr(trouble, "TOLD_AFTER", 0.5)
    monkeypatch.setattr(observer, "TROUBLED_PAUSE", 0.2)
    forbidden = status(403, "Forbidden", 'User "airflow" cannot list resource "xgboostjobs"')
    proxy.fail("GET", "/xgboostjobs$", forbidden, times=99)
    async with follow() as watch:
        event = await watch.event()
    assert event.end == "unreadable"
    assert 'User "airflow" cannot list' in event.message
    assert "cannot be read" in watch.log
    assert len(await player.jobs()) == 1, "the task decides what becomes of the job"


async def test_a_refusal_to_write_annotations_is_told_once_and_does_no_harm(follow, player, requested, proxy):
    proxy.fail("PATCH", "/xgboostjobs/", status(403, "Forbidden", "no patch"), times=99)
    async with follow(limits={"run": 2.0}) as watch:
        await player.gang(requested, *GANG)
        event = await watch.event()
    assert event.end == "limit"
    assert sum("cannot be written" in line for line in watch.lines) == 1


async def test_a_fault_of_ours_is_an_event_too(follow, player, requested, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("a fault")

    monkeypatch.setattr(observer, "advance", broken)
    async with follow() as watch:
        event = await watch.event()
    assert event.end == "error"
    assert "RuntimeError: a fault" in event.message


@pytest.mark.parametrize(
    ("chosen", "shown"), [(["all"], 3), (["worker"], 2), (["worker-1"], 1), (["none"], 0)]
)
async def test_log_lines_of_the_chosen_replicas_are_copied(follow, player, requested, chosen, shown):
    async with follow(logs=chosen) as watch:
        pods = await player.gang(requested, *GANG)
        for pod in pods:
            player.writes(pod, b"hello\n")
            player.ends_log(pod)
            await player.becomes(pod, "Succeeded")
        await player.says(requested, "Succeeded=True")
        await watch.event()
    assert sum(line.endswith("] hello") for line in watch.lines) == shown


async def test_the_last_lines_of_a_failed_replica_are_shown_whoever_is_chosen(follow, player, requested):
    async with follow(logs=["none"]) as watch:
        pods = await player.gang(requested, *GANG)
        for number in range(30):
            player.writes(pods[2], f"line {number}\n".encode())
        player.ends_log(pods[2])
        await player.becomes(pods[2], "Failed", exit_code=3)
        await player.says(requested, "Failed=True")
        await watch.event()
    shown = [line for line in watch.lines if line.startswith("[worker-1]")]
    assert shown == [f"[worker-1] line {number}" for number in range(10, 30)]


async def test_a_report_that_cannot_be_read_is_shown_as_it_was_printed(follow, player, requested):
    async with follow() as watch:
        master, *_ = await player.gang(requested, *GANG)
        player.writes(master, b"KFTRAIN {'progressPercentage': 40}\n")
        await watch.said("[master-0] KFTRAIN {'progressPercentage': 40}")


async def test_progress_is_told_and_kept_on_the_job(follow, player, requested):
    async with follow() as watch:
        master, *_ = await player.gang(requested, *GANG)
        player.writes(master, b'KFTRAIN {"progressPercentage": 40, "metrics": {"loss": 0.5}}\n')
        assert await watch.said("Progress:") == "Progress: 40 %, loss 0.5"
        await Live(player.cluster, "default").until(
            XGBOOSTJOBS,
            requested["metadata"]["name"],
            lambda job: "kftrain/progress" in job["metadata"]["annotations"],
        )
        player.writes(master, b'KFTRAIN {"progressPercentage": 100, "model": "s3://m"}\n')
        player.ends_log(master)
        await player.becomes(master, "Succeeded")
        await player.says(requested, "Succeeded=True")
        event = await watch.event()
    assert event.outcome["model"] == "s3://m"
    assert event.outcome["metrics"] == {"loss": 0.5}
    assert "KFTRAIN" not in watch.log
