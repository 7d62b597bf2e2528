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
        candidates = [*world.gangs, *world.waiting]
        if not world.waiting:
            return Decision(wake=self.next_change(world))
        keys = self.keys(world, candidates)
        room = world.nodes.total + sum(gang.gpus for gang in world.gangs.values())
        chosen: set[int] = set()
        for at in np.argsort(np.array(keys), kind="stable").tolist():
            job = candidates[at]
            if world.jobs[job].gpus <= room:
                room -= world.jobs[job].gpus
                chosen.add(job)
                if not room:
                    break
        return Decision(self._acts(world, chosen), self.next_change(world))

    def next_change(self, world: World) -> float | None:  # noqa: ARG002
        """When ranks change without an event."""
        return None

    @staticmethod
    def _acts(world: World, chosen: set[int]) -> list[Act]:
        acts: list[Act] = []
        free = world.nodes.copy()
        for job, gang in world.gangs.items():
            if job not in chosen:
                acts.append(Preempt(job))
                if not world.costs.termination:
                    free.release(gang.placement)
        for job in world.waiting:
            if job in chosen:
                home = world.home(job)
                placement = free.place(world.jobs[job].gpus, home)
                if placement is not None:
                    free.take(placement)
                    acts.append(Start(job, world.jobs[job].gpus, home, placement))
        return acts


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
