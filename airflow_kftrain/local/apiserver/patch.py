"""JSON, merge and strategic-merge patches, chosen by content type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_kftrain.local.apiserver.core_schemas import model_schema
from airflow_kftrain.local.apiserver.errors import StatusError, bad_request, unsupported_media
from airflow_kftrain.local.apiserver.kinds import Kind
from airflow_kftrain.local.apiserver.strategic import strategic_merge

Json = dict[str, Any]

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"


def patch_types(kind: Kind) -> tuple[str, ...]:
    """What a PATCH of ``kind`` may carry."""
    strategic = () if kind.custom else (STRATEGIC_PATCH,)
    return (JSON_PATCH, MERGE_PATCH, *strategic, APPLY_PATCH)


def patched(kind: Kind, content_type: str, original: Json, patch: Any) -> Json:
    """``original`` after ``patch``; neither is changed.

    :raises StatusError: 415, 400 or 422: a type that the kind does not take, a patch that cannot be read or applied
    """
    if content_type not in patch_types(kind) or content_type == APPLY_PATCH:
        accepted = ", ".join(patch_types(kind))
        raise unsupported_media(
            "the body of the request was in an unknown format - accepted media types include: " + accepted
        )
    if content_type == JSON_PATCH:
        return _json_patch(original, patch)
    if not isinstance(patch, dict):
        raise bad_request(f"a {content_type} body must be a JSON object, not {type(patch).__name__}")
    if content_type == MERGE_PATCH:
        return _object(merge_patch(original, patch))
    return _object(strategic_merge(model_schema(kind.model), original, patch))


def merge_patch(original: Any, patch: Any) -> Any:
    """RFC 7386: null removes, objects merge, everything else replaces."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(original) if isinstance(original, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def _json_patch(original: Json, patch: Any) -> Json:
    import jsonpatch

    if not isinstance(patch, list):
        raise bad_request(f"a {JSON_PATCH} body must be a JSON array of operations")
    try:
        operations = jsonpatch.JsonPatch(patch)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError) as error:
        raise bad_request(f"the JSON patch cannot be read: {error}") from error
    try:
        return _object(operations.apply(original))
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError) as error:
        raise StatusError(422, "Invalid", f"the JSON patch cannot be applied: {error}") from error


def _object(value: Any) -> Json:
    if not isinstance(value, dict):
        raise bad_request("the patch leaves no object")
    return value
