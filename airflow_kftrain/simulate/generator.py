"""A seeded workload of recurring DAGs: names, cron arrivals, growth, and noise from run to run.

Real traces carry no names, so prediction from history cannot be measured on them. Here each training task has a key
that comes back. Widths, durations by width and burstiness follow what Microsoft's ITP (cluster04, 60 days) and
Philly (days 40 to 43) traces show; :func:`~airflow_kftrain.simulate.describe.describe` prints the three side by
side. Nothing here was chosen by a planner's results.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.simulate.workload import Job, Workload

HOUR = 3600.0
DAY = 24 * HOUR
WEEK = 7 * DAY
LONGEST = 5 * DAY
SHORTEST = 300.0

#: Width of a task's gang: share of tasks, median seconds and log-sd of its base duration, mean jobs of a sweep.
#: Shares are of tasks; sweeps of narrow gangs bring the shares of jobs to those of the traces.
_WIDTHS: tuple[tuple[int, float, float, float, float], ...] = (
    (1, 0.49, 7_500, 0.9, 6.0),
    (2, 0.03, 6_000, 1.1, 1.5),
    (4, 0.07, 6_000, 1.1, 2.0),
    (8, 0.34, 20_000, 1.3, 1.8),
    (16, 0.03, 60_000, 1.4, 1.0),
    (32, 0.04, 80_000, 1.4, 1.0),
)
#: Seconds between runs of a schedule, and its share among DAGs whose work fits into it.
_PERIODS: tuple[tuple[float, float], ...] = (
    (HOUR, 0.05),
    (3 * HOUR, 0.10),
    (6 * HOUR, 0.15),
    (12 * HOUR, 0.15),
    (DAY, 0.45),
    (WEEK, 0.10),
)


@dataclass(frozen=True, slots=True)
class Recurring:
    """What to generate.

    :param days: length of the workload
    :param dags: recurring DAGs
    :param noise: standard deviation of the logarithm of a run's duration around its task's trend
    :param ad_hoc: share of further jobs with a name of their own, which have no history
    :param backfills_per_day: how often a DAG is run anew for several past dates at once
    :param failures: share of jobs whose first attempt fails, at a random point of its work
    :param reporting: share of tasks that report progress
    """

    days: float = 28.0
    dags: int = 60
    noise: float = 0.4
    ad_hoc: float = 0.08
    backfills_per_day: float = 1.0
    failures: float = 0.04
    reporting: float = 0.0

    def __post_init__(self) -> None:
        for name, low, high in (("days", 0.01, 3650), ("dags", 1, 100_000), ("noise", 0, 3)):
            if not low <= getattr(self, name) <= high:
                raise InvalidInput(name, getattr(self, name), f"give a number from {low:g} to {high:g}")
        for name in ("ad_hoc", "failures", "reporting"):
            if not 0 <= getattr(self, name) < 1.0001:
                raise InvalidInput(name, getattr(self, name), "give a share from 0 to 1")


@dataclass(frozen=True, slots=True)
class _Task:
    """One training task of a DAG.

    :param start: seconds after the DAG's run begins (its data are prepared first)
    :param sweep: jobs that one run submits at once
    :param growth: factor of its duration by the week
    :param due: seconds after the run's begin until when it should have ended; None without a deadline
    """

    key: str
    gpus: int
    base: float
    start: float
    sweep: int
    growth: float
    due: float | None
    reports: bool


@dataclass(frozen=True, slots=True)
class _Dag:
    name: str
    period: float
    offset: float
    tasks: tuple[_Task, ...]


@dataclass(slots=True)
class _Maker:
    what: Recurring
    rng: np.random.Generator
    serial: int = 0
    jobs: list[Job] = field(default_factory=list)

    def dag(self, number: int) -> _Dag:
        rng = self.rng
        longest = 0.0
        drawn = []
        for _ in range(int(rng.choice([1, 2, 3], p=[0.7, 0.2, 0.1]))):
            width, base, sweep = self.shape()
            longest = max(longest, base)
            drawn.append((width, base, sweep))
        period = self._period(longest)
        # most crons sit on the hour, and most daily ones in the small hours
        minute = float(rng.choice([0.0, 0.0, 0.0, 900.0, 1800.0]))
        hour = (
            float(rng.choice(24, p=_NIGHTLY))
            if period >= DAY
            else float(rng.integers(0, max(1, int(period // HOUR))))
        )
        offset = minute + hour * HOUR + (float(rng.integers(0, 7)) * DAY if period == WEEK else 0.0)
        name = f"dag_{number:03d}"
        tasks = tuple(
            self._task(f"{name}/train_{i}", width, base, sweep, period)
            for i, (width, base, sweep) in enumerate(drawn)
        )
        return _Dag(name, period, offset, tasks)

    def shape(self) -> tuple[int, float, int]:
        """Width, base duration and sweep of a task."""
        row = _WIDTHS[int(self.rng.choice(len(_WIDTHS), p=_SHARES))]
        width, _, median, spread, sweep = row
        base = float(np.clip(median * math.exp(self.rng.normal(0.0, spread)), SHORTEST, LONGEST))
        return width, base, int(self.rng.geometric(1.0 / sweep))

    def _period(self, longest: float) -> float:
        """A schedule that leaves the work time to end before the next run."""
        possible = [(period, share) for period, share in _PERIODS if period >= 1.5 * longest] or [
            _PERIODS[-1]
        ]
        shares = np.array([share for _, share in possible])
        return possible[int(self.rng.choice(len(possible), p=shares / shares.sum()))][0]

    def _task(self, key: str, width: int, base: float, sweep: int, period: float) -> _Task:
        rng = self.rng
        start = float(rng.uniform(60, 600))
        due = None
        if rng.random() < 0.6:
            # people write deadlines in round hours, knowing the task's usual duration, not the run's
            wanted = start + base * float(rng.uniform(1.5, 4.0)) + float(rng.uniform(0.5, 6.0)) * HOUR
            due = math.ceil(min(wanted, max(period, 2.0 * base)) / HOUR) * HOUR
        growth = math.exp(float(rng.normal(0.01, 0.03)))
        return _Task(key, width, base, start, sweep, growth, due, bool(rng.random() < self.what.reporting))

    def run(self, dag: _Dag, at: float, *, backfill: bool = False) -> None:
        """Submit the jobs of one DAG run; runs of a backfill have no deadline."""
        for task in dag.tasks:
            trend = task.base * task.growth ** (at / WEEK)
            begun = at + task.start + float(self.rng.exponential(30.0))
            for _ in range(task.sweep):
                begun += float(self.rng.exponential(3.0))
                due = None if backfill or task.due is None else at + task.due
                self.add(begun, trend, task.gpus, dag.name, task.key, due, reports=task.reports)

    def add(
        self,
        submit: float,
        trend: float,
        gpus: int,
        group: str,
        key: str,
        due: float | None,
        *,
        reports: bool,
    ) -> None:
        """One job around its task's trend."""
        rng = self.rng
        duration = max(60.0, trend * math.exp(float(rng.normal(0.0, self.what.noise))))
        fails = (duration * float(rng.uniform(0.02, 0.9)),) if rng.random() < self.what.failures else ()
        limit = max(HOUR, math.ceil(4.0 * max(trend, duration * 0.3) / HOUR) * HOUR)
        self.serial += 1
        if submit < self.what.days * DAY:
            self.jobs.append(
                Job(
                    id=f"{key}#{self.serial}",
                    submit=submit,
                    duration=min(duration, limit),
                    gpus=gpus,
                    group=group,
                    key=key,
                    deadline=due,
                    run_limit=limit,
                    reports=reports,
                    resumable=bool(rng.random() < 0.7),
                    fails=fails,
                )
            )


