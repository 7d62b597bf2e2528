"""A run over time: use of the cluster, the queue, and each gang; as text, or as a picture with matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.simulate.engine import Run, Sample

_BARS = " ▁▂▃▄▅▆▇█"
HOUR = 3600.0


def text(run: Run, *, width: int = 72, gangs: int = 12) -> str:
    """Three strips of ``width`` columns from the first submission to the last end.

    :param gangs: how many gangs to draw: those that waited longest (``·`` waits, ``█`` runs)
    """
    end = _end(run)
    edges = np.linspace(0.0, end, width + 1)
    used = _averages(run.samples, edges, lambda s: s.used)
    waiting = _averages(run.samples, edges, lambda s: s.waiting_gpus)
    most = max(float(waiting.max()), 1.0)
    axis = f"0 h{f'{end / HOUR:.0f} h':>{width - 3}}"
    lines = [
        f"{run.policy}, {run.cluster.capacity} GPUs",
        f"{'GPUs used':>18} {_strip(used / run.cluster.capacity)} of {run.cluster.capacity}",
        f"{'GPUs waited for':>18} {_strip(waiting / most)} at most {most:.0f}",
        *(_gang_line(run, job, edges) for job in _longest_waits(run, gangs)),
        f"{'':>18} {axis}",
    ]
    return "\n".join(lines)


def _gang_line(run: Run, job: int, edges: npt.NDArray[np.float64]) -> str:
    spec, record = run.workload.jobs[job], run.records[job]
    finish = record.end if record.end is not None else float(edges[-1])
    line = [" "] * (len(edges) - 1)
    _paint(line, edges, spec.submit, finish, "·")
    for owner, begin, until, _ in run.spans:
        if owner == job:
            _paint(line, edges, begin, until, "█")
    name = f"{spec.id[:12]} x{spec.gpus}"
    return f"{name[:18]:>18} {''.join(line)} waited {record.waited / HOUR:.1f} h"


def _paint(line: list[str], edges: npt.NDArray[np.float64], begin: float, end: float, mark: str) -> None:
    first = int(np.searchsorted(edges, begin, side="right")) - 1
    last = int(np.searchsorted(edges, end, side="left"))
    for column in range(max(0, first), min(len(line), max(last, first + 1))):
        line[column] = mark


def _longest_waits(run: Run, count: int) -> list[int]:
    by_wait = sorted(range(len(run.records)), key=lambda job: -run.records[job].waited)
    return sorted(by_wait[:count])


def _strip(shares: npt.NDArray[np.float64]) -> str:
    return "".join(_BARS[round(min(1.0, float(share)) * (len(_BARS) - 1))] for share in shares)


def _end(run: Run) -> float:
    return max((record.end or 0.0) for record in run.records)


def _averages(
    samples: Sequence[Sample], edges: npt.NDArray[np.float64], value: object
) -> npt.NDArray[np.float64]:
    """Time average of a step function over each column."""
    assert callable(value)
    times = np.array([s.time for s in samples])
    values = np.array([float(value(s)) for s in samples])
    area = np.concatenate(([0.0], np.cumsum(values[:-1] * np.diff(times))))
    at = np.clip(np.searchsorted(times, edges, side="right") - 1, 0, len(times) - 1)
    whole = area[at] + values[at] * np.maximum(0.0, edges - times[at])
    averages: npt.NDArray[np.float64] = np.diff(whole) / np.diff(edges)
    return averages


def picture(runs: Mapping[str, Run], path: Path, *, gangs: int = 400) -> None:
    """Write a picture of runs: use, queue and gangs over time, one column a run.

    :param gangs: at most so many gangs are drawn, the widest first
    :raises InvalidInput: matplotlib is not installed, or the file's type is unknown to it
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise InvalidInput(
            "plot", str(path), "a picture needs matplotlib: pip install 'airflow-kftrain[plots]'"
        ) from None
    figure = Figure(figsize=(7 * len(runs), 9), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(3, len(runs), squeeze=False, sharex=True)
    for column, (name, run) in enumerate(runs.items()):
        use, queue, rows = axes[0][column], axes[1][column], axes[2][column]
        hours = [s.time / HOUR for s in run.samples]
        use.step(hours, [s.used for s in run.samples], where="post", linewidth=0.6)
        use.axhline(run.cluster.capacity, linewidth=0.5, color="grey")
        use.set_title(name)
        use.set_ylabel("GPUs used")
        queue.step(hours, [s.waiting_gpus for s in run.samples], where="post", linewidth=0.6, color="C1")
        queue.set_ylabel("GPUs waited for")
        _draw_gangs(rows, run, gangs)
        rows.set_ylabel("gangs, widest below")
        rows.set_xlabel("hours")
    try:
        figure.savefig(path, dpi=110)
    except ValueError as error:
        raise InvalidInput("plot", str(path), f"give a .png, .svg or .pdf file ({error})") from error


def _draw_gangs(axes: object, run: Run, gangs: int) -> None:
    jobs = run.workload.jobs
    chosen = sorted(range(len(jobs)), key=lambda job: (-jobs[job].gpus, job))[:gangs]
    row = {job: place for place, job in enumerate(chosen)}
    waits = [(jobs[j].submit / HOUR, (run.records[j].end or 0.0) / HOUR, row[j]) for j in chosen]
    spans = [(begin / HOUR, end / HOUR, row[j]) for j, begin, end, _ in run.spans if j in row]
    for pieces, width, colour in ((waits, 0.3, "0.8"), (spans, 1.0, "C0")):
        left = [begin for begin, _, _ in pieces]
        length = [end - begin for begin, end, _ in pieces]
        axes.barh([r for _, _, r in pieces], length, left=left, height=width, color=colour)  # type: ignore[attr-defined]
