"""Policies of other schedulers, without preemption: what the planner is measured against."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from airflow_kftrain.simulate.engine import Decision, Start
from airflow_kftrain.simulate.estimates import Estimates, Exact, corrected
from airflow_kftrain.simulate.workload import Job
from airflow_kftrain.simulate.world import Nodes, World

#: Rank of a job when it is submitted, least first; ties by submission.
Order: TypeAlias = Callable[[Job, float], float]


def by_submission(_job: Job, _estimate: float) -> float:
    """First come, first served."""
    return 0.0


def by_width(job: Job, _estimate: float) -> float:
    """Smallest gang first."""
    return job.gpus


def by_service(job: Job, estimate: float) -> float:
    """Shortest predicted service (GPUs x duration) first."""
    return job.gpus * estimate


def by_deadline(job: Job, _estimate: float) -> float:
    """Earliest deadline first, jobs without one last."""
    return math.inf if job.deadline is None else job.deadline


class Ranked:
    """What all baselines share: estimates and ranks made once, at submission."""

    debounce = 0.0

    def __init__(self, name: str, order: Order, estimates: Estimates | None = None) -> None:
        self.name = name
        self.estimates = estimates or Exact()
        self._order = order
        self._estimate: npt.NDArray[np.float64] = np.empty(0)
        self._rank: npt.NDArray[np.float64] = np.empty(0)
        self._width: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)

    def submitted(self, world: World, job: int) -> None:
        if not len(self._width):
            self._width = np.array([spec.gpus for spec in world.jobs])
            self._estimate = np.zeros(len(world.jobs))
            self._rank = np.zeros(len(world.jobs))
        self._estimate[job] = estimate = self.estimates.of(world, job)
        self._rank[job] = self._order(world.jobs[job], estimate)

    def finished(self, world: World, job: int) -> None:
        self.estimates.finished(world, job)

    def ranked(self, world: World) -> npt.NDArray[np.int64]:
        """Waiting jobs, first to go first."""
        waiting = np.array(world.waiting, dtype=np.int64)
        return waiting[np.argsort(self._rank[waiting], kind="stable")]

    def expected_end(self, world: World, job: int) -> float:
        """When a running job is believed to end."""
        elapsed = world.elapsed(job)
        return world.now + corrected(float(self._estimate[job]), elapsed) - elapsed


class Greedy(Ranked):
    """Start in order whatever fits.

    :param blocking: stop at the first that does not fit (StrictFIFO); otherwise pass over it (BestEffortFIFO)
    """

    def __init__(
        self, name: str, order: Order, *, blocking: bool = False, estimates: Estimates | None = None
    ) -> None:
        super().__init__(name, order, estimates)
        self._blocking = blocking

    def decide(self, world: World) -> Decision:
        starts: list[Start] = []
        free = world.nodes.copy()
        queue = self.ranked(world)
        if not self._blocking:
            queue = queue[self._width[queue] <= free.total]
        refused: set[tuple[int, str]] = set()
        for job in queue.tolist():
            if not free.total:
                break
            home, width = world.home(job), world.jobs[job].gpus
            if (width, home) in refused:
                continue
            start = try_start(free, job, width, home)
            if start is not None:
                starts.append(start)
            elif self._blocking:
                break
            else:
                refused.add((width, home))
        return Decision(starts)


class Backfill(Ranked):
    """In order, with one reservation for the first that does not fit; others may pass if they do not delay it.

    With submission order and exact estimates this is EASY; with another order, that order under EASY's guard.
    """

    def decide(self, world: World) -> Decision:
        starts: list[Start] = []
        free = world.nodes.copy()
        if not free.total or not world.waiting:
            return Decision()
        queue = self.ranked(world)
        blocked = None
        for place, job in enumerate(queue.tolist()):
            start = try_start(free, job, world.jobs[job].gpus, world.home(job))
            if start is None:
                blocked = place
                break
            starts.append(start)
        if blocked is not None and free.total:
            self._backfill(world, free, queue[blocked:], starts)
        return Decision(starts)

    def _backfill(self, world: World, free: Nodes, queue: npt.NDArray[np.int64], starts: list[Start]) -> None:
        head = int(queue[0])
        shadow, beside = self._shadow(world, free, head, starts)
        rest = queue[1:]
        short = world.now + self._estimate[rest] <= shadow
        fitting = self._width[rest] <= free.total
        ends_before = dict(zip(rest.tolist(), short.tolist(), strict=True))
        for job in rest[fitting & (short | (self._width[rest] <= beside.total))].tolist():
            if not free.total:
                break
            width, home = world.jobs[job].gpus, world.home(job)
            if not ends_before[job] and not beside.fits(width, home):
                continue
            start = try_start(free, job, width, home)
            if start is None:
                continue
            placement = start.placement or ()
            if not ends_before[job]:
                if not beside.holds(placement):  # the very nodes would be missing beside the reserved gang
                    free.release(placement)
                    continue
                beside.take(placement)
            starts.append(start)

    def _shadow(self, world: World, free: Nodes, head: int, starts: list[Start]) -> tuple[float, Nodes]:
        """When ``head`` is believed to start, and what is free beside it then."""
        shadow = free.copy()
        width, home = world.jobs[head].gpus, world.home(head)
        ends = [(self.expected_end(world, job), gang.placement) for job, gang in world.gangs.items()]
        ends += [(world.now, gang.placement) for gang in world.ending.values()]
        ends += [(world.now + float(self._estimate[start.job]), start.placement or ()) for start in starts]
        for end, placement in sorted(ends):
            shadow.release(placement)
            found = shadow.place(width, home)
            if found is not None:
                shadow.take(found)
                return end, shadow
        return math.inf, shadow


def try_start(free: Nodes, job: int, width: int, home: str) -> Start | None:
    """Charge a gang to ``free`` if it fits; the act that starts it there."""
    placement = free.place(width, home)
    if placement is None:
        return None
    free.take(placement)
    return Start(job, width, home, placement)
