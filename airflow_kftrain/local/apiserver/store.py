"""All objects in memory, one resourceVersion for all, and the recent changes of each kind."""

from __future__ import annotations

import asyncio
import json
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from airflow_kftrain.local.apiserver.errors import StatusError, internal, too_old
from airflow_kftrain.local.apiserver.journal import Journal, Row
from airflow_kftrain.local.apiserver.kinds import Kind, Registry

Json = dict[str, Any]
Key = tuple[str, str]
ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def encode(value: Any) -> bytes:
    """Compact UTF-8 JSON; half a surrogate pair, which no UTF-8 can hold, becomes ``?``."""
    return _encode(value).encode("utf-8", "replace")


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """One version of an object. ``obj`` is shared by all who read it: never change it in place.

    :param id: the same for all versions of an object, never used again
    :param data: ``obj`` as JSON
    """

    id: int
    kind: Kind
    namespace: str
    name: str
    obj: Json
    data: bytes
    revision: int

    @property
    def key(self) -> Key:
        return self.namespace, self.name

    def copy(self) -> Json:
        """The object, to be changed freely."""
        copied: Json = json.loads(self.data)
        return copied


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """What happened to one object; ``record`` is its state after (for DELETED: its last one)."""

    type: ChangeType
    record: Record
    before: Record | None

    @property
    def revision(self) -> int:
        return self.record.revision


class Feed:
    """The recent changes of one kind, in order; whoever follows it keeps the last revision it has seen.

    :param horizon: the revision before which changes are not known
    :param capacity: how many changes are kept at least
    """

    def __init__(self, horizon: int, capacity: int) -> None:
        self.horizon = horizon
        self._capacity = capacity
        self._changes: list[Change] = []
        self._revisions: list[int] = []
        self._news = asyncio.Event()

    def publish(self, change: Change) -> None:
        self._changes.append(change)
        self._revisions.append(change.revision)
        self._trim()
        self.wake()

    def wake(self) -> None:
        """Let everybody who waits look again."""
        self._news.set()
        self._news = asyncio.Event()

    def _trim(self) -> None:
        if len(self._changes) > 2 * self._capacity:
            self.horizon = self._revisions[-self._capacity - 1]
            del self._changes[: -self._capacity]
            del self._revisions[: -self._capacity]

    def since(self, revision: int) -> list[Change]:
        """All changes after ``revision``.

        :raises StatusError: 410, they are no longer known
        """
        if revision < self.horizon:
            raise too_old(revision, self.horizon)
        return self._changes[bisect_right(self._revisions, revision) :]

    async def wait(self, seconds: float) -> None:
        """Until the next change, at most ``seconds``."""
        news = self._news
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await news.wait()


