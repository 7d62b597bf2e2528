"""What of an operator's arguments is known while the DAG is parsed: all but Jinja templates and XComArgs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk.definitions._internal.mixins import ResolveMixin

_ANY = "1"
"""Stands for a value that comes later where something must stand: valid as text, as a number and as a quantity."""

_REQUIRED = ("image", "name", "value")


def known_part(given: Mapping[str, Any]) -> dict[str, Any]:
    """``given`` without what comes later: such arguments are None, except the image."""
    return {name: _known(name, value, default=None) for name, value in given.items()}


def comes_later(value: Any) -> bool:
    """Whether something in ``value`` is rendered or resolved when the task runs."""
    if isinstance(value, ResolveMixin):
        return True
    if isinstance(value, str):
        return "{{" in value or "{%" in value
    if isinstance(value, Mapping):
        return any(comes_later(item) for item in value.values())
    return isinstance(value, list | tuple | set) and any(comes_later(item) for item in value)


def _known(name: str, value: Any, *, default: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            key: _known(key, item, default=None)
            for key, item in value.items()
            if key in _REQUIRED or isinstance(item, Mapping | list | tuple) or not comes_later(item)
        }
    if isinstance(value, list | tuple):
        return [_known("", item, default=_ANY) for item in value]
    if not comes_later(value):
        return value
    return _ANY if name in _REQUIRED else default
