"""Start what fits in order, reserve for the first gang that does not, and let others pass beneath its reservation."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from airflow_kftrain.scheduling.book import Book
from airflow_kftrain.scheduling.decisions import Decision, Explain, Reserve, Start
from airflow_kftrain.scheduling.ordering import Queue, Rank
from airflow_kftrain.scheduling.reasons import Code, Reason
from airflow_kftrain.scheduling.settings import PlannerSettings

CHUNK = 256  # gangs tested at once: large enough to amortise a numpy call, small enough to redo after a start


@dataclass
class Admission:
    """What admitting one partition's queue came to.

    :param order: indices into the queue, in the order they were looked at
    :param settled: which of the queue start or have a reservation
    """

    book: Book
    queue: Queue
    order: NDArray[np.int64]
    settled: NDArray[np.bool_]
    looked: int
    decisions: list[Decision] = field(default_factory=list)

    def explanations(self) -> list[Explain]:
        """Why each of the others waits."""
        said = []
        for place, index in enumerate(self.order):
            if not self.settled[index]:
                said.append(Explain(self.queue.requests[index].id, self.reason(place, int(index))))
        return said

    def reason(self, place: int, index: int) -> Reason:
        """Why the gang at ``index``, the ``place``-th in order, waits."""
        queue, book = self.queue, self.book
        amount = queue.amounts[index]
        free = np.maximum(book.free, 0.0).sum(axis=0)
        facts: dict[str, float | int | str] = {
            "gpus": int(queue.gpus[index]),
            "free": book.free_gpus,
            "partition": book.grid.partition.name,
            "ahead": place,
            "expected_run": float(queue.expected[index]),
        }
        if (amount > book.grid.allocatable[book.grid.usable].sum(axis=0)).any():
            return Reason(Code.NEVER_FITS, {"what": "it asks for more than the partition has", **facts})
        if queue.not_before[index] > book.now:
            return Reason(Code.BACKING_OFF, {"until": float(queue.not_before[index]), **facts})
        if place >= self.looked:
            return Reason(Code.BEYOND_DEPTH, facts)
        if (amount > free).any():
            return Reason(Code.NO_ROOM, facts)
        if book.profile.fits(amount, book.now, book.now + float(queue.expected[index])):
            return Reason(Code.NODES_TOO_FULL, facts)
        return Reason(Code.WOULD_DELAY, facts)


def admit(
    book: Book, queue: Queue, order: NDArray[np.int64], rank: NDArray[np.int64], settings: PlannerSettings
) -> Admission:
    """Go through ``order`` once; see the module."""
    able = (queue.amounts <= book.grid.allocatable[book.grid.usable].sum(axis=0)).all(axis=1)
    able &= queue.not_before <= book.now
    looked = order[: settings.depth]
    admission = Admission(book, queue, order, np.zeros(len(queue), dtype=bool), len(looked))
    candidates = looked[able[looked]]
    reserved = False
    position = 0
    while position < len(candidates):
        chunk = candidates[position : position + CHUNK]
        fits = book.profile.startable(queue.amounts[chunk], queue.expected[chunk])
        step = int(np.argmax(fits)) if reserved else 0
        index = int(chunk[step])
        if fits[step] and _start(admission, index, int(rank[index]), position + step, reserved):
            position += step + 1
        elif not reserved:
            reserved = _reserve(admission, index)
            position += 1
        else:
            position += step + 1 if fits[step] else len(chunk)
    return admission


def _start(admission: Admission, index: int, rank: int, place: int, behind: bool) -> bool:
    book, queue = admission.book, admission.queue
    request, duration = queue.requests[index], float(queue.expected[index])
    chosen = book.place(request.podsets, duration)
    if chosen is None:
        return False
    book.charge(request.podsets, chosen, duration)
    numbers: dict[str, float | int | str] = {
        "gpus": int(queue.gpus[index]),
        "waited": book.now - request.submitted,
        "until": book.now + duration,
        "ahead": place,
    }
    code = Code.CLAIMED if rank == Rank.CLAIMED else Code.BACKFILLED if behind else Code.FIRST_IN_ORDER
    placement = book.placement(request.podsets, chosen)
    admission.settled[index] = True
    admission.decisions.append(
        Start(
            request.id,
            Reason(code, numbers),
            book.grid.partition.name,
            placement,
            expected_end=book.now + duration,
        )
    )
    return True


def _reserve(admission: Admission, index: int) -> bool:
    book, queue = admission.book, admission.queue
    request, duration = queue.requests[index], float(queue.expected[index])
    start = book.reserve(request.podsets, queue.amounts[index], duration)
    if not np.isfinite(start):
        return False
    numbers: dict[str, float | int | str] = {
        "gpus": int(queue.gpus[index]),
        "start": start,
        "frees": int(queue.gpus[index]) - book.free_gpus,
    }
    admission.settled[index] = True
    admission.decisions.append(
        Reserve(
            request.id,
            Reason(Code.RESERVED_FIRST_BLOCKED, numbers),
            book.grid.partition.name,
            start,
            start + duration,
        )
    )
    return True
