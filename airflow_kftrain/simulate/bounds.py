"""What no schedule can beat; printed beside every result.

All take a workload and a count of GPUs and ignore packing, start-up and restarts, so they hold with these too.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from airflow_kftrain.simulate.workload import Job, Workload


@dataclass(frozen=True, slots=True)
class JctBounds:
    """Lower bounds of the average job completion time, seconds."""

    duration: float
    squashed_area: float
    busy_time: float

    @property
    def best(self) -> float:
        """The largest of them."""
        return max(self.duration, self.squashed_area, self.busy_time)


def jct_bounds(workload: Workload, capacity: int) -> JctBounds:
    """Bounds for rigid gangs, preemption allowed."""
    return JctBounds(
        float(np.mean([job.duration for job in workload.jobs])),
        squashed_area(workload, capacity),
        mean_busy_time(workload, capacity),
    )


def elastic_jct_bounds(workload: Workload, capacity: int) -> JctBounds:
    """Bounds where a gang may have any measured size up to ``capacity`` (no busy-time bound is known)."""
    fastest = float(np.mean([shortest_duration(job, capacity) for job in workload.jobs]))
    return JctBounds(fastest, squashed_area(workload, capacity, area=_least_area), 0.0)


def squashed_area(
    workload: Workload, capacity: int, *, area: Callable[[Job], float] = lambda job: job.area
) -> float:
    """Average flow time of shortest remaining area first on one machine of speed ``capacity``.

    Any schedule of gangs is a schedule of their areas on that machine, where SRPT is optimal.
    """
    runs = _single_machine(workload, capacity, area, by_remaining=True)
    return sum(end - job.submit for job, _, end in runs) / len(workload.jobs)


def mean_busy_time(workload: Workload, capacity: int) -> float:
    """Average over jobs of mean busy time plus half the duration, minus submission.

    Least total area first, preemptive, on the machine of speed ``capacity`` has the least sum of mean busy
    times (Goemans et al.), and a gang of constant width is busy on average half its duration before its end.
    """
    runs = _single_machine(workload, capacity, lambda job: job.area, by_remaining=False)
    return sum(busy + job.duration / 2 - job.submit for job, busy, _ in runs) / len(workload.jobs)


def _single_machine(
    workload: Workload, capacity: int, area: Callable[[Job], float], *, by_remaining: bool
) -> Iterator[tuple[Job, float, float]]:
    """Run areas preemptively, least first: each job with its mean busy time and its end."""
    jobs = workload.jobs
    left = [area(job) for job in jobs]
    busy = [0.0] * len(jobs)
    queue: list[tuple[float, int]] = []
    now, coming = 0.0, 0
    while coming < len(jobs) or queue:
        if not queue:
            now = max(now, jobs[coming].submit)
        while coming < len(jobs) and jobs[coming].submit <= now:
            heapq.heappush(queue, (left[coming], coming))
            coming += 1
        _, first = heapq.heappop(queue)
        until = jobs[coming].submit if coming < len(jobs) else math.inf
        end = min(until, now + left[first] / capacity)
        worked = left[first] if end < until else min(left[first], (end - now) * capacity)
        busy[first] += worked * (now + end) / 2
        left[first] -= worked
        now = end
        if left[first] <= 1e-9:
            yield jobs[first], busy[first] / area(jobs[first]), end
        else:
            heapq.heappush(queue, (left[first] if by_remaining else area(jobs[first]), first))


def makespan(workload: Workload, capacity: int) -> float:
    """Earliest end of all work, seconds on the workload's clock."""
    after = 0.0
    best = max(job.submit + job.duration for job in workload.jobs)
    for job in reversed(workload.jobs):
        after += job.area
        best = max(best, job.submit + after / capacity)
    return best


def shortest_duration(job: Job, capacity: int) -> float:
    """Seconds of work at the best size up to ``capacity``."""
    if job.speed is None:
        return job.duration
    return job.duration / max(job.rate(size) for size in job.speed.sizes if size <= capacity)


def _least_area(job: Job) -> float:
    if job.speed is None:
        return job.area
    return min(size * job.duration / job.rate(size) for size in job.speed.sizes)


def feasible_share(workload: Workload, capacity: int, *, elastic: bool = False) -> float:
    """Share of the jobs with a deadline that could meet it on an empty cluster."""
    due = [job for job in workload.jobs if job.deadline is not None]
    if not due:
        return math.nan

    def shortest(job: Job) -> float:
        return shortest_duration(job, capacity) if elastic else job.duration

    return sum(job.submit + shortest(job) <= (job.deadline or 0.0) for job in due) / len(due)


def deadline_bound(workload: Workload, capacity: int, *, bin_seconds: float = 3600.0) -> float:
    """Largest share of deadlines that any rigid schedule can meet: a linear relaxation, solved by HiGHS.

    Work may be spread freely over the bins between submission and deadline, at most ``gpus`` wide; submissions
    are rounded down and deadlines up to the grid, so the bound stays one. Needs scipy.
    """
    due = [j for j in workload.jobs if j.deadline is not None and j.submit + j.duration <= j.deadline]
    total = sum(job.deadline is not None for job in workload.jobs)
    if not due:
        return 0.0 if total else math.nan
    return float(_solve(due, capacity, bin_seconds)) / total


def _solve(due: list[Job], capacity: int, width: float) -> float:
    from scipy.optimize import linprog
    from scipy.sparse import coo_matrix

    count = len(due)
    first = [int(job.submit // width) for job in due]
    last = [math.ceil((job.deadline or 0.0) / width) for job in due]
    owner = np.concatenate([np.full(b - a, i) for i, (a, b) in enumerate(zip(first, last, strict=True))])
    bins = np.concatenate([np.arange(a, b) for a, b in zip(first, last, strict=True)])
    gpus = np.array([job.gpus for job in due], dtype=float)
    area = np.array([job.area for job in due])
    cells = np.arange(len(owner))
    columns = count + len(owner)

    def matrix(
        values: npt.NDArray[np.float64], rows: npt.NDArray[np.int64], cols: npt.NDArray[np.int64], height: int
    ) -> object:
        return coo_matrix((values, (rows, cols)), shape=(height, columns)).tocsr()

    hour = width / 3600.0
    # sum of a job's work = its area x whether it is met (GPU-hours keep the numbers small)
    work = matrix(
        np.concatenate([np.ones(len(owner)), -area / 3600.0]),
        np.concatenate([owner, np.arange(count)]),
        np.concatenate([count + cells, np.arange(count)]),
        count,
    )
    # no bin of a job holds more than its width, nor any bin more than the cluster
    wide = matrix(
        np.concatenate([np.ones(len(owner)), -gpus[owner] * hour]),
        np.concatenate([cells, cells]),
        np.concatenate([count + cells, owner]),
        len(owner),
    )
    full = matrix(np.ones(len(owner)), bins, count + cells, int(bins.max()) + 1)
    from scipy.sparse import vstack

    answer = linprog(
        np.concatenate([-np.ones(count), np.zeros(len(owner))]),
        A_ub=vstack([wide, full]),
        b_ub=np.concatenate([np.zeros(len(owner)), np.full(int(bins.max()) + 1, capacity * hour)]),
        A_eq=work,
        b_eq=np.zeros(count),
        bounds=[(0, 1)] * count + [(0, None)] * len(owner),
        method="highs",
    )
    if not answer.success:
        raise RuntimeError(f"the deadline bound was not found: {answer.message}")
    return -float(answer.fun)
