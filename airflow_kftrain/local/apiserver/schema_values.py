"""Schemas of single values: text, numbers, quantities, times; and what a walk over a schema finds."""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.jobs.resources import format_quantity, parse_quantity
from airflow_kftrain.local.apiserver.errors import Cause, wrong

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

    def mistake(self, path: Path, type_: str, value: Any) -> Any:
        """Note a value of the wrong type; returns it."""
        where, given = shown(path), _type_name(value)
        text = f'Invalid value: "{given}": {where} in body must be of type {type_}: "{given}"'
        self.causes.append(Cause("FieldValueTypeInvalid", text, where))
        self.mistyped = True
        return value


# A path is a linked list, from the field up, which costs nothing until somebody wants to see it.
Path = tuple[Any, str | int] | None
Check = Callable[[Any, Path, Verdict], Any]


def shown(path: Path) -> str:
    """``spec.containers[0].name``."""
    text = ""
    while path is not None:
        path, name = path
        text = f"[{name}]{text}" if isinstance(name, int) else f".{name}{text}"
    return text.removeprefix(".")


def string(schema: Schema) -> Check:
    form, pattern = schema.get("format"), schema.get("pattern")
    if form == "quantity":
        return _quantity
    rules = [
        rule
        for rule in (size(schema, "Length", "chars long"), _pattern(pattern), _FORMS.get(form or ""))
        if rule
    ]

    def check(value: Any, path: Path, verdict: Verdict) -> Any:
        if type(value) is not str:
            return verdict.mistake(path, "string", value)
        for rule in rules:
            rule(value, path, verdict)
        return value

    return check


def size(schema: Schema, suffix: str, unit: str) -> Check | None:
    low, high = schema.get(f"min{suffix}"), schema.get(f"max{suffix}")
    if low is None and high is None:
        return None

    def check(value: Any, path: Path, verdict: Verdict) -> None:
        if low is not None and len(value) < low:
            verdict.causes.append(wrong(shown(path), len(value), f"should be at least {low} {unit}"))
        if high is not None and len(value) > high:
            verdict.causes.append(wrong(shown(path), len(value), f"should be at most {high} {unit}"))

    return check


def _pattern(pattern: str | None) -> Check | None:
    if pattern is None:
        return None
    expression = re.compile(pattern)

    def check(value: Any, path: Path, verdict: Verdict) -> None:
        if not expression.search(value):
            where = shown(path)
            verdict.causes.append(wrong(where, value, f"{where} in body should match '{pattern}'"))

    return check


def _time(value: Any, path: Path, verdict: Verdict) -> None:
    try:
        right = dt.datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        right = False
    if not right:
        verdict.mistyped = True
        verdict.causes.append(wrong(shown(path), value, "must be a time in RFC 3339 form"))


def _base64(value: Any, path: Path, verdict: Verdict) -> None:
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        verdict.mistyped = True
        verdict.causes.append(wrong(shown(path), value, "illegal base64 data"))


_FORMS: dict[str, Check] = {"date-time": _time, "byte": _base64}


def _quantity(value: Any, path: Path, verdict: Verdict) -> Any:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return verdict.mistake(path, "string", value)
    try:
        return canonical_quantity(value)
    except InvalidInput as error:
        verdict.causes.append(wrong(shown(path), value, error.remedy))
        return value


def integer(schema: Schema) -> Check:
    bounded = _bounds(schema)
    small = schema.get("format") == "int32"

    def check(value: Any, path: Path, verdict: Verdict) -> Any:
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is not int:
            return verdict.mistake(path, "integer", value)
        if small and not -(2**31) <= value < 2**31:
            where = shown(path)
            verdict.causes.append(wrong(where, value, f"{where} in body must be of type int32"))
        if bounded is not None:
            bounded(value, path, verdict)
        return value

    return check


def number(schema: Schema) -> Check:
    bounded = _bounds(schema)

    def check(value: Any, path: Path, verdict: Verdict) -> Any:
        if type(value) not in (int, float):
            return verdict.mistake(path, "number", value)
        if bounded is not None:
            bounded(value, path, verdict)
        return value

    return check


def _bounds(schema: Schema) -> Check | None:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is None and high is None:
        return None

    def check(value: Any, path: Path, verdict: Verdict) -> None:
        for beyond, word, bound in (
            (low is not None and value < low, "greater", low),
            (high is not None and value > high, "less", high),
        ):
            if beyond:
                where = shown(path)
                text = f"{where} in body should be {word} than or equal to {bound}"
                verdict.causes.append(wrong(where, value, text))

    return check


def boolean(value: Any, path: Path, verdict: Verdict) -> Any:
    return value if type(value) is bool else verdict.mistake(path, "boolean", value)


def int_or_string(schema: Schema) -> Check:
    pattern = _pattern(schema.get("pattern"))

    def check(value: Any, path: Path, verdict: Verdict) -> Any:
        if type(value) not in (int, str):
            return verdict.mistake(path, "integer,string", value)
        if pattern is not None and type(value) is str:
            pattern(value, path, verdict)
        return value

    return check


def canonical_quantity(value: str | int | float) -> str:
    """A quantity as the API server writes it back: ``"1000m"`` is ``"1"``, ``1024Mi`` is ``1Gi``.

    :raises InvalidInput: not a quantity
    """
    text = str(value)
    if text.isdigit() and (text == "0" or not text.startswith("0")) and not text.endswith("000"):
        return text
    return format_quantity(parse_quantity(value), binary=text.endswith("i"))


def _type_name(value: Any) -> str:
    names = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}
    return names.get(type(value), "null")
