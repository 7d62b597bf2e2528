"""Garbage collection by owner references, foreground and orphaning deletion, and the end of namespaces.

The rules are those of kube-controller-manager's garbage collector and namespace controller: level-based, from a queue
of objects to look at.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from airflow_kftrain.local.apiserver.deletes import FOREGROUND, ORPHAN, DeleteOptions, Deleter
from airflow_kftrain.local.apiserver.kinds import Kind, Registry
from airflow_kftrain.local.apiserver.store import Change, Json, Record, Store
from airflow_kftrain.local.apiserver.writes import Options, Writer

_Place = tuple[Kind, str, str]


class Collector:
    """Deletes what its owners no longer hold. :meth:`note` sees every change, :meth:`run_once` acts."""

    def __init__(self, registry: Registry, store: Store, writer: Writer, deleter: Deleter) -> None:
        self._registry = registry
        self._store = store
        self._writer = writer
        self._deleter = deleter
        self._namespaces = registry.core("namespaces")
        self._dependents: dict[str, dict[_Place, None]] = {}
        self._queue: deque[_Place] = deque()
        self._queued: set[_Place] = set()

    def begin(self) -> None:
        """Take in what the store holds; whatever was under way when the server ended goes on."""
        for record in self._store.all():
            self._index(record)
            self._enqueue(record)

    def note(self, change: Change) -> None:
        """Keep the index and queue what the change may concern; only from the store."""
        record, before = change.record, change.before
        if change.type == "DELETED":
            self._unindex(before or record)
            self._enqueue_dependents(record)
            self._enqueue_waiting(record)
            return
        if before is None or _owners(before) != _owners(record):
            if before is not None:
                self._unindex(before)
            self._index(record)
            self._enqueue(record)
        elif "deletionTimestamp" in record.obj["metadata"]:
            self._enqueue(record)

    def run_once(self) -> None:
        """Look at everything that is queued, also at what that queues."""
        while self._queue:
            place = self._queue.popleft()
            self._queued.discard(place)
            record = self._store.get(*place)
            if record is not None:
                self._look_at(record)

    def _look_at(self, record: Record) -> None:
        metadata = record.obj["metadata"]
        finalizers = metadata.get("finalizers") or ()
        if "deletionTimestamp" in metadata:
            if ORPHAN in finalizers:
                self._orphan(record)
            elif FOREGROUND in finalizers:
                self._delete_dependents_first(record)
            elif record.kind is self._namespaces:
                self._empty(record)
        elif _owners(record):
            self._check_owners(record)

    def _check_owners(self, record: Record) -> None:
        """Delete an object whose owners are all gone; let go of those that are gone while others remain."""
        owners = _owners(record)
        solid = [owner for owner in owners if self._holds(record, owner)]
        if len(solid) == len(owners):
            return
        if solid:
            self._keep_owners(record, solid)
            return
        finalizers = record.obj["metadata"].get("finalizers") or ()
        being_awaited = any(self._find(record, owner) is not None for owner in owners)
        policy = (
            "Orphan" if ORPHAN in finalizers else "Foreground" if FOREGROUND in finalizers else "Background"
        )
        if being_awaited and self._dependents.get(record.obj["metadata"]["uid"]):
            policy = "Foreground"
        self._deleter.delete(record, DeleteOptions(policy=policy))

    def _holds(self, record: Record, owner: Json) -> bool:
        """Whether an owner is there and not waiting for this dependent to go; unknown kinds hold for ever."""
        if self._registry.of_type(owner["apiVersion"], owner["kind"]) is None:
            return True
        found = self._find(record, owner)
        return found is not None and not _awaits_dependents(found)

    def _find(self, record: Record, owner: Json) -> Record | None:
        kind = self._registry.of_type(owner["apiVersion"], owner["kind"])
        if kind is None:
            return None
        found = self._store.get(kind, record.namespace if kind.namespaced else "", owner["name"])
        return found if found is not None and found.obj["metadata"]["uid"] == owner["uid"] else None

    def _keep_owners(self, record: Record, owners: list[Json]) -> None:
        new = record.copy()
        new["metadata"]["ownerReferences"] = owners
        if not owners:
            del new["metadata"]["ownerReferences"]
        self._writer.update(record, new, Options())

    def _orphan(self, record: Record) -> None:
        uid = record.obj["metadata"]["uid"]
        for dependent in list(self._records_of(uid)):
            self._keep_owners(dependent, [owner for owner in _owners(dependent) if owner["uid"] != uid])
        self._drop_finalizer(record, ORPHAN)

    def _delete_dependents_first(self, record: Record) -> None:
        uid = record.obj["metadata"]["uid"]
        for dependent in list(self._records_of(uid)):
            if "deletionTimestamp" not in dependent.obj["metadata"]:
                self._check_owners(dependent)
        blocking = any(
            owner["uid"] == uid and owner.get("blockOwnerDeletion")
            for dependent in self._records_of(uid)
            for owner in _owners(dependent)
        )
        if not blocking:
            self._drop_finalizer(record, FOREGROUND)

    def _drop_finalizer(self, record: Record, finalizer: str) -> None:
        new = record.copy()
        new["metadata"]["finalizers"] = [f for f in new["metadata"]["finalizers"] if f != finalizer]
        self._writer.update(record, new, Options())

    def _empty(self, namespace: Record) -> None:
        """Delete everything in a namespace, then the namespace."""
        left = 0
        for kind in self._registry:
            if not kind.namespaced:
                continue
            for record in self._store.list(kind, namespace.name):
                if "deletionTimestamp" not in record.obj["metadata"]:
                    self._deleter.delete(record, DeleteOptions())
                left += self._store.get(kind, record.namespace, record.name) is not None
        if not left:
            new = namespace.copy()
            new["spec"] = {**new.get("spec", {}), "finalizers": []}
            self._writer.update(namespace, new, Options())

    def _index(self, record: Record) -> None:
        for owner in _owners(record):
            self._dependents.setdefault(owner["uid"], {})[_place(record)] = None

    def _unindex(self, record: Record) -> None:
        for owner in _owners(record):
            places = self._dependents.get(owner["uid"], {})
            places.pop(_place(record), None)
            if not places:
                self._dependents.pop(owner["uid"], None)

    def _records_of(self, uid: str) -> Iterator[Record]:
        for place in list(self._dependents.get(uid, ())):
            record = self._store.get(*place)
            if record is not None:
                yield record

    def _enqueue(self, record: Record) -> None:
        metadata = record.obj["metadata"]
        if metadata.get("ownerReferences") or "deletionTimestamp" in metadata:
            self._enqueue_place(_place(record))

    def _enqueue_place(self, place: _Place) -> None:
        if place not in self._queued:
            self._queued.add(place)
            self._queue.append(place)

    def _enqueue_dependents(self, record: Record) -> None:
        for place in self._dependents.get(record.obj["metadata"]["uid"], ()):
            self._enqueue_place(place)

    def _enqueue_waiting(self, record: Record) -> None:
        """Queue what waits for this removal: owners in foreground deletion, and a namespace that ends."""
        for owner in _owners(record):
            found = self._find(record, owner)
            if found is not None:
                self._enqueue(found)
        namespace = self._store.get(self._namespaces, "", record.namespace)
        if namespace is not None:
            self._enqueue(namespace)


def _owners(record: Record) -> list[Json]:
    return record.obj["metadata"].get("ownerReferences") or []


def _place(record: Record) -> _Place:
    return record.kind, record.namespace, record.name


def _awaits_dependents(record: Record) -> bool:
    metadata = record.obj["metadata"]
    return "deletionTimestamp" in metadata and FOREGROUND in (metadata.get("finalizers") or ())
