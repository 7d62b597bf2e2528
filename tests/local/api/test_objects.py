"""What every client can do with every kind: create, read, change, watch, delete."""

from __future__ import annotations

import datetime as dt
import uuid
from typing import Any

import pytest

from airflow_kftrain.cluster.resources import (
    CONFIGMAPS,
    EVENTS,
    LEASES,
    PODGROUPS,
    PODS,
    PYTORCHJOBS,
    SECRETS,
    SERVICES,
    TFJOBS,
    XGBOOSTJOBS,
    Resource,
)
from tests.local.api.clients import Client, Refused
from tests.local.api.objects import PRIORITYCLASSES, config_map, job, owned_by, pod
from tests.local.api.waiting import eventually

Json = dict[str, Any]

_GROUP = {"metadata": {"name": "gang"}, "spec": {"minMember": 3, "minResources": {"nvidia.com/gpu": "3"}}}
_GROUP |= {"apiVersion": PODGROUPS.api_version, "kind": "PodGroup"}
_SERVICE = {
    "metadata": {"name": "svc"},
    "spec": {"clusterIP": "None", "ports": [{"name": "p", "port": 9999}]},
}
_LEASE = {"metadata": {"name": "lease"}, "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15}}

KINDS: dict[str, tuple[Resource, Json]] = {
    "a ConfigMap": (CONFIGMAPS, config_map()),
    "a Secret": (SECRETS, {"metadata": {"name": "s"}, "stringData": {"k": "v"}}),
    "a Pod": (PODS, pod()),
    "a headless Service": (SERVICES, _SERVICE),
    "a Lease": (LEASES, _LEASE),
    "a TFJob": (TFJOBS, job(kind="TFJob")),
    "a PyTorchJob": (PYTORCHJOBS, job(kind="PyTorchJob")),
    "an XGBoostJob": (XGBOOSTJOBS, job()),
    "a PodGroup": (PODGROUPS, _GROUP),
}
every_kind = pytest.mark.parametrize(("resource", "obj"), KINDS.values(), ids=KINDS.keys())
core_and_custom = pytest.mark.parametrize(
    ("resource", "obj"),
    [(CONFIGMAPS, config_map("x")), (XGBOOSTJOBS, job("x"))],
    ids=["core kind", "custom kind"],
)


@every_kind
def test_an_object_is_created_read_listed_and_deleted(
    client: Client, namespace: str, resource: Resource, obj: Json
):
    name = obj["metadata"]["name"]

    made = client.create(resource, obj, namespace)

    metadata = made["metadata"]
    assert uuid.UUID(metadata["uid"])
    assert int(metadata["resourceVersion"]) > 0
    assert dt.datetime.fromisoformat(metadata["creationTimestamp"]).tzinfo is not None
    assert metadata["namespace"] == namespace
    assert client.get(resource, name, namespace)["metadata"]["uid"] == metadata["uid"]
    listing = client.list(resource, namespace)
    assert listing.names == [name]
    client.delete(resource, name, namespace)
    assert client.missing(resource, name, namespace)


@core_and_custom
def test_a_name_is_taken_once(client: Client, namespace: str, resource: Resource, obj: Json):
    client.create(resource, obj, namespace)
    with pytest.raises(Refused) as refused:
        client.create(resource, obj, namespace)
    assert refused.value.reason == "AlreadyExists"
    assert '"x" already exists' in refused.value.message


@core_and_custom
def test_what_is_not_there_is_not_found(client: Client, namespace: str, resource: Resource, obj: Json):
    with pytest.raises(Refused) as refused:
        client.get(resource, "x", namespace)
    assert refused.value.reason == "NotFound"
    with pytest.raises(Refused) as refused:
        client.delete(resource, "x", namespace)
    assert refused.value.reason == "NotFound"


def test_an_object_needs_a_namespace_that_is_there(client: Client):
    with pytest.raises(Refused) as refused:
        client.create(CONFIGMAPS, config_map(), "no-such-namespace")
    assert refused.value.reason == "NotFound"
    assert 'namespaces "no-such-namespace" not found' in refused.value.message


@core_and_custom
def test_generate_name_gives_names_that_differ(client: Client, namespace: str, resource: Resource, obj: Json):
    unnamed = {**obj, "metadata": {"generateName": "gen-"}}
    names = {client.create(resource, unnamed, namespace)["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("gen-") and len(name) == len("gen-") + 5 for name in names)


def test_generate_name_cuts_a_prefix_that_is_too_long(client: Client, namespace: str):
    unnamed = {"metadata": {"generateName": "x" * 80 + "-"}, "data": {}}
    assert len(client.create(CONFIGMAPS, unnamed, namespace)["metadata"]["name"]) == 63


@core_and_custom
def test_a_stale_replace_conflicts(client: Client, namespace: str, resource: Resource, obj: Json):
    first = client.create(resource, obj, namespace)
    newer = {**first, "metadata": {**first["metadata"], "labels": {"seen": "1"}}}
    second = client.replace(resource, newer, namespace)
    assert int(second["metadata"]["resourceVersion"]) > int(first["metadata"]["resourceVersion"])

    with pytest.raises(Refused) as refused:
        client.replace(resource, newer, namespace)

    assert refused.value.reason == "Conflict"
    assert client.get(resource, "x", namespace)["metadata"]["labels"] == {"seen": "1"}


@core_and_custom
def test_a_replace_that_changes_nothing_keeps_the_version(
    client: Client, namespace: str, resource: Resource, obj: Json
):
    first = client.create(resource, obj, namespace)
    again = client.replace(resource, first, namespace)
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_a_replace_cannot_change_what_the_server_sets(client: Client, namespace: str):
    first = client.create(CONFIGMAPS, config_map(), namespace)
    changed = {**first["metadata"], "creationTimestamp": "2001-01-01T00:00:00Z"}
    again = client.replace(CONFIGMAPS, {**first, "metadata": changed, "data": {"b": "2"}}, namespace)
    assert again["metadata"]["creationTimestamp"] == first["metadata"]["creationTimestamp"]
    assert again["metadata"]["uid"] == first["metadata"]["uid"]


@core_and_custom
def test_a_merge_patch_merges_and_null_removes(client: Client, namespace: str, resource: Resource, obj: Json):
    client.create(resource, {**obj, "metadata": {"name": "x", "labels": {"a": "1", "b": "2"}}}, namespace)
    patch = {"metadata": {"labels": {"a": None, "c": "3"}}}
    assert client.patch(resource, "x", patch, namespace)["metadata"]["labels"] == {"b": "2", "c": "3"}


@core_and_custom
def test_a_json_patch_applies_whole_or_not_at_all(
    client: Client, namespace: str, resource: Resource, obj: Json
):
    client.create(resource, {**obj, "metadata": {"name": "x", "labels": {"a": "1"}}}, namespace)
    add = {"op": "add", "path": "/metadata/labels/b~1c", "value": "2"}
    patched = client.patch(resource, "x", [add], namespace, "json")
    assert patched["metadata"]["labels"] == {"a": "1", "b/c": "2"}

    failing = [
        {"op": "remove", "path": "/metadata/labels/a"},
        {"op": "test", "path": "/metadata/name", "value": "y"},
    ]
    with pytest.raises(Refused) as refused:
        client.patch(resource, "x", failing, namespace, "json")

    assert refused.value.reason == "Invalid"
    assert client.get(resource, "x", namespace)["metadata"]["labels"] == {"a": "1", "b/c": "2"}


def test_a_patch_with_a_stale_version_conflicts(client: Client, namespace: str):
    first = client.create(CONFIGMAPS, config_map(), namespace)
    client.patch(CONFIGMAPS, "cm", {"data": {"a": "2"}}, namespace)
    stale = {"metadata": {"resourceVersion": first["metadata"]["resourceVersion"]}, "data": {"a": "3"}}
    with pytest.raises(Refused) as refused:
        client.patch(CONFIGMAPS, "cm", stale, namespace)
    assert refused.value.reason == "Conflict"


def test_a_strategic_patch_merges_lists_by_their_key(client: Client, namespace: str):
    ports = [{"name": "a", "port": 1}, {"name": "b", "port": 2}]
    client.create(
        SERVICES, {"metadata": {"name": "svc"}, "spec": {"clusterIP": "None", "ports": ports}}, namespace
    )

    patch = {
        "spec": {
            "ports": [{"port": 2, "name": "c"}, {"port": 1, "$patch": "delete"}, {"port": 3, "name": "d"}]
        }
    }
    patched = client.patch(SERVICES, "svc", patch, namespace, "strategic")

    assert sorted((p["port"], p["name"]) for p in patched["spec"]["ports"]) == [(2, "c"), (3, "d")]


def test_custom_kinds_take_no_strategic_patch(client: Client, namespace: str):
    client.create(XGBOOSTJOBS, job("x"), namespace)
    with pytest.raises(Refused) as refused:
        client.patch(XGBOOSTJOBS, "x", {"metadata": {"labels": {"a": "1"}}}, namespace, "strategic")
    assert refused.value.reason == "UnsupportedMediaType"


def test_the_status_is_a_subresource(client: Client, namespace: str):
    client.create(XGBOOSTJOBS, {**job("x"), "status": {"startTime": "2026-01-01T00:00:00Z"}}, namespace)
    assert "startTime" not in client.get(XGBOOSTJOBS, "x", namespace).get("status", {})

    started = {"status": {"startTime": "2026-01-02T00:00:00Z"}, "metadata": {"labels": {"sly": "1"}}}
    client.patch(XGBOOSTJOBS, "x", started, namespace, subresource="status")
    client.patch(XGBOOSTJOBS, "x", {"status": None, "metadata": {"labels": {"b": "2"}}}, namespace)

    found = client.get(XGBOOSTJOBS, "x", namespace)
    assert found["status"]["startTime"] == "2026-01-02T00:00:00Z"
    assert found["metadata"]["labels"] == {"b": "2"}


def test_the_generation_counts_changes_of_what_is_wanted(client: Client, namespace: str):
    first = client.create(XGBOOSTJOBS, job("x"), namespace)
    client.patch(XGBOOSTJOBS, "x", {"metadata": {"labels": {"a": "1"}}}, namespace)
    client.patch(
        XGBOOSTJOBS, "x", {"status": {"startTime": "2026-01-01T00:00:00Z"}}, namespace, subresource="status"
    )
    same = client.get(XGBOOSTJOBS, "x", namespace)
    changed = client.patch(
        XGBOOSTJOBS, "x", {"spec": {"xgbReplicaSpecs": {"Worker": {"replicas": 5}}}}, namespace
    )
    assert [o["metadata"]["generation"] for o in (first, same, changed)] == [1, 1, 2]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("app=a", ["one", "two"]),
        ("app==a,tier=x", ["one"]),
        ("app!=a", ["four", "three"]),
        ("app in (a, b)", ["one", "three", "two"]),
        ("app notin (a)", ["four", "three"]),
        ("tier", ["one", "three"]),
        ("!tier", ["four", "two"]),
        ("app,!tier", ["two"]),
        ("example.com/x=1", ["four"]),
    ],
)
def test_label_selectors(client: Client, namespace: str, selector: str, expected: list[str]):
    labels = {
        "one": {"app": "a", "tier": "x"},
        "two": {"app": "a"},
        "three": {"app": "b", "tier": "y"},
        "four": {"example.com/x": "1"},
    }
    client.create_all(CONFIGMAPS, [config_map(name, given) for name, given in labels.items()], namespace)
    assert client.list(CONFIGMAPS, namespace, labels=selector).names == expected


def test_field_selectors(client: Client, namespace: str):
    client.create(PODS, pod("free"), namespace)
    client.create(PODS, pod("placed", nodeName="node-1"), namespace)
    cases = {
        "metadata.name=free": ["free"],
        "metadata.name!=free": ["placed"],
        "spec.nodeName=node-1": ["placed"],
        "spec.nodeName=": ["free"],
        "status.phase=Pending,metadata.name=placed": ["placed"],
        "status.phase=Running": [],
    }
    assert {fields: client.list(PODS, namespace, fields=fields).names for fields in cases} == cases


def test_an_unknown_field_selector_is_refused(client: Client, namespace: str):
    with pytest.raises(Refused) as refused:
        client.list(PODS, namespace, fields="spec.nonsense=1")
    assert refused.value.reason == "BadRequest"
    assert "spec.nonsense" in refused.value.message


@core_and_custom
def test_a_watch_tells_every_change_in_order(client: Client, namespace: str, resource: Resource, obj: Json):
    def act() -> None:
        client.create(resource, obj, namespace)
        client.patch(resource, "x", {"metadata": {"labels": {"a": "1"}}}, namespace)
        client.delete(resource, "x", namespace)

    seen = client.watch(resource, namespace, act, 3)

    assert seen == [("ADDED", "x"), ("MODIFIED", "x"), ("DELETED", "x")]


def test_a_watch_with_a_selector_sees_objects_come_and_go(client: Client, namespace: str):
    client.create(CONFIGMAPS, config_map("x"), namespace)

    def act() -> None:
        client.patch(CONFIGMAPS, "x", {"metadata": {"labels": {"on": "1"}}}, namespace)
        client.patch(CONFIGMAPS, "x", {"data": {"a": "2"}}, namespace)
        client.patch(CONFIGMAPS, "x", {"metadata": {"labels": None}}, namespace)

    seen = client.watch(CONFIGMAPS, namespace, act, 3, labels="on=1")

    assert seen == [("ADDED", "x"), ("MODIFIED", "x"), ("DELETED", "x")]


def test_a_list_in_pages_is_whole(client: Client, namespace: str):
    client.create_all(CONFIGMAPS, [config_map(f"c{i:02}") for i in range(25)], namespace)
    assert client.list(CONFIGMAPS, namespace, limit=10).names == [f"c{i:02}" for i in range(25)]


def test_many_are_deleted_by_their_labels(client: Client, namespace: str):
    for name, labels in (("a", {"go": "1"}), ("b", {"go": "1"}), ("c", {"stay": "1"})):
        client.create(CONFIGMAPS, config_map(name, labels), namespace)
    client.delete_all(CONFIGMAPS, namespace, labels="go=1")
    assert client.list(CONFIGMAPS, namespace).names == ["c"]


@core_and_custom
def test_a_dry_run_changes_nothing(client: Client, namespace: str, resource: Resource, obj: Json):
    made = client.create(resource, obj, namespace, dry_run=True)
    assert made["metadata"]["name"] == "x"
    assert client.missing(resource, "x", namespace)


@core_and_custom
def test_finalizers_hold_an_object_until_they_are_gone(
    client: Client, namespace: str, resource: Resource, obj: Json
):
    held = {**obj, "metadata": {"name": "x", "finalizers": ["example.com/hold"]}}
    client.create(resource, held, namespace)
    client.delete(resource, "x", namespace)
    assert client.get(resource, "x", namespace)["metadata"]["deletionTimestamp"]

    more = {"metadata": {"finalizers": ["example.com/hold", "example.com/late"]}}
    with pytest.raises(Refused) as refused:
        client.patch(resource, "x", more, namespace)
    assert refused.value.reason == "Invalid"

    client.patch(resource, "x", {"metadata": {"finalizers": None}}, namespace)
    assert client.missing(resource, "x", namespace)


def test_server_side_apply_creates_changes_and_takes_away(client: Client, namespace: str):
    def config(**data: str) -> Json:
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": data}

    client.apply(CONFIGMAPS, config(a="1", b="2"), namespace, manager="one")
    client.patch(CONFIGMAPS, "x", {"data": {"z": "26"}}, namespace)
    applied = client.apply(CONFIGMAPS, config(a="3"), namespace, manager="one")
    assert applied["data"] == {"a": "3", "z": "26"}

    with pytest.raises(Refused) as refused:
        client.apply(CONFIGMAPS, config(a="4"), namespace, manager="two")
    assert refused.value.reason == "Conflict"
    assert "one" in refused.value.message
    assert client.apply(CONFIGMAPS, config(a="4"), namespace, manager="two", force=True)["data"]["a"] == "4"


def test_server_side_apply_merges_containers_by_name(client: Client, namespace: str):
    client.create(PODS, pod("p"), namespace)
    config = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "main", "image": "busybox:2"}]},
    }
    applied = client.apply(PODS, config, namespace, manager="one", force=True)
    assert [(c["name"], c["image"], c["command"]) for c in applied["spec"]["containers"]] == [
        ("main", "busybox:2", ["sleep", "3600"])
    ]


