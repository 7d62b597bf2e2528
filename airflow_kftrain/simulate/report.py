"""Results as tables for a terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rich.table import Table

from airflow_kftrain.simulate.metrics import HOUR, Metrics, Summary


def hours(seconds: float) -> str:
    """Hours with two digits that matter; an en dash for none."""
    if math.isnan(seconds):
        return "–"
    value = seconds / HOUR
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def percent(share: float) -> str:
    """A share in percent; an en dash for none."""
    return "–" if math.isnan(share) else f"{100 * share:.1f}"


#: Characters of a line that a column takes beside its text.
_BORDER = 3
#: Columns of :func:`summary_tables` that are left out when they say nothing in any row.
_OPTIONAL = {"due met %", "preempted", "rescaled", "lost GPU-h", "ETA in p10-90 %"}


def summary_tables(
    rows: Mapping[str, Metrics], bound: Mapping[str, float], title: str, width: float = math.inf
) -> list[Table]:
    """One row a run: the averages, with the longest wait beside them.

    :param width: characters of a line; the columns that are beyond it stand in further tables
    """
    cells = {name: _cells(m, bound.get(name, math.nan)) for name, m in rows.items()}
    shown = [
        column
        for column in next(iter(cells.values()))
        if column not in _OPTIONAL or any(row[column] not in ("–", "0") for row in cells.values())
    ]
    return _runs_tables(title, cells, shown, width)


def _runs_tables(
    title: str, cells: Mapping[str, Mapping[str, str]], columns: Sequence[str], width: float
) -> list[Table]:
    taken = {column: max(len(column), *(len(row[column]) for row in cells.values())) for column in columns}
    parts = _side_by_side(taken, width - max(map(len, cells)) - _BORDER)
    return [_runs_table(title if part is parts[0] else None, cells, part) for part in parts]


def _side_by_side(taken: Mapping[str, int], width: float) -> list[list[str]]:
    """Columns in as many groups as it needs for none to be wider than ``width``, unless a column alone is."""
    groups: list[list[str]] = []
    left = 0.0
    for column, needed in taken.items():
        left -= needed + _BORDER
        if not groups or left < 0:
            groups.append([])
            left = width - needed - _BORDER
        groups[-1].append(column)
    return groups


def _runs_table(title: str | None, cells: Mapping[str, Mapping[str, str]], columns: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", header_style="bold", pad_edge=False)
    table.add_column("run")
    for column in columns:
        table.add_column(column, justify="right")
    for name, row in cells.items():
        table.add_row(name, *(row[column] for column in columns))
    return table


def _cells(m: Metrics, bound: float) -> dict[str, str]:
    over = m.jct.mean / bound
    return {
        "JCT h": hours(m.jct.mean),
        "÷ bound": "–" if math.isnan(over) else f"{over:.2f}",
        "p50": hours(m.jct.p50),
        "p99": hours(m.jct.p99),
        "by work": hours(m.jct_by_work),
        "wait h": hours(m.wait.mean),
        "longest": hours(m.wait.longest),
        "slowdown": f"{m.slowdown:.1f}",
        "due met %": percent(m.deadlines_met),
        "used %": percent(m.used),
        "held %": percent(m.held),
        "stuck %": percent(m.stuck),
        "preempted": str(m.preemptions),
        "rescaled": str(m.rescales),
        "lost GPU-h": f"{m.lost_gpu_hours:.0f}",
        "ETA in p10-90 %": percent(m.eta_inside),
    }


def class_tables(rows: Mapping[str, Metrics], width: float = math.inf) -> list[Table]:
    """Waits by gang class: mean / p99 / longest, hours.

    :param width: as in :func:`summary_tables`
    """
    classes: list[str] = []
    for m in rows.values():
        classes += [name for name in m.wait_by_class if name not in classes]
    cells = {name: {c: _waits(m.wait_by_class.get(c)) for c in classes} for name, m in rows.items()}
    return _runs_tables("Wait by gang size in GPUs: mean / p99 / longest, hours", cells, classes, width)


def _waits(summary: Summary | None) -> str:
    if summary is None:
        return "–"
    return " / ".join(hours(value) for value in (summary.mean, summary.p99, summary.longest))


def columns_table(title: str, columns: Mapping[str, Mapping[str, float]], first: str = "") -> Table:
    """Numbers side by side, one column a workload."""
    table = Table(title=title, title_justify="left", header_style="bold", pad_edge=False)
    table.add_column(first)
    rows: list[str] = []
    for name, values in columns.items():
        table.add_column(name, justify="right")
        rows += [row for row in values if row not in rows]
    for row in rows:
        table.add_row(row, *(_number(values.get(row)) for values in columns.values()))
    return table


def _number(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """Median, least and largest."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    return median, ordered[0], ordered[-1]
