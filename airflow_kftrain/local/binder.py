"""The local cluster's scheduler: binds whole gangs, explains what waits, and looks again whenever something changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from airflow_kftrain.clock import Clock
from airflow_kftrain.cluster.client import Cluster
from airflow_kftrain.cluster.informer import Informer
from airflow_kftrain.cluster.resources import NODES, PODGROUPS, PODS
from airflow_kftrain.cluster.watch import ChangeType
from airflow_kftrain.exceptions import ApiError, ApiUnreachable, Conflict, NotFound
from airflow_kftrain.local.events import EventRecorder
from airflow_kftrain.local.placement import Binding, Placement, Waiting, decide

log = logging.getLogger(__name__)

_RETRY_SECONDS = 1.0
# Changes come in bursts, a gang's pods one by one: one decision for all.
_GATHER_SECONDS = 0.01
_PATIENCE_SECONDS = 0.5
"""A pod that waits shorter is not explained: its gang is still being made, or what held its place is just ending."""


class Binder:
    """Watches nodes, pods and PodGroups; every change leads to a new decision at once."""

    def __init__(self, cluster: Cluster, *, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._events = EventRecorder(cluster, "kftrain-binder", clock=clock)
        self._nodes = Informer(cluster, NODES, clock=clock)
        self._pods = Informer(cluster, PODS, clock=clock)
        self._groups = Informer(cluster, PODGROUPS, clock=clock)
        self._wake = asyncio.Event()
        self._ready = asyncio.Event()
        self._assumed: dict[str, str] = {}
        """Bound by us, but not seen so by the watch yet: node by pod uid."""
        self._explained: dict[str, str] = {}
        self._waiting_since: dict[str, float] = {}
        for informer in (self._nodes, self._pods, self._groups):
            informer.add_handler(self._on_change)

    async def run(self, stop: asyncio.Event) -> None:
        """Bind until ``stop``."""
        informers = (self._nodes, self._pods, self._groups)
        tasks = [asyncio.create_task(informer.run()) for informer in informers]
        tasks.append(asyncio.create_task(self._events.run()))
        try:
            for informer in informers:
                await informer.synced()
            self._ready.set()
            tasks.append(asyncio.create_task(self._bind_for_ever()))
            await stop.wait()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def ready(self) -> None:
        """Return once nodes, pods and PodGroups are known."""
        await self._ready.wait()

    async def _bind_for_ever(self) -> None:
        while True:
            self._wake.clear()
            placement = decide(self._nodes.store.values(), self._present_pods(), self._groups.store.values())
            await self._act(placement)
            await self._wake.wait()
            await asyncio.sleep(_GATHER_SECONDS)

    async def _act(self, placement: Placement) -> None:
        results = await asyncio.gather(*(self._bind(binding) for binding in placement.bindings))
        if not all(results):
            asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._wake.set)
        for waiting in placement.waiting:
            if self._is_due(waiting):
                await self._explain(waiting)

    def _present_pods(self) -> list[Mapping[str, Any]]:
        """The pods as the watch has them, with our own last bindings laid over."""
        present: list[Mapping[str, Any]] = []
        for pod in self._pods.store.values():
            node = self._assumed.get(pod["metadata"]["uid"])
            present.append(pod if node is None else {**pod, "spec": {**pod["spec"], "nodeName": node}})
        return present

    async def _bind(self, binding: Binding) -> bool:
        """Bind one pod; False when another look is needed soon."""
        self._assumed[binding.uid] = binding.node
        path = f"{PODS.path(binding.namespace, binding.name)}/binding"
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": binding.name, "namespace": binding.namespace, "uid": binding.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": binding.node},
        }
        try:
            await self._cluster.raw("POST", path, body=body)
        except (NotFound, Conflict):
            del self._assumed[binding.uid]
            return True  # gone, or bound by somebody else: the watch tells
        except (ApiError, ApiUnreachable) as error:
            log.warning("pod %s/%s cannot be bound: %s", binding.namespace, binding.name, error)
            del self._assumed[binding.uid]
            return False
        pod = self._pods.get(binding.namespace, binding.name)
        if pod is not None:
            text = f"Successfully assigned {binding.namespace}/{binding.name} to {binding.node}"
            self._events.record(pod, "Normal", "Scheduled", text)
        return True

    def _is_due(self, waiting: Waiting) -> bool:
        now = asyncio.get_running_loop().time()
        since = self._waiting_since.setdefault(waiting.uid, now)
        if since == now:
            asyncio.get_running_loop().call_later(_PATIENCE_SECONDS, self._wake.set)
        return now - since >= _PATIENCE_SECONDS

    async def _explain(self, waiting: Waiting) -> None:
        """Write the reason into the pod's condition and an event, once for each new reason."""
        if self._explained.get(waiting.uid) == waiting.message:
            return
        pod = self._pods.get(waiting.namespace, waiting.name)
        if pod is None or pod["metadata"]["uid"] != waiting.uid:
            return
        now = self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": waiting.reason,
            "message": waiting.message,
            "lastTransitionTime": now,
        }
        patch = {"metadata": {"uid": waiting.uid}, "status": {"conditions": [condition]}}
        try:
            await self._cluster.patch(
                PODS, waiting.name, patch, waiting.namespace, style="strategic", subresource="status"
            )
        except (ApiError, ApiUnreachable) as error:
            log.debug("pod %s/%s: reason not written: %s", waiting.namespace, waiting.name, error)
            return
        self._explained[waiting.uid] = waiting.message
        self._events.record(pod, "Warning", "FailedScheduling", waiting.message)

    def _on_change(
        self, change: ChangeType, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None
    ) -> None:
        obj = new or old
        assert obj is not None
        uid = obj["metadata"].get("uid")
        if change == "DELETED":
            self._assumed.pop(uid, None)
            self._explained.pop(uid, None)
            self._waiting_since.pop(uid, None)
        elif obj.get("spec", {}).get("nodeName"):
            self._assumed.pop(uid, None)
        self._wake.set()
