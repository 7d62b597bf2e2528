"""What an operator does to the cluster before and after the wait."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from airflow_kftrain.clock import Clock, SystemClock
from airflow_kftrain.cluster.client import Cluster
from airflow_kftrain.cluster.ownership import delete_owned, end_leftovers, read_owned, take_over
from airflow_kftrain.cluster.resources import Resource
from airflow_kftrain.cluster.retry import with_retries
from airflow_kftrain.exceptions import AlreadyExists, Conflict, InvalidInput, NotFound
from airflow_kftrain.jobs import identity
from airflow_kftrain.jobs.identity import TaskKey
from airflow_kftrain.jobs.manifest import to_manifest
from airflow_kftrain.jobs.spec import ReplicaSpec, TrainingJobSpec
from airflow_kftrain.jobs.status import JobStatus, State, is_suspended
from airflow_kftrain.jobs.tries import Adopt, Create, Delete, Refuse, Try, decide

CREATE_ATTEMPTS = 8

Disposal = Literal["deleted", "kept", "gone"]
"""What became of a job; ``gone``: it was not there any more, or belongs to another try."""


def named(spec: TrainingJobSpec, key: TaskKey, token: str, namespace: str) -> TrainingJobSpec:
    """``spec`` with the name, labels and token of one try; a name it had becomes the prefix."""
    ours = identity.labels(key)
    return replace(
        spec,
        name=identity.job_name(key, prefix=spec.name),
        namespace=namespace,
        labels={**spec.labels, **ours},
        annotations={**spec.annotations, identity.TI: token},
        replicas={name: _labelled(replica, ours) for name, replica in spec.replicas.items()},
    )


@dataclass(frozen=True)
class Submission:
    """The jobs of one task instance on its cluster, in the hands of one try.

    :param say: writes one line into the task's log
    """

    cluster: Cluster
    resource: Resource
    namespace: str
    key: TaskKey
    token: str
    say: Callable[[str], None]
    clock: Clock = field(default_factory=SystemClock)

    async def find(self, names: Iterable[str]) -> list[dict[str, Any]]:
        """The jobs that may concern the task instance: by label, and by the names it has used."""
        selector = identity.selector(self.key, any_try=True)
        listed = await self.cluster.list(self.resource, self.namespace, label_selector=selector)
        found = {job["metadata"]["name"]: job for job in listed.items}
        for name in set(names).difference(found):
            try:
                found[name] = await self.cluster.get(self.resource, name, self.namespace)
            except NotFound:
                continue
        return list(found.values())

    async def settle(self, own: Try, earlier: Sequence[Try], *, keep_finished: bool) -> dict[str, Any] | None:
        """Clean up what earlier tries left, and take over what may be; the job taken, None when one is to be made.

        :raises InvalidInput: a stranger's job has our name
        """
        jobs = await self.find([own.name, *(one.name for one in earlier)])
        owners = {job["metadata"]["uid"]: identity.token(job) for job in jobs}
        for action in decide(own, earlier, jobs, keep_finished=keep_finished):
            match action:
                case Refuse(name, _, owner):
                    raise self._stranger(name, owner)
                case Delete(name, uid, _):
                    if await self._delete(name, uid, owners[uid]):
                        self.say(f"{self._shown(name)} of an earlier try is deleted")
                case Adopt(name, uid, _, rewrite):
                    job = await self._adopt(name, uid, owners[uid], rewrite=rewrite)
                    if job is not None:
                        self.say(f"{self._shown(name)} is there already and goes on as this try's own")
                    return job
                case Create():
                    pass
        return None

    async def create(self, spec: TrainingJobSpec) -> dict[str, Any]:
        """Create the job; one of our own that is there already is an earlier call's success whose answer was lost.

        Passing refusals (429, 409 that is no AlreadyExists, 5xx, no answer) are tried again.

        :raises InvalidInput: a stranger's job has our name
        :raises ApiError: the API refuses for good
        """
        manifest, name = to_manifest(spec), str(spec.name)

        async def once() -> dict[str, Any]:
            try:
                return await self.cluster.create(self.resource, manifest, self.namespace)
            except AlreadyExists as error:
                try:
                    found = await self.cluster.get(self.resource, name, self.namespace)
                except NotFound:
                    raise Conflict(
                        409, "Conflict", "the job of that name is just going", call=error.call
                    ) from error
                if identity.token(found) != self.token:
                    raise self._stranger(name, identity.token(found)) from error
                return found

        return await with_retries(once, clock=self.clock, attempts=CREATE_ATTEMPTS, also=(Conflict,))

    async def dispose(
        self, name: str, uid: str | None, action: str, *, keep_suspended: bool = False
    ) -> Disposal:
        """Do what ``on_finish_action`` says; a job that has not finished ends in any case.

        What still runs of a failed job that ``delete_succeeded`` keeps is ended: the next try needs its room.

        :param keep_suspended: leave an unfinished job that is suspended
        """
        job = await read_owned(self.cluster, self.resource, name, self.namespace, uid=uid, owner=self.token)
        if job is None:
            return "gone"
        if _is_kept(job, action, keep_suspended=keep_suspended):
            if action != "keep":
                await end_leftovers(
                    self.cluster,
                    self.resource,
                    name,
                    self.namespace,
                    uid=uid,
                    owner=self.token,
                    clock=self.clock,
                )
            return "kept"
        return "deleted" if await self._delete(name, uid, self.token) else "gone"

    async def _delete(self, name: str, uid: str | None, owner: str | None) -> bool:
        return await delete_owned(
            self.cluster, self.resource, name, self.namespace, uid=uid, owner=owner, clock=self.clock
        )

    async def _adopt(self, name: str, uid: str, owner: str | None, *, rewrite: bool) -> dict[str, Any] | None:
        if not rewrite:
            return await read_owned(
                self.cluster, self.resource, name, self.namespace, uid=uid, owner=self.token
            )
        return await take_over(
            self.cluster,
            self.resource,
            name,
            self.namespace,
            uid=uid,
            owner=owner,
            new_owner=self.token,
            try_number=self.key.try_number,
            clock=self.clock,
        )

    def _shown(self, name: str) -> str:
        return f"{self.resource.kind} {self.namespace}/{name}"

    def _stranger(self, name: str, owner: str | None) -> InvalidInput:
        whose = f"it belongs to task instance {owner}" if owner else "it has no owner of ours"
        return InvalidInput(
            "metadata.name",
            f"{self.namespace}/{name}",
            f"there is a {self.resource.kind} of that name and {whose}; it is left alone, "
            "delete it by hand if nobody needs it",
        )


def _is_kept(job: Mapping[str, Any], action: str, *, keep_suspended: bool) -> bool:
    state = JobStatus.from_object(job).state
    if not state.final:
        return keep_suspended and is_suspended(job)
    return action == "keep" or (action == "delete_succeeded" and state is not State.SUCCEEDED)


def _labelled(replica: ReplicaSpec, labels: Mapping[str, str]) -> ReplicaSpec:
    template = dict(replica.template)
    metadata = dict(template.get("metadata") or {})
    metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
    return replace(replica, template={**template, "metadata": metadata})
