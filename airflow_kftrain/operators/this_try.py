"""One try of a task instance: what the state store remembers of it, and its way to the cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from airflow_kftrain.cluster.client import Cluster
from airflow_kftrain.cluster.resources import resource_of
from airflow_kftrain.hooks.training_job import TrainingJobHook, run_in_loop
from airflow_kftrain.jobs.frameworks import framework
from airflow_kftrain.jobs.identity import TaskKey
from airflow_kftrain.jobs.spec import TrainingJobSpec
from airflow_kftrain.jobs.tries import Phase, Try, remember, tries_from_json, tries_to_json
from airflow_kftrain.operators.submission import Disposal, Submission, named
from airflow_kftrain.settings import read_settings
from airflow_kftrain.triggers.events import JobRef

if TYPE_CHECKING:
    from airflow.sdk.definitions.context import Context
    from pydantic import JsonValue

T = TypeVar("T")

STORE_KEY = "kftrain_tries"
"""Where the task state store keeps the jobs of a task instance's tries."""


class ThisTry:
    """The present try, in a worker.

    All that a call to the cluster needs is read here: a call made while the task is killed asks Airflow nothing.

    :param namespace: of the job; the connection's when None
    :param say: writes one line into the task's log
    """

    def __init__(
        self, context: Context, kind: str, namespace: str | None, conn_id: str, say: Callable[[str], None]
    ) -> None:
        ti = context["ti"]
        self.token = str(ti.id)
        self.key = TaskKey(
            ti.dag_id, ti.task_id, ti.run_id, ti.try_number, ti.map_index, read_settings().instance
        )
        self.hook = TrainingJobHook(conn_id)
        self.namespace = namespace or run_in_loop(self.hook.namespace)
        self._kind = kind
        self._say = say
        self._store = context["task_state_store"]
        self._tries = tries_from_json(self._store.get(STORE_KEY))

    @property
    def own(self) -> Try | None:
        """What is remembered of this try; None before it has submitted anything."""
        return next((one for one in self._tries if one.token == self.token), None)

    def submit(self, spec: TrainingJobSpec, *, keep_finished: bool) -> JobRef:
        """The job of this try, made or taken over; the state store knows of it before the cluster does.

        :param keep_finished: leave finished jobs of earlier tries
        :raises InvalidInput: a stranger's job has our name
        :raises ApiError: the API refuses for good
        """
        job_spec = named(spec, self.key, self.token, self.namespace)
        own = self.own or Try(self.token, str(job_spec.name), Phase.SUBMITTING)
        earlier = list(self._tries)
        self.remember(own)
        job = self._on_cluster(lambda jobs: jobs.settle(own, earlier, keep_finished=keep_finished))
        if job is None:
            job = self._on_cluster(lambda jobs: jobs.create(job_spec))
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        self.remember(Try(self.token, name, Phase.CREATED, uid))
        return JobRef(self._kind, self.namespace, name, uid, self.token)

    def dispose(self, name: str, uid: str | None, action: str, *, keep_suspended: bool = False) -> Disposal:
        """Do with the job what ``on_finish_action`` says; see :meth:`.Submission.dispose`."""
        return self._on_cluster(lambda jobs: jobs.dispose(name, uid, action, keep_suspended=keep_suspended))

    def end(self, action: str, phase: Phase | None = None) -> None:
        """End the job of this try, if it has one, and remember ``phase``."""
        own = self.own
        if own is None:
            return
        try:
            self.dispose(own.name, own.uid, action)
        finally:
            if phase is not None:
                self.remember(own.now(phase))

    def remember(self, own: Try) -> None:
        """Write how far this try has come into the state store."""
        self._tries = remember(self._tries, own)
        stored: list[JsonValue] = [*tries_to_json(self._tries)]
        self._store.set(STORE_KEY, stored)

    def _on_cluster(self, call: Callable[[Submission], Awaitable[T]]) -> T:
        async def on_cluster(cluster: Cluster) -> T:
            resource = resource_of(framework(self._kind))
            return await call(
                Submission(cluster, resource, self.namespace, self.key, self.token, say=self._say)
            )

        return self.hook.run(on_cluster)
