"""Watches: what one follower is told, and when."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_kftrain.clock import Clock
from airflow_kftrain.local.apiserver.errors import StatusError, bad_request, too_old
from airflow_kftrain.local.apiserver.kinds import Kind
from airflow_kftrain.local.apiserver.reads import flag, number
from airflow_kftrain.local.apiserver.selectors import Predicate, selection
from airflow_kftrain.local.apiserver.store import Change, Record, Store, encode

Json = dict[str, Any]

BOOKMARK_SECONDS = 60.0
_DEFAULT_TIMEOUT = 3600
_INITIAL_EVENTS_END = "k8s.io/initial-events-end"


@dataclass(frozen=True)
class WatchRequest:
    """What a watch asks for.

    :param namespace: None means all
    :param since: revision after which changes are told; None means: what there is now, and all that follows
    :param initial: tell what there is now, then a marked bookmark (``sendInitialEvents``)
    """

    kind: Kind
    namespace: str | None
    since: int | None
    matches: Predicate | None
    bookmarks: bool
    initial: bool
    timeout: int

    @classmethod
    def read(cls, kind: Kind, namespace: str | None, query: Mapping[str, str]) -> WatchRequest:
        """:raises StatusError: 400, a query that means nothing"""
        version = query.get("resourceVersion", "")
        if version and not version.isdigit():
            raise bad_request(f"invalid resource version: {version!r}")
        since = int(version) if version and version != "0" else None
        initial = flag(query, "sendInitialEvents")
        return cls(
            kind,
            namespace,
            None if initial else since,
            selection(kind, query.get("labelSelector", ""), query.get("fieldSelector", "")),
            flag(query, "allowWatchBookmarks"),
            initial,
            number(query, "timeoutSeconds") or _DEFAULT_TIMEOUT,
        )


Line = bytes
Present = Callable[[Record], bytes]


async def follow(store: Store, clock: Clock, request: WatchRequest, present: Present) -> AsyncIterator[Line]:
    """Lines of a watch until its time is over; may yield an empty line, before it waits.

    :param present: the JSON of an object as this client wants it
    """
    seen = store.revision if request.since is None else request.since
    if seen > store.revision:
        # From a state that is no more (the data was reset): listing again is all that helps.
        yield _error(too_old(seen, store.revision))
        return
    await store.durable()
    if request.since is None:
        seen = store.revision
        initial = b"".join(_initial(store, request, present))
        await store.durable()
        yield initial + (_bookmark(request.kind, seen, end=True) if request.initial else b"")
    feed, ends = store.feed(request.kind), clock.monotonic() + request.timeout
    bookmark_at = clock.monotonic() + BOOKMARK_SECONDS
    while not store.closing:
        try:
            changes = feed.since(seen)
        except StatusError as error:
            yield _error(error)
            return
        if changes:
            seen = changes[-1].revision
            yield b"".join(_lines(changes, request, present))
            continue
        now = clock.monotonic()
        if now >= bookmark_at or now >= ends:
            bookmark_at = now + BOOKMARK_SECONDS
            seen = max(seen, store.published)
            if request.bookmarks:
                yield _bookmark(request.kind, seen)
        if now >= ends:
            return
        await feed.wait(max(0.0, min(ends, bookmark_at) - now))


def _initial(store: Store, request: WatchRequest, present: Present) -> Iterable[Line]:
    for record in store.list(request.kind, request.namespace):
        if request.matches is None or request.matches(record.obj):
            yield _line("ADDED", present(record))


def _lines(changes: Iterable[Change], request: WatchRequest, present: Present) -> Iterable[Line]:
    for change in changes:
        if request.namespace is not None and change.record.namespace != request.namespace:
            continue
        kind = _seen_as(change, request.matches)
        if kind:
            yield _line(kind, present(change.record))


def _seen_as(change: Change, matches: Predicate | None) -> str:
    """A change as a follower with a selector sees it: an object that stops to match is gone for him."""
    if matches is None:
        return change.type
    before = change.before is not None and matches(change.before.obj)
    if change.type == "DELETED":
        return "DELETED" if before else ""
    now = matches(change.record.obj)
    if now:
        return "MODIFIED" if before else "ADDED"
    return "DELETED" if before else ""


def _line(kind: str, data: bytes) -> Line:
    return b'{"type":"' + kind.encode() + b'","object":' + data + b"}\n"


def _bookmark(kind: Kind, revision: int, *, end: bool = False) -> Line:
    metadata: Json = {"resourceVersion": str(revision)}
    if end:
        metadata["annotations"] = {_INITIAL_EVENTS_END: "true"}
    return _line(
        "BOOKMARK", encode({"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata})
    )


def _error(error: StatusError) -> Line:
    return _line("ERROR", encode(error.body()))
