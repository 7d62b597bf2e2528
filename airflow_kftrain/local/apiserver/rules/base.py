"""The form that a kind's rules have."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from airflow_kftrain.local.apiserver.errors import Cause

Json = dict[str, Any]


class World(Protocol):
    """What rules may ask of the other objects."""

    def priority_class(self, name: str) -> Json | None:
        """The PriorityClass of that name; for ``""`` the one that is the global default."""

    def service_addresses(self) -> set[str]:
        """The cluster addresses that are taken."""


def _nothing(*_: Any) -> tuple[Cause, ...]:
    return ()


@dataclass(frozen=True)
class Rules:
    """A kind's rules; all but the first look only at objects that fit the schema.

    :param create: fills in a new object, in place, and tells what makes it impossible
    :param default: fills in any version of an object, in place
    :param check: what is wrong with an object
    :param check_update: which changes from ``old`` to ``new`` are not allowed
    """

    create: Callable[[Json, World], Iterable[Cause]] = _nothing
    default: Callable[[Json], object] = _nothing
    check: Callable[[Json], Iterable[Cause]] = _nothing
    check_update: Callable[[Json, Json], Iterable[Cause]] = _nothing


def unnull(obj: Json, name: str) -> Json:
    """``obj[name]`` as a dict, put there when it is missing."""
    if not isinstance(obj.get(name), dict):
        obj[name] = {}
    found: Json = obj[name]
    return found
