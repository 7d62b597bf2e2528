"""What a workload looks like, in the few numbers that decide how hard it is to schedule."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from airflow_kftrain.simulate.workload import Workload

#: Gang classes by GPUs, both ends included.
CLASSES: tuple[tuple[int, int], ...] = ((1, 1), (2, 4), (5, 8), (9, 31), (32, 1_000_000))


def class_name(low: int, high: int) -> str:
    """How a gang class is written."""
    return str(low) if low == high else f"{low}+" if high >= 1_000_000 else f"{low}-{high}"


def class_of(gpus: int) -> str:
    """The gang class of a size."""
    return next(class_name(low, high) for low, high in CLASSES if low <= gpus <= high)


def describe(workload: Workload) -> dict[str, float]:
    """Shares of jobs and of work and duration quantiles (s) by gang class, and burstiness."""
    submit = np.array([job.submit for job in workload.jobs])
    duration = np.array([job.duration for job in workload.jobs])
    gpus = np.array([job.gpus for job in workload.jobs])
    rows: dict[str, float] = {"jobs": len(submit), "days": round(workload.span / 86400, 1)}
    for low, high in CLASSES:
        inside = (gpus >= low) & (gpus <= high)
        name = class_name(low, high)
        rows[f"{name} GPU: share of jobs"] = float(inside.mean())
        rows[f"{name} GPU: share of work"] = float((duration * gpus)[inside].sum() / (duration * gpus).sum())
        if inside.any():
            for q in (10, 50, 90):
                rows[f"{name} GPU: duration p{q}"] = float(np.quantile(duration[inside], q / 100))
    rows |= _bursts(submit, gpus)
    return rows


def _bursts(submit: npt.NDArray[np.float64], gpus: npt.NDArray[np.int64]) -> dict[str, float]:
    gaps = np.diff(submit)
    five = np.bincount((submit // 300).astype(int))
    hour = np.bincount((submit // 3600).astype(int))
    close = gaps <= 60
    return {
        "arrivals: variance/mean per 5 min": float(five.var() / five.mean()),
        "arrivals: variance/mean per hour": float(hour.var() / hour.mean()),
        "arrivals: variation of gaps": float(gaps.std() / gaps.mean()) if len(gaps) else 0.0,
        "arrivals: within 60 s of the last": float(close.mean()) if len(gaps) else 0.0,
        "arrivals: same width within 60 s": float((close & (np.diff(gpus) == 0)).mean())
        if len(gaps)
        else 0.0,
    }
