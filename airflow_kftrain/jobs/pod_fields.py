"""Which fields Kubernetes knows below a pod template, to warn of those it may drop."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any

from airflow_kftrain.jobs.fields import nearest


def unknown_pod_fields(
    template: Mapping[str, Any], path: str, places: Mapping[str, str] | None = None
) -> list[str]:
    """The fields of a pod template that Kubernetes does not know, each by its path and what may be meant.

    :param places: fields of the job itself, to tell of those that only stand in the wrong place
    """
    found = _unknown(template, "V1PodTemplateSpec", path)
    return [f"{where}{_meant(name, known, places or {})}" for where, name, known in found]


def _unknown(value: Any, model: str, path: str) -> Iterator[tuple[str, str, Iterable[str]]]:
    if isinstance(value, list | tuple):
        for n, item in enumerate(value):
            yield from _unknown(item, model, f"{path}[{n}]")
    elif isinstance(value, Mapping):
        known = _models()[model]
        for name, held in value.items():
            if name not in known:
                yield f"{path}.{name}", name, known
            elif known[name]:
                yield from _unknown(held, known[name], f"{path}.{name}")


def _meant(name: str, known: Iterable[str], places: Mapping[str, str]) -> str:
    if name in places:
        return f" (it belongs at {places[name]})"
    near = nearest(name, known)
    return f" (did you mean {near}?)" if near else ""


@cache
def _models() -> dict[str, dict[str, str]]:
    """Model to its fields, each with the model it holds (empty for plain values and free maps)."""
    text = resources.files(__package__).joinpath("pod_fields.json").read_text("utf-8")
    models: dict[str, dict[str, str]] = json.loads(text)["models"]
    return models
