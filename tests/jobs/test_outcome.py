from __future__ import annotations

import datetime as dt
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_kftrain.jobs.causes import Cause
from airflow_kftrain.jobs.gang import Gang, Replica, Waiting
from airflow_kftrain.jobs.outcome import LARGEST, Outcome, ReplicaResult, Times, blame, results
from airflow_kftrain.jobs.plain import cut_text, json_size
from airflow_kftrain.jobs.progress import Progress
from airflow_kftrain.jobs.status import State

moments = st.none() | st.datetimes(timezones=st.just(dt.UTC))
texts = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=30)
replica_names = st.builds("{}-{}".format, st.sampled_from(["master", "worker"]), st.integers(0, 99))
replica_results = st.lists(
    st.builds(
        ReplicaResult,
        name=replica_names,
        phase=st.sampled_from(["Succeeded", "Failed", "Running"]),
        exit_code=st.none() | st.integers(0, 255),
        restarts=st.integers(0, 9),
        reason=st.none() | texts,
        uid=st.none() | texts,
        starts=st.none() | st.integers(0, 9),
    ),
    max_size=5,
    unique_by=lambda result: result.name,
).map(tuple)
outcomes = st.builds(
    Outcome,
    state=st.sampled_from([State.SUCCEEDED, State.FAILED]),
    kind=texts,
    namespace=texts,
    name=texts,
    uid=texts,
    cause=st.none() | st.sampled_from(Cause),
    reason=texts,
    message=texts,
    replicas=replica_results,
    times=st.builds(Times, moments, moments, moments, moments),
    progress=st.builds(
        Progress,
        st.none() | st.floats(0, 100),
        st.none() | st.floats(0, 1e9),
        st.dictionaries(
            texts, texts | st.booleans() | st.floats(allow_nan=False, allow_infinity=False), max_size=3
        ),
        st.none() | texts.filter(bool),
        st.none() | texts.filter(bool),
    ),
    cut=st.lists(texts, max_size=2).map(tuple),
)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(outcomes)
def test_an_outcome_survives_the_way_through_json(outcome):
    assert Outcome.from_json(json.loads(json.dumps(outcome.to_json(), allow_nan=False))) == outcome


def outcome(**more):
    return Outcome(
        **{"state": State.FAILED, "kind": "XGBoostJob", "namespace": "ml", "name": "t", "uid": "u", **more}
    )


def test_the_json_is_what_the_docs_promise():
    made = outcome(
        cause=Cause.OOM_KILLED,
        reason="XGBoostJobFailed",
        message="worker-1: Failed, exit code 137 (OOMKilled)",
        replicas=(ReplicaResult("worker-1", "Failed", 137, 2, "OOMKilled", "u-1", 3),),
        times=Times(queued=dt.datetime(2026, 1, 1, tzinfo=dt.UTC)),
        progress=Progress(40.0, 60.0, {"loss": 0.5}, "/m", "/c"),
    )
    assert made.to_json() == {
        "state": "failed",
        "cause": "OOMKilled",
        "reason": "XGBoostJobFailed",
        "message": "worker-1: Failed, exit code 137 (OOMKilled)",
        "job": {"kind": "XGBoostJob", "namespace": "ml", "name": "t", "uid": "u"},
        "times": {"queued": "2026-01-01T00:00:00+00:00", "admitted": None, "gang_up": None, "finished": None},
        "replicas": {
            "worker-1": {
                "phase": "Failed",
                "exit_code": 137,
                "restarts": 2,
                "reason": "OOMKilled",
                "uid": "u-1",
                "starts": 3,
            }
        },
        "progress": {"progressPercentage": 40.0, "estimatedRemainingSeconds": 60.0},
        "metrics": {"loss": 0.5},
        "model": "/m",
        "checkpoint": "/c",
        "cut": [],
    }
    assert made.exit_codes == {"worker-1": 137}
    assert not made.succeeded


HUGE = {
    "a long message": outcome(message="x" * 100_000),
    "a long message in another script": outcome(message="試" * 100_000),
    "many replicas": outcome(replicas=tuple(ReplicaResult(f"worker-{n}", "Running") for n in range(5000))),
    "many metrics": outcome(progress=Progress(metrics={f"m{n}": "\x01" * 170 for n in range(100)})),
    "everything at once": outcome(
        reason="r" * 90_000,
        message="\x01" * 90_000,
        replicas=tuple(
            ReplicaResult(f"worker-{n}", "Failed" if n % 50 == 7 else "Running", reason="\x01" * 9000)
            for n in range(500)
        ),
        progress=Progress(
            99.0, 1.0, {f"m{n}": "\u0394" * 170 for n in range(100)}, {"a": "x" * 1000}, "\u0394" * 170
        ),
        cut=("note",) * 50,
    ),
}  # fmt: skip


