"""Addresses as processes get to see them: every (pod, port) has a host port of its own."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_kftrain.local.kubelet.names import Endpoint, Names, aliases, container_ports
from airflow_kftrain.local.kubelet.ports import PortTable
from airflow_kftrain.local.kubelet.rewrite import Rewriter
from tests.support.pods import container, pod, service

JOB = {"training.kubeflow.org/job-name": "tf"}


def table(*busy: int) -> PortTable:
    """Ports from 20000 on; those ``busy`` cannot be listened on."""
    ports = itertools.count(20000)
    return PortTable(lambda: next(ports), lambda port: None, lambda port: port not in busy)


def told(ports: PortTable, user: str = "uid") -> Callable[[Endpoint], int]:
    return lambda endpoint: ports.host_port(endpoint, user)


def rewriter(*, own: int | None = None, services: list | None = None, pods: list | None = None) -> Rewriter:
    """That of tf-worker-0 in a namespace with the jobs tf and not-tf; its port is 20000, tf-worker-1's 20001."""
    known = pods or [
        pod("tf-worker-0", labels=JOB),
        pod("not-tf-worker-0", labels={"training.kubeflow.org/job-name": "not-tf"}),
    ]
    ports = table()
    for name in ("tf-worker-0", "tf-worker-1", "tf-worker-10", "not-tf-worker-0"):
        ports.host_port(Endpoint("default", name, 2222), "uid")
    mine = {own: ports.own(Endpoint("default", "tf-worker-0", own), "uid")} if own else {}
    return Rewriter(Names.known("default", known, services or []), told(ports), mine)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("tf-worker-1:2222", "127.0.0.1:20001", id="name and port"),
        pytest.param("tf-worker-10:2222", "127.0.0.1:20002", id="a longer index is another pod"),
        pytest.param("not-tf-worker-0:2222", "127.0.0.1:20003", id="a longer job name is another job"),
        pytest.param("x-tf-worker-0:2222", "x-tf-worker-0:2222", id="an unknown job is left alone"),
        pytest.param("tf-worker-1.default:2222", "127.0.0.1:20001", id="name.namespace"),
        pytest.param("tf-worker-1.default.svc:2222", "127.0.0.1:20001", id="name.namespace.svc"),
        pytest.param("tf-worker-1.default.svc.cluster.local:2222", "127.0.0.1:20001", id="whole name"),
        pytest.param("anything.other.svc:80", "127.0.0.1:20004", id="a .svc name needs no Service"),
        pytest.param("tf-worker-1", "127.0.0.1", id="bare name"),
        pytest.param("tcp://tf-worker-1:2222/path", "tcp://127.0.0.1:20001/path", id="URL"),
        pytest.param("http://tf-worker-1/path", "http://127.0.0.1/path", id="URL without port"),
        pytest.param("tf-worker-0:2222,tf-worker-1:2222", "127.0.0.1:20000,127.0.0.1:20001", id="list"),
        pytest.param("/data/tf-worker-1/shard", "/data/tf-worker-1/shard", id="part of a path"),
        pytest.param("tf-worker-1/shard", "tf-worker-1/shard", id="relative path"),
        pytest.param("tf-worker-1.csv", "tf-worker-1.csv", id="file name"),
        pytest.param("my_tf-worker-1", "my_tf-worker-1", id="part of a longer word"),
        pytest.param("tf-worker-1_x", "tf-worker-1_x", id="part of a longer word, after it"),
        pytest.param("example.com:2222", "example.com:2222", id="a name of the world"),
        pytest.param("10.0.0.7:2222", "10.0.0.7:2222", id="an address"),
        pytest.param("0.0.0.0:2222", "0.0.0.0:20000", id="own port on the wildcard address"),
        pytest.param("localhost:2223", "localhost:2223", id="a port that is not declared"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_addresses_in_text(text: str, expected: str):
    assert rewriter(own=2222).text(text) == expected


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        pytest.param(
            {"MASTER_ADDR": "tf-worker-1", "MASTER_PORT": "2222"},
            {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "20001"},
            id="X_ADDR and X_PORT are one address",
        ),
        pytest.param(
            {"PET_MASTER_PORT": "2222", "PET_MASTER_ADDR": "tf-worker-1"},
            {"PET_MASTER_PORT": "20001", "PET_MASTER_ADDR": "127.0.0.1"},
            id="in any order",
        ),
        pytest.param(
            {"PET_RDZV_ENDPOINT": "tf-worker-1:2222"}, {"PET_RDZV_ENDPOINT": "127.0.0.1:20001"}, id="endpoint"
        ),
        pytest.param(
            {"WORKER_PORT": "2222"}, {"WORKER_PORT": "20000"}, id="a lone port that is the pod's own"
        ),
        pytest.param({"RETRIES": "2222"}, {"RETRIES": "2222"}, id="a number that is no port"),
        pytest.param(
            {"DB_HOST": "db.example.com", "DB_PORT": "2222"},
            {"DB_HOST": "db.example.com", "DB_PORT": "2222"},
            id="a pair that leads out of the cluster",
        ),
        pytest.param(
            {"POD_NAME": "tf-worker-0"}, {"POD_NAME": "tf-worker-0"}, id="a name that is an identity"
        ),
        pytest.param(
            {"WORKER_ADDRS": "tf-worker-0,tf-worker-1"}, {"WORKER_ADDRS": "127.0.0.1,127.0.0.1"}, id="a list"
        ),
        pytest.param(
            {"MASTER_ADDR": "localhost", "MASTER_PORT": "2222"},
            {"MASTER_ADDR": "localhost", "MASTER_PORT": "20000"},
            id="itself as localhost",
        ),
    ],
)
def test_addresses_in_the_environment(env: dict, expected: dict):
    assert rewriter(own=2222).environment(env) == expected


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        pytest.param(
            ["t.py", "--master-addr", "tf-worker-1", "--master-port", "2222"],
            ["t.py", "--master-addr", "127.0.0.1", "--master-port", "20001"],
            id="two words each",
        ),
        pytest.param(
            ["t.py", "--master_addr=tf-worker-1", "--master_port=2222"],
            ["t.py", "--master_addr=127.0.0.1", "--master_port=20001"],
            id="with an equals sign",
        ),
        pytest.param(["s.py", "--port", "2222"], ["s.py", "--port", "20000"], id="own port"),
        pytest.param(["s.py", "--bind=0.0.0.0:2222"], ["s.py", "--bind=0.0.0.0:20000"], id="own address"),
        pytest.param(["s.py", "--steps", "2222"], ["s.py", "--steps", "2222"], id="no port"),
        pytest.param(
            ["sh", "-c", "nc tf-worker-1 2222"], ["sh", "-c", "nc 127.0.0.1 2222"], id="names in scripts"
        ),
    ],
)
def test_addresses_in_arguments(argv: list[str], expected: list[str]):
    assert rewriter(own=2222).arguments(argv) == expected


