"""What training code says of itself: ``KFTRAIN {json}`` lines on stdout, in TrainJob's field names."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_kftrain.jobs import plain

MARKER = "KFTRAIN "
LONGEST_REPORT = 16 * 1024
"""Characters of one line beyond which it is no report."""
MOST_METRICS = 100
LONGEST_VALUE = 1024
"""Bytes as JSON of one name or value; longer text is cut, a longer ``model`` or ``checkpoint`` left out."""

Metric = float | int | str | bool


@dataclass(frozen=True, slots=True)
class Progress:
    """The last that was said of each.

    :param percentage: ``progressPercentage``, 0 to 100
    :param remaining_seconds: ``estimatedRemainingSeconds``, not negative
    :param metrics: name to a number, text or truth value; a number that JSON cannot hold stands as text (``NaN``)
    :param model: where the model is: text, or a small JSON object
    :param checkpoint: where the last checkpoint is: the same
    """

    percentage: float | None = None
    remaining_seconds: float | None = None
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    model: Any = None
    checkpoint: Any = None

    def after(self, line: str) -> Progress:
        """What is known after one more line of output; ``self`` when it is no report, or says nothing new."""
        report = read_report(line)
        return self if report is None else self.told(report)

    def told(self, report: Any) -> Progress:
        """What is known after one more report.

        What cannot be used in it (a field of the wrong kind, a number out of its range) is left out, the rest counts.
        Metrics are kept by name: a report names those that changed.
        """
        if not isinstance(report, Mapping):
            return self
        said = replace(
            self,
            percentage=_number(report.get("progressPercentage"), self.percentage, largest=100.0),
            remaining_seconds=_number(report.get("estimatedRemainingSeconds"), self.remaining_seconds),
            metrics=_metrics(self.metrics, report.get("metrics")),
            model=_place(report.get("model"), self.model),
            checkpoint=_place(report.get("checkpoint"), self.checkpoint),
        )
        return self if said == self else said

    @classmethod
    def from_lines(cls, lines: Iterable[str]) -> Progress:
        """What is known after all ``lines``."""
        known = cls()
        for line in lines:
            known = known.after(line)
        return known

    def to_json(self) -> dict[str, Any]:
        """As the annotation ``kftrain/progress`` holds it: a report that says everything that is known."""
        said = {
            "progressPercentage": self.percentage,
            "estimatedRemainingSeconds": self.remaining_seconds,
            "metrics": dict(self.metrics) or None,
            "model": self.model,
            "checkpoint": self.checkpoint,
        }
        return {name: value for name, value in said.items() if value is not None}

    @classmethod
    def from_json(cls, value: Any) -> Progress:
        """What :meth:`to_json` gave, or as much of ``value`` as can be used."""
        return cls().told(plain.clean(value))

    def __str__(self) -> str:
        parts = [] if self.percentage is None else [f"{self.percentage:g} %"]
        if self.remaining_seconds is not None:
            parts.append(f"{self.remaining_seconds:.0f} s left")
        parts.extend(f"{name} {_shown(value)}" for name, value in self.metrics.items())
        return ", ".join(parts) or "nothing reported"


def read_report(line: str) -> Mapping[str, Any] | None:
    """What a line of output reports; None when it is no report, or one that cannot be read: then it is mere output."""
    if not line.lstrip().startswith(MARKER) or len(line) > LONGEST_REPORT:
        return None
    try:
        report = plain.loads(line.strip().removeprefix(MARKER))
    except ValueError:
        return None
    return report if isinstance(report, Mapping) else None


def _number(value: Any, known: float | None, *, largest: float = math.inf) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return known
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return known
    return min(number, largest) if math.isfinite(number) and number >= 0 else known


def _place(value: Any, known: Any) -> Any:
    if isinstance(value, str):
        return plain.cut_text(value, LONGEST_VALUE) if value else known
    usable = isinstance(value, dict) and value and plain.json_size(value) <= LONGEST_VALUE
    return value if usable else known


def _metrics(known: Mapping[str, Metric], value: Any) -> Mapping[str, Metric]:
    """``known`` with what a report adds: a mapping, or TrainJob's list of names and values."""
    if isinstance(value, list):
        value = {m.get("name"): m.get("value") for m in value if isinstance(m, dict)}
    if not isinstance(value, Mapping):
        return known
    said = {
        plain.cut_text(name, LONGEST_VALUE): metric
        for name, held in value.items()
        if isinstance(name, str) and (metric := _metric(held)) is not None
    }
    # Those just named go last, so that the newest remain when there are too many.
    found = {**{name: held for name, held in known.items() if name not in said}, **said}
    return dict(list(found.items())[-MOST_METRICS:])


def _metric(value: Any) -> Metric | None:
    if isinstance(value, str):
        return plain.cut_text(value, LONGEST_VALUE)
    if isinstance(value, int) and abs(value) >= 2**63:
        return None
    return value if isinstance(value, bool | int | float) else None


def _shown(value: Metric) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
