"""The list-and-watch loop, the client below it and the shared watches above it, against real HTTP."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from airflow_kftrain.clock import SystemClock
from airflow_kftrain.cluster.client import Cluster
from airflow_kftrain.cluster.informer import Informer
from airflow_kftrain.cluster.resources import PODS
from airflow_kftrain.cluster.retry import pause_after, with_retries
from airflow_kftrain.cluster.shared import SharedWatches, Source
from airflow_kftrain.cluster.watch import Changed, Listed, Scope, list_and_watch
from airflow_kftrain.exceptions import ApiUnreachable, Conflict, Gone, TooManyRequests, Unauthorized
from tests.support.scripted_api import ScriptedApi, client_of, failed, listed, scripted_api, thing, watched


class NoWait(SystemClock):
    """Pauses are written down, not slept."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0)


@pytest.fixture
async def api() -> AsyncIterator[ScriptedApi]:
    async with scripted_api() as served:
        yield served


async def take(events: AsyncIterator[Listed | Changed], count: int) -> list[Listed | Changed]:
    return [await asyncio.wait_for(anext(events), 10) for _ in range(count)]


def names(event: Listed | Changed) -> Any:
    if isinstance(event, Listed):
        return [item["metadata"]["name"] for item in event.items]
    return event.type, event.object["metadata"]["name"]


async def test_changes_follow_the_list_from_its_version(api: ScriptedApi) -> None:
    api.lists = [listed(thing("a", 4), version="5")]
    api.watches = [watched(("ADDED", thing("b", 6)), ("DELETED", thing("a", 7)), hang=True)]
    async with client_of(api) as cluster:
        seen = await take(list_and_watch(cluster, PODS, "default", clock=NoWait()), 3)
    assert [names(event) for event in seen] == [["a"], ("ADDED", "b"), ("DELETED", "a")]
    assert api.calls == ["LIST", "WATCH 5"]


async def test_a_list_is_read_page_by_page(api: ScriptedApi) -> None:
    api.lists = [listed(thing("a", 1), version="9", more="next"), listed(thing("b", 2), version="9")]
    async with client_of(api) as cluster:
        found = await cluster.list(PODS, "default")
    assert [item["metadata"]["name"] for item in found.items] == ["a", "b"]
    assert [(item["apiVersion"], item["kind"]) for item in found.items] == [("v1", "Pod")] * 2
    assert api.calls == ["LIST", "LIST next"]


async def test_a_page_whose_snapshot_expired_is_read_in_one_piece(api: ScriptedApi) -> None:
    whole = listed(thing("a", 1), thing("b", 2), version="12")
    api.lists = [listed(thing("a", 1), version="9", more="next"), failed(410, "Expired"), whole]
    async with client_of(api) as cluster:
        found = await cluster.list(PODS, "default")
    assert [item["metadata"]["name"] for item in found.items] == ["a", "b"]


