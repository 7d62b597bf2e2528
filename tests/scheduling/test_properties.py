"""What holds for every plan, with backfill, windows, loans, elastic gangs, preemption and claims all on."""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
import zoneinfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_kftrain.jobs.resources import Resources
from airflow_kftrain.scheduling.model import (
    NEVER,
    Elastic,
    Estimate,
    Partition,
    PodSet,
    Request,
    Window,
)
from airflow_kftrain.scheduling.planner import plan
from airflow_kftrain.scheduling.reservation import Reservation
from airflow_kftrain.scheduling.settings import PlannerSettings, Preemption
from tests.support.gang_world import TERMINATION, World
from tests.support.gangs import GPU, count_level, gpus, of_nodes

HOUR = 3600.0
ELASTIC = Elastic("Worker", (1, 2, 4), (0.35, 0.6, 1.0))
thorough = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@st.composite
def gangs(draw: st.DrawFn, number: int, names: list[str]) -> tuple[Request, float]:
    """A request and its true run time, which its estimate may miss by far."""
    truth = draw(st.sampled_from([120.0, 900.0, HOUR, 5 * HOUR]))
    miss = draw(st.sampled_from([0.3, 1.0, 2.5]))
    p50 = truth * miss
    elastic = draw(st.sampled_from([None, None, ELASTIC]))
    pods = 4 if elastic else draw(st.sampled_from([1, 2, 3]))
    each = 1 if elastic else draw(st.sampled_from([1, 2, 4]))
    resumable = draw(st.booleans())
    submitted = float(draw(st.integers(0, 20))) * 300
    made = Request(
        id=f"g{number:02d}",
        partition=draw(st.sampled_from(names)),
        podsets=(PodSet("Worker", pods, gpus(each)),),
        submitted=submitted,
        estimate=Estimate(p50 / 2, p50, p50 * 1.5, p50 * 2, runs=draw(st.sampled_from([0, 9]))),
        priority=draw(st.sampled_from([0, 0, 2])),
        deadline=submitted + truth * 2 if draw(st.booleans()) else NEVER,
        run_limit=draw(st.sampled_from([NEVER, truth * 1.5 + 60])),
        preemptible=resumable and draw(st.booleans()),
        resumable=resumable,
        elastic=elastic,
        reservation=draw(st.sampled_from([None, None, "daily"])),
    )
    return made, truth


@st.composite
def worlds(draw: st.DrawFn) -> tuple[World, list[Request]]:
    names = draw(st.sampled_from([["p"], ["p", "q"]]))
    partitions = tuple(_partition(draw, name) for name in names)
    made = [draw(gangs(number, names)) for number in range(draw(st.integers(1, 12)))]
    windows = _windows(draw, partitions)
    world = World(
        partitions,
        {request.id: truth for request, truth in made},
        PlannerSettings(
            preemption=draw(st.sampled_from(list(Preemption))),
            protected=300.0,
            guard=draw(st.sampled_from([HOUR, 96 * HOUR])),
        ),
        windows,
    )
    return world, [request for request, _ in made]


def _partition(draw: st.DrawFn, name: str) -> Partition:
    rules = {"borrowing": draw(st.sampled_from([0, 4, None])), "lending": draw(st.sampled_from([0, 4, None]))}
    if draw(st.booleans()):
        return count_level(12, name, **rules)
    return of_nodes(3, 4, name, recallable_only=draw(st.booleans()), **rules)


def _windows(draw: st.DrawFn, partitions: tuple[Partition, ...]) -> tuple[Window, ...]:
    if not draw(st.booleans()):
        return ()
    held = gpus(draw(st.sampled_from([3, 6])))
    first = draw(st.integers(0, 8)) * 900.0
    starts = [HOUR + first + day * 6 * HOUR for day in range(3)]
    return tuple(Window("daily", partitions[0].name, s, s + HOUR, held, lead=TERMINATION) for s in starts)


