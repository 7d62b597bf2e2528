"""Ends what a cluster's pods left behind, found by the marker in each process's environment."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Iterator
from contextlib import suppress

import psutil

from airflow_kftrain.local.kubelet.plan import CLUSTER_MARKER, POD_MARKER

_PATIENCE_SECONDS = 5.0


def sweep(cluster_id: str, pod_uids: Collection[str] | None = None) -> list[int]:
    """Kill every process of the cluster (of some of its pods), grandchildren in sessions of their own included.

    :returns: ids of the processes that were killed
    """
    killed: list[psutil.Process] = []
    while found := list(marked(cluster_id, pod_uids)):
        for process in found:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        killed += found
        # Looked at again: a process may have been forking while it was killed.
        _, alive = psutil.wait_procs(found, timeout=_PATIENCE_SECONDS)
        if alive:
            break  # unkillable (in uninterruptible sleep); waiting longer would not help
    return [process.pid for process in killed]


def marked(cluster_id: str, pod_uids: Collection[str] | None = None) -> Iterator[psutil.Process]:
    """Living processes that carry the marker. Zombies hold nothing and are left to their parents."""
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        with suppress(psutil.Error, OSError):
            environment = process.environ()
            if environment.get(CLUSTER_MARKER) != cluster_id:
                continue
            wanted = pod_uids is None or environment.get(POD_MARKER) in pod_uids
            if wanted and process.status() != psutil.STATUS_ZOMBIE:
                yield process


class Sweeper:
    """Sweeps after pods as they end; those that end together share one look at all processes."""

    def __init__(self, cluster_id: str) -> None:
        self._cluster_id = cluster_id
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._round: asyncio.Task[None] | None = None

    async def sweep(self, pod_uid: str) -> None:
        """Return once nothing of the pod is left."""
        done = self._waiting.setdefault(pod_uid, asyncio.get_running_loop().create_future())
        if self._round is None or self._round.done():
            self._round = asyncio.create_task(self._sweep_all())
        await asyncio.shield(done)

    async def _sweep_all(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, {}
            try:
                await asyncio.to_thread(sweep, self._cluster_id, set(batch))
            finally:
                for done in batch.values():
                    if not done.done():
                        done.set_result(None)