_SHARES = [share for _, share, _, _, _ in _WIDTHS]
_NIGHTLY = np.array([3, 3, 3, 2, 2, 2, 2, 1, 1] + [0.6] * 15)
_NIGHTLY = _NIGHTLY / _NIGHTLY.sum()


def recurring(seed: int, what: Recurring | None = None) -> Workload:
    """The workload of recurring DAGs for a seed; the same seed gives the same jobs.

    :raises InvalidInput: a number of ``what`` is out of range
    """
    what = what or Recurring()
    maker = _Maker(what, np.random.default_rng([seed, 1009]))
    dags = [maker.dag(number) for number in range(what.dags)]
    for dag in dags:
        for at in _instants(dag, what.days * DAY):
            maker.run(dag, at)
    _backfills(maker, dags)
    _ad_hoc(maker)
    first = min(job.submit for job in maker.jobs) if maker.jobs else 0.0
    if not maker.jobs:
        raise InvalidInput("days", what.days, "no DAG runs in so short a time; give more days or DAGs")
    return Workload.of(f"recurring-{seed}", sorted(maker.jobs, key=lambda job: job.submit)).map(
        lambda job: _moved(job, first)
    )


def _moved(job: Job, first: float) -> Job:
    due = None if job.deadline is None else job.deadline - first
    return replace(job, submit=job.submit - first, deadline=due)


def _instants(dag: _Dag, end: float) -> Iterator[float]:
    at = dag.offset
    while at < end:
        yield at
        at += dag.period


def _backfills(maker: _Maker, dags: list[_Dag]) -> None:
    what, rng = maker.what, maker.rng
    for _ in range(int(rng.poisson(what.backfills_per_day * what.days))):
        dag = dags[int(rng.integers(len(dags)))]
        at = float(rng.uniform(0, what.days * DAY))
        for _ in range(int(rng.integers(3, 15))):
            maker.run(dag, at, backfill=True)


def _ad_hoc(maker: _Maker) -> None:
    what, rng = maker.what, maker.rng
    for number in range(round(len(maker.jobs) * what.ad_hoc)):
        width, base, _ = maker.shape()
        at = float(rng.uniform(0, what.days * DAY))
        maker.add(at, base, width, "adhoc", f"adhoc/{number}", None, reports=False)
