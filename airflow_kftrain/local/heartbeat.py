"""Keeps nodes alive in a real cluster, whose controllers give up a node that says nothing for 40 seconds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

from airflow_kftrain.clock import Clock
from airflow_kftrain.cluster.client import Cluster
from airflow_kftrain.cluster.resources import LEASES
from airflow_kftrain.exceptions import AlreadyExists, ApiError, ApiUnreachable, NotFound

log = logging.getLogger(__name__)

BEAT_SECONDS = 10.0
"""Between two renewals, as kubelets do it."""

_NAMESPACE = "kube-node-lease"
_DURATION = 40


class Heartbeat:
    """Renews the Lease of each node, in ``kube-node-lease``."""

    def __init__(self, cluster: Cluster, nodes: Sequence[str], *, clock: Clock) -> None:
        self._cluster = cluster
        self._nodes = nodes
        self._clock = clock

    async def run(self) -> None:
        """Renew until cancelled; an API that is away for a while is tried again at the next beat."""
        while True:
            for node in self._nodes:
                try:
                    await self._beat(node)
                except (ApiError, ApiUnreachable) as error:
                    log.warning("the Lease of node %s could not be renewed: %s", node, error)
            await self._clock.sleep(BEAT_SECONDS)

    async def stop(self) -> None:
        """Remove the Leases."""
        for node in self._nodes:
            with suppress(ApiError, ApiUnreachable, asyncio.TimeoutError):
                await self._cluster.delete(LEASES, node, _NAMESPACE)

    async def _beat(self, node: str) -> None:
        spec = {
            "holderIdentity": node,
            "leaseDurationSeconds": _DURATION,
            "renewTime": self._clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        try:
            await self._cluster.patch(LEASES, node, {"spec": spec}, _NAMESPACE)
        except NotFound:
            lease = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": {"name": node}}
            with suppress(AlreadyExists):
                await self._cluster.create(LEASES, lease | {"spec": spec}, _NAMESPACE)
