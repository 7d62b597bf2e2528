from __future__ import annotations

import datetime as dt
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kftrain.jobs.status import JobStatus, ReplicaCounts, State, parse_time


def condition(type_, status="True", at=0, **more):
    stamp = f"2026-01-01T00:00:{at:02}Z"
    return {"type": type_, "status": status, "lastTransitionTime": stamp, "lastUpdateTime": stamp, **more}


def job(*conditions, suspend=None, **status):
    run_policy = {} if suspend is None else {"suspend": suspend}
    return {"spec": {"runPolicy": run_policy}, "status": {"conditions": list(conditions), **status}}


def state(*conditions, **more):
    return JobStatus.from_object(job(*conditions, **more)).state


@pytest.mark.parametrize(
    "order", list(itertools.permutations(range(3))), ids=lambda order: "".join(map(str, order))
)
@pytest.mark.parametrize("final", [State.FAILED, State.SUCCEEDED])
def test_b02_a_final_condition_wins_in_every_order(order, final):
    conditions = [condition("Created", at=0), condition(final.name.title(), at=5), condition("Running", at=5)]
    assert state(*(conditions[n] for n in order)) is final


any_conditions = st.lists(
    st.builds(
        condition,
        st.sampled_from(["Created", "Running", "Restarting", "Suspended", "Succeeded", "Failed", "Else"]),
        st.sampled_from(["True", "False", "Unknown", "true", ""]),
        st.integers(0, 59),
    ),
    max_size=6,
)


@given(any_conditions, st.sampled_from([None, True, False]), st.randoms())
def test_b02_the_state_does_not_depend_on_the_order(conditions, suspend, random):
    shuffled = random.sample(conditions, len(conditions))
    assert state(*conditions, suspend=suspend) is state(*shuffled, suspend=suspend)


@given(any_conditions, st.sampled_from([None, True, False]))
def test_b04_only_conditions_that_are_true_make_a_state_final(conditions, suspend):
    held = {c["type"] for c in conditions if c["status"] == "True"}
    expected = State.FAILED if "Failed" in held else State.SUCCEEDED if "Succeeded" in held else None
    found = state(*conditions, suspend=suspend)
    assert (found if found.final else None) is expected


@pytest.mark.parametrize(
    "obj",
    [
        {},
        {"status": None},
        {"status": {}},
        {"status": {"conditions": None}},
        {"status": {"conditions": []}},
        {"status": "odd"},
        {"status": {"conditions": ["odd", None, {"type": "Failed"}, {"status": "True"}]}},
        {"status": {"replicaStatuses": None, "startTime": None}},
    ],
)
def test_b03_a_status_that_says_nothing_means_submitted(obj):
    assert JobStatus.from_object(obj).state is State.SUBMITTED


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([condition("Created"), condition("Suspended", "False"), condition("Running")], State.RUNNING),
        ([condition("Created"), condition("Suspended", "False"), condition("Running", "False")], State.PENDING),
        ([condition("Created"), condition("Complete", "Unknown")], State.PENDING),
        ([condition("Running"), condition("Succeeded", "False")], State.RUNNING),
        ([condition("Running"), condition("Failed", "Unknown")], State.RUNNING),
        ([condition("Running", "False")], State.PENDING),
        ([condition("Created", "False")], State.PENDING),
    ],
)  # fmt: skip
def test_b04_false_and_unknown_say_nothing(conditions, expected):
    assert state(*conditions) is expected


def test_failed_wins_over_succeeded():
    found = JobStatus.from_object(
        job(
            condition("Succeeded", reason="JobSucceeded"),
            condition("Failed", reason="JobFailed", message="why"),
        )
    )
    assert (found.state, found.reason, found.message) == (State.FAILED, "JobFailed", "why")


@pytest.mark.parametrize(
    ("conditions", "status", "expected"),
    [
        ([], {}, State.QUEUED),
        ([condition("Created")], {}, State.QUEUED),
        ([condition("Created"), condition("Suspended")], {}, State.QUEUED),
        ([condition("Created"), condition("Running", "False"), condition("Suspended")], {}, State.SUSPENDED),
        (
            [condition("Created"), condition("Suspended")],
            {"startTime": "2026-01-01T00:00:00Z"},
            State.SUSPENDED,
        ),
        ([condition("Created"), condition("Running")], {}, State.SUSPENDED),
        ([condition("Succeeded"), condition("Suspended")], {}, State.SUCCEEDED),
    ],
    ids=[
        "never looked at",
        "created",
        "suspended from the start",
        "suspended after it ran",
        "suspended after it started",
        "told to suspend while the condition lags",
        "suspended when it was finished",
    ],
)
def test_suspension_is_read_from_the_spec(conditions, status, expected):
    assert state(*conditions, suspend=True, **status) is expected


def test_a_resumed_job_whose_condition_lags_is_pending():
    assert state(condition("Created"), condition("Suspended"), suspend=False) is State.PENDING


def test_restarting_is_said_before_running():
    assert state(condition("Running"), condition("Restarting")) is State.RESTARTING
    assert state(condition("Running"), condition("Restarting", "False")) is State.RUNNING


def test_counts_times_and_deletion_are_read():
    obj = job(
        condition("Running"),
        replicaStatuses={
            "Worker": {"active": 2, "failed": 1, "selector": "x"},
            "Master": None,
            "PS": {"active": "?"},
        },
        startTime="2026-01-01T00:00:00Z",
        completionTime="no time",
    )
    obj["metadata"] = {"deletionTimestamp": "2026-01-01T00:00:01Z"}
    found = JobStatus.from_object(obj)
    assert found.replicas == {
        "Worker": ReplicaCounts(2, 0, 1),
        "Master": ReplicaCounts(),
        "PS": ReplicaCounts(),
    }
    assert found.start_time == dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    assert found.completion_time is None
    assert found.deleting


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-01T01:00:00+01:00", dt.datetime(2026, 1, 1, tzinfo=dt.UTC)),
        ("2026-01-01T00:00:00.500000Z", dt.datetime(2026, 1, 1, 0, 0, 0, 500000, tzinfo=dt.UTC)),
        ("2026-01-01T00:00:00", dt.datetime(2026, 1, 1, tzinfo=dt.UTC)),
        ("", None),
        (None, None),
        (7, None),
    ],
)
def test_times_are_aware_and_in_utc(text, expected):
    assert parse_time(text) == expected
