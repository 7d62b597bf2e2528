"""The ``kftrain/times`` annotation."""

from __future__ import annotations

import datetime as dt
import json

import pytest

from airflow_kftrain.jobs.identity import TIMES
from airflow_kftrain.jobs.times import JobTimes, admitted_at

NOW = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


def job(text=None, *, created="2026-01-01T10:00:00Z", conditions=()):
    return {
        "metadata": {
            "creationTimestamp": created,
            "annotations": {TIMES: text} if text is not None else None,
        },
        "status": {"conditions": list(conditions)},
    }


def at(minute):
    return dt.datetime(2026, 1, 1, 11, minute, tzinfo=dt.UTC)


def test_what_is_written_reads_back_with_fields_of_others():
    times = JobTimes(at(0), at(5), 12.5, {"preemptions": 2})
    assert JobTimes.of(job(times.to_text())) == times


@pytest.mark.parametrize("text", [None, "", "{", "[]", "7", '{"runSeconds": "many", "gangUpAt": 3}'])
def test_what_cannot_be_read_counts_as_absent(text):
    assert JobTimes.of(job(text)) == JobTimes()


@pytest.mark.parametrize("seconds", [-5, "Infinity"])
def test_run_seconds_are_never_negative_or_endless(seconds):
    text = json.dumps({"runSeconds": seconds}).replace('"Infinity"', "Infinity")
    assert JobTimes.of(job(text)).run_seconds == 0.0


def test_suspended_time_is_left_out():
    times = JobTimes(gang_up_at=at(0), run_seconds=10).suspended(at(1))
    assert times.elapsed(NOW) == 70


def test_the_last_of_creation_resumption_and_the_planners_word_is_the_admission():
    resumed = {"type": "Suspended", "status": "False", "lastTransitionTime": "2026-01-01T11:30:00Z"}
    assert admitted_at(job()) == dt.datetime(2026, 1, 1, 10, tzinfo=dt.UTC)
    assert admitted_at(job(conditions=[resumed])) == at(30)
    assert admitted_at(job(JobTimes(at(40)).to_text(), conditions=[resumed])) == at(40)
