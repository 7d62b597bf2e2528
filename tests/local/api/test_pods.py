"""What is particular to pods, namespaces, services, secrets and quotas."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from airflow_kftrain.cluster.resources import (
    CONFIGMAPS,
    NAMESPACES,
    PODS,
    RESOURCEQUOTAS,
    SECRETS,
    SERVICES,
    XGBOOSTJOBS,
)
from tests.local.api.clients import AsyncClient, Client, OfficialClient, Refused
from tests.local.api.objects import config_map, job, pod
from tests.local.api.waiting import eventually

Json = dict[str, Any]


def test_a_pod_gets_its_defaults(client: Client, namespace: str):
    made = client.create(PODS, pod(resources={"limits": {"cpu": "1000m", "memory": "1024Mi"}}), namespace)
    spec, container = made["spec"], made["spec"]["containers"][0]
    assert made["status"]["phase"] == "Pending"
    assert made["status"]["qosClass"] == "Guaranteed"
    assert container["resources"] == {
        "limits": {"cpu": "1", "memory": "1Gi"},
        "requests": {"cpu": "1", "memory": "1Gi"},
    }
    assert (container["imagePullPolicy"], container["terminationMessagePath"]) == (
        "IfNotPresent",
        "/dev/termination-log",
    )
    assert (spec["dnsPolicy"], spec["schedulerName"], spec["terminationGracePeriodSeconds"]) == (
        "ClusterFirst",
        "default-scheduler",
        30,
    )
    assert (spec["priority"], spec["preemptionPolicy"], spec["enableServiceLinks"]) == (
        0,
        "PreemptLowerPriority",
        True,
    )


def test_a_pod_that_no_node_has_is_deleted_at_once(client: Client, namespace: str):
    client.create(PODS, pod(), namespace)
    client.delete(PODS, "p", namespace)
    assert client.missing(PODS, "p", namespace)


def test_a_pod_on_a_node_ends_when_its_kubelet_says_so(client: Client, namespace: str):
    client.create(PODS, pod(nodeName="node-1", terminationGracePeriodSeconds=40), namespace)

    client.delete(PODS, "p", namespace)
    ending = client.get(PODS, "p", namespace)["metadata"]
    client.delete(PODS, "p", namespace, grace=5)
    sooner = client.get(PODS, "p", namespace)["metadata"]
    client.delete(PODS, "p", namespace, grace=60)
    not_later = client.get(PODS, "p", namespace)["metadata"]

    assert ending["deletionGracePeriodSeconds"] == 40
    assert sooner["deletionGracePeriodSeconds"] == not_later["deletionGracePeriodSeconds"] == 5
    assert sooner["deletionTimestamp"] < ending["deletionTimestamp"]
    client.delete(PODS, "p", namespace, grace=0)
    assert client.missing(PODS, "p", namespace)


def test_a_pod_that_has_ended_is_deleted_at_once(client: Client, namespace: str):
    client.create(PODS, pod(nodeName="node-1"), namespace)
    client.patch(PODS, "p", {"status": {"phase": "Succeeded"}}, namespace, subresource="status")
    client.delete(PODS, "p", namespace)
    assert client.missing(PODS, "p", namespace)


def test_a_running_pods_spec_stays(client: Client, namespace: str):
    client.create(PODS, pod(), namespace)
    env = {"spec": {"containers": [{"name": "main", "env": [{"name": "A", "value": "1"}]}]}}
    with pytest.raises(Refused) as refused:
        client.patch(PODS, "p", env, namespace, "strategic")
    assert refused.value.reason == "Invalid"
    assert "pod updates may not change fields other than" in refused.value.message

    image = {"spec": {"containers": [{"name": "main", "image": "busybox:2"}], "activeDeadlineSeconds": 60}}
    changed = client.patch(PODS, "p", image, namespace, "strategic")["spec"]
    assert (changed["containers"][0]["image"], changed["activeDeadlineSeconds"]) == ("busybox:2", 60)


def test_conditions_merge_by_type_in_a_strategic_patch(client: Client, namespace: str):
    client.create(PODS, pod(), namespace)
    for kind, status in (("Initialized", "True"), ("Ready", "False"), ("Ready", "True")):
        patch = {"status": {"conditions": [{"type": kind, "status": status}]}}
        client.patch(PODS, "p", patch, namespace, "strategic", "status")
    conditions = client.get(PODS, "p", namespace)["status"]["conditions"]
    assert {c["type"]: c["status"] for c in conditions} == {"Initialized": "True", "Ready": "True"}


_TOO_LITTLE = {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}


def _broken(**changes: Any) -> Json:
    made = pod()
    made["spec"]["containers"][0].update(changes)
    return made


@pytest.mark.parametrize(
    ("obj", "field"),
    [
        (pod("Upper"), "metadata.name"),
        (pod("x" * 254), "metadata.name"),
        (pod(labels={"a": "not valid"}), "metadata.labels"),
        (pod(labels={"a": "x" * 64}), "metadata.labels"),
        (pod(labels={"bad key": "x"}), "metadata.labels"),
        (pod(restartPolicy="Sometimes"), "spec.restartPolicy"),
        (_broken(name="Main"), "spec.containers[0].name"),
        (_broken(ports=[{"containerPort": 70000}]), "spec.containers[0].ports[0].containerPort"),
        (
            _broken(volumeMounts=[{"name": "none", "mountPath": "/x"}]),
            "spec.containers[0].volumeMounts[0].name",
        ),
        (
            _broken(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
            "spec.containers[0].resources.requests",
        ),
        (_broken(resources={"limits": {"nvidia.com/gpu": "0.5"}}), "spec.containers[0].resources.limits"),
    ],
    ids=[
        "an upper-case name",
        "a name that is too long",
        "a label value with a blank",
        "a label value that is too long",
        "a label key with a blank",
        "an unknown restart policy",
        "an upper-case container name",
        "a port beyond 65535",
        "a mount without its volume",
        "a request beyond its limit",
        "half a GPU",
    ],
)
def test_an_invalid_pod_is_refused_by_field(client: Client, namespace: str, obj: Json, field: str):
    with pytest.raises(Refused) as refused:
        client.create(PODS, obj, namespace)
    assert refused.value.reason == "Invalid"
    assert field in refused.value.message


@pytest.mark.parametrize(
    ("replicas", "reason", "text"),
    [
        ("many", "Invalid", "spec.xgbReplicaSpecs.Worker.replicas"),
        (1.5, "Invalid", "spec.xgbReplicaSpecs.Worker.replicas"),
    ],
    ids=["text for a number", "a fraction for a count"],
)
def test_a_job_that_breaks_its_schema_is_refused(
    official: OfficialClient, asynchronous: AsyncClient, namespace: str, replicas: Any, reason: str, text: str
):
    broken = job("x")
    broken["spec"]["xgbReplicaSpecs"]["Worker"]["replicas"] = replicas
    for client in (official, asynchronous):
        with pytest.raises(Refused) as refused:
            client.create(XGBOOSTJOBS, broken, namespace)
        assert refused.value.reason == reason
        assert text in refused.value.message


def test_unknown_fields_are_pruned(official: OfficialClient, asynchronous: AsyncClient, namespace: str):
    for client, name in ((official, "a"), (asynchronous, "b")):
        made = job(name)
        made["spec"]["nonsense"] = 1
        made["spec"]["xgbReplicaSpecs"]["Worker"]["template"]["spec"]["nonsense"] = 1
        stored = client.create(XGBOOSTJOBS, made, namespace)
        assert "nonsense" not in stored["spec"]
        assert "nonsense" not in stored["spec"]["xgbReplicaSpecs"]["Worker"]["template"]["spec"]


def _quota(client: Client, namespace: str, hard: dict[str, str]) -> Callable[[dict[str, str]], bool]:
    """Make a quota that counts; gives a wait for what it counts."""
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": hard}}
    client.create(RESOURCEQUOTAS, quota, namespace)

    def status() -> Json:
        return client.get(RESOURCEQUOTAS, "q", namespace).get("status") or {}

    assert eventually(lambda: status().get("hard") == hard)
    return lambda used: eventually(lambda: status()["used"] == used)


@pytest.mark.needs("quota")
def test_a_quota_refuses_what_is_too_much(client: Client, namespace: str):
    hard = {"pods": "2", "requests.nvidia.com/gpu": "3", "count/secrets": "1"}
    uses = _quota(client, namespace, hard)
    two = {"limits": {"nvidia.com/gpu": "2"}}
    client.create(PODS, pod("a", resources=two), namespace)

    with pytest.raises(Refused) as refused:
        client.create(PODS, pod("b", resources=two), namespace)

    assert refused.value.reason == "Forbidden"
    expected = (
        "exceeded quota: q, requested: requests.nvidia.com/gpu=2, used: requests.nvidia.com/gpu=2, limited: "
    )
    assert expected + "requests.nvidia.com/gpu=3" in refused.value.message
    assert uses({"pods": "1", "requests.nvidia.com/gpu": "2", "count/secrets": "0"})
    client.patch(PODS, "a", {"status": {"phase": "Succeeded"}}, namespace, subresource="status")
    assert uses({"pods": "0", "requests.nvidia.com/gpu": "0", "count/secrets": "0"})
    client.create(PODS, pod("b", resources=two), namespace)
    client.create(SECRETS, {"metadata": {"name": "one"}}, namespace)
    with pytest.raises(Refused, match="exceeded quota: q, requested: count/secrets=1"):
        client.create(SECRETS, {"metadata": {"name": "two"}}, namespace)


@pytest.mark.needs("quota")
def test_a_quota_on_memory_wants_it_stated(client: Client, namespace: str):
    _quota(client, namespace, {"limits.memory": "1Gi"})
    with pytest.raises(Refused) as refused:
        client.create(PODS, pod(), namespace)
    assert "failed quota: q: must specify limits.memory for: main" in refused.value.message


@pytest.mark.needs("namespaces")
def test_a_namespace_takes_everything_in_it_along(client: Client):
    name = f"t-{uuid.uuid4().hex[:10]}"
    client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}, "")
    held = {**config_map("held"), "metadata": {"name": "held", "finalizers": ["example.com/hold"]}}
    client.create(CONFIGMAPS, held, name)
    client.create(XGBOOSTJOBS, job("x"), name)

    client.delete(NAMESPACES, name, "")

    assert client.get(NAMESPACES, name, "")["status"]["phase"] == "Terminating"
    with pytest.raises(Refused) as refused:
        client.create(CONFIGMAPS, config_map("late"), name)
    assert refused.value.reason == "Forbidden"
    assert "because it is being terminated" in refused.value.message
    assert eventually(lambda: client.missing(XGBOOSTJOBS, "x", name))
    client.patch(CONFIGMAPS, "held", {"metadata": {"finalizers": None}}, name)
    assert eventually(lambda: client.missing(NAMESPACES, name, ""))


def test_services_get_addresses_unless_they_are_headless(client: Client, namespace: str):
    def service(name: str, **spec: Any) -> Json:
        return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}

    plain = client.create(SERVICES, service("a"), namespace)["spec"]
    other = client.create(SERVICES, service("b"), namespace)["spec"]
    headless = client.create(SERVICES, service("c", clusterIP="None"), namespace)["spec"]
    assert plain["clusterIP"] != other["clusterIP"]
    assert plain["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    assert (headless["clusterIP"], headless["clusterIPs"]) == ("None", ["None"])
    with pytest.raises(Refused) as refused:
        client.patch(
            SERVICES, "a", {"spec": {"clusterIP": "10.96.77.77", "clusterIPs": ["10.96.77.77"]}}, namespace
        )
    assert refused.value.reason == "Invalid"


def test_secrets_hold_bytes(client: Client, namespace: str):
    made = {"metadata": {"name": "s"}, "stringData": {"word": "open sesame"}, "data": {"raw": "AAE="}}
    found = client.create(SECRETS, made, namespace)
    assert base64.b64decode(found["data"]["word"]) == b"open sesame"
    assert found["data"]["raw"] == "AAE="
    assert "stringData" not in found


def test_what_is_immutable_stays(client: Client, namespace: str):
    client.create(CONFIGMAPS, {**config_map(), "immutable": True}, namespace)
    with pytest.raises(Refused) as refused:
        client.patch(CONFIGMAPS, "cm", {"data": {"a": "2"}}, namespace)
    assert refused.value.reason == "Invalid"
    assert "field is immutable when `immutable` is set" in refused.value.message


def test_a_binding_places_a_pod_once(official: OfficialClient, namespace: str):
    official.create(PODS, pod(), namespace)
    path = PODS.path(namespace, "p", "binding")

    def bind(node: str) -> Json:
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": target}
        return official._send("POST", path, body, "application/json")

    bind("node-1")
    placed = official.get(PODS, "p", namespace)
    assert placed["spec"]["nodeName"] == "node-1"
    assert {c["type"]: c["status"] for c in placed["status"]["conditions"]} == {"PodScheduled": "True"}
    with pytest.raises(Refused) as refused:
        bind("node-2")
    assert refused.value.reason == "Conflict"
