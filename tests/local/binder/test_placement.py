"""What one look at the cluster decides: whole gangs, or nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_kftrain.local.placement import Placement, decide
from tests.support.pods import container, node, pod, pod_group


def places(placement: Placement) -> dict[str, str]:
    return {b.name: b.node for b in placement.bindings}


def reasons(placement: Placement) -> dict[str, str]:
    return {w.name: w.message for w in placement.waiting}


def gang(name: str, size: int, *, gpus: int = 1, created: str = "2026-01-01T00:00:00Z") -> list[dict]:
    return [pod(f"{name}-worker-{i}", group=name, gpus=gpus, created=created) for i in range(size)]


def test_a_gang_that_fits_is_placed_whole():
    placed = places(decide([node("a", gpus=2), node("b", gpus=2)], gang("j", 3), [pod_group("j", 3)]))
    assert sorted(placed) == ["j-worker-0", "j-worker-1", "j-worker-2"]
    assert sorted(placed.values()) in (["a", "a", "b"], ["a", "b", "b"])


def test_a_gang_that_does_not_fit_gets_nothing_and_a_sentence_that_counts():
    decision = decide([node("a", gpus=2)], gang("j", 3), [pod_group("j", 3)])
    assert decision.bindings == ()
    (sentence,) = set(reasons(decision).values())
    assert sentence == (
        "gang default/j: 3 pods must be placed at once and 2 can be; "
        "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    )


def test_two_half_gangs_never_block_each_other():
    pods = gang("old", 3) + gang("young", 3, created="2026-01-01T00:01:00Z")
    decision = decide([node("a", gpus=4)], pods, [pod_group("old", 3), pod_group("young", 3)])
    assert sorted(places(decision)) == [f"old-worker-{i}" for i in range(3)]


def test_a_gang_behind_one_that_does_not_fit_goes_first():
    pods = gang("large", 5) + gang("small", 2, created="2026-01-01T00:01:00Z")
    decision = decide([node("a", gpus=4)], pods, [pod_group("large", 5), pod_group("small", 2)])
    assert sorted(places(decision)) == ["small-worker-0", "small-worker-1"]


def test_higher_priority_goes_first_however_young():
    pods = gang("old", 3) + [
        {**p, "spec": {**p["spec"], "priority": 5}} for p in gang("urgent", 3, created="2026-02-01T00:00:00Z")
    ]
    decision = decide([node("a", gpus=3)], pods, [pod_group("old", 3), pod_group("urgent", 3)])
    assert set(places(decision)) == {f"urgent-worker-{i}" for i in range(3)}


def test_a_gang_waits_until_its_pods_exist():
    decision = decide([node("a", gpus=8)], gang("j", 2), [pod_group("j", 3)])
    assert reasons(decision)["j-worker-0"] == "gang default/j: 2 of its 3 pods exist"
    assert not decision.bindings


def test_a_gang_waits_for_its_pod_group():
    decision = decide([node("a", gpus=8)], gang("j", 2), [])
    assert reasons(decision)["j-worker-1"] == "PodGroup default/j does not exist"


def test_an_elastic_gang_starts_with_its_least_and_the_rest_waits():
    decision = decide([node("a", gpus=2)], gang("j", 4), [pod_group("j", 2)])
    assert sorted(places(decision)) == ["j-worker-0", "j-worker-1"]
    assert "Insufficient nvidia.com/gpu" in reasons(decision)["j-worker-3"]


def test_a_restarted_member_joins_a_running_gang_alone():
    running = [pod(f"j-worker-{i}", group="j", gpus=1, node="a", phase="Running") for i in range(2)]
    fresh = pod("j-worker-2", group="j", gpus=1)
    assert places(decide([node("a", gpus=4)], [*running, fresh], [pod_group("j", 3)])) == {"j-worker-2": "a"}


@pytest.mark.parametrize(
    ("phase", "deleted", "joins"),
    [
        pytest.param("Succeeded", False, True, id="a member that succeeded counts"),
        pytest.param("Failed", False, False, id="a failed member is to be made anew: it does not count"),
        pytest.param("Running", True, False, id="a member that is being deleted does not count"),
    ],
)
def test_which_members_count(phase: str, deleted: bool, joins: bool):
    others = [
        pod(f"j-worker-{i}", group="j", gpus=1, node="a", phase=phase, deleted=deleted) for i in range(2)
    ]
    placed = places(
        decide([node("a", gpus=8)], [*others, pod("j-worker-2", group="j", gpus=1)], [pod_group("j", 3)])
    )
    assert placed == ({"j-worker-2": "a"} if joins else {})


def test_worker_2_comes_before_worker_10():
    pods = [pod(f"j-worker-{i}", group="j", gpus=1) for i in (10, 2, 1)]
    placed = places(decide([node("a", gpus=2)], pods, [pod_group("j", 2)]))
    assert sorted(placed) == ["j-worker-1", "j-worker-2"]


def test_small_pods_go_to_the_fullest_node_so_that_whole_nodes_stay_free():
    nodes = [node("big", gpus=8), node("small", gpus=2)]
    assert places(decide(nodes, [pod("p", gpus=1)], [])) == {"p": "small"}


def test_a_mixed_gang_is_placed_even_where_greedy_choices_fail():
    # Largest first puts both 3s on one node of 7, and the four 2s do not fit on the other.
    sizes = [3, 3, 2, 2, 2, 2]
    pods = [pod(f"p-{i}", group="g", gpus=size) for i, size in enumerate(sizes)]
    decision = decide([node("a", gpus=7), node("b", gpus=7)], pods, [pod_group("g", 6)])
    assert len(decision.bindings) == 6


def test_finished_pods_use_nothing_b20():
    nodes = [node("a", gpus=1)]
    ended = [pod("s", node="a", gpus=1, phase="Succeeded"), pod("f", node="a", gpus=1, phase="Failed")]
    assert places(decide(nodes, [*ended, pod("new", gpus=1)], [])) == {"new": "a"}


def test_a_pod_that_is_being_deleted_holds_its_gpu_until_it_is_gone():
    going = pod("old", node="a", gpus=1, phase="Running", deleted=True)
    assert not decide([node("a", gpus=1)], [going, pod("new", gpus=1)], []).bindings


def test_b19_nodes_that_are_not_ready_cordoned_or_tainted_take_nothing():
    taint = {"key": "gpu", "value": "team-b", "effect": "NoSchedule"}
    nodes = [
        node("down", gpus=1, ready="Unknown"),
        node("cordoned", gpus=1, unschedulable=True),
        node("tainted", gpus=1, taints=[taint]),
        node("free", gpus=1),
    ]
    first, second = pod("first", gpus=1), pod("second", gpus=1)
    decision = decide(nodes, [first, second], [])
    assert places(decision) == {"first": "free"}
    assert reasons(decision)["second"] == (
        "0/4 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) had untolerated taint {gpu: team-b}, "
        "1 node(s) were not ready, 1 node(s) were unschedulable."
    )
    tolerant = pod("tolerant", gpus=1, tolerations=[{"key": "gpu", "operator": "Exists"}])
    assert places(decide(nodes, [first, tolerant], []))["tolerant"] in {"tainted", "free"}


def _affinity(*expressions: dict) -> dict:
    terms = [{"matchExpressions": list(expressions)}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": required}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({"nodeSelector": {"zone": "x"}}, {"x"}, id="node selector"),
        pytest.param(_affinity({"key": "zone", "operator": "In", "values": ["y", "q"]}), {"y"}, id="In"),
        pytest.param(
            _affinity({"key": "zone", "operator": "NotIn", "values": ["x"]}), {"y", "bare"}, id="NotIn"
        ),
        pytest.param(_affinity({"key": "zone", "operator": "Exists"}), {"x", "y"}, id="Exists"),
        pytest.param(_affinity({"key": "zone", "operator": "DoesNotExist"}), {"bare"}, id="DoesNotExist"),
        pytest.param(_affinity({"key": "size", "operator": "Gt", "values": ["3"]}), {"y"}, id="Gt"),
        pytest.param(_affinity({"key": "size", "operator": "Lt", "values": ["4"]}), {"x"}, id="Lt"),
        pytest.param(_affinity(), set(), id="an empty term matches nothing"),
    ],
)
def test_required_placement_is_honoured(spec: dict, expected: set[str]):
    nodes = [
        node("x", labels={"zone": "x", "size": "3"}),
        node("y", labels={"zone": "y", "size": "4"}),
        node("bare"),
    ]
    pods = [pod(f"p-{i}", cpu="60", **spec) for i in range(3)]
    for p in pods:
        p["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "60"}}
    assert set(places(decide(nodes, pods, [])).values()) == expected


def test_the_request_is_that_of_init_containers_and_sidecars_too():
    inits = [
        container("sidecar", restartPolicy="Always", resources={"requests": {"cpu": "2"}}),
        container("prepare", resources={"requests": {"cpu": "5"}}),
    ]
    needy = pod("p", initContainers=inits)
    needy["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "4"}}
    assert not decide([node("a", cpu="6")], [needy], []).bindings
    assert decide([node("a", cpu="7")], [needy], []).bindings


def test_gated_pods_wait_and_unreadable_amounts_are_named():
    gated = pod("gated", schedulingGates=[{"name": "x"}])
    broken = pod("broken")
    broken["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "0.5"}}
    decision = decide([node("a", gpus=1)], [gated, broken, pod("fine")], [])
    assert places(decision) == {"fine": "a"}
    assert "scheduling gates" in reasons(decision)["gated"]
    assert "nvidia.com/gpu" in reasons(decision)["broken"]


def test_no_nodes_at_all():
    assert reasons(decide([], [pod("p")], []))["p"] == "0/0 nodes are available: there is no node."


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 8), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3)), min_size=1, max_size=5),
)
def test_no_node_is_ever_overfull_and_no_gang_ever_half(node_gpus: list[int], gangs: list[tuple[int, int]]):
    nodes = [node(f"n{i}", gpus=gpus) for i, gpus in enumerate(node_gpus)]
    pods = [p for i, (size, gpus) in enumerate(gangs) for p in gang(f"g{i}", size, gpus=gpus)]
    groups = [pod_group(f"g{i}", size) for i, (size, _) in enumerate(gangs)]
    decision = decide(nodes, pods, groups)
    by_uid = {p["metadata"]["uid"]: p for p in pods}
    used = dict.fromkeys((n["metadata"]["name"] for n in nodes), 0)
    members: dict[str, int] = {}
    for binding in decision.bindings:
        found = by_uid[binding.uid]
        limits = found["spec"]["containers"][0]["resources"].get("limits", {})
        used[binding.node] += int(limits.get("nvidia.com/gpu", 0))
        name = binding.name.rsplit("-worker-", 1)[0]
        members[name] = members.get(name, 0) + 1
    assert all(used[f"n{i}"] <= gpus for i, gpus in enumerate(node_gpus))
    assert all(members[f"g{i}"] in (size,) for i, (size, _) in enumerate(gangs) if f"g{i}" in members)
    assert {b.uid for b in decision.bindings} | {w.uid for w in decision.waiting} == set(by_uid)
