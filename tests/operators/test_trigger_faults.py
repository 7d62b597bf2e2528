"""Faults of neighbouring products, played to a trigger on the local API."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from airflow_kftrain.cluster.resources import PODS, XGBOOSTJOBS
from airflow_kftrain.exceptions import NotFound
from tests.support.faulty_proxy import watch_closed, watch_gone

GANG = ("master-0", "worker-0", "worker-1")


@pytest.mark.parametrize(
    "order", list(itertools.permutations(["Created=True", "Failed=True", "Running=True"]))
)
async def test_b02_a_final_condition_wins_wherever_it_stands(follow, player, requested, order):
    async with follow() as watch:
        await player.gang(requested, *GANG)
        await watch.said("gang is whole")
        await player.says(requested, *order)
        event = await watch.event()
    assert event.end == "failed"


async def test_b02_failed_wins_over_succeeded(follow, player, requested):
    async with follow() as watch:
        await player.says(requested, "Succeeded=True", "Failed=True")
        assert (await watch.event()).end == "failed"


@pytest.mark.parametrize("status", [{}, None, "absent"], ids=["an empty status", "null", "no status"])
async def test_b03_an_empty_status_is_not_running(follow, player, requested, status):
    if status != "absent":
        await player.cluster.patch(
            XGBOOSTJOBS, requested["metadata"]["name"], {"status": status}, "default", subresource="status"
        )
    async with follow(limits={"start": 3.0}) as watch:
        await player.gang(requested, *GANG[1:], phase="Pending")
        line = await watch.said("0/3")
        assert "running" not in line.lower()
        event = await watch.event()
    assert event.end == "limit"
    assert "start limit" in event.message


async def test_b04_a_false_condition_says_nothing(follow, player, requested):
    async with follow() as watch:
        await player.says(requested, "Created=True", "Suspended=False", "Running=False", "Succeeded=Unknown")
        await watch.said("0/3")
        await player.gang(requested, *GANG)
        await player.says(requested, "Created=True", "Suspended=False", "Running=True", "Failed=False")
        await watch.said("gang is whole")
        assert not watch.running.done()
        await player.says(requested, "Suspended=False", "Running=False", "Succeeded=True")
        assert (await watch.event()).end == "succeeded"


async def test_b11_the_event_holds_the_end_though_the_object_is_gone_at_once(follow, player, requested):
    async with follow() as watch:
        pods = await player.gang(requested, *GANG)
        await watch.said("gang is whole")
        await player.becomes(pods[2], "Failed", exit_code=137, reason="OOMKilled")
        await player.says(requested, "Failed=True")
        await player.cluster.delete(XGBOOSTJOBS, requested["metadata"]["name"], "default")
        event = await watch.event()
    assert event.end == "failed"
    assert event.outcome["cause"] == "OOMKilled"
    assert "worker-1" in event.message
    assert event.outcome["replicas"]["worker-1"]["exit_code"] == 137


async def test_b12_a_job_that_somebody_else_deletes_has_not_succeeded(follow, player, requested):
    async with follow() as watch:
        await player.gang(requested, *GANG)
        await watch.said("gang is whole")
        await player.cluster.delete(XGBOOSTJOBS, requested["metadata"]["name"], "default")
        event = await watch.event()
    assert (event.end, event.outcome["cause"]) == ("gone", "DeletedBySomebodyElse")
    assert "deleted by somebody else" in event.message


async def test_b13_the_run_limit_ends_a_job_while_its_task_is_deferred(follow, player, requested):
    async with follow(limits={"run": 2.0}) as watch:
        await player.gang(requested, *GANG)
        event = await watch.event()
    assert (event.end, event.outcome["cause"]) == ("limit", "RunLimit")
    assert "run limit of 2s" in event.message
    with pytest.raises(NotFound):
        await player.job(requested["metadata"]["name"])


async def test_b13_a_run_limit_goes_on_in_another_triggerer(follow, player, requested):
    async with follow(limits={"run": 4.0}) as first:
        await player.gang(requested, *GANG)
        await first.said("gang is whole")
        times = await _annotation(player, requested, "kftrain/times")
    pods = (await player.cluster.list(PODS, "default")).items
    # A replaced pod started later; the limit does not count anew from it.
    await player.becomes(pods[0], "Running")
    began = asyncio.get_running_loop().time()
    async with follow(limits={"run": 4.0}) as second:
        event = await second.event()
    assert event.end == "limit"
    assert asyncio.get_running_loop().time() - began < 4.0
    assert event.outcome["times"]["gang_up"][:19] == times["gangUpAt"][:19]


async def test_b13_a_kept_job_that_breaks_a_limit_is_suspended(follow, player, requested):
    async with follow(limits={"run": 1.0}, keep=True) as watch:
        await player.gang(requested, *GANG)
        await watch.event()
    job = await player.job(requested["metadata"]["name"])
    assert job["spec"]["runPolicy"]["suspend"] is True


async def test_b14_no_pods_yet_is_no_failure_and_the_count_may_fall(follow, player, requested):
    async with follow() as watch:
        await watch.said("0/3")
        master = await player.pod(requested, "master-0", phase="Running")
        await watch.said("1/3")
        worker = await player.pod(requested, "worker-0", phase="Running")
        await player.pod(requested, "worker-1", phase="Running")
        await watch.said("gang is whole")
        await player.cluster.delete(PODS, worker["metadata"]["name"], "default", grace_period_seconds=0)
        await watch.said("2/3")
        await player.pod(requested, "worker-0", phase="Running")
        await player.becomes(master, "Succeeded")
        await player.says(requested, "Succeeded=True")
        event = await watch.event()
    assert event.end == "succeeded"
    assert event.outcome["replicas"]["worker-0"]["starts"] == 2


async def test_b14_on_giving_up_the_job_is_removed(follow, player, requested):
    async with follow(limits={"start": 1.5}) as watch:
        event = await watch.event()
    assert event.outcome["cause"] == "StartLimit"
    with pytest.raises(NotFound):
        await player.job(requested["metadata"]["name"])


async def test_b08_a_wrong_image_fails_at_the_start_limit_and_names_itself(follow, player, requested):
    async with follow(limits={"start": 3.0}) as watch:
        pod = await player.pod(requested, "worker-0", phase="Pending", waiting={"reason": "ErrImagePull"})
        await player.gang(requested, "master-0", "worker-1")
        await watch.said("ErrImagePull")
        await player.becomes(pod, "Pending", waiting={"reason": "ImagePullBackOff", "message": "Back-off"})
        event = await watch.event()
    assert event.end == "limit"
    for part in ("worker-0", "acme/train:1", "ImagePullBackOff"):
        assert part in event.message


async def test_b09_a_quota_refusal_is_told_once_and_stands_in_the_failure(follow, player, requested):
    refusal = 'pods "t-worker-0" is forbidden: exceeded quota: gpu, requested: requests.nvidia.com/gpu=4'
    for count in (1, 7, 40):
        await player.warns(requested, "FailedCreatePod", refusal, count=count)
    async with follow(limits={"start": 8.0}) as watch:
        await watch.said("exceeded quota")
        event = await watch.event()
    assert "exceeded quota" in event.message
    assert sum(line.startswith("Warning of the cluster") for line in watch.lines) == 1


async def test_b16_a_watch_that_is_gone_lists_again_and_loses_no_end(follow, player, requested, proxy):
    path = "/xgboostjobs$"
    proxy.fail("GET", path, watch_gone(), times=2, watch=True)
    async with follow() as watch:
        await player.gang(requested, *GANG, phase="Succeeded")
        await player.says(requested, "Succeeded=True")
        event = await watch.event()
    assert event.end == "succeeded"
    assert len(proxy.seen("GET", path, watch=False)) <= 3


async def test_b16_a_watch_that_closes_at_once_is_opened_with_pauses(follow, player, requested, proxy):
    proxy.fail("GET", "/xgboostjobs$", watch_closed(), times=50, watch=True)
    async with follow(limits={"start": 6.0}) as watch:
        event = await watch.event()
    assert event.end == "limit"
    assert len(proxy.seen("GET", "/xgboostjobs$", watch=True)) < 15


async def test_b17_bytes_that_are_no_text_do_no_harm(follow, player, requested):
    async with follow() as watch:
        pods = await player.gang(requested, *GANG)
        player.writes(pods[0], b"loss 0.1 \xc6\xff\n10%\r20%\r30%\n" + b"x" * 3_000_000 + b"\nlast line")
        player.ends_log(pods[0])
        await player.becomes(pods[0], "Succeeded")
        await player.says(requested, "Succeeded=True")
        event = await watch.event()
    assert event.end == "succeeded"
    assert "[master-0] loss 0.1" in watch.log
    assert "[master-0] last line" in watch.log


async def test_b25_a_success_without_a_gang_after_a_resume_is_none(follow, player, requested):
    async with follow() as watch:
        await player.gang(requested, "master-0", phase="Succeeded")
        await player.gang(requested, *GANG[1:], phase="Pending")
        await player.says(requested, "Suspended=False", "Succeeded=True")
        event = await watch.event()
    assert (event.end, event.outcome["cause"]) == ("failed", "GangNeverWhole")


async def _annotation(player, job, name):
    import json

    for _ in range(50):
        text = (await player.job(job["metadata"]["name"]))["metadata"]["annotations"].get(name)
        if text:
            return json.loads(text)
        await asyncio.sleep(0.05)
    raise AssertionError(f"{name} was not written")
