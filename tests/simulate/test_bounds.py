"""A bound that any policy beats is wrong."""

import math

import pytest
from hypothesis import given, settings

from airflow_kftrain.simulate import bounds
from airflow_kftrain.simulate.engine import simulate
from airflow_kftrain.simulate.metrics import measure
from airflow_kftrain.simulate.policies import BASELINES, policy
from airflow_kftrain.simulate.workload import Speed
from airflow_kftrain.simulate.world import FREE, Cluster
from tests.simulate.builders import job, workload, workloads


@settings(max_examples=60, deadline=None)
@given(workloads(deadlines=True))
def test_no_policy_is_better_than_any_bound(drawn):
    jct = bounds.jct_bounds(drawn, 16)
    latest = bounds.makespan(drawn, 16)
    due = bounds.deadline_bound(drawn, 16, bin_seconds=600)
    feasible = bounds.feasible_share(drawn, 16)
    for name in BASELINES:
        run = simulate(drawn, Cluster.count(16), policy(name), FREE)
        result = measure(run)
        for bound in (jct.duration, jct.squashed_area, jct.busy_time):
            assert result.jct.mean >= bound - 1e-6, name
        assert max(record.end for record in run.records) >= latest - 1e-6
        if not math.isnan(due):
            assert result.deadlines_met <= due + 1e-6, name
            assert result.deadlines_met <= feasible + 1e-6, name


def test_the_bounds_of_two_gangs_that_fill_the_cluster_are_known():
    two = workload(job("a", 0, 100, 8), job("b", 0, 100, 8))
    found = bounds.jct_bounds(two, 8)
    assert found.duration == 100
    assert found.squashed_area == 150
    assert found.busy_time == pytest.approx(150)  # tight: one after the other
    assert found.best == pytest.approx(150)
    assert bounds.makespan(two, 8) == 200


def test_only_one_of_two_gangs_can_be_on_time_when_there_is_time_for_one():
    two = workload(job("a", 0, 3600, 8, deadline=3600), job("b", 0, 3600, 8, deadline=3600))
    assert bounds.feasible_share(two, 8) == 1.0
    assert bounds.deadline_bound(two, 8) == pytest.approx(0.5)


def test_a_deadline_before_the_work_can_be_done_counts_as_missed():
    assert bounds.deadline_bound(workload(job("a", 0, 100, 1, deadline=50)), 8) == 0.0
    assert math.isnan(bounds.deadline_bound(workload(job("a", 0, 100, 1)), 8))


def test_a_wider_gang_may_meet_what_the_requested_one_cannot():
    elastic = workload(job("a", 0, 100, 1, deadline=60, speed=Speed(((1, 1.0), (2, 1.8), (4, 2.5)))))
    assert bounds.feasible_share(elastic, 4) == 0.0
    assert bounds.feasible_share(elastic, 4, elastic=True) == 1.0
    assert bounds.feasible_share(elastic, 1, elastic=True) == 0.0
    assert bounds.elastic_jct_bounds(elastic, 4).duration == pytest.approx(40)


def test_less_capacity_never_lowers_a_bound():
    drawn = workload(*(job(f"{n}", 10.0 * n, 100 + n, 1 + n % 4) for n in range(40)))
    for small, large in ((4, 5), (5, 8), (8, 64)):
        assert bounds.jct_bounds(drawn, small).busy_time >= bounds.jct_bounds(drawn, large).busy_time
        assert bounds.squashed_area(drawn, small) >= bounds.squashed_area(drawn, large)
