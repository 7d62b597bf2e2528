"""A queue of keys for workers that reconcile: each key is in it once, and with one worker at a time."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from airflow_kftrain.clock import Clock

K = TypeVar("K", bound=Hashable)


class QueueClosed(Exception):
    """The queue was shut down."""


class WorkQueue(Generic[K]):
    """Keys to be worked on, deduplicated, delayed or backed off per key.

    A key that is added while a worker has it comes back once the worker is done with it. Semantics are those of
    client-go's rate-limiting workqueue.

    :param first: seconds of the first pause of :meth:`add_rate_limited`; it doubles with each call in a row
    :param longest: seconds beyond which it grows no more
    """

    def __init__(self, clock: Clock, *, first: float = 0.005, longest: float = 30.0) -> None:
        self._clock = clock
        self._first = first
        self._longest = longest
        self._ready: deque[K] = deque()
        self._dirty: set[K] = set()
        self._working: set[K] = set()
        self._failures: dict[K, int] = {}
        self._delayed: list[tuple[float, int, K]] = []
        self._due: dict[K, float] = {}
        self._order = itertools.count()
        self._wake = asyncio.Event()
        self._changed = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        return len(self._ready)

    @property
    def idle(self) -> bool:
        """Whether nothing is ready and nobody works (delayed keys may wait)."""
        return not self._ready and not self._working

    def add(self, key: K) -> None:
        """Have ``key`` worked on as soon as a worker is free."""
        if self._closed or key in self._dirty:
            return
        self._dirty.add(key)
        if key not in self._working:
            self._ready.append(key)
            self._wake.set()

    def add_after(self, key: K, seconds: float) -> None:
        """Have ``key`` worked on after ``seconds``; of several delays the shortest counts."""
        if seconds <= 0:
            self.add(key)
            return
        due = self._clock.monotonic() + seconds
        if self._closed or self._due.get(key, due + 1) <= due:
            return
        self._due[key] = due
        heapq.heappush(self._delayed, (due, next(self._order), key))
        self._changed.set()

    def add_rate_limited(self, key: K, *, at_least: float = 0.0) -> None:
        """Have ``key`` worked on after a pause that doubles with each failure in a row.

        :param at_least: the server's own wish (Retry-After), in seconds
        """
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self.add_after(key, max(at_least, min(self._longest, self._first * 2.0 ** min(failures, 40))))

    def forget(self, key: K) -> None:
        """``key`` went well: its next failure is a first one."""
        self._failures.pop(key, None)

    def num_requeues(self, key: K) -> int:
        """Failures in a row."""
        return self._failures.get(key, 0)

    async def get(self) -> K:
        """The next key; hand it back with :meth:`done`.

        :raises QueueClosed: after :meth:`shut_down`
        """
        while not self._ready:
            if self._closed:
                raise QueueClosed
            self._wake.clear()
            await self._wake.wait()
        key = self._ready.popleft()
        self._dirty.discard(key)
        self._working.add(key)
        return key

    def done(self, key: K) -> None:
        """The worker has finished with ``key``."""
        self._working.discard(key)
        if key in self._dirty:
            self._ready.append(key)
            self._wake.set()

    def shut_down(self) -> None:
        """Take no more keys; waiting workers get :class:`QueueClosed`."""
        self._closed = True
        self._wake.set()
        self._changed.set()

    async def run(self) -> None:
        """Move delayed keys to the ready ones when their time has come; runs until shut down or cancelled."""
        while not self._closed:
            self._release_due()
            self._changed.clear()
            if not self._delayed:
                await self._changed.wait()
                continue
            pause = asyncio.ensure_future(self._clock.sleep(self._delayed[0][0] - self._clock.monotonic()))
            sooner = asyncio.ensure_future(self._changed.wait())
            try:
                await asyncio.wait({pause, sooner}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                pause.cancel()
                sooner.cancel()

    def _release_due(self) -> None:
        now = self._clock.monotonic()
        while self._delayed and self._delayed[0][0] <= now:
            due, _, key = heapq.heappop(self._delayed)
            if self._due.get(key) == due:  # else a shorter delay took its place
                del self._due[key]
                self.add(key)
