"""One simulated run of the scheduling benchmark: what is run, and the numbers that come out of it."""

from __future__ import annotations

import datetime as dt
import math
import time
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from airflow_kftrain.jobs.resources import GPU_RESOURCES, Resources
from airflow_kftrain.scheduling.model import Window
from airflow_kftrain.scheduling.reservation import Reservation, accept, windows_between
from airflow_kftrain.scheduling.settings import PlannerSettings, Preemption
from airflow_kftrain.simulate import bounds, deadlines
from airflow_kftrain.simulate.engine import Policy, Run, simulate
from airflow_kftrain.simulate.estimates import Exact, History, Noisy
from airflow_kftrain.simulate.generator import Recurring, recurring
from airflow_kftrain.simulate.metrics import Metrics, finish_time_fairness, measure
from airflow_kftrain.simulate.planned import Lending, Planned, Settings
from airflow_kftrain.simulate.policies import policy
from airflow_kftrain.simulate.predicting import Learnt, Told
from airflow_kftrain.simulate.traces import read_throughputs, read_trace
from airflow_kftrain.simulate.workload import Workload, cut
from airflow_kftrain.simulate.world import FREE, Cluster, Costs

TRACES = Path(__file__).parent / "traces"
DAY, HOUR = 86400.0, 3600.0
#: Daily windows: hours long, share of each partition.
WINDOW_LONG, WINDOW_SHARE = 4.0, 0.25


@dataclass(frozen=True)
class Case:
    """One run.

    :param trace: a file of ``benchmarks/traces`` without its ending, or ``recurring``
    :param capacity: GPUs; 0 for the capacity at which the offered load is ``load``
    :param replica: 0 for the trace as it is, else the seed of its shaking; recurring DAGs are drawn anew by it
    :param known: of durations: ``history``, ``exact``, or the sigma of a log-normal error
    :param per_node: GPUs of a node, 0 at count level
    :param costs: whether start-up and termination take their time
    :param due: model of the deadlines (``a``, ``b``, ``c``); empty for the workload's own
    :param reporting: share of the jobs that report progress
    :param tweaks: fields of the planner's settings that differ from its defaults
    """

    trace: str
    policy: str
    capacity: int = 0
    load: float = 0.95
    replica: int = 0
    known: str = "history"
    per_node: int = 0
    costs: bool = False
    due: str = ""
    reporting: float = 0.0
    preemption: str = "never"
    elastic: bool = False
    windows: bool = False
    partitions: str = ""
    tweaks: tuple[tuple[str, float], ...] = ()


def run_case(case: Case) -> dict[str, float]:
    """Run a case; plain numbers by name."""
    began = time.process_time()
    workload = workload_of(case)
    if case.partitions:
        numbers = _partitioned(case, workload)
    else:
        capacity = case.capacity or _whole(workload.capacity_for(case.load), max(case.per_node, 8))
        cluster = Cluster.of_nodes(capacity, case.per_node) if case.per_node else Cluster.count(capacity)
        chosen = _policy(case, cluster, workload)
        run = simulate(workload, cluster, chosen, _costs(case))
        numbers = _numbers(measure(run), bound=_bound(case, capacity), planned=chosen)
        numbers |= _beyond_windows(run, _windows(case, cluster, workload.span))
    return numbers | {"cpu_s": time.process_time() - began}


@lru_cache(maxsize=8)
def _bound(case: Case, capacity: int) -> float:
    workload = workload_of(case)
    of = bounds.elastic_jct_bounds if case.elastic else bounds.jct_bounds
    return of(workload, capacity).best


@lru_cache(maxsize=4)
def _read(trace: str) -> Workload:
    speeds = read_throughputs(TRACES / "throughputs-a100.csv") if trace.endswith("-elastic") else None
    return read_trace(TRACES / f"{trace}.csv.gz", throughputs=speeds)


def workload_of(case: Case) -> Workload:
    """The workload of a case, with its deadlines and reports."""
    if case.trace == "recurring":
        drawn = recurring(case.replica + 1, Recurring(reporting=case.reporting))
        return deadlines.MODELS[case.due](drawn, 7 + case.replica) if case.due else drawn
    made = _read(case.trace)
    if case.due:
        made = deadlines.MODELS[case.due](made.map(cut(48 * HOUR)), 7 + case.replica)
    made = made.shaken(case.replica)
    if case.reporting:
        tells = np.random.default_rng([case.replica, 5]).random(len(made.jobs)) < case.reporting
        jobs = (replace(job, reports=bool(t)) for job, t in zip(made.jobs, tells, strict=True))
        made = Workload.of(made.name, jobs)
    return made


def _policy(case: Case, cluster: Cluster, workload: Workload) -> Policy:
    if case.policy != "planner":
        return policy(case.policy, _estimates(case))
    told = Learnt() if case.known == "history" else Told(_estimates(case), _sigma(case))
    settings = PlannerSettings(preemption=Preemption(case.preemption), **dict(case.tweaks))
    return Planned(
        settings=Settings(
            planner=settings,
            windows=_windows(case, cluster, workload.span),
            lending=Lending() if case.partitions == "lending" else None,
            elastic=case.elastic,
        ),
        predictor=told,
    )


def _sigma(case: Case) -> float:
    return float(case.known) if case.known not in ("history", "exact") else 0.0


def _estimates(case: Case) -> Exact | Noisy | History:
    if case.known == "history":
        return History()
    return Exact() if case.known == "exact" else Noisy(float(case.known), 3 + case.replica)


