"""The deadline ladder: what is tried, in turn, for a gang that would otherwise miss its deadline.

Reserve (done while the queue was gone through), other sizes, a loan, preemption; and if nothing helps, say early when
it is expected to end.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from airflow_kftrain.scheduling.desk import Desk
from airflow_kftrain.scheduling.lending import Ledger, borrow
from airflow_kftrain.scheduling.model import Running
from airflow_kftrain.scheduling.ordering import in_time
from airflow_kftrain.scheduling.preemption import by_least_lost, fewest, makes_room, may_stop, stop
from airflow_kftrain.scheduling.reasons import Code
from airflow_kftrain.scheduling.settings import Preemption

LIKELY = 0.5  # chance to be in time from which others may be disturbed
HELPED = 16  # gangs, first in order, that one plan tries to help


def look_ahead(error: float | None, most: float, limit: float) -> float:
    """Seconds to look ahead, given the measured error of prediction: all at none, nothing from ``limit`` on.

    An unknown error counts as too large: holding capacity has to earn its trust first.
    """
    if error is None or limit <= 0:
        return 0.0
    return most * max(0.0, 1.0 - error / limit)


def climb(desk: Desk, desks: Mapping[str, Desk]) -> None:
    """Go up the ladder for the first gangs of the desk that would miss their deadline as planned, but need not."""
    queue, now = desk.queue, desk.book.now
    latest = queue.deadline - queue.expected
    pressing = np.isfinite(queue.deadline) & (latest <= now + desk.settings.ladder)
    if not pressing.any():
        return
    looked = desk.order[: desk.looked]
    hopeful = pressing & desk.able & (in_time(queue, now) >= LIKELY)
    for index in [int(i) for i in looked[hopeful[looked]]]:
        if index in desk.started or desk.reserved.get(index, np.inf) <= latest[index]:
            continue
        _help(desk, index, desks)
        desk.helped += 1
        if desk.helped >= HELPED:
            return


def _help(desk: Desk, index: int, desks: Mapping[str, Desk]) -> bool:
    return _other_size(desk, index) or _loan(desk, index, desks) or _preempt(desk, index)


def _other_size(desk: Desk, index: int) -> bool:
    """Start with another number of replicas: the smallest that fits now and is in time."""
    request, queue = desk.queue.requests[index], desk.queue
    if request.elastic is None:
        return False
    left = float(queue.deadline[index]) - desk.book.now - desk.snapshot.costs.startup
    for size, speed in zip(request.elastic.sizes, request.elastic.speeds, strict=True):
        work = max(request.estimate.p50 - request.attained, 0.0) / speed
        if size == request.size or work > left:
            continue
        podsets = request.at_size(size)
        stay = work + desk.snapshot.costs.startup
        amount = desk.book.grid.total(podsets)
        fits = desk.fits(amount, stay, float(queue.surely_over[index]))
        numbers = {"size": size, "wanted": request.size}
        if fits and desk.start(index, Code.SCALED_TO_FIT, numbers, podsets=podsets, size=size, stay=stay):
            return True
    return False


def _loan(desk: Desk, index: int, desks: Mapping[str, Desk]) -> bool:
    if desk.book.grid.partition.borrowing == 0 or len(desks) < 2:
        return False
    ledger = Ledger(desks)
    others = sorted(desks.values(), key=lambda other: (-other.book.free_gpus, other.name))
    return any(other is not desk and borrow(desk, index, other, ledger) for other in others)


def _preempt(desk: Desk, index: int) -> bool:
    request = desk.queue.requests[index]
    if desk.settings.preemption is Preemption.NEVER or request.id in desk.claimed:
        return False
    if not any(gang.request.preemptible for gang in desk.book.running):
        return False
    candidates = [i for i, gang in enumerate(desk.book.running) if _stands_back(desk, gang, index)]
    stopped = fewest(by_least_lost(candidates, desk.book, desk.snapshot.costs), makes_room(desk, index))
    stop(desk, stopped or [], index, Code.PREEMPTED)
    return bool(stopped)


def _stands_back(desk: Desk, gang: Running, index: int) -> bool:
    """Whether ``gang`` may be stopped for the gang at ``index``: no deadline of its own, and no higher priority."""
    return (
        may_stop(gang, desk.book.now, desk.settings)
        and gang.request.id not in desk.stopped
        and not np.isfinite(gang.request.deadline)
        and gang.request.priority <= desk.queue.priority[index]
    )
