"""The availability profile of one partition: how much of each resource is free from when on.

A step function over exact breakpoints, not a slot grid: nothing is rounded, and with some hundred running gangs a
scan is a few numpy calls of a few microseconds. ``times[i] <= t < times[i + 1]`` has ``free[i]``; the last step never
ends. The prefix minimum answers "can it start now and stay for d" for a whole queue at once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class Profile:
    """Free capacity over time.

    :param now: where the profile begins
    :param free: what is free now, shape (axes,)
    """

    __slots__ = ("_prefix", "free", "times")

    def __init__(self, now: float, free: Floats) -> None:
        self.times: Floats = np.array([now])
        self.free: Floats = free.reshape(1, -1).astype(float)
        self._prefix: Floats | None = None

    @classmethod
    def of_releases(cls, now: float, free: Floats, ends: Floats, amounts: Floats) -> Profile:
        """The profile in which ``amounts[i]`` (shape (releases, axes)) comes back at ``ends[i]``; ends after now."""
        profile = cls(now, free)
        if len(ends):
            order = np.argsort(ends, kind="stable")
            profile.times = np.concatenate(([now], ends[order]))
            profile.free = np.cumsum(np.vstack((profile.free, amounts[order])), axis=0)
        return profile

    def copy(self) -> Profile:
        """An independent copy."""
        other = Profile.__new__(Profile)
        other.times, other.free, other._prefix = self.times, self.free.copy(), self._prefix
        return other

    def take(self, amount: Floats, start: float, end: float) -> None:
        """Charge ``amount`` from ``start`` until ``end`` (before ``now``: from now; infinity: for good)."""
        first = self._cut(max(start, float(self.times[0])))
        last = self._cut(end) if np.isfinite(end) else len(self.times)
        if first < last:
            self.free[first:last] -= amount
            self._prefix = None

    def _cut(self, at: float) -> int:
        """The index of the step that begins at ``at``, splitting a step where need be."""
        index = int(np.searchsorted(self.times, at, side="left"))
        if index == len(self.times) or self.times[index] != at:
            if index == 0:
                return 0
            self.times = np.insert(self.times, index, at)
            self.free = np.insert(self.free, index, self.free[index - 1], axis=0)
            self._prefix = None
        return index

    def startable(self, amounts: Floats, durations: Floats) -> Bools:
        """Which of ``amounts`` (shape (n, axes)) fit from now on for ``durations`` (shape (n,)); vectorised."""
        if self._prefix is None:
            self._prefix = np.minimum.accumulate(self.free, axis=0)
        last = np.searchsorted(self.times, self.times[0] + durations, side="left") - 1
        fits: Bools = (self._prefix[np.maximum(last, 0)] >= amounts).all(axis=1)
        return fits

    def fits(self, amount: Floats, start: float, end: float) -> bool:
        """Whether ``amount`` is free all the time from ``start`` until ``end``."""
        first = max(int(np.searchsorted(self.times, start, side="right")) - 1, 0)
        last = max(int(np.searchsorted(self.times, end, side="left")), first + 1)
        return bool((self.free[first:last] >= amount).all())

    def least(self, start: float, end: float) -> tuple[Floats, float]:
        """The least of each axis between ``start`` and ``end``, and when the tightest step begins."""
        first = max(int(np.searchsorted(self.times, start, side="right")) - 1, 0)
        last = max(int(np.searchsorted(self.times, end, side="left")), first + 1)
        steps = self.free[first:last]
        tightest = int(np.argmin(steps.min(axis=1)))
        low: Floats = steps.min(axis=0)
        return low, max(start, float(self.times[first + tightest]))

    def earliest(self, amount: Floats, duration: float, after: float = -np.inf) -> float:
        """The first instant from which ``amount`` is free for ``duration`` seconds; infinity when there is none."""
        enough: Bools = np.all(self.free >= amount, axis=1)
        if not enough[-1] and not enough.any():
            return float(np.inf)
        begins = np.maximum(self.times, after)
        lasts = np.searchsorted(self.times, begins + duration, side="left")
        short = np.concatenate(([0], np.cumsum(~enough)))
        index = np.arange(len(self.times))
        passed = np.append(self.times[1:], np.inf) <= after  # steps that are over by then
        good: Bools = enough & ~passed & (short[np.maximum(lasts, index + 1)] == short[index])
        return float(begins[int(np.argmax(good))]) if good.any() else float(np.inf)

    @property
    def lowest(self) -> Floats:
        """The least that is ever free, shape (axes,)."""
        least: Floats = self.free.min(axis=0)
        return least
