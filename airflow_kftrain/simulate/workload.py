"""Jobs to simulate: plain values, times in seconds from the start of the workload."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from airflow_kftrain.exceptions import InvalidInput


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast a job runs by the size of its gang.

    :param rates: pairs (GPUs, iterations a second), sizes rising
    """

    rates: tuple[tuple[int, float], ...]

    def at(self, gpus: int) -> float:
        """Iterations a second with ``gpus``; between measured sizes that of the next smaller one."""
        rate = 0.0
        for size, measured in self.rates:
            if size > gpus:
                break
            rate = measured
        return rate

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes that were measured."""
        return tuple(size for size, _ in self.rates)


@dataclass(frozen=True, slots=True)
class Job:
    """One gang, as it was submitted.

    :param submit: seconds
    :param duration: seconds of work with ``gpus`` GPUs, without start-up
    :param group: partition or team; empty when unknown
    :param key: history key (DAG and task); empty when the workload carries no names
    :param deadline: seconds on the workload's clock
    :param run_limit: hard limit of a run in seconds, as ``Limits(run=…)`` sets it
    :param reports: whether the job reports its progress
    :param speed: set for an elastic job
    :param fails: seconds of work after which its first, second … attempt fails
    """

    id: str
    submit: float
    duration: float
    gpus: int
    group: str = ""
    key: str = ""
    deadline: float | None = None
    run_limit: float | None = None
    reports: bool = False
    resumable: bool = True
    preemptible: bool = True
    speed: Speed | None = None
    fails: tuple[float, ...] = ()

    @property
    def area(self) -> float:
        """GPU-seconds of work at the requested size."""
        return self.duration * self.gpus

    def rate(self, gpus: int) -> float:
        """Work seconds done in one second with ``gpus``, 1 at the requested size."""
        if self.speed is None or gpus == self.gpus:
            return 1.0
        return self.speed.at(gpus) / self.speed.at(self.gpus)


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs in order of submission."""

    name: str
    jobs: tuple[Job, ...]

    @staticmethod
    def of(name: str, jobs: Iterable[Job]) -> Workload:
        """A workload of ``jobs`` in any order; equal times keep the given order."""
        return Workload(name, tuple(sorted(jobs, key=lambda job: job.submit)))

    @property
    def span(self) -> float:
        """Seconds from the first to the last submission."""
        return self.jobs[-1].submit - self.jobs[0].submit if self.jobs else 0.0

    def load(self, capacity: int) -> float:
        """Offered load: work over what ``capacity`` GPUs give between first and last submission."""
        if not self.span:
            raise InvalidInput("trace", self.name, "an offered load needs submissions at two times at least")
        return sum(job.area for job in self.jobs) / (capacity * self.span)

    def capacity_for(self, load: float) -> int:
        """The GPUs at which the offered load is ``load``, at least the widest gang."""
        widest = max(job.gpus for job in self.jobs)
        if not self.span:
            return widest
        return max(widest, round(self.load(1) / load))

    def capacity_to_try(self, busy: float = 0.8) -> int:
        """A capacity to begin with: that many GPUs would be busy a share of the time until the latest end."""
        widest = max(job.gpus for job in self.jobs)
        latest = max(job.submit + job.duration for job in self.jobs)
        return max(widest, math.ceil(sum(job.area for job in self.jobs) / (busy * latest)))

    def map(self, change: Callable[[Job], Job]) -> Workload:
        """The workload with each job replaced by ``change(job)``."""
        return Workload.of(self.name, map(change, self.jobs))

    def shaken(self, seed: int, *, submit: float = 60.0, duration: float = 0.02) -> Workload:
        """A replica under small perturbations (Tsafrir's input shaking); seed 0 is the workload itself.

        :param submit: standard deviation of the shift of each submission, seconds
        :param duration: standard deviation of the logarithm of each duration's factor

        Deadlines move with the submission.
        """
        if seed == 0:
            return self
        rng = np.random.default_rng([seed, 7919])
        shifts = rng.normal(0.0, submit, len(self.jobs))
        factors = np.exp(rng.normal(0.0, duration, len(self.jobs)))

        def shake(job: Job, shift: float, factor: float) -> Job:
            moved = max(0.0, job.submit + shift)
            deadline = None if job.deadline is None else job.deadline + moved - job.submit
            return replace(job, submit=moved, duration=job.duration * factor, deadline=deadline)

        return Workload.of(
            self.name,
            (shake(job, float(s), float(f)) for job, s, f in zip(self.jobs, shifts, factors, strict=True)),
        )


def cut(longest: float) -> Callable[[Job], Job]:
    """A change for :meth:`Workload.map`: durations cut at ``longest`` seconds."""
    return lambda job: replace(job, duration=min(job.duration, longest))
