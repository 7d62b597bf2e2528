"""A local API server per test."""

from __future__ import annotations

import contextlib

import pytest

from airflow_kftrain.cluster.client import Cluster
from airflow_kftrain.local.apiserver import ApiServer
from tests.controllers.stage import Stage


@pytest.fixture
async def api(tmp_path):
    server = ApiServer(tmp_path / "api")
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@pytest.fixture
def kubeconfig(api, tmp_path):
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