@pytest.mark.parametrize("huge", HUGE.values(), ids=HUGE)
def test_whatever_a_job_says_the_json_is_bounded_and_notes_what_was_cut(huge):
    made = huge.to_json()
    assert json_size(made) <= LARGEST
    assert made["cut"]
    assert json_size(made) > 5_000
    again = Outcome.from_json(made)
    assert again.to_json() == made
    assert (again.state, again.uid) == (huge.state, huge.uid)


def test_replicas_that_failed_are_kept_first():
    made = HUGE["everything at once"].to_json()
    kept = made["replicas"]
    assert {name for name, result in kept.items() if result["phase"] == "Failed"} == {
        f"worker-{n}" for n in range(7, 500, 50)
    }
    assert f"replicas: {len(kept)} of 500 kept, those that failed first" in made["cut"]


def test_an_outcome_that_fits_is_left_whole():
    made = outcome(message="x" * 40_000).to_json()
    assert made["message"] == "x" * 40_000
    assert made["cut"] == []


def test_text_from_a_container_cannot_break_a_json_column():
    made = outcome(
        message="a\x00b\ud800", replicas=(ReplicaResult("worker-0", "Failed", reason="\x00"),)
    ).to_json()
    assert made["message"] == "a\ufffdb?"
    assert made["replicas"]["worker-0"]["reason"] == "\ufffd"


@given(st.text(), st.integers(20, 60))
def test_cut_text_fits_and_is_a_beginning(text, budget):
    cut = cut_text(text, budget)
    assert json_size(cut) <= budget
    assert cut == text or text.startswith(cut.removesuffix("… (cut)"))


def failed(name, reason="Error", code=1, message=""):
    replica_type, _, index = name.rpartition("-")
    return Replica(replica_type.title(), int(index), "Failed", exit_code=code, reason=reason, message=message)


def waiting(name, cause, text):
    replica_type, _, index = name.rpartition("-")
    return Replica(replica_type.title(), int(index), "Pending", waiting=Waiting(cause, text))


@pytest.mark.parametrize(
    ("replicas", "cause", "text"),
    [
        (
            [failed("master-0"), failed("worker-1", "OOMKilled", 137)],
            Cause.OOM_KILLED,
            "worker-1: Failed, exit code 137 (OOMKilled)",
        ),
        ([failed("worker-0"), failed("worker-1")], Cause.EXIT_CODE, "worker-0: Failed, exit code 1 (Error)"),
        (
            [failed("worker-0", code=3, message="no data")],
            Cause.EXIT_CODE,
            "worker-0: Failed, exit code 3 (Error): no data",
        ),
        ([failed("worker-0", None, None)], Cause.START_LIMIT, "worker-0: Failed"),
        ([waiting("worker-0", Cause.IMAGE_PULL, "image x")], Cause.IMAGE_PULL, "worker-0: image x"),
        (
            [waiting("worker-0", Cause.TERMINATING, "leaves"), waiting("worker-1", Cause.QUOTA, "full")],
            Cause.QUOTA,
            "worker-1: full",
        ),
        ([Replica("Worker", 0, "Running")], Cause.START_LIMIT, ""),
    ],
    ids=[
        "memory explains more than the exit code that followed",
        "the first of equals",
        "with the container's own message",
        "nothing known of the end",
        "what the first waits for",
        "a pod on its way out explains nothing",
        "all is well",
    ],
)
def test_the_replica_to_blame_is_named(replicas, cause, text):
    assert blame(Gang(tuple(replicas)), fallback=Cause.START_LIMIT) == (cause, text)


def test_results_carry_starts_and_what_a_replica_waited_for():
    gang = Gang((failed("worker-0", code=137), waiting("worker-1", Cause.IMAGE_PULL, "image x")))
    assert [(r.name, r.exit_code, r.reason, r.starts) for r in results(gang, starts={"worker-0": 4})] == [
        ("worker-0", 137, "Error", 4),
        ("worker-1", None, "ImagePull", None),
    ]
