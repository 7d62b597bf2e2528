"""What the planner is told of durations in a simulated run."""

from __future__ import annotations

import math
from collections import deque
from statistics import fmean
from typing import Protocol

from airflow_kftrain.scheduling.history import Finished, History
from airflow_kftrain.scheduling.model import Estimate
from airflow_kftrain.simulate.estimates import Estimates, Exact
from airflow_kftrain.simulate.world import World

_Z80, _Z90 = 0.8416, 1.2816  # quantiles of the normal distribution


class Predictor(Protocol):
    """Quantiles of durations by job index; learns only from jobs that have ended in the run."""

    def estimate(self, world: World, job: int) -> Estimate:
        """What is known when the job is submitted."""

    def finished(self, world: World, job: int) -> None:
        """A job has ended well."""

    @property
    def error(self) -> float | None:
        """Mean abs(log(real / predicted)) of recent ends; None before any."""


class Told:
    """Point estimates of :mod:`~airflow_kftrain.simulate.estimates` with a known log-normal spread.

    :param sigma: standard deviation of the logarithm of the truth around the estimate
    """

    def __init__(self, estimates: Estimates | None = None, sigma: float = 0.0) -> None:
        self._estimates = estimates or Exact()
        self._sigma = sigma
        self._recent: deque[float] = deque(maxlen=1000)

    def estimate(self, world: World, job: int) -> Estimate:
        p50 = self._estimates.of(world, job)
        if not self._sigma:
            return Estimate.exactly(p50)
        up80, up90 = (math.exp(z * self._sigma) for z in (_Z80, _Z90))
        return Estimate(p50 / up90, p50, p50 * up80, p50 * up90, runs=1000, source="told")

    def finished(self, world: World, job: int) -> None:
        self._recent.append(abs(math.log(world.jobs[job].duration / self._estimates.of(world, job))))
        self._estimates.finished(world, job)

    @property
    def error(self) -> float | None:
        return fmean(self._recent) if self._recent else None


class Learnt:
    """The planner's own history, of this run alone."""

    def __init__(self) -> None:
        self._history = History()

    def estimate(self, world: World, job: int) -> Estimate:
        spec = world.jobs[job]
        return self._history.estimate(spec.key, spec.gpus, share=spec.group)

    def finished(self, world: World, job: int) -> None:
        spec = world.jobs[job]
        self._history.learn(Finished(spec.key, spec.gpus, spec.duration, share=spec.group))

    @property
    def error(self) -> float | None:
        return self._history.error
