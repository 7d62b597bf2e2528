"""Whom to suspend: the least lost work that makes room, and nobody who need not go."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from airflow_kftrain.scheduling.book import Book, charge_of, total_of
from airflow_kftrain.scheduling.calendar import Floats
from airflow_kftrain.scheduling.decisions import Suspend
from airflow_kftrain.scheduling.desk import Desk
from airflow_kftrain.scheduling.fit import pack
from airflow_kftrain.scheduling.model import Costs, Phase, Running
from airflow_kftrain.scheduling.prediction import likely_left
from airflow_kftrain.scheduling.reasons import Code, Reason
from airflow_kftrain.scheduling.settings import PlannerSettings

PREEMPTORS = 8  # waiting gangs, first in order, for which one plan looks for gangs to stop


def lost_work(gang: Running, now: float, costs: Costs) -> float:
    """GPU-seconds that suspending ``gang`` throws away: work since its last checkpoint, and stopping and restarting.

    A gang that cannot resume loses all it has done.
    """
    begun = gang.admitted if gang.since is None else gang.since
    if not gang.request.resumable:
        undone = now - gang.admitted + gang.request.attained
    elif gang.checkpointed is None:
        undone = max(0.0, now - begun)
    else:
        undone = max(0.0, now - max(gang.checkpointed, begun))
    return max(gang.request.gpus, 1) * (undone + costs.restart + costs.termination)


def may_stop(gang: Running, now: float, settings: PlannerSettings) -> bool:
    """Whether ``gang`` may be preempted at all: it says so, has run its protected time, was not preempted too
    often, and has not waited beyond the guard before it started."""
    return (
        gang.request.preemptible
        and gang.phase is not Phase.TERMINATING
        and gang.window is None
        and now - gang.admitted >= settings.protected
        and gang.request.preemptions < settings.preemptions_most
        and gang.admitted - gang.request.submitted - gang.request.attained < settings.guard
    )


def fewest(candidates: Sequence[int], enough: Callable[[Sequence[int]], bool]) -> list[int] | None:
    """The shortest beginning of ``candidates`` that is ``enough``, without those that turn out not to be needed.

    ``enough`` must not turn false when more are stopped; the beginning is found by halving. Then each, most costly
    first, is put back if the rest still is enough (Kueue's reverse minimisation).
    """
    low, high = 1, len(candidates)
    if not high or not enough(candidates):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(candidates[:middle]) else (middle + 1, high)
    chosen = list(candidates[:low])
    for candidate in reversed(chosen[:-1]):
        without = [c for c in chosen if c != candidate]
        if enough(without):
            chosen = without
    return chosen


def covers(book: Book, shortage: Floats) -> Callable[[Sequence[int]], bool]:
    """A test: does stopping these gangs of ``book`` free at least ``shortage``?"""
    held = np.array([total_of(gang, book.grid) for gang in book.running]).reshape(-1, len(shortage))

    def enough(stopped: Sequence[int]) -> bool:
        return bool((held[list(stopped)].sum(axis=0) >= shortage).all())

    return enough


def by_least_lost(candidates: Sequence[int], book: Book, costs: Costs) -> list[int]:
    """``candidates`` (indices of running gangs), least lost work first; ties by id."""
    return sorted(
        candidates, key=lambda i: (lost_work(book.running[i], book.now, costs), book.running[i].request.id)
    )


def makes_room(desk: Desk, index: int) -> Callable[[Sequence[int]], bool]:
    """A test: would stopping these gangs let the gang at ``index`` start, beside what belongs to other gangs?"""
    book, request = desk.book, desk.queue.requests[index]
    free = book.free_beside(desk.claimed - {request.id}) - desk.spoken_for

    def enough(stopped: Sequence[int]) -> bool:
        return pack(book.grid, free + released(book, stopped), request.least) is not None

    return enough


def released(book: Book, stopped: Sequence[int]) -> Floats:
    """What stopping these gangs frees on each node; shape (nodes, axes)."""
    freed = np.zeros_like(book.free)
    for victim in stopped:
        for node, amount in charge_of(book.running[victim], book.grid):
            if book.grid.usable[node]:
                freed[node] += amount
    return freed


def stop(desk: Desk, stopped: Sequence[int], index: int, code: Code) -> None:
    """Suspend these gangs for the gang at ``index``, whose claim their room becomes."""
    if not stopped:
        return
    book, request = desk.book, desk.queue.requests[index]
    free = book.free_beside(desk.claimed - {request.id}) - desk.spoken_for + released(book, stopped)
    for which, node, count in pack(book.grid, free, request.least) or ():
        desk.spoken_for[node] += book.grid.pod(request.least[which]) * count
    for victim in stopped:
        gang = book.running[victim]
        desk.spoken_for -= released(book, [victim])
        lost = lost_work(gang, book.now, desk.snapshot.costs) / max(gang.request.gpus, 1)
        numbers: dict[str, float | int | str] = {
            "beneficiary": request.id,
            "lost": lost,
            "partition": desk.name,
            "gpus": gang.request.gpus,
        }
        desk.decisions.append(Suspend(gang.request.id, Reason(code, numbers), request.id))
        desk.stopped.add(gang.request.id)


def preempt_by_service(desk: Desk) -> None:
    """Suspend gangs that still need much for waiting ones that need little (shortest remaining service first).

    A victim needs ``preempt_gain`` times the service of whom it is suspended for, so that two gangs never take turns:
    what runs only gets shorter. Among the choices those go first that lose least of what they still need.
    """
    book, queue, settings = desk.book, desk.queue, desk.settings
    may = [i for i, gang in enumerate(book.running) if _may_stop(desk, gang)]
    if not may:
        return
    gpus = np.array([max(gang.request.gpus, 1) for gang in book.running])
    remaining = gpus * likely_left(book.running, book.now)
    lost = {i: lost_work(book.running[i], book.now, desk.snapshot.costs) for i in may}
    for index in desk.blocked(PREEMPTORS):
        request = queue.requests[index]
        if request.id in desk.claimed:
            continue
        floor = settings.preempt_gain * float(queue.gpus[index] * queue.expected[index])
        worth = [
            i
            for i in may
            if remaining[i] >= floor + lost[i]
            and book.running[i].request.priority <= queue.priority[index]
            and book.running[i].request.id not in desk.stopped
        ]
        worth.sort(key=lambda i: (lost[i] / remaining[i], book.running[i].request.id))
        stop(desk, fewest(worth, makes_room(desk, index)) or [], index, Code.PREEMPTED)


def _may_stop(desk: Desk, gang: Running) -> bool:
    return may_stop(gang, desk.book.now, desk.settings) and gang.request.id not in desk.stopped
