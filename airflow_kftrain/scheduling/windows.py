"""Guaranteed windows at work: gangs that must go in time, and members that come in."""

from __future__ import annotations

import numpy as np

from airflow_kftrain.scheduling.decisions import Suspend
from airflow_kftrain.scheduling.desk import Desk
from airflow_kftrain.scheduling.model import Phase, Running
from airflow_kftrain.scheduling.preemption import by_least_lost, covers, fewest
from airflow_kftrain.scheduling.reasons import Code, Reason


def drain(desk: Desk) -> None:
    """Suspend resumable gangs, least lost work first, until every window in force or about to be is covered."""
    short = desk.promises.shortage() if desk.promises.any else np.zeros(1)
    if not short.any():
        return
    book = desk.book
    may = [i for i, gang in enumerate(book.running) if _may_drain(gang)]
    ordered = by_least_lost(may, book, desk.snapshot.costs)
    stopped = fewest(ordered, covers(book, short))
    window = next(w for w in desk.promises.windows if desk.promises.begins(w) <= book.now < w.end)
    for victim in ordered if stopped is None else stopped:
        gang = book.running[victim].request.id
        reason = Reason(Code.DRAINED, {"window": window.reservation, "start": window.start})
        desk.decisions.append(Suspend(gang, reason))
        desk.stopped.add(gang)


def enter(desk: Desk) -> None:
    """Start the members of each open window that fit into it and are over, or can be stopped, by its end."""
    queue, now = desk.queue, desk.book.now
    if not desk.promises.open:
        return
    for index in desk.order:
        name = queue.requests[index].reservation
        window = desk.promises.open.get(name) if name else None
        if window is None or not desk.able[index]:
            continue
        fits = (queue.amounts[index] <= desk.promises.room(window.reservation)).all()
        if fits and now + queue.surely_over[index] <= window.end:
            stay = min(float(queue.expected[index]), window.end - now)
            numbers: dict[str, float | int | str] = {"window": window.reservation, "until": window.end}
            desk.start(int(index), Code.IN_WINDOW, numbers, stay=stay, window=window.reservation)


def _may_drain(gang: Running) -> bool:
    return gang.request.resumable and gang.window is None and gang.phase is not Phase.TERMINATING
