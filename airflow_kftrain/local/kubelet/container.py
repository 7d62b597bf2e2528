"""One container's life: starts, ends, back-off, and the record of both."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.local.kubelet.environment import Object, Sources
from airflow_kftrain.local.kubelet.machine import Machine
from airflow_kftrain.local.kubelet.plan import Launch, Surroundings, plan_launch
from airflow_kftrain.local.kubelet.process import ContainerProcess, start
from airflow_kftrain.local.kubelet.refusal import ContainerRefused
from airflow_kftrain.local.kubelet.status import ContainerState, Terminated
from airflow_kftrain.local.kubelet.volumes import container_mounts, mounted_file

# The operator's init container polls DNS until the master's Service is there; no DNS is needed here.
_WAITS_FOR_A_NAME = re.compile(r"for \w+ in .*\bnslookup\s+\S+.*exit\s+\$err", re.DOTALL)
_MESSAGE_LINES, _MESSAGE_BYTES = 80, 2048
_LONGEST_RETRY = 20.0


def waits_for_a_name(container: Object) -> bool:
    """Whether an init container does nothing but wait until DNS knows a name."""
    command = list(container.get("command") or [])
    return len(command) == 3 and _WAITS_FOR_A_NAME.search(str(command[2])) is not None


@dataclass(frozen=True)
class PodContext:
    """What a pod's containers share.

    :param read_sources: reads what the pod refers to, as it is now; asked before each start
    """

    pod: Object
    volumes: dict[str, Path]
    read_sources: Callable[[], Awaitable[Sources]]


class ContainerLife:
    """Runs one container of a pod until its restart policy is content.

    :param gpus: indices of the node's GPUs that are this container's
    """

    def __init__(
        self, container: Object, state: ContainerState, machine: Machine, gpus: tuple[int, ...] = ()
    ) -> None:
        self.container = container
        self.state = state
        self.started = asyncio.Event()
        self._machine = machine
        self._gpus = gpus
        self._launch: Launch | None = None
        self._process: ContainerProcess | None = None
        self._following: asyncio.Task[None] | None = None
        self._failures = 0

    async def supervise(self, context: PodContext, restart_policy: str, changed: asyncio.Event) -> bool:
        """Start the container, and again as ``restart_policy`` says; whether it succeeded in the end.

        :param changed: set whenever the container's state is worth reporting
        """
        while True:
            await self._start(context, changed)
            assert self._following is not None
            await asyncio.shield(self._following)
            ended = self.state.terminated
            assert ended is not None
            if restart_policy == "Never" or (restart_policy == "OnFailure" and ended.exit_code == 0):
                return ended.exit_code == 0
            await self._back_off(context, ended, changed)

    async def end(self, grace: float) -> None:
        """SIGTERM to the container's processes, SIGKILL when ``grace`` seconds have passed; returns when it ended."""
        if self._following is None or self._following.done():
            return
        stopping = asyncio.ensure_future(self._ask_to_end())
        deadline = asyncio.ensure_future(self._machine.clock.sleep(grace))
        try:
            await asyncio.wait({self._following, deadline}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            deadline.cancel()
            stopping.cancel()
        if self._process is not None:
            self._process.signal(signal.SIGKILL)
        await asyncio.shield(self._following)

    def skip(self, reason: str) -> None:
        """Count the container as done without running it."""
        now = self._machine.clock.now()
        self.state.waiting = None
        self.state.started_at = now
        self.state.terminated = Terminated(0, "Completed", now, now, reason)

    async def _start(self, context: PodContext, changed: asyncio.Event) -> None:
        """Start it as soon as all it refers to is there."""
        attempts = 0
        while True:
            try:
                self._start_once(context, await context.read_sources(), changed)
            except ContainerRefused as refusal:
                attempts += 1
                await self._wait_out(context.pod, refusal, attempts, changed)
            else:
                self._machine.events.record(
                    context.pod, "Normal", "Started", f"Started container {self.state.name}"
                )
                return

    def _start_once(self, context: PodContext, sources: Sources, changed: asyncio.Event) -> None:
        pod, machine = context.pod, self._machine
        try:
            image = machine.images().find(self.state.image)
        except InvalidInput as error:
            raise ContainerRefused("CreateContainerConfigError", str(error)) from error
        if image.unpullable:
            raise ContainerRefused("ErrImagePull", f'failed to pull image "{self.state.image}": not found')
        mounts = container_mounts(self.container, context.volumes)
        around = Surroundings(
            machine.cluster_id,
            machine.sandbox(pod["metadata"]["uid"]),
            sources,
            machine.rewriter(pod),
            self._gpus,
        )
        self._launch = plan_launch(pod, self.container, image, mounts, around)
        try:
            self._process = start(self._launch)
        except (OSError, ValueError) as error:
            raise ContainerRefused("CreateContainerError", f"cannot start a process: {error}") from error
        self._mark_started(changed)
        message_file = mounted_file(self.container.get("terminationMessagePath") or "", mounts)
        self._following = asyncio.ensure_future(self._follow(self._process, pod, message_file, changed))

    def _mark_started(self, changed: asyncio.Event) -> None:
        state = self.state
        assert self._process is not None
        if state.terminated is not None:
            state.restart_count += 1
            state.last, state.terminated = state.terminated, None
        state.waiting = None
        state.started_at = self._machine.clock.now()
        state.container_id = f"process://{self._process.pid}-{state.restart_count}"
        self.started.set()
        changed.set()

    async def _follow(
        self, process: ContainerProcess, pod: Object, message_file: Path | None, changed: asyncio.Event
    ) -> None:
        state, clock = self.state, self._machine.clock
        output = self._machine.logs.begin(pod["metadata"]["uid"], state.name, state.restart_count)
        try:
            code = await process.run(output.write)
        finally:
            output.close()
        state.terminated = Terminated(
            code,
            "Completed" if code == 0 else "Error",
            state.started_at,
            clock.now(),
            self._message(pod, code, message_file),
        )
        changed.set()

    def _message(self, pod: Object, code: int, file: Path | None) -> str:
        """The termination message: of its file in a volume, else the log's end if asked for and it failed."""
        if file is not None and file.is_file():
            return file.read_bytes()[:_MESSAGE_BYTES].decode("utf-8", "replace")
        if code == 0 or self.container.get("terminationMessagePolicy") != "FallbackToLogsOnError":
            return ""
        return self._machine.logs.tail(
            pod["metadata"]["uid"],
            self.state.name,
            self.state.restart_count,
            lines=_MESSAGE_LINES,
            limit=_MESSAGE_BYTES,
        )

    async def _wait_out(
        self, pod: Object, refusal: ContainerRefused, attempts: int, changed: asyncio.Event
    ) -> None:
        events = self._machine.events
        self.state.waiting = (refusal.reason, refusal.message)
        changed.set()
        if refusal.reason != "ErrImagePull":
            events.record(pod, "Warning", "Failed", f"Error: {refusal.message}")
            await self._machine.clock.sleep(min(_LONGEST_RETRY, 2.0 ** (attempts - 1)))
            return
        events.record(pod, "Warning", "Failed", f"Failed to pull image: {refusal.message}")
        pause = self._machine.back_off.pause(attempts + 1)
        # The first refusal stays in sight for a moment, as a pull that is tried takes one.
        await self._machine.clock.sleep(min(1.0, pause))
        self.state.waiting = ("ImagePullBackOff", f'Back-off pulling image "{self.state.image}"')
        events.record(pod, "Normal", "BackOff", f'Back-off pulling image "{self.state.image}"')
        changed.set()
        await self._machine.clock.sleep(pause)

    async def _back_off(self, context: PodContext, ended: Terminated, changed: asyncio.Event) -> None:
        machine, meta = self._machine, context.pod["metadata"]
        began = ended.started_at or ended.finished_at
        ran = (ended.finished_at - began).total_seconds()
        self._failures = 1 if ran >= machine.back_off.forgiven else self._failures + 1
        pause = machine.back_off.pause(self._failures)
        if pause <= 0:
            return
        where = f"{meta['name']}_{meta['namespace']}({meta['uid']})"
        text = f"back-off {pause:g}s restarting failed container={self.state.name} pod={where}"
        self.state.waiting = ("CrashLoopBackOff", text)
        self.state.last = ended
        changed.set()
        machine.events.record(
            context.pod, "Warning", "BackOff", f"Back-off restarting failed container {self.state.name}"
        )
        await machine.clock.sleep(pause)

    async def _ask_to_end(self) -> None:
        """The preStop hook, then SIGTERM."""
        hook = (self.container.get("lifecycle") or {}).get("preStop") or {}
        if "sleep" in hook:
            await self._machine.clock.sleep(float(hook["sleep"].get("seconds", 0)))
        command = (hook.get("exec") or {}).get("command")
        if command and self._launch is not None:
            process = start(Launch(command, self._launch.env, self._launch.cwd))
            try:
                await process.run(lambda _: None)
            finally:
                process.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.signal(signal.SIGTERM)
