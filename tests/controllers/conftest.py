"""The API that controllers are tested on: a local one per test, or the cluster of ``KFTRAIN_TEST_KUBECONFIG``.

That cluster's default namespace is emptied before each test. It must have the kubeflow and PodGroup kinds and a garbage
collector, and neither nodes nor a training operator.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

import pytest

from airflow_kftrain.cluster.client import Cluster
from airflow_kftrain.cluster.resources import (
    EVENTS,
    LEASES,
    PODGROUPS,
    PODS,
    PYTORCHJOBS,
    RESOURCEQUOTAS,
    SERVICES,
    TFJOBS,
    XGBOOSTJOBS,
)
from airflow_kftrain.exceptions import NotFound
from airflow_kftrain.local.apiserver import ApiServer
from tests.controllers.stage import NAMESPACE, PATIENCE, Stage

GIVEN = os.environ.get("KFTRAIN_TEST_KUBECONFIG")
EMPTIED = (
    TFJOBS,
    PYTORCHJOBS,
    XGBOOSTJOBS,
    PODGROUPS,
    RESOURCEQUOTAS,
    LEASES,
    SERVICES,
    PODS,
    EVENTS,
)


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


async def empty(kubeconfig: str) -> None:
    """Delete everything that tests make."""
    async with Cluster.from_kubeconfig(kubeconfig) as cluster, asyncio.timeout(PATIENCE):
        for resource in EMPTIED:
            while items := (await cluster.list(resource, NAMESPACE)).items:
                items = [o for o in items if o["metadata"]["name"] != "kubernetes"]
                if not items:
                    break
                for obj in items:
                    with contextlib.suppress(NotFound):
                        await cluster.delete(
                            resource, obj["metadata"]["name"], NAMESPACE, grace_period_seconds=0
                        )
