"""Recurring DAGs: reproducible, with names that come back, and shaped as the traces they are fitted to."""

import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.simulate.describe import describe
from airflow_kftrain.simulate.generator import Recurring, recurring
from airflow_kftrain.simulate.traces import read_trace

TRACES = Path(__file__).parents[2] / "benchmarks" / "traces"


def test_a_seed_gives_the_same_jobs_and_another_seed_others():
    short = Recurring(days=3, dags=10)
    assert recurring(1, short) == recurring(1, short)
    assert recurring(1, short) != recurring(2, short)


def test_times_count_from_the_first_submission_and_rise():
    jobs = recurring(1, Recurring(days=3, dags=10)).jobs
    assert jobs[0].submit == 0
    assert all(a.submit <= b.submit for a, b in itertools.pairwise(jobs))


def test_most_jobs_have_a_history_by_their_name_and_ad_hoc_ones_have_none():
    jobs = recurring(1, Recurring(days=14, dags=30)).jobs
    seen = Counter(job.key for job in jobs)
    assert sum(seen[job.key] >= 5 for job in jobs) / len(jobs) > 0.8
    ad_hoc = [job for job in jobs if job.key.startswith("adhoc/")]
    assert 0.03 < len(ad_hoc) / len(jobs) < 0.15
    assert all(seen[job.key] == 1 for job in ad_hoc)


@pytest.mark.parametrize("noise", [0.0, 0.4, 0.8], ids=lambda noise: f"noise {noise}")
def test_runs_of_a_task_spread_as_the_noise_says(noise):
    jobs = recurring(3, Recurring(days=28, dags=40, noise=noise)).jobs
    logs: dict[str, list[float]] = {}
    for job in jobs:
        logs.setdefault(job.key, []).append(float(np.log(job.duration)))
    steps = [np.diff(values) for values in logs.values() if len(values) > 20]
    spread = float(np.median([np.std(step) / np.sqrt(2) for step in steps]))
    assert spread == pytest.approx(noise, abs=0.05)


def test_no_run_outlasts_its_hard_limit_and_deadlines_lie_ahead():
    for job in recurring(1, Recurring(days=7, dags=30)).jobs:
        assert job.run_limit is not None
        assert job.duration <= job.run_limit
        assert job.deadline is None or job.deadline > job.submit


def test_runs_of_a_backfill_have_no_deadline_and_come_at_once():
    made = recurring(5, Recurring(days=28, dags=20, backfills_per_day=3.0, ad_hoc=0.0))
    bare = recurring(5, Recurring(days=28, dags=20, backfills_per_day=0.0, ad_hoc=0.0))
    assert len(made.jobs) > len(bare.jobs)


def test_widths_and_bursts_are_near_those_of_the_traces():
    itp = describe(read_trace(TRACES / "itp-cluster04-60days.csv.gz"))
    philly = describe(read_trace(TRACES / "philly-days-40-43.csv.gz"))
    drawn = [describe(recurring(seed)) for seed in range(1, 6)]
    for row, slack in {
        "1 GPU: share of jobs": 0.1,
        "2-4 GPU: share of jobs": 0.06,
        "5-8 GPU: share of jobs": 0.06,
        "9-31 GPU: share of jobs": 0.015,
        "32+ GPU: share of jobs": 0.015,
        "arrivals: within 60 s of the last": 0.1,
        "arrivals: same width within 60 s": 0.1,
        "arrivals: variance/mean per 5 min": 12.0,
    }.items():
        low, high = sorted((itp[row], philly[row]))
        middle = float(np.median([numbers[row] for numbers in drawn]))
        assert low - slack <= middle <= high + slack, row


def test_capacity_for_a_load_gives_that_load():
    made = recurring(2, Recurring(days=14))
    assert made.load(made.capacity_for(0.95)) == pytest.approx(0.95, abs=0.01)


@pytest.mark.parametrize(
    ("what", "field"),
    [
        ({"days": 0}, "days"),
        ({"dags": 0}, "dags"),
        ({"noise": -1}, "noise"),
        ({"failures": 2}, "failures"),
    ],
    ids=["no time", "no DAG", "negative noise", "more failures than runs"],
)
def test_numbers_out_of_range_are_refused_by_name(what, field):
    with pytest.raises(InvalidInput) as error:
        Recurring(**what)
    assert error.value.field == field
