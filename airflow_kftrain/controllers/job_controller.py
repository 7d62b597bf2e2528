"""The controller of one kind of training job.

Level-based: a turn is told a job's name, reads the cached world, and does what is missing. It may stop between any two
writes and be taken up again, by itself or by another replica of the controller.
"""

from __future__ import annotations

import copy

from airflow_kftrain.clock import Clock
from airflow_kftrain.cluster.client import Cluster
from airflow_kftrain.cluster.informer import Handler, Informer, Key
from airflow_kftrain.cluster.resources import PODGROUPS, PODS, SERVICES, Resource
from airflow_kftrain.cluster.watch import ChangeType
from airflow_kftrain.controllers import conditions as cond
from airflow_kftrain.controllers import limits, objects, ownership, replicas
from airflow_kftrain.controllers.control import ObjectControl, Turn
from airflow_kftrain.controllers.events import EventRecorder
from airflow_kftrain.controllers.expectations import Expectations
from airflow_kftrain.controllers.reconciler import Reconciler
from airflow_kftrain.controllers.status import StatusDraft
from airflow_kftrain.controllers.validation import faults
from airflow_kftrain.controllers.view import CLEAN_ALL, CLEAN_NONE, JobView, Object, ReplicaView, bare_view
from airflow_kftrain.controllers.workqueue import WorkQueue
from airflow_kftrain.controllers.world import World, owner_keys
from airflow_kftrain.exceptions import ApiError, ApiUnreachable, NotFound

RESUME_CHECK_SECONDS = 5.0
"""How often a resumed job looks for pods of its last admission, beside being told of their end."""

LOOK_AGAIN_SECONDS = 300.0
"""How often a job that is to run is looked at although nothing is known to have changed: lost news is not for ever."""

OTHERS_GROUP_SECONDS = 30.0
"""How often a job looks whether the PodGroup in the place of its own is gone, beside being told."""


