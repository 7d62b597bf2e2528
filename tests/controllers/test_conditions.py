"""How conditions follow each other."""

from __future__ import annotations

import datetime as dt

import pytest

from airflow_kftrain.controllers import conditions as cond
from airflow_kftrain.controllers.status import Counts, StatusDraft

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
LATER = NOW + dt.timedelta(seconds=5)


def draft_with(*steps, status=None):
    draft = StatusDraft("XGBoostJob", status or {}, NOW)
    for condition, truth in steps:
        draft.set(condition, "text", truth=truth)
    return draft


def shown(draft):
    return [(c["type"], c["status"]) for c in draft.conditions]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param(
            ["Created", "Running"], [("Created", "True"), ("Running", "True")], id="the newest goes last"
        ),
        pytest.param(
            ["Running", "Restarting"], [("Restarting", "True")], id="restarting takes the place of running"
        ),
        pytest.param(
            ["Restarting", "Running"], [("Running", "True")], id="running takes the place of restarting"
        ),
        pytest.param(
            ["Running", "Succeeded"],
            [("Running", "False"), ("Succeeded", "True")],
            id="success turns running false",
        ),
        pytest.param(
            ["Running", "Failed"],
            [("Running", "False"), ("Failed", "True")],
            id="failure turns running false",
        ),
        pytest.param(
            ["Failed", "Succeeded", "Running"], [("Failed", "True")], id="a failed job changes no more"
        ),
        pytest.param(
            ["Succeeded", "Failed"],
            [("Succeeded", "True"), ("Failed", "True")],
            id="a failure is still noted on a job that succeeded",
        ),
    ],
)
def test_sequences(steps, expected):
    assert shown(draft_with(*[(step, "True") for step in steps])) == expected


def test_a_repeated_condition_changes_nothing():
    once = draft_with(("Running", "True")).conditions
    again = cond.with_condition(once, "Running", "True", "XGBoostJobRunning", "other text", LATER)
    assert again == once


def test_a_new_reason_keeps_the_time_of_the_transition():
    once = draft_with(("Running", "True")).conditions
    (again,) = cond.with_condition(once, "Running", "True", "Other", "text", LATER)
    assert (again["lastTransitionTime"], again["lastUpdateTime"]) == (
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:05Z",
    )


@pytest.mark.parametrize("truth", ["False", "Unknown"])
def test_only_true_counts(truth):
    assert not draft_with(("Succeeded", truth)).finished


def test_success_after_a_resume_is_told_from_the_suspension():
    draft = draft_with(
        ("Created", "True"), ("Suspended", "True"), ("Suspended", "False"), ("Running", "True")
    )
    assert shown(draft) == [("Created", "True"), ("Suspended", "False"), ("Running", "True")]
    assert not draft.is_true("Suspended")


def test_an_untouched_status_is_not_written():
    status = {
        "conditions": [{"type": "Created", "status": "True", "reason": "XGBoostJobCreated", "message": "m"}],
        "replicaStatuses": {"Master": {"active": 1}, "Worker": {}},
        "startTime": "2026-01-01T00:00:00Z",
        "lastReconcileTime": "2026-01-01T00:00:00Z",
    }
    draft = StatusDraft("XGBoostJob", status, LATER)
    assert not draft.changed
    draft.set("Created", "again")
    assert not draft.changed
    draft.counts["Worker"].active = 2
    assert draft.changed
    assert status["replicaStatuses"]["Worker"] == {}


def test_replicas_at_work_when_the_job_succeeds_count_as_succeeded():
    draft = draft_with(("Succeeded", "True"))
    draft.counts = {"Master": Counts(succeeded=1), "Worker": Counts(active=2, failed=1, selector="a=b")}
    draft.settle_success()
    draft.settle_success()
    assert draft.to_dict()["replicaStatuses"] == {
        "Master": {"succeeded": 1},
        "Worker": {"succeeded": 2, "failed": 1, "selector": "a=b"},
    }


def test_the_end_of_a_job_failed_without_completion_time_is_that_of_its_condition():
    draft = draft_with(("Failed", "True"))
    assert "completionTime" not in draft.to_dict()
    assert draft.finish_time == NOW
