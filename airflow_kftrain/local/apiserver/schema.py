"""Structural schemas: prune, default and validate an object in one walk.

The rules are those of CustomResourceDefinitions: unknown fields go unless ``x-kubernetes-preserve-unknown-fields``
says otherwise, defaults fill what is absent, and what remains must fit. The keywords known here are ``type``,
``properties``, ``required``, ``additionalProperties``, ``items``, ``enum``, ``default``, ``nullable``, ``pattern``,
``minimum``, ``maximum``, ``minLength``, ``maxLength``, ``minItems``, ``maxItems``,
``x-kubernetes-preserve-unknown-fields``, ``x-kubernetes-int-or-string`` and ``format`` (``quantity``, ``date-time``,
``byte``).
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.jobs.resources import format_quantity, parse_quantity
from airflow_kftrain.local.apiserver.errors import Cause, required, unsupported, wrong

Schema = Mapping[str, Any]


@dataclass
class Verdict:
    """What a walk found.

    :param value: the object, pruned and defaulted
    :param causes: what breaks the schema
    :param unknown: paths of the fields that were pruned
    :param mistyped: whether a cause is a wrong JSON type
    """

    value: Any = None
    causes: list[Cause] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    mistyped: bool = False


def conform(schema: Schema, value: Any, *, drop_nulls: bool = False, path: str = "") -> Verdict:
    """``value`` made to fit ``schema``; the value given is left as it is.

    :param drop_nulls: a null means that the field is absent (core types) instead of an error (custom kinds)
    """
    verdict = Verdict()
    walk = _Walk(verdict, drop_nulls)
    verdict.value = walk.any(schema, value, path)
    return verdict


class _Walk:
    def __init__(self, verdict: Verdict, drop_nulls: bool) -> None:
        self._verdict = verdict
        self._drop_nulls = drop_nulls
        self._by_type: dict[str, Callable[[Schema, Any, str], Any]] = {
            "object": self._object,
            "array": self._array,
            "string": self._string,
            "integer": self._integer,
            "number": self._number,
            "boolean": self._boolean,
        }

    def any(self, schema: Schema, value: Any, path: str) -> Any:
        if value is None and schema.get("nullable"):
            return None
        if schema.get("x-kubernetes-int-or-string"):
            return self._int_or_string(schema, value, path)
        check = self._by_type.get(schema.get("type", ""))
        if check is None:
            return value
        value = check(schema, value, path)
        allowed = schema.get("enum")
        if allowed is not None and value not in allowed:
            self._verdict.causes.append(unsupported(path, value, allowed))
        return value

    def _mistyped(self, schema: Schema, value: Any, path: str) -> Any:
        self._verdict.mistyped = True
        given = _type_name(value)
        text = f'{path} in body must be of type {schema["type"]}: "{given}"'
        self._verdict.causes.append(Cause("FieldValueTypeInvalid", f'Invalid value: "{given}": {text}', path))
        return value

    def _object(self, schema: Schema, value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            return self._mistyped(schema, value, path)
        properties: Mapping[str, Schema] = schema.get("properties") or {}
        extra = schema.get("additionalProperties")
        keep = schema.get("x-kubernetes-preserve-unknown-fields", False) or extra is True
        made: dict[str, Any] = {}
        for name, item in value.items():
            below = properties.get(name) or (extra if isinstance(extra, dict) else None)
            where = f"{path}.{name}" if path else name
            if below is None:
                if keep:
                    made[name] = item
                else:
                    self._verdict.unknown.append(where)
            elif item is not None or not self._is_absent(below):
                made[name] = self.any(below, item, where)
        self._complete(schema, properties, made, path)
        return made

    def _is_absent(self, schema: Schema) -> bool:
        """Whether a null there counts as nothing given."""
        return not schema.get("nullable") and (self._drop_nulls or "default" in schema)

    def _complete(
        self, schema: Schema, properties: Mapping[str, Schema], made: dict[str, Any], path: str
    ) -> None:
        for name in _defaulted(properties):
            if name not in made:
                below = properties[name]
                made[name] = self.any(below, _fresh(below["default"]), f"{path}.{name}" if path else name)
        for name in schema.get("required") or ():
            if name not in made:
                self._verdict.causes.append(required(f"{path}.{name}" if path else name))

    def _array(self, schema: Schema, value: Any, path: str) -> Any:
        if not isinstance(value, list):
            return self._mistyped(schema, value, path)
        self._size(schema, len(value), path, "Items", "items")
        items: Schema = schema.get("items") or {}
        return [self.any(items, item, f"{path}[{index}]") for index, item in enumerate(value)]

    def _string(self, schema: Schema, value: Any, path: str) -> Any:
        form = schema.get("format")
        if form == "quantity":
            return self._quantity(schema, value, path)
        if not isinstance(value, str):
            return self._mistyped(schema, value, path)
        self._size(schema, len(value), path, "Length", "chars long")
        pattern = schema.get("pattern")
        if pattern is not None and not _compiled(pattern).search(value):
            self._verdict.causes.append(wrong(path, value, f"{path} in body should match '{pattern}'"))
        if form == "date-time" and not _is_time(value):
            self._verdict.mistyped = True
            self._verdict.causes.append(wrong(path, value, "must be a time in RFC 3339 form"))
        if form == "byte" and not _is_base64(value):
            self._verdict.mistyped = True
            self._verdict.causes.append(wrong(path, value, "illegal base64 data"))
        return value

    def _size(self, schema: Schema, size: int, path: str, suffix: str, unit: str) -> None:
        low, high = schema.get(f"min{suffix}"), schema.get(f"max{suffix}")
        if low is not None and size < low:
            self._verdict.causes.append(wrong(path, size, f"should be at least {low} {unit}"))
        if high is not None and size > high:
            self._verdict.causes.append(wrong(path, size, f"should be at most {high} {unit}"))

    def _quantity(self, schema: Schema, value: Any, path: str) -> Any:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            return self._mistyped(schema, value, path)
        try:
            return canonical_quantity(value)
        except InvalidInput as error:
            self._verdict.causes.append(wrong(path, value, error.remedy))
            return value

    def _integer(self, schema: Schema, value: Any, path: str) -> Any:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            return self._mistyped(schema, value, path)
        if schema.get("format") == "int32" and not -(2**31) <= value < 2**31:
            self._verdict.causes.append(wrong(path, value, f"{path} in body must be of type int32"))
        return self._bounded(schema, value, path)

    def _number(self, schema: Schema, value: Any, path: str) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return self._mistyped(schema, value, path)
        return self._bounded(schema, value, path)

    def _bounded(self, schema: Schema, value: Any, path: str) -> Any:
        low, high = schema.get("minimum"), schema.get("maximum")
        if low is not None and value < low:
            text = f"{path} in body should be greater than or equal to {low}"
            self._verdict.causes.append(wrong(path, value, text))
        if high is not None and value > high:
            text = f"{path} in body should be less than or equal to {high}"
            self._verdict.causes.append(wrong(path, value, text))
        return value

    def _boolean(self, schema: Schema, value: Any, path: str) -> Any:
        return value if isinstance(value, bool) else self._mistyped(schema, value, path)

    def _int_or_string(self, schema: Schema, value: Any, path: str) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | str):
            return self._mistyped({"type": "integer,string"}, value, path)
        pattern = schema.get("pattern")
        if isinstance(value, str) and pattern is not None and not _compiled(pattern).search(value):
            self._verdict.causes.append(wrong(path, value, f"{path} in body should match '{pattern}'"))
        return value


def canonical_quantity(value: str | int | float) -> str:
    """A quantity as the API server writes it back: ``"1000m"`` is ``"1"``, ``1024Mi`` is ``1Gi``.

    :raises InvalidInput: not a quantity
    """
    text = str(value)
    if text.isdigit() and (text == "0" or not text.startswith("0")) and not text.endswith("000"):
        return text
    return format_quantity(parse_quantity(value), binary=text.endswith("i"))


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


_DEFAULTED: dict[int, tuple[Mapping[str, Schema], tuple[str, ...]]] = {}


def _defaulted(properties: Mapping[str, Schema]) -> tuple[str, ...]:
    """Names of the properties that have a default; remembered, since schemas live as long as the process."""
    found = _DEFAULTED.get(id(properties))
    if found is None or found[0] is not properties:
        found = properties, tuple(name for name, below in properties.items() if "default" in below)
        _DEFAULTED[id(properties)] = found
    return found[1]


def _fresh(default: Any) -> Any:
    if isinstance(default, dict):
        return {key: _fresh(item) for key, item in default.items()}
    return [_fresh(item) for item in default] if isinstance(default, list) else default


def _is_time(value: str) -> bool:
    try:
        return dt.datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def _is_base64(value: str) -> bool:
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _type_name(value: Any) -> str:
    names = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}
    return names.get(type(value), "null")
