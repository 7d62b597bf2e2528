"""The smaller core kinds."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from airflow_kftrain.local.apiserver.errors import Cause, forbidden_field
from airflow_kftrain.local.apiserver.rules.base import Json, Rules, World, unnull

_DATA_FIELDS = ("data", "binaryData")


def _create_namespace(namespace: Json, _: World) -> tuple[Cause, ...]:
    unnull(namespace["metadata"], "labels")["kubernetes.io/metadata.name"] = namespace["metadata"]["name"]
    namespace["spec"] = {"finalizers": ["kubernetes"]}
    namespace["status"] = {"phase": "Active"}
    return ()


def _default_secret(secret: Json) -> None:
    secret.setdefault("type", "Opaque")
    plain = secret.pop("stringData", None)
    if plain:
        coded = {name: base64.b64encode(text.encode()).decode() for name, text in plain.items()}
        secret["data"] = {**(secret.get("data") or {}), **coded}


def _frozen_data(old: Json, new: Json) -> Iterator[Cause]:
    if not old.get("immutable"):
        return
    if not new.get("immutable"):
        yield forbidden_field("immutable", "field is immutable when `immutable` is set")
    for name in _DATA_FIELDS:
        if old.get(name) != new.get(name):
            yield forbidden_field(name, "field is immutable when `immutable` is set")


def _frozen_secret(old: Json, new: Json) -> Iterator[Cause]:
    if old["type"] != new["type"]:
        yield Cause("FieldValueInvalid", f'Invalid value: "{new["type"]}": field is immutable', "type")
    yield from _frozen_data(old, new)


def _default_priority_class(priority: Json) -> None:
    priority.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _frozen_priority(old: Json, new: Json) -> Iterator[Cause]:
    for name in ("value", "preemptionPolicy"):
        if old.get(name) != new.get(name):
            yield forbidden_field(name, "may not be changed in an update.")


def _create_claim(claim: Json, _: World) -> tuple[Cause, ...]:
    claim["status"] = {"phase": "Pending"}
    return ()


def _default_claim(claim: Json) -> None:
    unnull(claim, "spec").setdefault("volumeMode", "Filesystem")


def _create_node(node: Json, _: World) -> tuple[Cause, ...]:
    given: Any = node.get("status")
    node["status"] = given if isinstance(given, dict) else {}
    return ()


NAMESPACE = Rules(create=_create_namespace)
SECRET = Rules(default=_default_secret, check_update=_frozen_secret)
CONFIG_MAP = Rules(check_update=_frozen_data)
PRIORITY_CLASS = Rules(default=_default_priority_class, check_update=_frozen_priority)
CLAIM = Rules(create=_create_claim, default=_default_claim)
NODE = Rules(create=_create_node)
