"""Single cells of tables."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Any

from airflow_kftrain.local.apiserver.store import Json

_LAST = "[-1:]"


def age(stamp: str | None, now: dt.datetime) -> str:
    """How long ago ``stamp`` was, as kubectl writes it (``HumanDuration``): ``5s``, ``2m10s``, ``3h``, ``4d``."""
    if not stamp:
        return "<unknown>"
    seconds = int((now - dt.datetime.fromisoformat(stamp)).total_seconds())
    if seconds < 0:
        return "0s" if seconds > -2 else "<invalid>"
    return duration(seconds)


def duration(seconds: int) -> str:
    """Seconds in at most two units, the more exact the shorter."""
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return _two(minutes, "m", seconds % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    return _two(days // 365, "y", days % 365, "d") if days < 2920 else f"{days // 365}y"


def _two(large: int, unit: str, small: int, below: str) -> str:
    return f"{large}{unit}{small}{below}" if small else f"{large}{unit}"


def ports(listed: Iterable[Json]) -> str:
    """A service's ports: ``80/TCP,443:30443/TCP``."""
    return ",".join(
        f"{p['port']}:{p['nodePort']}/{p['protocol']}"
        if p.get("nodePort")
        else f"{p['port']}/{p['protocol']}"
        for p in listed
    )


def printed(obj: Json, path: str, kind: str, now: dt.datetime) -> Any:
    """A custom column's cell; ``[-1:]`` after a name takes the last element of a list."""
    value: Any = obj
    for part in path.split("."):
        name = part.removesuffix(_LAST)
        value = value.get(name) if isinstance(value, dict) else None
        if part.endswith(_LAST):
            value = value[-1] if value else None
    if kind == "date":
        return age(value, now)
    return "" if value is None and kind == "string" else value
