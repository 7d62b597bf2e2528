"""Our controllers make of each job of the table what the training operator makes of it, here and there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.controlplane.conformance import columns
from tests.controlplane.conformance.cases import Case
from tests.controlplane.conformance.compare import Comparison, Known, compare
from tests.controlplane.conformance.known import CONTROLLERS, LOCAL
from tests.controlplane.conformance.play import Column
from tests.controlplane.conformance.record import Record
from tests.controlplane.conformance.table import CASES
from tests.controlplane.rig import Rig

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]

Records = dict[str, Record]

REPLAYS = 2


class Played:
    """What one column made of the table."""

    def __init__(self, column: Callable[[], contextlib.AbstractAsyncContextManager[Column]]) -> None:
        self._column = column
        self.records: Records = {}
        self.play(CASES)

    def play(self, cases: Sequence[Case]) -> None:
        """Play ``cases``; their records take the place of earlier ones."""

        async def play() -> Records:
            async with self._column() as ready:
                return await ready.play(cases)

        self.records |= asyncio.run(play())


@pytest.fixture(scope="module")
def operator(rig: Rig) -> Played:
    """What the training operator made of the table."""
    return Played(lambda: columns.training_operator(rig))


@pytest.fixture(scope="module")
def ours(rig: Rig) -> Played:
    """What our controllers made of it on the same API."""
    return Played(lambda: columns.ours_on_the_real_api(rig))


@pytest.fixture(scope="module")
def locally(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """What our controllers made of it on the local cluster."""
    return Played(lambda: columns.ours_locally(tmp_path_factory.mktemp("local")))


@pytest.fixture
def hold_against(operator: Played, capsys: pytest.CaptureFixture[str]) -> Callable[..., None]:
    """Holds a column against the operator's and prints the comparison.

    Fails on what differs and is not listed, and on what is listed and does not differ. The operator has races that
    nobody has listed yet: a job that differs is played again by both, and counts if it differs each time.
    """

    def hold(title: str, column: Played, known: Sequence[Known]) -> None:
        def comparison() -> Comparison:
            return compare("training operator", title, operator.records, column.records, known)

        found = comparison()
        for _ in range(REPLAYS):
            names = {difference.case for difference in found.unknown}
            if not names:
                break
            with capsys.disabled():
                print(f"\nplayed again: {', '.join(sorted(names))}:\n{found.details(40)}")
            for played in (operator, column):
                played.play([case for case in CASES if case.name in names])
            found = comparison()
        with capsys.disabled():
            print(f"\n{found.table()}")
        assert not found.unknown, f"differences that are not listed:\n{found.details()}"
        stale = "\n".join(f"  {entry.case} {entry.field}" for entry in found.stale)
        assert not stale, f"listed differences that are no more; take them off the list:\n{stale}"

    return hold


def test_every_job_of_the_table_was_played(operator: Played, ours: Played) -> None:
    assert operator.records.keys() == ours.records.keys() == {case.name for case in CASES}


def test_our_controllers_do_what_the_training_operator_does(
    ours: Played, hold_against: Callable[..., None]
) -> None:
    hold_against("ours on the real API", ours, CONTROLLERS)


def test_the_local_cluster_does_what_the_training_operator_does(
    locally: Played, hold_against: Callable[..., None]
) -> None:
    hold_against("ours on the local cluster", locally, LOCAL)


@pytest.mark.parametrize(
    ("case", "field", "value"),
    [
        ("deadline-passes", "steps/passed/job/conditions/Failed", "True XGBoostJobFailed"),
        ("deadline-passes", "steps/passed/pods", None),
        ("no-workers", "steps/ended/job/conditions/Succeeded", "True XGBoostJobSucceeded"),
        ("no-workers", "events/Normal SuccessfulCreatePod", 1),
        ("restarts-anew-to-the-limit", "steps/killed/pods/worker-0/identity", "made anew"),
        ("restarts-anew-to-the-limit", "steps/killed again/job/conditions/Failed", "True XGBoostJobFailed"),
        ("no-restart-allowed", "steps/killed/pods", None),
        ("restarts-in-place-to-the-limit", "steps/killed again/pods", None),
        ("worker-lost", "steps/lost/pods/worker-1/identity", "made anew"),
        ("worker-lost", "steps/lost/job/conditions/Running", "True XGBoostJobRunning"),
    ],
)
def test_what_differs_on_purpose_is_as_the_list_says(
    ours: Played, locally: Played, case: str, field: str, value: object
) -> None:
    for played in (ours, locally):
        found: Any = played.records[case].value
        for key in field.split("/"):
            found = (found or {}).get(key)
        assert (found or None) == value


def test_what_the_webhook_refuses_fails_at_once_and_makes_nothing(
    operator: Played, ours: Played, locally: Played
) -> None:
    refused = [
        name for name, record in operator.records.items() if "refused" in record.value["steps"]["created"]
    ]
    assert len(refused) >= 10
    for played in (ours, locally):
        for name in refused:
            made = played.records[name].value["steps"]["created"]
            kind = next(case.manifest["kind"] for case in CASES if case.name == name)
            assert made["job"]["conditions"].get("Failed") == f"True {kind}FailedValidation", name
            assert [made[part] for part in ("pods", "services", "podgroups")] == [{}, {}, {}], name


def test_at_most_fifteen_differences_are_on_purpose() -> None:
    assert sum(not entry.race for entry in LOCAL) <= 15
