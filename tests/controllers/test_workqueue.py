"""The work queue and the expectations, on a virtual clock."""

from __future__ import annotations

import asyncio

import pytest

from airflow_kftrain.clock import VirtualClock
from airflow_kftrain.controllers.expectations import Expectations
from airflow_kftrain.controllers.workqueue import QueueClosed, WorkQueue


@pytest.fixture
def clock():
    return VirtualClock()


@pytest.fixture
async def queue(clock):
    queue = WorkQueue(clock, first=1.0, longest=8.0)
    task = asyncio.create_task(queue.run())
    yield queue
    queue.shut_down()
    await task


async def test_a_key_is_in_the_queue_once(queue):
    for _ in range(3):
        queue.add("a")
    assert len(queue) == 1


async def test_a_key_in_work_comes_back_once_its_worker_is_done(queue):
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    queue.add("a")
    assert len(queue) == 0
    queue.done("a")
    assert len(queue) == 1


async def test_a_waiting_worker_is_woken(queue):
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    assert await asyncio.wait_for(waiting, 5) == "a"


async def test_delays_end_in_their_order(queue, clock):
    queue.add_after("late", 5)
    queue.add_after("soon", 2)
    await clock.advance(1)
    assert len(queue) == 0
    await clock.advance(1)
    assert await queue.get() == "soon"
    await clock.advance(3)
    assert await queue.get() == "late"


async def test_of_two_delays_the_shorter_counts(queue, clock):
    queue.add_after("a", 5)
    queue.add_after("a", 1)
    queue.add_after("a", 9)
    await clock.advance(1)
    assert await queue.get() == "a"
    queue.done("a")
    await clock.advance(20)
    assert len(queue) == 0


async def test_pauses_double_up_to_a_limit_and_start_anew_after_success(queue, clock):
    for pause in (1, 2, 4, 8, 8):
        queue.add_rate_limited("a")
        await clock.advance(pause - 0.5)
        assert len(queue) == 0
        await clock.advance(0.5)
        assert await queue.get() == "a"
        queue.done("a")
    assert queue.num_requeues("a") == 5
    queue.forget("a")
    queue.add_rate_limited("a")
    await clock.advance(1)
    assert len(queue) == 1


async def test_a_wish_of_the_server_is_honoured(queue, clock):
    queue.add_rate_limited("a", at_least=5)
    await clock.advance(4)
    assert len(queue) == 0
    await clock.advance(1)
    assert len(queue) == 1


async def test_one_keys_pauses_are_not_anothers(queue, clock):
    for _ in range(4):
        queue.add_rate_limited("a")
    queue.add_rate_limited("b")
    await clock.advance(1)
    assert {await queue.get(), await queue.get()} == {"a", "b"}


async def test_a_shut_queue_sends_workers_home(queue):
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.shut_down()
    with pytest.raises(QueueClosed):
        await asyncio.wait_for(waiting, 5)
    queue.add("a")
    assert len(queue) == 0


async def test_what_was_written_is_waited_for(clock):
    expected = Expectations(clock)
    expected.expect("job", ("pods", "created", "w-0"))
    expected.expect("job", ("pods", "created", "w-1"))
    assert expected.wait("job") == 30
    assert expected.wait("other") is None
    expected.seen("job", ("pods", "created", "w-0"))
    assert expected.wait("job") == 30
    expected.seen("job", ("pods", "created", "w-1"))
    assert expected.wait("job") is None


async def test_what_never_comes_back_is_given_up(clock):
    expected = Expectations(clock)
    expected.expect("job", ("pods", "created", "w-0"))
    await clock.advance(31)
    assert expected.wait("job") is None


@pytest.mark.parametrize(
    ("seen", "waits"),
    [
        pytest.param("9", True, id="an older version"),
        pytest.param("10", False, id="the version written"),
        pytest.param("11", False, id="a newer version"),
    ],
)
async def test_the_job_is_waited_for_at_its_version(clock, seen, waits):
    expected = Expectations(clock)
    expected.expect_version("job", "10")
    expected.seen_version("job", seen)
    assert (expected.wait("job") is not None) == waits
