"""Compares what two columns made of the same jobs, field by field, against the list of what may differ."""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.controlplane.conformance.record import Record

_ABSENT = "(absent)"


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
    """A difference on purpose. ``case`` and ``field`` are patterns as a shell has them."""

    case: str
    field: str
    reason: str

    def covers(self, difference: Difference) -> bool:
        """Whether it speaks of this one."""
        return fnmatch.fnmatchcase(difference.case, self.case) and fnmatch.fnmatchcase(
            difference.field, self.field
        )


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
        return tuple(entry for entry, count in self.known.items() if not count)

    def table(self) -> str:
        """As text: the cases that differ with counts, then what is listed with its reasons."""
        counts = Counter(difference.case for difference in self.unknown)
        lines = [
            f"{self.cases} jobs: {self.left} | {self.right}: {len(counts)} differ in {len(self.unknown)} fields"
        ]
        lines += [f"  {count:4d}  {case}" for case, count in sorted(counts.items())]
        lines += [f"known differences ({len(self.known)}):"]
        lines += [f"  {count:4d}  {e.case} {e.field}: {e.reason}" for e, count in self.known.items()]
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
        one = flat(mine[case].value) if case in mine else {}
        other = flat(theirs[case].value) if case in theirs else {}
        for field in sorted(one.keys() | other.keys()):
            left, right = one.get(field, _ABSENT), other.get(field, _ABSENT)
            if left != right:
                yield Difference(case, field, left, right)


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """A nested value as one mapping from path to leaf; what is empty counts as absent."""
    if isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, list):
        parts = ((str(index), entry) for index, entry in enumerate(value))
    else:
        return {} if value is None else {path: value}
    return {
        key: leaf
        for name, entry in parts
        for key, leaf in flat(entry, f"{path}/{name}" if path else str(name)).items()
    }