class JobController:
    """Reconciles jobs of one kind by the rules of a :class:`Reconciler`.

    Its ``queue`` is fed by the changes that ``world`` sees; whoever runs it takes keys from there and calls
    :meth:`reconcile`.

    :param gang_scheduler: the pods' ``schedulerName``, and a PodGroup for each job; None for neither
    """

    def __init__(
        self,
        cluster: Cluster,
        reconciler: Reconciler,
        world: World,
        *,
        clock: Clock,
        recorder: EventRecorder,
        gang_scheduler: str | None = "gang-scheduler",
    ) -> None:
        self.reconciler = reconciler
        self.queue: WorkQueue[Key] = WorkQueue(clock)
        self.expectations: Expectations[Key] = Expectations(clock)
        self._cluster = cluster
        self._clock = clock
        self._world = world
        self._jobs = world.jobs(reconciler.framework.kind)
        self._gang_scheduler = gang_scheduler
        self._control = ObjectControl(cluster, self.expectations, recorder)
        self._follow()

    async def reconcile(self, key: Key) -> float | None:
        """Bring one job a step further; seconds after which to look again in any case, None: when something changes.

        :raises ApiError: a write was refused; try again after a pause
        :raises ApiUnreachable: no answer came; try again after a pause
        """
        raw = self._jobs.get(*key)
        if raw is None or raw["metadata"].get("deletionTimestamp") is not None:
            self.expectations.forget(key)  # the garbage collector does the rest
            return None
        still_to_be_seen = self.expectations.wait(key)
        if still_to_be_seen is not None:
            return still_to_be_seen
        broken = faults(self.reconciler.framework, raw)
        job = bare_view(self.reconciler.framework, raw) if broken else self.reconciler.view(raw)
        draft = StatusDraft(job.kind, raw.get("status"), self._clock.now())
        turn = Turn(key, job, draft, raw["metadata"]["resourceVersion"], pods=[], services=[])
        return await self._turn(turn, broken)

    async def _turn(self, turn: Turn, broken: list[str]) -> float | None:
        job, draft = turn.job, turn.draft
        draft.set(cond.CREATED, f"{job.kind} {job.name} is created.")
        turn.pods = await self._claim(turn, PODS, self._world.pods)
        turn.services = await self._claim(turn, SERVICES, self._world.services)
        if draft.finished:
            return await self._finish(turn)
        if broken:
            await self._reject(turn, broken)
            return None
        if job.suspended:
            await self._suspend(turn)
            return None
        if draft.is_true(cond.SUSPENDED):
            return await self._resume(turn)
        reason = limits.exceeded(job, draft, turn.pods)
        if reason is not None:
            # Known as failed first, cleaned up next: a stop in between leaves no half-cleaned job that starts anew.
            draft.fail(reason)
            await self._write_status(turn)
            return None
        return await self._advance(turn)

    async def _advance(self, turn: Turn) -> float | None:
        """The job is to run: PodGroup, pods, services, then what its status says of them."""
        job, draft = turn.job, turn.draft
        draft.notes += [*self.reconciler.warnings(job), *replicas.abnormal_notes(turn.pods)]
        try:
            if self._gang_scheduler is not None and not await self._sync_pod_group(turn):
                await self._write_status(turn)
                return OTHERS_GROUP_SECONDS
            await self._remember_failures(turn)
            for replica in job.replicas.values():
                await self.reconcile_pods(turn, replica)
                await self.reconcile_services(turn, replica)
        except (ApiError, ApiUnreachable):
            await self._write_status(turn)  # what holds already, so that people see more than nothing
            raise
        if draft.start_time is None:
            draft.start()
        self.reconciler.judge(job, draft)
        await self._write_status(turn)
        if draft.finished:
            return None
        remaining = limits.until_deadline(job, draft.start_time, draft.now)
        return LOOK_AGAIN_SECONDS if remaining is None else min(remaining, LOOK_AGAIN_SECONDS)

    async def reconcile_pods(self, turn: Turn, replica: ReplicaView) -> None:
        """Make missing pods of a replica type; delete surplus ones, and failed ones that are to be made anew."""
        job, draft = turn.job, turn.draft
        plan = replicas.plan_pods(job, replica, turn.pods)
        draft.counts[replica.replica_type] = plan.counts
        draft.notes += plan.notes
        for pod in [*plan.surplus, *plan.failed]:
            await self._control.delete(turn, PODS, pod)
        if plan.failed:
            draft.restart(f"job {job.name} is restarting because {replica.replica_type} replica(s) failed.")
        if plan.condemned:
            failed = f'job "{job.name}" is failing because "{replica.replica_type}" replica(s) failed.'
            draft.note("Warning", draft.reason(cond.FAILED), failed)
            draft.set(cond.FAILED, failed)
        for index in [] if draft.finished else plan.missing:
            for reason, text in objects.pod_warnings(job, replica, gang_scheduler=self._gang_scheduler):
                draft.note("Warning", reason, text)
            pod = objects.pod(self.reconciler, job, replica, index, gang_scheduler=self._gang_scheduler)
            await self._control.create(turn, PODS, pod)

    async def reconcile_services(self, turn: Turn, replica: ReplicaView) -> None:
        """Make missing services of a replica type, delete surplus ones."""
        missing, surplus = replicas.plan_services(replica, turn.services)
        for service in surplus:
            await self._control.delete(turn, SERVICES, service)
        for index in [] if turn.draft.finished else missing:
            service = objects.service(self.reconciler, turn.job, replica, index)
            await self._control.create(turn, SERVICES, service)

    async def _finish(self, turn: Turn) -> float | None:
        """The job is over: clean up, settle the status, and delete the job when its time has come."""
        job, draft = turn.job, turn.draft
        policy = CLEAN_ALL if draft.failed_by_limit else job.clean_pod_policy
        await self._clean_up(turn, policy)
        if draft.is_true(cond.SUCCEEDED):
            draft.settle_success()
        await self._write_status(turn)
        remaining = limits.until_expiry(job, draft)
        if remaining is None or remaining > 0:
            return remaining
        await self._cluster.delete(
            self.reconciler.resource, job.name, job.namespace, uid=job.uid, propagation_policy="Background"
        )
        draft.note("Normal", self.reconciler.deleted_reason, f"Deleted job: {job.name}")
        self._control.record(turn)
        return None

    async def _reject(self, turn: Turn, broken: list[str]) -> None:
        draft = turn.draft
        text = f"{turn.job.kind} {turn.job.name} is not valid: {'; '.join(broken)}"
        draft.note("Warning", draft.reason("FailedValidation"), text)
        draft.complete()
        draft.set(cond.FAILED, text, reason="FailedValidation")
        await self._write_status(turn)

    async def _suspend(self, turn: Turn) -> None:
        """No pod, no service, no PodGroup.

        The status says so before the first pod is deleted: were it resumed in between, pods on their way out would
        pass for running ones.
        """
        job, draft = turn.job, turn.draft
        first = not draft.is_true(cond.SUSPENDED)
        for counts in draft.counts.values():
            counts.active = 0
        text = f"{job.kind} {job.name} is suspended."
        if draft.is_true(cond.RUNNING):
            draft.set(cond.RUNNING, text, truth="False", reason=cond.SUSPENDED)
        if first:
            draft.set(cond.SUSPENDED, text)
            draft.note("Normal", draft.reason(cond.SUSPENDED), text)
        await self._write_status(turn)
        await self._clean_up(turn, CLEAN_ALL, tell=first)
        self._control.record(turn)

    async def _resume(self, turn: Turn) -> float | None:
        """Begin a new admission, once no pod of the last one exists.

        An old master that ends with 0 would pass for the new one's success. So the API itself is asked, and the new
        admission is in the status before its first pod is made: from then on every pod belongs to it.
        """
        job, draft = turn.job, turn.draft
        selector = ",".join(f"{k}={v}" for k, v in objects.job_labels(self.reconciler, job).items())
        leftover = turn.pods or await self._control.live_pods(turn, selector)
        for pod in leftover:
            await self._control.delete(turn, PODS, pod)
        if leftover:
            await self._write_status(turn)
            return RESUME_CHECK_SECONDS
        text = f"{job.kind} {job.name} is resumed."
        draft.set(cond.SUSPENDED, text, truth="False", reason="Resumed")
        draft.note("Normal", draft.reason("Resumed"), text)
        draft.start()
        await self._write_status(turn)
        return 0.0

    async def _clean_up(self, turn: Turn, policy: str, *, tell: bool = False) -> None:
        """Delete what a job that does not run (any more) leaves, as its clean-pod policy says.

        :param tell: record the events of a termination even if there was no PodGroup to delete
        """
        if policy != CLEAN_NONE:
            doomed = [pod for pod in turn.pods if policy == CLEAN_ALL or not _is_over(pod)]
            for pod in doomed:
                await self._control.delete(turn, PODS, pod)
            kept = {pod["metadata"]["name"] for pod in turn.pods if pod not in doomed}
            for service in turn.services:
                if service["metadata"]["name"] not in kept:
                    await self._control.delete(turn, SERVICES, service)
        if self._world.pod_groups is None:
            return
        group = self._world.pod_groups.get(turn.job.namespace, turn.job.name)
        if group is not None or tell:
            text = "Job has been terminated. Deleting PodGroup"
            turn.draft.note("Normal", "JobTerminated", text)
        if group is not None:
            await self._control.delete(turn, PODGROUPS, group)
        elif tell:
            turn.draft.note("Normal", "SuccessfulDeletePodGroup", f"Deleted PodGroup: {turn.job.name}")

    async def _sync_pod_group(self, turn: Turn) -> bool:
        """Make the job's PodGroup, or bring it up to date; False while another's is in its place."""
        groups = self._world.pod_groups
        group = None if groups is None else groups.get(turn.job.namespace, turn.job.name)
        wanted = objects.pod_group(turn.job)
        if group is None:
            await self._control.create(turn, PODGROUPS, wanted)
            return True
        controller = objects.controller_of(group)
        if controller is not None and controller.get("uid") != turn.job.uid:
            # A namesake that is gone has left it, and the garbage collector takes it; else two jobs want one name.
            if controller.get("kind") != turn.job.kind:
                text = (
                    f"PodGroup {turn.job.name} belongs to {controller.get('kind')} {controller.get('name')}"
                )
                turn.draft.note("Warning", "FailedCreatePodGroup", f"{text}: rename one of the two jobs")
            return False
        spec = group.get("spec") or {}
        if {name: spec.get(name) for name in _GROUP_FIELDS} != {
            name: wanted["spec"].get(name) for name in _GROUP_FIELDS
        }:
            await self._cluster.replace(PODGROUPS, group | {"spec": wanted["spec"]})
        return True

    async def _remember_failures(self, turn: Turn) -> None:
        """Where a backoff limit counts them, note the failed pods on the job before they are made anew."""
        found = limits.failures(turn.job, turn.pods)
        if not turn.job.backoff_limit or not found.fresh:
            return
        annotations = {limits.REPLACED_PODS: found.annotation()}
        patch = {"metadata": {"uid": turn.job.uid, "annotations": annotations}}
        changed = await self._cluster.patch(
            self.reconciler.resource, turn.job.name, patch, turn.job.namespace
        )
        self._expect_job(turn, changed)

    async def _claim(self, turn: Turn, resource: Resource, informer: Informer) -> list[Object]:
        """The job's own objects of a kind; orphans of its labels are adopted, strays released."""
        job = turn.job
        labels = objects.job_labels(self.reconciler, job)
        found = ownership.claims(job, labels, self._world.candidates(informer, self.reconciler, job))
        for stray in found.strays:
            patch = ownership.release(job, stray)
            await self._cluster.patch(resource, stray["metadata"]["name"], patch, job.namespace)
        if not found.orphans or not await self._may_adopt(job):
            return found.owned
        for orphan in found.orphans:
            patch = ownership.adoption(job, orphan)
            name = orphan["metadata"]["name"]
            found.owned.append(await self._cluster.patch(resource, name, patch, job.namespace))
        return found.owned

    async def _may_adopt(self, job: JobView) -> bool:
        """Whether the job lives: asked of the API, since a deleted job's orphans are meant to stay so."""
        try:
            fresh = await self._cluster.get(self.reconciler.resource, job.name, job.namespace)
        except NotFound:
            return False
        metadata = fresh["metadata"]
        return metadata.get("uid") == job.uid and metadata.get("deletionTimestamp") is None

    async def _write_status(self, turn: Turn) -> None:
        """Write the status if it changed, on top of the job as it was read. :raises Conflict: it changed meanwhile"""
        self._control.record(turn)
        if not turn.draft.changed:
            return
        job = copy.copy(turn.job.raw)
        job["metadata"] = job["metadata"] | {"resourceVersion": turn.resource_version}
        job["status"] = turn.draft.to_dict()
        written = await self._cluster.replace(self.reconciler.resource, job, subresource="status")
        self._expect_job(turn, written)

    def _expect_job(self, turn: Turn, written: Object) -> None:
        turn.resource_version = written["metadata"]["resourceVersion"]
        self.expectations.expect_version(turn.key, turn.resource_version)
        cached = self._jobs.get(*turn.key)
        if cached is not None:  # its watch may have been faster than the answer
            self.expectations.seen_version(turn.key, cached["metadata"]["resourceVersion"])

    def _follow(self) -> None:
        """Have changes of jobs and their objects lead to the queue, and expectations met."""
        self._jobs.add_handler(self._on_job)
        for informer in (self._world.pods, self._world.services, self._world.pod_groups):
            if informer is not None:
                informer.add_handler(self._on_object(informer.resource.plural))

    def _on_job(self, change: ChangeType, old: Object | None, new: Object | None) -> None:
        metadata = (new or old or {})["metadata"]
        key = (metadata.get("namespace") or "", metadata["name"])
        if change == "DELETED":
            self.expectations.forget(key)
        else:
            self.expectations.seen_version(key, metadata["resourceVersion"])
        self.queue.add(key)

    def _on_object(self, plural: str) -> Handler:
        def handle(change: ChangeType, old: Object | None, new: Object | None) -> None:
            for obj in (obj for obj in (old, new) if obj is not None):
                metadata = obj["metadata"]
                for key in owner_keys(self.reconciler, obj):
                    if change == "ADDED":
                        self.expectations.seen(key, (plural, "created", metadata["name"]))
                    if change == "DELETED" or replicas.is_terminating(obj):
                        self.expectations.seen(key, (plural, "deleted", metadata["uid"]))
                    self.queue.add(key)

        return handle


_GROUP_FIELDS = ("minMember", "minResources", "scheduleTimeoutSeconds")


def _is_over(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
