"""Plays cases on one API server with one set of controllers, and records what became of each."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_kftrain.cluster.client import Cluster, Object
from airflow_kftrain.cluster.resources import PODS
from airflow_kftrain.exceptions import ApiError, NotFound
from tests.controlplane.conformance.busy import Busy, NeverBusy
from tests.controlplane.conformance.cases import Case, Change, Create, Delete, End, LosePod, Pass, Step, Until
from tests.controlplane.conformance.ends import PodEnder
from tests.controlplane.conformance.record import Record, checkpoint, condition_changes, job_events
from tests.controlplane.conformance.world import JobWorld, World

REACH_SECONDS = 20.0
"""How long a step may take to lead where the case says; then what is there is recorded."""

FORGOTTEN_SECONDS = 5.0
"""A running job without pods after so long is nudged."""

QUIET_SECONDS = 2.0
"""Nothing changes for so long, and the controllers were idle meanwhile: whatever they do, they have done."""

SILENT_SECONDS = 4.0
"""No event in the whole namespace for so long: all are written."""

SETTLE_SECONDS = 90.0
"""How long it may take until nothing changes any more."""

CONCURRENT_CASES = 8
"""The real operator makes 20 calls a second; more cases at once only wait for each other."""


Goal = Callable[[JobWorld], bool]


@dataclass(frozen=True)
class Column:
    """One way to run a job: an API server, its controllers, and the namespaces they see to.

    :param namespaces: by whether they work in gang mode; cases are spread over them
    """

    title: str
    cluster: Cluster
    namespaces: Mapping[bool, Sequence[str]]
    ender: PodEnder
    busy: Busy = field(default_factory=NeverBusy)

    async def play(self, cases: Sequence[Case]) -> dict[str, Record]:
        """Play all cases, several at a time."""
        gate = asyncio.Semaphore(CONCURRENT_CASES)
        players: list[_Player] = []
        async with contextlib.AsyncExitStack() as stack:
            worlds = {
                name: await stack.enter_async_context(World(self.cluster, name).watched())
                for name in itertools.chain(*self.namespaces.values())
            }
            turns = {gang: itertools.cycle(names) for gang, names in self.namespaces.items()}

            async def play(player: _Player) -> None:
                async with gate:
                    await player.play()

            async with asyncio.TaskGroup() as group:
                for case in cases:
                    namespace = next(turns[case.gang])
                    world = worlds[namespace].job(case.manifest["metadata"]["name"])
                    players.append(_Player(self, case, namespace, world))
                    group.create_task(play(players[-1]))
            # The operator writes its events beside its work, up to 20 a second: the last ones are late.
            await asyncio.gather(*(world.silent(SILENT_SECONDS, SETTLE_SECONDS) for world in worlds.values()))
            return {player.case.name: player.record() for player in players}


class _Player:
    """One case in one column."""

    def __init__(self, column: Column, case: Case, namespace: str, world: JobWorld) -> None:
        self._cluster = column.cluster
        self._ender = column.ender
        self._busy = column.busy
        self._namespace = namespace
        self.case = case
        self._world = world
        self._steps: dict[str, Any] = {}
        self._conditions: list[str] = []
        self._names = {self._namespace: "NAMESPACE", **column.ender.names}

    async def play(self) -> None:
        """Take all steps, and delete the job."""
        before: dict[str, str] = {}
        for step in self.case.steps:
            try:
                await self._act(step)
            except ApiError as error:
                self._steps[step.title] = {"refused": error.status}
                break
            reached = await self._reach(_GOALS[step.until])
            quiet = await self._world.quiet(QUIET_SECONDS, SETTLE_SECONDS, self._last_idle)
            shown = checkpoint(self._world, before, self._names)
            self._steps[step.title] = shown | {"reached": reached, "quiet": quiet}
            before = {name: pod["metadata"]["uid"] for name, pod in self._world.pods.items()}
        self._conditions = condition_changes(self._world)
        await self._remove()

    def record(self) -> Record:
        """What became of it."""
        return Record(
            {"steps": self._steps, "conditions": self._conditions, "events": job_events(self._world)}
        )

    def _last_idle(self) -> float:
        return self._busy.last_idle(self._namespace, self.case.manifest["kind"])

    async def _reach(self, goal: Goal) -> bool:
        """Whether the goal was reached; a job that the operator forgot is nudged once.

        It does so now and then: it fails to read the PodGroup that it has just made, and does not look again.
        """
        if await self._world.until(goal, FORGOTTEN_SECONDS):
            return True
        job = self._world.job
        if job is not None and not self._world.pods and goal is _runs:
            patch = {"metadata": {"annotations": {"kftrain.test/nudge": "forgotten"}}}
            await self._cluster.patch(
                self.case.kind.resource, job["metadata"]["name"], patch, self._namespace
            )
        return await self._world.until(goal, REACH_SECONDS)

    async def _act(self, step: Step) -> None:
        action, resource = step.action, self.case.kind.resource
        name = self.case.manifest["metadata"]["name"]
        match action:
            case Create():
                manifest = self._ender.adapt(copy.deepcopy(self.case.manifest))
                await self._cluster.create(resource, manifest, self._namespace)
                await self._world.until(lambda world: world.job is not None, REACH_SECONDS)
            case Change(patch):
                made = await self._cluster.patch(resource, name, dict(patch), self._namespace)
                version = made["metadata"]["resourceVersion"]
                await self._world.until(lambda world: _has_seen(world, version), REACH_SECONDS)
            case Delete():
                await self._cluster.delete(resource, name, self._namespace)
            case LosePod(replica):
                pod = self._world.pods[replica]
                await self._cluster.delete(PODS, pod["metadata"]["name"], self._namespace)
                uid = pod["metadata"]["uid"]
                await self._world.until(lambda world: uid not in _uids(world), REACH_SECONDS)
            case Pass(seconds):
                await asyncio.sleep(seconds)
            case End(codes):
                await asyncio.gather(*(self._end(replica, code) for replica, code in codes.items()))

    async def _end(self, replica: str, code: int) -> None:
        pod = self._world.pods.get(replica)
        if pod is None or (pod.get("status") or {}).get("phase") != "Running":
            return
        await self._ender.end(pod, code)
        await self._world.until(lambda world: _has_ended(world, replica, pod), REACH_SECONDS)

    async def _remove(self) -> None:
        with contextlib.suppress(NotFound):
            await self._cluster.delete(
                self.case.kind.resource, self.case.manifest["metadata"]["name"], self._namespace
            )


def _has_seen(world: JobWorld, version: str) -> bool:
    return world.job is None or int(world.job["metadata"]["resourceVersion"]) >= int(version)


def _uids(world: JobWorld) -> set[str]:
    return {pod["metadata"]["uid"] for pod in world.pods.values()}


def _restarts(pod: Object) -> int:
    return sum(status["restartCount"] for status in (pod.get("status") or {}).get("containerStatuses") or ())


def _has_ended(world: JobWorld, replica: str, before: Object) -> bool:
    pod = world.pods.get(replica)
    return (
        pod is None
        or pod["metadata"]["uid"] != before["metadata"]["uid"]
        or pod["status"]["phase"] != "Running"
        or _restarts(pod) > _restarts(before)
    )


def _wanted(job: Object) -> int:
    specs = next(value for key, value in job["spec"].items() if key.endswith("ReplicaSpecs"))
    return sum(1 if spec.get("replicas") is None else spec["replicas"] for spec in specs.values())


def _holds(job: Object | None, *conditions: str) -> bool:
    found = ((job or {}).get("status") or {}).get("conditions") or ()
    return any(one["type"] in conditions and one["status"] == "True" for one in found)


def _runs(world: JobWorld) -> bool:
    pods = world.pods.values()
    alive = all(
        pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")
        for pod in pods
    )
    return (
        world.job is not None and alive and len(pods) == _wanted(world.job) and _holds(world.job, "Running")
    )


_GOALS: Mapping[Until, Goal] = {
    "settled": lambda world: True,
    "running": _runs,
    "finished": lambda world: _holds(world.job, "Succeeded", "Failed"),
    "suspended": lambda world: _holds(world.job, "Suspended") and not world.pods,
    "gone": lambda world: world.job is None and not world.pods,
}


def dump(records: Mapping[str, Record]) -> str:
    """Records as text, for looking at them."""
    return json.dumps({name: record.value for name, record in records.items()}, indent=1, sort_keys=True)