def test_events_are_found_by_what_they_are_about(client: Client, namespace: str):
    for name, about in (("e1", "job-a"), ("e2", "job-b")):
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {"kind": "XGBoostJob", "name": about, "namespace": namespace},
            "reason": "SuccessfulCreatePod",
            "message": "created",
            "type": "Normal",
            "firstTimestamp": "2026-01-01T00:00:00Z",
            "lastTimestamp": "2026-01-01T00:00:00Z",
        }
        client.create(EVENTS, event, namespace)
    assert client.list(EVENTS, namespace, fields="involvedObject.name=job-b").names == ["e2"]


def test_leases_keep_their_fine_times(client: Client, namespace: str):
    spec = {"holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.123456Z"}
    lease = {"apiVersion": LEASES.api_version, "kind": "Lease", "metadata": {"name": "l"}, "spec": spec}
    client.create(LEASES, lease, namespace)
    found = client.get(LEASES, "l", namespace)["spec"]["renewTime"]
    assert dt.datetime.fromisoformat(found) == dt.datetime(2026, 1, 1, 0, 0, 0, 123456, tzinfo=dt.UTC)


@pytest.mark.needs("gc")
@pytest.mark.parametrize("policy", ["Background", "Foreground"])
def test_dependents_go_with_their_owner(client: Client, namespace: str, policy: str):
    owner = client.create(XGBOOSTJOBS, job("x"), namespace)
    child = client.create(CONFIGMAPS, owned_by(config_map("child"), owner), namespace)
    client.create(CONFIGMAPS, owned_by(config_map("grandchild"), {**child, **_type("ConfigMap")}), namespace)
    client.create(CONFIGMAPS, config_map("stranger"), namespace)

    client.delete(XGBOOSTJOBS, "x", namespace, policy=policy)

    assert eventually(lambda: client.missing(XGBOOSTJOBS, "x", namespace))
    assert eventually(lambda: client.list(CONFIGMAPS, namespace).names == ["stranger"])


