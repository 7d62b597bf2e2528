"""What a controller has done and its cache does not show yet.

A controller that decides on a cache that lags behind its own writes makes pods twice or, seeing an old status, makes
the pods of a finished job anew. So it waits, per job, until all its writes have come back to it.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from airflow_kftrain.clock import Clock

K = TypeVar("K", bound=Hashable)

Token = tuple[str, ...]
"""What is awaited, for instance ``("pods", "created", "train-worker-0")``."""

TIMEOUT = 30.0
"""Seconds after which a write that never came back is given up.

Acting on an old view is safe, since names are fixed and deletions bear a uid; it only costs calls.
"""


class Expectations(Generic[K]):
    """Writes that are still to be seen, by job.

    Expect before writing, since the write may be seen before its answer is; take it back if the write fails.
    """

    def __init__(self, clock: Clock, *, timeout: float = TIMEOUT) -> None:
        self._clock = clock
        self._timeout = timeout
        self._pending: dict[K, dict[Token, float]] = {}
        self._versions: dict[K, tuple[int, float]] = {}

    def expect(self, key: K, token: Token) -> None:
        """``token`` is to be seen."""
        self._pending.setdefault(key, {})[token] = self._clock.monotonic() + self._timeout

    def seen(self, key: K, token: Token) -> None:
        """``token`` was seen, or will never be."""
        pending = self._pending.get(key)
        if pending is not None:
            pending.pop(token, None)
            if not pending:
                del self._pending[key]

    def expect_version(self, key: K, resource_version: str) -> None:
        """The job is to be seen at this version or a later one.

        Versions of one kind are numbers that grow (KEP-5504); one that is no number is not waited for.
        """
        if resource_version.isdecimal():
            self._versions[key] = (int(resource_version), self._clock.monotonic() + self._timeout)

    def seen_version(self, key: K, resource_version: str) -> None:
        """The job was seen at this version."""
        wanted = self._versions.get(key)
        if wanted is not None and (not resource_version.isdecimal() or int(resource_version) >= wanted[0]):
            del self._versions[key]

    def wait(self, key: K) -> float | None:
        """Seconds after which to look again although something is still to be seen; None when all is."""
        now = self._clock.monotonic()
        until = [due for due in self._pending.get(key, {}).values() if due > now]
        version = self._versions.get(key)
        until += [version[1]] if version is not None and version[1] > now else []
        if until:
            return max(until) - now
        self.forget(key)
        return None

    def forget(self, key: K) -> None:
        """Nothing is to be seen of this job any more."""
        self._pending.pop(key, None)
        self._versions.pop(key, None)
