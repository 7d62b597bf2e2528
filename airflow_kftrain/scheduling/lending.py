"""Lending between partitions: idle capacity for a bounded time, and taking it back."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_kftrain.scheduling.book import total_of
from airflow_kftrain.scheduling.desk import Desk
from airflow_kftrain.scheduling.model import Phase, Running
from airflow_kftrain.scheduling.preemption import by_least_lost, fewest, makes_room, stop
from airflow_kftrain.scheduling.queue import queue_of
from airflow_kftrain.scheduling.reasons import Code, Reason

LOOKED = 32  # waiting gangs for which one plan looks for a lender: they are first in order


class Ledger:
    """GPUs lent and borrowed, by partition."""

    def __init__(self, desks: Mapping[str, Desk]) -> None:
        self.lent = dict.fromkeys(desks, 0)
        self.borrowed = dict.fromkeys(desks, 0)
        for name, desk in desks.items():
            for gang in desk.book.running:
                if gang.request.partition != name and gang.phase is not Phase.TERMINATING:
                    self.add(name, gang.request.partition, desk.book.gpus(total_of(gang, desk.book.grid)))

    def add(self, lender: str, borrower: str, gpus: int) -> None:
        """Count a loan."""
        self.lent[lender] += gpus
        if borrower in self.borrowed:
            self.borrowed[borrower] += gpus

    def allows(self, lender: Desk, borrower: Desk, gpus: int) -> bool:
        """Whether both limits leave room for ``gpus`` more."""
        lending, borrowing = lender.book.grid.partition.lending, borrower.book.grid.partition.borrowing
        return (lending is None or self.lent[lender.name] + gpus <= lending) and (
            borrowing is None or self.borrowed[borrower.name] + gpus <= borrowing
        )


def lend(desks: Mapping[str, Desk]) -> None:
    """Start waiting gangs on what other partitions have idle and nobody of theirs waits for.

    A loan ends in time: its predicted (p80) run, or with ``recallable_only`` its sure one, is at most ``loan_longest``,
    unless it can be recalled. Of several lenders the one with the most free GPUs that are left over lends.
    """
    lenders = [
        desk for desk in desks.values() if desk.book.grid.partition.lending != 0 and not desk.waiting(1)
    ]
    borrowers = [desk for desk in desks.values() if desk.book.grid.partition.borrowing != 0]
    if not lenders or not borrowers:
        return
    ledger = Ledger(desks)
    for borrower in borrowers:
        for index in borrower.unserved(LOOKED):
            for lender in sorted(lenders, key=lambda desk: (-desk.book.free_gpus, desk.name)):
                if lender is not borrower and borrow(borrower, index, lender, ledger):
                    break


def borrow(borrower: Desk, index: int, lender: Desk, ledger: Ledger) -> bool:
    """Start the gang at ``index`` of ``borrower`` on ``lender``'s nodes, if every rule allows it."""
    request = borrower.queue.requests[index]
    gpus = int(borrower.queue.gpus[index])
    if gpus > lender.book.free_gpus or not ledger.allows(lender, borrower, gpus):
        return False
    there = queue_of([request], lender.book.grid, lender.snapshot.costs)
    stay = max(float(there.expected[0]), request.estimate.p80 + lender.snapshot.costs.startup)
    recallable = request.resumable and request.preemptible
    bounded = request.run_limit if lender.book.grid.partition.recallable_only else stay
    if not recallable and bounded > lender.settings.loan_longest:
        return False
    if not lender.fits(there.amounts[0], stay, float(there.surely_over[0])):
        return False
    chosen = lender.book.place(request.least, stay)
    if chosen is None:
        return False
    numbers = {**borrower.facts(index), "lender": lender.name, "until": lender.book.now + stay}
    size = None if request.elastic is None else request.elastic.sizes[0]
    lender.put(request.id, request.least, chosen, stay, Reason(Code.BORROWED, numbers), size, None)
    lender.promises.admit(there.amounts[0], float(there.surely_over[0]), None)
    borrower.mark_started(index)
    ledger.add(lender.name, request.partition, gpus)
    return True


def recall(desk: Desk) -> None:
    """Take loans back for the first of the partition's own gangs that is blocked, if that makes room for it."""
    loans = [i for i, gang in enumerate(desk.book.running) if _recallable(gang, desk)]
    blocked = desk.blocked(1)
    if not loans or not blocked or desk.queue.requests[blocked[0]].id in desk.claimed:
        return
    ordered = by_least_lost(loans, desk.book, desk.snapshot.costs)
    stopped = fewest(ordered, makes_room(desk, blocked[0])) or []
    stop(desk, stopped, blocked[0], Code.RECALLED)


def _recallable(gang: Running, desk: Desk) -> bool:
    return (
        gang.request.partition != desk.name
        and gang.request.resumable
        and gang.request.preemptible
        and gang.phase is not Phase.TERMINATING
    )
