"""The API that controllers are tested on: a local one per test, or the cluster of ``KFTRAIN_TEST_KUBECONFIG``."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from airflow_kftrain.cluster.client import Cluster
from airflow_kftrain.local.apiserver import ApiServer
from tests.controllers.stage import Stage
from tests.support.given_cluster import GIVEN, empty


@pytest.fixture
async def api(tmp_path):
    """A local API server; None where a cluster is given."""
    if GIVEN:
        await empty(GIVEN)
        yield None
        return
    server = ApiServer(tmp_path / "api")
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@pytest.fixture
def kubeconfig(api, tmp_path):
    if api is None:
        return Path(GIVEN)
    path = tmp_path / "kubeconfig"
    api.write_kubeconfig(path)
    return path


@pytest.fixture
async def cluster(kubeconfig):
    async with Cluster.from_kubeconfig(str(kubeconfig)) as cluster:
        yield cluster


@pytest.fixture
async def stage(cluster):
    """Opens a controller on the API: ``await stage("XGBoostJob")``."""
    async with contextlib.AsyncExitStack() as stack:

        async def opened(kind, **options):
            return await stack.enter_async_context(Stage(cluster, kind, **options).open())

        yield opened


@pytest.fixture
def api_factory(tmp_path):
    """A new, empty API each time."""
    count = 0

    @contextlib.asynccontextmanager
    async def made():
        nonlocal count
        count += 1
        if GIVEN:
            await empty(GIVEN)
            async with Cluster.from_kubeconfig(GIVEN) as cluster:
                yield cluster
            return
        home = tmp_path / str(count)
        server = ApiServer(home / "api")
        await server.start()
        server.write_kubeconfig(home / "kubeconfig")
        try:
            async with Cluster.from_kubeconfig(str(home / "kubeconfig")) as cluster:
                yield cluster
        finally:
            await server.stop()

    return made
