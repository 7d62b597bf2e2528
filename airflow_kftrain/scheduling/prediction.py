"""How long gangs run: what running ones still need, and what history says of new ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from airflow_kftrain.scheduling.calendar import Floats
from airflow_kftrain.scheduling.model import Phase, Running

SOONEST = 60.0  # an overdue gang is not expected to end within a minute just because it is overdue
OVERDUE = 1.5
_LEVELS = np.array([1.0, 0.9, 0.5, 0.2, 0.1])  # chance to run longer than: almost nothing, p10, p50, p80, p90
_TAIL = (0.5, 20.0)  # bounds of the exponent of the power law beyond the p90


def median_left(p10: Floats, p50: Floats, p80: Floats, p90: Floats, ran: Floats) -> Floats:
    """Median of what is left of runs that have lasted ``ran`` seconds already; all of shape (n,).

    With ``S`` the chance to run longer than ``t``, it is the ``t - ran`` at which ``S(t) = S(ran) / 2``. ``S`` goes
    through the quantiles, linear in the logarithm of time, and falls beyond the p90 by the power law that leads there
    from the p80. A run that was to be short and is not thus turns into a long one, as training jobs do; one whose
    quantiles agree ends when they say, and once it outlives them lasts half as long again.
    """
    quantiles = np.maximum(np.vstack((p10, p50, p80, p90)).T, 1e-3)
    logs = np.log(np.column_stack((quantiles[:, 0] ** 2 / quantiles[:, 1], quantiles)))
    logs += np.arange(5) * 1e-9  # strictly rising, also where quantiles agree
    exponent = np.clip(np.log(2.0) / np.maximum(logs[:, 4] - logs[:, 3], 1e-9), *_TAIL)
    at = np.log(np.maximum(ran, 1e-3))
    half = _surviving(at, logs, exponent) / 2.0
    end = np.exp(_reached(half, logs, exponent))
    narrow = quantiles[:, 3] <= quantiles[:, 0] * 1.001
    end = np.where(narrow & (ran < p50), p50, np.where(narrow, 1.5 * ran, end))
    left: Floats = np.maximum(end - ran, np.where(ran >= p50, SOONEST, 0.0))
    return left


def _surviving(at: Floats, logs: Floats, exponent: Floats) -> Floats:
    rows, step = np.arange(len(at)), (at[:, None] >= logs).sum(axis=1)
    low, high = np.clip(step - 1, 0, 3), np.clip(step, 1, 4)
    part = (at - logs[rows, low]) / (logs[rows, high] - logs[rows, low])
    inside = _LEVELS[low] + part * (_LEVELS[high] - _LEVELS[low])
    beyond = 0.1 * np.exp(-exponent * (at - logs[:, 4]))
    chance: Floats = np.where(step == 0, 1.0, np.where(step == 5, beyond, inside))
    return chance


def _reached(chance: Floats, logs: Floats, exponent: Floats) -> Floats:
    """The logarithm of the time that is outlived with ``chance`` (at most a half)."""
    rows, high = np.arange(len(chance)), np.clip((chance[:, None] < _LEVELS).sum(axis=1), 1, 4)
    low = high - 1
    part = (_LEVELS[low] - chance) / (_LEVELS[low] - _LEVELS[high])
    inside = logs[rows, low] + part * (logs[rows, high] - logs[rows, low])
    beyond = logs[:, 4] + np.log(0.1 / np.maximum(chance, 1e-12)) / exponent
    reached: Floats = np.where(chance < 0.1, beyond, inside)
    return reached


def expected_ends(running: Sequence[Running], now: float) -> Floats:
    """When each gang's room may be counted on, after ``now``; shape (n,).

    The p50 at first; once it is exceeded the p80, then the p90, then one and a half times what it has run (Tsafrir's
    correction). That is early on purpose: a reservation that is planned early keeps others out in time, and may slip;
    one that is planned late lets them pass. What progress reports stands over history. A prediction never ends a gang.
    """
    if not running:
        return np.empty(0)
    begin, _, p50, p80, p90, ran, speed, cap, fixed = np.array([_row(gang) for gang in running]).T
    lasted = ran + np.maximum(now - begin, 0.0) * speed
    total = p50
    for later in (p80, p90):
        total = np.where(total <= lasted, later, total)
    total = np.where(total <= lasted, OVERDUE * lasted, total)
    left = np.maximum(total - lasted, np.where(lasted >= p50, SOONEST, 0.0)) / speed
    ends = np.where(np.isfinite(fixed), fixed, np.maximum(begin, now) + left)
    surely: Floats = np.maximum(np.minimum(ends, cap), now + 1.0)
    return surely


def likely_left(running: Sequence[Running], now: float) -> Floats:
    """Seconds that each gang still needs: the median of those that have lasted as long; shape (n,)."""
    if not running:
        return np.empty(0)
    begin, p10, p50, p80, p90, ran, speed, _, fixed = np.array([_row(gang) for gang in running]).T
    lasted = ran + np.maximum(now - begin, 0.0) * speed
    left: Floats = median_left(p10, p50, p80, p90, lasted) / speed
    return np.where(np.isfinite(fixed), np.maximum(fixed - now, 0.0), left)


def _row(gang: Running) -> tuple[float, ...]:
    """(begin, four quantiles of work, work done by then, progress per second, hard end, end if that is known)."""
    kept = gang.__dict__.get("_ends_row")
    if kept is None:
        kept = gang.__dict__["_ends_row"] = _make_row(gang)
    row: tuple[float, ...] = kept
    return row


def _make_row(gang: Running) -> tuple[float, ...]:
    if gang.phase is Phase.TERMINATING and gang.gone_by is not None:
        return (gang.gone_by, 1.0, 1.0, 1.0, 1.0, 0.0, 1.0, np.inf, gang.gone_by)
    if gang.remaining is not None:
        left = gang.remaining
        return (gang.reported, left.p10, left.p50, left.p80, left.p90, 0.0, 1.0, gang.hard_end, np.inf)
    estimate = gang.request.estimate
    begin = gang.admitted if gang.since is None else gang.since
    done = gang.work + gang.request.attained
    quantiles = (estimate.p10, estimate.p50, estimate.p80, estimate.p90)
    return (begin, *quantiles, done, gang.speed, gang.hard_end, np.inf)
