"""What the planner is told of durations in a simulated run."""

from __future__ import annotations

import math
from typing import Protocol

from airflow_kftrain.scheduling.model import Estimate
from airflow_kftrain.simulate.estimates import Estimates, Exact, History
from airflow_kftrain.simulate.world import World

_Z80, _Z90 = 0.8416, 1.2816  # quantiles of the normal distribution


class Predictor(Protocol):
    """Quantiles of durations by job index; learns only from jobs that have ended in the run."""

    def estimate(self, world: World, job: int) -> Estimate:
        """What is known when the job is submitted."""

    def finished(self, world: World, job: int) -> None:
        """A job has ended well."""


class Told:
    """Point estimates of :mod:`~airflow_kftrain.simulate.estimates` with a known log-normal spread.

    :param sigma: standard deviation of the logarithm of the truth around the estimate
    """

    def __init__(self, estimates: Estimates | None = None, sigma: float = 0.0) -> None:
        self._estimates = estimates or Exact()
        self._sigma = sigma

    def estimate(self, world: World, job: int) -> Estimate:
        p50 = self._estimates.of(world, job)
        if not self._sigma:
            return Estimate.exactly(p50)
        up80, up90 = (math.exp(z * self._sigma) for z in (_Z80, _Z90))
        return Estimate(p50 / up90, p50, p50 * up80, p50 * up90, runs=1000, source="told")

    def finished(self, world: World, job: int) -> None:
        self._estimates.finished(world, job)


class Learnt(Told):
    """History of this run alone."""

    def __init__(self) -> None:
        super().__init__(History(), sigma=0.8)
