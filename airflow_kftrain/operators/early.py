"""What of an operator's arguments is known while the DAG is parsed: all but Jinja templates and XComArgs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk.definitions._internal.mixins import ResolveMixin

_ANY = "1"
"""Stands for a value that comes later where something must stand: valid as text, as a number and as a quantity."""

_REQUIRED = ("image", "name", "value")
_WORDS = ("command", "args")
_SIZES = ("workers", "chief", "ps", "evaluator", "elastic")


def known_part(given: Mapping[str, Any]) -> dict[str, Any]:
    """``given`` without what comes later: such arguments are None, except the image.

    Where the size of the gang comes later, bounds of that size are left out as well.
    """
    known = {name: _known(name, value, default=None) for name, value in given.items()}
    if size_comes_later(given):
        known["elastic"] = None
        policy = known.get("run_policy")
        if isinstance(policy, Mapping):
            known["run_policy"] = {n: v for n, v in policy.items() if n != "schedulingPolicy"}
    return known


def size_comes_later(given: Mapping[str, Any]) -> bool:
    """Whether some number of replicas is rendered or resolved when the task runs."""
    replicas = given.get("replicas")
    overrides = replicas.values() if isinstance(replicas, Mapping) else [replicas]
    numbers = [o.get("replicas") if isinstance(o, Mapping) else o for o in overrides]
    return any(comes_later(value) for value in [*numbers, *map(given.get, _SIZES)])


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
            if key in _REQUIRED or _stands(item)
        }
    if isinstance(value, list | tuple):
        kept = value if name in _WORDS else [item for item in value if _stands(item)]
        return [_known("", item, default=_ANY) for item in kept]
    if not comes_later(value):
        return value
    return _ANY if name in _REQUIRED else default


def _stands(value: Any) -> bool:
    """Whether ``value`` is known, or has parts that may be."""
    return isinstance(value, Mapping | list | tuple) or not comes_later(value)
