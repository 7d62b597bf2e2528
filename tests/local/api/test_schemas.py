"""The walk over structural schemas, and quantities, without a server."""

from __future__ import annotations

import copy
from typing import Any

import jsonschema
import pytest
from hypothesis import given

from airflow_kftrain.local.apiserver.core_schemas import model_schema
from airflow_kftrain.local.apiserver.custom_kinds import custom_kinds
from airflow_kftrain.local.apiserver.kinds import CORE_KINDS, Registry
from airflow_kftrain.local.apiserver.schema import Conformer, conform
from airflow_kftrain.local.apiserver.schema_values import canonical_quantity
from tests.local.api.objects import job
from tests.local.api.values import values

Json = dict[str, Any]
REGISTRY = Registry([*CORE_KINDS, *custom_kinds()])
XGB = next(kind for kind in REGISTRY if kind.kind == "XGBoostJob")


def _for_jsonschema(schema: Any) -> Any:
    if isinstance(schema, dict):
        if schema.get("x-kubernetes-int-or-string"):
            return {"type": ["integer", "string"]}
        return {key: _for_jsonschema(value) for key, value in schema.items() if key != "default"}
    return [_for_jsonschema(item) for item in schema] if isinstance(schema, list) else schema


CROSS_CHECK = {
    "as it should be": {},
    "text for a count": {"replicas": "2"},
    "a fraction for a count": {"replicas": 1.5},
    "null for a count": {"replicas": None},
    "a list for an object": {"template": []},
    "a container without a name": {"template": {"spec": {"containers": [{"image": "x"}]}}},
    "no containers": {"template": {"spec": {}}},
    "a number for a command": {"template": {"spec": {"containers": [{"name": "x", "command": [1]}]}}},
}


@pytest.mark.parametrize("changes", CROSS_CHECK.values(), ids=CROSS_CHECK.keys())
def test_schemas_judge_as_jsonschema_does(changes: Json):
    made = job()
    made["spec"]["xgbReplicaSpecs"]["Worker"].update(changes)
    assert XGB.schema is not None
    verdict = conform(XGB.schema, made)
    judge = jsonschema.Draft7Validator(_for_jsonschema(XGB.schema))
    assert sorted({cause.field for cause in verdict.causes}) == sorted(
        {_field(e) for e in judge.iter_errors(made)}
    )


def _field(error: jsonschema.ValidationError) -> str:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path)
    if error.validator == "required":
        missing = next(name for name in error.validator_value if name not in error.instance)
        path += f".{missing}"
    return path.removeprefix(".")


SCHEMA: Json = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 9},
        "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
        "nested": {
            "type": "object",
            "default": {},
            "properties": {"deep": {"type": "boolean", "default": True}},
        },
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "maybe": {"type": "string", "nullable": True},
        "items": {"type": "array", "maxItems": 2, "items": {"type": "string", "pattern": "^x"}},
    },
}
WALKS: dict[str, tuple[Json, Json, list[str], list[str]]] = {
    "defaults fill, also inside defaults": (
        {"size": 1},
        {"size": 1, "mode": "a", "nested": {"deep": True}},
        [],
        [],
    ),
    "unknown fields go": (
        {"size": 1, "z": 1, "nested": {"y": 2}},
        {"size": 1, "mode": "a", "nested": {"deep": True}},
        ["z", "nested.y"],
        [],
    ),
    "open objects keep everything": (
        {"size": 1, "open": {"any": [1]}},
        {"size": 1, "open": {"any": [1]}, "mode": "a", "nested": {"deep": True}},
        [],
        [],
    ),
    "null becomes the default where there is one": (
        {"size": 1, "mode": None},
        {"size": 1, "mode": "a", "nested": {"deep": True}},
        [],
        [],
    ),
    "null stays where it may": (
        {"size": 1, "maybe": None},
        {"size": 1, "maybe": None, "mode": "a", "nested": {"deep": True}},
        [],
        [],
    ),
    "bounds, choices, patterns and lengths hold": (
        {"size": 10, "mode": "c", "items": ["x", "y", "x"]},
        {"size": 10, "mode": "c", "items": ["x", "y", "x"], "nested": {"deep": True}},
        [],
        ["size", "mode", "items", "items[1]"],
    ),
    "what is required is missed": ({}, {"mode": "a", "nested": {"deep": True}}, [], ["size"]),
    "a truth value is no number": (
        {"size": True},
        {"size": True, "mode": "a", "nested": {"deep": True}},
        [],
        ["size"],
    ),
}


@pytest.mark.parametrize(("given_", "expected", "unknown", "wrong"), WALKS.values(), ids=WALKS.keys())
def test_a_walk_prunes_defaults_and_judges(
    given_: Json, expected: Json, unknown: list[str], wrong: list[str]
):
    before = copy.deepcopy(given_)
    verdict = conform(SCHEMA, given_)
    assert verdict.value == expected
    assert verdict.unknown == unknown
    assert [cause.field for cause in verdict.causes] == wrong
    assert given_ == before


_CONFORMERS = [Conformer(schema) for schema in (SCHEMA, XGB.schema or {}, model_schema("V1Pod"))]
_CONFORMERS += [Conformer(model_schema("V1Pod"), drop_nulls=True)]


@given(values)
def test_a_walk_takes_any_json(value: Any):
    for conformer in _CONFORMERS:
        conformer.conform(value)
        conformer.conform({"spec": value, "size": value, "items": [value]})


@pytest.mark.parametrize(
    ("written_", "canonical"),
    [
        ("1000m", "1"), ("0.5", "500m"), (1, "1"), ("1024Mi", "1Gi"), ("1Gi", "1Gi"), ("1000", "1k"), ("1e3", "1k"),
        ("100", "100"), ("0", "0"), ("1500m", "1500m"), ("1.5Gi", "1536Mi"), (0.1, "100m"),
    ],
)  # fmt: skip
def test_quantities_are_written_back_canonically(written_: Any, canonical: str):
    assert canonical_quantity(written_) == canonical
