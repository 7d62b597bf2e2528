"""A node of ours as the real API server sees it: kept alive, and asked for logs."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from airflow_kftrain.cluster.client import Cluster
from airflow_kftrain.cluster.resources import LEASES, NODES, PODS
from airflow_kftrain.exceptions import ApiError
from tests.controlplane.rig import Rig
from tests.controlplane.training.conftest import NODE_NAMES
from tests.support.live import Live
from tests.support.requires import require_program

LINES = "import sys\nfor n in range(5): print('line', n, flush=True)\nsys.stdin.close()"
WAITS = "import time\nprint('begun', flush=True)\ntime.sleep(600)"

pytestmark = pytest.mark.usefixtures("joined")


@pytest_asyncio.fixture
async def live(cluster: Cluster, namespace: str) -> AsyncIterator[Live]:
    yield Live(cluster, namespace)


async def kubectl(rig: Rig, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = require_program("kubectl", "logs are read through it")
    return await asyncio.to_thread(
        subprocess.run,
        [program, "--kubeconfig", str(rig.kubeconfig), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


async def test_kubectl_shows_and_follows_what_a_process_writes(rig: Rig, live: Live) -> None:
    await live.pod("speaks", [sys.executable, "-c", LINES])
    await live.ended("speaks")
    where = ("logs", "-n", live.namespace, "speaks")
    whole = "".join(f"line {n}\n" for n in range(5))
    assert (await kubectl(rig, *where)).stdout == whole
    assert (await kubectl(rig, *where, "--follow")).stdout == whole
    assert (await kubectl(rig, *where, "--tail=2")).stdout == "line 3\nline 4\n"
    stamped = (await kubectl(rig, *where, "--timestamps", "--tail=1")).stdout
    stamp, _, text = stamped.partition(" ")
    assert (stamp[10], stamp[-1], text) == ("T", "Z", "line 4\n")
    refused = await kubectl(rig, *where, "--previous")
    assert 'previous terminated container "main" in pod "speaks" not found' in refused.stderr


async def test_a_log_is_followed_until_the_pod_is_deleted_and_its_process_ends(live: Live) -> None:
    await live.pod("waits", [sys.executable, "-c", WAITS])
    await live.until_logged("waits", "begun")

    async def follow() -> bytes:
        return b"".join([c async for c in live.cluster.logs("waits", live.namespace, follow=True)])

    following = asyncio.create_task(follow())
    await live.cluster.delete(PODS, "waits", live.namespace, grace_period_seconds=1)
    await live.until(PODS, "waits", lambda pod: pod is None)
    assert await asyncio.wait_for(following, 20) == b"begun\n"


async def test_a_container_that_has_not_started_is_a_clear_refusal(live: Live) -> None:
    first = {"name": "first", "image": "acme/test:1", "command": [sys.executable, "-c", WAITS]}
    await live.pod("behind", [sys.executable, "-c", LINES], pod_initContainers=[first])
    await live.until(
        PODS,
        "behind",
        lambda pod: (
            pod and "running" in (pod["status"].get("initContainerStatuses") or [{}])[0].get("state", {})
        ),
    )
    with pytest.raises(
        ApiError, match=r'container "main" in pod "behind" is waiting to start: PodInitializing'
    ):
        _ = [chunk async for chunk in live.cluster.logs("behind", live.namespace)]
    await live.cluster.delete(PODS, "behind", live.namespace, grace_period_seconds=0)


async def test_only_who_may_read_nodes_gets_a_log_from_the_node_itself(rig: Rig, live: Live) -> None:
    await live.pod("secret", [sys.executable, "-c", LINES])
    await live.ended("secret")
    node = await live.cluster.get(
        NODES, (await live.cluster.get(PODS, "secret", live.namespace))["spec"]["nodeName"]
    )
    port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
    url = f"https://127.0.0.1:{port}/containerLogs/{live.namespace}/secret/main"
    boss = rig.client_certificate("boss", "system:masters")
    person = rig.client_certificate("somebody")
    assert await asyncio.to_thread(read, url, boss) == (200, "".join(f"line {n}\n" for n in range(5)))
    code, text = await asyncio.to_thread(read, url, person)
    assert (code, text) == (403, "Forbidden (user=somebody, verb=get, resource=nodes/proxy)")
    with pytest.raises(OSError, match=r"(?i)certificate required|reset|eof|closed|alert"):
        await asyncio.to_thread(read, url, None)
    code, _ = await asyncio.to_thread(read, url.replace("secret", "nobody"), boss)
    assert code == 404


def read(url: str, certificate: tuple[Path, Path] | None) -> tuple[int, str]:
    context = ssl._create_unverified_context()
    if certificate is not None:
        context.load_cert_chain(*certificate)
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    try:
        with opener.open(url, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


async def test_the_nodes_say_that_they_live(cluster: Cluster) -> None:
    before = {n: (await cluster.get(LEASES, n, "kube-node-lease"))["spec"]["renewTime"] for n in NODE_NAMES}
    live = Live(cluster, "kube-node-lease")
    for node in NODE_NAMES:
        await live.until(
            LEASES, node, lambda lease, old=before[node]: lease and lease["spec"]["renewTime"] > old
        )
