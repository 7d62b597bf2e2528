"""Calls that are worth making again: 429, 5xx, no answer."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_after_attempt

from airflow_kftrain.clock import Clock
from airflow_kftrain.exceptions import ApiError, ApiUnreachable, ServerError, TooManyRequests

T = TypeVar("T")

TRANSIENT: tuple[type[Exception], ...] = (TooManyRequests, ServerError, ApiUnreachable)
"""Errors after which the same call may succeed."""

LONGEST_PAUSE = 30.0


def pause_after(
    failures: int, *, rng: random.Random, first: float = 0.25, longest: float = LONGEST_PAUSE
) -> float:
    """Seconds to wait after ``failures`` failures in a row (1 or more).

    Exponential growth with full jitter in the upper half, so that many clients that failed together do not come back
    together.
    """
    span = min(longest, first * 2.0 ** min(failures - 1, 16))
    return span / 2 + rng.random() * span / 2


async def with_retries(
    call: Callable[[], Awaitable[T]],
    *,
    clock: Clock,
    attempts: int = 5,
    also: tuple[type[Exception], ...] = (),
    rng: random.Random | None = None,
) -> T:
    """The result of ``call``, made up to ``attempts`` times while it fails for a passing reason.

    A ``Retry-After`` of the server is honoured as the shortest pause.

    :param also: further errors to try again after, for instance ``(Conflict,)`` where ``call`` reads anew
    :raises Exception: the last error, as it was
    """
    source = rng or random.Random()  # noqa: S311 - spreads load, guards nothing

    def pause(state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        asked = error.retry_after if isinstance(error, ApiError) else None
        return (asked or 0.0) + pause_after(state.attempt_number, rng=source)

    async def attempt() -> T:
        # tenacity awaits only what it knows to be a coroutine function, which a lambda is not.
        return await call()

    retrying = AsyncRetrying(
        stop=stop_after_attempt(attempts),
        wait=pause,
        retry=retry_if_exception_type(TRANSIENT + also),
        sleep=clock.sleep,
        reraise=True,
    )
    return await retrying(attempt)
