"""What only kubectl does: printing, three-way apply, waiting, describing, scaling, draining."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from airflow_kftrain.cluster.resources import (
    CONFIGMAPS,
    EVENTS,
    NAMESPACES,
    NODES,
    PODS,
    PYTORCHJOBS,
    RESOURCEQUOTAS,
    SECRETS,
    XGBOOSTJOBS,
)
from tests.local.api.clients import Kubectl, OfficialClient, Refused
from tests.local.api.objects import PRIORITYCLASSES, config_map, job, pod
from tests.local.api.waiting import eventually

Json = dict[str, Any]


def _typed(kind: str, obj: Json) -> str:
    return json.dumps({"apiVersion": "v1", "kind": kind, **obj})


def _rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_version_and_cluster_info(kubectl: Kubectl):
    assert "Server Version: v1." in kubectl.run("version")
    assert "Kubernetes control plane" in kubectl.run("cluster-info")


def test_discovery_names_the_kinds(kubectl: Kubectl):
    rows = _rows(kubectl.run("api-resources", "--no-headers"))
    served = {row[-1]: row[0] for row in rows}
    assert {"Pod", "Service", "Node", "Lease", "ConfigMap", "Secret", "Namespace", "ResourceQuota"} <= set(
        served
    )
    assert (served["TFJob"], served["PyTorchJob"], served["XGBoostJob"]) == (
        "tfjobs",
        "pytorchjobs",
        "xgboostjobs",
    )
    assert "kubeflow.org/v1" in kubectl.run("api-versions").split()


def test_the_real_kinds_have_no_short_names(kubectl: Kubectl, namespace: str):
    with pytest.raises(Refused, match="doesn't have a resource type"):
        kubectl.run("get", "-n", namespace, "ptjob")
    assert "No resources found" in kubectl.run_raw("get", "-n", namespace, "po,svc,pytorchjob").stderr


def test_get_prints_columns(kubectl: Kubectl, namespace: str):
    kubectl.create(PODS, pod(), namespace)
    kubectl.create(XGBOOSTJOBS, job(), namespace)
    running = {"type": "Running", "status": "True", "reason": "XGBoostJobRunning", "message": "running"}
    status = {"status": {"conditions": [{**running, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}
    kubectl.patch(XGBOOSTJOBS, "job", status, namespace, subresource="status")

    pods = _rows(kubectl.run("get", "-n", namespace, "pods"))
    wide = _rows(kubectl.run("get", "-n", namespace, "pods", "-owide"))
    jobs = _rows(kubectl.run("get", "-n", namespace, "xgboostjobs"))
    everywhere = _rows(kubectl.run("get", "-A", "pods"))

    assert pods[0] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert pods[1][:4] == ["p", "0/1", "Pending", "0"]
    assert wide[0][5:7] == ["IP", "NODE"]
    assert (jobs[0], jobs[1][:2]) == (["NAME", "STATE", "AGE"], ["job", "Running"])
    assert [namespace, "p"] in [row[:2] for row in everywhere]


def test_get_in_other_forms(kubectl: Kubectl, namespace: str):
    kubectl.create(CONFIGMAPS, config_map(labels={"a": "1"}), namespace)
    assert kubectl.run("get", "-n", namespace, "cm/cm", "-ojsonpath={.data.a}") == "1"
    assert "name: cm" in kubectl.run("get", "-n", namespace, "cm", "cm", "-oyaml")
    columns = kubectl.run(
        "get", "-n", namespace, "cm", "-ocustom-columns=N:.metadata.name", "-la=1", "--no-headers"
    )
    assert columns.split() == ["cm"]
    raw = json.loads(kubectl.run("get", "--raw", f"/api/v1/namespaces/{namespace}/configmaps/cm"))
    assert raw["kind"] == "ConfigMap"
    assert kubectl.run("get", "-n", namespace, "cm", "-la=1", "-oname").split() == ["configmap/cm"]


def test_apply_creates_changes_and_leaves_alone(kubectl: Kubectl, namespace: str):
    def apply(*args: str, **data: str) -> str:
        return kubectl.run(
            "apply", "-n", namespace, "-f-", *args, stdin=_typed("ConfigMap", config_map(**data))
        )

    assert "configmap/cm created" in apply(a="1", b="2")
    assert "configmap/cm unchanged" in apply(a="1", b="2")
    assert "configmap/cm configured" in apply(a="3")
    assert kubectl.get(CONFIGMAPS, "cm", namespace)["data"] == {"a": "3"}
    assert "serverside-applied" in apply("--server-side", "--force-conflicts", a="4")
    assert kubectl.get(CONFIGMAPS, "cm", namespace)["data"]["a"] == "4"


def test_apply_on_a_pod_is_a_three_way_merge(kubectl: Kubectl, namespace: str):
    first, second = pod(labels={"a": "1", "b": "1"}), pod(labels={"b": "2"})
    kubectl.run("apply", "-n", namespace, "-f-", stdin=json.dumps(first))
    kubectl.run("label", "-n", namespace, "pod/p", "mine=1")
    second["spec"]["containers"][0]["image"] = "busybox:2"
    kubectl.run("apply", "-n", namespace, "-f-", stdin=json.dumps(second))
    found = kubectl.get(PODS, "p", namespace)
    assert found["metadata"]["labels"] == {"b": "2", "mine": "1"}
    assert found["spec"]["containers"][0]["image"] == "busybox:2"


def test_apply_on_a_job_and_diff(kubectl: Kubectl, namespace: str):
    kubectl.run("apply", "-n", namespace, "-f-", stdin=json.dumps(job()))
    bigger = json.dumps(job(workers=3))
    diff = kubectl.run_raw("diff", "-n", namespace, "-f-", stdin=bigger)
    assert diff.returncode == 1, diff.stderr
    assert "replicas: 3" in diff.stdout
    kubectl.run("apply", "-n", namespace, "-f-", stdin=bigger)
    found = kubectl.get(XGBOOSTJOBS, "job", namespace)
    assert found["spec"]["xgbReplicaSpecs"]["Worker"]["replicas"] == 3


@pytest.mark.parametrize("server_side", [False, True], ids=["client-side", "server-side"])
def test_apply_refuses_unknown_fields(kubectl: Kubectl, namespace: str, server_side: bool):
    wrong = job()
    wrong["spec"]["runPolicyy"] = {}
    args = ["apply", "-n", namespace, "-f-", *(["--server-side"] if server_side else [])]
    done = kubectl.run_raw(*args, stdin=json.dumps(wrong))
    assert done.returncode != 0
    assert (
        'unknown field "spec.runPolicyy"' in done.stderr
        or ".spec.runPolicyy: field not declared" in done.stderr
    )


def test_create_warns_when_validation_is_only_to_warn(kubectl: Kubectl, namespace: str):
    wrong = job()
    wrong["spec"]["runPolicyy"] = {}
    done = kubectl.run_raw("create", "-n", namespace, "-f-", "--validate=warn", stdin=json.dumps(wrong))
    assert done.returncode == 0
    assert 'Warning: unknown field "spec.runPolicyy"' in done.stderr


def test_label_annotate_and_their_overwriting(kubectl: Kubectl, namespace: str):
    kubectl.create(PODS, pod(), namespace)
    kubectl.create(XGBOOSTJOBS, job(), namespace)
    for target in ("pod/p", "xgboostjob/job"):
        kubectl.run("label", "-n", namespace, target, "a=1")
        kubectl.run("label", "-n", namespace, target, "a=2", "--overwrite")
        kubectl.run("annotate", "-n", namespace, target, "note=hello")
        kubectl.run("label", "-n", namespace, target, "b=1")
        kubectl.run("label", "-n", namespace, target, "b-")
    for resource, name in ((PODS, "p"), (XGBOOSTJOBS, "job")):
        metadata = kubectl.get(resource, name, namespace)["metadata"]
        assert (metadata["labels"], metadata["annotations"]["note"]) == ({"a": "2"}, "hello")


def test_edit_sends_what_the_editor_changed(kubectl: Kubectl, namespace: str, tmp_path: Path):
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed "s/a: \\"1\\"/a: \\"9\\"/" "$1" > "$1.new" && mv "$1.new" "$1"\n')
    editor.chmod(0o755)
    kubectl.create(CONFIGMAPS, config_map(), namespace)
    kubectl._environment["KUBE_EDITOR"] = str(editor)
    kubectl.run("edit", "-n", namespace, "cm/cm")
    assert kubectl.get(CONFIGMAPS, "cm", namespace)["data"] == {"a": "9"}


def test_scale_changes_the_workers_of_a_pytorch_job(kubectl: Kubectl, namespace: str):
    kubectl.create(PYTORCHJOBS, job(kind="PyTorchJob"), namespace)
    kubectl.run("scale", "-n", namespace, "pytorchjob/job", "--replicas=4", "--current-replicas=1")
    found = kubectl.get(PYTORCHJOBS, "job", namespace)
    assert found["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 4
    assert found["metadata"]["generation"] == 2
    kubectl.create(XGBOOSTJOBS, job(), namespace)
    with pytest.raises(Refused):
        kubectl.run("scale", "-n", namespace, "xgboostjob/job", "--replicas=4")


def test_describe_shows_events(kubectl: Kubectl, official: OfficialClient, namespace: str):
    made = kubectl.create(PODS, pod(), namespace)
    about = {"kind": "Pod", "name": "p", "namespace": namespace, "uid": made["metadata"]["uid"]}
    event = {
        "metadata": {"name": "p.1"},
        "involvedObject": about,
        "reason": "FailedScheduling",
        "message": "no node has 8 GPUs",
        "type": "Warning",
        "count": 1,
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "source": {"component": "binder"},
    }
    official.create(EVENTS, event, namespace)
    described = kubectl.run("describe", "-n", namespace, "pod/p")
    assert "QoS Class:" in described
    assert "no node has 8 GPUs" in described
    assert "FailedScheduling" in kubectl.run("events", "-n", namespace)
    assert "FailedScheduling" in kubectl.run("get", "events", "-n", namespace)
    kubectl.create(XGBOOSTJOBS, job(), namespace)
    assert "Xgb Replica Specs" in kubectl.run("describe", "-n", namespace, "xgboostjob/job")


def test_explain_reads_the_schemas(kubectl: Kubectl):
    assert "restartPolicy" in kubectl.run("explain", "pod.spec")
    assert "terminationGracePeriodSeconds" in kubectl.run("explain", "pod.spec", "--recursive")
    assert "cleanPodPolicy" in kubectl.run("explain", "xgboostjob.spec.runPolicy")


def test_wait_for_a_condition_a_path_and_a_deletion(
    kubectl: Kubectl, official: OfficialClient, namespace: str
):
    official.create(XGBOOSTJOBS, job(), namespace)
    waits = [
        kubectl.start(
            "wait", "-n", namespace, "xgboostjob/job", "--for=condition=Succeeded", "--timeout=20s"
        ),
        kubectl.start(
            "wait", "-n", namespace, "xgboostjob/job", "--for=jsonpath={.status.startTime}", "--timeout=20s"
        ),
        kubectl.start("wait", "-n", namespace, "xgboostjob/job", "--for=delete", "--timeout=20s"),
    ]
    done = {"type": "Succeeded", "status": "True", "reason": "Done", "message": ""}
    status = {"conditions": [done], "startTime": "2026-01-01T00:00:00Z"}
    official.patch(XGBOOSTJOBS, "job", {"status": status}, namespace, subresource="status")
    first = [wait.communicate(timeout=20) for wait in waits[:2]]
    assert all("condition met" in out for out, _ in first), first
    official.delete(XGBOOSTJOBS, "job", namespace)
    _, error = waits[2].communicate(timeout=20)
    assert waits[2].returncode == 0, error


def test_get_watch_prints_rows(kubectl: Kubectl, official: OfficialClient, namespace: str):
    official.create(PODS, pod("first"), namespace)
    watching = kubectl.start("get", "-n", namespace, "pods", "-w")
    timer = threading.Timer(20, watching.kill)
    timer.start()
    try:
        assert watching.stdout is not None
        head, first = watching.stdout.readline().split(), watching.stdout.readline().split()
        official.create(PODS, pod("second"), namespace)
        second = watching.stdout.readline().split()
    finally:
        timer.cancel()
        watching.kill()
        watching.communicate()
    assert (head[0], first[0], second[:3]) == ("NAME", "first", ["second", "0/1", "Pending"])


def test_delete_waits_and_selects(kubectl: Kubectl, namespace: str):
    kubectl.create_all(PODS, [pod(name, labels={"x": "1"}) for name in ("a", "b")], namespace)
    kubectl.create(PODS, pod("c"), namespace)
    assert "deleted (server dry run)" in kubectl.run("delete", "-n", namespace, "pod/c", "--dry-run=server")
    kubectl.run("delete", "-n", namespace, "pods", "-lx=1", "--timeout=20s")
    assert kubectl.list(PODS, namespace).names == ["c"]
    kubectl.run("delete", "-n", namespace, "pods", "--all", "--timeout=20s")
    assert kubectl.list(PODS, namespace).names == []


def test_typed_creates(kubectl: Kubectl, namespace: str, tmp_path: Path):
    """kubectl 1.32 and newer send these in protobuf, and nothing else."""
    here = ["-n", namespace]
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\x00\x01")
    kubectl.run("create", *here, "configmap", "x", "--from-literal=a=1", f"--from-file=b={binary}")
    kubectl.run("create", *here, "secret", "generic", "x", "--from-literal=word=open")
    kubectl.run("create", *here, "quota", "x", "--hard=pods=3,requests.cpu=1500m")
    kubectl.run("create", *here, "serviceaccount", "x")
    kubectl.run("create", "priorityclass", f"low-{namespace}", "--value=-7", "--description=waits")
    kubectl.run("create", "namespace", f"{namespace}-x")
    try:
        made = kubectl.get(CONFIGMAPS, "x", namespace)
        assert (made["data"], made["binaryData"]) == ({"a": "1"}, {"b": "/wAB"})
        assert kubectl.get(SECRETS, "x", namespace)["data"] == {"word": "b3Blbg=="}
        hard = kubectl.get(RESOURCEQUOTAS, "x", namespace)["spec"]["hard"]
        assert hard == {"pods": "3", "requests.cpu": "1500m"}
        priority = kubectl.get(PRIORITYCLASSES, f"low-{namespace}", "")
        assert (priority["value"], priority["description"]) == (-7, "waits")
        assert kubectl.get(NAMESPACES, f"{namespace}-x", "")["status"]["phase"] == "Active"
    finally:
        kubectl.run("delete", "priorityclass", f"low-{namespace}")
        kubectl.run("delete", "namespace", f"{namespace}-x", "--wait=false")


def test_drain_evicts_pods(kubectl: Kubectl, official: OfficialClient, namespace: str):
    name = f"node-{namespace}"
    official.create(NODES, {"metadata": {"name": name}}, "")
    official.create(PODS, pod("p", nodeName=name, terminationGracePeriodSeconds=300), namespace)
    draining = kubectl.start("drain", name, "--force", "--grace-period=7", "--timeout=20s")
    try:
        assert eventually(lambda: "deletionTimestamp" in official.get(PODS, "p", namespace)["metadata"])
        assert official.get(PODS, "p", namespace)["metadata"]["deletionGracePeriodSeconds"] == 7
        official.delete(PODS, "p", namespace, grace=0)
        _, error = draining.communicate(timeout=20)
        assert draining.returncode == 0, error
    finally:
        draining.kill()
        official.delete(NODES, name, "")


def test_auth_can_i_and_whoami(kubectl: Kubectl, namespace: str):
    assert kubectl.run("auth", "can-i", "create", "pods", "-n", namespace).strip() == "yes"
    assert "Username" in kubectl.run("auth", "whoami")


def test_nodes_are_cordoned_and_drained(kubectl: Kubectl, namespace: str):
    name = f"node-{namespace}"
    status = {"capacity": {"cpu": "2"}, "conditions": [{"type": "Ready", "status": "True"}]}
    kubectl.run("apply", "-f-", stdin=_typed("Node", {"metadata": {"name": name}}))
    kubectl.patch(NODES, name, {"status": status}, "", "strategic", "status")
    assert _rows(kubectl.run("get", "node", name))[1][1] == "Ready"
    kubectl.run("cordon", name)
    assert _rows(kubectl.run("get", "node", name))[1][1] == "Ready,SchedulingDisabled"
    kubectl.run("uncordon", name)
    assert "unschedulable" not in kubectl.get(NODES, name, "").get("spec", {})
    kubectl.run("drain", name, "--timeout=20s")
    kubectl.run("taint", "node", name, "gpu=yes:NoSchedule")
    assert "gpu" in {taint["key"] for taint in kubectl.get(NODES, name, "")["spec"]["taints"]}
    assert "Capacity" in kubectl.run("describe", "node", name)
    kubectl.run("delete", "node", name)


def test_replace_run_and_namespaces(kubectl: Kubectl, namespace: str):
    kubectl.create(CONFIGMAPS, config_map(), namespace)
    kubectl.run("replace", "-n", namespace, "-f-", stdin=_typed("ConfigMap", config_map(z="1")))
    assert kubectl.get(CONFIGMAPS, "cm", namespace)["data"] == {"z": "1"}
    kubectl.run("run", "-n", namespace, "runner", "--image=busybox", "--restart=Never", "--", "true")
    assert kubectl.get(PODS, "runner", namespace)["spec"]["containers"][0]["args"] == ["true"]
    assert kubectl.get(NAMESPACES, namespace, "")["status"]["phase"] == "Active"
    assert "pod/runner" in kubectl.run("get", "all", "-n", namespace)
