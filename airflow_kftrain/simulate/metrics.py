"""What a run is worth: averages never alone, but with the longest wait of each gang class beside them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from airflow_kftrain.simulate.describe import CLASSES, class_name, class_of
from airflow_kftrain.simulate.engine import Run
from airflow_kftrain.simulate.workload import Job
from airflow_kftrain.simulate.world import Record

HOUR = 3600.0
#: Shortest duration that a slowdown is counted against, seconds (Feitelson's tau).
TAU = 60.0


@dataclass(frozen=True, slots=True)
class Summary:
    """A distribution of seconds."""

    mean: float
    p50: float
    p99: float
    longest: float

    @staticmethod
    def of(values: Sequence[float] | npt.NDArray[np.float64]) -> Summary:
        """The summary of values; all zero for none."""
        if not len(values):
            return Summary(0.0, 0.0, 0.0, 0.0)
        p50, p99 = np.quantile(values, [0.5, 0.99])
        return Summary(float(np.mean(values)), float(p50), float(p99), float(np.max(values)))


@dataclass(frozen=True, slots=True)
class Metrics:
    """Results of one run; seconds unless the name says otherwise.

    :param jct: submission to end
    :param jct_by_work: average weighted by each job's GPU time
    :param wait: all time in the queue, also after a preemption
    :param wait_by_class: the same by gang class
    :param slowdown: mean bounded slowdown
    :param deadlines_met: share of the jobs with a deadline; NaN without any
    :param tardiness: mean seconds past the deadline of those jobs
    :param used: charged GPU time over capacity, between first and last submission
    :param goodput: the same for work that was kept
    :param held: capacity idle while a waiting gang would have fitted, as a share
    :param stuck: capacity idle while gangs waited and none fitted, as a share
    :param lost_gpu_hours: work done twice, restarts and pauses of rescales
    :param eta_inside: share of starts inside the p10 to p90 told at submission, among jobs that had to wait
    :param eta_told: share of jobs that were told one
    :param eta_error: median error of the told p50 over the wait
    """

    jobs: int
    jct: Summary
    jct_by_class: dict[str, Summary]
    jct_by_work: float
    wait: Summary
    wait_by_class: dict[str, Summary]
    slowdown: float
    deadlines_met: float
    tardiness: float
    used: float
    goodput: float
    held: float
    stuck: float
    preemptions: int
    rescales: int
    failures: int
    lost_gpu_hours: float
    eta_inside: float
    eta_told: float
    eta_error: float


def measure(run: Run) -> Metrics:
    """The metrics of a finished run."""
    jobs, records = run.workload.jobs, run.records
    jct = np.array([_end(r) - j.submit for j, r in zip(jobs, records, strict=True)])
    wait = np.array([r.waited for r in records])
    area = np.array([job.area for job in jobs])
    duration = np.array([max(TAU, job.duration) for job in jobs])
    classes = [class_of(job.gpus) for job in jobs]
    used, held, stuck = _idle(run)
    inside, told, error = eta_quality(records, jobs)
    met, tardiness = _deadlines(jobs, records)
    lost = sum(r.lost for r in records)
    capacity = run.cluster.capacity * max(run.workload.span, 1.0)
    return Metrics(
        jobs=len(jobs),
        jct=Summary.of(jct),
        jct_by_class=_by_class(jct, classes),
        jct_by_work=float((jct * area).sum() / area.sum()),
        wait=Summary.of(wait),
        wait_by_class=_by_class(wait, classes),
        slowdown=float(np.maximum(1.0, jct / duration).mean()),
        deadlines_met=met,
        tardiness=tardiness,
        used=used,
        goodput=max(0.0, used - lost / capacity),
        held=held,
        stuck=stuck,
        preemptions=sum(r.preemptions for r in records),
        rescales=sum(r.rescales for r in records),
        failures=sum(r.failures for r in records),
        lost_gpu_hours=lost / HOUR,
        eta_inside=inside,
        eta_told=told,
        eta_error=error,
    )


def _end(record: Record) -> float:
    if record.end is None:
        raise ValueError("the run is not over")
    return record.end


def _by_class(values: npt.NDArray[np.float64], classes: list[str]) -> dict[str, Summary]:
    named = np.array(classes)
    order = [class_name(low, high) for low, high in CLASSES]
    return {name: Summary.of(values[named == name]) for name in order if (named == name).any()}


def _deadlines(jobs: Sequence[Job], records: Sequence[Record]) -> tuple[float, float]:
    late = [
        max(0.0, _end(r) - j.deadline) for j, r in zip(jobs, records, strict=True) if j.deadline is not None
    ]
    if not late:
        return math.nan, math.nan
    return float(np.mean([seconds == 0.0 for seconds in late])), float(np.mean(late))


def _idle(run: Run) -> tuple[float, float, float]:
    """Shares of capacity used, held and stuck, between first and last submission."""
    jobs = run.workload.jobs
    begin, end = jobs[0].submit, jobs[-1].submit
    if end <= begin or not run.samples:
        return 0.0, 0.0, 0.0
    times = np.clip(np.array([s.time for s in run.samples] + [end]), begin, end)
    spans = np.diff(times)
    rows = np.array([(s.used, s.held, s.stuck) for s in run.samples], dtype=float)
    shares = (rows * spans[:, None]).sum(axis=0) / (run.cluster.capacity * (end - begin))
    return float(shares[0]), float(shares[1]), float(shares[2])


def eta_quality(
    records: Sequence[Record], jobs: Sequence[Job], *, at_once: float = 60.0
) -> tuple[float, float, float]:
    """Coverage of p10 to p90, share of jobs told, and median relative error of p50.

    :param at_once: jobs that started within so many seconds are no test of a prediction and do not count
    """
    waited = [
        (r, j.submit)
        for r, j in zip(records, jobs, strict=True)
        if r.first_start is not None and r.first_start - j.submit > at_once
    ]
    told = [(r.eta, r.first_start, submit) for r, submit in waited if r.eta is not None]
    if not told:
        return math.nan, 0.0 if waited else math.nan, math.nan
    inside = [eta[0] - 1.0 <= (start or 0.0) <= eta[2] + 1.0 for eta, start, _ in told]
    error = [abs(eta[1] - (start or 0.0)) / ((start or 0.0) - submit) for eta, start, submit in told]
    return float(np.mean(inside)), len(told) / len(waited), float(np.median(error))


def finish_time_fairness(shared: Run, apart: Iterable[Run]) -> dict[str, Summary]:
    """By group: time to the end on the shared cluster over that in the group's own, job by job.

    1 is as if alone; above it, sharing has cost the job. Values are ratios, not seconds.
    """
    alone = {
        job.id: _end(record) - job.submit
        for run in apart
        for job, record in zip(run.workload.jobs, run.records, strict=True)
    }
    ratios: dict[str, list[float]] = {}
    for job, record in zip(shared.workload.jobs, shared.records, strict=True):
        if job.id in alone:
            ratios.setdefault(job.group, []).append((_end(record) - job.submit) / alone[job.id])
    return {group: Summary.of(values) for group, values in sorted(ratios.items())}
