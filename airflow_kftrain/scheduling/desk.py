"""One partition's part of a plan while it is made: its account, its queue in order, and what has been decided."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from airflow_kftrain.scheduling.book import Book
from airflow_kftrain.scheduling.calendar import Bools, Floats
from airflow_kftrain.scheduling.decisions import Decision, Explain, Reserve, Start
from airflow_kftrain.scheduling.fit import Chosen
from airflow_kftrain.scheduling.model import PodSet, Snapshot
from airflow_kftrain.scheduling.promises import Promises
from airflow_kftrain.scheduling.queue import Queue
from airflow_kftrain.scheduling.reasons import Code, Reason
from airflow_kftrain.scheduling.settings import PlannerSettings

Numbers = dict[str, float | int | str]
SLIP = 60.0  # seconds by which a planned start may move without a word


@dataclass
class Desk:
    """The working state of one partition.

    :param stay: seconds for which room must be free when a gang starts; shape (n,)
    :param rank: class of each waiting gang; shape (n,)
    :param urgent: which must start within the look-ahead to meet their deadlines; shape (n,)
    :param order: indices into the queue, first to look at first
    :param settled: which gangs start or have a reservation; shape (n,)
    :param looked: how many of ``order`` were looked at
    :param trusted: whether room is held for the first blocked gang on the strength of predictions
    :param claimed: ids of gangs that capacity was freed for
    :param earlier: start of each reservation of the last plan, by request
    :param started: indices of gangs that start
    :param reserved: start of each gang's reservation, by index
    :param helped: how many gangs the deadline ladder has been tried for
    :param spoken_for: room on each node that this plan's preemptions give to their beneficiaries; shape (nodes, axes)
    :param stopped: ids of running gangs that this plan suspends
    """

    snapshot: Snapshot
    settings: PlannerSettings
    book: Book
    queue: Queue
    promises: Promises
    stay: Floats
    rank: NDArray[np.int64]
    urgent: Bools
    order: NDArray[np.int64]
    settled: Bools
    able: Bools
    trusted: bool = True
    looked: int = 0
    decisions: list[Decision] = field(default_factory=list)
    claimed: frozenset[str] = frozenset()
    earlier: Mapping[str, float] = field(default_factory=dict)
    started: set[int] = field(default_factory=set)
    reserved: dict[int, float] = field(default_factory=dict)
    stopped: set[str] = field(default_factory=set)
    helped: int = 0
    spoken_for: Floats = field(default_factory=lambda: np.zeros((0, 0)))

    def __post_init__(self) -> None:
        self.spoken_for = np.zeros_like(self.book.free)

    @cached_property
    def index(self) -> dict[str, int]:
        """Where each waiting request stands in the queue's arrays, by id."""
        return {request.id: number for number, request in enumerate(self.queue.requests)}

    @property
    def again(self) -> float:
        """The next instant at which time alone changes the plan: a reservation, window, claim or back-off."""
        instants = [*self.reserved.values(), *self.queue.not_before.tolist(), *self.promises.instants]
        instants += [claim.expires for claim in self.snapshot.claims if claim.partition == self.name]
        return min((instant for instant in instants if instant > self.book.now), default=np.inf)

    @property
    def name(self) -> str:
        """The partition's name."""
        return self.book.grid.partition.name

    def startable(self, chunk: NDArray[np.int64]) -> Bools:
        """Which gangs of ``chunk`` may start now, by the plan and by every promise."""
        fits = self.book.profile.startable(self.queue.amounts[chunk], self.stay[chunk])
        if self.promises.any:
            fits &= self.promises.kept(self.queue.amounts[chunk], self.queue.surely_over[chunk])
        return fits

    def fits(self, amount: Floats, stay: float, surely_over: float) -> bool:
        """Whether ``amount`` may be taken from now for ``stay``, by the plan and by every promise."""
        one = amount[None, :]
        fits = self.book.profile.startable(one, np.array([stay]))[0]
        return bool(fits and (not self.promises.any or self.promises.kept(one, np.array([surely_over]))[0]))

    def start(
        self,
        index: int,
        code: Code,
        numbers: Mapping[str, float | int | str] | None = None,
        *,
        podsets: tuple[PodSet, ...] | None = None,
        size: int | None = None,
        stay: float | None = None,
        window: str | None = None,
    ) -> bool:
        """Start the gang at ``index`` here if nodes can be found for it."""
        request, over = self.queue.requests[index], float(self.queue.surely_over[index])
        amount = self.queue.amounts[index]
        if podsets is not None:
            amount = self.book.grid.total(podsets)
        elif request.elastic is not None:
            size = request.elastic.sizes[0]
        podsets = podsets or request.least
        stay = float(self.stay[index]) if stay is None else stay
        chosen = self.book.place(podsets, stay)
        if chosen is None:
            return False
        self.mark_started(index)
        reason = Reason(code, {**self.facts(index), **(numbers or {})})
        self.put(request.id, podsets, chosen, stay, reason, size, window)
        self.promises.admit(amount, over, window)
        return True

    def mark_started(self, index: int) -> None:
        """The gang at ``index`` starts, here or on a lender's nodes."""
        self.settled[index] = True
        self.started.add(index)
        if self.reserved.pop(index, None) is not None:
            name = self.queue.requests[index].id
            self.decisions[:] = [
                d for d in self.decisions if not (isinstance(d, Reserve) and d.request == name)
            ]

    def put(
        self,
        request: str,
        podsets: tuple[PodSet, ...],
        chosen: Chosen,
        stay: float,
        reason: Reason,
        size: int | None,
        window: str | None,
    ) -> None:
        """Charge ``chosen`` and say so."""
        self.book.charge(podsets, chosen, stay)
        placement = self.book.placement(podsets, chosen)
        end = self.book.now + stay
        self.decisions.append(Start(request, reason, self.name, placement, size, window, end))

    def reserve(self, index: int, code: Code, latest: float = np.inf) -> bool:
        """Hold room for the gang at ``index`` from the earliest instant, if that is not after ``latest``."""
        request, book = self.queue.requests[index], self.book
        stay = float(self.queue.expected[index])
        start = book.earliest(request.least, self.queue.amounts[index], stay)
        if not book.now < start <= latest or not np.isfinite(start):
            return (
                False  # what fits now and does not start is kept from it by a promise: holding would not help
            )
        gpus = int(self.queue.gpus[index])
        numbers = {**self.facts(index), "start": start, "frees": max(0, gpus - book.free_gpus)}
        before = self.earlier.get(request.id)
        if before is not None and start > before + SLIP:
            numbers["slip"] = start - before
        book.hold(request.least, self.queue.amounts[index], start, start + stay, request.id)
        self.settled[index] = True
        self.reserved[index] = start
        self.decisions.append(Reserve(request.id, Reason(code, numbers), self.name, start, start + stay))
        return True

    def misses(self, index: int) -> bool:
        """Whether even the p10 of a prediction that rests on enough runs ends beyond the gang's deadline."""
        believed = self.queue.runs[index] >= self.settings.hopeless_runs
        return bool(believed and self.book.now + self.queue.soonest[index] > self.queue.deadline[index])

    def latest(self, index: int) -> float:
        """When the gang at ``index`` must start to meet its deadline."""
        return float(self.queue.deadline[index] - self.queue.expected[index])

    def facts(self, index: int) -> Numbers:
        """The numbers that most reasons want."""
        queue, now = self.queue, self.book.now
        return {
            "gpus": int(queue.gpus[index]),
            "free": self.book.free_gpus,
            "partition": self.name,
            "waited": now - float(queue.submitted[index]),
            "expected_run": float(queue.expected[index]),
            "until": now + float(self.stay[index]),
            "deadline": float(queue.deadline[index]),
            "latest": float(queue.deadline[index] - queue.expected[index]),
            "guard": self.settings.guard,
        }

    def waiting(self, limit: int | None = None) -> list[int]:
        """Able gangs that neither start nor have a reservation, in order."""
        looked = self.order[: self.looked]
        left = looked[~self.settled[looked] & self.able[looked]]
        return [int(index) for index in left[:limit]]

    def unserved(self, limit: int) -> list[int]:
        """Gangs that do not start, reserved or not, in order, those too large for the partition included."""
        looked = self.order[: self.looked]
        asks = looked[self.queue.not_before[looked] <= self.book.now]
        left = (int(i) for i in asks if int(i) not in self.started)
        return [i for i in itertools.islice(left, limit) if self.queue.requests[i].id not in self.claimed]

    def blocked(self, limit: int) -> list[int]:
        """Able gangs that do not start, reserved or not, in order."""
        looked = self.order[: self.looked]
        left = (int(index) for index in looked if self.able[index] and int(index) not in self.started)
        return list(itertools.islice(left, limit))

    def explanations(self) -> list[Explain]:
        """Why each gang waits that neither starts nor has a reservation."""
        return [
            Explain(self.queue.requests[index].id, self.reason(place, int(index)))
            for place, index in enumerate(self.order)
            if not self.settled[index]
        ]

    def reason(self, place: int, index: int) -> Reason:
        """Why the gang at ``index``, the ``place``-th in order, waits."""
        facts = {**self.facts(index), "ahead": place}
        amount = self.queue.amounts[index]
        if (amount > self.book.usable).any():
            return Reason(Code.NEVER_FITS, {**facts, "what": self._lacking(amount)})
        if self.queue.not_before[index] > self.book.now:
            return Reason(Code.BACKING_OFF, {**facts, "until": float(self.queue.not_before[index])})
        if self.misses(index):
            end = self.book.now + float(self.queue.expected[index])
            return Reason(Code.MISSES_DEADLINE, {**facts, "expected_end": end})
        if place >= self.looked:
            return Reason(Code.BEYOND_DEPTH, facts)
        none = f"no set of nodes of {self.name} that it may use has room for each of its pods, even when all are empty"
        return Reason(self._obstacle(amount, index), {**facts, "what": none})

    def _obstacle(self, amount: Floats, index: int) -> Code:
        free = np.maximum(self.book.free, 0.0).sum(axis=0)
        one = np.array([index])
        if (amount > free).any():
            return Code.NO_ROOM
        if (
            self.promises.any
            and not self.promises.kept(self.queue.amounts[one], self.queue.surely_over[one])[0]
        ):
            return Code.WOULD_BREAK_WINDOW
        if not self.book.ever_fits(self.queue.requests[index].least):
            return Code.NEVER_FITS
        if self.book.profile.fits(amount, self.book.now, self.book.now + float(self.stay[index])):
            return Code.NODES_TOO_FULL
        return Code.WOULD_DELAY

    def _lacking(self, amount: Floats) -> str:
        if not np.isfinite(amount).all():
            return f"no node of {self.name} has one of the resources it asks for"
        short = [
            f"{name} {asks:g} of {has:g}"
            for name, asks, has in zip(self.book.grid.axes, amount, self.book.usable, strict=True)
            if asks > has
        ]
        borrows = self.book.grid.partition.borrowing != 0
        hint = "; no other partition lends it so much now" if borrows else ""
        return f"{self.name} is too small ({', '.join(short)}){hint}"
