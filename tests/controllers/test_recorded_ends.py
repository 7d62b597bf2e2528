"""How nineteen jobs end, against what training-operator v1.8.1 did when their pods ended in the same way."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.controllers import differences
from tests.controllers.recorded import ENDS
from tests.controllers.test_recorded_objects import is_subsequence


@pytest.mark.parametrize("name", sorted(ENDS))
async def test_the_same_pods_end_the_job_in_the_same_way(name, stage):
    recorded = ENDS[name]
    stage = await stage(recorded["manifest"]["kind"])
    await stage.submit(recorded["manifest"])
    await stage.settle()
    if ["Warning", "Unschedulable"] in recorded["events"]:
        await stage.block()
    await stage.play()
    first = {pod_name: pod["metadata"]["uid"] for pod_name, pod in (await stage.pods()).items()}
    for place, code in recorded["ends"]:
        await stage.end(f"{name}-{place}", code)
        await stage.play()

    left = {
        pod_name: [
            pod["status"]["phase"],
            "same" if first[pod_name] == pod["metadata"]["uid"] else "made anew",
        ]
        for pod_name, pod in (await stage.pods()).items()
    }
    assert left == differences.expected(name, "pods_left", recorded["pods_left"])
    assert await stage.services() == differences.expected(name, "services_left", recorded["services_left"])
    assert await stage.event_kinds(name) == recorded["events"]
    assert stage.history[-1] == recorded["status_over_time"][-1]
    assert is_subsequence(once_started(recorded["status_over_time"]), stage.history)
    assert unseen(stage.history, recorded["status_over_time"]) <= PASSING


def once_started(history):
    """A recording without the statuses before anything ran, of which polling caught some and not others."""
    return [status for status in history if _types(status) not in ([], ["Created"])]


def unseen(history, recorded):
    """Statuses of ours that the recording does not show, once anything ran: by their conditions."""
    return {
        tuple(f"{kind}={truth}" for kind, truth, _ in status["conditions"])
        for status in once_started(history)
        if status not in recorded
    }


def _types(status):
    return [condition[0] for condition in status["conditions"]]


# What lasts for one turn only: recordings that polled have missed it here and caught it there.
PASSING = {
    ("Created=True", "Restarting=True"),
    ("Created=True", "Running=True"),  # with a replica less, while its new pod is still waiting
    ("Created=True", "Running=False", "Succeeded=True"),
}


def test_every_difference_names_a_recording():
    assert {difference.manifest for difference in differences.RECORDED} <= ENDS.keys()


def test_every_difference_in_behaviour_has_its_test():
    here = Path(__file__).parent
    tests = "".join(path.read_text() for path in here.glob("test_*.py"))
    missing = [b.field for b in differences.BEHAVIOURS if f"def {b.test}(" not in tests]
    assert missing == []
    assert len(differences.RECORDED) + len(differences.BEHAVIOURS) <= 15
