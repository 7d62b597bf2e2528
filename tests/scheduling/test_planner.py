"""Decisions of whole plans, each with its reason."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.jobs.resources import Resources
from airflow_kftrain.scheduling.decisions import Reserve, Resize, Start, Suspend
from airflow_kftrain.scheduling.model import (
    NEVER,
    Claim,
    Costs,
    Elastic,
    Estimate,
    Node,
    Partition,
    Phase,
    PodSet,
    Reserved,
    Running,
    Taint,
    Toleration,
    Window,
)
from airflow_kftrain.scheduling.planner import Plan, plan
from airflow_kftrain.scheduling.reasons import Code
from airflow_kftrain.scheduling.settings import PlannerSettings, Preemption
from tests.support.gangs import GPU, HOUR, count_level, gpus, of_nodes, request, running, snapshot, started

SERVICE = PlannerSettings(preemption=Preemption.SERVICE, protected=300.0)


def starts(made: Plan) -> list[str]:
    return [decision.request for decision in made.starts]


def why(made: Plan, name: str) -> Code:
    for decision in (*made.decisions, *made.explanations()):
        if decision.request == name:
            return decision.reason.code
    raise AssertionError(f"no word of {name}")


def of(made: Plan, kind: Any) -> list[Any]:
    return [decision for decision in made.decisions if isinstance(decision, kind)]


# -- order and backfill ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "settings", "shares"),
    [
        (request("short", 4, HOUR), request("long", 4, 9 * HOUR), {}, {}),
        (request("narrow", 1, HOUR), request("wide", 4, HOUR), {}, {}),
        (request("more", 4, 5 * HOUR, priority=2), request("less", 4, HOUR), {}, {}),
        (request("old", 4, HOUR, submitted=0), request("young", 4, HOUR, submitted=90 * HOUR), {}, {}),
        (request("aged", 4, HOUR, submitted=0), request("new", 4, 0.5 * HOUR, submitted=99 * HOUR), {}, {}),
        (request("guarded", 4, 99 * HOUR, submitted=0), request("tiny", 1, 60, submitted=99 * HOUR), {}, {}),
        (request("user", 4, HOUR), request("hog", 4, HOUR * 0.9), {}, {"hog": 4.0}),
        (request("due", 4, 2 * HOUR, deadline=103 * HOUR), request("some time", 4, HOUR), {}, {}),
        (
            request("soon", 4, 2 * HOUR, deadline=103 * HOUR),
            request("later", 4, HOUR, deadline=190 * HOUR),
            {},
            {},
        ),
        (
            request("in time", 4, 2 * HOUR, deadline=103 * HOUR),
            request("late", 4, HOUR, deadline=100.5 * HOUR),
            {},
            {},
        ),
        (request("scheduled", 4, 9 * HOUR), request("backfill run", 1, 60, least_class=True), {}, {}),
    ],
    ids=lambda value: value.id if hasattr(value, "id") else "",
)
def test_who_comes_first(first: Any, second: Any, settings: Any, shares: Any) -> None:
    made = [second, first] if second.submitted >= first.submitted else [first, second]
    tagged = [_shared(r) for r in made]
    seen = snapshot(count_level(4), now=100 * HOUR, queue=tagged, shares=shares)
    assert starts(plan(seen, PlannerSettings(guard=96 * HOUR, **settings)))[0] == first.id


def _shared(gang: Any) -> Any:
    from dataclasses import replace

    fresh = gang.submitted == 0.0 and gang.id not in ("old", "aged", "guarded")
    return replace(gang, share=gang.id, submitted=100 * HOUR if fresh else gang.submitted)


def test_behind_a_reservation_only_what_ends_in_time_or_needs_what_is_left_starts() -> None:
    """8 GPUs: 5 are busy for an hour; the first of the queue needs 6."""
    busy = running(request("busy", 5, HOUR), ("all", 1))
    queue = [
        request("first", 6, 60, priority=9),
        request("in time", 2, 0.9 * HOUR),
        request("too long", 2, 9 * HOUR, submitted=1.0),
        request("beside", 1, 99 * HOUR, submitted=2.0),
    ]
    made = plan(snapshot(count_level(8), queue=queue, running=[busy]))
    (held,) = of(made, Reserve)
    assert (held.request, held.start) == ("first", HOUR)
    assert starts(made) == ["in time", "beside"]
    assert why(made, "in time") is Code.BACKFILLED
    assert why(made, "too long") is Code.NO_ROOM


@pytest.mark.parametrize(
    ("wide", "held"),
    [
        pytest.param({}, False, id="an equal among equals waits for its turn"),
        pytest.param({"priority": 1}, True, id="a priority is a reason to hold"),
        pytest.param({"deadline": 300 * HOUR}, True, id="so is a deadline"),
        pytest.param({"submitted": 0.0}, True, id="so is having waited beyond the guard"),
    ],
)
def test_b22_where_predictions_are_bad_room_is_held_for_a_stated_reason_alone(wide: Any, held: bool) -> None:
    now = 97 * HOUR
    busy = running(request("busy", 7, 99 * HOUR, submitted=now - 60), ("all", 1), since=now - 60)
    gangs = [
        request("wide", 8, 60, **{"submitted": now - 60, **wide}),
        request("narrow", 1, 99 * HOUR, submitted=now),
    ]
    seen = snapshot(count_level(8), now=now, queue=gangs, running=[busy], prediction_error={"p": 0.9})
    assert [d.request for d in of(plan(seen), Reserve)] == ["wide"] * held


def test_gangs_beyond_the_guard_go_first_on_half_of_the_partition_only() -> None:
    now = 200 * HOUR
    old = [request(f"old {n}", 4, 50 * HOUR, submitted=n * HOUR) for n in range(3)]
    young = [request(f"young {n}", 4, 60, submitted=now) for n in range(2)]
    seen = snapshot(count_level(8), now=now, queue=old + young)
    assert starts(plan(seen)) == ["old 0", "young 0"]
    assert starts(plan(seen, PlannerSettings(guard_share=1.0))) == ["old 0", "old 1"]
    first = running(old[0], ("all", 1), since=now - 60)
    seen = snapshot(count_level(8), now=now, queue=old[1:] + young, running=[first])
    assert starts(plan(seen)) == ["young 0"], "the first one has the half"


def test_a_planned_start_that_slips_says_so() -> None:
    busy = running(request("busy", 5, 2 * HOUR), ("all", 1))
    before = Reserved("first", "p", HOUR)
    (held,) = of(
        plan(snapshot(count_level(8), queue=[request("first", 6, 60)], running=[busy], reserved=[before])),
        Reserve,
    )
    assert held.reason.sentence().endswith("(it has slipped by 60 min)")
    again = Reserved("first", "p", held.start)
    (held,) = of(
        plan(snapshot(count_level(8), queue=[request("first", 6, 60)], running=[busy], reserved=[again])),
        Reserve,
    )
    assert "slipped" not in held.reason.sentence()


def test_the_gang_that_would_delay_a_reservation_is_told_so() -> None:
    busy = running(request("busy", 5, HOUR), ("all", 1))
    queue = [request("first", 6, 60, priority=9), request("too long", 3, 9 * HOUR)]
    made = plan(snapshot(count_level(8), queue=queue, running=[busy]))
    (told,) = made.explanations()
    assert told.reason.code is Code.WOULD_DELAY
    assert told.reason.sentence() == (
        "waits: 3 GPUs are free, but it is predicted to run for 9 h and would delay a gang before it"
    )


def test_b22_a_wide_task_of_high_priority_is_not_starved_by_a_stream_of_narrow_ones() -> None:
    """Pool of 2; one-slot tasks of 10 s every 5 s; at t=7 a two-slot task of priority 10."""
    part, queue, live, begun = count_level(2), {}, {}, {}
    narrow = {t: request(f"n{t}", 1, 10, submitted=float(t), priority=1) for t in range(0, 40, 5)}
    for now in range(40):
        live = {name: gang for name, gang in live.items() if gang.admitted + gang.request.estimate.p50 > now}
        if now in narrow:
            queue[narrow[now].id] = narrow[now]
        if now == 7:
            queue["wide"] = request("wide", 2, 30, submitted=7.0, priority=10)
        for start in plan(snapshot(part, now=float(now), queue=queue.values(), running=live.values())).starts:
            live[start.request] = started(start, queue.pop(start.request), float(now))
            begun[start.request] = now
    assert begun["wide"] <= 15, "what ran at t=7 ends at 10 and 15"
    assert "n10" not in begun, "a ten-second task would have delayed it"


@pytest.mark.parametrize(
    ("seconds", "passes"), [(3.0, True), (60.0, False)], ids=["3 s may pass", "60 s may not"]
)
def test_b22_only_what_ends_before_its_planned_start_passes(seconds: float, passes: bool) -> None:
    busy = running(request("busy", 1, 10), ("all", 1), since=5.0)
    queue = [
        request("wide", 2, 30, submitted=7.0, priority=10),
        request("narrow", 1, seconds, submitted=10.0, priority=1),
    ]
    made = plan(snapshot(count_level(2), now=10.0, queue=queue, running=[busy]))
    assert ("narrow" in starts(made)) is passes


# -- nodes -----------------------------------------------------------------------------------------------------------


def test_a_small_gang_goes_to_the_tightest_node_and_leaves_whole_ones_alone() -> None:
    held = [running(request("a", 6), ("p-0", 1)), running(request("b", 2), ("p-1", 1))]
    (start,) = plan(snapshot(of_nodes(3, 8), queue=[request("c", 2)], running=held)).starts
    assert [(p.node, p.count) for p in start.placement] == [("p-0", 1)]


def test_a_wide_gang_takes_as_few_nodes_as_possible() -> None:
    (start,) = plan(snapshot(of_nodes(4, 8), queue=[request("a", 20, pods=20)])).starts
    assert sorted(p.count for p in start.placement) == [4, 8, 8]


def test_free_gpus_that_no_pod_fits_on_are_explained() -> None:
    held = [running(request(f"r{n}", 5), (f"p-{n}", 1)) for n in range(3)]
    made = plan(snapshot(of_nodes(3, 8), queue=[request("x", 4, priority=9), request("y", 4)], running=held))
    assert [d.request for d in of(made, Reserve)] == ["x"]
    assert why(made, "y") is Code.NODES_TOO_FULL


def test_a_reservation_keeps_its_nodes_from_longer_gangs() -> None:
    """Two nodes of 8: one busy for an hour, one free; the first gang needs both whole."""
    busy = running(request("busy", 8, HOUR), ("p-0", 1))
    queue = [
        request("both", 16, HOUR, pods=2, priority=9),
        request("long", 1, 5 * HOUR),
        request("short", 1, 60),
    ]
    made = plan(snapshot(of_nodes(2, 8), queue=queue, running=[busy]))
    assert starts(made) == ["short"]
    assert [(d.request, d.start) for d in of(made, Reserve)] == [("both", HOUR)]


def test_a_gang_with_two_replica_types_is_placed_whole_or_not_at_all() -> None:
    cpu = Resources({"cpu": 4})
    nodes = (Node("gpu", Resources({GPU: 2, "cpu": 2})), Node("cpu", Resources({"cpu": 8})))
    fits = request("fits", podsets=(PodSet("Worker", 2, gpus(1)), PodSet("PS", 2, cpu)))
    not_all = request("not all", podsets=(PodSet("Worker", 2, gpus(1)), PodSet("PS", 3, cpu)))
    assert {
        p.podset: p.node for p in plan(snapshot(Partition("p", nodes), queue=[fits])).starts[0].placement
    } == {
        "Worker": "gpu",
        "PS": "cpu",
    }
    assert not plan(snapshot(Partition("p", nodes), queue=[not_all])).starts


@pytest.mark.parametrize(
    ("selector", "tolerations", "node"),
    [
        ({}, (), "plain"),
        ({"gpu": "h100"}, (), None),
        ({"gpu": "h100"}, (Toleration("team", "Exists"),), "tainted"),
        ({"gpu": "b200"}, (Toleration("", "Exists"),), None),
    ],
    ids=["no taint", "labelled but tainted", "tolerated", "no such label"],
)
def test_labels_and_taints(selector: dict[str, str], tolerations: Any, node: str | None) -> None:
    nodes = (
        Node("plain", gpus(4)),
        Node("tainted", gpus(4), labels={"gpu": "h100"}, taints=(Taint("team", "b", "NoExecute"),)),
    )
    gang = request("g", podsets=(PodSet("Worker", 1, gpus(1), selector, tolerations),))
    made = plan(snapshot(Partition("p", nodes), queue=[gang]))
    assert [p.node for s in made.starts for p in s.placement] == ([node] if node else [])


# -- who cannot start ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gang", "code", "says"),
    [
        (request("g", 99), Code.NEVER_FITS, "p is too small (nvidia.com/gpu 99 of 8)"),
        (
            request("g", podsets=(PodSet("Worker", 1, Resources({"tpu.dev/v5": 1})),)),
            Code.NEVER_FITS,
            "no node of p has one",
        ),
        (request("g", 1, not_before=500.0), Code.BACKING_OFF, "waits until"),
        (request("g", 1, partition="elsewhere"), Code.NO_PARTITION, "no partition elsewhere"),
    ],
    ids=["larger than the partition", "a resource nobody has", "backing off", "an unknown partition"],
)
def test_it_is_told_why(gang: Any, code: Code, says: str) -> None:
    (told,) = plan(snapshot(count_level(8), queue=[gang])).explanations()
    assert told.reason.code is code
    assert says in told.reason.sentence()


def test_a_gang_that_can_never_start_holds_nobody_up() -> None:
    queue = [request("huge", 99, priority=9), request("small", 1)]
    assert starts(plan(snapshot(count_level(8), queue=queue))) == ["small"]


def test_beyond_the_depth_nothing_is_tried_and_it_is_said() -> None:
    queue = [request(f"g{n}", 1, HOUR, submitted=float(n)) for n in range(5)]
    made = plan(snapshot(count_level(8), queue=queue), PlannerSettings(depth=3))
    assert len(made.starts) == 3
    assert {told.reason.code for told in made.explanations()} == {Code.BEYOND_DEPTH}


def test_an_empty_cluster_and_an_empty_queue() -> None:
    assert plan(snapshot(Partition("p", ()), queue=[request("g", 1)])).starts == []
    assert plan(snapshot(count_level(8))).decisions == []
    assert plan(snapshot()).decisions == []


# -- deadlines -------------------------------------------------------------------------------------------------------


def urgent_case(error: float | None) -> Plan:
    """8 GPUs, 7 busy for half an hour; a wide gang must start within the hour to be in time."""
    busy = running(request("busy", 7, HOUR / 2), ("all", 1))
    queue = [
        request("narrow", 2, HOUR / 4, priority=6),
        request("wide", 8, HOUR, deadline=1.8 * HOUR),
        request("filler", 1, 5 * HOUR),
    ]
    known = {} if error is None else {"p": error}
    settings = PlannerSettings(idle_cap=1.0)
    return plan(snapshot(count_level(8), queue=queue, running=[busy], prediction_error=known), settings)


def test_capacity_is_held_for_a_deadline_when_predictions_are_good() -> None:
    made = urgent_case(0.0)
    assert {d.request: d.reason.code for d in of(made, Reserve)} == {
        "narrow": Code.RESERVED_FIRST_BLOCKED,
        "wide": Code.RESERVED_DEADLINE,
    }
    (told,) = [d for d in of(made, Reserve) if d.request == "wide"]
    assert "so that it meets its deadline 1970-01-01 01:48 UTC" in told.reason.sentence()


@pytest.mark.parametrize("error", [0.5, None], ids=["predictions are bad", "nothing is known of them"])
def test_nothing_is_held_ahead_when_it_would_not_pay(error: float | None) -> None:
    assert [d.request for d in of(urgent_case(error), Reserve)] == ["narrow"]


def test_a_pressing_gang_takes_another_size_that_is_in_time() -> None:
    elastic = Elastic("Worker", (2, 4, 8), (0.6, 1.0, 1.6))
    gang = request("due", 4, HOUR, pods=4, elastic=elastic, deadline=0.7 * HOUR)
    first = running(request("busy", 2, 9 * HOUR), ("all", 1))
    made = plan(snapshot(count_level(10), queue=[gang], running=[first]))
    (start,) = made.starts
    assert start.size == 8


def test_a_pressing_gang_has_a_gang_without_deadline_suspended() -> None:
    idle = request("open end", 8, 99 * HOUR, preemptible=True, resumable=True)
    gang = request("due", 8, HOUR, deadline=2.01 * HOUR, submitted=HOUR)
    made = plan(snapshot(count_level(8), now=HOUR, queue=[gang], running=[running(idle, ("all", 1))]))
    (stop,) = of(made, Suspend)
    assert (stop.request, stop.beneficiary) == ("open end", "due")
    assert "is suspended for due" in stop.reason.sentence()


def test_it_is_said_early_that_a_deadline_cannot_be_met() -> None:
    busy = running(request("busy", 8, 5 * HOUR), ("all", 1))
    gangs = [request("late", 8, HOUR, deadline=0.5 * HOUR), request("first", 8, 60, priority=9)]
    made = plan(snapshot(count_level(8), queue=gangs, running=[busy]))
    (told,) = made.explanations()
    assert told.reason.code is Code.MISSES_DEADLINE
    assert "cannot be met any more" in told.reason.sentence()


# -- preemption and claims -------------------------------------------------------------------------------------------


def long_running(name: str = "long", width: int = 8, **more: Any) -> Running:
    more.setdefault("checkpointed", HOUR)
    own = {key: more.pop(key) for key in ("priority", "preemptions") if key in more}
    gang = request(name, width, 50 * HOUR, preemptible=True, resumable=True, **own)
    return running(gang, ("all", 1), **more)


def test_long_work_is_suspended_for_short() -> None:
    made = plan(
        snapshot(count_level(8), now=HOUR, queue=[request("short", 4, HOUR)], running=[long_running()]),
        SERVICE,
    )
    assert [(d.request, d.beneficiary, d.reason.code) for d in of(made, Suspend)] == [
        ("long", "short", Code.PREEMPTED)
    ]
    assert not made.starts, "it starts when the pods are gone"


@pytest.mark.parametrize(
    ("victim", "short"),
    [
        (long_running(since=HOUR - 100), request("short", 4, HOUR)),
        (running(request("long", 8, 50 * HOUR), ("all", 1)), request("short", 4, HOUR)),
        (long_running(), request("as long", 8, 30 * HOUR)),
        (long_running("more", priority=1), request("s", 4, HOUR)),
        (long_running("tried", preemptions=20), request("s", 4, HOUR)),
    ],
    ids=["within its protected time", "not preemptible", "for little gain", "of higher priority", "too often before"],
)  # fmt: skip
def test_a_gang_is_left_alone(victim: Running, short: Any) -> None:
    assert not of(plan(snapshot(count_level(8), now=HOUR, queue=[short], running=[victim]), SERVICE), Suspend)


def test_work_that_was_done_is_no_waiting_and_long_waiting_protects() -> None:
    worked = request("worked", 4, 200 * HOUR, attained=90 * HOUR, resumable=True)
    seen = snapshot(
        count_level(4), now=100 * HOUR, queue=[worked, request("short", 4, HOUR, submitted=100 * HOUR)]
    )
    assert starts(plan(seen)) == ["short"], "ten hours of waiting are within the guard"
    patient = long_running("patient", since=97 * HOUR)
    seen = snapshot(
        count_level(8), now=98 * HOUR, queue=[request("s", 4, 600, submitted=98 * HOUR)], running=[patient]
    )
    assert not of(plan(seen, SERVICE), Suspend)


def test_the_least_lost_work_is_chosen_and_nobody_who_need_not_go() -> None:
    gangs = [long_running("fresh", 4), long_running("stale", 4, checkpointed=None), long_running("small", 2)]
    made = plan(snapshot(count_level(10), now=HOUR, queue=[request("s", 4, 600)], running=gangs), SERVICE)
    assert [d.request for d in of(made, Suspend)] == ["fresh"]


def test_freed_capacity_belongs_to_its_beneficiary_until_the_claim_expires() -> None:
    leaving = running(request("long", 8), ("all", 1), phase=Phase.TERMINATING, gone_by=30.0)
    queue = [request("thief", 4, 10 * HOUR, priority=9), request("mine", 8, HOUR)]
    part = count_level(12)
    made = plan(snapshot(part, queue=queue, running=[leaving], claims=[Claim("mine", "p", 60.0)]))
    assert [(d.request, d.start, d.reason.code) for d in of(made, Reserve)] == [
        ("mine", 30.0, Code.RESERVED_CLAIM)
    ]
    assert starts(made) == ["thief"], "four of twelve are beyond the claim"
    made = plan(snapshot(part, now=31.0, queue=queue, claims=[Claim("mine", "p", 60.0)]))
    assert starts(made)[0] == "mine"
    assert why(made, "mine") is Code.CLAIMED
    made = plan(snapshot(count_level(8), now=61.0, queue=queue, claims=[Claim("mine", "p", 60.0)]))
    assert starts(made) == ["thief"], "it has lapsed"


# -- windows ---------------------------------------------------------------------------------------------------------

DAILY = Window("daily", "p", 10 * HOUR, 12 * HOUR, gpus(6), lead=60.0)


@pytest.mark.parametrize(
    ("gang", "code"),
    [
        (request("short", 4, HOUR), Code.WOULD_BREAK_WINDOW),
        (request("limited", 4, HOUR, run_limit=2 * HOUR), Code.FIRST_IN_ORDER),
        (request("limited too long", 4, HOUR, run_limit=11 * HOUR), Code.WOULD_BREAK_WINDOW),
        (request("resumable", 4, 50 * HOUR, resumable=True), Code.FIRST_IN_ORDER),
        (request("beside", 2, 50 * HOUR), Code.FIRST_IN_ORDER),
    ],
    ids=["a prediction is no promise", "a hard limit before it", "a hard limit beyond it", "it can be suspended",
         "room beside it"],
)  # fmt: skip
def test_only_what_is_surely_gone_starts_before_a_window(gang: Any, code: Code) -> None:
    made = plan(snapshot(count_level(8), queue=[gang], windows=[DAILY]))
    assert why(made, gang.id) is code


def test_a_window_has_its_capacity_freed_in_time() -> None:
    gangs = [
        running(request(name, 3, 50 * HOUR, resumable=True), ("all", 1), checkpointed=checkpointed)
        for name, checkpointed in (("old", 5 * HOUR), ("new", 9.9 * HOUR))
    ]
    before = plan(snapshot(count_level(8), now=DAILY.start - 61, running=gangs, windows=[DAILY]))
    assert not of(before, Suspend)
    now = plan(snapshot(count_level(8), now=DAILY.start - 60, running=gangs, windows=[DAILY]))
    assert [(d.request, d.beneficiary) for d in of(now, Suspend)] == [("new", None), ("old", None)]
    one = plan(snapshot(count_level(11), now=DAILY.start - 60, running=gangs, windows=[DAILY]))
    assert [d.request for d in of(one, Suspend)] == ["new"], (
        "5 are free: one gang is enough, the one that loses less"
    )


def test_the_grace_of_a_gang_is_part_of_the_drain() -> None:
    slow = running(request("slow", 6, 50 * HOUR, resumable=True, grace=600.0), ("all", 1))
    for before, stopped in ((601.0, []), (600.0, ["slow"])):
        made = plan(snapshot(count_level(8), now=DAILY.start - before, running=[slow], windows=[DAILY]))
        assert [d.request for d in of(made, Suspend)] == stopped
    late = request("late", 4, 50 * HOUR, resumable=True, grace=7200.0)
    made = plan(snapshot(count_level(8), now=DAILY.start - HOUR, queue=[late], windows=[DAILY]))
    assert not made.starts, "its checkpoint takes longer than there is time"


@pytest.mark.parametrize(
    ("more", "instant"),
    [
        ({"queue": [request("g", 6, 60)]}, HOUR),
        ({"windows": [DAILY]}, DAILY.start - 60),
        ({"claims": [Claim("g", "p", 77.0)]}, 77.0),
        ({"queue": [request("g", 1, 60, not_before=33.0)]}, 33.0),
        ({}, float("inf")),
    ],
    ids=["a reservation begins", "a window must be drained", "a claim lapses", "a back-off ends", "nothing"],
)
def test_it_says_when_to_plan_again(more: Any, instant: float) -> None:
    busy = running(request("busy", 5, HOUR), ("all", 1))
    assert plan(snapshot(count_level(8), running=[busy], **more)).again == instant


def test_members_enter_their_window_and_others_stay_out() -> None:
    member = request("member", 6, HOUR, run_limit=1.5 * HOUR, reservation="daily")
    other = request("other", 6, 60, priority=9)
    made = plan(snapshot(count_level(8), now=DAILY.start, queue=[other, member], windows=[DAILY]))
    (start,) = made.starts
    assert (start.request, start.window, start.reason.code) == ("member", "daily", Code.IN_WINDOW)
    late = plan(snapshot(count_level(8), now=DAILY.end - HOUR, queue=[member], windows=[DAILY]))
    assert not late.starts, "it could outlive the window"


# -- lending ---------------------------------------------------------------------------------------------------------


def two(**lender: Any) -> tuple[Partition, Partition]:
    return count_level(4, "a", borrowing=8), count_level(8, "b", **{"lending": 6, **lender})


@pytest.mark.parametrize(
    ("gang", "lender", "lent"),
    [
        (request("g", 6, HOUR, partition="a"), {}, True),
        (request("g", 8, HOUR, partition="a"), {}, False),
        (request("g", 6, HOUR, partition="a"), {"lending": 0}, False),
        (request("g", 6, 50 * HOUR, partition="a"), {}, False),
        (request("g", 6, 50 * HOUR, partition="a", resumable=True, preemptible=True), {}, True),
        (request("g", 6, HOUR, partition="a"), {"recallable_only": True}, False),
        (request("g", 6, HOUR, partition="a", run_limit=2 * HOUR), {"recallable_only": True}, True),
    ],
    ids=["idle capacity is lent", "not beyond the limit", "not by who lends nothing", "not for longer than it lasts",
         "longer if it can be recalled", "a prediction is not enough", "a hard limit is"],
)  # fmt: skip
def test_loans(gang: Any, lender: Any, lent: bool) -> None:
    made = plan(snapshot(*two(**lender), queue=[gang]))
    assert [(s.partition, s.reason.code) for s in made.starts] == ([("b", Code.BORROWED)] if lent else [])


def test_a_lender_serves_its_own_queue_first() -> None:
    busy = running(request("busy", 4, 5 * HOUR, partition="b"), ("all", 1))
    queue = [
        request("own", 8, HOUR, partition="b"),
        request("own too", 8, HOUR, partition="b"),
        request("g", 4, HOUR, partition="a"),
    ]
    a_busy = running(request("a busy", 4, 9 * HOUR, partition="a"), ("all", 1))
    assert "g" not in starts(plan(snapshot(*two(), queue=queue, running=[busy, a_busy])))


def test_of_two_equal_gangs_the_first_gets_the_loan_though_it_has_a_reservation() -> None:
    busy = running(request("busy", 2, HOUR, partition="a"), ("all", 1))
    queue = [request(name, 4, HOUR, partition="a", submitted=at) for name, at in (("one", 1.0), ("two", 2.0))]
    made = plan(snapshot(*two(), now=10.0, queue=queue, running=[busy]))
    assert [(s.request, s.partition) for s in made.starts] == [("one", "b")]


def test_a_loan_is_taken_back_for_the_lenders_own_work() -> None:
    loan = running(
        request("loan", 6, 50 * HOUR, partition="a", resumable=True, preemptible=True),
        ("all", 1),
        partition="b",
    )
    own = request("own", 8, HOUR, partition="b")
    made = plan(snapshot(*two(), now=HOUR, queue=[own], running=[loan]))
    assert [(d.request, d.beneficiary, d.reason.code) for d in of(made, Suspend)] == [
        ("loan", "own", Code.RECALLED)
    ]


# -- elastic gangs ---------------------------------------------------------------------------------------------------

SIZES = Elastic("Worker", (1, 2, 4, 8), (0.3, 0.55, 1.0, 1.7))


def elastic(name: str, seconds: float = 10 * HOUR, **more: Any) -> Any:
    return request(name, 4, seconds, pods=4, elastic=SIZES, **more)


def test_an_elastic_gang_starts_with_what_is_free_and_not_more_than_is_worth_it() -> None:
    (start,) = plan(snapshot(count_level(16), queue=[elastic("e")])).starts
    assert (start.size, sum(p.count for p in start.placement)) == (8, 8)
    (start,) = plan(snapshot(count_level(3), queue=[elastic("e")])).starts
    assert start.size == 2


def test_a_gang_that_was_scaled_for_its_deadline_grows_from_there() -> None:
    gang = elastic("due", HOUR, deadline=0.9 * HOUR)
    made = plan(snapshot(count_level(8), queue=[gang]))
    (start,) = made.starts
    assert sum(p.count for p in start.placement) == start.size == 8


def test_growth_goes_where_a_gpu_saves_most_time() -> None:
    gangs = [
        running(elastic(name, s), ("all", 1), size=1, since=0.0)
        for name, s in (("long", 90 * HOUR), ("short", 5 * HOUR))
    ]
    made = plan(snapshot(count_level(5), now=HOUR, running=gangs))
    assert {d.request: d.size for d in of(made, Resize)} == {"long": 4}


def test_a_grown_gang_shrinks_for_one_that_is_blocked() -> None:
    gang = running(elastic("grown"), ("all", 8), size=8)
    made = plan(snapshot(count_level(8), now=HOUR, queue=[request("rigid", 4, HOUR)], running=[gang]))
    (smaller,) = of(made, Resize)
    assert (smaller.size, smaller.beneficiary, smaller.reason.code) == (4, "rigid", Code.SHRUNK)
    assert sum(p.count for p in smaller.placement) == 4


@pytest.mark.parametrize(
    "change",
    [{"resized": HOUR - 200}, {"since": None, "phase": Phase.STARTING}],
    ids=["just resized", "still starting"],
)
def test_hysteresis(change: dict[str, Any]) -> None:
    gang = running(
        elastic("grown"),
        ("all", 8),
        size=8,
        **{"since": 0.0} | {k: v for k, v in change.items() if k != "since"},
    )
    if "since" in change:
        gang = Running(gang.request, "p", gang.placement, HOUR - 60, None, Phase.STARTING, 8)
    made = plan(snapshot(count_level(8), now=HOUR, queue=[request("rigid", 4, HOUR)], running=[gang]))
    assert not of(made, Resize)


def test_between_rounds_gangs_only_grow_into_what_is_free() -> None:
    gang = running(elastic("small"), ("all", 1), size=1)
    other = running(elastic("large"), ("all", 4), size=4)
    queue: list[Any] = []
    made = plan(snapshot(count_level(5), now=HOUR, running=[gang, other], queue=queue, round_due=False))
    assert not of(made, Resize), "nothing is free"
    made = plan(snapshot(count_level(8), now=HOUR, running=[gang, other], round_due=False))
    assert [d.size for d in of(made, Resize)] == [4], "it only grows into what is free"


def test_a_deadline_gets_its_minimum_satisfactory_share_first() -> None:
    due = running(elastic("due", 4 * HOUR, deadline=5.5 * HOUR), ("all", 1), size=1)
    other = running(elastic("other", 99 * HOUR), ("all", 1), size=1)
    made = plan(snapshot(count_level(5), now=HOUR, running=[due, other], costs=Costs(0, 0, 0, 60.0)))
    sizes = {d.request: d.size for d in of(made, Resize)}
    assert sizes == {"due": 4}


# -- the rest --------------------------------------------------------------------------------------------------------


def test_every_sentence_can_be_rendered() -> None:
    from airflow_kftrain.scheduling.reasons import Reason

    for code in Code:
        assert Reason(code, {}).sentence()


@pytest.mark.parametrize(
    ("wrong", "field"),
    [({"ageing": -1.0}, "ageing"), ({"depth": 0}, "depth"), ({"idle_cap": 1.5}, "idle_cap")],
)
def test_settings_are_checked(wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        PlannerSettings(**wrong)
    assert raised.value.field == f"planner.{field}"


def test_elastic_sizes_are_checked() -> None:
    with pytest.raises(InvalidInput, match="ascending"):
        Elastic("Worker", (4, 2), (1.0, 0.5))
    with pytest.raises(InvalidInput, match="positive"):
        Elastic("Worker", (1, 2), (0.0, 1.0))


def test_an_eta_never_lies_before_now_and_is_told_to_whoever_can_start() -> None:
    busy = running(request("busy", 8, HOUR, estimate=Estimate.exactly(HOUR)), ("all", 1))
    queue = [request("next", 8, HOUR, deadline=NEVER), request("then", 8, 2 * HOUR), request("never", 99)]
    made = plan(snapshot(count_level(8), now=100.0, queue=queue, running=[busy]))
    first, second = made.eta("next"), made.eta("then")
    assert first is not None
    assert second is not None
    assert 100.0 <= first.p10 <= first.p50 <= first.p90
    assert first.p50 == pytest.approx(HOUR, rel=0.01)
    assert second.p50 == pytest.approx(2 * HOUR, rel=0.01)
    assert made.eta("never") is None
    assert made.eta("nobody") is None


def test_starts_are_in_order_and_of_the_right_kind() -> None:
    made = plan(snapshot(count_level(8), queue=[request("b", 2, 50), request("a", 2, 100)]))
    assert all(isinstance(decision, Start) for decision in made.decisions)
    assert starts(made) == ["b", "a"]
