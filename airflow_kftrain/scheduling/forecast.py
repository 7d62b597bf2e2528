"""When a waiting gang is expected to start, with a range that has earned its width.

The raw forecast is fluid: the gang starts when its own room is free by the profile, and not before the partition has
had time for the work that stands before it. Work that has not come yet is in no queue, so the forecast is corrected by
what earlier ones of its kind turned out to be: the range is made of quantiles of ``log(real wait / forecast)``, and its
ends are moved (adaptive conformal inference) until one of ten starts falls beyond each.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from airflow_kftrain.scheduling.calendar import Floats
from airflow_kftrain.scheduling.desk import Desk

LEAST = 60.0  # seconds added to both waits: half a minute or a minute is the same to people
RECENT = 50  # forecasts of a kind that its correction looks back on
ENOUGH = 20  # forecasts of a kind from which its own quantiles are used, before that those of all
STEP = 0.05  # in logarithms, by which an end of the range moves out for a start beyond it (and a ninth of it in, else)
UNSEEN = (-1.5, 0.0, 1.5)  # log range before anything has been seen: a factor of 4.5 both ways


class Eta(NamedTuple):
    """Instants at which a gang is expected to start."""

    p10: float
    p50: float
    p90: float


def raw_wait(desk: Desk, index: int) -> float:
    """Seconds until the gang at ``index`` starts by the fluid forecast; infinity when it can never start."""
    if not desk.able[index] and (desk.queue.amounts[index] > desk.book.usable).any():
        return math.inf
    profile, queue = desk.book.profile, desk.queue
    own = desk.reserved.get(index)
    if own is None:
        own = profile.earliest(queue.amounts[index], float(queue.expected[index]))
    place = int(np.flatnonzero(desk.order == index)[0])
    ahead = [
        i
        for i in desk.order[:place]
        if int(i) not in desk.started and int(i) not in desk.reserved and desk.able[i]
    ]
    work = float((_units(desk, queue.amounts[ahead]) * queue.expected[ahead]).sum())
    return max(0.0, own - desk.book.now, _time_for(desk, work) if own == math.inf or work else 0.0)


def _units(desk: Desk, amounts: Floats) -> Floats:
    units: Floats = amounts[:, desk.book.grid.gpu].sum(axis=1)
    return np.maximum(units, 1.0)


def _time_for(desk: Desk, work: float) -> float:
    """Seconds until the profile has had room for ``work`` GPU-seconds."""
    profile = desk.book.profile
    free = np.maximum(profile.free[:, desk.book.grid.gpu].sum(axis=1), 0.0)
    spans = np.diff(profile.times)
    had = np.concatenate(([0.0], np.cumsum(free[:-1] * spans)))
    step = max(int(np.searchsorted(had, work, side="right")) - 1, 0)
    missing = work - float(had[step])
    at = float(profile.times[step]) - desk.book.now
    return at + missing / float(free[step]) if missing > 0 and free[step] > 0 else at


class _Told(NamedTuple):
    kind: object
    at: float
    raw: float
    eta: Eta


@dataclass
class _Kind:
    errors: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    below: float = 0.0
    above: float = 0.0


class Calibration:
    """What forecasts turned out to be; kept by the host from plan to plan.

    It learns from a gang when that starts, never earlier.
    """

    def __init__(self) -> None:
        self._kinds: dict[object, _Kind] = {}
        self._told: dict[str, _Told] = {}

    def eta(self, request: str, gpus: int, now: float, raw: float) -> Eta:
        """The range for a gang whose raw forecast at ``now`` is ``raw`` seconds; the first one is remembered.

        :param request: its id
        :param gpus: its size: forecasts are corrected by size and length
        """
        kind = (max(gpus, 1).bit_length(), int(math.log2(raw / LEAST + 1.0)) // 3 if raw < math.inf else -1)
        low, middle, high = self._offsets(kind)
        made = Eta(
            *(now + max(0.0, (raw + LEAST) * math.exp(offset) - LEAST) for offset in (low, middle, high))
        )
        if raw < math.inf:
            self._told.setdefault(request, _Told(kind, now, raw, made))
        return made

    def started(self, request: str, now: float) -> None:
        """``request`` starts now: compare with what was told."""
        told = self._told.pop(request, None)
        if told is None:
            return
        error = math.log((now - told.at + LEAST) / (told.raw + LEAST))
        for name in (told.kind, None):
            seen = self._kinds.setdefault(name, _Kind())
            seen.errors.append(error)
            seen.below += STEP * ((now < told.eta.p10) - 0.1)
            seen.above += STEP * ((now > told.eta.p90) - 0.1)

    def forget(self, request: str) -> None:
        """``request`` was cancelled."""
        self._told.pop(request, None)

    def _offsets(self, kind: object) -> tuple[float, float, float]:
        seen = self._kinds.get(kind)
        if seen is None or len(seen.errors) < ENOUGH:
            seen = self._kinds.get(None)
        if seen is None or len(seen.errors) < ENOUGH:
            return UNSEEN
        low, middle, high = np.quantile(np.array(seen.errors), (0.1, 0.5, 0.9)).tolist()
        return min(low - seen.below, middle), middle, max(high + seen.above, middle)
