"""Guaranteed windows: admit only what is surely out of their way, and suspend in time what is not.

"Surely" knows two ways: a hard run limit that ends before, or a resumable gang, which can be suspended at
``start - lead``. Predictions do not count here; they only say what is worth starting.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from airflow_kftrain.scheduling.book import Book, total_of
from airflow_kftrain.scheduling.calendar import Bools, Floats, Profile
from airflow_kftrain.scheduling.model import Costs, Phase, Running, Window
from airflow_kftrain.scheduling.vectors import asked


class Promises:
    """The windows of one partition, and the account of what is surely free.

    :param any: whether there are windows at all; everything is cheap when there are none
    """

    def __init__(self, book: Book, windows: Sequence[Window], costs: Costs) -> None:
        self.book = book
        self.windows = sorted(windows, key=lambda window: (window.start, window.reservation))
        self.any = bool(self.windows)
        self.open: dict[str, Window] = {}
        self._unfilled: dict[str, Floats] = {}
        if not self.any:
            return
        self._termination = costs.termination
        graces = [gang.request.grace for gang in book.running if gang.request.resumable]
        self._drain = costs.termination + max(graces, default=0.0)
        self.surely = Profile(book.now, book.usable)
        for window in self.windows:
            self._hold(window)
        for gang, end in zip(book.running, book.ends, strict=True):
            self._charge(gang, float(end))

    def lead(self, window: Window) -> float:
        """Seconds before its start from which nothing may overlap ``window``: its own, or what draining takes."""
        return max(window.lead, self._drain)

    def begins(self, window: Window) -> float:
        """When ``window`` begins to keep others out."""
        return window.start - self.lead(window)

    def _hold(self, window: Window) -> None:
        amount = self.amount(window)
        self.book.profile.take(amount, self.begins(window), window.end)
        self.surely.take(amount, self.begins(window), window.end)
        if window.start <= self.book.now < window.end:
            self.open[window.reservation] = window
            self._unfilled[window.reservation] = amount.copy()

    def _charge(self, gang: Running, end: float) -> None:
        held = total_of(gang, self.book.grid)
        if gang.window in self.open:
            # Its room is part of the window's: give back what would otherwise be charged twice.
            last = min(end, self.open[gang.window].end)
            self.book.profile.take(-held, self.book.now, last)
            self._unfilled[gang.window] = np.maximum(self._unfilled[gang.window] - held, 0.0)
        elif gang.phase is Phase.TERMINATING:
            self.surely.take(held, self.book.now, end)
        elif not gang.request.resumable:
            self.surely.take(held, self.book.now, gang.hard_end + self._termination)

    @property
    def instants(self) -> list[float]:
        """When windows begin to keep others out, start, and end."""
        return [instant for w in self.windows for instant in (self.begins(w), w.start, w.end)]

    def amount(self, window: Window) -> Floats:
        """What ``window`` holds, along the partition's axes."""
        return np.array(asked(window.amount, self.book.grid.axes))

    def next_hold(self) -> float:
        """When the next window that is not yet in force begins to keep others out; infinity when there is none."""
        return min((b for b in map(self.begins, self.windows) if b > self.book.now), default=float(np.inf))

    def kept(self, amounts: Floats, surely_over: Floats) -> Bools:
        """Which gangs break no promise if they start now (for ``surely_over`` see the queue)."""
        return self.surely.startable(amounts, surely_over + np.where(surely_over > 0, self._termination, 0.0))

    def admit(self, amount: Floats, surely_over: float, window: str | None) -> None:
        """Charge a gang that starts now."""
        if not self.any:
            return
        if window is not None:
            self._unfilled[window] = np.maximum(self._unfilled[window] - amount, 0.0)
            self.book.profile.take(-amount, self.book.now, self.open[window].end)
        elif surely_over > 0:
            self.surely.take(amount, self.book.now, self.book.now + surely_over + self._termination)

    def room(self, window: str) -> Floats:
        """What is left inside an open window."""
        return self._unfilled[window]

    def shortage(self) -> Floats:
        """What must be freed now for windows in force or about to be, beyond what is free or on its way out."""
        missing = np.zeros(len(self.book.grid.axes))
        for window in self.windows:
            if self.begins(window) <= self.book.now < window.end:
                missing += self._unfilled.get(window.reservation, self.amount(window))
        leaving = sum(
            (total_of(g, self.book.grid) for g in self.book.running if g.phase is Phase.TERMINATING),
            start=np.zeros(len(missing)),
        )
        short: Floats = np.maximum(missing - self.book.free.sum(axis=0) - leaving, 0.0)
        return short
