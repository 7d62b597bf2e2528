"""Merge, JSON and strategic-merge patches, and server-side apply, without a server."""

from __future__ import annotations

import copy
import json
from typing import Any

import jsonpatch
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_kftrain.local.apiserver.apply import applied
from airflow_kftrain.local.apiserver.core_schemas import model_schema
from airflow_kftrain.local.apiserver.custom_kinds import custom_kinds
from airflow_kftrain.local.apiserver.errors import StatusError
from airflow_kftrain.local.apiserver.kinds import CORE_KINDS, Registry
from airflow_kftrain.local.apiserver.patch import JSON_PATCH, merge_patch, patched
from airflow_kftrain.local.apiserver.strategic import strategic_merge
from tests.local.api.values import objects

Json = dict[str, Any]
REGISTRY = Registry([*CORE_KINDS, *custom_kinds()])
XGB = next(kind for kind in REGISTRY if kind.kind == "XGBoostJob")


def no_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: no_nulls(item) for key, item in value.items() if item is not None}
    return [no_nulls(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("original", "patch", "expected"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_the_examples_of_rfc_7386(original: Json, patch: Json, expected: Json):
    assert merge_patch(original, patch) == expected


@given(objects, objects)
def test_a_merge_patch_that_sets_everything_gives_the_other_object(old: Json, new: Json):
    def difference(a: Any, b: Any) -> Any:
        if not isinstance(a, dict) or not isinstance(b, dict):
            return b
        gone = {key: None for key in a if key not in b}
        return {
            **gone,
            **{key: difference(a.get(key), b[key]) for key in b if a.get(key) != b[key] or key not in a},
        }

    old, new = no_nulls(old), no_nulls(new)
    before = copy.deepcopy(old)
    assert merge_patch(old, difference(old, new)) == new
    assert old == before


@given(objects, objects)
@settings(max_examples=60)
def test_a_json_patch_gives_the_other_object_and_leaves_the_first(old: Json, new: Json):
    before = copy.deepcopy(old)
    operations = json.loads(jsonpatch.make_patch(old, new).to_string())
    assert patched(XGB, JSON_PATCH, old, operations) == new
    assert old == before


@pytest.mark.parametrize(
    ("operations", "code"),
    [
        ([{"op": "test", "path": "/a", "value": 2}], 422),
        ([{"op": "remove", "path": "/none"}], 422),
        ([{"op": "replace", "path": "/none/deeper", "value": 1}], 422),
        ([{"op": "fly", "path": "/a"}], 400),
        ([{"op": "add", "path": "no-slash", "value": 1}], 400),
        ([{"path": "/a"}], 400),
        (["add"], 400),
        ({"op": "add"}, 400),
        ([{"op": "replace", "path": "", "value": 7}], 400),
    ],
)
def test_a_json_patch_that_cannot_be_applied_is_the_clients_fault(operations: Any, code: int):
    with pytest.raises(StatusError) as refused:
        patched(XGB, JSON_PATCH, {"a": 1}, operations)
    assert refused.value.code == code


def strategic(original: Json, patch: Json) -> Any:
    return strategic_merge(model_schema("V1Pod"), original, patch)


def containers(*given: Json) -> Json:
    return {"spec": {"containers": list(given)}}


STRATEGIC = {
    "elements merge by their key": (
        containers({"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, {"name": "b"}),
        containers({"name": "a", "image": "2", "env": [{"name": "Y", "value": "2"}]}),
        containers(
            {"name": "a", "image": "2", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]},
            {"name": "b"},
        ),
    ),
    "a new element goes to the end": (
        containers({"name": "a"}),
        containers({"name": "b"}),
        containers({"name": "a"}, {"name": "b"}),
    ),
    "an element is deleted by its key": (
        containers({"name": "a"}, {"name": "b"}),
        containers({"name": "a", "$patch": "delete"}),
        containers({"name": "b"}),
    ),
    "a list is replaced": (
        containers({"name": "a"}, {"name": "b"}),
        containers({"$patch": "replace"}, {"name": "c"}),
        containers({"name": "c"}),
    ),
    "a map is replaced": (
        {"metadata": {"labels": {"a": "1"}}},
        {"metadata": {"labels": {"$patch": "replace", "b": "2"}}},
        {"metadata": {"labels": {"b": "2"}}},
    ),
    "a null removes": ({"spec": {"nodeName": "n"}}, {"spec": {"nodeName": None}}, {"spec": {}}),
    "a list without merge key is replaced": (
        {"spec": {"tolerations": [{"key": "a"}]}},
        {"spec": {"tolerations": [{"key": "b"}]}},
        {"spec": {"tolerations": [{"key": "b"}]}},
    ),
    "finalizers are a set": (
        {"metadata": {"finalizers": ["x/a", "x/b"]}},
        {"metadata": {"finalizers": ["x/b", "x/c"]}},
        {"metadata": {"finalizers": ["x/a", "x/b", "x/c"]}},
    ),
    "primitives are deleted from a set": (
        {"metadata": {"finalizers": ["x/a", "x/b"]}},
        {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x/a"]}},
        {"metadata": {"finalizers": ["x/b"]}},
    ),
    "the order is set": (
        containers({"name": "a"}, {"name": "b"}),
        {
            "spec": {
                "$setElementOrder/containers": [{"name": "b"}, {"name": "a"}],
                "containers": [{"name": "b"}],
            }
        },
        containers({"name": "b"}, {"name": "a"}),
    ),
    "the order is set where nothing else changes": (
        containers({"name": "a"}, {"name": "b"}),
        {"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}},
        containers({"name": "b"}, {"name": "a"}),
    ),
    "keys are retained": (
        {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}},
        {
            "spec": {
                "volumes": [{"name": "v", "hostPath": {"path": "/x"}, "$retainKeys": ["name", "hostPath"]}]
            }
        },
        {"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/x"}}]}},
    ),
}


@pytest.mark.parametrize(("original", "patch", "expected"), STRATEGIC.values(), ids=STRATEGIC.keys())
def test_strategic_merge(original: Json, patch: Json, expected: Json):
    before = copy.deepcopy(original)
    assert strategic(original, patch) == expected
    assert original == before


@given(st.permutations(["a", "b", "c", "d"]), st.permutations(["a", "b", "c", "d"]))
def test_a_strategic_patch_brings_elements_into_the_order_it_names(old: list[str], new: list[str]):
    patch = {"spec": {"$setElementOrder/containers": [{"name": name} for name in new]}}
    merged = strategic(containers(*({"name": name} for name in old)), patch)
    assert [c["name"] for c in merged["spec"]["containers"]] == new


@given(
    st.lists(st.sampled_from("abcd"), unique=True, min_size=1), st.lists(st.sampled_from("cdef"), unique=True)
)
def test_a_strategic_patch_loses_no_element(old: list[str], new: list[str]):
    merged = strategic(containers(*({"name": n} for n in old)), containers(*({"name": n} for n in new)))
    assert [c["name"] for c in merged["spec"]["containers"]] == [
        *old,
        *(name for name in new if name not in old),
    ]


@pytest.mark.parametrize(
    "patch", [containers({"image": "x"}), {"spec": {"$patch": "explode"}}, {"spec": {"containers": ["a"]}}]
)
def test_a_strategic_patch_that_means_nothing_is_refused(patch: Json):
    with pytest.raises(StatusError) as refused:
        strategic(containers({"name": "a"}), patch)
    assert refused.value.code == 400


def test_apply_leaves_what_another_manager_also_wants():
    import datetime as dt

    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    kind = REGISTRY.core("configmaps")
    base = {"metadata": {"name": "x"}}
    first = applied(kind, None, {**base, "data": {"a": "1", "b": "1"}}, "one", False, now)
    second = applied(kind, first, {**base, "data": {"b": "1"}}, "two", False, now)
    third = applied(kind, second, base, "one", False, now)
    assert third["data"] == {"b": "1"}
