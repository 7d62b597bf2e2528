"""Server-side apply: an applied configuration is merged in, and what its manager no longer lists goes.

Ownership is kept as the API server keeps it (``managedFields`` of type ``FieldsV1``), for managers that apply; other
writers do not become owners. Two managers that apply different values to one field conflict, unless forced.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping
from typing import Any

from airflow_kftrain.local.apiserver.core_schemas import MERGE, MERGE_KEY, model_schema
from airflow_kftrain.local.apiserver.errors import StatusError
from airflow_kftrain.local.apiserver.kinds import Kind
from airflow_kftrain.local.apiserver.metadata import timestamp
from airflow_kftrain.local.apiserver.patch import merge_patch
from airflow_kftrain.local.apiserver.store import Json
from airflow_kftrain.local.apiserver.strategic import strategic_merge

_UNOWNED = ("apiVersion", "kind")
_UNOWNED_METADATA = ("name", "namespace", "managedFields", "resourceVersion", "uid", "creationTimestamp")
Path = tuple[str, ...]


def applied(kind: Kind, old: Json | None, config: Json, manager: str, force: bool, now: dt.datetime) -> Json:
    """The object after ``manager`` applied ``config``.

    :param old: the object as it is; None when there is none yet
    :raises StatusError: 409, another manager applied another value and ``force`` is not set
    """
    schema = {} if kind.custom else model_schema(kind.model)
    config = {
        **config,
        "metadata": {k: v for k, v in config.get("metadata", {}).items() if k != "managedFields"},
    }
    wanted = _fields(schema, _owned_part(config))
    entries = list((old or {}).get("metadata", {}).get("managedFields") or ())
    mine = next((e for e in entries if e.get("manager") == manager and e.get("operation") == "Apply"), None)
    others = [entry for entry in entries if entry is not mine]
    base = old or {}
    _check_conflicts(kind, base, config, others, wanted, force)
    if mine is not None:
        kept = {path for entry in others for path in _leaves(entry.get("fieldsV1") or {})}
        gone = set(_leaves(mine.get("fieldsV1") or {})) - set(_leaves(wanted)) - kept
        for path in sorted(gone, key=len, reverse=True):
            base = _without(base, path)
    new: Json = merge_patch(base, config) if kind.custom else strategic_merge(schema, base, config)
    if force:
        others = [left for entry in others if (left := _disowned(entry, set(_leaves(wanted))))]
    entry = {
        "manager": manager,
        "operation": "Apply",
        "apiVersion": kind.api_version,
        "time": timestamp(now),
        "fieldsType": "FieldsV1",
        "fieldsV1": wanted,
    }
    if mine is not None and new == {**(old or {})} and mine.get("fieldsV1") == wanted:
        entry["time"] = mine.get("time", entry["time"])
    return {**new, "metadata": {**new["metadata"], "managedFields": [*others, entry]}}


def _check_conflicts(
    kind: Kind,
    old: Json,
    config: Json,
    others: list[Json],
    wanted: Json,
    force: bool,
) -> None:
    if force:
        return
    mine = set(_leaves(wanted))
    found = [
        (entry["manager"], path)
        for entry in others
        if entry.get("operation") == "Apply"
        for path in _leaves(entry.get("fieldsV1") or {})
        if path in mine and _value(old, path) != _value(config, path)
    ]
    if found:
        listed = "\n".join(f'conflict with "{manager}": {_dotted(path)}' for manager, path in found)
        causes = [
            {"reason": "FieldManagerConflict", "message": f'conflict with "{m}"', "field": _dotted(p)}
            for m, p in found
        ]
        plural = "conflicts" if len(found) > 1 else "conflict"
        text = f"Apply failed with {len(found)} {plural}: {listed}"
        raise StatusError(409, "Conflict", text, {"kind": kind.plural, "group": kind.group, "causes": causes})


def _owned_part(config: Json) -> Json:
    metadata = {k: v for k, v in config.get("metadata", {}).items() if k not in _UNOWNED_METADATA}
    rest = {k: v for k, v in config.items() if k not in (*_UNOWNED, "metadata")}
    return {**({"metadata": metadata} if metadata else {}), **rest}


def _fields(schema: Mapping[str, Any], value: Any) -> Json:
    """``value`` as a FieldsV1 tree: ``f:name`` for fields, ``k:{…}`` for elements of keyed lists."""
    if isinstance(value, dict):
        properties, extra = schema.get("properties") or {}, schema.get("additionalProperties")
        below = {name: properties.get(name) or (extra if isinstance(extra, dict) else {}) for name in value}
        return {f"f:{name}": _fields(below[name], item) for name, item in value.items() if item is not None}
    key = schema.get(MERGE_KEY)
    if isinstance(value, list) and key and schema.get(MERGE) == "merge":
        items = schema.get("items") or {}
        return {
            f"k:{json.dumps({key: item[key]}, separators=(',', ':'))}": _fields(items, item)
            for item in value
            if isinstance(item, dict) and key in item
        }
    return {}


def _leaves(tree: Json, path: Path = ()) -> Iterator[Path]:
    for name, below in tree.items():
        if name == ".":
            continue
        if below:
            yield from _leaves(below, (*path, name))
        else:
            yield (*path, name)


def _value(value: Any, path: Path) -> Any:
    for step in path:
        if step.startswith("f:"):
            value = value.get(step[2:]) if isinstance(value, dict) else None
        else:
            value = _element(value, json.loads(step[2:]))
    return value


def _element(items: Any, key: Json) -> Any:
    listed = items if isinstance(items, list) else []
    return next((item for item in listed if key.items() <= item.items()), None)


def _without(value: Any, path: Path) -> Any:
    """``value`` without what ``path`` leads to, and without a list element that has nothing left but its key."""
    step, rest = path[0], path[1:]
    if step.startswith("f:"):
        name = step[2:]
        if not isinstance(value, dict) or name not in value:
            return value
        others = {k: v for k, v in value.items() if k != name}
        below = _without(value[name], rest) if rest else None
        return others if below in (None, {}, []) else {**value, name: below}
    key = json.loads(step[2:])
    found = _element(value, key)
    if found is None:
        return value
    left = _without(found, rest) if rest else key
    return [left if item is found else item for item in value if not (item is found and left in (key, {}))]


def _disowned(entry: Json, taken: set[Path]) -> Json | None:
    """A manager's entry without the fields that another one took by force; None when nothing is left."""
    left: Json = {}
    for path in _leaves(entry.get("fieldsV1") or {}):
        if path not in taken:
            place = left
            for step in path:
                place = place.setdefault(step, {})
    return {**entry, "fieldsV1": left} if left else None


def _dotted(path: Path) -> str:
    parts = []
    for step in path:
        if step.startswith("f:"):
            parts.append(f".{step[2:]}")
        else:
            inside = ",".join(f'{k}="{v}"' for k, v in json.loads(step[2:]).items())
            parts.append(f"[{inside}]")
    return "".join(parts)
