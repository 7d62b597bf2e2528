from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator, Iterator

import pytest

from airflow_kftrain.cluster.resources import NAMESPACES
from airflow_kftrain.testing import RunningCluster, local_cluster
from tests.support.live import Live, live

IMAGES = """
[[image]]
pattern = "missing/*"
unpullable = true
"""


@pytest.fixture(scope="package")
def running() -> Iterator[RunningCluster]:
    """One cluster for all tests that do not end it; secrets of its starter must not reach its pods."""
    os.environ["AIRFLOW__CORE__FERNET_KEY"] = "a-secret"
    try:
        with local_cluster(nodes=2, gpus=4, images=IMAGES) as cluster:
            yield cluster
    finally:
        del os.environ["AIRFLOW__CORE__FERNET_KEY"]


@pytest.fixture
async def kube(running: RunningCluster) -> AsyncIterator[Live]:
    """The cluster, in a namespace of this test's own."""
    namespace = f"t-{uuid.uuid4().hex[:8]}"
    async with live(running.kubeconfig, namespace) as found:
        await found.cluster.create(NAMESPACES, {"metadata": {"name": namespace}})
        yield found
        await found.cluster.delete(NAMESPACES, namespace)
