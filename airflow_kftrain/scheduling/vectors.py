"""Exact resources as vectors of whole numbers in float64, converted once and kept.

An axis is a resource name; cpu counts in millicores, everything else in its own unit, so that all amounts that occur
are whole numbers below 2^53 and float64 holds them exactly. What is asked for is rounded up, what is there down.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache

from airflow_kftrain.jobs.resources import Resources

Vector = tuple[float, ...]
Axes = tuple[str, ...]

_SCALE = {"cpu": 1000}


def axes_of(amounts: Iterable[Resources]) -> Axes:
    """All names that occur, in a fixed order."""
    return tuple(sorted({name for amount in amounts for name in amount}))


@lru_cache(maxsize=65_536)
def asked(request: Resources, axes: Axes) -> Vector:
    """``request`` along ``axes``, rounded up; infinite where it names something that no axis has."""
    if any(name not in axes for name in request if name != "pods"):
        return (math.inf,) * max(len(axes), 1)
    return tuple(float(math.ceil(request.amount(name) * _SCALE.get(name, 1))) for name in axes)


@lru_cache(maxsize=65_536)
def there(capacity: Resources, axes: Axes) -> Vector:
    """``capacity`` along ``axes``, rounded down; negative entries are over-use."""
    return tuple(float(math.floor(capacity.amount(name) * _SCALE.get(name, 1))) for name in axes)
