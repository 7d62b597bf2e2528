"""Paths, ages, forms, amounts and protobuf, without a server."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kftrain.local.apiserver.bodies import wanted_form
from airflow_kftrain.local.apiserver.cells import duration
from airflow_kftrain.local.apiserver.core_schemas import model_schema
from airflow_kftrain.local.apiserver.custom_kinds import custom_kinds
from airflow_kftrain.local.apiserver.deletes import DeleteOptions
from airflow_kftrain.local.apiserver.errors import StatusError
from airflow_kftrain.local.apiserver.kinds import CORE_KINDS, Kind, Registry
from airflow_kftrain.local.apiserver.protobuf import decode_protobuf
from airflow_kftrain.local.apiserver.quota import pod_amounts
from airflow_kftrain.local.apiserver.targets import target_of

Json = dict[str, Any]
REGISTRY = Registry([*CORE_KINDS, *custom_kinds()])


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


def test_delete_options_are_read_from_protobuf():
    options = b"\x08\x05\x12\x05\x0a\x03abc\x22\x06Orphan"
    kind = b"\x0a\x02v1\x12\x0dDeleteOptions"
    body = b"k8s\x00\x0a" + bytes([len(kind)]) + kind + b"\x12" + bytes([len(options)]) + options
    read = DeleteOptions.read({}, decode_protobuf(body))
    assert read == DeleteOptions(grace=5, policy="Orphan", uid="abc")


def test_kinds_compare_by_identity():
    assert Kind("", "v1", "a", "A") != Kind("", "v1", "a", "A")
