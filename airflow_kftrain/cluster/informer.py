"""A cache of all objects of a kind, kept by one watch, for controllers that read the world on every turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import partial

from airflow_kftrain.clock import Clock
from airflow_kftrain.cluster.client import Cluster, Object
from airflow_kftrain.cluster.resources import Resource
from airflow_kftrain.cluster.watch import ChangeType, Listed, OnTrouble, list_and_watch

Key = tuple[str, str]
Handler = Callable[[ChangeType, Object | None, Object | None], None]
Indexer = Callable[[Object], Iterable[Hashable]]


def key_of(obj: Object) -> Key:
    """``(namespace, name)``; the namespace is empty for cluster-wide kinds."""
    metadata = obj["metadata"]
    return metadata.get("namespace") or "", metadata["name"]


class Informer:
    """The present state of a kind, and a call for each change of it.

    ``store`` maps ``(namespace, name)`` to the object; treat objects as read-only, copy before changing one.

    :param indexers: by name, a function that gives the keys under which :meth:`by_index` finds an object
    """

    def __init__(
        self,
        cluster: Cluster,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        indexers: Mapping[str, Indexer] | None = None,
        clock: Clock | None = None,
        on_trouble: OnTrouble | None = None,
        resync_seconds: float = 600.0,
    ) -> None:
        self.resource = resource
        self.store: dict[Key, Object] = {}
        self._events = partial(
            list_and_watch,
            cluster,
            resource,
            namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            clock=clock,
            on_trouble=on_trouble,
            resync_seconds=resync_seconds,
        )
        self._handlers: list[Handler] = []
        self._indexers = dict(indexers or {})
        self._index: dict[tuple[str, Hashable], dict[Key, Object]] = {}
        self._synced = asyncio.Event()

    def add_handler(self, handler: Handler) -> None:
        """Call ``handler(type, old, new)`` after each change; ``old`` is None when added, ``new`` when deleted."""
        self._handlers.append(handler)

    async def synced(self) -> None:
        """Return once the first list is in the store."""
        await self._synced.wait()

    def get(self, namespace: str, name: str) -> Object | None:
        """The object, or None."""
        return self.store.get((namespace, name))

    def by_index(self, index: str, value: Hashable) -> list[Object]:
        """Objects that the named indexer gave ``value`` for, ordered by key."""
        found = self._index.get((index, value), {})
        return [found[key] for key in sorted(found)]

    async def run(self) -> None:
        """Keep the store up to date; runs until cancelled."""
        async for event in self._events():
            if isinstance(event, Listed):
                self._replace(event.items)
                self._synced.set()
            elif event.type == "DELETED":
                self._set(key_of(event.object), None, last=event.object)
            else:
                self._set(key_of(event.object), event.object)

    def _replace(self, items: list[Object]) -> None:
        fresh = {key_of(item): item for item in items}
        for key in [key for key in self.store if key not in fresh]:
            self._set(key, None)
        for key, item in fresh.items():
            self._set(key, item)

    def _set(self, key: Key, new: Object | None, *, last: Object | None = None) -> None:
        old = self.store.get(key)
        if old is not None and new is not None and _same_object(old) != _same_object(new):
            # Deleted and made anew between two looks: its followers must see both.
            self._set(key, None)
            old = None
        if old is not None and new is not None and _version(old) == _version(new):
            return
        if old is not None:
            self._unindex(key, old)
            del self.store[key]
        if new is not None:
            self.store[key] = new
            self._index_as(key, new)
        if old is None and new is None:
            return
        change: ChangeType = "ADDED" if old is None else "DELETED" if new is None else "MODIFIED"
        for handler in self._handlers:
            handler(change, (last or old) if new is None else old, new)

    def _index_as(self, key: Key, obj: Object) -> None:
        for entry in self._entries(obj):
            self._index.setdefault(entry, {})[key] = obj

    def _unindex(self, key: Key, obj: Object) -> None:
        for entry in self._entries(obj):
            keyed = self._index.get(entry, {})
            keyed.pop(key, None)
            if not keyed:
                self._index.pop(entry, None)

    def _entries(self, obj: Object) -> Iterable[tuple[str, Hashable]]:
        return [(name, value) for name, indexer in self._indexers.items() for value in indexer(obj)]


def _same_object(obj: Object) -> object:
    return obj["metadata"].get("uid")


def _version(obj: Object) -> object:
    return obj["metadata"].get("resourceVersion")
