"""What a plan says: acts (start, reserve, resize, suspend) and, for each gang that waits, why."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_kftrain.scheduling.model import Placement
from airflow_kftrain.scheduling.reasons import Reason


@dataclass(frozen=True)
class Start:
    """Unsuspend ``request`` on the nodes of ``placement``.

    :param partition: whose nodes (not the request's own: a loan)
    :param size: count of the elastic pod set; None for a rigid gang
    :param window: the calendar reservation it runs in
    :param expected_end: predicted (p50) end, seconds since the epoch
    """

    request: str
    reason: Reason
    partition: str
    placement: tuple[Placement, ...]
    size: int | None = None
    window: str | None = None
    expected_end: float = 0.0


@dataclass(frozen=True)
class Reserve:
    """Hold capacity for ``request`` from ``start`` to ``end``; a plan, it may slip."""

    request: str
    reason: Reason
    partition: str
    start: float
    end: float


@dataclass(frozen=True)
class Resize:
    """Change the count of the elastic pod set to ``size``.

    :param placement: where all its pods stand afterwards
    :param beneficiary: whom a shrink is for; the host makes a claim for it
    """

    request: str
    reason: Reason
    size: int
    placement: tuple[Placement, ...]
    beneficiary: str | None = None


@dataclass(frozen=True)
class Suspend:
    """Stop ``request`` and queue it again at its old rank.

    :param beneficiary: the request whose claim the freed capacity is; None when a window takes it
    """

    request: str
    reason: Reason
    beneficiary: str | None = None


@dataclass(frozen=True)
class Explain:
    """``request`` waits, for ``reason``."""

    request: str
    reason: Reason


Decision = Start | Reserve | Resize | Suspend | Explain
