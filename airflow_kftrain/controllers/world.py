"""The cached cluster that controllers decide on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable, Iterable

from airflow_kftrain.clock import Clock
from airflow_kftrain.cluster.client import Cluster
from airflow_kftrain.cluster.informer import Informer, Key
from airflow_kftrain.cluster.resources import PODGROUPS, PODS, SERVICES, Resource
from airflow_kftrain.controllers.objects import JOB_NAME, OPERATOR_NAME, controller_of, job_labels
from airflow_kftrain.controllers.reconciler import Reconciler
from airflow_kftrain.controllers.view import JobView, Object
from airflow_kftrain.exceptions import KFTrainError

log = logging.getLogger(__name__)


class World:
    """Jobs of some kinds, and their pods, services and PodGroups, as the watches last told.

    Pods and services are shared by all kinds. Treat what it gives as read-only.

    :param namespace: the only one to look at; None for all
    :param gang_scheduling: whether PodGroups are looked at
    """

    def __init__(
        self,
        cluster: Cluster,
        reconcilers: Iterable[Reconciler],
        *,
        clock: Clock,
        namespace: str | None = None,
        gang_scheduling: bool = True,
    ) -> None:
        def informer(resource: Resource, *, owned: bool) -> Informer:
            return Informer(
                cluster,
                resource,
                namespace,
                label_selector=JOB_NAME if owned and resource != PODGROUPS else None,
                indexers={"labels": _by_labels, "owner": _by_owner} if owned else None,
                clock=clock,
                on_trouble=lambda error, failures: _trouble(resource, error, failures),
            )

        self._jobs = {r.framework.kind: informer(r.resource, owned=False) for r in reconcilers}
        self.pods = informer(PODS, owned=True)
        self.services = informer(SERVICES, owned=True)
        self.pod_groups = informer(PODGROUPS, owned=True) if gang_scheduling else None

    def jobs(self, kind: str) -> Informer:
        """The cache of one kind of job."""
        return self._jobs[kind]

    @property
    def informers(self) -> list[Informer]:
        """All caches."""
        groups = [self.pod_groups] if self.pod_groups is not None else []
        return [*self._jobs.values(), self.pods, self.services, *groups]

    def candidates(self, informer: Informer, reconciler: Reconciler, job: JobView) -> list[Object]:
        """Objects that bear the job's labels, and those that it controls whatever their labels."""
        labels = job_labels(reconciler, job)
        labelled = (job.namespace, labels[OPERATOR_NAME], labels[JOB_NAME])
        found = [*informer.by_index("labels", labelled), *informer.by_index("owner", job.uid)]
        return list({obj["metadata"]["name"]: obj for obj in found}.values())

    async def run(self) -> None:
        """Keep all caches up to date; runs until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self.informers:
                group.create_task(informer.run(), name=f"informer {informer.resource.plural}")

    async def synced(self) -> None:
        """Return once every cache holds its first list."""
        for informer in self.informers:
            await informer.synced()


def owner_keys(reconciler: Reconciler, obj: Object) -> set[Key]:
    """The jobs of a kind that an object concerns: its controller, else the one its labels name."""
    metadata = obj["metadata"]
    namespace = metadata.get("namespace") or ""
    controller = controller_of(obj)
    if controller is not None:
        framework = reconciler.framework
        ours = (controller.get("apiVersion"), controller.get("kind")) == (
            framework.api_version,
            framework.kind,
        )
        return {(namespace, controller["name"])} if ours else set()
    labels = metadata.get("labels") or {}
    if labels.get(OPERATOR_NAME) == reconciler.controller_name and labels.get(JOB_NAME):
        return {(namespace, labels[JOB_NAME])}
    return set()


def _by_labels(obj: Object) -> Iterable[Hashable]:
    labels = obj["metadata"].get("labels") or {}
    if OPERATOR_NAME in labels and JOB_NAME in labels:
        yield (obj["metadata"].get("namespace"), labels[OPERATOR_NAME], labels[JOB_NAME])


def _by_owner(obj: Object) -> Iterable[Hashable]:
    controller = controller_of(obj)
    if controller is not None:
        yield controller.get("uid")


def _trouble(resource: Resource, error: KFTrainError, failures: int) -> None:
    level = logging.WARNING if failures > 1 else logging.DEBUG
    log.log(level, "watch on %s: %s (%d in a row)", resource.plural, error, failures)
