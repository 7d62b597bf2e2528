"""The benchmark's own arithmetic; its runs are too long for a test."""

import json
import math
from dataclasses import astuple, replace

import pytest

from benchmarks.scheduling import _known
from benchmarks.scheduling_cases import Case, partition_sizes, run_case, workload_of
from benchmarks.scheduling_rows import ROWS
from tests.simulate.builders import job, workload

NUMBERS = {
    "ratio": 1.2, "wait_max": 3600.0, "wait_mean:1": 600.0, "wait_mean:8+": 900.0, "stuck": 0.01, "due_met": 0.9,
    "jct": 7200.0, "apart_jct": 8000.0, "eta_told": 1.0, "eta_inside": 0.8, "windows_given": 3, "windows_broken": 0,
    "held_beyond": 0.01, "rho_mean:a": 1.0, "rho_p99:a": 2.0, "rho_max:a": 3.0, "gpus:a": 8,
}  # fmt: skip


@pytest.mark.parametrize("row", [row for row in ROWS if row.name != "due"], ids=lambda row: row.name)
def test_each_aim_says_what_was_measured_and_a_miss_is_a_miss(row):
    good = list(row.aims({case: [NUMBERS] for case in row.cases.values()}))
    assert all(aim.measured and aim.wanted for aim in good)
    nothing = list(row.aims({}))
    assert not any(aim.met for aim in nothing)
    assert len(nothing) <= len(good)


def test_no_two_labels_of_a_row_are_the_same_case():
    for row in ROWS:
        assert len(set(row.cases.values())) == len(row.cases)


def test_quick_leaves_out_what_no_aim_needs_and_the_whole_run_has_ten_replicas():
    row = next(row for row in ROWS if row.name == "itp")
    quick, whole = list(row.replicas(quick=True)), list(row.replicas(quick=False))
    planner = row.cases["planner"]
    assert planner in quick
    assert row.cases["planner, exact"] not in quick
    assert sum(replace(case, replica=0) == planner for case in whole) == 10
    assert sum(replace(case, replica=0) == row.cases["planner, exact"] for case in whole) == 3


def test_a_case_runs_and_its_numbers_are_plain_and_finite():
    numbers = run_case(Case("philly-days-40-43", "best-effort-fifo", capacity=384))
    assert numbers["ratio"] == pytest.approx(1.31, abs=0.01)
    assert json.loads(json.dumps(numbers)) is not None
    assert math.isfinite(numbers["jct_p99"])


def test_replicas_are_shaken_and_deadlines_are_those_of_the_model():
    base = Case("philly-days-40-43", "edf", due="b")
    first, second = workload_of(base), workload_of(Case("philly-days-40-43", "edf", due="b", replica=1))
    assert first.jobs != second.jobs
    assert max(spec.duration for spec in first.jobs) <= 48 * 3600
    assert all(spec.deadline is not None for spec in first.jobs)


def test_each_partition_has_its_own_load_and_room_for_its_widest_gang():
    jobs = workload(
        job("a", 0, 900, 1, group="x"), job("b", 1000, 900, 1, group="x"), job("c", 1, 9, 64, group="y")
    )
    assert partition_sizes(jobs, 0.9) == {"x": 2, "y": 64}


def test_results_of_an_earlier_run_are_found_again(tmp_path):
    case = Case("recurring", "planner", tweaks=(("ageing", 0.15),))
    path = tmp_path / "runs.jsonl"
    path.write_text(json.dumps({"case": list(astuple(case)), "numbers": {"jct": 1.0}}) + "\n")
    assert _known(path) == {case: {"jct": 1.0}}
    assert _known(tmp_path / "none") == {}
