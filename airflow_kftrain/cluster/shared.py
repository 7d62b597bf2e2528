"""Many waiters, one watch: each follows a few objects of a collection that is watched once per event loop.

An event costs one dictionary look-up, whatever the number of waiters, and only the waiter concerned wakes. Of objects
that nobody follows nothing is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import ClassVar
from weakref import WeakKeyDictionary

from airflow_kftrain.clock import Clock, SystemClock
from airflow_kftrain.cluster.client import Cluster, Object
from airflow_kftrain.cluster.watch import Changed, Listed, Scope, list_and_watch
from airflow_kftrain.exceptions import ApiError, ApiUnreachable, KFTrainError

COHORT_SECONDS = 0.05
"""How long a new feed waits for more followers to be served by its first list."""

LATE_SECONDS = 0.2
"""How long a late follower waits for others to be served together."""

REMEMBERED = 256
"""Objects that are gone, of which a waiter keeps the last state."""

RELIST_ABOVE = 50
"""So many late followers are served by one list of everything instead of one read each."""

WAKE_AT_ONCE = 100
"""Followers that a list wakes before the event loop gets its turn: each then works for a fraction of a millisecond."""


@dataclass(frozen=True)
class Source:
    """A collection to follow objects of.

    :param connect: makes the client that the feed, and the reads of its followers, use
    :param scope: what is watched
    :param route: the key of the follower that an object concerns, or None
    :param slim: what is kept of an object in memory
    """

    connect: Callable[[], Cluster]
    scope: Scope
    route: Callable[[Object], Hashable | None]
    slim: Callable[[Object], Object] = lambda obj: obj


Fetch = Callable[[Cluster], Awaitable[list[Object]]]


@dataclass(eq=False)
class Following:
    """The objects that one waiter follows.

    ``objects`` maps uid to object. ``known`` tells that it is the whole truth as of some moment: before, a missing
    object may only not have been seen yet; afterwards it does not exist. ``gone`` holds the last state seen of the
    newest :data:`REMEMBERED` objects that were there and are no more.
    """

    key: Hashable
    cluster: Cluster
    fetch: Fetch
    objects: dict[str, Object] = field(default_factory=dict)
    gone: dict[str, Object] = field(default_factory=dict)
    known: bool = False
    _deleted: set[str] = field(default_factory=set)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _failure: BaseException | None = None
    _troubles: Callable[[], KFTrainError | None] = lambda: None

    async def changed(self) -> None:
        """Return when something changed since the last call; changes that came in between count as one."""
        await self._wake.wait()
        self._wake.clear()
        if self._failure is not None:
            raise self._failure

    @property
    def trouble(self) -> KFTrainError | None:
        """Why the cluster cannot be read at present, if it cannot."""
        return self._troubles()

    def _replace(self, objects: dict[str, Object]) -> None:
        if not self.known or objects != self.objects:
            self._remember({uid: obj for uid, obj in self.objects.items() if uid not in objects})
            self.objects = objects
            self._wake.set()
        self.known = True
        self._deleted.clear()

    def _apply(self, event: Changed) -> None:
        uid = event.object["metadata"]["uid"]
        if event.type == "DELETED":
            self.objects.pop(uid, None)
            self._remember({uid: event.object})
            if not self.known:
                self._deleted.add(uid)
        else:
            self.objects[uid] = event.object
        self._wake.set()

    def _merge(self, fetched: list[Object]) -> None:
        """Take a read that may be older than what the watch has told since."""
        for obj in fetched:
            uid = obj["metadata"]["uid"]
            present = self.objects.get(uid)
            if uid not in self._deleted and (present is None or _version(present) < _version(obj)):
                self.objects[uid] = obj
        self.known = True
        self._deleted.clear()
        self._wake.set()

    def _remember(self, objects: dict[str, Object]) -> None:
        self.gone.update(objects)
        for uid in list(self.gone)[:-REMEMBERED]:
            del self.gone[uid]

    def _fail(self, failure: BaseException) -> None:
        self._failure = failure
        self._wake.set()


class SharedWatches:
    """The feeds of one event loop, by key."""

    _of_loop: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, SharedWatches]] = WeakKeyDictionary()

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._feeds: dict[Hashable, _Feed] = {}

    @classmethod
    def of_running_loop(cls) -> SharedWatches:
        """The instance that all waiters of the running event loop share."""
        return cls._of_loop.setdefault(asyncio.get_running_loop(), cls())

    @contextlib.asynccontextmanager
    async def follow(
        self, feed_key: Hashable, source: Source, key: Hashable, fetch: Fetch
    ) -> AsyncIterator[Following]:
        """Follow the objects that ``source.route`` gives ``key`` for.

        The first follower of ``feed_key`` opens the watch with its ``source``, the last one closes it; so the feed
        key must name all that makes a difference: API server, credentials, namespace, kind.

        :param fetch: reads this follower's objects alone; used when it comes after the list
        """
        feed = self._feeds.get(feed_key)
        if feed is None:
            feed = self._feeds[feed_key] = _Feed(source, self._clock)
        following = feed.join(key, fetch)
        try:
            yield following
        finally:
            if feed.leave(following) and self._feeds.get(feed_key) is feed:
                del self._feeds[feed_key]
                await feed.close()


class _Feed:
    """One watch and those who follow it."""

    def __init__(self, source: Source, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._cluster = source.connect()
        self._followers: dict[Hashable, set[Following]] = {}
        self._covered: set[Following] = set()
        self._late: set[Following] = set()
        self._trouble: KFTrainError | None = None
        self._settled = asyncio.Event()  # set while no list is on its way
        self._tasks: set[asyncio.Task[None]] = set()
        self._watching = self._spawn(self._run(COHORT_SECONDS))
        self._serving: asyncio.Task[None] | None = None

    def join(self, key: Hashable, fetch: Fetch) -> Following:
        following = Following(key, self._cluster, fetch, _troubles=lambda: self._trouble)
        self._followers.setdefault(key, set()).add(following)
        self._late.add(following)
        if self._serving is None or self._serving.done():
            self._serving = self._spawn(self._serve_late())
        return following

    def leave(self, following: Following) -> bool:
        """Whether nobody is left."""
        followers = self._followers[following.key]
        followers.discard(following)
        if not followers:
            del self._followers[following.key]
        self._late.discard(following)
        self._covered.discard(following)
        return not self._followers

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._cluster.close()

    def _spawn(self, work: Awaitable[None]) -> asyncio.Task[None]:
        async def guarded() -> None:
            try:
                await work
            except Exception as error:  # noqa: BLE001 - a fault of ours must reach those who wait
                for following in [f for followers in self._followers.values() for f in followers]:
                    following._fail(error)

        task = asyncio.get_running_loop().create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _run(self, delay: float) -> None:
        await self._clock.sleep(delay)
        scope = self._source.scope
        async for event in list_and_watch(
            self._cluster,
            scope.resource,
            scope.namespace,
            label_selector=scope.label_selector,
            field_selector=scope.field_selector,
            clock=self._clock,
            keep=self._keep,
            on_listing=self._on_listing,
            on_trouble=self._on_trouble,
        ):
            self._trouble = None
            if isinstance(event, Listed):
                await self._dispatch_all(event)
            else:
                for following in self._followers.get(self._source.route(event.object), ()):
                    following._apply(event)

    def _keep(self, obj: Object) -> Object | None:
        return self._source.slim(obj) if self._source.route(obj) in self._followers else None

    def _on_listing(self) -> None:
        # Who joins while pages come in may have missed its own: it is served by a read of its own.
        self._settled.clear()
        self._covered = {following for followers in self._followers.values() for following in followers}
        self._late -= self._covered

    def _on_trouble(self, error: KFTrainError, failures: int) -> None:
        self._trouble = error if failures else self._trouble

    async def _dispatch_all(self, listed: Listed) -> None:
        by_key: dict[Hashable, dict[str, Object]] = {}
        for obj in listed.items:
            by_key.setdefault(self._source.route(obj), {})[obj["metadata"]["uid"]] = obj
        for number, following in enumerate(list(self._covered), start=1):
            if following in self._covered:  # it may have left meanwhile
                following._replace(dict(by_key.get(following.key, {})))
            if number % WAKE_AT_ONCE == 0:
                await asyncio.sleep(0)
        self._settled.set()

    async def _serve_late(self) -> None:
        await self._clock.sleep(LATE_SECONDS)  # the first list, if one is about to start, serves them all
        while self._late:
            if len(self._late) <= RELIST_ABOVE:
                await asyncio.gather(*[self._serve(following) for following in self._late])
                continue
            # A list on its way is never cut short: thousands that join one after the other would keep it from ending.
            await self._settled.wait()
            if len(self._late) > RELIST_ABOVE:
                self._settled.clear()
                self._watching.cancel()
                self._watching = self._spawn(self._run(0.0))
                await self._settled.wait()

    async def _serve(self, following: Following) -> None:
        try:
            fetched = await following.fetch(self._cluster)
        except (ApiError, ApiUnreachable) as error:
            self._trouble = error
            await self._clock.sleep(1.0)
            return
        self._late.discard(following)
        following._merge(
            [self._source.slim(obj) for obj in fetched if self._source.route(obj) == following.key]
        )


def _version(obj: Object) -> int:
    text = obj["metadata"].get("resourceVersion", "")
    return int(text) if text.isdigit() else 0
