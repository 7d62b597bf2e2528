"""How long a job may take."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Limit(StrEnum):
    """The three spans whose limit ends a job."""

    QUEUE = "queue"
    START = "start"
    RUN = "run"


@dataclass(frozen=True, slots=True)
class LimitSeconds:
    """Limits in seconds; None for no limit.

    :param after: from the job's success to the end of the replicas that are waited for beyond it; no failure follows
    """

    queue: float | None = None
    start: float | None = None
    run: float | None = None
    after: float | None = None
