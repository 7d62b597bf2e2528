"""Declared fields: one declaration gives reading, checking, writing and the OpenAPI schema of a record.

A record is a frozen dataclass whose fields are made by :func:`declared`. ``None`` stands for an absent field, as
``null`` does in Kubernetes; absent fields are not written.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.jobs.resources import Resources

RecordT = TypeVar("RecordT")


class Shape(Protocol):
    """What a declared field may hold."""

    def read(self, value: Any, path: str) -> Any:
        """The checked value of what stands at ``path``.

        :raises InvalidInput: naming the path of what is wrong
        """

    def write(self, value: Any) -> Any:
        """The same as JSON."""

    def schema(self) -> dict[str, Any]:
        """Its structural OpenAPI v3 schema."""


@dataclasses.dataclass(frozen=True, slots=True)
class Integer:
    """A whole number of ``bits`` bits, at least ``minimum``."""

    minimum: int | None = None
    bits: int = 32

    def read(self, value: Any, path: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidInput(path, value, "give a whole number, without quotes")
        if self.minimum is not None and value < self.minimum:
            raise InvalidInput(path, value, f"give {self.minimum} or more")
        if abs(value) >= 2 ** (self.bits - 1):
            raise InvalidInput(path, value, f"give a number that fits into {self.bits} bits")
        return value

    def write(self, value: int) -> int:
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "format": f"int{self.bits}"}


@dataclasses.dataclass(frozen=True, slots=True)
class Text:
    """A string; one of ``choices`` when there are any."""

    choices: tuple[str, ...] = ()

    def read(self, value: Any, path: str) -> str:
        if not isinstance(value, str):
            raise InvalidInput(path, value, "give text; in YAML, put it into quotes")
        if self.choices and value not in self.choices:
            raise InvalidInput(path, value, _choose(value, self.choices))
        return value

    def write(self, value: str) -> str:
        return value

    def schema(self) -> dict[str, Any]:
        # The training operator's CRDs hold no enumerations; a local API must accept what a real one accepts.
        return {"type": "string"}


@dataclasses.dataclass(frozen=True, slots=True)
class Boolean:
    """``true`` or ``false``; ``default`` is what the API server fills in."""

    default: bool | None = None

    def read(self, value: Any, path: str) -> bool:
        if not isinstance(value, bool):
            raise InvalidInput(path, value, "give true or false, without quotes")
        return value

    def write(self, value: bool) -> bool:
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean", **({} if self.default is None else {"default": self.default})}


@dataclasses.dataclass(frozen=True, slots=True)
class Quantities:
    """Resource names to Kubernetes quantities, kept as they were given."""

    def read(self, value: Any, path: str) -> dict[str, str | int | float]:
        mapping = read_mapping(value, path)
        Resources(mapping, field=path)
        return mapping

    def write(self, value: Mapping[str, str | int | float]) -> dict[str, str | int | float]:
        return dict(value)

    def schema(self) -> dict[str, Any]:
        quantity = {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
        }
        return {"type": "object", "additionalProperties": quantity}


@dataclasses.dataclass(frozen=True, slots=True)
class Texts:
    """Names to text, as labels and annotations are."""

    def read(self, value: Any, path: str) -> dict[str, str]:
        return {name: Text().read(held, f"{path}.{name}") for name, held in read_mapping(value, path).items()}

    def write(self, value: Mapping[str, str]) -> dict[str, str]:
        return dict(value)

    def schema(self) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": {"type": "string"}}


@dataclasses.dataclass(frozen=True, slots=True)
class RecordOf:
    """A nested record."""

    cls: type[Any]

    def read(self, value: Any, path: str) -> Any:
        return read_record(self.cls, write_record(value) if isinstance(value, self.cls) else value, path)

    def write(self, value: Any) -> dict[str, Any]:
        return write_record(value)

    def schema(self) -> dict[str, Any]:
        return record_schema(self.cls)


@dataclasses.dataclass(frozen=True, slots=True)
class ListOf:
    """Any number of items of one shape; a tuple in Python."""

    item: Shape

    def read(self, value: Any, path: str) -> tuple[Any, ...]:
        if isinstance(value, str | bytes) or not isinstance(value, Sequence):
            raise InvalidInput(path, value, "give a list")
        return tuple(self.item.read(item, f"{path}[{n}]") for n, item in enumerate(value))

    def write(self, value: Iterable[Any]) -> list[Any]:
        return [self.item.write(item) for item in value]

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": self.item.schema()}


@dataclasses.dataclass(frozen=True, slots=True)
class Untouched:
    """An object in Kubernetes' own words, passed whole; it must be JSON."""

    def read(self, value: Any, path: str) -> dict[str, Any]:
        copied: dict[str, Any] = plain_json(read_mapping(value, path), path)
        return copied

    def write(self, value: Mapping[str, Any]) -> dict[str, Any]:
        return self.read(value, "")

    def schema(self) -> dict[str, Any]:
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def declared(
    json: str, shape: Shape, *, default: Any = None, factory: Callable[[], Any] | None = None
) -> Any:
    """A dataclass field that is called ``json`` in a manifest and holds ``shape``.

    :param factory: makes the default, where it is one that could be changed
    """
    metadata = {"json": json, "shape": shape}
    if factory is not None:
        return dataclasses.field(default_factory=factory, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def shapes(cls: type[Any]) -> dict[str, Shape]:
    """The declared fields of a record: name in a manifest to shape, in order."""
    return {f.metadata["json"]: f.metadata["shape"] for f in _declared(cls)}


def read_record(cls: type[RecordT], value: Any, path: str) -> RecordT:
    """The record of ``cls`` that stands at ``path``.

    :raises InvalidInput: a field is unknown (with the nearest right name) or holds what it must not
    """
    given = read_mapping(value, path)
    fields = {f.metadata["json"]: f for f in _declared(cls)}
    for name in given:
        if name not in fields:
            raise UnknownField(f"{path}.{name}" if path else name, given[name], fields)
    return cls(
        **{
            field.name: field.metadata["shape"].read(given[name], f"{path}.{name}" if path else name)
            for name, field in fields.items()
            if given.get(name) is not None
        }
    )


def write_record(value: Any) -> dict[str, Any]:
    """The record as JSON, absent fields left out."""
    return {
        f.metadata["json"]: f.metadata["shape"].write(held)
        for f in _declared(type(value))
        if (held := getattr(value, f.name)) is not None
    }


def record_schema(cls: type[Any]) -> dict[str, Any]:
    """The structural schema of a record."""
    return {"type": "object", "properties": {name: shape.schema() for name, shape in shapes(cls).items()}}


def read_mapping(value: Any, path: str) -> dict[str, Any]:
    """``value`` as a dict whose keys are text.

    :raises InvalidInput: it is none
    """
    if not isinstance(value, Mapping):
        raise InvalidInput(path or "manifest", value, "give a mapping of names to values")
    for name in value:
        if not isinstance(name, str):
            raise InvalidInput(f"{path}.{name}", name, "names must be text; in YAML, put it into quotes")
    return dict(value)


def plain_json(value: Any, path: str) -> Any:
    """A copy of ``value`` in plain JSON types; tuples become lists.

    :raises InvalidInput: something in it is no JSON (a date, a set, NaN, a name that is not text)
    """
    if isinstance(value, Mapping):
        return {name: plain_json(held, f"{path}.{name}") for name, held in read_mapping(value, path).items()}
    if isinstance(value, list | tuple):
        return [plain_json(held, f"{path}[{n}]") for n, held in enumerate(value)]
    if value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise InvalidInput(path, value, "give what JSON can hold: text, numbers, true, false, lists and mappings")


class UnknownField(InvalidInput):
    """A field that is not there.

    :param known: the names that could stand in its place
    """

    def __init__(self, path: str, value: object, known: Iterable[str]) -> None:
        self.known = tuple(known)
        self.name = path.rpartition(".")[2]
        super().__init__(path, value, f"there is no such field; {_choose(self.name, self.known)}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.field, self.value, self.known)


def _choose(given: str, known: Iterable[str]) -> str:
    near = nearest(given, known)
    listed = ", ".join(repr(name) if name == "" else name for name in sorted(known))
    return f"did you mean {near}? It is one of {listed}" if near else f"give one of {listed}"


def nearest(given: str, known: Iterable[str]) -> str | None:
    """The known name that is most like ``given``, if any is."""
    lowered = {name.lower(): name for name in known if name}
    found = difflib.get_close_matches(given.lower(), lowered, n=1, cutoff=0.6)
    return lowered[found[0]] if found else None


def _declared(cls: type[Any]) -> list[dataclasses.Field[Any]]:
    return [f for f in dataclasses.fields(cls) if "json" in f.metadata]
