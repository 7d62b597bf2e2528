"""Copies log lines of a gang's replicas as they come, and reads what those that report for it say."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from airflow_kftrain.clock import Clock
from airflow_kftrain.cluster.client import Cluster
from airflow_kftrain.cluster.retry import pause_after
from airflow_kftrain.exceptions import ApiError, ApiUnreachable, BadRequest, Forbidden, NotFound
from airflow_kftrain.jobs.gang import Replica
from airflow_kftrain.jobs.lines import Fresh, Line, LineSplitter
from airflow_kftrain.jobs.progress import Progress, read_report

TAIL = 20
"""Last lines of a failed replica that are shown."""

EVALUATOR = "Evaluator"
"""Replica type that reports beside the first: how good the model is, often after the training has ended."""

LAST_TRIES = 5
"""Failures in a row after which the log of a pod that has ended is given up."""

Say = Callable[[str], None]


@dataclass
class _Stream:
    """One pod's log."""

    replica: str
    pod: str
    shown: bool
    reports: bool
    over: bool = False
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL))
    fresh: Fresh = field(default_factory=Fresh)


class ReplicaLogs:
    """Follows the logs of those replicas that are to be shown, and of those that report: the first and evaluators.

    :param container: the container that trains
    :param first: the replica that reports for the gang
    :param shown: replicas or replica types to show, or one of ``first``, ``all``, ``none``
    :param say: writes one line into the task's log
    :param on_progress: called when the first replica reported something new
    """

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        container: str,
        *,
        first: str,
        shown: Iterable[str],
        say: Say,
        on_progress: Callable[[], None],
        clock: Clock,
    ) -> None:
        self.progress = Progress()
        self._cluster = cluster
        self._namespace = namespace
        self._container = container
        self._first = first
        self._shown = frozenset(shown)
        self._say = say
        self._on_progress = on_progress
        self._clock = clock
        self._rng = random.Random()  # noqa: S311 - spreads load, guards nothing
        self._streams: dict[str, _Stream] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def keep_up(self, replicas: Iterable[Replica], gone: Iterable[str]) -> None:
        """Start the streams that are due, and note which pods have ended.

        :param gone: uids of pods that are no more
        """
        for replica in replicas:
            uid = replica.uid
            if uid is None or replica.pod is None or replica.phase in ("Pending", "Missing"):
                continue
            stream = self._streams.get(uid)
            if stream is None:
                reports = replica.name == self._first or replica.replica_type == EVALUATOR
                shown = self._is_shown(replica)
                if not (reports or shown):
                    continue
                stream = self._streams[uid] = _Stream(replica.name, replica.pod, shown, reports)
                self._tasks[uid] = asyncio.create_task(self._follow(stream))
            stream.over = stream.over or replica.final
        for uid in gone:
            if uid in self._streams:
                self._streams[uid].over = True

    async def drain(self, seconds: float) -> None:
        """Give the streams of pods that have ended time to come to their own end."""
        running = [task for uid, task in self._tasks.items() if self._streams[uid].over and not task.done()]
        if running:
            wait = asyncio.ensure_future(asyncio.wait(running))
            pause = asyncio.ensure_future(self._clock.sleep(seconds))
            await asyncio.wait({wait, pause}, return_when=asyncio.FIRST_COMPLETED)
            wait.cancel()
            pause.cancel()

    async def stop(self) -> None:
        """End all streams."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def tell_ends(self, failed: Iterable[Replica], most: int = 3) -> dict[str, list[str]]:
        """Write the last lines of failed replicas, unless they are shown anyway; the lines by replica."""
        told: dict[str, list[str]] = {}
        for replica in list(failed)[:most]:
            stream = self._streams.get(replica.uid or "")
            lines = list(stream.tail) if stream is not None else []
            if not lines and replica.pod is not None:
                lines = await self._read_tail(replica.pod)
            told[replica.name] = lines
            if lines and not (stream is not None and stream.shown):
                self._say(f"Last lines of {replica.name}:")
                for line in lines:
                    self._say(f"[{replica.name}] {line}")
        return told

    def _is_shown(self, replica: Replica) -> bool:
        names = {"all", replica.name, replica.replica_type.lower()}
        return bool(self._shown & names) or ("first" in self._shown and replica.name == self._first)

    async def _follow(self, stream: _Stream) -> None:
        """Read the log to its end, again from where it broke when it breaks."""
        failures = 0
        while True:
            try:
                await self._read(stream)
                failures = 0
            except (NotFound, Forbidden) as error:
                if isinstance(error, Forbidden):
                    self._say(f"The log of {stream.replica} cannot be read: {error}")
                return
            except BadRequest:
                failures = 0  # the container is not there yet, or starts again
            except (ApiError, ApiUnreachable):
                failures += 1
            if stream.over and (not failures or failures >= LAST_TRIES):
                return
            await self._clock.sleep(pause_after(max(failures, 1), rng=self._rng, first=1.0))
            stream.fresh.reconnected()

    async def _read(self, stream: _Stream) -> None:
        splitter = LineSplitter(stamps=True)
        latest = stream.fresh.latest
        since = None if latest is None else int((self._clock.now() - latest).total_seconds()) + 2
        chunks = self._cluster.logs(
            stream.pod,
            self._namespace,
            container=self._container,
            follow=True,
            timestamps=True,
            since_seconds=since,
        )
        async for chunk in chunks:
            for line in splitter.feed(chunk):
                self._take(stream, line)
        for line in splitter.close():
            self._take(stream, line)

    async def _read_tail(self, pod: str) -> list[str]:
        splitter = LineSplitter()
        found: list[Line] = []
        try:
            async for chunk in self._cluster.logs(
                pod, self._namespace, container=self._container, tail_lines=TAIL
            ):
                found += splitter.feed(chunk)
        except (ApiError, ApiUnreachable):
            pass  # the pod is gone, or never ran: there is nothing to show
        found += splitter.close()
        return [line.text for line in found[-TAIL:]]

    def _take(self, stream: _Stream, line: Line) -> None:
        if not stream.fresh.is_new(line):
            return
        report = read_report(line.text) if stream.reports else None
        if report is not None:
            progress = self.progress.told(report)
            if progress is not self.progress:
                self.progress = progress
                self._on_progress()
            return
        if not line.transient:
            stream.tail.append(line.text)
            if stream.shown:
                self._say(f"[{stream.replica}] {line.text}")
