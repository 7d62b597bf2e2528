"""Runs the controllers of all kinds: caches, queues, workers, and one leader among several replicas."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Sequence
from typing import Any

from airflow_kftrain.clock import Clock, system_clock
from airflow_kftrain.cluster.client import Cluster
from airflow_kftrain.cluster.informer import Key
from airflow_kftrain.cluster.resources import PODGROUPS, Resource
from airflow_kftrain.controllers.events import EventRecorder
from airflow_kftrain.controllers.job_controller import JobController
from airflow_kftrain.controllers.kinds import RECONCILERS
from airflow_kftrain.controllers.lease import Lease, LeaseSettings
from airflow_kftrain.controllers.reconciler import Reconciler
from airflow_kftrain.controllers.workqueue import QueueClosed, WorkQueue
from airflow_kftrain.controllers.world import World
from airflow_kftrain.exceptions import (
    ApiError,
    ApiUnreachable,
    Conflict,
    InvalidInput,
    KFTrainError,
    NotFound,
)

log = logging.getLogger(__name__)

GANG_SCHEDULER = "gang-scheduler"


class ControllerManager:
    """The controllers of some kinds in some namespaces, until told to stop.

    :param gang_scheduling: make a PodGroup per job and give pods the gang scheduler's name
    :param namespaces: where to look; None for everywhere
    :param kinds: for instance ``["XGBoostJob"]``; None for all
    :param gang_scheduler: name of the gang scheduler
    :param workers: jobs of one kind (and namespace) that are worked on at the same time
    :param lease: how replicas agree on one that works; None where there is only one
    :raises InvalidInput: a kind that has no controller
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        clock: Clock | None = None,
        gang_scheduling: bool = True,
        namespaces: Sequence[str] | None = None,
        kinds: Sequence[str] | None = None,
        gang_scheduler: str = GANG_SCHEDULER,
        workers: int = 4,
        lease: LeaseSettings | None = None,
    ) -> None:
        self._cluster = cluster
        self._clock = clock or system_clock()
        self._gang_scheduler = gang_scheduler if gang_scheduling else None
        self._namespaces: list[str | None] = list(namespaces) if namespaces else [None]
        self._reconcilers = [_reconciler(kind) for kind in (kinds or RECONCILERS)]
        self._workers = workers
        self._lease = Lease(cluster, self._clock, lease) if lease else None
        self._ready = asyncio.Event()

    async def ready(self) -> None:
        """Return once the caches are filled and the workers at work."""
        await self._ready.wait()

    async def run(self, stop: asyncio.Event) -> None:
        """Work until ``stop`` is set; with a lease, whenever this replica leads.

        :raises NotFound: the cluster does not know a kind that is asked for
        """
        if self._lease is None:
            await self._work(stop)
            return
        try:
            while not stop.is_set():
                if await self._lease.try_hold():
                    log.info("leading as %s", self._lease.settings.identity)
                    await _until_first(self._work(stop), self._lease.keep(stop))
                else:
                    await _until_first(self._clock.sleep(self._lease.settings.retry), stop.wait())
        finally:
            await self._lease.release()

    async def _work(self, stop: asyncio.Event) -> None:
        await self._check_kinds()
        parts = [part for namespace in self._namespaces for part in self._parts(namespace)]
        try:
            await _until_first(stop.wait(), *parts)
        finally:
            self._ready.clear()

    def _parts(self, namespace: str | None) -> list[Coroutine[Any, Any, None]]:
        """All that runs for one namespace: caches, recorders, queues and, once the caches are filled, workers."""
        world = World(
            self._cluster,
            self._reconcilers,
            clock=self._clock,
            namespace=namespace,
            gang_scheduling=self._gang_scheduler is not None,
        )
        parts: list[Coroutine[Any, Any, None]] = [world.run()]
        controllers = []
        for reconciler in self._reconcilers:
            recorder = EventRecorder(self._cluster, self._clock, reconciler.controller_name)
            controller = JobController(
                self._cluster,
                reconciler,
                world,
                clock=self._clock,
                recorder=recorder,
                gang_scheduler=self._gang_scheduler,
            )
            controllers.append(controller)
            parts += [recorder.run(), controller.queue.run()]
        return [*parts, self._start_workers(world, controllers)]

    async def _start_workers(self, world: World, controllers: Sequence[JobController]) -> None:
        await world.synced()
        self._ready.set()
        async with asyncio.TaskGroup() as group:
            for controller in controllers:
                for _ in range(self._workers):
                    group.create_task(self._worker(controller))

    async def _worker(self, controller: JobController) -> None:
        queue = controller.queue
        with contextlib.suppress(QueueClosed):
            while True:
                key = await queue.get()
                try:
                    await self._reconcile(controller, queue, key)
                finally:
                    queue.done(key)

    async def _reconcile(self, controller: JobController, queue: WorkQueue[Key], key: Key) -> None:
        if self._lease is not None and not self._lease.held:
            queue.add_rate_limited(key)
            return
        kind = controller.reconciler.framework.kind
        try:
            look_again = await controller.reconcile(key)
        except NotFound as error:  # an object went while we worked; its cache will say so
            log.info("%s %s/%s: %s", kind, *key, error)
            queue.add_rate_limited(key)
        except Conflict as error:  # read again, decide again
            log.debug("%s %s/%s: %s", kind, *key, error)
            queue.add_rate_limited(key)
        except ApiError as error:
            log.warning("%s %s/%s: %s", kind, *key, error)
            queue.add_rate_limited(key, at_least=error.retry_after or 0.0)
        except ApiUnreachable as error:
            log.warning("%s %s/%s: %s", kind, *key, error)
            queue.add_rate_limited(key)
        except Exception:  # one job that breaks our code must not stop all others
            log.exception("%s %s/%s cannot be reconciled", kind, *key)
            queue.add_rate_limited(key)
        else:
            queue.forget(key)
            if look_again is not None:
                queue.add_after(key, look_again)

    async def _check_kinds(self) -> None:
        """:raises NotFound: a kind is unknown; the text says what to do"""
        namespace = self._namespaces[0]
        for resource in [r.resource for r in self._reconcilers]:
            await self._check_kind(resource, namespace, "install its CRD, or leave the kind out")
        if self._gang_scheduler is not None:
            remedy = "install the coscheduling CRD, or run without gang scheduling"
            await self._check_kind(PODGROUPS, namespace, remedy)

    async def _check_kind(self, resource: Resource, namespace: str | None, remedy: str) -> None:
        try:
            await self._cluster.raw("GET", resource.path(namespace), query={"limit": "1"})
        except NotFound as error:
            text = f"the cluster does not know {resource.kind} ({resource.api_version}): {remedy}"
            raise NotFound(404, "NotFound", text) from error
        except KFTrainError as error:  # the watches will try again and say so
            log.warning("cannot look for %s yet: %s", resource.plural, error)


def _reconciler(kind: str) -> Reconciler:
    found = RECONCILERS.get(kind)
    if found is None:
        raise InvalidInput("kinds", kind, f"give some of {', '.join(RECONCILERS)}")
    return found


async def _until_first(*coroutines: Coroutine[Any, Any, Any]) -> None:
    """Run all until one ends, then cancel the others; an error of any is raised."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
