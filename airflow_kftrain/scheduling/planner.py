"""One cycle of the planner: a snapshot in, a plan out. Pure: no clock, no cluster, no memory of its own."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from airflow_kftrain.scheduling.backfill import admit
from airflow_kftrain.scheduling.book import Book
from airflow_kftrain.scheduling.deadline import climb, look_ahead
from airflow_kftrain.scheduling.decisions import Decision, Explain, Start
from airflow_kftrain.scheduling.desk import Desk
from airflow_kftrain.scheduling.elastic import resize
from airflow_kftrain.scheduling.fit import grid_of
from airflow_kftrain.scheduling.forecast import Calibration, Eta, raw_wait
from airflow_kftrain.scheduling.lending import lend, recall
from airflow_kftrain.scheduling.model import Partition, Request, Running, Snapshot
from airflow_kftrain.scheduling.ordering import guard_room, order, ranks, urgent
from airflow_kftrain.scheduling.preemption import preempt_by_service
from airflow_kftrain.scheduling.promises import Promises
from airflow_kftrain.scheduling.queue import Queue, queue_of
from airflow_kftrain.scheduling.reasons import Code, Reason
from airflow_kftrain.scheduling.settings import PlannerSettings, Preemption
from airflow_kftrain.scheduling.vectors import Axes, axes_of
from airflow_kftrain.scheduling.windows import drain, enter


@dataclass
class Plan:
    """What should happen now, and why the rest waits.

    :param decisions: acts, in the order they should be carried out
    """

    decisions: list[Decision] = field(default_factory=list)
    _desks: list[Desk] = field(default_factory=list)
    _lost: list[Explain] = field(default_factory=list)

    @property
    def starts(self) -> list[Start]:
        """Gangs that start now."""
        return [decision for decision in self.decisions if isinstance(decision, Start)]

    def explanations(self) -> list[Explain]:
        """One reason for each gang that neither starts nor has a reservation; made when asked for."""
        return self._lost + [explained for desk in self._desks for explained in desk.explanations()]

    @property
    def again(self) -> float:
        """When to plan again at the latest, without an event; infinity when time alone changes nothing."""
        return min((desk.again for desk in self._desks), default=math.inf)

    def eta(self, request: str, calibration: Calibration | None = None) -> Eta | None:
        """When a waiting request is expected to start; None when it never can, or does not wait.

        :param calibration: the host's record of earlier forecasts; without it the range is a wide guess
        """
        for desk in self._desks:
            index = desk.index.get(request)
            if index is not None and index not in desk.started:
                raw = raw_wait(desk, index)
                gpus = desk.queue.requests[index].gpus
                made = (calibration or Calibration()).eta(request, gpus, desk.book.now, raw)
                return made if raw < math.inf else None
        return None


def plan(snapshot: Snapshot, settings: PlannerSettings | None = None) -> Plan:
    """The plan for ``snapshot``; the same for equal snapshots."""
    settings = settings or PlannerSettings()
    # 1. Charge what runs and what is promised; put each partition's queue in order.
    desks, lost = _desks(snapshot, settings)
    for desk in desks.values():
        # 2. Make way for guaranteed windows, and let their members in.
        drain(desk)
        enter(desk)
        # 3. Start what fits in order; reserve for the first that does not; backfill beneath.
        admit(desk)
    for desk in desks.values():
        # 4. Help gangs that would miss their deadline: other sizes, a loan, preemption.
        climb(desk, desks)
    # 5. Lend what is idle, take back what was lent.
    if len(desks) > 1:
        lend(desks)
        for desk in desks.values():
            recall(desk)
    # 6. Give elastic gangs the sizes they should have.
    for desk in desks.values():
        resize(desk)
    # 7. Suspend long work for short, where preemption is for that.
    if settings.preemption is Preemption.SERVICE:
        for desk in desks.values():
            preempt_by_service(desk)
    decisions = [decision for desk in desks.values() for decision in desk.decisions]
    return Plan(decisions, list(desks.values()), lost)


def _desks(snapshot: Snapshot, settings: PlannerSettings) -> tuple[dict[str, Desk], list[Explain]]:
    """A desk for each partition, and why requests of unknown partitions wait."""
    axes = _axes(snapshot.partitions)
    queues: defaultdict[str, list[Request]] = defaultdict(list)
    for request in snapshot.queue:
        queues[request.partition].append(request)
    running: defaultdict[str, list[Running]] = defaultdict(list)
    for gang in snapshot.running:
        running[gang.partition].append(gang)
    desks = {
        partition.name: _desk(
            snapshot, settings, partition, axes, queues.pop(partition.name, []), running[partition.name]
        )
        for partition in snapshot.partitions
    }
    lost = [
        Explain(request.id, Reason(Code.NO_PARTITION, {"partition": name}))
        for name, requests in sorted(queues.items())
        for request in requests
    ]
    return desks, lost


@lru_cache(maxsize=64)
def _axes(partitions: tuple[Partition, ...]) -> Axes:
    """All resources that any node has; kept while the very same partitions come again."""
    return axes_of(node.allocatable for partition in partitions for node in partition.nodes)


def _desk(
    snapshot: Snapshot,
    settings: PlannerSettings,
    partition: Partition,
    axes: Axes,
    requests: list[Request],
    running: list[Running],
) -> Desk:
    now, grid = snapshot.now, grid_of(partition, axes)
    book = Book(grid, running, now)
    windows = [
        window for window in snapshot.windows if window.partition == partition.name and window.end > now
    ]
    promises = Promises(book, windows, snapshot.costs)
    queue = queue_of(requests, grid, snapshot.costs)
    claimed = frozenset(
        c.beneficiary for c in snapshot.claims if c.partition == partition.name and c.expires > now
    )
    error = snapshot.prediction_error.get(partition.name)
    ahead = look_ahead(error, settings.look_ahead, settings.error_limit)
    room = guard_room(running, book.gpus(book.usable), settings)
    rank = ranks(queue, now, claimed, settings, room)
    able = (queue.amounts <= book.usable).all(axis=1) & (queue.not_before <= now)
    return Desk(
        snapshot=snapshot,
        settings=settings,
        book=book,
        queue=queue,
        promises=promises,
        stay=_stay(queue, promises, settings),
        rank=rank,
        urgent=urgent(queue, now, ahead),
        order=order(queue, rank, now, snapshot.shares, settings),
        settled=np.zeros(len(queue), dtype=bool),
        able=able,
        trusted=(error or 0.0) < settings.trust_limit,
        claimed=claimed,
        earlier={r.request: r.start for r in snapshot.reserved if r.partition == partition.name},
    )


def _stay(queue: Queue, promises: Promises, settings: PlannerSettings) -> np.ndarray:
    """For how long room must be free: the predicted run, or until a window stops a resumable gang, if worth it."""
    if not promises.any:
        return queue.expected
    until = promises.next_hold() - promises.book.now
    cut = queue.resumable & (until >= settings.worth_starting) & (until < queue.expected)
    return np.where(cut, until, queue.expected)
