"""Policies that preempt: the oracle that shows what could be reached, and two that need no durations."""

from __future__ import annotations

import math

import numpy as np

from airflow_kftrain.simulate.engine import Act, Decision, Preempt, Start
from airflow_kftrain.simulate.world import World


class _Preemptive:
    """Runs the prefix of an order that fits, passing over gangs that do not; keeps runners where it can."""

    name = ""
    debounce = 0.0

    def submitted(self, world: World, job: int) -> None:
        """Nothing is learnt."""

    def finished(self, world: World, job: int) -> None:
        """Nothing is learnt."""

    def keys(self, world: World, jobs: list[int]) -> list[float]:
        """Rank of each job now, least first."""
        raise NotImplementedError

    def decide(self, world: World) -> Decision:
        if not world.waiting:
            return Decision(wake=self.next_change(world))
        candidates = [*world.gangs, *world.waiting]
        keys = np.array(self.keys(world, candidates))
        stay, starts = _choose(world, [candidates[at] for at in np.argsort(keys, kind="stable").tolist()])
        leaving = [job for job in world.gangs if job not in stay]
        acts: list[Act] = [Preempt(job) for job in leaving]
        free = world.nodes.copy()
        if not world.costs.termination:
            for job in leaving:
                free.release(world.gangs[job].placement)
        for start in starts:
            if start.placement and free.holds(start.placement):  # else once what is there has terminated
                free.take(start.placement)
                acts.append(start)
        return Decision(acts, self.next_change(world))

    def next_change(self, world: World) -> float | None:  # noqa: ARG002
        """When ranks change without an event."""
        return None


def _choose(world: World, ranked: list[int]) -> tuple[set[int], list[Start]]:
    """Who goes on and who starts, first ranked first; runners stay on their nodes."""
    room = world.nodes.copy()
    for gang in world.gangs.values():
        room.release(gang.placement)
    unused = world.nodes.copy()
    stay: set[int] = set()
    starts: list[Start] = []
    for job in ranked:
        if not room.total:
            break
        if job in world.gangs:
            held = world.gangs[job].placement
            if room.holds(held):
                room.take(held)
                stay.add(job)
            continue
        width, home = world.jobs[job].gpus, world.home(job)
        placement = unused.place(width, home)
        if placement is None:
            placement = room.place(width, home)
        else:
            unused.take(placement)
        if placement is not None and room.holds(placement):
            room.take(placement)
            starts.append(Start(job, width, home, placement))
    return stay, starts


class ShortestRemaining(_Preemptive):
    """Shortest remaining service first with true durations: an oracle, not a bound."""

    name = "oracle (SRSF, preemptive)"

    def keys(self, world: World, jobs: list[int]) -> list[float]:
        return [world.remaining(job) * world.jobs[job].gpus for job in jobs]


class LeastAttained(_Preemptive):
    """Discretised two-dimensional least attained service (Tiresias): queues by GPU-seconds, FIFO within.

    :param thresholds: GPU-seconds at which a job falls into the next queue
    """

    name = "2D-LAS"

    def __init__(self, thresholds: tuple[float, ...] = (3600.0, 7200.0, 18000.0)) -> None:
        self._thresholds = thresholds

    def _queue(self, attained: float) -> int:
        return sum(attained >= threshold - 1.0 for threshold in self._thresholds)

    def keys(self, world: World, jobs: list[int]) -> list[float]:
        span = len(world.jobs)
        return [self._queue(world.attained(job)) * span + job for job in jobs]

    def next_change(self, world: World) -> float | None:
        if not world.waiting:
            return None
        soonest = math.inf
        for job, gang in world.gangs.items():
            attained = world.attained(job)
            queue = self._queue(attained)
            if queue < len(self._thresholds):
                left = (self._thresholds[queue] - attained) / world.jobs[job].gpus
                soonest = min(soonest, max(world.now, gang.works_from) + left)
        return max(soonest, world.now + 1.0) if soonest < math.inf else None
