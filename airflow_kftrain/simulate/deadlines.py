"""Three ways to give the jobs of a trace a deadline; none is known to be what users do, so all are run."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from airflow_kftrain.simulate.workload import Workload

HOUR = 3600.0


def by_duration(workload: Workload, seed: int) -> Workload:
    """Submission + max(duration x U(1.1, 3), duration + 600 s): knowing it gives the duration away."""
    factor = np.random.default_rng([seed, 1]).uniform(1.1, 3.0, len(workload.jobs))
    return _with(
        workload,
        [
            job.submit + max(job.duration * float(f), job.duration + 600)
            for job, f in zip(workload.jobs, factor, strict=True)
        ],
    )


def by_clock(workload: Workload, seed: int) -> Workload:
    """The next boundary of the clock that leaves time for the work, of 6 h or 12 h at random."""
    step = np.random.default_rng([seed, 2]).choice([6 * HOUR, 12 * HOUR], len(workload.jobs))
    return _with(
        workload,
        [
            math.ceil((job.submit + job.duration + 600) / float(s)) * float(s)
            for job, s in zip(workload.jobs, step, strict=True)
        ],
    )


def by_slack(workload: Workload, seed: int) -> Workload:
    """Submission + duration + a slack drawn without regard to either: log-normal, median 4 h, sigma 1."""
    slack = 4 * HOUR * np.exp(np.random.default_rng([seed, 3]).normal(0.0, 1.0, len(workload.jobs)))
    return _with(
        workload,
        [
            job.submit + job.duration + max(600.0, float(s))
            for job, s in zip(workload.jobs, slack, strict=True)
        ],
    )


#: Letter of each model to what makes the deadlines.
MODELS: dict[str, Callable[[Workload, int], Workload]] = {"a": by_duration, "b": by_clock, "c": by_slack}


def _with(workload: Workload, deadlines: list[float]) -> Workload:
    jobs = (replace(job, deadline=due) for job, due in zip(workload.jobs, deadlines, strict=True))
    return Workload.of(workload.name, jobs)