@thorough
@given(worlds())
def test_no_node_is_over_committed_no_window_is_broken_and_every_request_is_answered(
    made: tuple[World, list[Request]],
) -> None:
    """The world raises as soon as a plan breaks one of these."""
    world, requests = made
    world.run(requests, until=40 * HOUR)
    assert all(count <= world.settings.preemptions_most for count in world.suspended.values())


@thorough
@given(worlds())
def test_work_comes_to_an_end_without_taking_turns_for_ever(made: tuple[World, list[Request]]) -> None:
    """Whoever can fit at all ends; none is suspended more often than its own length in protected spans allows."""
    world, requests = made
    world.run(requests, until=400 * HOUR)
    for request in requests:
        if request.id not in world.finished:
            answers = {
                e.request: e.reason.code.value for e in plan(world.snapshot(), world.settings).explanations()
            }
            assert answers.get(request.id) in ("NeverFits", "WouldBreakWindow"), (
                request.id,
                answers,
                world.now,
            )


@thorough
@given(worlds(), st.randoms(use_true_random=False))
def test_the_same_snapshot_gives_the_same_plan_in_whatever_order_it_lists_its_queue(
    made: tuple[World, list[Request]], random: object
) -> None:
    world, requests = made
    world.run(requests, until=HOUR)
    seen = world.snapshot()
    shuffled = list(seen.queue)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    again = dataclasses.replace(seen, queue=tuple(shuffled))
    one, two = plan(seen, world.settings), plan(again, world.settings)
    assert one.decisions == two.decisions
    assert sorted(one.explanations(), key=str) == sorted(two.explanations(), key=str)


@thorough
@given(worlds(), st.integers(2, 5))
def test_equal_requests_keep_their_order(made: tuple[World, list[Request]], copies: int) -> None:
    world, requests = made
    first = dataclasses.replace(requests[0], reservation=None, elastic=None, deadline=NEVER)
    twins = [dataclasses.replace(first, id=f"twin{n}") for n in range(copies)]
    for twin in twins:
        world.truth[twin.id] = world.truth[first.id]
    world.run([*requests, *twins], until=60 * HOUR)
    begun = [world.begun.get(twin.id, NEVER) for twin in twins]
    assert begun == sorted(begun)


ZONES = sorted(
    z for z in zoneinfo.available_timezones() if "/" in z and not z.startswith(("Etc/", "posix", "right"))
)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(ZONES),
    st.datetimes(dt.datetime(1980, 1, 1), dt.datetime(2035, 1, 1)),
    st.sampled_from(["FREQ=DAILY", "FREQ=WEEKLY", "FREQ=HOURLY;INTERVAL=6", "FREQ=MONTHLY", ""]),
    st.integers(60, 5 * 3600),
)
def test_windows_are_never_empty_negative_or_out_of_order(
    zone: str, start: dt.datetime, rrule: str, duration: int
) -> None:
    made = Reservation("r", "p", Resources({GPU: 1}), start, zone, float(duration), rrule)
    begin = made.instant(start)
    found = made.windows(begin, begin + 40 * 86400)
    assert found
    assert found[0].start == made.instant(start.replace(microsecond=0))
    assert all(window.end - window.start == duration for window in found)
    assert all(one.end <= two.start for one, two in itertools.pairwise(found))
    assert all(made.windows(w.end, w.end + 40 * 86400)[:1] != [w] for w in found)


def test_the_world_notices_an_over_committed_node() -> None:
    """The check itself can fail."""
    from airflow_kftrain.scheduling.model import Placement, Running
    from tests.support.gang_world import PromiseBroken
    from tests.support.gangs import request

    world = World((count_level(4),), {"a": 10.0}, PlannerSettings())
    gang = request("a", 8)
    world.running["a"] = Running(gang, "p", (Placement("Worker", "all", 1),), 0.0, 0.0)
    with pytest.raises(PromiseBroken, match="holds"):
        world.check()
