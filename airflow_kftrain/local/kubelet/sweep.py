"""Ends what a cluster's pods left behind, found by the marker in each process's environment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

import psutil

from airflow_kftrain.local.kubelet.plan import CLUSTER_MARKER, POD_MARKER

_PATIENCE_SECONDS = 5.0


def sweep(cluster_id: str, pod_uid: str | None = None) -> list[int]:
    """Kill every process of the cluster (of one of its pods), grandchildren in sessions of their own included.

    :returns: ids of the processes that were killed
    """
    killed: list[psutil.Process] = []
    while found := list(marked(cluster_id, pod_uid)):
        for process in found:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        killed += found
        # Looked at again: a process may have been forking while it was killed.
        _, alive = psutil.wait_procs(found, timeout=_PATIENCE_SECONDS)
        if alive:
            break  # unkillable (in uninterruptible sleep); waiting longer would not help
    return [process.pid for process in killed]


def marked(cluster_id: str, pod_uid: str | None = None) -> Iterator[psutil.Process]:
    """Living processes that carry the marker. Zombies hold nothing and are left to their parents."""
    wanted = {CLUSTER_MARKER: cluster_id} | ({POD_MARKER: pod_uid} if pod_uid else {})
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        with suppress(psutil.Error, OSError):
            environment = process.environ()
            if wanted.items() <= environment.items() and process.status() != psutil.STATUS_ZOMBIE:
                yield process
