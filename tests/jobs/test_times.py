from __future__ import annotations

import datetime as dt
import json

import pytest

from airflow_kftrain.jobs.times import JobTimes, admitted_at, resumed_at, suspended_at

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def at(seconds):
    return START + dt.timedelta(seconds=seconds)


def stamp(seconds):
    return at(seconds).isoformat().replace("+00:00", "Z")


def job(annotation=None, *conditions, created=0):
    annotations = {} if annotation is None else {"kftrain/times": annotation}
    return {
        "metadata": {"creationTimestamp": stamp(created), "annotations": annotations},
        "status": {
            "conditions": [
                {"type": t, "status": s, "lastTransitionTime": stamp(when)} for t, s, when in conditions
            ]
        },
    }


def test_times_survive_the_annotation_and_keep_what_others_wrote():
    times = JobTimes(at(1), at(2), 3.5, {"preemptions": 2})
    assert JobTimes.of(job(times.to_text())) == times
    assert json.loads(JobTimes().to_text()) == {"runSeconds": 0.0}


@pytest.mark.parametrize(
    "text", ["", "no json", "[]", "7", '{"gangUpAt": 7, "runSeconds": "x", "admittedAt": "y"}']
)
def test_an_annotation_that_cannot_be_read_counts_as_absent(text):
    assert JobTimes.of(job(text)) == JobTimes()


@pytest.mark.parametrize("seconds", [-5, True, None, "1"])
def test_run_seconds_that_are_none_count_as_zero(seconds):
    assert JobTimes.of(job(json.dumps({"runSeconds": seconds}))).run_seconds == 0.0


def test_b13_run_time_leaves_out_what_was_queued_and_suspended():
    running = JobTimes(gang_up_at=at(300))
    assert running.elapsed(at(350)) == 50
    paused = running.suspended(at(340))
    assert paused.elapsed(at(840)) == 40
    again = JobTimes(gang_up_at=at(840), run_seconds=paused.run_seconds)
    assert again.elapsed(at(850)) == 50


def test_a_clock_that_runs_behind_takes_nothing_away():
    assert JobTimes(gang_up_at=at(10), run_seconds=5).elapsed(at(0)) == 5


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (job(created=3), 3),
        (job(None, ("Suspended", "False", 9)), 9),
        (job(None, ("Suspended", "True", 9)), 0),
        (job(JobTimes(admitted_at=at(20)).to_text(), ("Suspended", "False", 9)), 20),
        (job(JobTimes(admitted_at=at(20)).to_text(), ("Suspended", "False", 30)), 30),
    ],
    ids=["made", "resumed", "suspended", "as the planner wrote", "resumed after what the planner wrote"],
)
def test_admission_is_the_last_of_what_is_known(made, expected):
    assert admitted_at(made) == at(expected)


def test_suspension_and_resumption_are_read_from_the_condition():
    assert suspended_at(job(None, ("Suspended", "True", 4))) == at(4)
    assert resumed_at(job(None, ("Suspended", "True", 4))) is None
    assert resumed_at(job(None, ("Suspended", "False", 5))) == at(5)
    assert admitted_at({"metadata": {}}) is None
