"""Whether a set of controllers has worked on all that happened up to an instant."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Mapping
from typing import Protocol, Self

import aiohttp

POLL_SECONDS = 0.2

_BUSY = re.compile(
    r'^(?:workqueue_depth\{name|controller_runtime_active_workers\{controller)="(\w+)job-controller"\} (\S+)$',
    re.MULTILINE,
)


class Busy(Protocol):
    """Tells when controllers had nothing to do."""

    def last_idle(self, namespace: str, kind: str) -> float:
        """The last monotonic instant at which the controller of ``kind`` (of jobs in ``namespace``) was idle."""


class NeverBusy:
    """Controllers that work on a change as soon as they hear of it: ours make as many calls as they need."""

    def last_idle(self, namespace: str, kind: str) -> float:
        """Now."""
        return time.monotonic()


class Operators:
    """Training operators: each makes 20 calls a second at most, and may be seconds late when busy.

    Its own metrics tell of each kind's controller how many jobs wait and how many are worked on.

    :param metrics: where they are, by namespace
    """

    def __init__(self, metrics: Mapping[str, str]) -> None:
        self._metrics = metrics
        self._last_idle: dict[tuple[str, str], float] = {}

    def last_idle(self, namespace: str, kind: str) -> float:
        """As the metrics said last."""
        return self._last_idle.get((namespace, kind.lower()), 0.0)

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[Self]:
        """Read the metrics again and again within the block."""
        async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._follow(session, *one)) for one in self._metrics.items()]
            yield self
            for task in tasks:
                task.cancel()

    async def _follow(self, session: aiohttp.ClientSession, namespace: str, url: str) -> None:
        while True:
            asked = time.monotonic()
            async with session.get(url) as answer:
                text = await answer.text()
            busy: dict[str, float] = {}
            for kind, value in _BUSY.findall(text):
                busy[f"{kind}job"] = busy.get(f"{kind}job", 0.0) + float(value)
            for kind, amount in busy.items():
                if not amount:
                    self._last_idle[namespace, kind] = asked
            # Metrics can only be asked for, not waited for.
            await asyncio.sleep(POLL_SECONDS)
