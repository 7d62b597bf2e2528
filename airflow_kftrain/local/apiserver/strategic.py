"""Strategic merge patch: a merge patch that knows which lists are maps in disguise.

Semantics: "Strategic Merge Patch" in the Kubernetes community's API conventions, and ``$setElementOrder``,
``$deleteFromPrimitiveList`` and ``$retainKeys`` of ``k8s.io/apimachinery/pkg/util/strategicpatch``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_kftrain.local.apiserver.core_schemas import MERGE, MERGE_KEY
from airflow_kftrain.local.apiserver.errors import bad_request

Json = dict[str, Any]
_ORDER = "$setElementOrder/"
_DELETE = "$deleteFromPrimitiveList/"


def strategic_merge(schema: Mapping[str, Any], original: Any, patch: Any) -> Any:
    """``original`` with ``patch`` merged in, as ``schema`` says; neither is changed.

    :raises StatusError: 400, an unknown directive, or an element without its merge key
    """
    if not isinstance(patch, dict):
        return patch
    directive = patch.get("$patch")
    if directive == "replace":
        return _without_directives(patch)
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise bad_request(f"unknown patch type: $patch: {directive!r}; use merge, replace or delete")
    merged = dict(original) if isinstance(original, dict) else {}
    _retain(merged, patch)
    _delete_primitives(merged, patch)
    _merge_fields(schema, merged, patch)
    return merged


def _merge_fields(schema: Mapping[str, Any], merged: Json, patch: Json) -> None:
    properties = schema.get("properties") or {}
    extra = schema.get("additionalProperties")
    ordered = {name.removeprefix(_ORDER) for name in patch if name.startswith(_ORDER)}
    for name in [*(n for n in patch if not n.startswith("$")), *(n for n in ordered if n not in patch)]:
        below = properties.get(name) or (extra if isinstance(extra, dict) else {})
        if name in patch and patch[name] is None:
            merged.pop(name, None)
        elif name not in patch:
            merged[name] = _merge_list(below, merged.get(name), [], patch[_ORDER + name])
        elif isinstance(patch[name], list):
            merged[name] = _merge_list(below, merged.get(name), patch[name], patch.get(_ORDER + name))
        else:
            merged[name] = strategic_merge(below, merged.get(name), patch[name])


def _retain(merged: Json, patch: Json) -> None:
    """``$retainKeys`` lists all fields that may remain."""
    keep = patch.get("$retainKeys")
    if keep is not None:
        for name in [name for name in merged if name not in keep]:
            del merged[name]


def _delete_primitives(merged: Json, patch: Json) -> None:
    for directive, unwanted in patch.items():
        if directive.startswith(_DELETE):
            name = directive.removeprefix(_DELETE)
            if name in merged:
                merged[name] = [item for item in merged[name] if item not in unwanted]


def _merge_list(schema: Mapping[str, Any], original: Any, patch: list[Any], order: list[Any] | None) -> Any:
    base = original if isinstance(original, list) else []
    if schema.get(MERGE) != "merge":
        return [_without_directives(item) for item in patch]
    key = schema.get(MERGE_KEY)
    if key is None:
        return _ordered([*base, *(i for i in patch if i not in base)], base, order, lambda item: item)
    if any(isinstance(item, dict) and item.get("$patch") == "replace" and len(item) == 1 for item in patch):
        return [_without_directives(item) for item in patch if item.get("$patch") != "replace"]
    merged = _merge_by_key(schema.get("items") or {}, base, patch, key)
    wanted = None if order is None else [_key_of(item, key) for item in order]
    return _ordered(merged, base, wanted, lambda item: _key_of(item, key))


def _merge_by_key(schema: Mapping[str, Any], base: list[Any], patch: list[Any], key: str) -> list[Any]:
    merged = {_key_of(item, key): item for item in base}
    for item in patch:
        name = _key_of(item, key)
        if item.get("$patch") == "delete":
            merged.pop(name, None)
        else:
            merged[name] = strategic_merge(schema, merged.get(name), item)
    return list(merged.values())


def _key_of(item: Any, key: str) -> Any:
    if not isinstance(item, dict) or key not in item:
        raise bad_request(f"map: {item} does not contain declared merge key: {key}")
    return item[key]


def _ordered(merged: list[Any], base: list[Any], order: list[Any] | None, name: Any) -> list[Any]:
    """``merged`` with its listed elements in ``order`` and the others where the server had them among these."""
    if order is None:
        return merged
    position = {name(item): index for index, item in enumerate(base)}
    listed = sorted((i for i in merged if name(i) in order), key=lambda item: order.index(name(item)))
    others = [item for item in merged if name(item) not in order]
    result: list[Any] = []
    while listed and others:
        ahead = position.get(name(listed[0]))
        first = ahead is None or ahead < position.get(name(others[0]), len(base))
        result.append(listed.pop(0) if first else others.pop(0))
    return [*result, *listed, *others]


def _without_directives(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_directives(v) for k, v in value.items() if not k.startswith("$")}
    return [_without_directives(item) for item in value] if isinstance(value, list) else value
