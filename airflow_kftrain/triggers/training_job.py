"""Waits for a training job in the triggerer."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_kftrain.cluster.ownership import delete_owned
from airflow_kftrain.cluster.resources import resource_of
from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.hooks.training_job import TrainingJobHook
from airflow_kftrain.jobs.frameworks import framework
from airflow_kftrain.jobs.limits import LimitSeconds
from airflow_kftrain.settings import read_settings
from airflow_kftrain.triggers.events import FinalEvent, JobRef
from airflow_kftrain.triggers.observer import Observer, Wishes

_DETACHED: set[asyncio.Task[None]] = set()
"""Deletions that outlive their trigger: Airflow cancels ``on_kill`` after about a second."""


class TrainingJobTrigger(BaseTrigger):
    """Follows one job to its end and gives one event, which holds the whole outcome.

    It observes, and writes to the cluster in three cases only: a limit has passed, the task was killed, a job that its
    operator has lost from sight is touched once; beyond that it keeps two annotations of the job up to date.

    Airflow stores the arguments in clear: they are names and numbers, never credentials.

    :param job: kind, namespace, name, uid of the job, and ``owner``, the UUID of the task instance
    :param kubernetes_conn_id: the connection of its cluster
    :param limits: seconds by limit (``queue``, ``start``, ``run``, ``after``)
    :param logs: replicas or replica types whose log lines are shown, or ``first``, ``all``, ``none``
    :param wait_for: replicas or replica types whose end is waited for after the job has succeeded, or ``all``
    :param keep: keep a job that breaks a limit, suspended, instead of deleting it
    """

    def __init__(
        self,
        job: Mapping[str, str],
        kubernetes_conn_id: str = TrainingJobHook.default_conn_name,
        limits: Mapping[str, float | None] | None = None,
        logs: Sequence[str] = ("first",),
        wait_for: Sequence[str] = (),
        keep: bool = False,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.job = dict(job)
        self.kubernetes_conn_id = kubernetes_conn_id
        self.limits = dict(limits or {})
        self.logs = list(logs)
        self.wait_for = list(wait_for)
        self.keep = keep

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "job": self.job,
                "kubernetes_conn_id": self.kubernetes_conn_id,
                "limits": self.limits,
                "logs": self.logs,
                "wait_for": self.wait_for,
                "keep": self.keep,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """One event, whatever happens; an error of ours is one too, so that the task can clean up."""
        try:
            event = await self._observe()
        except Exception as error:  # noqa: BLE001 - a trigger that raises leaks its job
            self.log.error("Following %s failed:\n%s", self.job.get("name"), traceback.format_exc())
            event = FinalEvent(
                JobRef(**self.job), "error", f"following the job failed: {type(error).__name__}: {error}"
            )
        yield TriggerEvent(event.to_payload())  # type: ignore[no-untyped-call]

    async def _observe(self) -> FinalEvent:
        hook = TrainingJobHook(self.kubernetes_conn_id)
        observer = Observer(
            JobRef(**self.job),
            Wishes(
                LimitSeconds(**self.limits),
                tuple(self.logs),
                tuple(self.wait_for),
                self.keep,
                read_settings().progress_interval,
            ),
            connect=hook.open,
            identity=await hook.identity(),
            say=lambda line: self.log.info("%s", line),
        )
        return await observer.run()

    async def on_kill(self) -> None:
        """Delete the job, if it is true that its try is over.

        Airflow calls this also when the triggerer has only lost its lease and another one goes on, and it leaves about
        a second: the work is done in a task of its own.
        """
        task = asyncio.create_task(self._delete_if_over())
        _DETACHED.add(task)
        task.add_done_callback(_DETACHED.discard)
        await asyncio.shield(task)

    async def _delete_if_over(self) -> None:
        ref = JobRef(**self.job)
        try:
            state = await self._task_state()
            if state == "deferred":
                self.log.info("The task is deferred still, or again: %s goes on", ref)
                return
            async with TrainingJobHook(self.kubernetes_conn_id).open() as cluster:
                deleted = await delete_owned(
                    cluster,
                    resource_of(framework(ref.kind)),
                    ref.name,
                    ref.namespace,
                    uid=ref.uid,
                    owner=ref.owner,
                    # A job whose leftovers are waited for is not over for the task when it has succeeded.
                    unfinished_only=self.keep or not self.wait_for,
                )
        except Exception:
            self.log.exception("Deleting %s failed; the next try or the janitor will do it", ref)
            return
        self.log.info("The task is %s: %s %s", state, ref, "is deleted" if deleted else "needed no deletion")

    async def _task_state(self) -> str | None:
        """The state of this trigger's task instance, in whatever try it is."""
        from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
        from asgiref.sync import sync_to_async

        ti = self.task_instance
        if ti is None:
            raise InvalidInput("task_instance", None, "the triggerer did not tell whose trigger this is")
        mapped = ti.map_index is not None and ti.map_index >= 0
        states = await sync_to_async(RuntimeTaskInstance.get_task_states)(
            dag_id=ti.dag_id,
            task_ids=[ti.task_id],
            run_ids=[ti.run_id],
            map_index=ti.map_index if mapped else None,
        )
        found = states.get(ti.run_id, {}).get(f"{ti.task_id}_{ti.map_index}" if mapped else ti.task_id)
        return None if found is None else str(getattr(found, "value", found))
