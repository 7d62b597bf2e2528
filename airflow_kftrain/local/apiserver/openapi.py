"""OpenAPI v3 documents: what ``kubectl apply`` needs to choose a patch, and ``kubectl explain`` shows."""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Any

from airflow_kftrain.local.apiserver.kinds import Kind, Registry
from airflow_kftrain.local.apiserver.patch import patch_types
from airflow_kftrain.local.apiserver.store import encode
from airflow_kftrain.local.apiserver.writes import object_schema

Json = dict[str, Any]
_ROOT = "/openapi/v3"
_INTERNAL_FORMATS = ("quantity",)

OPENAPI_V2 = "/openapi/v2"
OPENAPI_V2_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
# An OpenAPI v2 document without definitions (field 1, ``swagger``, is "2.0"). kubectl asks for one when it is given a
# List, and then leaves it to the server to validate the kinds that it does not find there.
EMPTY_OPENAPI_V2 = b"\x0a\x032.0"


def openapi(registry: Registry, path: str) -> bytes | None:
    """The document at ``path``: the index, or that of one group and version; None when there is none."""
    places = _places(registry)
    if path.rstrip("/") == _ROOT:
        return encode(
            {"paths": {place: {"serverRelativeURL": _url(place, kinds)} for place, kinds in places.items()}}
        )
    kinds = places.get(path.removeprefix(f"{_ROOT}/"))
    return _document(kinds) if kinds else None


def _places(registry: Registry) -> dict[str, tuple[Kind, ...]]:
    return {
        f"apis/{group}/{version}" if group else f"api/{version}": tuple(kinds)
        for group, versions in registry.groups().items()
        for version, kinds in versions.items()
    }


def _url(place: str, kinds: tuple[Kind, ...]) -> str:
    # Clients keep a document under its hash for ever.
    digest = hashlib.sha256(_document(kinds)).hexdigest()
    return f"{_ROOT}/{place}?hash={digest[:32].upper()}"


@cache
def _document(kinds: tuple[Kind, ...]) -> bytes:
    schemas = {_name(kind): _typed(kind) for kind in kinds}
    paths = {path: item for kind in kinds for path, item in _paths(kind).items()}
    document = {
        "openapi": "3.0.0",
        "info": {"title": "kftrain local cluster", "version": "v1"},
        "paths": paths,
        "components": {"schemas": schemas},
    }
    return encode(document)


def _name(kind: Kind) -> str:
    return ".".join([*reversed((kind.group or "core").split(".")), kind.version, kind.kind])


def _typed(kind: Kind) -> Json:
    schema: Json = _public(object_schema(kind))
    return {**schema, "x-kubernetes-group-version-kind": [_group_version_kind(kind)]}


def _group_version_kind(kind: Kind) -> Json:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _public(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_public(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _public(value)
        for key, value in schema.items()
        if not (key == "format" and value in _INTERNAL_FORMATS)
    }


def _paths(kind: Kind) -> Json:
    prefix = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    collection = (
        f"{prefix}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else f"{prefix}/{kind.plural}"
    )
    typed = {"x-kubernetes-group-version-kind": _group_version_kind(kind)}
    reference = {"schema": {"$ref": f"#/components/schemas/{_name(kind)}"}}
    writes = [
        {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
        for name in ("dryRun", "fieldManager", "fieldValidation", "force")
    ]
    answer = {"responses": {"200": {"description": "OK", "content": {"application/json": reference}}}}

    def operation(action: str, *media: str) -> Json:
        body = {"requestBody": {"content": dict.fromkeys(media, reference)}} if media else {}
        return {
            "x-kubernetes-action": action,
            "parameters": writes if media else [],
            **typed,
            **body,
            **answer,
        }

    return {
        collection: {"get": operation("list"), "post": operation("post", "application/json")},
        f"{collection}/{{name}}": {
            "get": operation("get"),
            "put": operation("put", "application/json"),
            "patch": operation("patch", *patch_types(kind)),
            "delete": operation("delete"),
        },
    }
