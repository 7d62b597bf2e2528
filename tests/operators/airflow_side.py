"""What Airflow gives to operators and triggers, for tests without a scheduler: a task instance, a state store."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, field
from typing import Any

from airflow_kftrain.cluster.client import Cluster, Object
from airflow_kftrain.cluster.resources import resource_of
from airflow_kftrain.jobs.frameworks import XGBOOST
from airflow_kftrain.jobs.identity import TaskKey
from airflow_kftrain.jobs.manifest import from_manifest
from airflow_kftrain.operators.arguments import Arguments, build
from airflow_kftrain.operators.submission import Submission, named
from airflow_kftrain.triggers.events import FinalEvent, JobRef
from airflow_kftrain.triggers.training_job import TrainingJobTrigger

PATIENCE = 20.0


class Store(dict[str, Any]):
    """The task state store of one task instance: it outlives tries."""

    def set(self, key: str, value: Any) -> None:
        self[key] = value


@dataclass
class TaskInstance:
    """One try; :meth:`next_try` gives the next one, with a UUID of its own and the same store."""

    dag_id: str = "retraining"
    task_id: str = "train"
    run_id: str = "manual__2026-01-01T00:00:00+00:00"
    try_number: int = 1
    map_index: int = -1
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    store: Store = field(default_factory=Store)
    pushed: dict[str, Any] = field(default_factory=dict)

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value

    def next_try(self) -> TaskInstance:
        return TaskInstance(
            self.dag_id, self.task_id, self.run_id, self.try_number + 1, self.map_index, store=self.store
        )

    @property
    def context(self) -> dict[str, Any]:
        return {"ti": self, "task_state_store": self.store}

    @property
    def key(self) -> TaskKey:
        return TaskKey(self.dag_id, self.task_id, self.run_id, self.try_number, self.map_index)


async def request(cluster: Cluster, task: TaskInstance, *, workers: int = 2, **fields: Any) -> Object:
    """Submit a job of ``task`` as the operator does."""
    spec = from_manifest(
        build(Arguments(XGBOOST, image="acme/train:1", counts={"Master": 1, "Worker": workers}))
    )
    submission = Submission(cluster, resource_of(XGBOOST), "default", task.key, task.id, say=print)
    return await submission.create(named(spec, task.key, task.id, "default"))


@dataclass
class Watch:
    """A trigger that runs.

    :param lines: what it wrote into the task's log so far
    """

    trigger: TrainingJobTrigger
    running: asyncio.Task[Any]
    lines: list[str]
    spoke: asyncio.Condition

    async def event(self, patience: float = PATIENCE) -> FinalEvent:
        """The one event, once it comes."""
        async with asyncio.timeout(patience):
            return FinalEvent.of((await asyncio.shield(self.running)).payload)

    async def said(self, text: str, patience: float = PATIENCE) -> str:
        """The first line with ``text``, once it was written."""
        try:
            async with asyncio.timeout(patience), self.spoke:
                await self.spoke.wait_for(lambda: any(text in line for line in self.lines))
        except TimeoutError:
            raise AssertionError(f"nothing said of {text!r}: {self.lines}") from None
        return next(line for line in self.lines if text in line)

    @property
    def log(self) -> str:
        return "\n".join(self.lines)


@contextlib.asynccontextmanager
async def watching(job: Object, task: TaskInstance, **options: Any) -> AsyncIterator[Watch]:
    """Run a trigger on ``job`` until the block ends."""
    meta = job["metadata"]
    ref = JobRef(job["kind"], meta["namespace"], meta["name"], meta["uid"], task.id)
    trigger = TrainingJobTrigger(asdict(ref), **options)
    # As Airflow does it: what runs is made from what was stored.
    path, kwargs = trigger.serialize()
    assert path == "airflow_kftrain.triggers.training_job.TrainingJobTrigger"
    trigger = TrainingJobTrigger(**kwargs)
    trigger.task_instance = task
    running = asyncio.create_task(anext(aiter(trigger.run())))
    watch = Watch(trigger, running, [], asyncio.Condition())
    trigger._log = logging.getLogger(f"task.{uuid.uuid4()}")
    trigger._log.setLevel(logging.INFO)
    trigger._log.addHandler(_Lines(watch))
    try:
        yield watch
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


class _Lines(logging.Handler):
    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch
        self._loop = asyncio.get_running_loop()

    def emit(self, record: logging.LogRecord) -> None:
        self._watch.lines.append(record.getMessage())
        self._loop.create_task(self._tell())

    async def _tell(self) -> None:
        async with self._watch.spoke:
            self._watch.spoke.notify_all()
