"""A JobController on a real API, turned by hand, and a player that acts as scheduler and kubelet."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from airflow_kftrain.clock import VirtualClock
from airflow_kftrain.cluster.client import Cluster
from airflow_kftrain.cluster.resources import EVENTS, PODS, SERVICES
from airflow_kftrain.controllers.events import EventRecorder
from airflow_kftrain.controllers.job_controller import JobController
from airflow_kftrain.controllers.kinds import RECONCILERS
from airflow_kftrain.controllers.objects import JOB_NAME
from airflow_kftrain.controllers.world import World
from airflow_kftrain.exceptions import ApiError, ApiUnreachable, NotFound

PATIENCE = 20.0
"""Seconds after which something that must come is known not to come."""

NAMESPACE = "default"
GANG_SCHEDULER = "gang-scheduler"


class Stage:
    """One controller of one kind, whose turns the test calls.

    :param acting: the client that the controller acts through, for instance one that fails; ``cluster`` by default
    """

    def __init__(self, cluster: Cluster, kind: str, *, acting=None, clock=None, gang=True) -> None:
        self.cluster = cluster
        self.reconciler = RECONCILERS[kind]
        self.resource = self.reconciler.resource
        self.clock = clock or VirtualClock()
        self.world = World(cluster, [self.reconciler], clock=self.clock, gang_scheduling=gang)
        self.recorder = EventRecorder(cluster, self.clock, self.reconciler.controller_name)
        self.controller = JobController(
            acting or cluster,
            self.reconciler,
            self.world,
            clock=self.clock,
            recorder=self.recorder,
            gang_scheduler=GANG_SCHEDULER if gang else None,
        )
        self.history: list[dict] = []
        self.look_again: dict[tuple[str, str], float | None] = {}
        self.errors: list[Exception] = []
        self.made: list[str] = []
        self._changed = asyncio.Event()
        for informer in self.world.informers:
            informer.add_handler(lambda *_: self._changed.set())
        self.world.jobs(kind).add_handler(self._note_status)
        self.world.pods.add_handler(self._note_pod)

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[Stage]:
        recording = asyncio.create_task(self.recorder.run())
        self._watching = asyncio.create_task(self.world.run())
        try:
            await asyncio.wait_for(self.world.synced(), PATIENCE)
            yield self
        finally:
            await _cancelled(self._watching, recording)

    @contextlib.asynccontextmanager
    async def frozen(self) -> AsyncIterator[None]:
        """Keep the caches from seeing anything; afterwards they list anew."""
        await _cancelled(self._watching)
        try:
            yield
        finally:
            self._watching = asyncio.create_task(self.world.run())

    def _note_status(self, change, old, new) -> None:
        if new is not None and (not self.history or self.history[-1] != shown_status(new)):
            self.history.append(shown_status(new))

    def _note_pod(self, change, old, new) -> None:
        if change == "ADDED":
            self.made.append(new["metadata"]["name"])

    async def submit(self, manifest: dict) -> dict:
        return await self.cluster.create(self.resource, manifest, NAMESPACE)

    async def change(self, name: str, spec: dict) -> None:
        """Change a job as its user would."""
        await self.cluster.patch(self.resource, name, {"spec": spec}, NAMESPACE)

    async def job(self, name: str) -> dict:
        return await self.cluster.get(self.resource, name, NAMESPACE)

    async def caught_up(self) -> None:
        """Return once the caches show what the API has."""
        async with asyncio.timeout(PATIENCE):
            while True:
                self._changed.clear()
                if all([await self._is_caught_up(informer) for informer in self.world.informers]):
                    return
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), 0.2)

    async def _is_caught_up(self, informer) -> bool:
        owned = informer in (self.world.pods, self.world.services)
        selector = JOB_NAME if owned else None
        live = await self.cluster.list(informer.resource, label_selector=selector)
        versions = {_key(obj): obj["metadata"]["resourceVersion"] for obj in live.items}
        return versions == {key: obj["metadata"]["resourceVersion"] for key, obj in informer.store.items()}

    async def settle(self, *, turns: int = 60) -> None:
        """Let the controller work until it wants no more; it fails the test if that does not come."""
        queue = self.controller.queue
        known = len(self.errors)
        for _ in range(turns):
            await self.caught_up()
            if not len(queue):
                return
            key = await queue.get()
            try:
                self.look_again[key] = await self.controller.reconcile(key)
                if self.look_again[key] == 0.0:
                    queue.add(key)
            except NotFound:
                pass
            except (ApiError, ApiUnreachable) as error:
                self.errors.append(error)
                if len(self.errors) - known < 20:  # a real queue would pause longer and longer
                    queue.add(key)
            finally:
                queue.done(key)
        raise AssertionError(f"the controller still works after {turns} turns: {self.history[-3:]}")

    async def wake(self, name: str) -> None:
        """Let the controller look at a job, as it does when the time it asked for has come."""
        self.controller.queue.add((NAMESPACE, name))
        await self.settle()

    async def pods(self) -> dict[str, dict]:
        return {p["metadata"]["name"]: p for p in (await self.cluster.list(PODS, NAMESPACE)).items}

    async def services(self) -> list[str]:
        listed = await self.cluster.list(SERVICES, NAMESPACE, label_selector=JOB_NAME)
        return sorted(service["metadata"]["name"] for service in listed.items)

    async def events(self, name: str) -> list[dict]:
        await asyncio.wait_for(self.recorder.flush(), PATIENCE)
        listed = await self.cluster.list(EVENTS, NAMESPACE)
        return [e for e in listed.items if e["involvedObject"]["name"] == name]

    async def event_kinds(self, name: str) -> list[list[str]]:
        return sorted([t, r] for t, r in {(e["type"], e["reason"]) for e in await self.events(name)})

    async def play(self) -> None:
        """Run every pod that waits, as a cluster with room would; then let the controller see it."""
        for pod in (await self.pods()).values():
            phase = pod["status"].get("phase", "Pending")
            if phase == "Pending" and pod["metadata"].get("deletionTimestamp") is None:
                await self.set_pod(pod, "Running", {"running": {"startedAt": "2026-01-01T00:00:00Z"}})
        await self.settle()

    async def block(self) -> None:
        """Mark every waiting pod as one that no node takes."""
        for pod in (await self.pods()).values():
            condition = {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
            await self.cluster.patch(
                PODS,
                pod["metadata"]["name"],
                {"status": {"conditions": [condition]}},
                NAMESPACE,
                subresource="status",
            )
        await self.settle()

    async def end(self, pod_name: str, code: int) -> None:
        """A pod ends by itself; the controller sees it."""
        pod = (await self.pods())[pod_name]
        state = {"terminated": {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}}
        await self.set_pod(pod, "Succeeded" if code == 0 else "Failed", state)
        await self.settle()

    async def set_pod(self, pod: dict, phase: str, state: dict) -> None:
        patch = {"status": pod_status(pod, phase, state)}
        await self.cluster.patch(PODS, pod["metadata"]["name"], patch, NAMESPACE, subresource="status")

    async def terminated(self, pod_name: str, code: int | None = None) -> None:
        """A pod that was told to end is gone; with ``code``, its end is seen before that."""
        if code is not None:
            await self.end(pod_name, code)
        with contextlib.suppress(NotFound):
            await self.cluster.delete(PODS, pod_name, NAMESPACE, grace_period_seconds=0)
        await self.settle()


def pod_status(pod: dict, phase: str, state: dict) -> dict:
    """What a kubelet reports of a pod all of whose containers are in one state."""
    statuses = [
        {
            "name": c["name"],
            "image": c["image"],
            "imageID": c["image"],
            "ready": phase == "Running",
            "restartCount": 0,
            "state": state,
        }
        for c in pod["spec"]["containers"]
    ]
    return {"phase": phase, "conditions": [], "containerStatuses": statuses}


def shown_status(job: dict) -> dict:
    """A status in the form of the recordings."""
    status = job.get("status") or {}
    return {
        "completionTime": "completionTime" in status,
        "conditions": [[c["type"], c["status"], c["reason"]] for c in status.get("conditions") or ()],
        "replicaStatuses": {
            name: {k: v for k, v in counts.items() if k != "selector"}
            for name, counts in (status.get("replicaStatuses") or {}).items()
        },
    }


async def _cancelled(*tasks: asyncio.Task) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _key(obj: dict) -> tuple[str, str]:
    return obj["metadata"].get("namespace") or "", obj["metadata"]["name"]
