"""Our controllers make of each job of the table what the training operator makes of it, here and there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

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


def test_at_most_fifteen_differences_are_on_purpose() -> None:
    assert sum(not entry.race for entry in LOCAL) <= 15
