"""Structural schemas: prune, default and validate an object in one walk.

The rules are those of CustomResourceDefinitions: unknown fields go unless ``x-kubernetes-preserve-unknown-fields``
says otherwise, defaults fill what is absent, and what remains must fit. The keywords known here are ``type``,
``properties``, ``required``, ``additionalProperties``, ``items``, ``enum``, ``default``, ``nullable``, ``pattern``,
``minimum``, ``maximum``, ``minLength``, ``maxLength``, ``minItems``, ``maxItems``,
``x-kubernetes-preserve-unknown-fields``, ``x-kubernetes-int-or-string`` and ``format`` (``quantity``, ``date-time``,
``byte``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from airflow_kftrain.local.apiserver.errors import required, unsupported
from airflow_kftrain.local.apiserver.schema_values import (
    Check,
    Path,
    Schema,
    Verdict,
    boolean,
    int_or_string,
    integer,
    number,
    shown,
    size,
    string,
)


class Conformer:
    """A schema made ready to be walked many times.

    :param drop_nulls: a null means that the field is absent (core types) instead of an error (custom kinds)
    """

    def __init__(self, schema: Schema, *, drop_nulls: bool = False) -> None:
        self._check = _compiled(schema, drop_nulls)

    def conform(self, value: Any, path: str = "") -> Verdict:
        """``value`` made to fit the schema; the value given is left as it is."""
        verdict = Verdict()
        verdict.value = self._check(value, (None, path) if path else None, verdict)
        return verdict


def conform(schema: Schema, value: Any, *, drop_nulls: bool = False) -> Verdict:
    """One walk over a schema that is used once."""
    return Conformer(schema, drop_nulls=drop_nulls).conform(value)


def _compiled(schema: Schema, drop_nulls: bool) -> Check:
    check = _of_type(schema, drop_nulls)
    if schema.get("enum") is not None:
        check = _with_enum(check, schema["enum"])
    return _or_null(check) if schema.get("nullable") else check


def _of_type(schema: Schema, drop_nulls: bool) -> Check:
    if schema.get("x-kubernetes-int-or-string"):
        return int_or_string(schema)
    match schema.get("type"):
        case "object":
            return _object(schema, drop_nulls)
        case "array":
            return _array(schema, drop_nulls)
        case "string":
            return string(schema)
        case "integer":
            return integer(schema)
        case "number":
            return number(schema)
        case "boolean":
            return boolean
    return _anything


def _anything(value: Any, _path: Path, _verdict: Verdict) -> Any:
    return value


def _or_null(check: Check) -> Check:
    return lambda value, path, verdict: None if value is None else check(value, path, verdict)


def _with_enum(check: Check, allowed: list[Any]) -> Check:
    def checked(value: Any, path: Path, verdict: Verdict) -> Any:
        value = check(value, path, verdict)
        if value not in allowed:
            verdict.causes.append(unsupported(shown(path), value, allowed))
        return value

    return checked


def _object(schema: Schema, drop_nulls: bool) -> Check:
    properties: Mapping[str, Schema] = schema.get("properties") or {}
    member = _member(schema, properties, drop_nulls)
    defaults = [
        (n, below["default"], _compiled(below, drop_nulls))
        for n, below in properties.items()
        if "default" in below
    ]
    needed: list[str] = list(schema.get("required") or ())

    def check(value: Any, path: Path, verdict: Verdict) -> Any:
        if type(value) is not dict:
            return verdict.mistake(path, "object", value)
        made: dict[str, Any] = {}
        for name, item in value.items():
            member(made, name, item, (path, name), verdict)
        for name, default, below in defaults:
            if name not in made:
                made[name] = below(_fresh(default), (path, name), verdict)
        for name in needed:
            if name not in made:
                verdict.causes.append(required(shown((path, name))))
        return made

    return check


Member = Callable[[dict[str, Any], str, Any, Path, Verdict], None]


def _member(schema: Schema, properties: Mapping[str, Schema], drop_nulls: bool) -> Member:
    """Puts one field where it belongs: into the object that is made, or among the unknown ones."""
    extra = schema.get("additionalProperties")
    keep = bool(schema.get("x-kubernetes-preserve-unknown-fields")) or extra is True
    checks = {name: _compiled(below, drop_nulls) for name, below in properties.items()}
    other = _compiled(extra, drop_nulls) if isinstance(extra, dict) else _anything if keep else None
    # For these a null counts as nothing given.
    droppable = {n for n, s in properties.items() if not s.get("nullable") and (drop_nulls or "default" in s)}
    drop_other = drop_nulls and isinstance(extra, dict) and not extra.get("nullable")

    def put(made: dict[str, Any], name: str, item: Any, path: Path, verdict: Verdict) -> None:
        below = checks.get(name, other)
        if below is None:
            verdict.unknown.append(shown(path))
        elif item is not None or not (name in droppable if name in checks else drop_other):
            made[name] = below(item, path, verdict)

    return put


def _array(schema: Schema, drop_nulls: bool) -> Check:
    item = _compiled(schema.get("items") or {}, drop_nulls)
    sized = size(schema, "Items", "items")

    def check(value: Any, path: Path, verdict: Verdict) -> Any:
        if type(value) is not list:
            return verdict.mistake(path, "array", value)
        if sized is not None:
            sized(value, path, verdict)
        return [item(element, (path, index), verdict) for index, element in enumerate(value)]

    return check


def _fresh(default: Any) -> Any:
    if isinstance(default, dict):
        return {key: _fresh(item) for key, item in default.items()}
    return [_fresh(item) for item in default] if isinstance(default, list) else default
