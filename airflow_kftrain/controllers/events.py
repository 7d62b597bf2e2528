"""Kubernetes Events about jobs: recorded beside the work, never in its way."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from dataclasses import dataclass

from airflow_kftrain.clock import Clock
from airflow_kftrain.cluster.client import Cluster
from airflow_kftrain.cluster.resources import EVENTS
from airflow_kftrain.controllers.conditions import timestamp
from airflow_kftrain.controllers.status import Note
from airflow_kftrain.controllers.view import JobView, Object
from airflow_kftrain.exceptions import AlreadyExists, ApiError, ApiUnreachable

log = logging.getLogger(__name__)

LONGEST_MESSAGE = 1024
"""Characters; the API refuses more."""


@dataclass
class _Written:
    """An event that is in the API: how often it happened since it was written last, and when that was."""

    unwritten: int
    at: float


class EventRecorder:
    """Queues events and writes them in the background; the same event again only raises a count.

    An event's name is a function of its job, reason and message: recorded again after a crash, or by another replica
    of the controller, it is the same event. A repeated one is written at most once in ``quiet`` seconds.

    :param component: the source that events name
    """

    def __init__(
        self, cluster: Cluster, clock: Clock, component: str, *, quiet: float = 60.0, remember: int = 4096
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._component = component
        self._quiet = quiet
        self._remember = remember
        self._written: OrderedDict[str, _Written] = OrderedDict()
        self._queue: asyncio.Queue[Object] = asyncio.Queue()

    def record(self, job: JobView, note: Note) -> None:
        """Have ``note`` recorded on ``job``."""
        event = self._event(job, note)
        name = event["metadata"]["name"]
        written = self._written.get(name)
        now = self._clock.monotonic()
        if written is not None and now - written.at < self._quiet:
            written.unwritten += 1
            return
        self._written[name] = _Written(0, now)
        self._written.move_to_end(name)
        while len(self._written) > self._remember:
            self._written.popitem(last=False)
        event["count"] = 1 + (written.unwritten if written else 0)
        self._queue.put_nowait(event)

    async def run(self) -> None:
        """Write queued events; runs until cancelled."""
        while True:
            event = await self._queue.get()
            try:
                await self._write(event)
            except (ApiError, ApiUnreachable) as error:
                # Events help people; work must not stop for them.
                log.debug("event %s of %s not recorded: %s", event["reason"], event["involvedObject"], error)
            finally:
                self._queue.task_done()

    async def flush(self) -> None:
        """Return once all queued events are written or given up; needs :meth:`run` beside it."""
        await self._queue.join()

    async def _write(self, event: Object) -> None:
        metadata = event["metadata"]
        try:
            await self._cluster.create(EVENTS, event)
        except AlreadyExists:
            current = await self._cluster.get(EVENTS, metadata["name"], metadata["namespace"])
            count = int(current.get("count") or 1) + event["count"]
            patch = {"count": count, "lastTimestamp": event["lastTimestamp"]}
            await self._cluster.patch(EVENTS, metadata["name"], patch, metadata["namespace"])

    def _event(self, job: JobView, note: Note) -> Object:
        now = timestamp(self._clock.now())
        message = note.message
        if len(message) > LONGEST_MESSAGE:
            message = f"{message[: LONGEST_MESSAGE - 1]}…"
        identity = "\0".join((job.uid, note.type, note.reason, message))
        digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{job.name}.{digest}", "namespace": job.namespace},
            "involvedObject": {
                "apiVersion": job.framework.api_version,
                "kind": job.kind,
                "namespace": job.namespace,
                "name": job.name,
                "uid": job.uid,
                "resourceVersion": job.raw["metadata"].get("resourceVersion", ""),
            },
            "type": note.type,
            "reason": note.reason,
            "message": message,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": "",
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
