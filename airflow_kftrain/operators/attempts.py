"""What is kept of a task instance's jobs across its tries, and what a new try does about them; pure.

The record lives in Airflow's task state store, which outlives retries and clears. A job may be taken over only while
its worker had not yet deferred: a job whose task was cleared or retried after that belongs to a try that is over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

STORE_KEY = "kftrain_jobs"
KEPT = 10
"""Attempts kept; a longer history has nothing left to clean up."""


class Phase(StrEnum):
    """How far an attempt came in its worker."""

    SUBMITTING = "submitting"
    CREATED = "created"
    WAITING = "waiting"
    KILLED = "killed"


@dataclass(frozen=True)
class Attempt:
    """One job of one try.

    :param owner: the ownership token that the job was made with, or got when it was taken over
    :param uid: of the object; None while the answer to the POST is not known
    """

    kind: str
    namespace: str
    name: str
    owner: str
    phase: Phase
    uid: str | None = None


@dataclass(frozen=True)
class Settlement:
    """What a try does about earlier attempts.

    :param own: this very try's attempt: its worker was started again
    :param adopt: the attempt to take over, if its job is still there and unfinished
    :param leftovers: attempts whose jobs are to be cleaned up
    """

    own: Attempt | None = None
    adopt: Attempt | None = None
    leftovers: tuple[Attempt, ...] = ()


def settle(attempts: Sequence[Attempt], owner: str) -> Settlement:
    """What the try with the token ``owner`` does about ``attempts``, oldest first."""
    own = next((a for a in reversed(attempts) if a.owner == owner and a.phase is not Phase.KILLED), None)
    earlier = [attempt for attempt in attempts if attempt is not own]
    newest = earlier[-1] if earlier and own is None else None
    adopt = newest if newest is not None and newest.phase in (Phase.SUBMITTING, Phase.CREATED) else None
    return Settlement(own, adopt, tuple(attempt for attempt in earlier if attempt is not adopt))


def record(attempts: Sequence[Attempt], attempt: Attempt) -> tuple[Attempt, ...]:
    """``attempts`` with ``attempt`` as the newest, in place of one of the same job."""
    others = [
        a
        for a in attempts
        if (a.kind, a.namespace, a.name) != (attempt.kind, attempt.namespace, attempt.name)
    ]
    return (*others, attempt)[-KEPT:]


def read_attempts(stored: object) -> tuple[Attempt, ...]:
    """What :func:`write_attempts` stored; entries that cannot be read are left out."""
    entries = stored if isinstance(stored, list) else []
    return tuple(found for entry in entries if (found := _attempt(entry)) is not None)


def write_attempts(attempts: Sequence[Attempt]) -> list[dict[str, Any]]:
    """As JSON."""
    return [asdict(attempt) for attempt in attempts]


def moved(attempt: Attempt, phase: Phase) -> Attempt:
    """``attempt`` in another phase."""
    return replace(attempt, phase=phase)


def _attempt(entry: object) -> Attempt | None:
    if not isinstance(entry, Mapping):
        return None
    try:
        return Attempt(**{**entry, "phase": Phase(str(entry.get("phase")))})
    except (TypeError, ValueError):
        return None
