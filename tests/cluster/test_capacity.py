"""Capacity from Node and Pod objects, up to the planner's decision."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_kftrain.cluster import capacity
from airflow_kftrain.jobs.pods import pod_request
from airflow_kftrain.jobs.resources import Resources
from airflow_kftrain.scheduling.model import Partition, Placement, PodSet, Toleration
from airflow_kftrain.scheduling.planner import plan
from airflow_kftrain.scheduling.reasons import Code
from tests.support.gangs import GPU, gpus, request, snapshot

TEAM_B = Toleration("gpu", "Equal", "team-b", "NoSchedule")


def node(name: str, gpu: int | str = 1, *, ready: str = "True", **more: Any) -> dict[str, Any]:
    spec = {k: more.pop(k) for k in ("unschedulable", "taints") if k in more}
    allocatable = more.pop("allocatable", {GPU: str(gpu), "cpu": "8", "memory": "32Gi", "pods": "110"})
    return {
        "metadata": {"name": name, "labels": more.pop("labels", {})},
        "spec": spec,
        "status": {
            "capacity": more.pop("capacity", allocatable),
            "allocatable": allocatable,
            "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": ready}],
        },
    }


def pod(name: str, on: str | None, phase: str = "Running", **requests: str) -> dict[str, Any]:
    asked = {key.replace("_", "/").replace("nvidia/com", "nvidia.com"): v for key, v in requests.items()}
    spec: dict[str, Any] = {"containers": [{"name": "main", "resources": {"requests": asked}}]}
    if on:
        spec["nodeName"] = on
    return {"metadata": {"name": name, "uid": name}, "spec": spec, "status": {"phase": phase}}


def gpu_pod(name: str, on: str | None, phase: str = "Running", gpu: int = 1) -> dict[str, Any]:
    made = pod(name, on, phase)
    made["spec"]["containers"][0]["resources"] = {"limits": {GPU: str(gpu)}}
    return made


def terminating(made: dict[str, Any]) -> dict[str, Any]:
    made["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return made


def decide(nodes: list[dict[str, Any]], pods: list[dict[str, Any]], *gangs: Any) -> Any:
    return plan(snapshot(Partition("p", capacity.nodes_of(nodes, pods)), queue=gangs))


def tolerant(name: str, width: int) -> Any:
    return request(name, podsets=(PodSet("Worker", width, gpus(1), tolerations=(TEAM_B,)),))


def eight_nodes() -> list[dict[str, Any]]:
    return [
        node("n0"), node("n1"), node("n2"), node("n3"),
        node("n4", ready="False"), node("n5", ready="Unknown"), node("n6", unschedulable=True),
        node("n7", taints=[{"key": "gpu", "value": "team-b", "effect": "NoSchedule"}]),
    ]  # fmt: skip


def test_b19_not_ready_cordoned_and_tainted_nodes_are_no_free_capacity() -> None:
    nodes = capacity.nodes_of(eight_nodes(), [])
    plain, with_it = capacity.capacity_of(nodes), capacity.capacity_of(nodes, (TEAM_B,))
    assert (plain.total.gpus, plain.usable.gpus, with_it.usable.gpus) == (8, 4, 5)
    assert dict(plain.apart) == {
        "n4": "not ready",
        "n5": "not ready",
        "n6": "cordoned",
        "n7": "tainted gpu=team-b:NoSchedule",
    }
    assert "n7" not in dict(with_it.apart)


@pytest.mark.parametrize(
    ("gang", "starts"),
    [
        (request("four", 4, pods=4), True),
        (request("five", 5, pods=5), False),
        (tolerant("five", 5), True),
        (tolerant("six", 6), False),
    ],
    ids=[
        "four pods without the toleration start",
        "a fifth pod has no node",
        "with the toleration five start",
        "a sixth pod has no node",
    ],
)
def test_b19_the_decision(gang: Any, starts: bool) -> None:
    made = decide(eight_nodes(), [], gang)
    assert bool(made.starts) is starts
    if not starts:
        (why,) = made.explanations()
        assert why.reason.code is Code.NEVER_FITS
        assert "cannot start" in why.reason.sentence()


def test_b19_a_partition_adds_its_own_tolerations() -> None:
    partition = Partition("p", capacity.nodes_of(eight_nodes(), []), tolerations=(TEAM_B,))
    assert plan(snapshot(partition, queue=[request("five", 5, pods=5)])).starts


def test_b20_finished_pods_use_nothing() -> None:
    pods = [gpu_pod("a", "n0", "Succeeded"), gpu_pod("b", "n0", "Failed")]
    (only,) = capacity.nodes_of([node("n0")], pods)
    assert capacity.capacity_of([only]).free.gpus == 1
    assert decide([node("n0")], pods, request("train")).starts


@pytest.mark.parametrize(
    ("foreign", "starts"),
    [
        (gpu_pod("x", "n0", "Running"), False),
        (gpu_pod("x", "n0", "Pending"), False),
        (terminating(gpu_pod("x", "n0")), False),
        (gpu_pod("x", None, "Pending"), True),
        (gpu_pod("x", "n1", "Running"), True),
    ],
    ids=[
        "a running pod holds its GPU",
        "an assigned pod holds it before it runs",
        "a terminating pod still holds it",
        "a pod without a node holds nothing",
        "a pod on another node holds nothing here",
    ],
)  # fmt: skip
def test_b20_who_holds_a_gpu(foreign: dict[str, Any], starts: bool) -> None:
    assert bool(decide([node("n0")], [foreign], request("train")).starts) is starts


def test_mig_slices_are_counted_by_name_and_never_for_whole_gpus() -> None:
    slices = node("mig", allocatable={"nvidia.com/mig-1g.5gb": "7", "cpu": "8", "pods": "110"})
    seven = request("seven", podsets=(PodSet("Worker", 7, Resources({"nvidia.com/mig-1g.5gb": 1})),))
    eight = request("eight", podsets=(PodSet("Worker", 8, Resources({"nvidia.com/mig-1g.5gb": 1})),))
    whole = request("whole", 1)
    assert [s.request for s in decide([slices], [], seven).starts] == ["seven"]
    assert not decide([slices], [], eight).starts
    (why,) = decide([slices], [], whole).explanations()
    assert why.reason.code is Code.NEVER_FITS
    assert capacity.capacity_of(capacity.nodes_of([slices], [])).total.gpus == 7


def test_allocatable_counts_not_capacity_and_daemon_sets_take_their_part() -> None:
    made = node("n0", capacity={GPU: "8", "cpu": "64"}, allocatable={GPU: "8", "cpu": "60", "pods": "110"})
    daemon = pod("fluent-bit", "n0", cpu="500m")
    fits = PodSet("Worker", 1, Resources({GPU: 8, "cpu": "59500m"}))
    above = PodSet("Worker", 1, Resources({GPU: 8, "cpu": "59501m"}))
    assert decide([made], [daemon], request("fits", podsets=(fits,))).starts
    assert not decide([made], [daemon], request("above", podsets=(above,))).starts


def test_the_effective_request_is_the_larger_of_start_and_run_not_their_sum() -> None:
    made = node("n0", allocatable={"cpu": "4", "pods": "110"})
    spec = {
        "nodeName": "n0",
        "initContainers": [
            {"name": "fetch", "resources": {"requests": {"cpu": "2"}}},
            {"name": "proxy", "restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}},
        ],
        "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}],
    }
    foreign = {"metadata": {"name": "f", "uid": "f"}, "spec": spec, "status": {"phase": "Running"}}
    assert pod_request(spec)["cpu"] == 2
    two = request("two", podsets=(PodSet("Worker", 1, Resources({"cpu": 2})),))
    more = request("more", podsets=(PodSet("Worker", 1, Resources({"cpu": "2001m"})),))
    assert decide([made], [foreign], two).starts
    assert not decide([made], [foreign], more).starts


def test_the_number_of_pods_a_node_takes_counts() -> None:
    made = node("n0", allocatable={"cpu": "64", "pods": "3"})
    three = request("three", podsets=(PodSet("Worker", 3, Resources({"cpu": 1})),))
    assert decide([made], [], three).starts
    assert not decide([made], [pod("kube-proxy", "n0")], three).starts


def test_an_empty_product_label_is_no_kind_of_gpu() -> None:
    empty = capacity.node_of(node("n0", labels={"nvidia.com/gpu.product": ""}))
    named = capacity.node_of(node("n1", labels={"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}))
    assert [capacity.node_class(n) for n in (empty, named)] == [GPU, "NVIDIA-A100-SXM4-80GB"]


def gang_pod(replica_type: str, index: int, on: str, **metadata: Any) -> dict[str, Any]:
    made = gpu_pod(f"{replica_type}-{index}-{on}", on)
    made["metadata"].update(metadata)
    made["metadata"]["labels"] = {
        "training.kubeflow.org/replica-type": replica_type,
        "training.kubeflow.org/replica-index": str(index),
    }
    return made


def test_a_gang_is_charged_with_live_pods_else_with_its_assigned_nodes() -> None:
    assigned = {("Worker", 0): "n0", ("Worker", 1): "n1", ("Worker", 2): "n2"}
    pods = [
        gang_pod("worker", 0, "n5"),  # bound elsewhere
        gang_pod(
            "worker", 7, "n6", deletionTimestamp="2026-01-01T00:00:00Z"
        ),  # beyond the size, on its way out
    ]
    assert capacity.placements(pods, assigned) == (
        Placement("Worker", "n1", 1),
        Placement("Worker", "n2", 1),
        Placement("Worker", "n5", 1),
        Placement("Worker", "n6", 1),
    )


def test_drift_is_what_is_charged_without_a_pod() -> None:
    assert capacity.drift(gpus(3), [gang_pod("worker", 0, "n0"), gang_pod("worker", 1, "n1")]) == gpus(1)
    assert not capacity.drift(gpus(1), [gang_pod("worker", 0, "n0")])


def test_a_partition_is_the_nodes_its_selector_names() -> None:
    nodes = [node("a", labels={"pool": "a100"}), node("b", labels={"pool": "h100"}), node("c")]
    assert [n.name for n in capacity.nodes_of(nodes, [], selector={"pool": "a100"})] == ["a"]
