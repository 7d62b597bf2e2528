"""Compares what two columns made of the same jobs, field by field, against the list of what may differ."""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.controlplane.conformance.record import SPENT, Record

ABSENT = "(absent)"


@dataclass(frozen=True)
class Difference:
    """One field of one job that is not the same."""

    case: str
    field: str
    left: Any
    right: Any

    def __str__(self) -> str:
        return f"{self.case}: {self.field}: {self.left!r} | {self.right!r}"


@dataclass(frozen=True)
class Known:
    """A difference that is known. ``case`` and ``field`` are patterns as a shell has them, several joined by ``|``.

    :param race: the other side does now this, now that; such an entry may cover nothing
    """

    case: str
    field: str
    reason: str
    race: bool = False

    def covers(self, difference: Difference) -> bool:
        """Whether it speaks of this one."""
        return _matches(difference.case, self.case) and _matches(difference.field, self.field)


def _matches(name: str, patterns: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns.split("|"))


@dataclass(frozen=True)
class Comparison:
    """Two columns side by side.

    :param unknown: differences that nobody listed
    :param known: how many differences each listed entry covers
    """

    left: str
    right: str
    cases: int
    unknown: tuple[Difference, ...]
    known: Mapping[Known, int]

    @property
    def stale(self) -> tuple[Known, ...]:
        """Listed entries that cover nothing any more."""
        return tuple(entry for entry, count in self.known.items() if not count and not entry.race)

    def table(self) -> str:
        """As text: the cases that differ with counts, then what is listed with its reasons."""
        counts = Counter(difference.case for difference in self.unknown)
        lines = [
            f"{self.cases} jobs: {self.left} | {self.right}: {len(counts)} differ in {len(self.unknown)} fields"
        ]
        lines += [f"  {count:4d}  {case}" for case, count in sorted(counts.items())]
        for title, race in (("known differences", False), ("races of the other side", True)):
            listed = [(entry, count) for entry, count in self.known.items() if entry.race is race]
            lines += [f"{title} ({len(listed)}):"]
            lines += [f"  {count:4d}  {entry.case} {entry.field}: {entry.reason}" for entry, count in listed]
        return "\n".join(lines)

    def details(self, limit: int = 200) -> str:
        """The unknown differences, one a line."""
        lines = [f"  {difference}"[:400] for difference in self.unknown[:limit]]
        more = len(self.unknown) - len(lines)
        return "\n".join(lines + ([f"  ... and {more} more"] if more else []))


def compare(
    left: str, right: str, mine: Mapping[str, Record], theirs: Mapping[str, Record], known: Sequence[Known]
) -> Comparison:
    """Compare the records of column ``left`` with those of column ``right``."""
    covered = dict.fromkeys(known, 0)
    unknown = []
    for difference in _differences(mine, theirs):
        entry = next((entry for entry in known if entry.covers(difference)), None)
        if entry is None:
            unknown.append(difference)
        else:
            covered[entry] += 1
    return Comparison(left, right, len(mine), tuple(unknown), covered)


def _differences(mine: Mapping[str, Record], theirs: Mapping[str, Record]) -> Iterable[Difference]:
    for case in sorted(mine.keys() | theirs.keys()):
        one = mine[case].value if case in mine else {}
        other = theirs[case].value if case in theirs else {}
        spent_left, spent_right = (SPENT in record.get("events", {}) for record in (one, other))
        for field, left, right in _unequal(one, other, ""):
            unsaid = (spent_left and left == ABSENT) or (spent_right and right == ABSENT)
            if not (field.startswith("events/") and (unsaid or field.endswith(SPENT))):
                yield Difference(case, field, left, right)


def _unequal(left: Any, right: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """The smallest parts that differ, with their path; an empty part is the same as none."""
    if isinstance(left, list) and isinstance(right, list):
        left, right = (dict(zip(map(str, range(len(part))), part, strict=True)) for part in (left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        for key in sorted(left.keys() | right.keys()):
            yield from _unequal(left.get(key), right.get(key), f"{path}/{key}" if path else key)
    elif left != right and not (_blank(left) and _blank(right)):
        yield path, _shown(left), _shown(right)


def _blank(value: Any) -> bool:
    return value is None or value == {} or value == []


def _shown(value: Any) -> Any:
    if _blank(value):
        return ABSENT
    return "(present)" if isinstance(value, dict | list) else value
