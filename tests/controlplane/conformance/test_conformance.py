"""Our controllers make of each job of the table what the training operator makes of it, here and there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.controlplane.conformance import columns
from tests.controlplane.conformance.compare import Comparison, compare
from tests.controlplane.conformance.known import CONTROLLERS, LOCAL
from tests.controlplane.conformance.play import Column
from tests.controlplane.conformance.record import Record
from tests.controlplane.conformance.table import CASES
from tests.controlplane.rig import Rig

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]

Records = dict[str, Record]


@pytest.fixture(scope="module")
def operator(rig: Rig) -> Records:
    """What the training operator made of the table."""
    return _played(columns.training_operator(rig))


@pytest.fixture(scope="module")
def ours(rig: Rig) -> Records:
    """What our controllers made of it on the same API."""
    return _played(columns.ours_on_the_real_api(rig))


@pytest.fixture(scope="module")
def on_the_local_cluster(tmp_path_factory: pytest.TempPathFactory) -> Records:
    """What our controllers made of the table on the local cluster."""

    return _played(columns.ours_locally(tmp_path_factory.mktemp("local")))


def _played(column: contextlib.AbstractAsyncContextManager[Column]) -> Records:
    async def play() -> Records:
        async with column as ready:
            return await ready.play(CASES)

    return asyncio.run(play())


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str]) -> Callable[[Comparison], None]:
    """Prints a comparison, and fails on what nobody listed and on what is listed and is no more."""

    def show(comparison: Comparison) -> None:
        with capsys.disabled():
            print(f"\n{comparison.table()}")
        assert not comparison.unknown, f"differences that are not listed:\n{comparison.details()}"
        stale = "\n".join(f"  {entry.case} {entry.field}" for entry in comparison.stale)
        assert not stale, f"listed differences that are no more; take them off the list:\n{stale}"

    return show


def test_every_job_of_the_table_was_played(operator: Records, ours: Records) -> None:
    assert operator.keys() == ours.keys() == {case.name for case in CASES}


def test_our_controllers_do_what_the_training_operator_does(
    operator: Records, ours: Records, report: Callable[[Comparison], None]
) -> None:
    report(compare("training operator", "ours on the real API", operator, ours, CONTROLLERS))


def test_the_local_cluster_does_what_the_training_operator_does(
    operator: Records,
    on_the_local_cluster: Records,
    report: Callable[[Comparison], None],
) -> None:
    report(compare("training operator", "ours on the local cluster", operator, on_the_local_cluster, LOCAL))


@pytest.mark.parametrize(
    ("case", "field", "value"),
    [
        ("deadline-passes", "steps/passed/job/conditions/Failed", "True XGBoostJobFailed"),
        ("deadline-passes", "steps/passed/pods", None),
        ("no-workers", "steps/ended/job/conditions/Succeeded", "True XGBoostJobSucceeded"),
        ("no-workers", "events/Normal SuccessfulCreatePod", 1),
        ("restarts-anew-to-the-limit", "steps/killed/pods/worker-0/identity", "made anew"),
        ("restarts-anew-to-the-limit", "steps/killed again/job/conditions/Failed", "True XGBoostJobFailed"),
        ("worker-lost", "steps/lost/pods/worker-1/identity", "made anew"),
        ("worker-lost", "steps/lost/job/conditions/Running", "True XGBoostJobRunning"),
    ],
)
def test_what_differs_on_purpose_is_as_the_list_says(
    ours: Records, on_the_local_cluster: Records, case: str, field: str, value: object
) -> None:
    for records in (ours, on_the_local_cluster):
        found: Any = records[case].value
        for key in field.split("/"):
            found = (found or {}).get(key)
        assert (found or None) == value


def test_what_the_webhook_refuses_fails_at_once_and_makes_nothing(
    operator: Records, ours: Records, on_the_local_cluster: Records
) -> None:
    refused = [name for name, record in operator.items() if "refused" in record.value["steps"]["created"]]
    assert len(refused) >= 10
    for records in (ours, on_the_local_cluster):
        for name in refused:
            made = records[name].value["steps"]["created"]
            kind = next(case.manifest["kind"] for case in CASES if case.name == name)
            assert made["job"]["conditions"].get("Failed") == f"True {kind}FailedValidation", name
            assert [made[part] for part in ("pods", "services", "podgroups")] == [{}, {}, {}], name


def test_at_most_fifteen_differences_are_on_purpose() -> None:
    assert sum(not entry.race for entry in LOCAL) <= 15