def test_values_that_name_the_pod_by_a_field_are_kept():
    env = {"MY_POD": "tf-worker-0"}
    assert rewriter().environment(env, keep=frozenset({"MY_POD"})) == env


def test_tf_config_stays_json_and_every_task_has_its_own_port():
    config = {"cluster": {"worker": ["tf-worker-0.default.svc:2222", "tf-worker-1.default.svc:2222"]}}
    rewritten = json.loads(rewriter().text(json.dumps(config)))
    assert rewritten == {"cluster": {"worker": ["127.0.0.1:20000", "127.0.0.1:20001"]}}


def test_a_service_leads_to_the_pod_it_selects_and_to_its_target_port():
    serving = pod(
        "web-abc",
        labels={"app": "web"},
        containers=[container(ports=[{"name": "http", "containerPort": 8000}])],
    )
    svc = service("web", {"app": "web"}, [(80, "http")])
    ports = table()
    own = ports.own(Endpoint("default", "web-abc", 8000), "web")
    rewriting = Rewriter(Names.known("default", [serving], [svc]), told(ports))
    assert rewriting.text("http://web:80/x") == f"http://127.0.0.1:{own}/x"


def test_a_pod_takes_over_the_port_under_which_its_service_is_known_already():
    svc = service("web", {"app": "web"}, [(80, 8000)])
    ports = table()
    early = Rewriter(Names.known("default", [], [svc]), told(ports)).text("web:80")
    serving = pod("web-abc", labels={"app": "web"}, containers=[container(ports=[{"containerPort": 8000}])])
    (port,) = container_ports(serving)
    own = ports.own(Endpoint("default", "web-abc", port), "web", aliases(serving, [svc])[port])
    assert early == f"127.0.0.1:{own}"


def test_a_pod_with_hostname_and_subdomain_is_known_by_them():
    member = pod("x-1", hostname="node-0", subdomain="gang")
    rewriting = rewriter(pods=[member])
    assert rewriting.text("node-0.gang.default.svc:29500") == rewriting.text("node-0.gang:29500")


MASTER = Endpoint("default", "tf-worker-0", 2222)


def test_a_pod_made_anew_under_its_name_keeps_the_port_that_its_peers_know():
    ports = table(20000)
    first = ports.own(MASTER, "uid-1")
    assert ports.host_port(MASTER, "peer") == first
    ports.release("uid-1")
    assert ports.own(MASTER, "uid-2") == first


def test_a_gang_made_anew_gets_another_port_while_the_old_one_lingers():
    ports = table(20000)
    assert ports.own(MASTER, "uid-1") == ports.host_port(MASTER, "peer-1") == 20000
    ports.release("uid-1")
    ports.release("peer-1")
    assert ports.host_port(MASTER, "peer-2") == ports.own(MASTER, "uid-2") == 20001


def test_a_gang_made_anew_keeps_a_port_that_is_free():
    ports = table()
    first = ports.own(MASTER, "uid-1")
    ports.release("uid-1")
    assert ports.own(MASTER, "uid-2") == first


def test_a_port_is_forgotten_once_nobody_stands_behind_its_name():
    given_back: list[int] = []
    ports = PortTable(itertools.count(20000).__next__, given_back.append, lambda port: True)
    first = ports.own(MASTER, "uid-1")
    ports.forget(lambda endpoint: False)
    assert given_back == []
    ports.release("uid-1")
    ports.forget(lambda endpoint: True)
    assert given_back == []
    ports.forget(lambda endpoint: False)
    assert given_back == [first]


_RECORDED = Path(__file__).parents[2] / "controllers" / "data" / "recorded-objects.json"


@pytest.mark.skipif(not _RECORDED.exists(), reason=f"{_RECORDED} is not there")
def test_every_address_of_the_recorded_pods_becomes_local():
    for job in json.loads(_RECORDED.read_text()).values():
        ports = table()
        names = Names.known("default", job["pods"], [])
        rewriting = Rewriter(names, told(ports))
        for recorded in job["pods"]:
            for env in recorded["spec"]["containers"][0].get("env") or ():
                text = rewriting.environment({env["name"]: env["value"]})[env["name"]]
                assert recorded["metadata"]["name"] not in text, (env, text)
