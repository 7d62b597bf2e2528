"""The loop: events of a workload in order of time, one decision of the policy after all events of an instant."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol, TypeAlias

from airflow_kftrain.simulate.workload import Workload
from airflow_kftrain.simulate.world import (
    EPSILON,
    Cluster,
    Costs,
    Gang,
    Placement,
    Record,
    SimulationError,
    World,
)


@dataclass(frozen=True, slots=True)
class Start:
    """Admit a waiting job; without ``gpus`` at its size, without ``placement`` by best fit."""

    job: int
    gpus: int | None = None
    partition: str | None = None
    placement: Placement | None = None


@dataclass(frozen=True, slots=True)
class Preempt:
    """Suspend a running gang."""

    job: int


@dataclass(frozen=True, slots=True)
class Resize:
    """Change the size of a running gang."""

    job: int
    gpus: int
    placement: Placement | None = None


Act: TypeAlias = Start | Preempt | Resize


@dataclass(frozen=True, slots=True)
class Decision:
    """What a policy wants done now, in this order, and when it wants to be asked again at the latest."""

    acts: Sequence[Act] = ()
    wake: float | None = None


class Policy(Protocol):
    """Decides who runs; learns only what a scheduler could know, unless it calls itself an oracle.

    ``debounce`` is how long after an event it decides, seconds.
    """

    name: str
    debounce: float

    def submitted(self, world: World, job: int) -> None:
        """A job has come."""

    def finished(self, world: World, job: int) -> None:
        """A job has ended well."""

    def decide(self, world: World) -> Decision:
        """What to do at ``world.now``."""


class _Kind(IntEnum):
    FREED = 0
    FINISH = 1
    FAIL = 2
    SUBMIT = 3
    WAKE = 4


@dataclass(frozen=True, slots=True)
class Sample:
    """Use of the cluster from ``time`` on, until the next sample.

    :param held: free GPUs while a waiting gang would fit: kept idle on purpose
    :param stuck: free GPUs while gangs wait and none fits
    """

    time: float
    used: int
    waiting: int
    waiting_gpus: int
    held: int
    stuck: int


@dataclass(slots=True)
class Run:
    """One simulated run."""

    workload: Workload
    cluster: Cluster
    policy: str
    records: list[Record]
    samples: list[Sample] = field(default_factory=list)
    spans: list[tuple[int, float, float, int]] = field(default_factory=list)
    decisions: int = 0


def simulate(
    workload: Workload,
    cluster: Cluster,
    policy: Policy,
    costs: Costs | None = None,
    *,
    checked: bool = False,
) -> Run:
    """Run ``workload`` under ``policy`` to its end.

    :param costs: what changes cost; :class:`~airflow_kftrain.simulate.world.Costs` by default
    :param checked: compare charges of gangs and nodes after every decision (slower)
    :raises SimulationError: the policy decided something impossible, or left work waiting for ever
    """
    return _Engine(workload, cluster, policy, costs or Costs(), checked=checked).run()


class _Engine:
    def __init__(
        self, workload: Workload, cluster: Cluster, policy: Policy, costs: Costs, *, checked: bool
    ) -> None:
        self.world = World(workload.jobs, cluster, costs)
        self.policy = policy
        self.checked = checked
        self.result = Run(workload, cluster, policy.name, self.world.records)
        self._order = itertools.count()
        self._ends: dict[int, int] = {}
        self._events: list[tuple[float, int, int, int]] = [
            (job.submit, _Kind.SUBMIT, index, next(self._order)) for index, job in enumerate(workload.jobs)
        ]
        heapq.heapify(self._events)
        self._wake: float | None = None
        self._left = len(workload.jobs)
        for index, job in enumerate(workload.jobs):
            if not any(self.world.nodes.fits(job.gpus, name) for name in self._homes(index)):
                raise SimulationError(f"job {job.id} of {job.gpus} GPUs never fits into its partition")

    def _homes(self, job: int) -> Sequence[str]:
        partitions = self.world.nodes.partitions
        return [name for name in partitions if name == self.world.home(job)]

    def run(self) -> Run:
        dirty_at: float | None = None
        while self._left:
            at = self._next_instant(dirty_at)
            self.world.now = at
            if self._take_events(at) and dirty_at is None:
                dirty_at = at + self.policy.debounce
            waking = self._wake is not None and self._wake <= at + EPSILON
            if waking or (dirty_at is not None and dirty_at <= at + EPSILON):
                dirty_at = None
                self._decide()
        return self.result

    def _next_instant(self, dirty_at: float | None) -> float:
        times = [
            t for t in (dirty_at, self._wake, self._events[0][0] if self._events else None) if t is not None
        ]
        if not times:
            stuck = [self.world.jobs[job].id for job in self.world.waiting[:5]]
            raise SimulationError(f"{self.policy.name} leaves {self._left} jobs waiting for ever: {stuck}")
        return max(self.world.now, min(times))

    def _take_events(self, at: float) -> bool:
        changed = False
        while self._events and self._events[0][0] <= at + EPSILON:
            _, kind, job, serial = heapq.heappop(self._events)
            changed = self._apply_event(_Kind(kind), job, serial) or changed
        return changed

    def _apply_event(self, kind: _Kind, job: int, serial: int) -> bool:
        world = self.world
        if kind is _Kind.SUBMIT:
            world.enqueue(job)
            self.policy.submitted(world, job)
            return True
        if kind is _Kind.FREED:
            world.free(job)
            return True
        if self._ends.get(job) != serial:
            return False  # the gang was preempted or resized since
        self._log_span(world.gangs[job])
        del self._ends[job]
        if kind is _Kind.FAIL:
            world.fail(job)
        else:
            world.finish(job)
            self.policy.finished(world, job)
            self._left -= 1
        self._free_later(job)
        return True

    def _free_later(self, job: int) -> None:
        if self.world.costs.termination:
            when = self.world.now + self.world.costs.termination
            heapq.heappush(self._events, (when, _Kind.FREED, job, next(self._order)))
        else:
            self.world.free(job)

    def _decide(self) -> None:
        decision = self.policy.decide(self.world)
        self.result.decisions += 1
        self._wake = decision.wake
        if self._wake is not None and self._wake <= self.world.now:
            raise SimulationError(f"{self.policy.name} asks to be woken at {self._wake}, which is over")
        for act in decision.acts:
            self._act(act)
        if self.checked:
            self.world.check()
        self._sample()

    def _act(self, act: Act) -> None:
        world = self.world
        if isinstance(act, Start):
            gang = world.start(
                act.job,
                gpus=act.gpus or world.jobs[act.job].gpus,
                partition=act.partition or world.home(act.job),
                placement=act.placement,
            )
            self._schedule_end(gang)
        elif isinstance(act, Preempt):
            self._log_span(world.gangs[act.job])
            self._ends.pop(act.job)
            world.preempt(act.job)
            self._free_later(act.job)
        else:
            self._log_span(world.gangs[act.job])
            gang = world.resize(act.job, act.gpus, act.placement)
            self._schedule_end(gang)

    def _schedule_end(self, gang: Gang) -> None:
        job, failures = self.world.jobs[gang.job], self.world.records[gang.job].failures
        left, kind = job.duration - gang.done, _Kind.FINISH
        if failures < len(job.fails):
            until_failure = job.fails[failures] - (gang.done - gang.done_at_admission)
            if until_failure < left:
                left, kind = max(0.0, until_failure), _Kind.FAIL
        serial = next(self._order)
        self._ends[gang.job] = serial
        when = max(self.world.now, gang.works_from) + left / gang.rate
        heapq.heappush(self._events, (when, kind, gang.job, serial))

    def _log_span(self, gang: Gang) -> None:
        since = max(gang.admitted, gang.resized)
        if self.world.now > since:
            self.result.spans.append((gang.job, since, self.world.now, gang.gpus))

    def _sample(self) -> None:
        world = self.world
        free, waiting = world.nodes.total, len(world.waiting)
        fits = bool(waiting and free and world.fits_any_waiting())
        wide = sum(gpus * count for (gpus, _), count in world.waiting_shapes.items())
        held, stuck = (free, 0) if fits else (0, free if waiting else 0)
        sample = Sample(world.now, world.used(), waiting, wide, held, stuck)
        samples = self.result.samples
        if samples and samples[-1].time == sample.time:
            samples[-1] = sample
        else:
            samples.append(sample)
