"""Calendar reservations: from a wall-clock rule in a zone to windows as instants, and whether one can be promised.

A reservation is kept as wall time, zone and length, and is expanded when a plan is made. The rule for clock changes:

* an hour that is skipped shifts the occurrence forward by the gap (02:30 becomes 03:30 where 02:00-03:00 is missing);
* an hour that comes twice means its first occurrence;
* the length is elapsed seconds, so that no window is empty, negative, or an hour longer than asked for;
* occurrences that a shift puts on the same instant are one.
"""

from __future__ import annotations

import datetime as dt
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.jobs.resources import Resources
from airflow_kftrain.scheduling.calendar import Profile
from airflow_kftrain.scheduling.model import Running, Window
from airflow_kftrain.scheduling.vectors import asked, axes_of, there

_LOCALISED_UNTIL = re.compile(r"(?<=UNTIL=)(\d{8}T\d{6})Z")
_TOO_OFTEN = re.compile(r"FREQ=(SECONDLY|MINUTELY)", re.IGNORECASE)
DAY = dt.timedelta(days=1)


@dataclass(frozen=True)
class Reservation:
    """Capacity promised in a partition, once or by a rule.

    :param id: its name
    :param partition: where
    :param amount: what is held
    :param start: wall time of the first occurrence in whole seconds, naive: meant in ``zone``, never in the host's
    :param zone: IANA name
    :param duration: elapsed seconds of each occurrence
    :param rrule: RFC 5545 recurrence (``FREQ=DAILY;BYHOUR=2``), hourly at most; empty for one occurrence
    :param exceptions: wall times of occurrences that are left out; a date without time leaves out all of that day
    :param lead: seconds before each start from which nothing new may overlap it, for draining
    :raises InvalidInput: any of these cannot be used
    """

    id: str
    partition: str
    amount: Resources
    start: dt.datetime
    zone: str
    duration: float
    rrule: str = ""
    exceptions: tuple[dt.datetime | dt.date, ...] = ()
    lead: float = 0.0
    _rule: Any = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        if self.start.tzinfo is not None:
            raise InvalidInput(
                "reservation.start", self.start, "give wall time without an offset; zone says where"
            )
        object.__setattr__(self, "start", self.start.replace(microsecond=0))
        if not 0 < self.duration < float("inf"):
            raise InvalidInput("reservation.duration", self.duration, "give a positive number of seconds")
        if self.lead < 0:
            raise InvalidInput("reservation.lead", self.lead, "give zero or more seconds")
        if not self.amount or any(value < 0 for value in self.amount.values()):
            raise InvalidInput("reservation.amount", self.amount, "reserve something")
        _ = self.tz
        object.__setattr__(self, "_rule", self._parsed())

    @classmethod
    def between(
        cls,
        name: str,
        partition: str,
        amount: Resources,
        start: dt.datetime,
        end: dt.time,
        zone: str,
        **more: Any,
    ) -> Reservation:
        """One given as ``02:30`` to ``04:00``: its length is the difference on the dial, past midnight too."""
        last = dt.datetime.combine(start.date(), end)
        if last <= start:
            last += DAY
        return cls(name, partition, amount, start, zone, (last - start).total_seconds(), **more)

    @cached_property
    def tz(self) -> ZoneInfo:
        """The zone."""
        try:
            return ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as unknown:
            raise InvalidInput(
                "reservation.zone", self.zone, "give an IANA name such as Europe/Berlin"
            ) from unknown

    def _parsed(self) -> Any:
        if not self.rrule:
            return None
        from dateutil.rrule import rrulestr

        if _TOO_OFTEN.search(self.rrule):
            raise InvalidInput("reservation.rrule", self.rrule, "repeat hourly at most")
        try:
            return rrulestr(_LOCALISED_UNTIL.sub(self._wall, self.rrule), dtstart=self.start)
        except (ValueError, TypeError, KeyError) as broken:
            raise InvalidInput(
                "reservation.rrule", self.rrule, f"it is no RFC 5545 rule: {broken}"
            ) from broken

    def _wall(self, until: re.Match[str]) -> str:
        instant = dt.datetime.strptime(until[1], "%Y%m%dT%H%M%S").replace(tzinfo=dt.UTC)
        return f"{instant.astimezone(self.tz):%Y%m%dT%H%M%S}"

    def instant(self, wall: dt.datetime) -> float:
        """``wall`` in the zone as seconds since the epoch; see the module for the clock changes."""
        return wall.replace(tzinfo=self.tz, fold=0).timestamp()

    def windows(self, after: float, before: float) -> list[Window]:
        """Occurrences that end after ``after`` and start before ``before``, in order.

        :raises InvalidInput: an occurrence begins before the one before it has ended
        """
        found = [
            Window(self.id, self.partition, start, start + self.duration, self.amount, self.lead)
            for start in sorted({self.instant(wall) for wall in self._walls(after, before)})
            if start + self.duration > after and start < before
        ]
        for one, next_one in itertools.pairwise(found):
            if next_one.start < one.end:
                raise InvalidInput(
                    "reservation.duration", self.duration, "it is longer than its rule's interval"
                )
        return found

    def _walls(self, after: float, before: float) -> Iterator[dt.datetime]:
        # Two days on both sides cover every offset of a zone and every shift.
        first = dt.datetime.fromtimestamp(after - self.duration, self.tz).replace(tzinfo=None) - 2 * DAY
        last = dt.datetime.fromtimestamp(before, self.tz).replace(tzinfo=None) + 2 * DAY
        walls = [self.start] if self._rule is None else self._rule.between(first, last, inc=True)
        left_out = {day for day in self.exceptions if not isinstance(day, dt.datetime)}
        moments = {moment for moment in self.exceptions if isinstance(moment, dt.datetime)}
        return (wall for wall in walls if wall not in moments and wall.date() not in left_out)


