"""How a gang's speed depends on its size: Gunther's universal scalability law, fitted to measured step times.

``speed(g) = g / (1 + a (g - 1) + b g (g - 1))``: ``a`` is what workers wait for each other, ``b`` what keeping them
alike costs. Beyond the largest size that was measured it is not trusted to rise.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.scheduling.model import Elastic, Resizing


@dataclass(frozen=True)
class SpeedUp:
    """Coefficients of the law.

    :param contention: ``a``; the default is a part of 3 % that does not scale, as data-parallel training shows
    :param coherence: ``b``
    :param largest: the largest size that was measured; speeds beyond it are those of it
    """

    contention: float = 0.03
    coherence: float = 0.0005
    largest: int | None = None

    def at(self, size: int) -> float:
        """Speed at ``size`` as a multiple of that of one replica."""
        if self.largest is not None:
            size = min(size, self.largest)
        return size / (1 + self.contention * (size - 1) + self.coherence * size * (size - 1))

    def elastic(
        self, podset: str, requested: int, sizes: Sequence[int], mode: Resizing = Resizing.LIVE
    ) -> Elastic:
        """The sizes of a gang with their speeds, 1.0 at ``requested``."""
        base = self.at(requested)
        return Elastic(podset, tuple(sizes), tuple(self.at(size) / base for size in sizes), mode)


def fit(rates: Mapping[int, float], prior: SpeedUp | None = None) -> SpeedUp:
    """The law that is nearest to measured steps per second at each size (least squares on ``size / rate``).

    Sizes measured twice or more are needed to fit anything; with fewer the prior (of the same model, or the default)
    stands. ``size / rate = c + c a (size - 1) + c b size (size - 1)`` is linear with coefficients that cannot be
    negative, so that the best of the eight sets of active coefficients is the solution.

    :raises InvalidInput: a size below one or a rate that is not positive
    """
    for size, rate in rates.items():
        if size < 1 or not rate > 0:
            raise InvalidInput("rates", {size: rate}, "give steps per second above zero for sizes from 1")
    prior = prior or SpeedUp()
    if len(rates) < 2:
        return prior
    sizes = np.array(sorted(rates), dtype=float)
    target = sizes / np.array([rates[int(size)] for size in sizes])
    columns = np.column_stack((np.ones_like(sizes), sizes - 1, sizes * (sizes - 1)))
    best, solution = np.inf, None
    for active in itertools.product((False, True), repeat=2):
        chosen = np.array((True, *active))
        if chosen.sum() > len(sizes):
            continue
        found = np.zeros(3)
        found[chosen] = np.linalg.lstsq(columns[:, chosen], target, rcond=None)[0]
        error = float(np.square(columns @ found - target).sum())
        if (found >= 0).all() and found[0] > 0 and error < best - 1e-12:
            best, solution = error, found
    if solution is None:
        return prior
    base, waits, keeps = (float(value) for value in solution)
    return SpeedUp(waits / base, keeps / base, int(sizes[-1]))
