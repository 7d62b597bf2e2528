import math

import pytest

from airflow_kftrain.simulate.engine import Run, Sample, simulate
from airflow_kftrain.simulate.metrics import Summary, eta_quality, finish_time_fairness, measure
from airflow_kftrain.simulate.policies import policy
from airflow_kftrain.simulate.world import FREE, Cluster, Record
from tests.simulate.builders import HOUR, job, workload


def run_of(*jobs, name="best-effort-fifo", capacity=8):
    return simulate(workload(*jobs), Cluster.count(capacity), policy(name), FREE)


def test_completion_wait_and_slowdown_of_a_queue_of_two():
    m = measure(run_of(job("a", 0, 100, 8, deadline=100), job("b", 0, 300, 8, deadline=350)))
    assert (m.jct.mean, m.jct.longest, m.wait.mean, m.wait.longest) == (250, 400, 50, 100)
    assert m.jct_by_work == pytest.approx((100 * 100 + 400 * 300) / 400)
    assert m.slowdown == pytest.approx((1 + 400 / 300) / 2)
    assert (m.deadlines_met, m.tardiness) == (0.5, 25)
    assert set(m.wait_by_class) == {"5-8"}


def test_a_short_job_counts_as_a_minute_in_the_slowdown():
    m = measure(run_of(job("a", 0, 60, 8), job("b", 0, 1, 8)))
    assert m.slowdown == pytest.approx((1 + 61 / 60) / 2)


def test_without_deadlines_there_is_no_share_of_them():
    m = measure(run_of(job("a", 0, 60, 8)))
    assert math.isnan(m.deadlines_met)
    assert math.isnan(m.eta_inside)


def test_use_is_counted_between_first_and_last_submission_only():
    m = measure(run_of(job("a", 0, 1000, 4), job("b", 100, 10, 4)))
    assert m.used == pytest.approx(0.5)


def test_idle_capacity_is_held_when_a_waiting_gang_would_fit_and_stuck_when_none_does():
    late = job("late", 100, 1, 1)
    blocked = measure(run_of(job("a", 0, 100, 5), job("wide", 0, 10, 8), late))
    assert (blocked.held, blocked.stuck) == (0, pytest.approx(3 / 8))
    kept = measure(
        run_of(job("a", 0, 100, 5), job("w", 0, 10, 8), job("n", 0, 500, 1), late, name="strict-fifo")
    )
    assert (kept.held, kept.stuck) == (pytest.approx(3 / 8), 0)


def test_an_eta_counts_only_for_jobs_that_had_to_wait():
    jobs = [job(f"{n}", 0, 10, 1) for n in range(4)]
    records = [
        Record(first_start=0, eta=(0, 0, 0)),
        Record(first_start=1000, eta=(900, 950, 1100)),
        Record(first_start=1000, eta=(100, 200, 300)),
        Record(first_start=1000),
    ]
    inside, told, error = eta_quality(records, jobs)
    assert inside == 0.5
    assert told == pytest.approx(2 / 3)
    assert error == pytest.approx((0.05 + 0.8) / 2)


def test_fairness_compares_each_job_with_itself_alone():
    apart = run_of(job("a", 0, 100, 8, group="x"))
    shared = run_of(job("other", 0, 50, 8, group="y"), job("a", 0, 100, 8, group="x"))
    assert finish_time_fairness(shared, [apart]) == {"x": Summary(1.5, 1.5, 1.5, 1.5)}


def test_a_run_that_is_not_over_has_no_metrics():
    one = workload(job("a", 0, HOUR, 1))
    with pytest.raises(ValueError, match="not over"):
        measure(Run(one, Cluster.count(1), "none", [Record()], [Sample(0, 0, 0, 0, 0, 0)]))


def test_the_summary_of_nothing_is_zero():
    assert Summary.of([]) == Summary(0, 0, 0, 0)
