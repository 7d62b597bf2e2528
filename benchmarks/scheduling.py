"""Measure the planner against other policies, bounds and aims: ``make bench-scheduling`` (``ARGS=--quick``).

Results are written as they come, one JSON line a run, so that a run that was cut short is of use and ``--resume``
goes on from it.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import time
from collections.abc import Iterator
from dataclasses import astuple, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from airflow_kftrain.simulate.describe import describe
from airflow_kftrain.simulate.generator import recurring
from airflow_kftrain.simulate.report import columns_table, spread
from benchmarks.scheduling_cases import Case, run_case, workload_of
from benchmarks.scheduling_rows import ROWS, Aim, Row

OUT = Path(".kftrain/bench/scheduling.jsonl")


def main() -> int:
    """Run the rows asked for; 1 when an aim was missed and ``--strict`` was given."""
    asked = _arguments()
    console = Console(width=None if os.isatty(1) else 220)
    rows = [row for row in ROWS if not asked.rows or row.name in asked.rows]
    if asked.quick and not asked.rows:
        rows = [row for row in rows if row.name not in ("flat", "dag-nodes")]
    began = time.monotonic()
    _print_fit(console)
    done = _known(asked.out) if asked.resume else {}
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    aims: list[tuple[Row, Aim]] = []
    with (
        multiprocessing.get_context("spawn").Pool(asked.processes) as pool,
        asked.out.open("a" if asked.resume else "w") as log,
    ):
        for row in rows:
            cases = list(row.replicas(quick=asked.quick, count=asked.replicas))
            results: dict[Case, list[dict[str, float]]] = {}
            for case, numbers in _run(pool, cases, done):
                results.setdefault(replace(case, replica=0), []).append(numbers)
                if case not in done:
                    log.write(json.dumps({"case": list(astuple(case)), "numbers": numbers}) + "\n")
                    log.flush()
            _print_row(console, row, results)
            met = list(row.aims(results))
            _print_aims(console, [(row, aim) for aim in met], f"Aims: {row.title}")
            aims += [(row, aim) for aim in met]
            console.print(f"[{time.monotonic() - began:.0f} s so far]\n", highlight=False)
    _print_aims(console, aims, "All aims")
    missed = sum(not aim.met for _, aim in aims)
    console.print(
        f"{len(aims) - missed} of {len(aims)} aims met, {time.monotonic() - began:.0f} s", highlight=False
    )
    return 1 if missed and asked.strict else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few replicas, without the sensitivity rows")
    parser.add_argument("--rows", nargs="*", choices=[row.name for row in ROWS], help="only these rows")
    parser.add_argument("--replicas", type=int, help="so many replicas of each case")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=OUT, help="JSON lines, one a run")
    parser.add_argument("--resume", action="store_true", help="use what is in --out already")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when an aim is missed")
    return parser.parse_args()


def _known(path: Path) -> dict[Case, dict[str, float]]:
    if not path.exists():
        return {}
    known = {}
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        *fields, tweaks = entry["case"]
        known[Case(*fields, tweaks=tuple((name, value) for name, value in tweaks))] = entry["numbers"]
    return known


def _run(
    pool: multiprocessing.pool.Pool, cases: list[Case], done: dict[Case, dict[str, float]]
) -> Iterator[tuple[Case, dict[str, float]]]:
    for case in cases:
        if case in done:
            yield case, done[case]
    yield from pool.imap_unordered(_one, [case for case in cases if case not in done])


def _one(case: Case) -> tuple[Case, dict[str, float]]:
    return case, run_case(case)


def _print_fit(console: Console) -> None:
    """The generator beside what it was fitted to."""
    drawn = {f"recurring {seed}": describe(recurring(seed)) for seed in (1, 2, 3)}
    traces = {
        name: describe(workload_of(Case(name, "planner")))
        for name in ("itp-cluster04-60days", "philly-days-40-43")
    }
    console.print(columns_table("Generated workloads beside the traces they are fitted to", drawn | traces))


def _print_row(console: Console, row: Row, results: dict[Case, list[dict[str, float]]]) -> None:
    table = Table(title=f"{row.title} (median [least, largest] over replicas)", title_justify="left")
    table.add_column("run")
    for column in row.columns:
        table.add_column(column, justify="right")
    table.add_column("n", justify="right")
    for label, case in row.cases.items():
        runs = results.get(case, [])
        cells = [
            _cell([run.get(key, math.nan) for run in runs], unit, digits)
            for key, unit, digits in row.columns.values()
        ]
        table.add_row(label, *cells, str(len(runs)))
    console.print(table)
    if row.classes:
        _print_classes(console, row, results)


def _print_classes(console: Console, row: Row, results: dict[Case, list[dict[str, float]]]) -> None:
    """JCT and wait by gang class: mean, p50, p99 and longest, medians over replicas."""
    names = sorted(
        {
            key.partition(":")[2]
            for runs in results.values()
            for run in runs
            for key in run
            if key.startswith("wait_mean:")
        },
        key=lambda name: int(name.rstrip("+").partition("-")[0]),
    )
    for what in ("wait", "jct"):
        table = Table(title=f"{what} by gang size: mean / p50 / p99 / longest, hours", title_justify="left")
        table.add_column("run")
        for name in names:
            table.add_column(name, justify="right")
        for label, case in row.cases.items():
            table.add_row(label, *(_class_cell(results.get(case, []), what, name) for name in names))
        console.print(table)


def _class_cell(runs: list[dict[str, float]], what: str, name: str) -> str:
    parts = []
    for part in ("mean", "p50", "p99", "max"):
        values = [run[f"{what}_{part}:{name}"] / 3600 for run in runs if f"{what}_{part}:{name}" in run]
        parts.append(f"{spread(values)[0]:.1f}" if values else "–")
    return " / ".join(parts)


def _cell(values: list[float], unit: float, digits: int) -> str:
    values = [value / unit for value in values if not math.isnan(value)]
    if not values:
        return "–"
    middle, least, most = spread(values)
    return f"{middle:.{digits}f}" + (f" [{least:.{digits}f}, {most:.{digits}f}]" if len(values) > 1 else "")


def _print_aims(console: Console, aims: list[tuple[Row, Aim]], title: str) -> None:
    if not aims:
        return
    table = Table(title=title, title_justify="left")
    for column in ("row", "what", "aim", "measured", ""):
        table.add_column(column)
    for row, aim in aims:
        table.add_row(row.name, aim.what, aim.wanted, aim.measured, "met" if aim.met else "MISSED")
    console.print(table)


if __name__ == "__main__":
    raise SystemExit(main())