def _costs(case: Case) -> Costs:
    if case.policy == "oracle":
        return replace(FREE, restart=0.0)
    return Costs() if case.costs else FREE


def _whole(gpus: int, unit: int) -> int:
    return -(-gpus // unit) * unit


# -- windows ---------------------------------------------------------------------------------------------------


def _reservations(cluster: Cluster) -> list[Reservation]:
    """One daily window on each partition."""
    return [
        Reservation(
            id=f"daily-{name}",
            partition=name,
            amount=Resources({GPU_RESOURCES[0]: max(1, int(sum(sizes) * WINDOW_SHARE))}),
            start=dt.datetime(1970, 1, 1, 2),
            zone="Etc/UTC",
            duration=WINDOW_LONG * HOUR,
            rrule="FREQ=DAILY",
            lead=Costs().termination + 60.0,
        )
        for name, sizes in cluster.nodes
    ]


@lru_cache(maxsize=4)
def _windows(case: Case, cluster: Cluster, span: float) -> tuple[Window, ...]:
    """Occurrences of all reservations that are accepted, in order of their starts."""
    if not case.windows:
        return ()
    capacity = {name: Resources({GPU_RESOURCES[0]: sum(sizes)}) for name, sizes in cluster.nodes}
    accepted = [
        reservation
        for reservation in _reservations(cluster)
        if accept(reservation.windows(0.0, span), capacity[reservation.partition], (), (), 0.0) is None
    ]
    return windows_between(accepted, 0.0, span)


def _beyond_windows(run: Run, windows: tuple[Window, ...]) -> dict[str, float]:
    """Capacity held idle that no open window accounts for, as a share."""
    if not windows:
        return {}
    begin, end = run.workload.jobs[0].submit, run.workload.jobs[-1].submit
    held = 0.0
    for sample, after in zip(run.samples, run.samples[1:], strict=False):
        span = min(after.time, end) - max(sample.time, begin)
        if span > 0 and sample.held:
            inside = sum(w.amount.gpus for w in windows if w.start <= sample.time < w.end)
            held += span * max(0, sample.held - inside)
    return {"held_beyond": held / (run.cluster.capacity * (end - begin))}


# -- partitions ------------------------------------------------------------------------------------------------


def partition_sizes(workload: Workload, load: float) -> dict[str, int]:
    """Capacity of each group so that its own offered load is ``load`` (at least its widest gang)."""
    sizes = {}
    for group in sorted({job.group for job in workload.jobs}):
        jobs = [job for job in workload.jobs if job.group == group]
        wanted = math.ceil(sum(job.area for job in jobs) / (load * workload.span))
        sizes[group] = max(wanted, max(job.gpus for job in jobs))
    return sizes


def _partitioned(case: Case, workload: Workload) -> dict[str, float]:
    """Each partition alone, then all with lending; finish-time fairness of the second over the first."""
    sizes = partition_sizes(workload, case.load)
    cluster = Cluster.partitions(sizes)
    apart = simulate(
        workload, cluster, _policy(replace(case, partitions="apart"), cluster, workload), _costs(case)
    )
    chosen = _policy(replace(case, partitions="lending"), cluster, workload)
    shared = simulate(workload, cluster, chosen, _costs(case))
    numbers = _numbers(
        measure(shared), bound=bounds.jct_bounds(workload, cluster.capacity).best, planned=chosen
    )
    numbers["apart_jct"] = measure(apart).jct.mean
    for group, rho in finish_time_fairness(shared, [apart]).items():
        numbers |= {
            f"rho_mean:{group}": rho.mean,
            f"rho_p99:{group}": rho.p99,
            f"rho_max:{group}": rho.longest,
        }
        numbers[f"gpus:{group}"] = sizes[group]
    return numbers | _beyond_windows(shared, _windows(case, cluster, workload.span))


def _numbers(m: Metrics, *, bound: float, planned: object) -> dict[str, float]:
    numbers = {
        "jobs": m.jobs,
        "bound": bound,
        "ratio": m.jct.mean / bound,
        "ratio_by_work": m.jct_by_work / bound,
        "jct": m.jct.mean,
        "jct_p50": m.jct.p50,
        "jct_p99": m.jct.p99,
        "jct_max": m.jct.longest,
        "wait": m.wait.mean,
        "wait_max": m.wait.longest,
        "slowdown": m.slowdown,
        "due_met": m.deadlines_met,
        "tardiness": m.tardiness,
        "used": m.used,
        "goodput": m.goodput,
        "held": m.held,
        "stuck": m.stuck,
        "preemptions": m.preemptions,
        "rescales": m.rescales,
        "lost_gpu_h": m.lost_gpu_hours,
        "eta_inside": m.eta_inside,
        "eta_told": m.eta_told,
        "eta_error": m.eta_error,
    }
    for name, wait in m.wait_by_class.items():
        jct = m.jct_by_class[name]
        numbers |= {
            f"wait_mean:{name}": wait.mean,
            f"wait_p50:{name}": wait.p50,
            f"wait_p99:{name}": wait.p99,
        }
        numbers |= {
            f"wait_max:{name}": wait.longest,
            f"jct_mean:{name}": jct.mean,
            f"jct_p50:{name}": jct.p50,
        }
        numbers |= {f"jct_p99:{name}": jct.p99, f"jct_max:{name}": jct.longest}
    if isinstance(planned, Planned):
        numbers["windows_asked"] = float(len(planned.settings.windows))
        numbers |= {"windows_given": planned.given, "windows_broken": planned.broken}
    return numbers
