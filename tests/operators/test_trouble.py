"""Which trouble with the cluster is told, and which ends the wait."""

from __future__ import annotations

import pytest

from airflow_kftrain.clock import VirtualClock
from airflow_kftrain.exceptions import ApiUnreachable, ServerError, api_error
from airflow_kftrain.triggers.trouble import Trouble


def forbidden():
    return api_error(403, "Forbidden", "no")


@pytest.fixture
def clock():
    return VirtualClock()


@pytest.fixture
def lines():
    return []


@pytest.fixture
def trouble(clock, lines):
    return Trouble(clock, lines.append)


async def lasts(trouble, clock, errors, every=15.0):
    """What is fatal of a row of errors, one each ``every`` seconds."""
    found = []
    for error in errors:
        found.append(trouble.heed(error))
        await clock.advance(every)
    return [error for error in found if error is not None]


async def test_a_refusal_that_lasts_a_minute_is_fatal(trouble, clock, lines):
    assert len(await lasts(trouble, clock, [forbidden() for _ in range(5)])) == 1
    assert len(lines) == 1


async def test_an_api_that_does_not_answer_is_told_and_never_fatal(trouble, clock, lines):
    errors = [ApiUnreachable("away") if n % 2 else ServerError(503, "x", "y") for n in range(100)]
    assert await lasts(trouble, clock, errors) == []
    assert len(lines) == 1


async def test_one_refusal_before_a_quiet_watch_is_neither_told_nor_fatal(trouble, clock, lines):
    once = forbidden()
    assert await lasts(trouble, clock, [once] * 20) == []
    assert lines == []
    assert not trouble.present


async def test_a_refusal_that_passes_starts_anew(trouble, clock, lines):
    assert (
        await lasts(trouble, clock, [forbidden(), forbidden(), forbidden(), None, forbidden(), forbidden()])
        == []
    )
    assert lines[-1] == "The cluster can be read again"
