"""Start what fits in order, reserve for the first gang that does not, and let others pass beneath its reservation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from airflow_kftrain.scheduling.desk import Desk
from airflow_kftrain.scheduling.ordering import Rank
from airflow_kftrain.scheduling.reasons import Code

CHUNK = 256  # gangs tested at once: large enough to amortise a numpy call, small enough to redo after a start

_STARTED = {Rank.CLAIMED: Code.CLAIMED, Rank.GUARDED: Code.GUARDED, Rank.URGENT: Code.URGENT}


def admit(desk: Desk) -> None:
    """Go through the desk's queue once, in order.

    Gangs that capacity was freed for are held whatever happens; urgent ones within their limits; of the rest the first
    that is blocked. Behind a reservation only what does not delay it starts.
    """
    candidates = _looked_at(desk)
    reserved = urgent = position = passed = 0
    while position < len(candidates):
        chunk = candidates[position : position + CHUNK]
        fits = desk.startable(chunk)
        holding = not reserved or desk.rank[chunk[0]] <= Rank.URGENT
        step = 0 if holding else int(np.argmax(fits))
        index = int(chunk[step])
        if fits[step] and desk.start(index, _why(desk, index, reserved + urgent), {"ahead": passed + step}):
            position += step + 1
            passed += step
            continue
        if desk.rank[index] == Rank.CLAIMED:
            desk.reserve(index, Code.RESERVED_CLAIM)
        elif desk.rank[index] == Rank.URGENT and _may_hold(desk, index, urgent):
            urgent += np.isfinite(desk.reserve(index, Code.RESERVED_DEADLINE))
        elif not reserved:
            reserved += np.isfinite(desk.reserve(index, Code.RESERVED_FIRST_BLOCKED))
        elif not holding and not fits[step]:
            position += len(chunk)
            passed += len(chunk)
            continue
        position += step + 1
        passed += step + 1


def _looked_at(desk: Desk) -> NDArray[np.int64]:
    looked = desk.order[: desk.settings.depth]
    desk.looked = len(looked)
    candidates: NDArray[np.int64] = looked[desk.able[looked] & ~desk.settled[looked]]
    return candidates


def _why(desk: Desk, index: int, behind: int) -> Code:
    usual = Code.BACKFILLED if behind else Code.FIRST_IN_ORDER
    return _STARTED.get(Rank(desk.rank[index]), usual)


def _may_hold(desk: Desk, index: int, held: int) -> bool:
    """Whether one more urgent gang may hold capacity: not too many, and not too much of what is free now."""
    if held >= desk.settings.reservations:
        return False
    idle = min(desk.book.free_gpus, int(desk.queue.gpus[index]))
    return idle <= desk.settings.idle_cap * desk.book.gpus(desk.book.usable)
