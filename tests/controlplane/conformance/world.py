"""What is in one namespace, as watches tell it, by the job that it belongs to."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Self

from airflow_kftrain.cluster.client import Cluster, Object
from airflow_kftrain.cluster.informer import Informer
from airflow_kftrain.cluster.resources import EVENTS, PODGROUPS, PODS, SERVICES, Resource
from tests.controlplane.conformance.cases import KINDS

HEARD_SECONDS = 0.5
JOB_NAME = "training.kubeflow.org/job-name"
_JOBS = tuple(kind.resource for kind in KINDS.values())


class JobWorld:
    """One job and all that was made for it, now and before."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.objects: dict[Resource, dict[str, Object]] = {}
        self.statuses: list[Object] = []
        self.uid: str | None = None
        self.changed = asyncio.Event()

    def see(self, resource: Resource, name: str, new: Object | None) -> None:
        """Take in one change."""
        kept = self.objects.setdefault(resource, {})
        if new is None:
            # Events are a history: that the server forgets them is no change of it.
            if resource is not EVENTS:
                kept.pop(name, None)
        else:
            kept[name] = new
            if resource in _JOBS:
                self._see_job(new)
        self.changed.set()

    def _see_job(self, job: Object) -> None:
        if job["metadata"]["uid"] != self.uid:  # another one of that name, for instance of a test run before
            self.uid, self.statuses = job["metadata"]["uid"], []
        if not self.statuses or self.statuses[-1] != job.get("status"):
            self.statuses.append(job.get("status") or {})

    def of(self, resource: Resource) -> dict[str, Object]:
        """Objects of a kind, by name."""
        return self.objects.get(resource, {})

    @property
    def job(self) -> Object | None:
        """The job, if it exists."""
        return next((job for kind in _JOBS for job in self.of(kind).values()), None)

    @property
    def pods(self) -> dict[str, Object]:
        """The pods, by replica: ``worker-0``."""
        return {name.removeprefix(f"{self.name}-"): pod for name, pod in sorted(self.of(PODS).items())}

    async def until(self, holds: Callable[[Self], bool], seconds: float) -> bool:
        """Whether ``holds`` became true within ``seconds``."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not holds(self):
                    self.changed.clear()
                    await self.changed.wait()
        return holds(self)

    async def quiet(self, quiet_seconds: float, seconds: float, last_idle: Callable[[], float]) -> bool:
        """Whether within ``seconds`` nothing changed for ``quiet_seconds``, with idle controllers since the change."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                since = time.monotonic()
                while True:
                    self.changed.clear()
                    try:
                        await asyncio.wait_for(self.changed.wait(), quiet_seconds)
                        since = time.monotonic()
                    except TimeoutError:
                        # The controllers may hear of the change a little later than we do.
                        if last_idle() > since + HEARD_SECONDS:
                            return True
        return False


class World:
    """All jobs of one namespace."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._jobs: dict[str, JobWorld] = {}
        self._said = asyncio.Event()
        self._informers = [
            Informer(cluster, resource, namespace) for resource in (*_JOBS, PODS, SERVICES, PODGROUPS, EVENTS)
        ]
        for informer in self._informers:
            informer.add_handler(self._handler(informer.resource))

    def job(self, name: str) -> JobWorld:
        """The world of one job, which need not exist yet."""
        return self._jobs.setdefault(name, JobWorld(name))

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[Self]:
        """Keep it up to date within the block."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(informer.run()) for informer in self._informers]
            for informer in self._informers:
                await informer.synced()
            yield self
            for task in tasks:
                task.cancel()

    async def silent(self, silent_seconds: float, seconds: float) -> bool:
        """Whether within ``seconds`` no event came for ``silent_seconds``."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    self._said.clear()
                    try:
                        await asyncio.wait_for(self._said.wait(), silent_seconds)
                    except TimeoutError:
                        return True
        return False

    def _handler(self, resource: Resource) -> Callable[[str, Object | None, Object | None], None]:
        def handle(_: str, old: Object | None, new: Object | None) -> None:
            seen = new if new is not None else old
            assert seen is not None
            if resource is EVENTS:
                self._said.set()
            for job in _jobs_of(resource, seen):
                self.job(job).see(resource, seen["metadata"]["name"], new)

        return handle


def _jobs_of(resource: Resource, obj: Object) -> Iterable[str]:
    """The names of the jobs that an object belongs to: at most one."""
    metadata = obj["metadata"]
    if resource is EVENTS:
        involved = obj["involvedObject"]
        if involved["kind"] in KINDS:
            yield involved["name"]
    elif resource in _JOBS or resource is PODGROUPS:
        yield metadata["name"]
    elif JOB_NAME in (metadata.get("labels") or {}):
        yield metadata["labels"][JOB_NAME]
