"""Start what fits in order, reserve for the first gang that does not, and let others pass beneath its reservation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from airflow_kftrain.scheduling.calendar import Bools
from airflow_kftrain.scheduling.desk import Desk
from airflow_kftrain.scheduling.ordering import Rank
from airflow_kftrain.scheduling.reasons import Code

CHUNK = 256  # gangs tested at once: large enough to amortise a numpy call, small enough to redo after a start
_STARTED = {int(Rank.CLAIMED): Code.CLAIMED, int(Rank.GUARDED): Code.GUARDED}
_CLAIMED, _GUARDED = int(Rank.CLAIMED), int(Rank.GUARDED)


def admit(desk: Desk) -> None:
    """Go through the desk's queue once, in order.

    Room is held for gangs that capacity was freed for, whatever happens; for urgent ones within limits, if that lets
    them meet their deadline; and for the first that is blocked, if it has waited beyond the guard, has a priority, or
    predictions are worth it. Behind these only what does not delay them starts.
    """
    candidates = _looked_at(desk)
    stuck = np.zeros(len(desk.queue), dtype=bool)
    reserved = False
    urgent = position = passed = 0
    while position < len(candidates):
        chunk = candidates[position : position + CHUNK]
        fits = desk.startable(chunk) & ~stuck[chunk]
        holds = not reserved and _may_be_held_for(desk, int(chunk[0]))
        step = 0 if holds else _next(desk, chunk, fits, urgent)
        if step is None:
            position += len(chunk)
            passed += len(chunk)
            continue
        index = int(chunk[step])
        position += step + 1
        passed += step
        if fits[step] and desk.start(index, _why(desk, index, reserved or urgent > 0), {"ahead": passed}):
            continue
        passed += 1
        if fits[step]:
            # No nodes for its pods: none for an equal gang that stays as long either, since room only gets less.
            stuck |= (desk.queue.shape == desk.queue.shape[index]) & (desk.stay >= desk.stay[index])
        if desk.rank[index] == _CLAIMED:
            desk.reserve(index, Code.RESERVED_CLAIM)
        elif desk.urgent[index] and _may_hold(desk, index, urgent):
            urgent += desk.reserve(index, Code.RESERVED_DEADLINE, latest=desk.latest(index))
        if holds and index not in desk.reserved:
            reserved = desk.reserve(index, Code.RESERVED_FIRST_BLOCKED)


def _may_be_held_for(desk: Desk, index: int) -> bool:
    """Whether the first blocked gang gets a reservation: beyond the guard, with a priority or a deadline, or where
    predictions are trusted."""
    queue = desk.queue
    stated = desk.rank[index] <= _GUARDED or queue.priority[index] > 0 or np.isfinite(queue.deadline[index])
    return desk.trusted or bool(stated)


def _next(desk: Desk, chunk: NDArray[np.int64], fits: Bools, urgent: int) -> int | None:
    """The first of ``chunk`` that may start, or has to be reserved for; None when there is none."""
    wanted = fits | (desk.rank[chunk] == _CLAIMED)
    if urgent < desk.settings.reservations:
        wanted |= desk.urgent[chunk]
    step = int(np.argmax(wanted))
    return step if wanted[step] else None


def _looked_at(desk: Desk) -> NDArray[np.int64]:
    looked = desk.order[: desk.settings.depth]
    desk.looked = len(looked)
    candidates: NDArray[np.int64] = looked[desk.able[looked] & ~desk.settled[looked]]
    return candidates


def _why(desk: Desk, index: int, behind: bool) -> Code:
    rank = int(desk.rank[index])
    if rank in _STARTED:
        return _STARTED[rank]
    if desk.urgent[index]:
        return Code.URGENT
    return Code.BACKFILLED if behind else Code.FIRST_IN_ORDER


def _may_hold(desk: Desk, index: int, held: int) -> bool:
    """Whether one more urgent gang may hold capacity: not too many, and not too much of what is free now."""
    if held >= desk.settings.reservations:
        return False
    idle = min(desk.book.free_gpus, int(desk.queue.gpus[index]))
    return idle <= desk.settings.idle_cap * desk.book.gpus(desk.book.usable)
