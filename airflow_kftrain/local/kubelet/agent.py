"""The kubelet of all local nodes: follows the pods that are bound to them and runs each as processes."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from airflow_kftrain.clock import Clock
from airflow_kftrain.cluster.client import Cluster
from airflow_kftrain.cluster.informer import Informer
from airflow_kftrain.cluster.resources import NODES, PODS, SERVICES
from airflow_kftrain.cluster.retry import with_retries
from airflow_kftrain.cluster.watch import ChangeType
from airflow_kftrain.exceptions import AlreadyExists, ApiError, ApiUnreachable, Conflict, NotFound
from airflow_kftrain.local.events import EventRecorder
from airflow_kftrain.local.kubelet.devices import Devices
from airflow_kftrain.local.kubelet.environment import Object
from airflow_kftrain.local.kubelet.images import Images
from airflow_kftrain.local.kubelet.logs import LogBook
from airflow_kftrain.local.kubelet.machine import BackOff, Machine
from airflow_kftrain.local.kubelet.names import (
    JOB_NAME_LABELS,
    Endpoint,
    Names,
    aliases,
    container_ports,
    host_name,
)
from airflow_kftrain.local.kubelet.pod import PodWorker, gpu_count
from airflow_kftrain.local.kubelet.ports import PortBlocks, PortTable, is_free
from airflow_kftrain.local.kubelet.rewrite import Rewriter
from airflow_kftrain.local.kubelet.status import FINAL_PHASES, lost, rfc3339
from airflow_kftrain.local.nodes import LOCAL_LABEL, NodeSpec, first_gpu, node_object, node_status

log = logging.getLogger(__name__)

LOST_MESSAGE = "The kubelet of the node ended, and the pod's processes with it"
_SHUTDOWN_GRACE = 2.0
# How long a name keeps its ports after the last that stood behind it: a job made anew may be on its way.
_PORTS_KEPT_SECONDS = 5.0


class Kubelet:
    """Runs the pods of the given nodes on this machine.

    :param root: where pods, logs and volumes have their directories
    :param tmp: where pods have their temporary files; a short path
    :param cluster_id: marks all processes; two clusters on one machine have different ones
    :param logs: where containers' output goes; the API server reads it there
    :param images_file: TOML table of images, read anew at each container start; see :class:`Images`
    :param remove_other_nodes: whether Node objects of an earlier start that are not wanted any more are removed
    """

    def __init__(
        self,
        cluster: Cluster,
        nodes: Sequence[NodeSpec],
        *,
        root: Path,
        tmp: Path,
        cluster_id: str,
        images_file: Path,
        logs: LogBook,
        clock: Clock,
        back_off: BackOff | None = None,
        remove_other_nodes: bool = True,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._nodes = list(nodes)
        self._remove_other_nodes = remove_other_nodes
        self._root = root
        self._devices = Devices({n.name: range((f := first_gpu(nodes, n.name)), f + n.gpus) for n in nodes})
        self._blocks = PortBlocks()
        self._ports = PortTable(self._blocks.take, self._blocks.give_back, is_free)
        self._pods = Informer(cluster, PODS, clock=clock)
        self._services = Informer(cluster, SERVICES, clock=clock)
        self._events = EventRecorder(cluster, "kubelet", clock=clock)
        self._workers: dict[str, PodWorker] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._forgetting: asyncio.Task[None] | None = None
        self._removed_nodes: set[str] = set()
        self._ready = asyncio.Event()
        self._machine = Machine(
            cluster,
            cluster_id,
            root,
            tmp,
            clock,
            logs,
            self._events,
            lambda: Images.load(images_file),
            self._rewriter,
            back_off or BackOff(),
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Register the nodes and run their pods until ``stop``; then end all processes, within two seconds.

        Pods that were running stay so in the API: the next start reports them lost.
        """
        await self._register_nodes()
        self._pods.add_handler(self._on_pod)
        helpers = [asyncio.create_task(c) for c in (self._services.run(), self._events.run())]
        try:
            # Services first: names of the pods found at the start may come from them.
            await self._services.synced()
            helpers.append(asyncio.create_task(self._pods.run()))
            await self._pods.synced()
            self._remove_strangers_files()
            self._ready.set()
            await stop.wait()
        finally:
            self._machine.closing = True
            helpers += [self._forgetting] if self._forgetting is not None else []
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
            await self._shut_down()

    async def ready(self) -> None:
        """Return once the nodes are registered and their pods known."""
        await self._ready.wait()

    def pod(self, namespace: str, name: str) -> Object | None:
        """The pod of that name as last seen, if it is on one of our nodes."""
        found = self._pods.get(namespace, name)
        return found if found is not None and self._is_mine(found) else None

    async def _shut_down(self) -> None:
        for worker in self._workers.values():
            worker.stop(_SHUTDOWN_GRACE)
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._blocks.close()

    def _on_pod(self, change: ChangeType, old: Object | None, new: Object | None) -> None:
        if change == "DELETED" or new is None:
            assert old is not None
            self._on_gone(old)
            return
        if not self._is_mine(new) or self._machine.closing:
            return
        worker = self._workers.get(new["metadata"]["uid"])
        if new["metadata"].get("deletionTimestamp"):
            if old is None or not old["metadata"].get("deletionTimestamp"):
                self._events.record(new, "Normal", "Killing", "Stopping the pod's containers")
            self._on_deletion(new, worker)
        elif worker is None and new.get("status", {}).get("phase") not in FINAL_PHASES:
            self._on_new(new)

    def _on_new(self, pod: Object) -> None:
        """Start a pod that was just bound; one that has a start time ran under a kubelet that is no more."""
        if pod.get("status", {}).get("startTime") or pod["spec"]["nodeName"] in self._removed_nodes:
            self._spawn(self._report_lost(pod))
            return
        uid, node = pod["metadata"]["uid"], pod["spec"]["nodeName"]
        wanted = sum(gpu_count(container) for container in pod["spec"]["containers"])
        worker = PodWorker(pod, self._machine, self._devices.take(node, uid, wanted))
        self._workers[uid] = worker
        self._spawn(self._run(worker, uid))

    async def _run(self, worker: PodWorker, uid: str) -> None:
        await worker.run(lambda: self._release(uid))
        current = self._pods.get(worker.pod["metadata"]["namespace"], worker.pod["metadata"]["name"])
        if current and current["metadata"]["uid"] == uid and current["metadata"].get("deletionTimestamp"):
            await self._finish_deletion(current)

    def _release(self, uid: str) -> None:
        self._devices.give_back(uid)
        self._ports.release(uid)

    def _on_deletion(self, pod: Object, worker: PodWorker | None) -> None:
        """End the pod's processes; its end, in :meth:`_run`, finishes the deletion. Without processes: finish it."""
        if worker is not None and not worker.ended:
            grace = float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
            worker.stop(grace)
        else:
            self._spawn(self._finish_deletion(pod))

    def _on_gone(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        worker = self._workers.pop(uid, None)
        if worker is not None:
            worker.abandon()
        self._spawn(self._clean_up(uid, worker))
        self._forget_ports_soon()

    async def _clean_up(self, uid: str, worker: PodWorker | None) -> None:
        """Remove a pod's directories and logs; one that was lost with an earlier kubelet has no worker."""
        if worker is not None:
            await worker.wait_ended()
        await asyncio.to_thread(self._machine.sandbox(uid).remove)
        self._machine.logs.forget(uid)

    async def _finish_deletion(self, pod: Object) -> None:
        meta = pod["metadata"]
        await self._tried(
            self._cluster.delete(
                PODS, meta["name"], meta["namespace"], uid=meta["uid"], grace_period_seconds=0
            )
        )

    async def _report_lost(self, pod: Object) -> None:
        meta = pod["metadata"]
        self._events.record(pod, "Warning", "NodeLost", LOST_MESSAGE)
        status = lost(pod, self._clock.now(), LOST_MESSAGE)
        patch = {"metadata": {"uid": meta["uid"]}, "status": status}
        await self._tried(
            self._cluster.patch(PODS, meta["name"], patch, meta["namespace"], subresource="status")
        )

    async def _tried(self, call: Awaitable[Any]) -> None:
        try:
            await call
        except (NotFound, Conflict):
            return  # gone already, or another one under that name
        except (ApiError, ApiUnreachable) as error:
            log.warning("%s", error)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            log.error("a task of the kubelet failed", exc_info=fault)

    def _is_mine(self, pod: Object) -> bool:
        node = pod["spec"].get("nodeName")
        return node in self._removed_nodes or any(node == mine.name for mine in self._nodes)

    def _rewriter(self, pod: Object) -> Rewriter:
        """The rewriter of a pod; the ports it declares are its own from here on."""
        meta = pod["metadata"]
        services = list(self._services.store.values())
        names = Names.known(meta["namespace"], [*self._pods.store.values(), pod], services)
        known_as = aliases(pod, services)
        own = {
            port: self._ports.own(
                Endpoint(meta["namespace"], host_name(pod), port), meta["uid"], known_as.get(port, ())
            )
            for port in container_ports(pod)
        }
        return Rewriter(names, partial(self._ports.host_port, user=meta["uid"]), own)

    def _forget_ports_soon(self) -> None:
        """Look once for all pods that go together."""
        if self._forgetting is None or self._forgetting.done():
            self._forgetting = asyncio.create_task(self._forget_ports())

    async def _forget_ports(self) -> None:
        """Give back the ports of names that no pod, Service or job stands behind any more."""
        await self._clock.sleep(_PORTS_KEPT_SECONDS)
        pods = self._pods.store.values()
        hosts = {(p["metadata"]["namespace"], host_name(p)) for p in pods} | set(self._services.store)
        jobs = {
            (p["metadata"]["namespace"], label)
            for p in pods
            for key in JOB_NAME_LABELS
            if (label := (p["metadata"].get("labels") or {}).get(key))
        }
        self._ports.forget(
            lambda e: (e.namespace, e.name) in hosts or (e.namespace, e.name.rsplit("-", 2)[0]) in jobs
        )

    async def _register_nodes(self) -> None:
        """Write our Node objects."""
        now = rfc3339(self._clock.now()) or ""
        if self._remove_other_nodes:
            await self._remove_nodes_of_earlier_starts()
        for spec in self._nodes:
            with suppress(AlreadyExists):
                await self._cluster.create(NODES, node_object(spec, now))
            await self._cluster.patch(
                NODES, spec.name, {"status": node_status(spec, now)}, subresource="status"
            )

    async def _remove_nodes_of_earlier_starts(self) -> None:
        present = await with_retries(
            lambda: self._cluster.list(NODES, label_selector=f"{LOCAL_LABEL}=true"), clock=self._clock
        )
        wanted = {node.name for node in self._nodes}
        for node in present.items:
            if node["metadata"]["name"] not in wanted:
                self._removed_nodes.add(node["metadata"]["name"])
                with suppress(NotFound):
                    await self._cluster.delete(NODES, node["metadata"]["name"])

    def _remove_strangers_files(self) -> None:
        """Remove directories of pods that are gone."""
        known = {pod["metadata"]["uid"] for pod in self._pods.store.values()}
        for parent in ("pods", "logs"):
            for path in (self._root / parent).glob("*"):
                if path.name not in known:
                    self._machine.sandbox(path.name).remove()
                    shutil.rmtree(path, ignore_errors=True)
