"""Prediction of run times: from finished runs alone, with quantiles that hold, and progress in their place."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.scheduling.history import Finished, History
from airflow_kftrain.scheduling.model import Estimate, Phase
from airflow_kftrain.scheduling.prediction import expected_ends, likely_left, median_left
from airflow_kftrain.scheduling.speedup import SpeedUp, fit
from tests.support.gangs import HOUR, request, running


def taught(*runs: Finished) -> History:
    made = History()
    for run in runs:
        made.learn(run)
    return made


def runs(key: str, gpus: int, *seconds: float, share: str = "") -> list[Finished]:
    return [Finished(key, gpus, s, share) for s in seconds]


@pytest.mark.parametrize(
    ("ask", "p50", "source"),
    [
        (("dag/a", 8, ""), 100.0, "history of dag/a"),
        (("dag/a", 4, ""), 100.0, "history of dag/a"),
        (("dag/new", 8, "team"), 700.0, "history of share"),
        (("dag/new", 8, ""), 100.0, "history of size"),
        (("dag/new", 64, ""), 400.0, "history of all"),
    ],
    ids=["same key and size", "same key", "same share and size", "same size", "anything"],
)
def test_the_narrowest_level_that_has_seen_anything_is_asked(
    ask: tuple[str, int, str], p50: float, source: str
) -> None:
    known = taught(
        *runs("dag/a", 8, 100, 100, 100),
        *runs("dag/b", 2, 700, 700, 700),
        *runs("dag/c", 8, 700, share="team"),
    )
    made = known.estimate(ask[0], ask[1], share=ask[2])
    assert made.source.startswith(source)
    assert made.p50 == pytest.approx(p50, rel=0.8 if source.endswith(("all", "size")) else 1e-9)


def test_a_level_that_does_not_keep_its_promises_is_drawn_towards_all_runs() -> None:
    """Four sizes that say nothing of run times, and four that say everything."""
    draw, nothing, everything = np.random.default_rng(4), History(broad=10), History(broad=10)
    for n in range(800):
        gpus = 1 << n % 4
        nothing.learn(Finished("", gpus, float(draw.lognormal(6, 1.5))))
        everything.learn(Finished("", gpus, gpus**2 * 100.0 * float(draw.lognormal(0, 0.1))))
    said = [math.log(nothing.estimate("", gpus).p50) for gpus in (1, 2, 4, 8)]
    assert max(said) - min(said) < 0.6, "medians of ten such runs are apart by about 1.2"
    assert everything.estimate("", 8).p50 == pytest.approx(6400, rel=0.1)
    assert everything.estimate("", 1).p50 == pytest.approx(100, rel=0.1)


def test_nothing_finished_gives_the_prior() -> None:
    made = History(prior=1800.0).estimate("dag/a", 1)
    assert (made.p50, made.runs, made.source) == (pytest.approx(1800.0), 0, "prior")


def test_recent_runs_count() -> None:
    known = taught(*runs("k", 1, *[100.0] * 30), *runs("k", 1, *[400.0] * 10))
    assert known.estimate("k", 1).p50 == pytest.approx(400.0)


@pytest.mark.parametrize("sigma", [0.2, 0.8])
def test_eight_of_ten_runs_end_between_p10_and_p90_also_while_they_drift(sigma: float) -> None:
    draw, known, inside, below80 = np.random.default_rng(3), History(), 0, 0
    for n in range(3000):
        truth = float(np.exp(draw.normal(math.log(1000) + n / 1500, sigma)))
        made = known.estimate(f"k{n % 20}", 4)
        if n >= 500:
            inside += made.p10 <= truth <= made.p90
            below80 += truth <= made.p80
        known.learn(Finished(f"k{n % 20}", 4, truth))
    assert inside / 2500 == pytest.approx(0.8, abs=0.05)
    assert below80 / 2500 == pytest.approx(0.8, abs=0.05)


def test_quantiles_are_in_order() -> None:
    draw, known = np.random.default_rng(5), History()
    for n in range(400):
        known.learn(Finished("k", 1, float(draw.lognormal(5, 2))))
        made = known.estimate("k", 1)
        assert made.p10 <= made.p50 <= made.p80 <= made.p90, n


def test_a_user_who_is_usually_right_is_believed_more_than_a_history_that_is_not() -> None:
    draw, known = np.random.default_rng(1), History()
    for _ in range(20):
        truth = float(draw.lognormal(6, 1.5))
        known.learn(Finished("k", 1, truth, expected=truth * 2))  # always twice too long: corrected
    assert known.estimate("k", 1, expected=2000.0).p50 == pytest.approx(1000.0, rel=0.1)
    assert known.estimate("k", 1, expected=2000.0).source == "user and history of k"


def test_a_user_who_guesses_is_not() -> None:
    draw, known = np.random.default_rng(1), History()
    for _ in range(20):
        known.learn(Finished("k", 1, 500.0 + float(draw.normal(0, 5)), expected=float(draw.lognormal(6, 2))))
    assert known.estimate("k", 1, expected=9999.0).p50 == pytest.approx(500.0, rel=0.1)


def test_a_new_key_takes_the_users_word() -> None:
    made = History().estimate("new", 1, expected=1234.0)
    assert (made.p50, made.source) == (pytest.approx(1234.0), "user")


def test_the_error_is_measured_before_learning() -> None:
    known = History(prior=100.0)
    assert known.error is None
    known.learn(Finished("k", 1, 200.0))
    assert known.error == pytest.approx(math.log(2.0))


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.inf, math.nan])
def test_a_run_without_a_length_is_refused(seconds: float) -> None:
    with pytest.raises(InvalidInput, match="positive length"):
        History().learn(Finished("k", 1, seconds))


SPREAD = Estimate(50.0, 100.0, 200.0, 400.0)


@pytest.mark.parametrize(
    ("now", "end"),
    [(0.0, 100.0), (50.0, 112.2), (100.0, 178.2), (200.0, 400.0), (400.0, 800.0), (1000.0, 2000.0)],
    ids=[
        "p50 at first",
        "of those beyond the p10",
        "of those beyond the p50",
        "of those beyond the p80",
        "by the power law",
        "which has no end",
    ],
)
def test_what_is_left_is_the_median_of_those_that_have_run_as_long(now: float, end: float) -> None:
    gang = running(request("a", estimate=SPREAD), ("all", 1))
    assert now + likely_left([gang], now)[0] == pytest.approx(end, abs=0.1)


@pytest.mark.parametrize(
    ("now", "end"),
    [(0.0, 100.0), (99.0, 100.0), (100.0, 200.0), (200.0, 400.0), (400.0, 600.0), (1000.0, 1500.0)],
    ids=[
        "p50 at first",
        "until it is exceeded",
        "then p80",
        "then p90",
        "then half as long again",
        "and again",
    ],
)
def test_its_room_is_counted_on_early_and_corrected_when_that_is_exceeded(now: float, end: float) -> None:
    gang = running(request("a", estimate=SPREAD), ("all", 1))
    assert expected_ends([gang], now)[0] == pytest.approx(end)


@pytest.mark.parametrize(
    ("now", "end"), [(0.0, 100.0), (30.0, 100.0), (99.0, 100.0), (100.0, 160.0), (400.0, 600.0)]
)
def test_an_estimate_without_spread_holds_until_it_is_exceeded(now: float, end: float) -> None:
    gang = running(request("a", estimate=Estimate.exactly(100.0)), ("all", 1))
    assert expected_ends([gang], now)[0] == pytest.approx(end)


@given(
    st.lists(st.floats(1.0, 1e5), min_size=4, max_size=4),
    st.lists(st.floats(0.0, 1e6), min_size=2, max_size=2),
)
def test_who_has_run_longer_does_not_end_earlier_and_everybody_ends_after_now(
    quantiles: list[float], ran: list[float]
) -> None:
    columns = [np.array([q, q]) for q in sorted(quantiles)]
    first, second = sorted(ran)
    left = median_left(*columns, np.array([first, second]))
    assert (left > 0).all()
    assert first + left[0] <= (second + left[1]) * (1 + 1e-9) + 60.0


def test_progress_stands_in_place_of_history_until_it_is_exceeded() -> None:
    gang = running(
        request("a", estimate=SPREAD), ("all", 1), remaining=Estimate.exactly(5000.0), reported=90.0
    )
    assert expected_ends([gang], 300.0)[0] == pytest.approx(5090.0)


def test_a_hard_limit_ends_every_prediction_and_leaving_pods_their_own_time() -> None:
    limited = running(request("a", estimate=SPREAD, run_limit=70.0), ("all", 1))
    leaving = running(request("b"), ("all", 1), phase=Phase.TERMINATING, gone_by=25.0)
    assert expected_ends([limited, leaving], 10.0).tolist() == [70.0, 25.0]


def test_work_of_earlier_admissions_counts() -> None:
    gang = running(request("a", estimate=Estimate.exactly(HOUR), attained=HOUR / 2), ("all", 1), since=0.0)
    assert expected_ends([gang], 0.0)[0] == pytest.approx(HOUR / 2)


def test_the_speed_up_of_a_model_is_found_from_its_step_times() -> None:
    truth = SpeedUp(0.08, 0.002)
    found = fit({g: 3.0 * truth.at(g) for g in (1, 2, 4, 8, 16)})
    assert (found.contention, found.coherence) == (pytest.approx(0.08), pytest.approx(0.002))
    assert found.at(64) == found.at(16), "not trusted to rise beyond what was measured"


def test_too_few_sizes_leave_the_prior() -> None:
    prior = SpeedUp(0.5, 0.0)
    assert fit({4: 10.0}, prior) == prior


def test_noise_never_gives_negative_coefficients() -> None:
    draw = np.random.default_rng(0)
    for _ in range(100):
        found = fit({g: float(g * draw.uniform(0.5, 2.0)) for g in (1, 2, 4, 8)})
        assert found.contention >= 0
        assert found.coherence >= 0


def test_elastic_sizes_are_given_relative_to_the_requested_one() -> None:
    made = SpeedUp(0.1, 0.0).elastic("Worker", 4, (1, 2, 4, 8))
    assert made.speed(4) == 1.0
    assert made.speed(1) < made.speed(2) < 1.0 < made.speed(8)


@pytest.mark.parametrize("rates", [{0: 1.0}, {2: 0.0}, {2: -1.0}])
def test_impossible_rates_are_refused(rates: dict[int, float]) -> None:
    with pytest.raises(InvalidInput, match="rates"):
        fit(rates)
