"""The order in which waiting gangs are looked at.

Ranks, lower first: gangs that freed capacity belongs to; who has waited beyond the guard; everybody else; Airflow
backfill runs. Within a rank the shortest predicted service (GPUs x seconds) comes first, with ageing, priority, fair
share and slack until the deadline. Work that is probably late stands back within its rank, and ages back.
Equal keys keep the order of submission, then of ids.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from airflow_kftrain.scheduling.calendar import Bools, Floats
from airflow_kftrain.scheduling.model import Running
from airflow_kftrain.scheduling.queue import SHORTEST, Queue
from airflow_kftrain.scheduling.settings import PlannerSettings


class Rank(enum.IntEnum):
    """Classes of the order."""

    CLAIMED = 0
    GUARDED = 1
    PLAIN = 2
    BACKFILL_RUN = 3


def service_key(queue: Queue, now: float, shares: Mapping[str, float], settings: PlannerSettings) -> Floats:
    """The logarithm of the service that counts: predicted, aged, and weighed by priority, share and deadline.

    ``log(GPUs x expected) - ageing x log(1 + wait / expected) - priority + share_weight x log(use / entitlement)
    + min(slack / slack_scale, slack_most) - log(late_floor + P(in time))``. The last two are the rule of apparent
    tardiness cost: short work first, longer work when its time has come; who is probably late anyway stands back.
    """
    expected = np.maximum(queue.expected, SHORTEST)
    key: Floats = np.log(queue.gpus * expected) - queue.priority
    key -= settings.ageing * np.log1p(waited(queue, now) / expected)
    if settings.share_weight and any(use != 1.0 for use in shares.values()):
        use = np.fromiter((shares.get(request.share, 1.0) for request in queue.requests), float, len(queue))
        key += settings.share_weight * np.log(np.maximum(use, 1e-3))
    if np.isfinite(queue.deadline).any():
        slack = np.maximum(queue.deadline - now - expected, 0.0) / settings.slack_scale
        key += np.minimum(slack, settings.slack_most)
        key -= np.log(settings.late_floor + in_time(queue, now))
    return key


def waited(queue: Queue, now: float) -> Floats:
    """Seconds that each gang has waited since it was submitted, without the work it has done meanwhile."""
    spent: Floats = np.maximum(now - queue.submitted - queue.attained, 0.0)
    return spent


def in_time(queue: Queue, now: float) -> Floats:
    """The chance that each gang, started now, ends by its deadline; 1 without one.

    Log-normal around the p50, with the logistic approximation of the normal distribution (error below 0.01).
    """
    left = np.maximum(queue.deadline - now, 1e-9)
    steps = np.log(left / np.maximum(queue.expected, 1.0)) / np.maximum(queue.spread, 0.03)
    chance: Floats = 1.0 / (1.0 + np.exp(np.clip(-1.702 * steps, -60.0, 60.0)))
    return np.where(np.isfinite(queue.deadline), chance, 1.0)


def guard_room(running: Sequence[Running], gpus: float, settings: PlannerSettings) -> float:
    """GPUs that gangs beyond the guard may still take: their share of ``gpus`` without what such gangs hold."""
    long = (g for g in running if g.admitted - g.request.submitted - g.request.attained >= settings.guard)
    return settings.guard_share * gpus - sum(gang.request.gpus for gang in long)


def ranks(
    queue: Queue, now: float, claimed: frozenset[str], settings: PlannerSettings, room: float = np.inf
) -> NDArray[np.int64]:
    """The class of each gang; shape (n,).

    :param room: GPUs that gangs beyond the guard may take; who has been submitted first goes first as long as there
        is any, so that a gang of any size gets its turn
    """
    rank = np.where(queue.least, Rank.BACKFILL_RUN, Rank.PLAIN)
    rank[_guarded(queue, now, room, settings)] = Rank.GUARDED
    if claimed:
        rank[[n for n, request in enumerate(queue.requests) if request.id in claimed]] = Rank.CLAIMED
    return rank.astype(np.int64)


def _guarded(queue: Queue, now: float, room: float, settings: PlannerSettings) -> NDArray[np.int64]:
    long = np.flatnonzero(waited(queue, now) >= settings.guard)
    found = long[np.lexsort((queue.gpus[long], queue.submitted[long]))]
    before = np.cumsum(queue.gpus[found]) - queue.gpus[found]
    chosen: NDArray[np.int64] = found[before < room]
    return chosen


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
    found = np.lexsort((queue.submitted, key, rank))
    return _by_id_where_equal(found, queue, key, rank)


def _by_id_where_equal(
    found: NDArray[np.int64], queue: Queue, key: Floats, rank: NDArray[np.int64]
) -> NDArray[np.int64]:
    """``found`` with gangs that are equal in all else put in order of their ids; strings are sorted only there."""
    if len(found) < 2:
        return found
    columns = np.vstack((queue.submitted, key, rank))[:, found]
    starts = np.flatnonzero(np.append(True, (columns[:, 1:] != columns[:, :-1]).any(axis=0)))
    lengths = np.diff(np.append(starts, len(found)))
    for start, length in zip(starts[lengths > 1], lengths[lengths > 1], strict=True):
        group = found[start : start + length]
        found[start : start + length] = sorted(group, key=lambda i: queue.requests[i].id)
    return found
