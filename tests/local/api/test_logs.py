"""Containers' logs, as the kubelet writes them, through every client."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable
from typing import Any

import pytest

from airflow_kftrain.cluster.resources import PODS
from airflow_kftrain.local.kubelet.logs import ContainerLog
from tests.local.api.clients import AsyncClient, Client, Kubectl, OfficialClient, Refused
from tests.local.api.conftest import ControlPlane
from tests.local.api.objects import pod

pytestmark = pytest.mark.needs("logs")

Json = dict[str, Any]
Begin = Callable[..., Any]


@pytest.fixture
def begin(control_plane: ControlPlane) -> Begin:
    """Starts a container's log, in the server's own thread, as its kubelet would."""
    local = control_plane.local
    assert local is not None

    def start(made: Json, container: str = "main", number: int = 0) -> _Log:
        async def open_log() -> ContainerLog:
            return local.logs.begin(made["metadata"]["uid"], container, number)

        return _Log(control_plane, local.run(open_log()))

    return start


class _Log:
    """A log that another thread writes."""

    def __init__(self, control_plane: ControlPlane, log: ContainerLog) -> None:
        assert control_plane.local is not None
        self._run = control_plane.local.run
        self._log = log

    def write(self, text: str) -> None:
        async def write() -> None:
            self._log.write(text.encode())

        self._run(write())

    def close(self) -> None:
        async def close() -> None:
            self._log.close()

        self._run(close())


def _placed(client: Client, namespace: str, name: str = "p", **spec: Any) -> Json:
    return client.create(PODS, pod(name, nodeName="node-1", **spec), namespace)


def test_a_log_is_read_whole_and_in_part(client: Client, namespace: str, begin: Begin):
    log = begin(_placed(client, namespace))
    log.write("one\ntwo\nthree é\n")
    log.close()
    assert client.logs("p", namespace) == "one\ntwo\nthree é\n"
    assert client.logs("p", namespace, tail_lines=2) == "two\nthree é\n"
    assert client.logs("p", namespace, tail_lines=0) == ""
    assert client.logs("p", namespace, limit_bytes=5) == "one\nt"
    assert client.logs("p", namespace, since_seconds=3600) == "one\ntwo\nthree é\n"
    stamped = client.logs("p", namespace, timestamps=True, tail_lines=1)
    stamp, _, text = stamped.partition(" ")
    assert abs(dt.datetime.now(dt.UTC) - dt.datetime.fromisoformat(stamp)) < dt.timedelta(minutes=1)
    assert text == "three é\n"


def test_the_previous_start_has_a_log_of_its_own(client: Client, namespace: str, begin: Begin):
    made = _placed(client, namespace)
    first = begin(made, number=0)
    first.write("crashed\n")
    first.close()
    with pytest.raises(Refused, match='previous terminated container "main" in pod "p" not found'):
        client.logs("p", namespace, previous=True)
    begin(made, number=1).write("again\n")
    assert client.logs("p", namespace, previous=True) == "crashed\n"
    assert client.logs("p", namespace) == "again\n"


def test_which_container_must_be_clear(
    official: OfficialClient, asynchronous: AsyncClient, namespace: str, begin: Begin
):
    made = pod("p", nodeName="node-1")
    made["spec"]["containers"].append({"name": "side", "image": "busybox"})
    made["spec"]["initContainers"] = [{"name": "init", "image": "busybox"}]
    stored = official.create(PODS, made, namespace)
    log = begin(stored, "side")
    log.write("beside\n")
    for client in (official, asynchronous):
        with pytest.raises(
            Refused, match=r"choose one of: \[main side\] or one of the init containers: \[init\]"
        ):
            client.logs("p", namespace)
        with pytest.raises(Refused, match="container nope is not valid for pod p"):
            client.logs("p", namespace, container="nope")
        with pytest.raises(
            Refused, match='container "main" in pod "p" is waiting to start: ContainerCreating'
        ):
            client.logs("p", namespace, container="main")
        assert client.logs("p", namespace, container="side") == "beside\n"


def test_kubectl_chooses_the_first_container(kubectl: Kubectl, namespace: str, begin: Begin):
    made = pod("p", nodeName="node-1")
    made["spec"]["containers"].append({"name": "side", "image": "busybox"})
    stored = kubectl.create(PODS, made, namespace)
    begin(stored, "main").write("first\n")
    begin(stored, "side").write("second\n")
    assert kubectl.logs("p", namespace) == "first\n"
    assert sorted(kubectl.run("logs", "-n", namespace, "p", "--all-containers", "--prefix").splitlines()) == [
        "[pod/p/main] first",
        "[pod/p/side] second",
    ]


def test_a_pod_without_a_node_has_an_empty_log(client: Client, namespace: str):
    client.create(PODS, pod(), namespace)
    assert client.logs("p", namespace) == ""


def test_a_pod_that_is_not_there_has_none(client: Client, namespace: str):
    with pytest.raises(Refused) as refused:
        client.logs("p", namespace)
    assert refused.value.reason == "NotFound"


@pytest.mark.parametrize("previous", ["tail_lines", "since_seconds"])
def test_a_value_that_means_nothing_is_refused(official: OfficialClient, namespace: str, previous: str):
    _placed(official, namespace)
    with pytest.raises(Refused) as refused:
        official.logs("p", namespace, **{previous: -1})
    assert refused.value.reason == "BadRequest"


def test_kubectl_follows_until_the_container_ends(kubectl: Kubectl, namespace: str, begin: Begin):
    log = begin(_placed(kubectl, namespace))
    log.write("one\n")
    following = kubectl.start("logs", "-n", namespace, "-f", "p")
    timer = threading.Timer(20, following.kill)
    timer.start()
    try:
        assert following.stdout is not None
        assert following.stdout.readline() == "one\n"
        log.write("two\n")
        assert following.stdout.readline() == "two\n"
        log.write("three, without an end")
        log.close()
        rest, error = following.communicate(timeout=20)
    finally:
        timer.cancel()
        following.kill()
    assert (rest, following.returncode) == ("three, without an end", 0), error


def test_the_official_watch_follows_a_log(official: OfficialClient, namespace: str, begin: Begin):
    import kubernetes

    log = begin(_placed(official, namespace))
    log.write("one\n")
    stream = kubernetes.watch.Watch().stream(official.core.read_namespaced_pod_log, "p", namespace)
    assert next(stream) == "one"
    log.write("two\n")
    assert next(stream) == "two"
    log.close()
    assert list(stream) in ([], [""])


def test_the_asyncio_client_follows_a_log(asynchronous: AsyncClient, namespace: str, begin: Begin):
    log = begin(_placed(asynchronous, namespace))
    log.write("one\n")

    async def follow() -> list[bytes]:
        response = await asynchronous.core.read_namespaced_pod_log(
            "p", namespace, follow=True, _preload_content=False
        )
        lines = [await response.content.readline()]
        await asynchronous._loop.run_in_executor(None, log.write, "two\n")
        lines.append(await response.content.readline())
        await asynchronous._loop.run_in_executor(None, log.close)
        return [*lines, await response.read()]

    assert asynchronous._wait(follow()) == [b"one\n", b"two\n", b""]


def test_followers_of_many_pods_by_label(kubectl: Kubectl, namespace: str, begin: Begin):
    for name in ("a", "b"):
        made = kubectl.create(PODS, pod(name, labels={"x": "1"}, nodeName="node-1"), namespace)
        log = begin(made)
        log.write(f"from {name}\n")
        log.close()
    assert sorted(kubectl.run("logs", "-n", namespace, "-lx=1").splitlines()) == ["from a", "from b"]