async def test_b16_gone_twice_lists_anew_and_loses_no_final_state(api: ScriptedApi) -> None:
    gone = watched(("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}))
    final = thing("job", 30, status={"conditions": [{"type": "Succeeded", "status": "True"}]})
    api.lists = [
        listed(thing("job", 4), version="5"),
        listed(thing("job", 4), version="20"),
        listed(final, version="31"),
    ]
    api.watches = [gone, gone]
    clock = NoWait()
    async with client_of(api) as cluster:
        seen = await take(list_and_watch(cluster, PODS, "default", clock=clock), 3)
    assert isinstance(seen[2], Listed)
    assert seen[2].items[0]["status"] == final["status"]
    assert api.list_calls == 3
    assert len(clock.pauses) == 2


async def test_b16_a_watch_that_closes_at_once_fifty_times_is_spread_by_growing_pauses(
    api: ScriptedApi,
) -> None:
    api.lists = [listed(version="5")]
    api.watches = [watched() for _ in range(50)] + [watched(("ADDED", thing("a", 6)), hang=True)]
    clock = NoWait()
    async with client_of(api) as cluster:
        seen = await take(list_and_watch(cluster, PODS, "default", clock=clock, rng=random.Random(1)), 2)
    assert names(seen[1]) == ("ADDED", "a")
    assert len(clock.pauses) == 50
    assert sum(clock.pauses) > 50 * 10
    assert max(clock.pauses) <= 30


async def test_a_connection_cut_in_mid_line_goes_on_from_the_last_whole_event(api: ScriptedApi) -> None:
    api.lists = [listed(version="5")]
    api.watches = [
        watched(("ADDED", thing("a", 6)), ("ADDED", thing("b", 7)), cut=True),
        watched(("ADDED", thing("b", 7)), hang=True),
    ]
    async with client_of(api) as cluster:
        seen = await take(list_and_watch(cluster, PODS, "default", clock=NoWait()), 3)
    assert [names(event) for event in seen[1:]] == [("ADDED", "a"), ("ADDED", "b")]
    assert api.calls[-1] == "WATCH 6"


async def test_a_watch_that_stalls_without_closing_is_left(api: ScriptedApi) -> None:
    api.lists = [listed(version="5")]
    api.watches = [watched(hang=True), watched(("ADDED", thing("a", 6)), hang=True)]
    async with client_of(api) as cluster:
        seen = await take(list_and_watch(cluster, PODS, "default", clock=NoWait(), stall_seconds=0.2), 2)
    assert names(seen[1]) == ("ADDED", "a")


async def test_errors_while_listing_are_told_and_outlived(api: ScriptedApi) -> None:
    api.lists = [
        failed(500, "InternalError"),
        failed(429, "TooManyRequests", Retry_After="7"),
        listed(version="5"),
    ]
    clock, told = NoWait(), []
    async with client_of(api) as cluster:
        events = list_and_watch(
            cluster, PODS, clock=clock, on_trouble=lambda error, row: told.append((type(error), row))
        )
        await take(events, 1)
    assert [row for _, row in told] == [1, 2]
    assert clock.pauses[1] >= 7


async def test_an_expired_token_is_read_anew_once(api: ScriptedApi) -> None:
    api.lists = [listed(version="5")]
    async with client_of(api, "old", "secret") as cluster:
        await cluster.list(PODS)
    assert api.calls == ["401", "LIST"]
    async with client_of(api, "old", "older") as cluster:
        with pytest.raises(Unauthorized):
            await cluster.list(PODS)


async def test_no_server_is_one_kind_of_error() -> None:
    async with scripted_api() as api:
        cluster = client_of(api)
    async with cluster:
        with pytest.raises(ApiUnreachable, match="no answer from the API server"):
            await cluster.get(PODS, "a", "default")


async def test_retries_honour_retry_after_and_end_with_the_last_error() -> None:
    clock = NoWait()
    answers: list[Exception] = [
        TooManyRequests(429, "TooManyRequests", "slow", retry_after=2.0),
        ApiUnreachable("x"),
    ]

    async def call() -> str:
        if answers:
            raise answers.pop(0)
        return "done"

    assert await with_retries(call, clock=clock) == "done"
    assert clock.pauses[0] >= 2
    answers[:] = [Conflict(409, "Conflict", "changed")]
    with pytest.raises(Conflict):
        await with_retries(call, clock=clock)
    answers[:] = [Gone(410, "Expired", "old")] * 3
    with pytest.raises(Gone):
        await with_retries(call, clock=clock, attempts=2, also=(Gone,))
    assert len(answers) == 1


def test_pauses_grow_and_stay_within_bounds() -> None:
    rng = random.Random(3)
    pauses = [pause_after(failures, rng=rng) for failures in range(1, 40)]
    assert all(0.1 <= pause <= 30 for pause in pauses)
    assert pauses[0] < 0.3 < 10 < min(pauses[-10:])


async def test_an_informer_tells_of_what_a_relist_reveals(api: ScriptedApi) -> None:
    gone = failed(410, "Expired")
    api.lists = [
        listed(thing("kept", 1), thing("lost", 2), thing("anew", 3, uid="first"), version="5"),
        listed(thing("kept", 1), thing("anew", 8, uid="second"), thing("new", 9), version="10"),
    ]
    api.watches = [gone]
    told: list[tuple[str, str, str | None]] = []
    async with client_of(api) as cluster:
        informer = Informer(
            cluster, PODS, clock=NoWait(), indexers={"first letter": lambda o: [o["metadata"]["name"][0]]}
        )
        settled = asyncio.Event()

        def handler(kind: str, old: Any, new: Any) -> None:
            told.append((kind, (new or old)["metadata"]["name"], (new or old)["metadata"]["uid"]))
            if kind == "ADDED" and new["metadata"]["name"] == "new":
                settled.set()

        informer.add_handler(handler)
        running = asyncio.create_task(informer.run())
        await asyncio.wait_for(settled.wait(), 10)
        running.cancel()
    assert told[3:] == [
        ("DELETED", "lost", "uid-lost"),
        ("DELETED", "anew", "first"),
        ("ADDED", "anew", "second"),
        ("ADDED", "new", "uid-new"),
    ]
    assert [o["metadata"]["uid"] for o in informer.by_index("first letter", "a")] == ["second"]
    assert informer.by_index("first letter", "l") == []


def source(cluster: Cluster) -> Source:
    return Source(lambda: cluster, Scope(PODS, "default"), route=lambda obj: obj["metadata"]["uid"])


async def nothing(_: Cluster) -> list[dict[str, Any]]:
    return []


async def test_many_waiters_share_one_list_and_one_watch(api: ScriptedApi) -> None:
    things = [thing(f"t{n}", n + 1) for n in range(100)]
    api.lists = [listed(*things, version="200")]
    api.watches = [watched(("MODIFIED", thing("t7", 201, state="over")), hang=True)]
    watches = SharedWatches()
    woken: list[str] = []

    async def wait(uid: str) -> None:
        async with watches.follow("pods", source(cluster), uid, nothing) as following:
            while "state" not in following.objects.get(uid, {}):
                await following.changed()
                woken.append(uid)

    async with client_of(api) as cluster:
        waiters = {uid: asyncio.create_task(wait(uid)) for uid in (o["metadata"]["uid"] for o in things)}
        await asyncio.wait_for(waiters["uid-t7"], 10)
        assert api.calls == ["LIST", "WATCH 200"]
        assert woken.count("uid-t7") in (1, 2)
        assert len(woken) <= 101
        for waiter in waiters.values():
            waiter.cancel()
        await asyncio.gather(*waiters.values(), return_exceptions=True)


async def test_a_late_waiter_reads_its_own_object_once(api: ScriptedApi) -> None:
    api.lists = [listed(thing("early", 1), version="5")]
    watches, fetched = SharedWatches(), []

    async def fetch(_: Cluster) -> list[dict[str, Any]]:
        fetched.append(1)
        return [thing("late", 3)]

    async with (
        client_of(api) as cluster,
        watches.follow("pods", source(cluster), "uid-early", nothing) as early,
    ):
        await asyncio.wait_for(early.changed(), 10)
        async with watches.follow("pods", source(cluster), "uid-late", fetch) as late:
            await asyncio.wait_for(late.changed(), 10)
            assert late.known
            assert list(late.objects) == ["uid-late"]
    assert fetched == [1]
    assert api.list_calls == 1


async def test_a_waiter_learns_that_its_object_is_gone(api: ScriptedApi) -> None:
    api.lists = [listed(thing("job", 1), version="5")]
    api.watches = [watched(("DELETED", thing("job", 6)), hang=True)]
    async with (
        client_of(api) as cluster,
        SharedWatches().follow("pods", source(cluster), "uid-job", nothing) as following,
    ):
        while following.objects or not following.known:
            await asyncio.wait_for(following.changed(), 10)


async def test_a_fault_in_the_feed_reaches_every_waiter(api: ScriptedApi) -> None:
    api.lists = [listed({"no": "metadata"}, version="5")]
    async with (
        client_of(api) as cluster,
        SharedWatches().follow("k", source(cluster), "u", nothing) as following,
    ):
        with pytest.raises(KeyError):
            await asyncio.wait_for(following.changed(), 10)


async def test_thousands_that_join_one_after_the_other_are_served_by_a_few_lists(api: ScriptedApi) -> None:
    things = [thing(f"t{n}", n + 1) for n in range(2000)]
    api.lists = [listed(*things, version="5000")]
    watches = SharedWatches()
    known: list[str] = []
    all_known = asyncio.Event()

    async def wait(obj: dict[str, Any]) -> None:
        async def fetch(_: Cluster) -> list[dict[str, Any]]:
            return [obj]

        uid = obj["metadata"]["uid"]
        async with watches.follow("pods", source(cluster), uid, fetch) as following:
            while uid not in following.objects:
                await asyncio.wait_for(following.changed(), 60)
            known.append(uid)
            if len(known) == len(things):
                all_known.set()
            await asyncio.Event().wait()

    async with client_of(api) as cluster:
        waiters = []
        for obj in things:
            waiters.append(asyncio.create_task(wait(obj)))
            await asyncio.sleep(0.0005)
        await asyncio.wait_for(all_known.wait(), 60)
        for waiter in waiters:
            waiter.cancel()
        await asyncio.gather(*waiters, return_exceptions=True)
    assert sorted(known) == sorted(obj["metadata"]["uid"] for obj in things)
    # Each list serves all who joined before it began; how many it takes depends on how long one takes here.
    assert api.list_calls <= 20
