"""The parts that decide: selectors, patches, schemas, names, ages."""

from __future__ import annotations

import contextlib
import copy
import json
from typing import Any

import jsonpatch
import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_kftrain.local.apiserver.apply import applied
from airflow_kftrain.local.apiserver.bodies import wanted_form
from airflow_kftrain.local.apiserver.cells import duration
from airflow_kftrain.local.apiserver.core_schemas import model_schema
from airflow_kftrain.local.apiserver.custom_kinds import custom_kinds
from airflow_kftrain.local.apiserver.errors import StatusError
from airflow_kftrain.local.apiserver.kinds import CORE_KINDS, Kind, Registry
from airflow_kftrain.local.apiserver.patch import JSON_PATCH, merge_patch, patched
from airflow_kftrain.local.apiserver.protobuf import decode_protobuf
from airflow_kftrain.local.apiserver.quota import pod_amounts
from airflow_kftrain.local.apiserver.schema import conform
from airflow_kftrain.local.apiserver.schema_values import canonical_quantity
from airflow_kftrain.local.apiserver.selectors import label_selector
from airflow_kftrain.local.apiserver.strategic import strategic_merge
from airflow_kftrain.local.apiserver.targets import target_of
from tests.local.api.objects import job

Json = dict[str, Any]
REGISTRY = Registry([*CORE_KINDS, *custom_kinds()])
PODS = REGISTRY.core("pods")
XGB = next(kind for kind in REGISTRY if kind.kind == "XGBoostJob")

names = st.text("abcxyz-._/ ~", min_size=1, max_size=4)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab~/", max_size=3),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(names, below, max_size=3),
    max_leaves=12,
)
objects = st.dictionaries(names, values, max_size=4)


def no_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: no_nulls(item) for key, item in value.items() if item is not None}
    return [no_nulls(item) for item in value] if isinstance(value, list) else value


# --- patches ---------------------------------------------------------------------------------------------------------


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


# --- server-side apply -----------------------------------------------------------------------------------------------


def test_apply_leaves_what_another_manager_also_wants():
    import datetime as dt

    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    kind = REGISTRY.core("configmaps")
    base = {"metadata": {"name": "x"}}
    first = applied(kind, None, {**base, "data": {"a": "1", "b": "1"}}, "one", False, now)
    second = applied(kind, first, {**base, "data": {"b": "1"}}, "two", False, now)
    third = applied(kind, second, base, "one", False, now)
    assert third["data"] == {"b": "1"}


# --- selectors -------------------------------------------------------------------------------------------------------

keys = st.sampled_from(["a", "b", "example.com/c"])
texts = st.sampled_from(["", "1", "2", "x.y-z"])
terms = st.one_of(
    st.tuples(keys, st.sampled_from(["=", "==", "!="]), texts),
    st.tuples(keys, st.sampled_from(["in", "notin"]), st.lists(texts, min_size=1, max_size=3)),
    st.tuples(keys, st.sampled_from(["exists", "absent"]), st.none()),
)


def written(term: tuple[str, str, Any]) -> str:
    key, operator, value = term
    match operator:
        case "in" | "notin":
            return f"{key} {operator} ({', '.join(value)})"
        case "exists":
            return key
        case "absent":
            return f"!{key}"
    return f"{key}{operator}{value}"


def meant(term: tuple[str, str, Any], labels: dict[str, str]) -> bool:
    key, operator, value = term
    return {
        "=": lambda: labels.get(key) == value,
        "==": lambda: labels.get(key) == value,
        "!=": lambda: labels.get(key) != value,
        "in": lambda: labels.get(key) in value,
        "notin": lambda: labels.get(key) not in value,
        "exists": lambda: key in labels,
        "absent": lambda: key not in labels,
    }[operator]()


@given(st.lists(terms, min_size=1, max_size=4), st.dictionaries(keys, texts))
def test_a_selector_means_all_its_terms(listed: list[Any], labels: dict[str, str]):
    assert label_selector(",".join(map(written, listed)))(labels) is all(
        meant(term, labels) for term in listed
    )


@pytest.mark.parametrize(
    "text", ["a=b=c", "a in b", "=1", "a,,b", "a=1,", "a in (b", "a~b", "UPPER.case/x/y=1", "!"]
)
def test_what_is_no_selector_is_refused(text: str):
    with pytest.raises(StatusError) as refused:
        label_selector(text)
    assert refused.value.code == 400


