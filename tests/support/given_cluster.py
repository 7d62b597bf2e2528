"""The cluster of ``KFTRAIN_TEST_KUBECONFIG``, on which suites run that otherwise make a local API for each test.

It must have the kubeflow and PodGroup kinds and a garbage collector, and neither schedulers, kubelets nor a training
operator that look at its namespace ``default``, which is emptied before each test.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from airflow_kftrain.clock import SystemClock
from airflow_kftrain.cluster.client import Cluster
from airflow_kftrain.cluster.resources import (
    EVENTS,
    LEASES,
    NODES,
    PODGROUPS,
    PODS,
    PYTORCHJOBS,
    RESOURCEQUOTAS,
    SERVICES,
    TFJOBS,
    XGBOOSTJOBS,
)
from airflow_kftrain.exceptions import NotFound
from airflow_kftrain.local.kubelet.logs import LogBook
from airflow_kftrain.local.log_server import LogServer
from airflow_kftrain.local.nodes import NodeSpec, node_object

GIVEN = os.environ.get("KFTRAIN_TEST_KUBECONFIG")
NAMESPACE = "default"
PATIENCE = 30.0

EMPTIED = (TFJOBS, PYTORCHJOBS, XGBOOSTJOBS, PODGROUPS, RESOURCEQUOTAS, LEASES, SERVICES, PODS, EVENTS)


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


@contextlib.asynccontextmanager
async def log_node(
    cluster: Cluster,
    name: str,
    logs: LogBook,
    pod: Callable[[str, str], Mapping[str, Any] | None],
    folder: Path,
) -> AsyncIterator[None]:
    """A node whose pods nobody runs; a real API server reads their logs from our log server."""
    server = LogServer(cluster, logs, pod, directory=folder, clock=SystemClock())
    spec = NodeSpec(name, gpus=8, kubelet_port=await server.start())
    try:
        with contextlib.suppress(NotFound):
            await cluster.delete(NODES, name)
        await cluster.create(NODES, node_object(spec, "2026-01-01T00:00:00Z"))
        yield
    finally:
        with contextlib.suppress(NotFound):
            await cluster.delete(NODES, name)
        await server.stop()