@pytest.mark.needs("gc")
def test_orphans_stay_and_forget_their_owner(client: Client, namespace: str):
    owner = client.create(XGBOOSTJOBS, job("x"), namespace)
    client.create(CONFIGMAPS, owned_by(config_map("child"), owner), namespace)
    # A real collector follows ConfigMaps in order: once it has taken a later one, it knows the child.
    ghost = {**job("ghost"), "metadata": {"name": "ghost", "uid": str(uuid.uuid4())}}
    client.create(CONFIGMAPS, owned_by(config_map("later"), ghost), namespace)
    assert eventually(lambda: client.missing(CONFIGMAPS, "later", namespace))

    client.delete(XGBOOSTJOBS, "x", namespace, policy="Orphan")

    assert eventually(lambda: client.missing(XGBOOSTJOBS, "x", namespace))
    assert "ownerReferences" not in client.get(CONFIGMAPS, "child", namespace)["metadata"]


@pytest.mark.needs("gc")
def test_an_object_whose_owner_was_never_there_goes(client: Client, namespace: str):
    ghost = {**job("ghost"), "metadata": {"name": "ghost", "uid": str(uuid.uuid4())}}
    client.create(CONFIGMAPS, owned_by(config_map("child"), ghost), namespace)
    assert eventually(lambda: client.missing(CONFIGMAPS, "child", namespace))


def _type(kind: str) -> Json:
    return {"apiVersion": "v1", "kind": kind}


def test_priority_classes_reach_pods(client: Client, namespace: str):
    name = f"high-{uuid.uuid4().hex[:8]}"
    made = {"apiVersion": PRIORITYCLASSES.api_version, "kind": "PriorityClass", "metadata": {"name": name}}
    client.create(PRIORITYCLASSES, {**made, "value": 1000}, "")
    assert client.create(PODS, pod("p", priorityClassName=name), namespace)["spec"]["priority"] == 1000
    with pytest.raises(Refused):
        client.create(PODS, pod("q", priorityClassName="no-such-class"), namespace)
    client.delete(PRIORITYCLASSES, name, "")
