"""The planner in the engine: the host's part is done right, and its promises hold to the last second."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_kftrain.jobs.resources import GPU_RESOURCES, Resources
from airflow_kftrain.scheduling.model import Window
from airflow_kftrain.scheduling.settings import PlannerSettings, Preemption
from airflow_kftrain.simulate import bounds
from airflow_kftrain.simulate.engine import simulate
from airflow_kftrain.simulate.metrics import measure
from airflow_kftrain.simulate.planned import Lending, Planned, Settings
from airflow_kftrain.simulate.predicting import Learnt, Told
from airflow_kftrain.simulate.traces import sample
from airflow_kftrain.simulate.workload import Speed, Workload
from airflow_kftrain.simulate.world import FREE, Cluster, Costs
from tests.simulate.builders import HOUR, job, workload, workloads

COSTS = Costs(startup=20, termination=10, restart=50, rescale=5)


def planned(preemption=Preemption.DEADLINE, **others):
    return Planned(settings=Settings(planner=PlannerSettings(preemption=preemption), **others))


@settings(max_examples=25, deadline=None)
@given(
    workloads(deadlines=True, elastic=True),
    st.sampled_from([Cluster.count(16), Cluster.of_nodes(16)]),
    st.sampled_from(Preemption),
)
def test_the_planner_never_holds_more_than_there_is_and_ends_all_work(drawn, cluster, preemption):
    run = simulate(drawn, cluster, planned(preemption, elastic=True), COSTS, checked=True)
    assert all(0 <= taken.used <= 16 for taken in run.samples)
    assert all(record.end is not None for record in run.records)
    if preemption is Preemption.NEVER:
        assert not any(record.preemptions for record in run.records)


@settings(max_examples=10, deadline=None)
@given(workloads(deadlines=True))
def test_the_same_workload_gives_the_same_run(drawn):
    first, second = (simulate(drawn, Cluster.of_nodes(16), planned(), COSTS) for _ in range(2))
    assert first.records == second.records


@settings(max_examples=20, deadline=None)
@given(workloads(largest=8))
def test_no_run_of_the_planner_is_better_than_a_bound(drawn):
    run = simulate(drawn, Cluster.count(16), planned(), FREE)
    assert measure(run).jct.mean >= bounds.jct_bounds(drawn, 16).best - 1e-6


def daily(amount, lead=60.0):
    held = Resources({GPU_RESOURCES[0]: amount})
    return tuple(Window("w", "default", at, at + HOUR, held, lead) for at in (2 * HOUR, 4 * HOUR, 6 * HOUR))


def test_guaranteed_windows_are_kept_by_suspending_and_by_hard_limits():
    crowd = [job(f"r{n}", 60.0 * n, 3 * HOUR, 4, resumable=True) for n in range(6)]
    crowd += [job(f"h{n}", 60.0 * n, HOUR, 4, resumable=False, run_limit=1.5 * HOUR) for n in range(6)]
    policy = planned(windows=daily(8))
    run = simulate(workload(*crowd), Cluster.of_nodes(16), policy, COSTS, checked=True)
    assert (policy.given, policy.broken) == (3, 0)
    assert any(record.preemptions for record in run.records)


def test_a_window_that_is_not_kept_is_counted():
    stubborn = workload(job("a", 0, 3 * HOUR, 16), job("b", 6.5 * HOUR, 60, 1))
    policy = planned(windows=daily(8))
    blind = Planned(settings=Settings())
    blind.settings = policy.settings
    blind._snapshot = lambda world, make=blind._snapshot: _without_windows(make(world))
    simulate(stubborn, Cluster.count(16), blind, COSTS)
    assert blind.broken >= 1


def _without_windows(snapshot):
    from dataclasses import replace

    return replace(snapshot, windows=())


def test_history_is_what_has_ended_in_the_run():
    learnt = Learnt()
    run = simulate(
        workload(*(job(f"{n}", 1000.0 * n, 600, 1, key="dag/task") for n in range(20))),
        Cluster.count(4),
        Planned(predictor=learnt),
        FREE,
    )
    assert run.decisions > 20
    assert learnt.error == pytest.approx(math.log(6.0) / 20), (
        "an hour is assumed for the first, the rest is known"
    )


def test_progress_shortens_the_wait_for_a_backfill_decision():
    told = Told()
    assert told.error is None
    simulate(workload(job("a", 0, 600, 1, reports=True)), Cluster.count(1), Planned(predictor=told), FREE)
    assert told.error == 0.0


def test_idle_partitions_lend_and_work_runs_sooner():
    crowd = [job(f"{n}", 10.0 * n, HOUR, 8, group="busy") for n in range(4)]
    crowd.append(job("last", 5 * HOUR, 60, 8, group="idle"))
    cluster = Cluster.partitions({"busy": 8, "idle": 8})
    apart = simulate(workload(*crowd), cluster, planned(), COSTS, checked=True)
    lent = simulate(workload(*crowd), cluster, planned(lending=Lending()), COSTS, checked=True)
    assert measure(lent).jct.mean < measure(apart).jct.mean


def test_elastic_gangs_grow_into_idle_capacity_and_pay_for_each_rescale():
    fast = Speed(((1, 1.0), (2, 2.0), (4, 4.0), (8, 8.0)))
    two = workload(job("a", 0, 4 * HOUR, 1, speed=fast), job("b", 0, HOUR, 7, resumable=False))
    rigid = simulate(two, Cluster.count(8), planned(), COSTS)
    elastic = Planned(settings=Settings(elastic=True), predictor=Told())
    run = simulate(two, Cluster.count(8), elastic, COSTS, checked=True)
    assert run.records[0].rescales >= 1
    assert run.records[0].lost > 0
    assert run.records[0].end < rigid.records[0].end


def test_a_gang_suspended_for_another_keeps_its_work():
    long = job("long", 0, 10 * HOUR, 8)
    short = job("short", 2 * HOUR, 600, 8, key="short", deadline=3 * HOUR)
    policy = Planned(
        settings=Settings(planner=PlannerSettings(preemption=Preemption.SERVICE)), predictor=Told()
    )
    run = simulate(workload(long, short), Cluster.count(8), policy, COSTS, checked=True)
    assert run.records[0].preemptions == 1
    held = sum(end - begin for number, begin, end, _ in run.spans if number == 0)
    assert held == pytest.approx(10 * HOUR + COSTS.startup + COSTS.restart)


def test_the_planner_runs_a_real_sample_within_its_capacity():
    first = Workload.of("first", sample("itp-day").jobs[:250])
    run = simulate(first, Cluster.of_nodes(128), Planned(), checked=True)
    assert measure(run).used > 0.5
