"""The model against what training-operator v1.8.1 was given and made of it."""

from __future__ import annotations

import pytest

from airflow_kftrain.jobs.manifest import from_manifest, to_manifest
from airflow_kftrain.jobs.pods import GangRequest, pod_request
from airflow_kftrain.jobs.status import JobStatus, State
from tests.controllers.recorded import ENDS, OBJECTS

MANIFESTS = {name: recording["manifest"] for name, recording in {**OBJECTS, **ENDS}.items()}


@pytest.mark.parametrize("job", MANIFESTS.values(), ids=MANIFESTS)
def test_every_recorded_manifest_is_read_and_written_as_it_was(job):
    assert to_manifest(from_manifest(job)) == job


@pytest.mark.parametrize("recording", OBJECTS.values(), ids=OBJECTS)
def test_the_gangs_size_and_request_are_those_of_the_pod_group_and_the_pods(recording):
    spec = from_manifest(recording["manifest"])
    for group in recording["podgroups"]:
        assert spec.min_available == group["spec"]["minMember"]
    if not recording["pods"]:
        assert spec.run_policy.suspend
        return
    assert sorted(pod["metadata"]["name"] for pod in recording["pods"]) == sorted(
        f"{spec.name}-{name}" for name in spec.replica_names
    )
    assert GangRequest.of(spec).total.to_dict() == {"nvidia.com/gpu": str(GangRequest.of(spec).gpus)}
    assert sum(pod_request(pod["spec"]).gpus for pod in recording["pods"]) == GangRequest.of(spec).gpus


@pytest.mark.parametrize("recording", OBJECTS.values(), ids=OBJECTS)
def test_the_first_replica_is_the_one_the_operator_gives_the_masters_role(recording):
    spec = from_manifest(recording["manifest"])
    leading = [
        pod["metadata"]["name"]
        for pod in recording["pods"]
        if pod["metadata"]["labels"].get("training.kubeflow.org/job-role") == "master"
    ]
    assert leading == ([f"{spec.name}-{spec.first}"] if recording["pods"] else [])


def state(manifest, conditions):
    entries = [{"type": type_, "status": status, "reason": reason} for type_, status, reason in conditions]
    return JobStatus.from_object({**manifest, "status": {"conditions": entries}}).state


@pytest.mark.parametrize("recording", ENDS.values(), ids=ENDS)
def test_states_move_forward_to_the_recorded_end(recording):
    states = [state(recording["manifest"], status["conditions"]) for status in recording["status_over_time"]]
    assert states[0] is State.SUBMITTED
    final = [s for s in states if s.final]
    assert states[len(states) - len(final) :] == final
    assert len(set(final)) <= 1
    held = {type_ for type_, status, _ in recording["status_over_time"][-1]["conditions"] if status == "True"}
    assert states[-1].name.title() in held


def test_a_job_suspended_from_the_start_is_queued_throughout():
    recording = OBJECTS["xgb-suspended"]
    states = {state(recording["manifest"], conditions) for conditions in recording["conditions_over_time"]}
    assert states == {State.QUEUED}
