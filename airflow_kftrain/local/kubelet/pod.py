"""One pod's life on this machine, from its binding to its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from airflow_kftrain.cluster.resources import CONFIGMAPS, PODS, SECRETS, Resource
from airflow_kftrain.cluster.retry import with_retries
from airflow_kftrain.exceptions import ApiError, ApiUnreachable, NotFound
from airflow_kftrain.local.kubelet.container import ContainerLife, PodContext, waits_for_a_name
from airflow_kftrain.local.kubelet.environment import Object, Sources, references
from airflow_kftrain.local.kubelet.machine import Machine
from airflow_kftrain.local.kubelet.plan import Sandbox
from airflow_kftrain.local.kubelet.refusal import ContainerRefused, MountFailed
from airflow_kftrain.local.kubelet.status import FINAL_PHASES, PodState, pod_status
from airflow_kftrain.local.kubelet.volumes import prepare_volumes

log = logging.getLogger(__name__)

_DEFAULT_GRACE = 30.0
_LONGEST_MOUNT_PAUSE = 20.0


class PodWorker:
    """Runs one pod and keeps its status in the API true.

    :param gpus: indices of the node's GPUs that are this pod's; None when the node has not as many left
    """

    def __init__(self, pod: Object, machine: Machine, gpus: Sequence[int] | None) -> None:
        self.pod = pod
        self.state = PodState.new(pod)
        self._machine = machine
        self._changed = asyncio.Event()
        self._stop = asyncio.Event()
        self._grace = float(pod["spec"].get("terminationGracePeriodSeconds", _DEFAULT_GRACE))
        self._hurry = asyncio.Event()
        self._gone = False
        self._ended = asyncio.Event()
        self._refused = gpus is None
        self._lives = self._make_lives(list(gpus or ()))

    @property
    def final(self) -> bool:
        """Whether the pod has reached a phase that it will not leave."""
        return self.state.phase(self._restart_policy) in FINAL_PHASES

    @property
    def ended(self) -> bool:
        """Whether :meth:`run` is over: no process of the pod is left."""
        return self._ended.is_set()

    async def wait_ended(self) -> None:
        """Return when :meth:`run` is over."""
        await self._ended.wait()

    def stop(self, grace: float) -> None:
        """End the pod's processes within ``grace`` seconds; a later call can only shorten that."""
        if self._stop.is_set() and grace < self._grace:
            self._hurry.set()
        self._grace = grace
        self._stop.set()

    def abandon(self) -> None:
        """The object is gone from the API: end at once and report nothing more."""
        self._gone = True
        self.stop(0)
        self._hurry.set()

    async def run(self, release: Callable[[], None]) -> None:
        """Run to the end; returns when no process of the pod is left and its last status is written.

        :param release: called in between: whoever sees the pod's last status may count on its devices
        """
        self.state.start_time = self._machine.clock.now()
        reporting = asyncio.ensure_future(self._report_changes())
        try:
            if self._refused:
                self.state.verdict = _NO_DEVICES
            else:
                await self._live_until_stopped()
        finally:
            await self._end_all()
            await self._machine.sweeper.sweep(self.pod["metadata"]["uid"])
            reporting.cancel()
            await asyncio.gather(reporting, return_exceptions=True)
            release()
            await self._report()
            self._ended.set()

    @property
    def _sandbox(self) -> Sandbox:
        return self._machine.sandbox(self.pod["metadata"]["uid"])

    @property
    def _restart_policy(self) -> str:
        return self.pod["spec"].get("restartPolicy") or "Always"

    def _make_lives(self, gpus: list[int]) -> dict[str, ContainerLife]:
        lives: dict[str, ContainerLife] = {}
        spec = self.pod["spec"]
        for container in [*(spec.get("initContainers") or ()), *spec["containers"]]:
            mine, gpus = gpus[: gpu_count(container)], gpus[gpu_count(container) :]
            state = self.state.find(container["name"])
            lives[container["name"]] = ContainerLife(container, state, self._machine, tuple(mine))
        return lives

    async def _live_until_stopped(self) -> None:
        life = asyncio.create_task(self._live())
        stopped = asyncio.create_task(self._stop.wait())
        deadline = asyncio.create_task(self._deadline())
        tasks: tuple[asyncio.Task[Any], ...] = (life, stopped, deadline)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if deadline.done() and not life.done():
                self.state.verdict = _DEADLINE
        finally:
            for task in tasks:
                task.cancel()
            fault, *_ = await asyncio.gather(*tasks, return_exceptions=True)
        if isinstance(fault, Exception):
            log.error("pod %s ended by a fault of the kubelet", self._name, exc_info=fault)
            self.state.verdict = ("Failed", "KubeletError", str(fault))

    async def _deadline(self) -> None:
        seconds = self.pod["spec"].get("activeDeadlineSeconds")
        if seconds is None:
            await asyncio.Event().wait()
        await self._machine.clock.sleep(float(seconds))

    async def _live(self) -> None:
        """Volumes, init containers in order, then all containers; sidecars end after them."""
        self._sandbox.make()
        context = await self._prepare()
        spec = self.pod["spec"]
        async with asyncio.TaskGroup() as group:
            sidecars: list[asyncio.Task[bool]] = []
            for container in spec.get("initContainers") or ():
                if container.get("restartPolicy") == "Always":
                    sidecars.append(group.create_task(self._supervise(context, container, "Always")))
                    await self._lives[container["name"]].started.wait()
                elif not await self._initialize(context, container):
                    break
            else:
                policy = self._restart_policy
                running = [group.create_task(self._supervise(context, c, policy)) for c in spec["containers"]]
                await asyncio.wait(running)
            for sidecar in sidecars:
                sidecar.cancel()

    async def _initialize(self, context: PodContext, container: Object) -> bool:
        if waits_for_a_name(container):
            text = f"init container {container['name']} waits for DNS, which is not needed here: skipped"
            self._lives[container["name"]].skip(text)
            self._machine.events.record(self.pod, "Normal", "InitContainerSkipped", text)
            self._changed.set()
            return True
        policy = "Never" if self._restart_policy == "Never" else "OnFailure"
        return await self._supervise(context, container, policy)

    async def _supervise(self, context: PodContext, container: Object, policy: str) -> bool:
        return await self._lives[container["name"]].supervise(context, policy, self._changed)

    async def _prepare(self) -> PodContext:
        """Read what the pod refers to and make its volumes, as soon as all is there."""
        attempt = 0
        while True:
            try:
                sources = await self._read_sources()
                volumes = self._make_volumes(sources)
            except (MountFailed, ContainerRefused, OSError, KeyError) as error:
                self._machine.events.record(self.pod, "Warning", "FailedMount", str(error))
                self._changed.set()
                await self._machine.clock.sleep(min(_LONGEST_MOUNT_PAUSE, 2.0**attempt))
                attempt += 1
            else:
                self._changed.set()
                return PodContext(self.pod, volumes, self._read_sources)

    def _make_volumes(self, sources: Sources) -> dict[str, Path]:
        namespace = self.pod["metadata"]["namespace"]
        directory = self._sandbox.volumes
        return prepare_volumes(self.pod, directory, self._machine.claims(namespace), sources)

    async def _read_sources(self) -> Sources:
        found: dict[str, dict[str, Object]] = {"configmap": {}, "secret": {}}
        for kind, name in references(self.pod):
            resource = CONFIGMAPS if kind == "configmap" else SECRETS
            with suppress(NotFound):
                found[kind][name] = await self._get(resource, name)
        return Sources(found["configmap"], found["secret"])

    async def _get(self, resource: Resource, name: str) -> Object:
        namespace = self.pod["metadata"]["namespace"]
        return await with_retries(
            lambda: self._machine.cluster.get(resource, name, namespace), clock=self._machine.clock
        )

    async def _end_all(self) -> None:
        """End the containers, then the sidecars in reverse order, all within one grace period."""
        clock, began = self._machine.clock, self._machine.clock.monotonic()
        inits = [c["name"] for c in self.pod["spec"].get("initContainers") or ()]
        mains = [c["name"] for c in self.pod["spec"]["containers"]]
        for names in [mains, *([name] for name in reversed(inits))]:
            left = max(0.0, self._grace - (clock.monotonic() - began))
            ending = asyncio.gather(*(self._lives[name].end(left) for name in names))
            hurry = asyncio.create_task(self._hurry.wait())
            waited: set[asyncio.Future[Any]] = {ending, hurry}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            hurry.cancel()
            if not ending.done():
                await asyncio.gather(*(self._lives[name].end(0) for name in names), ending)

    async def _report_changes(self) -> None:
        while True:
            self._changed.clear()
            if not self.final:  # the last status is written when nothing of the pod is left
                await self._report()
            await self._changed.wait()

    async def _report(self) -> None:
        """Write the status as it is now; a pod that is gone from the API is ended."""
        if self._gone or self._machine.closing:
            return
        meta = self.pod["metadata"]
        status = pod_status(self.pod, self.state, self._machine.clock.now())
        patch = {"metadata": {"uid": meta["uid"]}, "status": status}
        try:
            self.pod = await with_retries(
                lambda: self._machine.cluster.patch(
                    PODS, meta["name"], patch, meta["namespace"], subresource="status"
                ),
                clock=self._machine.clock,
                attempts=8,
            )
        except NotFound:
            self.abandon()
        except (ApiError, ApiUnreachable) as error:
            log.warning("the status of pod %s cannot be written: %s", self._name, error)

    @property
    def _name(self) -> str:
        return f"{self.pod['metadata']['namespace']}/{self.pod['metadata']['name']}"


_DEADLINE = ("Failed", "DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
_NO_DEVICES = (
    "Failed",
    "UnexpectedAdmissionError",
    "Allocate failed due to requested number of devices unavailable for nvidia.com/gpu",
)


def gpu_count(container: Object) -> int:
    """GPUs (and MIG slices, one each) of a container's limits."""
    limits = (container.get("resources") or {}).get("limits") or {}
    return sum(
        int(v) for name, v in limits.items() if name.endswith("/gpu") or name.startswith("nvidia.com/mig-")
    )
