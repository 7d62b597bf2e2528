"""How long a job may take."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Limit(StrEnum):
    """The three spans that can be limited."""

    QUEUE = "queue"
    START = "start"
    RUN = "run"


@dataclass(frozen=True, slots=True)
class LimitSeconds:
    """Limits in seconds; None for no limit."""

    queue: float | None = None
    start: float | None = None
    run: float | None = None
