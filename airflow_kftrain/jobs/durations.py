"""Spans of time as people write them: ``90``, ``"6h"``, ``"1h30m"``, ``timedelta(hours=6)``."""

from __future__ import annotations

import datetime as dt
import math
import re

from airflow_kftrain.exceptions import InvalidInput

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")
_REMEDY = "give a positive span such as '90s', '15m', '1h30m', '2d', a number of seconds, or a timedelta"


def parse_duration(field: str, value: object) -> dt.timedelta:
    """The span that ``value`` stands for.

    :param field: where the value stands, for the error
    :param value: a timedelta, a number of seconds, or text: numbers with the units ms, s, m, h, d, w, or a bare number
        of seconds
    :raises InvalidInput: anything else, and spans that are not positive
    """
    seconds = _seconds(value)
    if seconds is None or not math.isfinite(seconds) or seconds <= 0:
        raise InvalidInput(field, value, _REMEDY)
    try:
        return dt.timedelta(seconds=seconds)
    except OverflowError:
        raise InvalidInput(field, value, _REMEDY) from None


def format_duration(seconds: float) -> str:
    """``seconds`` for people, in at most two units: ``45s``, ``2m 5s``, ``3h 10m``, ``2d 4h``."""
    left = max(0, round(seconds))
    parts = []
    for unit in "dhms":
        count, left = divmod(left, int(_UNITS[unit]))
        if count:
            parts.append(f"{count}{unit}")
        elif parts:
            break
    return " ".join(parts[:2]) or "0s"


def _seconds(value: object) -> float | None:
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    return _seconds_of_text(value) if isinstance(value, str) else None


def _seconds_of_text(text: str) -> float | None:
    compact = "".join(text.lower().split())
    if re.fullmatch(r"\d+(\.\d+)?", compact):
        return float(compact)
    if not compact or _PART.sub("", compact):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(compact))
