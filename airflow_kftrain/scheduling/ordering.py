"""The order in which waiting gangs are looked at.

Ranks, lower first: gangs that freed capacity belongs to; who has waited beyond the guard; everybody else; Airflow
backfill runs. Within a rank the shortest predicted service (GPUs x seconds) comes first, with ageing, priority, fair
share and slack until the deadline. Work that is probably late stands back within its rank, and ages back.
Equal keys keep the order of submission, then of ids.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from airflow_kftrain.scheduling.calendar import Bools, Floats
from airflow_kftrain.scheduling.fit import Grid
from airflow_kftrain.scheduling.model import Costs, Request
from airflow_kftrain.scheduling.settings import PlannerSettings

SHORTEST = 60.0  # seconds; keeps logarithms and ratios finite for runs of no length


class Rank(enum.IntEnum):
    """Classes of the order."""

    CLAIMED = 0
    GUARDED = 1
    PLAIN = 2
    BACKFILL_RUN = 3


@dataclass
class Queue:
    """The waiting gangs of one partition as arrays of the same length.

    :param expected: predicted (p50) seconds still to run, start-up included
    :param spread: standard deviation of the logarithm of its run time around the p50
    :param surely_over: seconds after which it is over even if predictions fail: its limit; 0 if it can be suspended
    """

    requests: list[Request]
    amounts: Floats
    gpus: Floats
    submitted: Floats
    priority: Floats
    expected: Floats
    soonest: Floats
    spread: Floats
    surely_over: Floats
    deadline: Floats
    runs: Floats
    not_before: Floats
    least: Bools
    resumable: Bools

    def __len__(self) -> int:
        return len(self.requests)


def queue_of(requests: list[Request], grid: Grid, costs: Costs) -> Queue:
    """The arrays of ``requests``; what a request gives is kept on it from plan to plan."""
    count = len(requests)
    rows = np.array([request.row for request in requests], dtype=float).reshape(count, 14)
    amounts = np.array([_amount(request, grid) for request in requests], dtype=float)
    (
        submitted,
        priority,
        p10,
        p50,
        p80,
        deadline,
        limit,
        attained,
        gpus,
        runs,
        not_before,
        least,
        resume,
        speed,
    ) = rows.T
    restart = np.where(attained > 0, costs.restart, 0.0)
    return Queue(
        requests,
        amounts.reshape(count, len(grid.axes)),
        gpus,
        submitted,
        np.minimum(priority, grid.partition.highest_priority),
        costs.startup + restart + np.maximum(p50 - attained, np.minimum(p50, SHORTEST)) / speed,
        costs.startup + restart + np.maximum(p10 - attained, 0.0) / speed,
        np.log(np.maximum(p80, 1e-9) / np.maximum(p50, 1e-9)) / 0.8416,
        np.where(resume > 0, 0.0, costs.startup + limit),
        deadline,
        runs,
        not_before,
        least > 0,
        resume > 0,
    )


def _amount(request: Request, grid: Grid) -> tuple[float, ...]:
    kept = request.__dict__.get("_amount")
    if kept is None or kept[0] != grid.axes:
        kept = (grid.axes, tuple(grid.total(request.least)))
        request.__dict__["_amount"] = kept
    amount: tuple[float, ...] = kept[1]
    return amount


def service_key(queue: Queue, now: float, shares: Mapping[str, float], settings: PlannerSettings) -> Floats:
    """The logarithm of the service that counts: predicted, aged, and weighed by priority, share and deadline.

    ``log(GPUs x expected) - ageing x log(1 + wait / expected) - priority + share_weight x log(use / entitlement)
    + min(slack / slack_scale, slack_most) - log(late_floor + P(in time))``. The last two are the rule of apparent
    tardiness cost: short work first, longer work when its time has come; who is probably late anyway stands back.
    """
    expected = np.maximum(queue.expected, SHORTEST)
    key: Floats = np.log(queue.gpus * expected) - queue.priority
    key -= settings.ageing * np.log1p(np.maximum(now - queue.submitted, 0.0) / expected)
    if shares and settings.share_weight:
        use = np.array([shares.get(request.share, 1.0) for request in queue.requests])
        key += settings.share_weight * np.log(np.maximum(use, 1e-3))
    if np.isfinite(queue.deadline).any():
        slack = np.maximum(queue.deadline - now - expected, 0.0) / settings.slack_scale
        key += np.minimum(slack, settings.slack_most)
        key -= np.log(settings.late_floor + in_time(queue, now))
    return key


def in_time(queue: Queue, now: float) -> Floats:
    """The chance that each gang, started now, ends by its deadline; 1 without one.

    Log-normal around the p50, with the logistic approximation of the normal distribution (error below 0.01).
    """
    left = np.maximum(queue.deadline - now, 1e-9)
    steps = np.log(left / np.maximum(queue.expected, 1.0)) / np.maximum(queue.spread, 0.03)
    chance: Floats = 1.0 / (1.0 + np.exp(np.clip(-1.702 * steps, -60.0, 60.0)))
    return np.where(np.isfinite(queue.deadline), chance, 1.0)


def ranks(queue: Queue, now: float, claimed: frozenset[str], settings: PlannerSettings) -> NDArray[np.int64]:
    """The class of each gang; shape (n,)."""
    rank = np.where(queue.least, Rank.BACKFILL_RUN, Rank.PLAIN)
    rank[now - queue.submitted >= settings.guard] = Rank.GUARDED
    if claimed:
        rank[[request.id in claimed for request in queue.requests]] = Rank.CLAIMED
    return rank.astype(np.int64)


def urgent(queue: Queue, now: float, look_ahead: float) -> Bools:
    """Who must start within ``look_ahead``, and still can, to meet a deadline."""
    latest = queue.deadline - queue.expected
    return (latest >= now) & (latest <= now + look_ahead) & (look_ahead > 0)


def order(
    queue: Queue, rank: NDArray[np.int64], now: float, shares: Mapping[str, float], settings: PlannerSettings
) -> NDArray[np.int64]:
    """Indices into ``queue``, first to look at first; the same whatever order the requests came in."""
    key = service_key(queue, now, shares, settings)
    key = np.where(rank <= Rank.GUARDED, queue.submitted, key)
    if len(np.unique(queue.submitted)) == len(queue):
        return np.lexsort((queue.submitted, key, rank))
    ids = np.array([request.id for request in queue.requests])
    return np.lexsort((ids, queue.submitted, key, rank))
