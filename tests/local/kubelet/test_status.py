"""The status a kubelet writes, from what it knows of the containers."""

from __future__ import annotations

import datetime as dt

import pytest

from airflow_kftrain.local.kubelet.machine import BackOff
from airflow_kftrain.local.kubelet.status import ContainerState, PodState, Terminated, lost, pod_status
from tests.support.pods import container, pod

NOW = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


def waiting(name: str = "c", reason: str = "ContainerCreating") -> ContainerState:
    return ContainerState(name, "i", waiting=(reason, ""))


def running(name: str = "c", *, sidecar: bool = False) -> ContainerState:
    return ContainerState(name, "i", sidecar, waiting=None, started_at=NOW)


def ended(code: int, name: str = "c", *, sidecar: bool = False) -> ContainerState:
    how = Terminated(code, "Completed" if code == 0 else "Error", NOW, NOW)
    return ContainerState(name, "i", sidecar, waiting=None, started_at=NOW, terminated=how)


def backing_off() -> ContainerState:
    state = ended(1)
    state.waiting, state.last = ("CrashLoopBackOff", ""), state.terminated
    return state


@pytest.mark.parametrize(
    ("containers", "inits", "policy", "phase"),
    [
        pytest.param([waiting()], [], "Never", "Pending", id="nothing started"),
        pytest.param([waiting()], [running()], "Never", "Pending", id="init container at work"),
        pytest.param([waiting()], [ended(1)], "Never", "Failed", id="init container failed for good"),
        pytest.param([waiting()], [ended(1)], "OnFailure", "Pending", id="init container to be tried again"),
        pytest.param([running()], [ended(0)], "Never", "Running", id="running"),
        pytest.param([running(), waiting("d")], [], "Never", "Running", id="one of two started"),
        pytest.param([running(), ended(1, "d")], [], "Never", "Running", id="one of two ended"),
        pytest.param([ended(0)], [], "Never", "Succeeded", id="success"),
        pytest.param([ended(0)], [], "OnFailure", "Succeeded", id="success under OnFailure"),
        pytest.param([ended(0)], [], "Always", "Running", id="Always: it starts again"),
        pytest.param([ended(1)], [], "Never", "Failed", id="failure"),
        pytest.param([ended(1)], [], "OnFailure", "Running", id="OnFailure: it starts again"),
        pytest.param([backing_off()], [], "OnFailure", "Running", id="back-off"),
        pytest.param([ended(0)], [running("s", sidecar=True)], "Never", "Running", id="a sidecar still ends"),
        pytest.param(
            [ended(0)], [ended(143, "s", sidecar=True)], "Never", "Succeeded", id="sidecars do not count"
        ),
    ],
)
def test_phases(containers: list, inits: list, policy: str, phase: str):
    assert PodState(containers, inits).phase(policy) == phase


def test_a_verdict_is_written_once_no_process_is_left():
    state = PodState([running()], verdict=("Failed", "DeadlineExceeded", "too long"))
    assert state.phase("Never") == "Running"
    state.containers = [ended(143)]
    status = pod_status(pod(), state, NOW)
    assert (status["phase"], status["reason"], status["message"]) == (
        "Failed",
        "DeadlineExceeded",
        "too long",
    )


def conditions(status: dict) -> dict[str, tuple[str, str]]:
    return {c["type"]: (c["status"], c.get("reason", "")) for c in status["conditions"]}


def test_conditions_follow_the_containers_and_keep_their_time_while_they_stay():
    found = pod(restartPolicy="Never")
    found["status"]["conditions"] = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "x"}]
    first = pod_status(found, PodState([running()], start_time=NOW), NOW)
    assert conditions(first)["Ready"] == ("True", "")
    assert conditions(first)["PodScheduled"] == ("True", "")
    found["status"] = first
    later = pod_status(found, PodState([ended(0)], start_time=NOW), NOW + dt.timedelta(minutes=1))
    assert conditions(later)["Ready"] == ("False", "PodCompleted")
    assert conditions(later)["Initialized"] == ("True", "PodCompleted")
    times = {c["type"]: c["lastTransitionTime"] for c in later["conditions"]}
    assert times["Initialized"] == "2026-01-01T12:00:00Z"
    assert times["Ready"] == "2026-01-01T12:01:00Z"
    unready = pod_status(found, PodState([running(), waiting("d")], start_time=NOW), NOW)
    assert conditions(unready)["ContainersReady"] == ("False", "ContainersNotReady")


def test_a_lost_pod_failed_and_its_running_containers_count_as_killed():
    found = pod(containers=[container("a"), container("b")])
    found["status"] |= {"startTime": "2026-01-01T11:00:00Z", "phase": "Running"}
    found["status"]["containerStatuses"] = [
        running("a").to_dict(init=False) | {"restartCount": 2},
        ended(0, "b").to_dict(init=False),
    ]
    status = lost(found, NOW, "its kubelet ended")
    assert (status["phase"], status["reason"]) == ("Failed", "NodeLost")
    assert status["startTime"] == "2026-01-01T11:00:00Z"
    first, second = status["containerStatuses"]
    assert first["state"]["terminated"]["exitCode"] == 137
    assert first["state"]["terminated"]["reason"] == "ContainerStatusUnknown"
    assert first["restartCount"] == 2
    assert second["state"]["terminated"]["exitCode"] == 0


def test_the_back_off_doubles_from_ten_seconds_to_five_minutes():
    pauses = [BackOff().pause(failures) for failures in range(1, 9)]
    assert pauses == [0, 10, 20, 40, 80, 160, 300, 300]
