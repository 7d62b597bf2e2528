"""The waiting gangs of one partition as arrays."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from airflow_kftrain.scheduling.calendar import Bools, Floats
from airflow_kftrain.scheduling.fit import Grid
from airflow_kftrain.scheduling.model import Costs, Request
from airflow_kftrain.scheduling.prediction import median_left

SHORTEST = 60.0  # seconds; keeps logarithms and ratios finite for runs of no length

_COLUMNS = 17
_NUMBERS = itertools.count()


@dataclass
class Queue:
    """The waiting gangs of one partition as arrays of the same length.

    :param expected: predicted (p50) seconds still to run, start-up included
    :param spread: standard deviation of the logarithm of its run time around the p50
    :param shape: gangs of the same number ask for the very same pods, to be had on the same nodes
    :param surely_over: seconds after which it is over even if predictions fail: its limit; where it can be suspended,
        its grace
    """

    requests: list[Request]
    amounts: Floats
    gpus: Floats
    submitted: Floats
    attained: Floats
    priority: Floats
    expected: Floats
    soonest: Floats
    spread: Floats
    surely_over: Floats
    deadline: Floats
    runs: Floats
    not_before: Floats
    least: Bools
    resumable: Bools
    shape: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.requests)


def queue_of(requests: list[Request], grid: Grid, costs: Costs) -> Queue:
    """The arrays of ``requests``; the line of each is kept on it from plan to plan."""
    lines = [_line(request, grid) for request in requests]
    table = np.array(lines, dtype=float).reshape(len(requests), _COLUMNS + len(grid.axes))
    (
        submitted,
        priority,
        p10,
        p50,
        p80,
        p90,
        deadline,
        limit,
        attained,
        gpus,
        runs,
        not_before,
        least,
        resume,
        speed,
        grace,
        shape,
    ) = np.ascontiguousarray(table[:, :_COLUMNS].T)
    restart = np.where(attained > 0, costs.restart, 0.0)
    left = p50
    if attained.any():
        left = np.where(attained > 0, median_left(p10, p50, p80, p90, attained), p50)
    return Queue(
        requests=requests,
        amounts=np.ascontiguousarray(table[:, _COLUMNS:]),
        gpus=gpus,
        submitted=submitted,
        attained=attained,
        priority=np.minimum(priority, grid.partition.highest_priority),
        expected=costs.startup + restart + left / speed,
        soonest=costs.startup + restart + np.maximum(p10 - attained, 0.0) / speed,
        spread=np.log(np.maximum(p80, 1e-9) / np.maximum(p50, 1e-9)) / 0.8416,
        surely_over=np.where(resume > 0, grace, costs.startup + limit),
        deadline=deadline,
        runs=runs,
        not_before=not_before,
        least=least > 0,
        resumable=resume > 0,
        shape=shape.astype(np.int64),
    )


def _line(request: Request, grid: Grid) -> tuple[float, ...]:
    kept = request.__dict__.get("_line")
    if kept is None or (kept[0] is not grid.axes and kept[0] != grid.axes):
        line = (*request.row, float(shape_number(request)), *grid.total(request.least))
        kept = request.__dict__["_line"] = (grid.axes, line)
    made: tuple[float, ...] = kept[1]
    return made


def shape_number(request: Request) -> int:
    """A number for what the gang asks for; the same for all gangs that ask for the same."""
    pods = ((p.count, p.request, tuple(sorted(p.selector.items())), p.tolerations) for p in request.least)
    return _number_of(tuple(pods))


@lru_cache(maxsize=65_536)
def _number_of(shape: object) -> int:  # noqa: ARG001  the cache is what remembers
    return next(_NUMBERS)
