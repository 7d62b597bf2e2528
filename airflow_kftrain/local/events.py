"""Events about objects, written beside the work: what cannot be written is dropped, never waited for."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from airflow_kftrain.clock import Clock
from airflow_kftrain.cluster.client import Cluster
from airflow_kftrain.cluster.resources import EVENTS
from airflow_kftrain.exceptions import ApiError, ApiUnreachable

log = logging.getLogger(__name__)

_REMEMBERED = 2000
_QUEUE = 5000


@dataclass(frozen=True)
class _Note:
    subject: str
    kind: str
    reason: str
    message: str


class EventRecorder:
    """Records Events; the same one again counts up instead of adding another.

    :param component: who reports, for instance ``kubelet``
    """

    def __init__(self, cluster: Cluster, component: str, *, clock: Clock) -> None:
        self._cluster = cluster
        self._component = component
        self._clock = clock
        self._queue: asyncio.Queue[tuple[_Note, dict[str, Any]]] = asyncio.Queue(_QUEUE)
        self._written: OrderedDict[_Note, tuple[str, int]] = OrderedDict()
        self._serial = 0

    def record(
        self, subject: Mapping[str, Any], kind: Literal["Normal", "Warning"], reason: str, message: str
    ) -> None:
        """Note an Event about ``subject`` (an object with apiVersion and kind); returns at once."""
        meta = subject["metadata"]
        note = _Note(str(meta.get("uid")), kind, reason, message)
        reference = {
            "apiVersion": subject.get("apiVersion", "v1"),
            "kind": subject.get("kind", "Pod"),
            "name": meta["name"],
            "namespace": meta.get("namespace"),
            "uid": meta.get("uid"),
        }
        if self._queue.full():
            log.debug("event dropped: %s", note)
            return
        self._queue.put_nowait((note, reference))

    async def run(self) -> None:
        """Write what is recorded; runs until cancelled."""
        while True:
            note, reference = await self._queue.get()
            try:
                await self._write(note, reference)
            except (ApiError, ApiUnreachable) as error:
                log.debug("event not written: %s: %s", note, error)

    async def _write(self, note: _Note, reference: dict[str, Any]) -> None:
        now = self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        namespace = reference["namespace"] or "default"
        known = self._written.get(note)
        if known is not None:
            name, count = known
            self._written[note] = (name, count + 1)
            await self._cluster.patch(EVENTS, name, {"count": count + 1, "lastTimestamp": now}, namespace)
            return
        self._serial += 1
        name = f"{reference['name'][:200]}.{int(self._clock.now().timestamp() * 1e6):x}{self._serial:x}"
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": reference,
            "type": note.kind,
            "reason": note.reason,
            "message": note.message[:1024],
            "source": {"component": self._component},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        await self._cluster.create(EVENTS, event, namespace)
        self._written[note] = (name, 1)
        if len(self._written) > _REMEMBERED:
            self._written.popitem(last=False)
