"""What a baseline believes a job's duration to be."""

from __future__ import annotations

from collections import deque
from typing import Protocol

import numpy as np

from airflow_kftrain.simulate.world import World

SHORTEST = 300.0


class Estimates(Protocol):
    """Predicted durations in seconds, by job index."""

    name: str

    def of(self, world: World, job: int) -> float:
        """The prediction when the job is submitted."""

    def finished(self, world: World, job: int) -> None:
        """Learn from a job that has ended in this run."""


class Exact:
    """The truth: an oracle's knowledge."""

    name = "exact"

    def of(self, world: World, job: int) -> float:
        return world.jobs[job].duration

    def finished(self, world: World, job: int) -> None:
        """Nothing to learn."""


class Noisy:
    """The truth times log-normal noise, the same for a job whatever the policy.

    :param sigma: standard deviation of the factor's logarithm
    """

    def __init__(self, sigma: float, seed: int) -> None:
        self.name = f"noise {sigma:g}"
        self._sigma, self._seed = sigma, seed
        self._factors: list[float] = []

    def of(self, world: World, job: int) -> float:
        if not self._factors:
            draws = np.random.default_rng([self._seed, 11]).normal(0.0, self._sigma, len(world.jobs))
            self._factors = np.exp(draws).tolist()
        return world.jobs[job].duration * self._factors[job]

    def finished(self, world: World, job: int) -> None:
        """Nothing to learn."""


class History:
    """Median of the last ends of the same key and size, else of the same size, else of all."""

    name = "history"

    def __init__(self, depth: int = 10, unknown: float = 3600.0) -> None:
        self._depth, self._unknown = depth, unknown
        self._seen: dict[object, deque[float]] = {}

    def of(self, world: World, job: int) -> float:
        for key in self._keys(world, job):
            if key in self._seen:
                return max(SHORTEST, float(np.median(self._seen[key])))
        return self._unknown

    def finished(self, world: World, job: int) -> None:
        for key in self._keys(world, job):
            self._seen.setdefault(key, deque(maxlen=self._depth)).append(world.jobs[job].duration)

    @staticmethod
    def _keys(world: World, job: int) -> list[object]:
        spec = world.jobs[job]
        named: list[object] = [(spec.key, spec.gpus)] if spec.key else []
        return [*named, (spec.group, spec.gpus), spec.gpus, None]


def corrected(estimate: float, elapsed: float) -> float:
    """Total duration to assume of a running job that may have outlived its estimate."""
    return estimate if elapsed < estimate else max(elapsed + SHORTEST, elapsed * 1.5)
