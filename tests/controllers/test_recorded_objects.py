"""Sixteen jobs through our controller on the local API, against what training-operator v1.8.1 made of them."""

from __future__ import annotations

import pytest

from airflow_kftrain.cluster.resources import PODGROUPS, PODS, SERVICES
from airflow_kftrain.controllers.objects import JOB_NAME
from tests.controllers.recorded import OBJECTS, as_recorded
from tests.controllers.stage import NAMESPACE


async def everything(stage, uid):
    found = {}
    for field, resource in (("pods", PODS), ("services", SERVICES), ("podgroups", PODGROUPS)):
        selector = None if resource == PODGROUPS else JOB_NAME
        listed = await stage.cluster.list(resource, NAMESPACE, label_selector=selector)
        found[field] = sorted(
            (as_recorded(obj, uid) for obj in listed.items), key=lambda obj: obj["metadata"]["name"]
        )
    return found


@pytest.mark.parametrize("name", sorted(OBJECTS))
async def test_the_same_job_becomes_the_same_objects(name, stage):
    recorded = OBJECTS[name]
    stage = await stage(recorded["manifest"]["kind"])
    submitted = await stage.submit(recorded["manifest"])
    await stage.settle()
    if ["Warning", "Unschedulable"] in recorded["events"]:
        await stage.block()
    await stage.play()

    made = await everything(stage, submitted["metadata"]["uid"])
    assert {field: made[field] for field in made} == {field: recorded[field] for field in made}
    assert await stage.event_kinds(name) == recorded["events"]
    job = await stage.job(name)
    assert job["spec"] == submitted["spec"], "defaults are the API's to write, not the controller's"
    assert (job["status"].get("replicaStatuses") or None) == recorded["replicaStatuses"]
    seen = [status["conditions"] for status in stage.history]
    assert is_subsequence(recorded["conditions_over_time"], seen)
    assert seen[-1] == recorded["conditions_over_time"][-1]


def is_subsequence(wanted, seen):
    """Whether ``wanted``, which polling may have thinned out, appears in ``seen`` in its order."""
    rest = iter(seen)
    return all(any(item == candidate for candidate in rest) for item in wanted)


@pytest.mark.parametrize("name", sorted(OBJECTS))
async def test_the_api_fills_in_the_defaults_of_the_real_definitions(name, stage):
    recorded = OBJECTS[name]
    stage = await stage(recorded["manifest"]["kind"])
    submitted = await stage.submit(recorded["manifest"])
    assert submitted["spec"] == recorded["defaulted_spec"]
