"""The API of a test, reached the way Airflow does it: by a connection.

It is a local one per test, or the cluster of ``KFTRAIN_TEST_KUBECONFIG`` (see :mod:`tests.support.given_cluster`).
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from pathlib import Path

# Airflow reads its home when it is imported; these tests have one of their own.
os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp(prefix="kftrain-airflow-"))
os.environ.setdefault("AIRFLOW__CORE__LOAD_EXAMPLES", "False")

import pytest

from airflow_kftrain.clock import SystemClock
from airflow_kftrain.cluster.client import Cluster
from airflow_kftrain.local.apiserver import ApiServer
from airflow_kftrain.local.kubelet.logs import LogBook
from tests.operators.airflow_side import TaskInstance, request, watching
from tests.support.faulty_proxy import FaultyProxy
from tests.support.given_cluster import GIVEN, empty, log_node
from tests.support.player import NODE, Player


def connection(kubeconfig):
    return json.dumps({"conn_type": "kubernetes", "extra": {"kube_config_path": str(kubeconfig)}})


@pytest.fixture
def logs(tmp_path):
    return LogBook(tmp_path / "logs", SystemClock())


@pytest.fixture
async def api(tmp_path, logs):
    """A local API server; None where a cluster is given."""
    if GIVEN:
        await empty(GIVEN)
        yield None
        return
    server = ApiServer(tmp_path / "api", logs=logs)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@pytest.fixture
def kubeconfig(api, tmp_path, monkeypatch):
    """The API's kubeconfig; the connection ``kubernetes_default`` leads there."""
    path = tmp_path / "kubeconfig"
    if api is None:
        path.write_bytes(Path(GIVEN).read_bytes())
    else:
        api.write_kubeconfig(path)
    monkeypatch.setenv("AIRFLOW_CONN_KUBERNETES_DEFAULT", connection(path))
    return path


@pytest.fixture
async def cluster(kubeconfig):
    async with Cluster.from_kubeconfig(str(kubeconfig)) as cluster:
        yield cluster


@pytest.fixture
async def player(api, cluster, logs, tmp_path):
    """Plays on a node that a real API server, where one is given, reads logs from."""
    player = Player(cluster, logs)
    if api is not None:
        yield player
        return
    async with log_node(cluster, NODE, logs, player.known, tmp_path / "node"):
        yield player


@pytest.fixture
async def proxy(kubeconfig, tmp_path, monkeypatch):
    """A proxy before the API; the connection ``kubernetes_default`` leads through it."""
    async with FaultyProxy.before(kubeconfig) as proxy:
        through = proxy.kubeconfig(kubeconfig, tmp_path / "proxied")
        monkeypatch.setenv("AIRFLOW_CONN_KUBERNETES_DEFAULT", connection(through))
        yield proxy


@pytest.fixture
def task():
    """A task instance in its first try."""
    return TaskInstance()


@pytest.fixture
async def requested(player, task):
    """A job that is there, of ``task``: one master, two workers."""
    return await request(player.cluster, task)


@pytest.fixture
async def follow(requested, task):
    """``async with follow(**options) as watch``: a trigger runs on the requested job."""

    def opened(**options):
        return watching(requested, task, **options)

    yield opened
    await asyncio.sleep(0)


@pytest.fixture
def supervisor(monkeypatch):
    """``supervisor(task, state)``: what the triggerer's supervisor answers about a task instance."""
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    def answers(task, state, *, after=None):
        loop = asyncio.get_running_loop()

        def get_task_states(*, dag_id, task_ids, run_ids, map_index):
            assert (dag_id, task_ids, run_ids, map_index) == (
                task.dag_id,
                [task.task_id],
                [task.run_id],
                None,
            )
            if after is not None:
                asyncio.run_coroutine_threadsafe(after.wait(), loop).result(20)
            return {task.run_id: {task.task_id: state}}

        monkeypatch.setattr(RuntimeTaskInstance, "get_task_states", staticmethod(get_task_states))

    return answers