# --- schemas ---------------------------------------------------------------------------------------------------------


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


@given(values)
def test_a_walk_takes_any_json(value: Any):
    for schema in (SCHEMA, XGB.schema, model_schema("V1Pod")):
        assert schema is not None
        conform(schema, value)
        conform(schema, {"spec": value, "size": value, "items": [value]}, drop_nulls=True)


@pytest.mark.parametrize(
    ("written_", "canonical"),
    [
        ("1000m", "1"), ("0.5", "500m"), (1, "1"), ("1024Mi", "1Gi"), ("1Gi", "1Gi"), ("1000", "1k"), ("1e3", "1k"),
        ("100", "100"), ("0", "0"), ("1500m", "1500m"), ("1.5Gi", "1536Mi"), (0.1, "100m"),
    ],
)  # fmt: skip
def test_quantities_are_written_back_canonically(written_: Any, canonical: str):
    assert canonical_quantity(written_) == canonical


# --- the rest --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api/v1/pods", ("Pod", None, "", "")),
        ("/api/v1/namespaces", ("Namespace", None, "", "")),
        ("/api/v1/namespaces/x", ("Namespace", None, "x", "")),
        ("/api/v1/namespaces/x/status", ("Namespace", None, "x", "status")),
        ("/api/v1/namespaces/x/pods", ("Pod", "x", "", "")),
        ("/api/v1/namespaces/x/pods/p/log", ("Pod", "x", "p", "log")),
        ("/apis/kubeflow.org/v1/namespaces/x/tfjobs/a%2Fb", ("TFJob", "x", "a/b", "")),
        ("/apis/scheduling.k8s.io/v1/priorityclasses/x", ("PriorityClass", None, "x", "")),
        ("/apis/scheduling.k8s.io/v1/namespaces/x/priorityclasses", None),
        ("/api/v1/pods/p", None),
        ("/api/v1/namespaces/x/pods/p/log/more", None),
        ("/api/v2/pods", None),
        ("/apis/kubeflow.org/v1", None),
        ("/", None),
        ("//", None),
    ],
)
def test_paths(path: str, expected: tuple[str, str | None, str, str] | None):
    found = target_of(REGISTRY, path)
    assert (found and (found.kind.kind, found.namespace, found.name, found.subresource)) == expected


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0s"), (119, "119s"), (120, "2m"), (130, "2m10s"), (599, "9m59s"), (600, "10m"), (10799, "179m"),
        (10800, "3h"), (11100, "3h5m"), (28800, "8h"), (172800, "2d"), (180000, "2d2h"), (691200, "8d"),
        (63072000, "2y"), (252288000, "8y"),
    ],
)  # fmt: skip
def test_ages_are_written_as_kubectl_writes_them(seconds: int, shown: str):
    assert duration(seconds) == shown


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", ("Table", "v1")),
        ("application/json;as=Table;g=meta.k8s.io;v=v1beta1", ("Table", "v1beta1")),
        ("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", ("PartialObjectMetadata", "v1")),
        ("application/json", ("", "")),
        ("application/json, application/json;as=Table;v=v1;g=meta.k8s.io", ("", "")),
        ("*/*", ("", "")),
        ("", ("", "")),
    ],
)
def test_forms_that_clients_ask_for(accept: str, expected: tuple[str, str]):
    assert wanted_form(accept) == expected


def test_every_core_kind_has_a_schema_with_metadata():
    for kind in CORE_KINDS:
        assert "metadata" in model_schema(kind.model)["properties"], kind


def test_a_pods_amount_counts_sidecars_and_the_largest_init_container():
    def container(cpu: str, **more: Any) -> Json:
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    spec = {
        "initContainers": [container("1", restartPolicy="Always"), container("5")],
        "containers": [container("2"), container("1")],
    }
    assert pod_amounts(spec, "requests") == {"cpu": 6}


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes):
    for body in (data, b"k8s\x00" + data, b"k8s\x00\x0a\x0f\x0a\x02v1\x12\x09ConfigMap" + data):
        with contextlib.suppress(StatusError):
            decode_protobuf(body)


def test_kinds_compare_by_identity():
    assert Kind("", "v1", "a", "A") != Kind("", "v1", "a", "A")
