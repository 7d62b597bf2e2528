"""The process of a local cluster: API server, controllers, binder and kubelet in one event loop.

``python -m airflow_kftrain.local.daemon HOME [READY_FD]`` runs it in the foreground; it says over ``READY_FD`` how its
start went: ``ready`` or the error's text. :mod:`.detach` is how ``kftrain local up`` starts it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

from airflow_kftrain.clock import SystemClock
from airflow_kftrain.cluster.client import Cluster
from airflow_kftrain.controllers.manager import ControllerManager
from airflow_kftrain.exceptions import KFTrainError, LocalClusterError
from airflow_kftrain.local.apiserver import ApiServer
from airflow_kftrain.local.binder import Binder
from airflow_kftrain.local.home import Config, Home
from airflow_kftrain.local.kubelet import Kubelet, LogBook
from airflow_kftrain.local.nodes import make_nodes

log = logging.getLogger(__name__)

READY = "ready"


async def serve(home: Home, stop: asyncio.Event, announce: Callable[[], None]) -> None:
    """Run the cluster in ``home`` until ``stop``.

    :param announce: called when nodes are registered and every part is at work
    :raises LocalClusterError: a part cannot start, or ended by itself
    """
    config = home.config() or Config()
    clock = SystemClock()
    logs = LogBook(home.machine / "logs", clock)
    server = ApiServer(home.api, clock=clock, logs=logs)
    async with AsyncExitStack() as stack:
        await server.start()
        stack.push_async_callback(server.stop)
        server.write_kubeconfig(home.kubeconfig)
        cluster = await stack.enter_async_context(Cluster.from_kubeconfig(str(home.kubeconfig)))
        kubelet = Kubelet(
            cluster,
            make_nodes(config.nodes, config.gpus),
            root=home.machine,
            tmp=home.make_tmp(),
            cluster_id=home.cluster_id(),
            images_file=home.images,
            logs=logs,
            clock=clock,
        )
        binder = Binder(cluster, clock=clock)
        manager = ControllerManager(cluster, clock=clock)
        kubelet_stop = asyncio.Event()
        parts = {
            "controllers": asyncio.create_task(manager.run(stop)),
            "binder": asyncio.create_task(binder.run(stop)),
            "kubelet": asyncio.create_task(kubelet.run(kubelet_stop)),
        }
        try:
            ready = _all(kubelet.ready(), binder.ready(), manager.ready())
            await _until(parts, _first(ready, stop.wait()))
            if not stop.is_set():
                announce()
            await _until(parts, stop.wait())
        finally:
            stop.set()
            await asyncio.gather(parts["controllers"], parts["binder"], return_exceptions=True)
            # The kubelet is last: nobody makes pods any more that it would have to run.
            kubelet_stop.set()
            await asyncio.gather(parts["kubelet"], return_exceptions=True)


async def _all(*coroutines: Coroutine[Any, Any, None]) -> None:
    await asyncio.gather(*coroutines)


async def _first(*coroutines: Coroutine[Any, Any, Any]) -> None:
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


async def _until(parts: dict[str, asyncio.Task[None]], coroutine: Coroutine[Any, Any, Any]) -> None:
    """Wait for ``coroutine``. :raises LocalClusterError: a part of the cluster ended before it"""
    awaited = asyncio.ensure_future(coroutine)
    try:
        await asyncio.wait({awaited, *parts.values()}, return_when=asyncio.FIRST_COMPLETED)
        if awaited.done():
            return
    finally:
        awaited.cancel()
    name, task = next((name, task) for name, task in parts.items() if task.done())
    error = None if task.cancelled() else task.exception()
    raise LocalClusterError(f"the {name} of the local cluster ended: {error or 'cancelled'}") from error


def main(arguments: list[str]) -> int:
    """The daemon's whole life; its exit code."""
    home = Home(Path(arguments[0]))
    ready = _Announcement(int(arguments[1]) if len(arguments) > 1 else None)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # Held, not closed: the lock goes with the process.
    try:
        home.hold()
        asyncio.run(_serve_until_signal(home, ready))
    except KFTrainError as error:
        log.exception("the local cluster ends")
        ready.say(str(error))
        return 1
    except Exception as error:
        log.exception("the local cluster ends")
        ready.say(f"{type(error).__name__}: {error}")
        return 1
    log.info("ended as asked")
    return 0


async def _serve_until_signal(home: Home, ready: _Announcement) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await serve(home, stop, lambda: ready.say(READY))


class _Announcement:
    """Says once, over a pipe, how the start went."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def say(self, text: str) -> None:
        if self._descriptor is None:
            return
        with suppress(OSError):  # who asked is gone
            os.write(self._descriptor, text.encode())
        os.close(self._descriptor)
        self._descriptor = None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
