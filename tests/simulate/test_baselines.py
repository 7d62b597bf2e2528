"""Each baseline does what its name says, and all give the published figures on real traces."""

from pathlib import Path

import pytest

from airflow_kftrain.simulate import bounds
from airflow_kftrain.simulate.baselines import Backfill, by_submission
from airflow_kftrain.simulate.engine import simulate
from airflow_kftrain.simulate.estimates import Exact, History, Noisy, corrected
from airflow_kftrain.simulate.metrics import measure
from airflow_kftrain.simulate.policies import policy
from airflow_kftrain.simulate.traces import read_trace
from airflow_kftrain.simulate.world import FREE, Cluster, Costs, World
from tests.simulate.builders import job, workload

TRACES = Path(__file__).parents[2] / "benchmarks" / "traces"


def starts(name, jobs, capacity=8, cluster=None):
    run = simulate(workload(*jobs), cluster or Cluster.count(capacity), policy(name), FREE)
    return {spec.id: record.first_start for spec, record in zip(run.workload.jobs, run.records, strict=True)}


#: 4 GPUs are free until t=100, when all 8 are; "wide" is blocked until then.
QUEUE = [
    job("runs", 0, 100, 4),
    job("wide", 1, 50, 8),
    job("short", 2, 90, 4),
    job("long", 3, 500, 4, deadline=520),
    job("tiny", 4, 10, 1, deadline=1000),
]
EXPECTED = {
    "strict-fifo": {"wide": 100, "short": 150, "long": 150, "tiny": 240},
    "best-effort-fifo": {"wide": 592, "short": 2, "long": 92, "tiny": 100},
    "easy": {"wide": 100, "short": 2, "long": 150, "tiny": 150},
    "smallest": {"wide": 600, "short": 2, "long": 100, "tiny": 92},
    "sjf": {"wide": 102, "short": 2, "long": 152, "tiny": 92},
}


@pytest.mark.parametrize("name", EXPECTED)
def test_who_passes_a_blocked_gang(name):
    found = starts(name, QUEUE)
    assert {key: found[key] for key in EXPECTED[name]} == EXPECTED[name]


def test_conservative_backfilling_delays_none_before():
    found = starts("conservative", QUEUE)
    assert found["short"] == 2
    assert found["wide"] == 100
    # under EASY the second blocked gang has no reservation, here it has
    second = [*QUEUE[:2], job("next", 2, 50, 6), job("filler", 3, 60, 2)]
    assert starts("easy", second)["filler"] <= starts("conservative", second)["filler"]


def test_the_first_blocked_gang_is_never_delayed_by_backfilling_when_durations_are_known():
    crowd = [job("runs", 0, 100, 7), job("wide", 1, 50, 8)]
    crowd += [job(f"s{n}", 2 + n, 30 + 10 * n, 1) for n in range(12)]
    assert starts("easy", crowd)["wide"] == 100
    assert starts("best-effort-fifo", crowd)["wide"] > 100


def test_on_nodes_the_reserved_gang_keeps_its_very_nodes():
    cluster = Cluster.of_nodes(16)
    crowd = [job("a", 0, 100, 8), job("wide", 1, 50, 16), job("b", 2, 99, 8), job("c", 3, 90, 8)]
    found = starts("easy", crowd, cluster=cluster)
    assert found["wide"] == 100
    assert found["c"] == 3
    assert found["b"] == 150


def test_earliest_deadline_goes_first_and_jobs_without_one_last():
    crowd = [job("runs", 0, 100, 8), job("none", 1, 10, 8), job("late", 2, 10, 8, deadline=900)]
    crowd.append(job("soon", 3, 10, 8, deadline=500))
    found = starts("edf", crowd)
    assert (found["soon"], found["late"], found["none"]) == (100, 110, 120)


def test_shortest_service_counts_width_times_duration():
    crowd = [job("runs", 0, 100, 8), job("wide", 1, 10, 8), job("narrow", 2, 70, 1)]
    found = starts("sjf", crowd)
    assert found["narrow"] == 100
    assert found["wide"] == 170


def test_the_oracle_preempts_for_less_remaining_service():
    two = workload(job("long", 0, 1000, 8), job("short", 10, 10, 8))
    run = simulate(two, Cluster.count(8), policy("oracle"), Costs(0, 0, restart=0))
    assert [record.end for record in run.records] == [1010, 20]
    assert run.records[0].preemptions == 1


def test_least_attained_service_serves_newcomers_first_and_first_come_within_a_queue():
    crowd = workload(job("old", 0, 10_000, 1), job("new", 5_000, 100, 1), job("newer", 5_050, 100, 1))
    run = simulate(crowd, Cluster.count(1), policy("2d-las"), Costs(0, 0, restart=0))
    assert [record.end for record in run.records] == [10_200, 5_100, 5_200]


def test_what_a_run_is_believed_to_last_grows_when_it_has_outlived_that():
    assert corrected(100, 50) == 100
    assert corrected(100, 200) == 500
    assert corrected(100, 10_000) == 15_000


def test_history_learns_from_ends_only_and_falls_back_from_name_to_size_to_all():
    world = World(
        (job("a", 0, 1000, 2, key="x"), job("b", 0, 2000, 2, key="y"), job("c", 0, 9, 4)),
        Cluster.count(8),
        FREE,
    )
    history = History()
    assert history.of(world, 0) == 3600
    history.finished(world, 0)
    assert history.of(world, 0) == 1000
    assert history.of(world, 1) == 1000
    history.finished(world, 1)
    assert history.of(world, 1) == 2000
    assert history.of(world, 2) == 1500


def test_noise_is_the_jobs_own_whatever_the_policy():
    world = World(tuple(job(f"{n}", 0, 1000, 1) for n in range(500)), Cluster.count(8), FREE)
    first, again, other = (Noisy(0.4, seed) for seed in (1, 1, 2))
    assert [first.of(world, n) for n in range(500)] == [again.of(world, n) for n in reversed(range(500))][
        ::-1
    ]
    assert first.of(world, 3) != other.of(world, 3)
    assert Exact().of(world, 3) == 1000


PUBLISHED = [
    ("itp-cluster04-week", 416, "strict-fifo", 8.00),
    ("itp-cluster04-week", 416, "best-effort-fifo", 3.01),
    ("itp-cluster04-week", 416, "easy", 7.31),
    ("itp-cluster04-week", 416, "smallest", 1.44),
    ("itp-cluster04-week", 416, "sjf", 1.34),
    ("itp-cluster04-week", 416, "oracle", 1.05),
    ("philly-days-40-43", 384, "strict-fifo", 1.70),
    ("philly-days-40-43", 384, "best-effort-fifo", 1.31),
    ("philly-days-40-43", 384, "easy", 1.66),
    ("philly-days-40-43", 384, "smallest", 1.21),
    ("philly-days-40-43", 384, "sjf", 1.15),
    ("philly-days-40-43", 384, "oracle", 1.02),
]


@pytest.mark.parametrize(("trace", "capacity", "name", "ratio"), PUBLISHED, ids=lambda v: str(v))
def test_average_completion_over_the_bound_is_as_published(trace, capacity, name, ratio):
    read = read_trace(TRACES / f"{trace}.csv.gz")
    run = simulate(read, Cluster.count(capacity), policy(name), Costs(0, 0, restart=0))
    found = measure(run).jct.mean / bounds.jct_bounds(read, capacity).best
    assert found == pytest.approx(ratio, abs=0.006)


def test_a_backfill_policy_reports_its_name():
    assert Backfill("mine", by_submission).name == "mine"
