"""List, then watch, for ever: the one loop behind informers and triggers."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Literal

from airflow_kftrain.clock import Clock, SystemClock
from airflow_kftrain.cluster.client import Cluster, Object, WatchEvent
from airflow_kftrain.cluster.resources import Resource
from airflow_kftrain.cluster.retry import pause_after
from airflow_kftrain.exceptions import ApiError, ApiUnreachable, Gone, KFTrainError

ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]
Keep = Callable[[Object], Object | None]
OnTrouble = Callable[[KFTrainError, int], None]

HEALTHY_SECONDS = 5.0
"""A watch that lasted so long, or said anything, was a good one: what follows it is not a repeated failure."""


@dataclass(frozen=True)
class Listed:
    """Everything there is, at one resource version; what is not in it does not exist (any more)."""

    items: list[Object]
    resource_version: str


@dataclass(frozen=True)
class Changed:
    """One object changed."""

    type: ChangeType
    object: Object


@dataclass(frozen=True)
class Scope:
    """What to watch: a kind, where, and which of them. ``namespace`` ``None`` means all namespaces."""

    resource: Resource
    namespace: str | None = None
    label_selector: str | None = None
    field_selector: str | None = None


async def list_and_watch(
    cluster: Cluster,
    resource: Resource,
    namespace: str | None = None,
    *,
    label_selector: str | None = None,
    field_selector: str | None = None,
    clock: Clock | None = None,
    keep: Keep | None = None,
    on_listing: Callable[[], None] | None = None,
    on_trouble: OnTrouble | None = None,
    resync_seconds: float = 1800.0,
    watch_seconds: int = 300,
    stall_seconds: float = 90.0,
    rng: random.Random | None = None,
) -> AsyncIterator[Listed | Changed]:
    """Yield the whole state, then each change of it; never ends and never raises for what the server does.

    A broken, stalled or ended watch goes on from the last version seen; 410 lists again; every ``resync_seconds`` the
    state is listed again in any case. Pauses between failures grow, with jitter, up to 30 s.

    :param keep: reduces an object to what the caller needs, or drops it (``None``), before it is held anywhere
    :param on_listing: called before each attempt to list
    :param on_trouble: called with each error and how many came in a row
    """
    scope = Scope(resource, namespace, label_selector, field_selector)
    loop = _Loop(cluster, scope, clock or SystemClock(), keep, on_listing, on_trouble, rng or random.Random())  # noqa: S311
    while True:
        listed = await loop.list()
        yield listed
        version: str | None = listed.resource_version
        until = loop.clock.monotonic() + resync_seconds
        while version is not None and loop.clock.monotonic() < until:
            started = loop.clock.monotonic()
            said_something = False
            try:
                async for event in cluster.watch(
                    resource,
                    namespace,
                    resource_version=version,
                    label_selector=label_selector,
                    field_selector=field_selector,
                    timeout_seconds=watch_seconds,
                    stall_seconds=stall_seconds,
                ):
                    version = _version_of(event) or version
                    said_something = True
                    loop.failures = 0
                    change = loop.change(event)
                    if change is not None:
                        yield change
            except Gone as error:
                # The version is unknown to the server now: only a list can tell what was missed.
                await loop.trouble(error, free=said_something)
                version = None
            except (ApiError, ApiUnreachable) as error:
                await loop.trouble(error, free=said_something)
            else:
                if not said_something and loop.clock.monotonic() - started < HEALTHY_SECONDS:
                    await loop.trouble(ApiUnreachable(f"the watch on {resource.plural} ended at once"))


class _Loop:
    """The state of one :func:`list_and_watch`: failures in a row, and how it reads objects."""

    def __init__(
        self,
        cluster: Cluster,
        scope: Scope,
        clock: Clock,
        keep: Keep | None,
        on_listing: Callable[[], None] | None,
        on_trouble: OnTrouble | None,
        rng: random.Random,
    ) -> None:
        self.cluster = cluster
        self.scope = scope
        self.clock = clock
        self.failures = 0
        self._keep = keep
        self._on_listing = on_listing
        self._on_trouble = on_trouble
        self._rng = rng

    async def list(self) -> Listed:
        scope = self.scope
        while True:
            if self._on_listing is not None:
                self._on_listing()
            try:
                listed = await self.cluster.list(
                    scope.resource,
                    scope.namespace,
                    label_selector=scope.label_selector,
                    field_selector=scope.field_selector,
                    keep=self._keep,
                )
            except (ApiError, ApiUnreachable) as error:
                await self.trouble(error)
            else:
                return Listed(listed.items, listed.resource_version)

    def change(self, event: WatchEvent) -> Changed | None:
        if event.type not in ("ADDED", "MODIFIED", "DELETED"):
            return None
        kept = event.object if self._keep is None else self._keep(event.object)
        return None if kept is None else Changed(event.type, kept)  # type: ignore[arg-type]

    async def trouble(self, error: KFTrainError, *, free: bool = False) -> None:
        """Tell, and pause; ``free`` spares the pause: it was the first failure after a good watch."""
        self.failures = 0 if free else self.failures + 1
        if self._on_trouble is not None:
            self._on_trouble(error, self.failures)
        asked = error.retry_after if isinstance(error, ApiError) and error.retry_after else 0.0
        if not free or asked:
            await self.clock.sleep(asked + pause_after(max(self.failures, 1), rng=self._rng))


def _version_of(event: WatchEvent) -> str | None:
    version = (event.object.get("metadata") or {}).get("resourceVersion")
    return str(version) if version else None
