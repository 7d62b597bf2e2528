"""The rows of the scheduling benchmark: which cases are run, and which aims they are held against."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from airflow_kftrain.simulate import bounds
from airflow_kftrain.simulate.report import spread
from benchmarks.scheduling_cases import Case, workload_of

HOUR = 3600.0
#: Numbers of each replica that has been run, by case (with replica 0).
Results: TypeAlias = Mapping[Case, Sequence[Mapping[str, float]]]


@dataclass(frozen=True)
class Aim:
    """One aim beside what was measured."""

    what: str
    wanted: str
    measured: str
    met: bool


@dataclass(frozen=True)
class Row:
    """A group of cases with labels, and its aims.

    :param quick: replicas with ``--quick``
    :param whole: replicas of the whole run
    :param columns: numbers to print, name to (key, divisor, digits)
    :param seldom: labels of runs that no aim needs: not with ``--quick``, else three replicas at most
    """

    name: str
    title: str
    cases: Mapping[str, Case]
    aims: Callable[[Results], Iterator[Aim]]
    columns: Mapping[str, tuple[str, float, int]]
    quick: int = 1
    whole: int = 10
    classes: bool = True
    seldom: frozenset[str] = frozenset()

    def replicas(self, *, quick: bool, count: int | None = None) -> Iterator[Case]:
        """The cases to run, those of one replica together."""
        many = count or (self.quick if quick else self.whole)
        for replica in range(many):
            for label, case in self.cases.items():
                if label not in self.seldom or (not quick and replica < 3):
                    yield replace(case, replica=replica)


_JCT: dict[str, tuple[str, float, int]] = {
    "JCT h": ("jct", HOUR, 2),
    "÷ bound": ("ratio", 1, 3),
    "p50 h": ("jct_p50", HOUR, 2),
    "p99 h": ("jct_p99", HOUR, 1),
    "longest h": ("jct_max", HOUR, 0),
    "by work ÷": ("ratio_by_work", 1, 2),
    "wait h": ("wait", HOUR, 2),
    "longest wait h": ("wait_max", HOUR, 0),
    "used %": ("used", 0.01, 1),
    "held %": ("held", 0.01, 2),
    "stuck %": ("stuck", 0.01, 2),
}
_MOVES: dict[str, tuple[str, float, int]] = {
    "preempted": ("preemptions", 1, 0),
    "rescaled": ("rescales", 1, 0),
    "lost GPU-h": ("lost_gpu_h", 1, 0),
}
_HELD: dict[str, tuple[str, float, int]] = {
    "JCT h": ("jct", HOUR, 2),
    "held beyond windows %": ("held_beyond", 0.01, 2),
    "given": ("windows_given", 1, 0),
    "broken": ("windows_broken", 1, 0),
}
_ETA: dict[str, tuple[str, float, int]] = {
    "told %": ("eta_told", 0.01, 1),
    "in p10-90 %": ("eta_inside", 0.01, 1),
    "ETA error ÷ wait": ("eta_error", 1, 2),
}
_DUE: dict[str, tuple[str, float, int]] = {"due met": ("due_met", 1, 3), "late h": ("tardiness", HOUR, 2)}


def _median(results: Results, case: Case, key: str) -> float:
    values = [numbers[key] for numbers in results.get(case, ()) if not math.isnan(numbers.get(key, math.nan))]
    return spread(values)[0] if values else math.nan


def _at_most(what: str, value: float, most: float, digits: int = 2) -> Aim:
    return Aim(what, f"≤ {most:.{digits}f}", f"{value:.{digits}f}", value <= most)


def _at_least(what: str, value: float, least: float, digits: int = 3) -> Aim:
    return Aim(what, f"≥ {least:.{digits}f}", f"{value:.{digits}f}", value >= least)


# -- recurring DAGs ----------------------------------------------------------------------------------------------

_DAGS = {
    "planner": Case("recurring", "planner"),
    "planner, exact": Case("recurring", "planner", known="exact"),
    "EASY": Case("recurring", "easy", known="exact"),
    "StrictFIFO": Case("recurring", "strict-fifo"),
    "BestEffortFIFO": Case("recurring", "best-effort-fifo"),
    "smallest first": Case("recurring", "smallest"),
    "service + EASY, history": Case("recurring", "sjf"),
}


def _dag_aims(results: Results) -> Iterator[Aim]:
    planner, easy = _DAGS["planner"], _DAGS["EASY"]
    yield _at_most("average JCT over the bound, non-preemptive", _median(results, planner, "ratio"), 1.50)
    worst, where = _worst_class(results, planner, easy)
    yield _at_most(f"mean wait of the worst class ({where}) over EASY's", worst, 1.1)
    yield from _eta_aims(results, planner)


def _worst_class(results: Results, planner: Case, easy: Case) -> tuple[float, str]:
    """Largest ratio of mean waits; waits under a minute of both are equal."""
    names = {
        key.partition(":")[2] for n in results.get(planner, ()) for key in n if key.startswith("wait_mean:")
    }
    ratios = [
        (
            max(60.0, _median(results, planner, f"wait_mean:{name}"))
            / max(60.0, _median(results, easy, f"wait_mean:{name}")),
            name,
        )
        for name in names
    ]
    return max(ratios, default=(math.nan, "none"))


def _eta_aims(results: Results, case: Case) -> Iterator[Aim]:
    told = _median(results, case, "eta_told")
    yield _at_least("share of waiting gangs that were told a start", told, 1.0)
    inside = _median(results, case, "eta_inside")
    yield Aim("starts inside the told p10-p90", "0.75-0.85", f"{inside:.3f}", 0.75 <= inside <= 0.85)


# -- the traces' own average ---------------------------------------------------------------------------------------


def _trace_cases(trace: str, capacity: int, **common: object) -> dict[str, Case]:
    base = Case(trace, "planner", capacity=capacity, **common)  # type: ignore[arg-type]
    return {
        "planner": base,
        "planner, preemptive": replace(base, preemption="service"),
        "planner, preemptive, no guard": replace(base, preemption="service", tweaks=(("guard", 1e9),)),
        "planner, preemptive, half report": replace(base, preemption="service", reporting=0.5),
        "planner, exact": replace(base, known="exact"),
        "StrictFIFO": replace(base, policy="strict-fifo"),
        "BestEffortFIFO": replace(base, policy="best-effort-fifo"),
        "EASY": replace(base, policy="easy", known="exact"),
        "smallest first": replace(base, policy="smallest"),
        "service + EASY, history": replace(base, policy="sjf"),
        "service + EASY, exact": replace(base, policy="sjf", known="exact"),
        "oracle": replace(base, policy="oracle"),
    }


_ITP = _trace_cases("itp-cluster04-60days", 512)
_NODES = _trace_cases("itp-cluster04-60days", 512, per_node=8, costs=True)
_DAG_NODES = {name: replace(case, per_node=8, costs=True) for name, case in _DAGS.items()}


def _itp_aims(results: Results) -> Iterator[Aim]:
    yield _at_most(
        "average JCT over the bound, no names, non-preemptive",
        _median(results, _ITP["planner"], "ratio"),
        1.80,
    )
    yield _at_most("longest wait, hours", _median(results, _ITP["planner"], "wait_max") / HOUR, 130, 0)
    yield _at_most(
        "preemptive, 300 s a restart, blind", _median(results, _ITP["planner, preemptive"], "ratio"), 1.35
    )
    half = _ITP["planner, preemptive, half report"]
    yield _at_most("preemptive, half the jobs report", _median(results, half, "ratio"), 1.20)
    yield from _eta_aims(results, _ITP["planner"])


def _node_aims(results: Results) -> Iterator[Aim]:
    planner = _NODES["planner"]
    yield _at_most(
        "idle while jobs wait, beyond what is held, %", 100 * _median(results, planner, "stuck"), 3.0
    )
    yield _at_most("average JCT over the bound, non-preemptive", _median(results, planner, "ratio"), 1.80)
    yield _at_most("longest wait, hours", _median(results, planner, "wait_max") / HOUR, 130, 0)
    yield _at_most("preemptive, blind", _median(results, _NODES["planner, preemptive"], "ratio"), 1.35)
    half = _NODES["planner, preemptive, half report"]
    yield _at_most("preemptive, half the jobs report", _median(results, half, "ratio"), 1.20)


def _dag_node_aims(results: Results) -> Iterator[Aim]:
    planner, easy = _DAG_NODES["planner"], _DAG_NODES["EASY"]
    yield _at_most("average JCT over the bound, non-preemptive", _median(results, planner, "ratio"), 1.50)
    worst, where = _worst_class(results, planner, easy)
    yield _at_most(f"mean wait of the worst class ({where}) over EASY's", worst, 1.1)
    yield _at_most(
        "idle while jobs wait, beyond what is held, %", 100 * _median(results, planner, "stuck"), 3.0
    )
    yield from _eta_aims(results, planner)


# -- deadlines -----------------------------------------------------------------------------------------------------

_DUE_TRACES = (("itp-cluster04-week", 416), ("philly-days-40-43", 384))
_KNOWN = ("exact", "0.4", "0.8")
_DUE_POLICIES = {"planner": "planner", "service + EASY": "sjf", "EDF": "edf"}
_DUE_CASES = {
    f"{trace} ({model}) {known} {label}": Case(trace, name, capacity=capacity, known=known, due=model)
    for trace, capacity in _DUE_TRACES
    for model in "abc"
    for known in _KNOWN
    for label, name in _DUE_POLICIES.items()
}
_DUE_DAGS = {
    f"{model or 'own'} deadlines: {label}": Case("recurring", name, reporting=1.0, due=model)
    for model in ("", "a", "b", "c")
    for label, name in _DUE_POLICIES.items()
}


def _due_aims(results: Results) -> Iterator[Aim]:
    for trace, capacity in _DUE_TRACES:
        for model in "abc":
            bound = bounds.deadline_bound(workload_of(Case(trace, "planner", due=model)), capacity)
            for known in _KNOWN:
                own, *others = (
                    _median(results, _DUE_CASES[f"{trace} ({model}) {known} {label}"], "due_met")
                    for label in _DUE_POLICIES
                )
                beside = f"bound {bound:.3f}, service {others[0]:.3f}, EDF {others[1]:.3f}"
                what = f"{trace} ({model}) {known}: on time ({beside})"
                yield _at_least(what, own, max(others) - 0.005)


def _due_dag_aims(results: Results) -> Iterator[Aim]:
    for model in ("own", "a", "b", "c"):
        own, *others = (
            _median(results, _DUE_DAGS[f"{model} deadlines: {label}"], "due_met") for label in _DUE_POLICIES
        )
        what = f"{model} deadlines, progress reported: on time (service {others[0]:.3f}, EDF {others[1]:.3f})"
        yield _at_least(what, own, min(1.0, max(others) + 0.02))


# -- elastic, windows, partitions ----------------------------------------------------------------------------------

_ELASTIC_TRACE = "itp-cluster04-60days-elastic"
_ELASTIC = {
    "planner, elastic": Case(_ELASTIC_TRACE, "planner", capacity=512, known="exact", elastic=True),
    "planner, rigid": Case(_ELASTIC_TRACE, "planner", capacity=512, known="exact"),
    "EDF, rigid": Case(_ELASTIC_TRACE, "edf", capacity=512, known="exact"),
    "oracle, rigid": Case(_ELASTIC_TRACE, "oracle", capacity=512, known="exact"),
}


def _elastic_aims(results: Results) -> Iterator[Aim]:
    workload = workload_of(_ELASTIC["planner, rigid"])
    feasible = bounds.feasible_share(workload, 512, elastic=True)
    rigid = bounds.feasible_share(workload, 512)
    case = _ELASTIC["planner, elastic"]
    what = f"deadlines met of all (feasible {feasible:.3f}, rigid {rigid:.3f})"
    yield _at_least(what, _median(results, case, "due_met"), 0.95 * feasible)
    yield _at_most("average JCT, hours", _median(results, case, "jct") / HOUR, 5.2)


_WINDOWS = {
    "recurring DAGs, load 0.9": Case("recurring", "planner", load=0.9, windows=True),
    "recurring DAGs, load 0.9, without windows": Case("recurring", "planner", load=0.9),
    "10 clusters, lending": Case(
        "itp-10-clusters-3days", "planner", load=0.9, windows=True, partitions="both"
    ),
}


def _window_aims(results: Results) -> Iterator[Aim]:
    for name in ("recurring DAGs, load 0.9", "10 clusters, lending"):
        case = _WINDOWS[name]
        given, broken = _median(results, case, "windows_given"), _median(results, case, "windows_broken")
        yield Aim(
            f"{name}: windows given and kept",
            "all",
            f"{given - broken:.0f} of {given:.0f}",
            broken == 0 < given,
        )
        yield _at_most(
            f"{name}: held idle beyond windows, %", 100 * _median(results, case, "held_beyond"), 5.0
        )


_SHARED = {"10 clusters, lending": Case("itp-10-clusters-3days", "planner", load=0.9, partitions="both")}


def _shared_aims(results: Results) -> Iterator[Aim]:
    case = _SHARED["10 clusters, lending"]
    jct, apart = _median(results, case, "jct") / HOUR, _median(results, case, "apart_jct") / HOUR
    yield Aim("mean JCT with lending, hours", f"< {apart:.2f} (apart)", f"{jct:.2f}", jct < apart)
    for numbers in results.get(case, ())[:1]:
        for key in sorted(k for k in numbers if k.startswith("rho_mean:")):
            group = key.partition(":")[2]
            rho = ", ".join(
                f"{_median(results, case, f'rho_{s}:{group}'):.2f}" for s in ("mean", "p99", "max")
            )
            mean = _median(results, case, key)
            yield Aim(
                f"finish-time fairness {group} ({numbers[f'gpus:{group}']:.0f} GPUs): mean, p99, max",
                "mean ≤ 1.1",
                rho,
                mean <= 1.1,
            )


# -- how flat the result is around the defaults --------------------------------------------------------------------

_FLAT = {
    f"{trace.trace}: {label}": replace(trace, tweaks=tweak)
    for trace in (_DAGS["planner"], Case("itp-cluster04-week", "planner", capacity=416))
    for label, tweak in {
        "defaults": (),
        "ageing 0.15": (("ageing", 0.15),),
        "ageing 0.6": (("ageing", 0.6),),
        "guard 72 h": (("guard", 72 * HOUR),),
        "guard 120 h": (("guard", 120 * HOUR),),
        "look-ahead 1 h": (("look_ahead", HOUR),),
        "look-ahead 4 h": (("look_ahead", 4 * HOUR),),
        "idle cap 2.5 %": (("idle_cap", 0.025),),
        "idle cap 10 %": (("idle_cap", 0.10),),
        "reservations 1": (("reservations", 1),),
        "reservations 4": (("reservations", 4),),
    }.items()
}


def _no_aims(_: Results) -> Iterator[Aim]:
    return iter(())


_SELDOM = frozenset({"planner, exact", "planner, preemptive, no guard"})

ROWS: tuple[Row, ...] = (
    Row(
        "dags",
        "Recurring DAGs, load 0.95, count level",
        _DAGS,
        _dag_aims,
        _JCT | _ETA,
        quick=2,
        seldom=_SELDOM,
    ),
    Row(
        "itp",
        "itp-cluster04-60days at 512 GPUs, count level",
        _ITP,
        _itp_aims,
        _JCT | _MOVES | _ETA,
        seldom=_SELDOM,
    ),
    Row(
        "due",
        "Deadlines on traces, three models",
        _DUE_CASES,
        _due_aims,
        _DUE | {"÷ bound": ("ratio", 1, 2)},
        classes=False,
    ),
    Row(
        "due-dags",
        "Deadlines on recurring DAGs with progress reports",
        _DUE_DAGS,
        _due_dag_aims,
        _DUE | _JCT,
        quick=2,
        classes=False,
    ),
    Row(
        "elastic",
        "itp-cluster04-60days-elastic at 512 GPUs, own deadlines",
        _ELASTIC,
        _elastic_aims,
        _DUE | _JCT | _MOVES,
        seldom=frozenset({"planner, rigid"}),
    ),
    Row(
        "windows",
        "Calendar windows: daily, 4 h, 25 % of each partition",
        _WINDOWS,
        _window_aims,
        _HELD | _MOVES,
        classes=False,
        seldom=frozenset({"recurring DAGs, load 0.9, without windows"}),
    ),
    Row(
        "shared",
        "itp-10-clusters-3days as partitions at load 0.9 each",
        _SHARED,
        _shared_aims,
        _JCT | {"apart h": ("apart_jct", HOUR, 2)},
    ),
    Row(
        "nodes",
        "itp-cluster04-60days at 512 GPUs on 8-GPU nodes, all costs",
        _NODES,
        _node_aims,
        _JCT | _MOVES | _ETA,
        whole=3,
        seldom=_SELDOM,
    ),
    Row(
        "dag-nodes",
        "Recurring DAGs, load 0.95, on 8-GPU nodes, all costs",
        _DAG_NODES,
        _dag_node_aims,
        _JCT | _ETA,
        whole=3,
        seldom=_SELDOM,
    ),
    Row(
        "flat",
        "How flat the results are around the planner's defaults",
        _FLAT,
        _no_aims,
        _JCT,
        whole=2,
        classes=False,
    ),
)