class Store:
    """Objects by kind, namespace and name.

    Reads and writes are synchronous, so that a read-modify-write between two awaits is atomic. A write is seen by
    reads at once, but by followers only after it is durable; whoever answers a client awaits :meth:`durable` first,
    so nothing is told that a crash could take back.

    :param history: how many changes of each kind a watch can go back
    """

    def __init__(self, registry: Registry, journal: Journal, *, history: int = 10_000) -> None:
        self._registry = registry
        self._journal = journal
        self._history = history
        self.revision = 0
        self._objects: dict[Kind, dict[str, dict[str, Record]]] = {kind: {} for kind in registry}
        self._feeds: dict[Kind, Feed] = {}
        self._pending: deque[Change] = deque()
        self._committed = 0
        self._failure: StatusError | None = None
        self._commit_news = asyncio.Event()
        self._listeners: list[Callable[[Change], None]] = []
        self.closing = False
        """Whether followers should come to an end."""

    def open(self) -> None:
        """Read what is on disk and begin to write; needs a running loop."""
        self.revision, rows = self._journal.open(self._on_commit)
        by_name = {kind.qualified: kind for kind in self._registry}
        for row in rows:
            kind = by_name.get(row.resource)
            if kind is not None and row.data is not None:  # else: of a kind that another version served
                obj = json.loads(row.data)
                metadata = obj["metadata"]
                namespace, name = metadata.get("namespace", ""), metadata["name"]
                record = Record(
                    row.id, kind, namespace, name, obj, row.data, int(metadata["resourceVersion"])
                )
                self._objects[kind].setdefault(namespace, {})[name] = record
        self._committed = self.revision
        self._feeds = {kind: Feed(self.revision, self._history) for kind in self._registry}

    def end_watches(self) -> None:
        """Let all followers come to an end."""
        self.closing = True
        for feed in self._feeds.values():
            feed.wake()

    async def close(self) -> None:
        """Write what is queued and let go of the file."""
        await self._journal.close()

    def listen(self, listener: Callable[[Change], None]) -> None:
        """Call ``listener`` with every change, at once when it is made; it must be quick and not write."""
        self._listeners.append(listener)

    def get(self, kind: Kind, namespace: str, name: str) -> Record | None:
        return self._objects[kind].get(namespace, {}).get(name)

    def list(self, kind: Kind, namespace: str | None = None) -> list[Record]:
        """Records ordered by namespace and name; of all namespaces when none is given."""
        spaces = self._objects[kind]
        if namespace is not None:
            return [record for _, record in sorted(spaces.get(namespace, {}).items())]
        return [record for space in sorted(spaces) for _, record in sorted(spaces[space].items())]

    def all(self) -> Iterator[Record]:
        """Every object there is."""
        for spaces in self._objects.values():
            for space in spaces.values():
                yield from space.values()

    def put(self, kind: Kind, obj: Json) -> Record:
        """Store ``obj`` (which must not be changed afterwards) under a new resourceVersion."""
        metadata = obj["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        before = self.get(kind, namespace, name)
        record = self._stamped(kind, namespace, name, obj, before)
        self._objects[kind].setdefault(namespace, {})[name] = record
        self._changed(Change("MODIFIED" if before else "ADDED", record, before), record.data)
        return record

    def remove(self, record: Record, last: Json | None = None) -> Record:
        """Remove an object; returns its last state, which carries the revision of the removal.

        :param last: that state, when it differs from what is stored
        """
        space = self._objects[record.kind][record.namespace]
        before = space.pop(record.name)
        if not space:
            del self._objects[record.kind][record.namespace]
        gone = self._stamped(record.kind, record.namespace, record.name, last or record.copy(), before)
        self._changed(Change("DELETED", gone, before), None)
        return gone

    def feed(self, kind: Kind) -> Feed:
        return self._feeds[kind]

    async def durable(self) -> None:
        """Until everything written so far is in the WAL.

        :raises StatusError: 500, the disk refuses; nothing more is accepted until a restart
        """
        goal = self.revision
        while self._committed < goal and self._failure is None:
            await self._commit_news.wait()
        if self._failure is not None:
            raise self._failure

    @property
    def published(self) -> int:
        """The last revision that followers have been told of."""
        return self._committed

    @property
    def failure(self) -> StatusError | None:
        return self._failure

    def _stamped(self, kind: Kind, namespace: str, name: str, obj: Json, before: Record | None) -> Record:
        if self._failure is not None:
            raise self._failure
        self.revision += 1
        obj["metadata"]["resourceVersion"] = str(self.revision)
        number = self.revision if before is None else before.id
        return Record(number, kind, namespace, name, obj, encode(obj), self.revision)

    def _changed(self, change: Change, data: bytes | None) -> None:
        record = change.record
        self._pending.append(change)
        self._journal.write(record.revision, Row(record.id, record.kind.qualified, data))
        for listener in self._listeners:
            listener(change)

    def _on_commit(self, revision: int, error: BaseException | None) -> None:
        if error is not None:
            self._failure = internal(f"the state cannot be written to disk: {error}")
        else:
            self._committed = revision
            while self._pending and self._pending[0].revision <= revision:
                change = self._pending.popleft()
                self._feeds[change.record.kind].publish(change)
        self._commit_news.set()
        self._commit_news = asyncio.Event()
