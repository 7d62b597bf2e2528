"""Expected starts: the fluid forecast and its calibration."""

from __future__ import annotations

import numpy as np
import pytest

from airflow_kftrain.scheduling.forecast import Calibration
from airflow_kftrain.scheduling.planner import plan
from tests.support.gangs import HOUR, count_level, request, running, snapshot


@pytest.mark.parametrize(("bias", "sigma"), [(1.0, 0.3), (4.0, 0.3), (0.3, 1.5), (2.0, 2.5)])
def test_eight_of_ten_starts_fall_inside_whatever_the_forecast_is_worth(bias: float, sigma: float) -> None:
    draw, known, inside = np.random.default_rng(2), Calibration(), 0
    for n in range(3000):
        raw = float(draw.exponential(2 * HOUR))
        wait = raw * bias * float(np.exp(draw.normal(0, sigma)))
        told = known.eta(f"g{n}", int(draw.choice([1, 4, 32])), 0.0, raw)
        known.started(f"g{n}", wait)
        if n >= 300:
            inside += told.p10 <= wait <= told.p90
    assert inside / 2700 == pytest.approx(0.8, abs=0.05)


def test_it_follows_when_the_load_changes() -> None:
    draw, known, inside = np.random.default_rng(2), Calibration(), []
    for n in range(4000):
        wait = HOUR * (1 + 3 * (n // 1000 % 2)) * float(np.exp(draw.normal(0, 0.5)))
        told = known.eta(f"g{n}", 4, 0.0, HOUR)
        known.started(f"g{n}", wait)
        inside.append(told.p10 <= wait <= told.p90)
    assert np.mean(inside[500:]) == pytest.approx(0.8, abs=0.05)


def test_it_learns_from_the_first_forecast_only_when_the_gang_starts() -> None:
    known = Calibration()
    for n in range(30):
        known.eta(f"g{n}", 1, 0.0, HOUR)
        known.eta(f"g{n}", 1, 1800.0, 60.0)
    before = known.eta("new", 1, 0.0, HOUR)
    for n in range(30):
        known.started(f"g{n}", 2 * HOUR)
    after = known.eta("newer", 1, 0.0, HOUR)
    assert before.p50 == pytest.approx(HOUR)
    assert after.p50 == pytest.approx(2 * HOUR)


def test_a_cancelled_gang_teaches_nothing() -> None:
    known = Calibration()
    for n in range(30):
        known.eta(f"g{n}", 1, 0.0, HOUR)
        known.forget(f"g{n}")
        known.started(f"g{n}", 50 * HOUR)
    assert known.eta("new", 1, 0.0, HOUR).p50 == pytest.approx(HOUR)


def test_work_that_stands_before_a_gang_takes_its_time() -> None:
    """8 GPUs; a wide gang behind 16 GPU-hours of others, of which half can start now."""
    queue = [request(f"s{n}", 4, HOUR, submitted=float(n)) for n in range(4)] + [
        request("wide", 8, 9 * HOUR, submitted=9.0)
    ]
    made = plan(snapshot(count_level(8), now=10.0, queue=queue))
    told = made.eta("wide")
    assert told is not None
    assert told.p50 - 10.0 == pytest.approx(2 * HOUR, rel=0.01)


def test_a_gang_that_runs_is_told_nothing() -> None:
    gang = running(request("a", 1), ("all", 1))
    assert plan(snapshot(count_level(8), running=[gang])).eta("a") is None
