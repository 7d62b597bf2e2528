import pytest

from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.simulate.deadlines import MODELS
from airflow_kftrain.simulate.traces import sample
from airflow_kftrain.simulate.workload import Speed, cut
from tests.simulate.builders import HOUR, job, workload


def test_shaking_moves_times_a_little_and_deadlines_with_them():
    still = workload(*(job(f"{n}", 1000.0 * n, 500, 1, deadline=1000.0 * n + 900) for n in range(200)))
    shaken = still.shaken(3)
    assert still.shaken(0) is still
    assert shaken == still.shaken(3)
    assert shaken != still.shaken(4)
    before = {spec.id: spec for spec in still.jobs}
    for after in shaken.jobs:
        assert after.duration == pytest.approx(500, rel=0.1)
        assert after.submit == pytest.approx(before[after.id].submit, abs=400)
        assert after.deadline is not None
        assert after.deadline - after.submit == pytest.approx(900)


def test_load_is_work_over_capacity_between_first_and_last_submission():
    assert workload(job("a", 0, 100, 4), job("b", 100, 100, 4)).load(8) == 1.0
    with pytest.raises(InvalidInput, match="two times"):
        workload(job("a", 0, 100, 4)).load(8)


def test_capacity_is_never_below_the_widest_gang():
    narrow = workload(job("a", 0, 1, 64), job("b", 1000, 1, 1))
    assert narrow.capacity_for(0.95) == 64
    assert narrow.capacity_to_try() == 64
    assert workload(job("a", 0, 1, 64)).capacity_for(0.95) == 64


def test_a_gang_between_measured_sizes_runs_as_the_next_smaller_one():
    speed = Speed(((1, 1.0), (4, 3.0)))
    assert [speed.at(gpus) for gpus in (1, 3, 4, 100)] == [1.0, 1.0, 3.0, 3.0]


def test_durations_can_be_cut():
    assert [j.duration for j in workload(job("a", 0, 100, 1), job("b", 0, 5, 1)).map(cut(50)).jobs] == [50, 5]


@pytest.mark.parametrize("model", MODELS)
def test_each_model_gives_every_job_a_deadline_that_an_empty_cluster_can_meet(model):
    made = MODELS[model](sample("itp-day"), 1)
    assert all(j.deadline is not None and j.deadline >= j.submit + j.duration + 599 for j in made.jobs)
    assert made == MODELS[model](sample("itp-day"), 1)
    assert made != MODELS[model](sample("itp-day"), 2)


def test_deadlines_by_the_clock_lie_on_its_boundaries():
    for spec in MODELS["b"](sample("itp-day"), 1).jobs:
        assert spec.deadline is not None
        assert spec.deadline % (6 * HOUR) == 0
