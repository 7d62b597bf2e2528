"""Time, injected: code that waits or stamps takes a :class:`Clock`, tests give it a :class:`VirtualClock`."""

from __future__ import annotations

import asyncio
import datetime as dt
import heapq
import itertools
import time
from typing import Protocol, runtime_checkable


@runtime_checkable
class Clock(Protocol):
    """What code may ask of time."""

    def now(self) -> dt.datetime:
        """The present instant, timezone-aware, in UTC."""

    def monotonic(self) -> float:
        """Seconds that only grow, from an arbitrary start; for measuring spans."""

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds`` (at once when not positive)."""


class SystemClock:
    """The machine's own time."""

    def now(self) -> dt.datetime:
        return dt.datetime.now(dt.UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


class VirtualClock:
    """Time that stands still until a test moves it.

    :param start: the first instant; 2026-01-01 00:00 UTC by default
    """

    def __init__(self, start: dt.datetime = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)) -> None:
        self._start = start
        self._elapsed = 0.0
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> dt.datetime:
        return self._start + dt.timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._elapsed + seconds, next(self._order), waiter))
        await waiter

    async def advance(self, seconds: float, *, settle: int = 20) -> None:
        """Move on by ``seconds``, waking sleepers in order of their time.

        :param settle: loop turns that woken tasks get before the next one is woken
        """
        end = self._elapsed + seconds
        await self._settle(settle)
        while self._sleepers and self._sleepers[0][0] <= end:
            when, _, waiter = heapq.heappop(self._sleepers)
            self._elapsed = max(self._elapsed, when)
            if not waiter.done():
                waiter.set_result(None)
            await self._settle(settle)
        self._elapsed = end
        await self._settle(settle)

    @property
    def sleepers(self) -> int:
        """How many tasks sleep on this clock."""
        return sum(not waiter.done() for _, _, waiter in self._sleepers)

    @staticmethod
    async def _settle(turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)


def system_clock() -> Clock:
    """The clock that is used where none is given."""
    return SystemClock()
