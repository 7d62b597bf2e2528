"""The three columns of the conformance table."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import tempfile
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

from airflow_kftrain.clock import SystemClock
from airflow_kftrain.cluster.client import Cluster
from airflow_kftrain.cluster.resources import NAMESPACES
from airflow_kftrain.controllers.manager import ControllerManager
from airflow_kftrain.exceptions import AlreadyExists
from airflow_kftrain.local.apiserver import ApiServer
from airflow_kftrain.local.binder import Binder
from airflow_kftrain.local.kubelet import Kubelet, LogBook
from airflow_kftrain.local.nodes import make_nodes
from tests.controlplane.conformance.busy import Operators
from tests.controlplane.conformance.ends import PlayedPods, Processes
from tests.controlplane.conformance.play import Column
from tests.controlplane.conftest import GANG_NAMESPACES, PLAIN_NAMESPACES
from tests.controlplane.rig import Rig

OURS = {True: ("conformance-gang",), False: ("conformance-plain",)}


@contextlib.asynccontextmanager
async def training_operator(rig: Rig) -> AsyncIterator[Column]:
    """The real operator on the real API."""
    async with Cluster.from_kubeconfig(str(rig.kubeconfig)) as cluster:
        namespaces = {True: GANG_NAMESPACES, False: PLAIN_NAMESPACES}
        async with Operators(rig.operator_metrics).watched() as operators:
            yield Column("training operator", cluster, namespaces, PlayedPods(cluster), operators)


@contextlib.asynccontextmanager
async def ours_on_the_real_api(rig: Rig) -> AsyncIterator[Column]:
    """Our controllers on the real API."""
    async with Cluster.from_kubeconfig(str(rig.kubeconfig)) as cluster:
        await _add_namespaces(cluster)
        async with _controllers(cluster):
            yield Column("ours on the real API", cluster, OURS, PlayedPods(cluster))


@contextlib.asynccontextmanager
async def ours_locally(folder: Path) -> AsyncIterator[Column]:
    """Our controllers, binder and kubelet on our API server: the parts of ``kftrain local up``."""
    clock = SystemClock()
    ends = folder / "ends"
    ends.mkdir(parents=True)
    logs = LogBook(folder / "logs", clock)
    server = ApiServer(folder / "api", clock=clock, logs=logs)
    async with contextlib.AsyncExitStack() as stack:
        await server.start()
        stack.push_async_callback(server.stop)
        kubeconfig = folder / "kubeconfig"
        server.write_kubeconfig(kubeconfig)
        cluster = await stack.enter_async_context(Cluster.from_kubeconfig(str(kubeconfig)))
        await _add_namespaces(cluster)
        kubelet = Kubelet(
            cluster,
            make_nodes(4, 64),
            root=folder,
            tmp=Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kftrain-"))),
            cluster_id=uuid.uuid4().hex,
            images_file=folder / "images.toml",
            logs=logs,
            clock=clock,
        )
        binder = Binder(cluster, clock=clock)
        for part in (kubelet, binder):
            await stack.enter_async_context(_running(part))
        await stack.enter_async_context(_controllers(cluster))
        yield Column("ours on the local cluster", cluster, OURS, Processes(ends))


@contextlib.asynccontextmanager
async def _controllers(cluster: Cluster) -> AsyncIterator[None]:
    async with contextlib.AsyncExitStack() as stack:
        for gang, namespaces in OURS.items():
            manager = ControllerManager(cluster, gang_scheduling=gang, namespaces=namespaces)
            await stack.enter_async_context(_running(manager))
        yield


@contextlib.asynccontextmanager
async def _running(part: ControllerManager | Binder | Kubelet) -> AsyncIterator[None]:
    """``part`` at work within the block."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(part.run(stop))
        await part.ready()
        try:
            yield
        finally:
            stop.set()


async def _add_namespaces(cluster: Cluster) -> None:
    for name in itertools.chain(*OURS.values()):
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        with contextlib.suppress(AlreadyExists):
            await cluster.create(NAMESPACES, namespace)
