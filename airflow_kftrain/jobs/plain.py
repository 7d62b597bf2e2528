"""JSON that every reader takes (JSON columns of databases too), and its size."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def loads(text: str) -> Any:
    """JSON with numbers that JSON cannot hold (``NaN``, ``Infinity``, ``1e999``) as text.

    :raises ValueError: it is no JSON, or nested too deep
    """
    try:
        return clean(json.loads(text, parse_constant=str, parse_float=_float_or_text))
    except RecursionError:
        raise ValueError("nested too deep") from None


def clean(value: Any) -> Any:
    """``value`` without what a JSON column may refuse: NUL and lone surrogates in text, numbers that are none."""
    if isinstance(value, str):
        return value.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {clean(str(name)): clean(held) for name, held in value.items()}
    if isinstance(value, list | tuple):
        return [clean(held) for held in value]
    return value


def json_size(value: Any) -> int:
    """Bytes of a value as JSON text."""
    return len(json.dumps(value))


def cut_text(text: str, budget: int) -> str:
    """The beginning of ``text`` that takes at most ``budget`` bytes as JSON, with a mark where it was cut."""
    if json_size(text) <= budget:
        return text
    mark = "… (cut)"
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if json_size(text[:middle] + mark) <= budget else (low, middle - 1)
    return text[:low] + mark


def _float_or_text(text: str) -> float | str:
    number = float(text)
    return number if math.isfinite(number) else text
