"""Leader election by a Lease: of several replicas of the controllers, one works and the others stand by."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from dataclasses import dataclass
from typing import Any

from airflow_kftrain.clock import Clock
from airflow_kftrain.cluster.client import Cluster, Object
from airflow_kftrain.cluster.resources import LEASES
from airflow_kftrain.exceptions import ApiError, ApiUnreachable, Conflict, NotFound

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LeaseSettings:
    """Where the Lease is and how long it holds.

    :param identity: who asks, unlike that of every other replica
    :param duration: seconds the Lease holds after a renewal; others wait that long
    :param renew_deadline: seconds without a successful renewal after which the leader stops working; shorter than
        ``duration`` by more than a write can take, so that two never work at once
    :param retry: seconds between attempts
    """

    identity: str
    namespace: str = "default"
    name: str = "airflow-kftrain-controllers"
    duration: float = 15.0
    renew_deadline: float = 10.0
    retry: float = 2.0


class Lease:
    """One replica's view of the Lease.

    Whether another's Lease has run out is measured by the own monotonic clock from the moment its last renewal was
    seen, never by comparing wall clocks of two machines.
    """

    def __init__(self, cluster: Cluster, clock: Clock, settings: LeaseSettings) -> None:
        self.settings = settings
        self._cluster = cluster
        self._clock = clock
        self._seen: tuple[str, float] | None = None
        self._renewed: float | None = None

    @property
    def held(self) -> bool:
        """Whether this replica may work now."""
        if self._renewed is None:
            return False
        return self._clock.monotonic() - self._renewed < self.settings.renew_deadline

    async def try_hold(self) -> bool:
        """Take or renew the Lease if it is free, run out, or ours; whether it is held now."""
        asked = self._clock.monotonic()
        try:
            if await self._write():
                self._renewed = asked  # from before the call: the server counts from later
        except Conflict:
            log.debug("lease %s: another replica was faster", self.settings.name)
        except (ApiError, ApiUnreachable) as error:
            log.warning("lease %s: %s", self.settings.name, error)
        return self.held

    async def release(self) -> None:
        """Let another replica take over at once."""
        if self._renewed is None:
            return
        self._renewed = None
        try:
            lease = await self._cluster.get(LEASES, self.settings.name, self.settings.namespace)
            if lease["spec"].get("holderIdentity") == self.settings.identity:
                lease["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
                await self._cluster.replace(LEASES, lease)
        except (ApiError, ApiUnreachable) as error:
            log.info("lease %s not released, it runs out by itself: %s", self.settings.name, error)

    async def keep(self, stop: asyncio.Event) -> None:
        """Renew until ``stop``, or until the renewal deadline has passed in vain."""
        while not stop.is_set():
            await self._clock.sleep(self.settings.retry)
            if not stop.is_set() and not await self.try_hold():
                log.warning("lease %s lost by %s", self.settings.name, self.settings.identity)
                return

    async def _write(self) -> bool:
        settings = self.settings
        try:
            lease = await self._cluster.get(LEASES, settings.name, settings.namespace)
        except NotFound:
            await self._cluster.create(LEASES, self._lease({}))
            return True
        if not self._may_take(lease):
            return False
        await self._cluster.replace(LEASES, self._lease(lease))
        return True

    def _may_take(self, lease: Object) -> bool:
        spec = lease.get("spec") or {}
        if spec.get("holderIdentity") in (None, "", self.settings.identity):
            return True
        version, now = lease["metadata"]["resourceVersion"], self._clock.monotonic()
        if self._seen is None or self._seen[0] != version:
            self._seen = (version, now)
        duration = float(spec.get("leaseDurationSeconds") or self.settings.duration)
        return now - self._seen[1] >= duration

    def _lease(self, current: dict[str, Any]) -> Object:
        settings, now = self.settings, _micro_time(self._clock.now())
        spec = current.get("spec") or {}
        ours = spec.get("holderIdentity") == settings.identity
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": current.get("metadata") or {"name": settings.name, "namespace": settings.namespace},
            "spec": {
                "holderIdentity": settings.identity,
                "leaseDurationSeconds": max(1, round(settings.duration)),
                "acquireTime": spec["acquireTime"] if ours and spec.get("acquireTime") else now,
                "renewTime": now,
                "leaseTransitions": int(spec.get("leaseTransitions") or 0)
                + (0 if ours or not current else 1),
            },
        }


def _micro_time(moment: dt.datetime) -> str:
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
