"""Tells trouble with the cluster that lasts from trouble that passes."""

from __future__ import annotations

from collections.abc import Callable

from airflow_kftrain.clock import Clock
from airflow_kftrain.exceptions import Forbidden, InvalidInput, KFTrainError, NotFound, Unauthorized

TOLD_AFTER = 30.0
"""Seconds of trouble after which it is told."""

FATAL_AFTER = 60.0
"""Seconds after which a refusal ends the wait; an API that does not answer never does."""

FATAL_COUNT = 3
OLD_AFTER = 90.0
"""Seconds after which an error that was not followed by another one is over: a quiet watch says nothing."""

_REFUSALS = (Forbidden, Unauthorized, NotFound, InvalidInput)


class Trouble:
    """What is known of the present trouble.

    :param say: writes one line into the task's log
    """

    def __init__(self, clock: Clock, say: Callable[[str], None]) -> None:
        self._clock = clock
        self._say = say
        self._last: KFTrainError | None = None
        self._since = self._renewed = 0.0
        self._count = 0
        self._told = False

    @property
    def present(self) -> bool:
        """Whether the cluster cannot be read at present, as far as is known."""
        return self._count > 0

    def heed(self, error: KFTrainError | None) -> KFTrainError | None:
        """Take note of the newest error, None when there is none; return it when it will not pass."""
        now = self._clock.monotonic()
        if error is None or (error is self._last and now - self._renewed >= OLD_AFTER):
            self._over()
            return None
        if error is not self._last:
            self._since = self._since if self._count else now
            self._last, self._renewed, self._count = error, now, self._count + 1
        if not self._count:
            return None
        lasted = now - self._since
        if lasted >= TOLD_AFTER and self._count > 1 and not self._told:
            self._told = True
            self._say(f"The cluster cannot be read, tried again and again: {error}")
        fatal = isinstance(error, _REFUSALS) and self._count >= FATAL_COUNT and lasted >= FATAL_AFTER
        return error if fatal else None

    def _over(self) -> None:
        if self._told:
            self._say("The cluster can be read again")
        self._count, self._told = 0, False
