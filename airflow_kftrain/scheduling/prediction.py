"""How long gangs run: what running ones still need, and what history says of new ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from airflow_kftrain.scheduling.calendar import Floats
from airflow_kftrain.scheduling.model import Phase, Running

SOONEST = 60.0  # an overdue gang is not expected to end within a minute just because it is overdue
OVERDUE = 1.5  # Tsafrir: a run that outlives its prediction is taken for half as long again


def expected_ends(running: Sequence[Running], now: float) -> Floats:
    """Predicted end of each gang, after ``now``; shape (n,).

    The p50 at first; once it is exceeded the p80, then the p90, then one and a half times what it has run. What
    progress reports stands over history until it is exceeded, too. A prediction never ends a gang: it only says when
    its room may be counted on.
    """
    if not running:
        return np.empty(0)
    rows = np.array([_row(gang) for gang in running])
    begin, p50, p80, p90, cap, ran = rows.T
    elapsed = now - begin + ran
    ends = begin + p50
    for later in (p80, p90):
        ends = np.where(ends < now + 1.0, begin + later, ends)
    ends = np.where(ends < now + 1.0, now + np.maximum(SOONEST, (OVERDUE - 1.0) * elapsed), ends)
    surely: Floats = np.maximum(np.minimum(ends, cap), now + 1.0)
    return surely


def _row(gang: Running) -> tuple[float, float, float, float, float, float]:
    """(begin, seconds from begin to p50, p80, p90, hard end, seconds run before begin)."""
    kept = gang.__dict__.get("_ends_row")
    if kept is None:
        kept = gang.__dict__["_ends_row"] = _make_row(gang)
    row: tuple[float, float, float, float, float, float] = kept
    return row


def _make_row(gang: Running) -> tuple[float, float, float, float, float, float]:
    if gang.phase is Phase.TERMINATING and gang.gone_by is not None:
        return (gang.gone_by, 0.0, 0.0, 0.0, np.inf, 0.0)
    if gang.remaining is not None:
        left = gang.remaining
        return (gang.reported, left.p50, left.p80, left.p90, gang.hard_end, gang.work)
    estimate = gang.request.estimate
    done = gang.work + gang.request.attained
    begin = gang.admitted if gang.since is None else gang.since
    spans = [max(0.0, (p - done) / gang.speed) for p in (estimate.p50, estimate.p80, estimate.p90)]
    return (begin, spans[0], spans[1], spans[2], gang.hard_end, done)
