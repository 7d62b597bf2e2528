"""Tasks on the real control plane: our operators submit, our triggers follow, the real operator and schedulers act."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from airflow.sdk.exceptions import TaskDeferred

from airflow_kftrain.cluster.client import Cluster, Object
from airflow_kftrain.cluster.resources import Resource
from airflow_kftrain.exceptions import NotFound
from airflow_kftrain.jobs.identity import token
from airflow_kftrain.operators.training_job import TrainingJobOperator
from airflow_kftrain.triggers.events import FinalEvent
from tests.controlplane.conformance.cases import KINDS
from tests.operators.airflow_side import TaskInstance, Watch, watching
from tests.support.live import Live


class Task:
    """One try of a task that has deferred, and the job that it made."""

    def __init__(self, operator: TrainingJobOperator, ti: TaskInstance, job: Object, live: Live) -> None:
        self._operator = operator
        self._ti = ti
        self.job = job
        self.live = live
        self.resource: Resource = KINDS[job["kind"]].resource
        self.name: str = job["metadata"]["name"]

    @contextlib.asynccontextmanager
    async def followed(self) -> AsyncIterator[Watch]:
        """Its trigger runs within the block."""
        _, kwargs = self._trigger.serialize()
        options = {name: value for name, value in kwargs.items() if name != "job"}
        async with watching(self.job, self._ti, **options) as watch:
            yield watch

    async def finish(self, event: FinalEvent) -> Any:
        """What the worker does when it resumes."""
        return await asyncio.to_thread(self._operator.execute_complete, self._ti.context, event.to_payload())

    async def patch(self, spec: Object) -> None:
        """Change the job as its user would."""
        await self.live.cluster.patch(self.resource, self.name, {"spec": spec}, self.live.namespace)

    async def suspend(self, value: bool) -> None:
        """Suspend or resume it as its user would; back once it shows."""
        await self.patch({"runPolicy": {"suspend": value}})
        await self.live.until(
            self.resource, self.name, lambda job: is_condition(job, "Suspended", value), timeout=60
        )

    _trigger: Any


@contextlib.asynccontextmanager
async def deferred(
    cluster: Cluster, namespace: str, manifest: Object, **arguments: Any
) -> AsyncIterator[Task]:
    """A task up to its deferral; its job is gone afterwards."""
    ti = TaskInstance(task_id=manifest["metadata"]["name"])
    operator = TrainingJobOperator(
        task_id=ti.task_id, manifest=manifest, namespace=namespace, mode="single-job", **arguments
    )
    with pytest.raises(TaskDeferred) as left:
        await asyncio.to_thread(operator.execute, ti.context)
    resource = KINDS[manifest["kind"]].resource
    (job,) = [one for one in (await cluster.list(resource, namespace)).items if token(one) == ti.id]
    task = Task(operator, ti, job, Live(cluster, namespace))
    task._trigger = left.value.trigger
    try:
        yield task
    finally:
        with contextlib.suppress(NotFound):
            await cluster.delete(resource, task.name, namespace)


def is_condition(job: Object | None, kind: str, value: bool) -> bool:
    """Whether a job's condition has that status."""
    conditions = ((job or {}).get("status") or {}).get("conditions") or ()
    return any(c["type"] == kind and c["status"] == str(value) for c in conditions)


def played(replica: Object, **notes: Any) -> Object:
    """``replica`` whose pods do what the annotations of kwok's stages say."""
    texts = {f"kftrain.test/{key.replace('_', '-')}": str(value) for key, value in notes.items()}
    replica["template"].setdefault("metadata", {})["annotations"] = texts
    return replica
