"""Nodes of this machine in somebody else's cluster: its scheduler binds pods to them, our kubelet runs their processes.

``kftrain local join`` starts it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path

from airflow_kftrain.clock import Clock, SystemClock
from airflow_kftrain.cluster.client import Cluster
from airflow_kftrain.cluster.resources import NODES
from airflow_kftrain.exceptions import ApiError, ApiUnreachable
from airflow_kftrain.local.heartbeat import Heartbeat
from airflow_kftrain.local.home import Home
from airflow_kftrain.local.kubelet import Kubelet, LogBook
from airflow_kftrain.local.kubelet.sweep import sweep
from airflow_kftrain.local.log_server import LogServer
from airflow_kftrain.local.nodes import NodeSpec, make_nodes

log = logging.getLogger(__name__)


async def join(
    home: Home,
    cluster: Cluster,
    nodes: list[NodeSpec],
    stop: asyncio.Event,
    announce: Callable[[], None],
    *,
    clock: Clock | None = None,
) -> None:
    """Run the pods that the cluster binds to ``nodes`` until ``stop``; then end them and take the nodes away.

    :param announce: called when the nodes are there and their pods known
    :raises LocalClusterError: the cluster names no authority for client certificates
    """
    clock = clock or SystemClock()
    logs = LogBook(home.machine / "logs", clock)
    async with AsyncExitStack() as stack:
        stack.callback(home.remove_tmp)
        server = LogServer(
            cluster,
            logs,
            lambda namespace, name: kubelet.pod(namespace, name),
            directory=home.path / "kubelet",
            clock=clock,
        )
        port = await server.start()
        stack.push_async_callback(server.stop)
        specs = [replace(node, kubelet_port=port) for node in nodes]
        kubelet = Kubelet(
            cluster,
            specs,
            root=home.machine,
            tmp=home.make_tmp(),
            cluster_id=home.cluster_id(),
            images_file=home.images,
            logs=logs,
            clock=clock,
            remove_other_nodes=False,
        )
        heartbeat = Heartbeat(cluster, [node.name for node in nodes], clock=clock)
        kubelet_stop = asyncio.Event()
        running = asyncio.create_task(kubelet.run(kubelet_stop))
        beating = asyncio.create_task(heartbeat.run())
        ready = asyncio.create_task(kubelet.ready())
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({ready, running}, return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                announce()
                await asyncio.wait({stopping, running}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (ready, stopping, beating):
                task.cancel()
            kubelet_stop.set()
            await asyncio.gather(ready, stopping, beating, return_exceptions=True)
            try:
                await running
            finally:
                await heartbeat.stop()
                await _remove(cluster, nodes)


async def _remove(cluster: Cluster, nodes: list[NodeSpec]) -> None:
    """Take the nodes away, so that nothing more is bound to them; the cluster collects what was."""
    for node in nodes:
        with suppress(ApiError, ApiUnreachable):
            await cluster.delete(NODES, node.name)


def run(
    home: Home,
    kubeconfig: Path | None,
    *,
    nodes: int = 1,
    gpus: int = 0,
    prefix: str = "kftrain",
    announce: Callable[[], None] = lambda: None,
) -> None:
    """:func:`join` in the foreground, until SIGTERM or SIGINT.

    :param kubeconfig: leads to the cluster; ``$KUBECONFIG`` or ``~/.kube/config`` when absent
    :param prefix: of the nodes' names
    :raises LocalClusterError: a daemon runs in the directory already, or the cluster cannot be joined
    :raises InvalidInput: a number out of range
    """
    specs = [replace(node, name=f"{prefix}-{node.name}") for node in make_nodes(nodes, gpus)]
    home.make()
    held = home.hold()
    sweep(home.cluster_id())

    async def work() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        async with Cluster.from_kubeconfig(None if kubeconfig is None else str(kubeconfig)) as cluster:
            await join(home, cluster, specs, stop, announce)

    try:
        asyncio.run(work())
    finally:
        sweep(home.cluster_id())
        os.close(held)