def windows_between(reservations: Iterable[Reservation], after: float, before: float) -> tuple[Window, ...]:
    """The windows of all ``reservations``, by start and id."""
    found = [window for reservation in reservations for window in reservation.windows(after, before)]
    return tuple(sorted(found, key=lambda window: (window.start, window.reservation)))


@dataclass(frozen=True)
class Refusal:
    """Why a reservation cannot be promised.

    :param at: the instant at which too little is left, seconds since the epoch
    :param free: what could be promised at that instant
    :param amount: the largest part of what was asked for (0 to 1) that fits every occurrence in the horizon
    """

    at: float
    free: Resources
    amount: float

    def sentence(self, tz: dt.tzinfo = dt.UTC) -> str:
        """For a person."""
        from airflow_kftrain.scheduling.reasons import show_instant

        offer = f"; {self.amount:.0%} of it could be had" if self.amount > 0 else ""
        return f"at {show_instant(self.at, tz)} only {self.free.to_dict()} can be promised{offer}"


def accept(
    asked_for: Sequence[Window],
    capacity: Resources,
    promised: Sequence[Window],
    running: Sequence[Running],
    now: float,
) -> Refusal | None:
    """Whether ``asked_for`` can be promised beside what is: None, or the first instant at which it cannot.

    Counts against it: windows already promised, and running gangs that nobody may stop until their hard limit.

    :param capacity: of the partition's usable nodes
    """
    axes = axes_of([capacity, *(window.amount for window in asked_for)])
    total = np.array(there(capacity, axes))
    profile = Profile(now, total)
    for window in promised:
        profile.take(np.array(asked(window.amount, axes)), window.start, window.end)
    for gang in running:
        if not gang.request.resumable and gang.window is None:
            profile.take(np.minimum(np.array(asked(gang.request.total, axes)), total), now, gang.hard_end)
    worst: Refusal | None = None
    for window in asked_for:
        wanted = np.array(asked(window.amount, axes))
        free, at = profile.least(window.start, window.end)
        if (free < wanted).any():
            part = float(max(0.0, np.min(free[wanted > 0] / wanted[wanted > 0])))
            if worst is None:
                worst = Refusal(at, _exact(free, axes), part)
            worst = Refusal(worst.at, worst.free, min(worst.amount, part))
        profile.take(wanted, window.start, window.end)
    return worst


def _exact(vector: np.ndarray, axes: Sequence[str]) -> Resources:
    whole = {name: int(max(value, 0)) for name, value in zip(axes, vector, strict=True)}
    return Resources({n: f"{v}m" if n == "cpu" else v for n, v in whole.items()})
