"""Why a gang starts, waits, grows or stops: a code, the numbers behind it, and a sentence made when it is read."""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Mapping
from dataclasses import dataclass, field


class Code(enum.Enum):
    """Reason codes; the value is the contract for status annotations, metrics and tests."""

    # admitted
    FIRST_IN_ORDER = "FirstInOrder"
    BACKFILLED = "Backfilled"
    URGENT = "Urgent"
    CLAIMED = "Claimed"
    GUARDED = "WaitedTooLong"
    IN_WINDOW = "InWindow"
    BORROWED = "Borrowed"
    SCALED_TO_FIT = "ScaledToFit"
    # held
    RESERVED_FIRST_BLOCKED = "ReservedFirstBlocked"
    RESERVED_DEADLINE = "ReservedForDeadline"
    RESERVED_CLAIM = "ReservedForClaim"
    # waits
    NO_ROOM = "NoRoom"
    NODES_TOO_FULL = "NodesTooFull"
    WOULD_DELAY = "WouldDelayReservation"
    WOULD_BREAK_WINDOW = "WouldBreakWindow"
    BACKING_OFF = "BackingOff"
    BEYOND_DEPTH = "BeyondDepth"
    IDLE_HELD = "CapacityHeldForReservation"
    # cannot
    NEVER_FITS = "NeverFits"
    NO_PARTITION = "NoPartition"
    MISSES_DEADLINE = "MissesDeadline"
    # running gangs
    PREEMPTED = "Preempted"
    RECALLED = "LoanRecalled"
    DRAINED = "DrainedForWindow"
    WINDOW_OVER = "WindowOver"
    GROWN = "Grown"
    SHRUNK = "Shrunk"


_SENTENCES: Mapping[Code, str] = {
    Code.FIRST_IN_ORDER: "starts now on {gpus} GPUs: first in order that fits, after {waited} of waiting",
    Code.BACKFILLED: "starts now on {gpus} GPUs ahead of {ahead} earlier gang(s): it is predicted to end by {until}, "
    "so that nobody's reservation is delayed",
    Code.URGENT: "starts now on {gpus} GPUs: it must start by {latest} to meet its deadline {deadline}",
    Code.CLAIMED: "starts now on {gpus} GPUs that were freed for it",
    Code.GUARDED: "starts now on {gpus} GPUs: it has waited {waited}, longer than the guard of {guard}",
    Code.IN_WINDOW: "starts now on {gpus} GPUs inside reservation {window}, which ends at {until}",
    Code.BORROWED: "starts now on {gpus} GPUs lent by partition {lender} until about {until}",
    Code.SCALED_TO_FIT: "starts now with {size} replicas in place of {wanted}: that many fit",
    Code.RESERVED_FIRST_BLOCKED: "waits: first in order; {gpus} GPUs are held for it from {start}, when {frees} more "
    "will have been freed",
    Code.RESERVED_DEADLINE: "waits: {gpus} GPUs are held for it from {start}, "
    "so that it meets its deadline {deadline}",
    Code.RESERVED_CLAIM: "waits for the gangs that were stopped for it to be gone; "
    "{gpus} GPUs are its own from {start}",
    Code.NO_ROOM: "waits: needs {gpus} GPUs, {free} are free in {partition}; {ahead} gang(s) stand before it",
    Code.NODES_TOO_FULL: "waits: {free} GPUs are free in {partition}, "
    "but no set of nodes has room for each of its pods",
    Code.WOULD_DELAY: "waits: {free} GPUs are free, but it is predicted to run for {expected_run} "
    "and would delay a gang before it",
    Code.WOULD_BREAK_WINDOW: "waits: it could still be running when a guaranteed window of {partition} begins",
    Code.BACKING_OFF: "waits until {until}: its last start did not come up",
    Code.BEYOND_DEPTH: "waits: {ahead} gangs stand before it, more than one plan looks at",
    Code.IDLE_HELD: "waits: the free GPUs of {partition} are held for a gang before it",
    Code.NEVER_FITS: "cannot start: {what}",
    Code.NO_PARTITION: "cannot start: there is no partition {partition}",
    Code.MISSES_DEADLINE: "waits: its deadline {deadline} cannot be met any more; "
    "it would end at {expected_end} if it started now",
    Code.PREEMPTED: "is suspended for {beneficiary}: it loses {lost} of work, the least of all choices",
    Code.RECALLED: "is suspended: partition {partition} takes back what it lent, for {beneficiary}",
    Code.DRAINED: "is suspended: reservation {window} begins at {start}",
    Code.WINDOW_OVER: "is suspended: reservation {window} ended at {until}",
    Code.GROWN: "grows from {old} to {new} replicas: it is predicted to end {gain} earlier",
    Code.SHRUNK: "shrinks from {old} to {new} replicas for {beneficiary}",
}

_INSTANTS = frozenset({"until", "latest", "deadline", "start", "expected_end"})
_SPANS = frozenset({"waited", "guard", "expected_run", "lost", "gain", "slip"})


@dataclass(frozen=True)
class Reason:
    """A code and its numbers.

    :param numbers: seconds since the epoch for instants, seconds for spans, plain numbers and names else
    """

    code: Code
    numbers: Mapping[str, float | int | str] = field(default_factory=dict)

    def sentence(self, tz: dt.tzinfo = dt.UTC) -> str:
        """For a person, about a gang whose name stands before it; instants are given in ``tz``."""
        shown = _Shown(self.numbers, tz)
        slipped = f" (it has slipped by {shown['slip']})" if "slip" in self.numbers else ""
        return _SENTENCES[self.code].format_map(shown) + slipped

    def to_dict(self) -> dict[str, object]:
        """Plain JSON: the code and the numbers."""
        return {"code": self.code.value, "numbers": dict(self.numbers)}


class _Shown(dict[str, str]):
    """The numbers as people read them; one that is not there is shown as ``?``."""

    def __init__(self, numbers: Mapping[str, float | int | str], tz: dt.tzinfo) -> None:
        super().__init__({name: _show(name, value, tz) for name, value in numbers.items()})

    def __missing__(self, key: str) -> str:
        return "?"


def _show(name: str, value: float | int | str, tz: dt.tzinfo) -> str:
    if isinstance(value, str):
        return value
    if name in _INSTANTS:
        return show_instant(value, tz)
    if name in _SPANS:
        return show_span(value)
    return f"{value:g}"


def show_instant(seconds: float, tz: dt.tzinfo = dt.UTC) -> str:
    """``2026-03-01 14:05 UTC``; ``never`` for infinity."""
    if not 0 <= seconds < 32_503_680_000:  # the year 3000: beyond it a prediction is no instant
        return "never"
    return f"{dt.datetime.fromtimestamp(seconds, tz):%Y-%m-%d %H:%M %Z}"


def show_span(seconds: float) -> str:
    """``45 s``, ``12 min``, ``3 h 20 min``, ``2 d 4 h``."""
    if seconds != seconds or seconds == float("inf"):
        return "an unknown time"
    whole = int(max(0.0, seconds))
    if whole < 90:
        return f"{whole} s"
    minutes = whole // 60
    if minutes < 90:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {rest} min" if rest else f"{hours} h"
    return f"{hours // 24} d {hours % 24} h"
