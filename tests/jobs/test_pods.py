from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.jobs.manifest import from_manifest
from airflow_kftrain.jobs.pods import GangRequest, charged, pod_limit, pod_request
from airflow_kftrain.jobs.resources import Resources
from tests.support.jobs import manifest, pod_template


def container(requests=None, limits=None, **fields):
    return {"resources": {"requests": requests or {}, "limits": limits or {}}, **fields}


def sidecar(**requests):
    return container(requests, restartPolicy="Always")


CASES = {
    "containers add up": (
        {"containers": [container({"cpu": 1}), container({"cpu": "500m", "memory": "1Gi"})]},
        {"cpu": "1500m", "memory": "1Gi"},
    ),
    "the largest init container counts, not their sum": (
        {
            "initContainers": [container({"cpu": 3}), container({"cpu": 2})],
            "containers": [container({"cpu": 1})],
        },
        {"cpu": 3},
    ),
    "the maximum is taken per resource": (
        {
            "initContainers": [container({"cpu": 4, "memory": "1Gi"})],
            "containers": [container({"cpu": 1, "memory": "2Gi"})],
        },
        {"cpu": 4, "memory": "2Gi"},
    ),
    "a sidecar adds to the containers": (
        {"initContainers": [sidecar(cpu=1)], "containers": [container({"cpu": 2})]},
        {"cpu": 3},
    ),
    "an init container runs beside the sidecars before it": (
        {"initContainers": [sidecar(cpu=1), container({"cpu": 5})], "containers": [container({"cpu": 2})]},
        {"cpu": 6},
    ),
    "an init container does not run beside the sidecars after it": (
        {"initContainers": [container({"cpu": 5}), sidecar(cpu=1)], "containers": [container({"cpu": 2})]},
        {"cpu": 5},
    ),
    "a limit stands in for an absent request": (
        {"containers": [container({"cpu": 1}, {"cpu": 2, "nvidia.com/gpu": 1})]},
        {"cpu": 1, "nvidia.com/gpu": 1},
    ),
    "overhead is added": (
        {
            "overhead": {"cpu": "250m"},
            "initContainers": [container({"cpu": 3})],
            "containers": [container({"cpu": 1})],
        },
        {"cpu": "3250m"},
    ),
    "what the pod as a whole requests takes the place of the sum": (
        {"resources": {"requests": {"cpu": 4}}, "containers": [container({"cpu": 1, "memory": "1Gi"})]},
        {"cpu": 4, "memory": "1Gi"},
    ),
    "a limit of the pod as a whole does not, where containers request": (
        {"resources": {"limits": {"cpu": 4, "memory": "2Gi"}}, "containers": [container({"cpu": 1})]},
        {"cpu": 1, "memory": "2Gi"},
    ),
    "nothing asked for is nothing": ({"containers": [{"name": "a"}, {"resources": None}]}, {}),
}


@pytest.mark.parametrize(("pod", "expected"), CASES.values(), ids=CASES)
def test_kubernetes119406_the_effective_request_is_the_schedulers(pod, expected):
    assert pod_request(pod) == Resources(expected)


cpus = st.integers(0, 8)
inits = st.lists(st.tuples(cpus, st.booleans()), max_size=5)


@given(inits, st.lists(cpus, max_size=4))
def test_kubernetes119406_the_effective_request_is_the_peak_over_the_pods_life(init, main):
    """Play the pod's life: sidecars stay, init containers come and go, then all containers run."""
    running = peak = 0
    for cpu, stays in init:
        peak = max(peak, running + cpu)
        running += cpu if stays else 0
    peak = max(peak, running + sum(main))
    pod = {
        "initContainers": [sidecar(cpu=c) if stays else container({"cpu": c}) for c, stays in init],
        "containers": [container({"cpu": c}) for c in main],
    }
    assert pod_request(pod).amount("cpu") == peak


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        ({"containers": [container({"cpu": 9}, {"cpu": 1}), container({"cpu": 9})]}, {"cpu": 1}),
        (
            {
                "initContainers": [
                    container(limits={"cpu": 5}),
                    container(limits={"cpu": 1}, restartPolicy="Always"),
                ]
            }
            | {"containers": [container(limits={"cpu": 2})]},
            {"cpu": 5},
        ),
        ({"overhead": {"cpu": 1}, "containers": [container(limits={"cpu": 2})]}, {"cpu": 3}),
        ({"resources": {"limits": {"cpu": 4}}, "containers": [container(limits={"cpu": 2})]}, {"cpu": 4}),
    ],
    ids=["requests do not count", "init containers and sidecars", "overhead", "of the pod as a whole"],
)
def test_kubernetes119406_the_effective_limit_follows_the_same_rule(pod, expected):
    assert pod_limit(pod) == Resources(expected)


def gang(kind, replicas, **resources):
    return from_manifest(manifest(kind, replicas=replicas, template=pod_template(kind, resources=resources)))


def test_a_gang_asks_for_all_its_replicas():
    spec = gang("PyTorchJob", {"Worker": 3, "Master": 1}, limits={"nvidia.com/gpu": 2, "cpu": 4})
    request = GangRequest.of(spec)
    assert [(r.replica_type, r.count) for r in request.replicas] == [("Master", 1), ("Worker", 3)]
    assert request.total == Resources({"nvidia.com/gpu": 8, "cpu": 16})
    assert (request.gpus, request.pods) == (8, 4)


def test_an_elastic_gang_can_be_counted_at_its_minimum():
    spec = gang("PyTorchJob", {"Worker": 4}, limits={"nvidia.com/gpu": 1})
    assert GangRequest.of(spec, {"Worker": 1}).gpus == 1


def test_volcano2181_a_gang_of_mig_slices_has_gpus():
    spec = gang("XGBoostJob", {"Master": 1, "Worker": 2}, limits={"nvidia.com/mig-3g.20gb": 1})
    assert GangRequest.of(spec).gpus == 3


def test_an_illegal_quantity_names_its_container():
    with pytest.raises(InvalidInput, match=r"^spec\.initContainers\[1\]\.resources\.requests\.cpu: 'x'"):
        pod_request({"initContainers": [container(), container({"cpu": "x"})]})


def test_b20_pods_in_a_final_phase_and_pods_without_a_node_hold_nothing():
    def pod(phase, node="n1"):
        spec = {"containers": [container({"nvidia.com/gpu": 1})], **({"nodeName": node} if node else {})}
        return {"spec": spec, "status": {"phase": phase}}

    pods = [
        pod("Succeeded"),
        pod("Failed"),
        pod("Running"),
        pod("Pending"),
        pod("Pending", None),
        pod("Unknown"),
    ]
    assert charged(pods).gpus == 3
