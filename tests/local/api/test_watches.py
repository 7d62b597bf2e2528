"""Lists and watches of one moment: pages, resumption, expiry, bookmarks, churn."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from airflow_kftrain.clock import VirtualClock
from airflow_kftrain.local.apiserver import ApiServer
from tests.local.api.objects import config_map
from tests.support.http_api import HttpApi

Json = dict[str, Any]
MAPS = "/api/v1/namespaces/default/configmaps"
SECONDS = 20


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[HttpApi]:
    server = ApiServer(tmp_path / "api")
    await server.start()
    async with HttpApi(server) as api:
        yield api
    await server.stop()


async def test_pages_show_the_moment_of_the_first(api: HttpApi):
    for i in range(9):
        await api.post(MAPS, config_map(f"c{i}"))
    first = await api.get(MAPS, limit="4")
    await api.post(MAPS, config_map("c00-late"))
    await api.delete(f"{MAPS}/c8")

    second = await api.get(MAPS, limit="4", **{"continue": first["metadata"]["continue"]})
    third = await api.get(MAPS, limit="4", **{"continue": second["metadata"]["continue"]})

    shown = [item["metadata"]["name"] for page in (first, second, third) for item in page["items"]]
    assert shown == [f"c{i}" for i in range(9)]
    assert {page["metadata"]["resourceVersion"] for page in (first, second, third)} == {
        first["metadata"]["resourceVersion"]
    }
    assert [page["metadata"].get("remainingItemCount") for page in (first, second, third)] == [5, 1, None]
    assert "continue" not in third["metadata"]
    # A watch from there tells just what the pages do not show.
    events = await api.watch_lines(MAPS, 2, resourceVersion=first["metadata"]["resourceVersion"])
    assert [(e["type"], e["object"]["metadata"]["name"]) for e in events] == [
        ("ADDED", "c00-late"),
        ("DELETED", "c8"),
    ]


async def test_a_page_of_a_list_that_is_too_old_is_gone(tmp_path: Path):
    clock = VirtualClock()
    server = ApiServer(tmp_path / "api", clock=clock)
    await server.start()
    async with HttpApi(server) as api:
        for i in range(3):
            await api.post(MAPS, config_map(f"c{i}"))
        token = (await api.get(MAPS, limit="1"))["metadata"]["continue"]
        await clock.advance(301)
        gone = await api.get(MAPS, 410, limit="1", **{"continue": token})
        assert gone["reason"] == "Expired"
        assert (await api.get(MAPS, 400, **{"continue": "nonsense"}))["reason"] == "BadRequest"
    await server.stop()


async def test_a_watch_goes_on_where_it_broke_off(api: HttpApi):
    start = (await api.get(MAPS))["metadata"]["resourceVersion"]
    for i in range(5):
        await api.post(MAPS, config_map(f"c{i}"))
    first = await api.watch_lines(MAPS, 2, resourceVersion=start)
    rest = await api.watch_lines(MAPS, 3, resourceVersion=first[-1]["object"]["metadata"]["resourceVersion"])
    assert [e["object"]["metadata"]["name"] for e in (*first, *rest)] == [f"c{i}" for i in range(5)]


@pytest.mark.parametrize("version", ["", "0"], ids=["without a version", "from version 0"])
async def test_a_watch_begins_with_what_there_is(api: HttpApi, version: str):
    await api.post(MAPS, config_map("a"))
    events = await api.watch_lines(MAPS, 1, resourceVersion=version)
    assert [(e["type"], e["object"]["metadata"]["name"]) for e in events] == [("ADDED", "a")]


async def test_a_watch_from_too_long_ago_is_told_so(tmp_path: Path):
    server = ApiServer(tmp_path / "api", history=10)
    await server.start()
    async with HttpApi(server) as api:
        start = (await api.get(MAPS))["metadata"]["resourceVersion"]
        made = await api.post(MAPS, config_map("x"))
        for i in range(30):
            made["data"] = {"i": str(i)}
            made = await api.put(f"{MAPS}/x", made)
        (event,) = await api.watch_lines(MAPS, 1, resourceVersion=start)
        assert (event["type"], event["object"]["code"], event["object"]["reason"]) == (
            "ERROR",
            410,
            "Expired",
        )
        (event,) = await api.watch_lines(MAPS, 1, resourceVersion="999999")
        assert event["object"]["code"] == 410, "a version of a state that is no more"
        assert (await api.get(MAPS, 400, watch="1", resourceVersion="abc"))["reason"] == "BadRequest"
    await server.stop()


async def test_a_watch_ends_when_its_time_is_over_with_a_bookmark(api: HttpApi):
    await api.post(MAPS, config_map("a"))
    await api.post("/api/v1/namespaces/default/secrets", {"metadata": {"name": "elsewhere"}})
    start = (await api.get(MAPS))["metadata"]["resourceVersion"]
    (event,) = await api.watch_lines(
        MAPS, 5, resourceVersion=start, timeoutSeconds="1", allowWatchBookmarks="true"
    )
    assert event["type"] == "BOOKMARK"
    assert event["object"]["metadata"]["resourceVersion"] == start


async def test_a_streamed_list_ends_with_a_marked_bookmark(api: HttpApi):
    await api.post(MAPS, config_map("a"))
    options = {
        "sendInitialEvents": "true",
        "allowWatchBookmarks": "true",
        "resourceVersionMatch": "NotOlderThan",
    }
    events = await api.watch_lines(MAPS, 2, **options)
    assert [e["type"] for e in events] == ["ADDED", "BOOKMARK"]
    assert events[1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def _write_at_random(api: HttpApi, number: int, chance: random.Random) -> None:
    for i in range(60):
        name = f"c{chance.randrange(12)}"
        match chance.randrange(4):
            case 0 | 1:
                await api.send("POST", MAPS, config_map(name, {"w": str(number)}))
            case 2:
                await api.send("PATCH", f"{MAPS}/{name}", {"data": {"i": f"{number}-{i}"}}, "merge-patch")
            case 3:
                await api.send("DELETE", f"{MAPS}/{name}", None)


async def _rebuild(api: HttpApi) -> dict[str, str]:
    """Versions by name, from a list and the changes after it, until ``the-end`` comes."""
    listed = await api.get(MAPS)
    state = {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in listed["items"]}
    if state.pop("the-end", None):
        return state
    last = int(listed["metadata"]["resourceVersion"])
    async for event in api.watch(MAPS, resourceVersion=str(last)):
        metadata = event["object"]["metadata"]
        assert int(metadata["resourceVersion"]) > last, "out of order"
        last = int(metadata["resourceVersion"])
        if metadata["name"] == "the-end":
            break
        if event["type"] == "DELETED":
            del state[metadata["name"]]
        else:
            assert (event["type"] == "ADDED") == (metadata["name"] not in state)
            state[metadata["name"]] = metadata["resourceVersion"]
    return state


async def test_watchers_rebuild_the_final_list_from_random_changes(api: HttpApi):
    """Eight writers change, forty watchers follow, each from a moment of its own; all end with what is there."""
    chance = random.Random(7)
    following = [asyncio.create_task(_rebuild(api)) for _ in range(10)]
    for _ in range(3):
        await asyncio.gather(*(_write_at_random(api, number, chance) for number in range(8)))
        following += [asyncio.create_task(_rebuild(api)) for _ in range(10)]
    final = {i["metadata"]["name"]: i["metadata"]["resourceVersion"] for i in (await api.get(MAPS))["items"]}
    await api.post(MAPS, config_map("the-end"))
    async with asyncio.timeout(SECONDS):
        assert [state for state in await asyncio.gather(*following) if state != final] == []
    assert final, "the churn left nothing to compare"


async def test_one_stuck_follower_does_not_hold_up_the_others(api: HttpApi):
    big = {"metadata": {"name": "big"}, "data": {"x": "y" * 500_000}}
    start = (await api.get(MAPS))["metadata"]["resourceVersion"]
    async with api.session.get(MAPS, params={"watch": "1", "resourceVersion": start}):  # never read
        made = await api.post(MAPS, big)
        for i in range(20):
            made["data"]["i"] = str(i)
            made = await api.put(f"{MAPS}/big", made)
        events = await asyncio.wait_for(api.watch_lines(MAPS, 21, resourceVersion=start), SECONDS)
    assert len(events) == 21


async def test_events_are_forgotten_after_an_hour(tmp_path: Path):
    clock = VirtualClock()
    server = ApiServer(tmp_path / "api", clock=clock)
    await server.start()
    async with HttpApi(server) as api:
        events = "/api/v1/namespaces/default/events"
        about = {"kind": "Pod", "name": "p", "namespace": "default"}
        await api.post(events, {"metadata": {"name": "old"}, "involvedObject": about})
        await clock.advance(1800)
        await api.post(events, {"metadata": {"name": "new"}, "involvedObject": about})
        await clock.advance(1900)
        assert [e["metadata"]["name"] for e in (await api.get(events))["items"]] == ["new"]
    await server.stop()


async def test_followers_that_go_away_leave_the_server_as_it_was(api: HttpApi):
    start = (await api.get(MAPS))["metadata"]["resourceVersion"]
    for _ in range(20):
        response = await api.session.get(MAPS, params={"watch": "1", "resourceVersion": start})
        response.close()
    await api.post(MAPS, config_map("after"))
    events = await api.watch_lines(MAPS, 1, resourceVersion=start)
    assert events[0]["object"]["metadata"]["name"] == "after"


async def test_json_lines_are_whole(api: HttpApi):
    start = (await api.get(MAPS))["metadata"]["resourceVersion"]
    await api.post(
        MAPS, {"metadata": {"name": "odd"}, "data": {"text": 'line\nbreak " quote \u2028 é 漢 \U0001f600'}}
    )
    async with api.session.get(
        MAPS, params={"watch": "1", "resourceVersion": start}, timeout=aiohttp.ClientTimeout(SECONDS)
    ) as stream:
        line = await stream.content.readline()
    assert json.loads(line)["object"]["data"]["text"] == 'line\nbreak " quote \u2028 é 漢 \U0001f600'
