"""How a controller writes: each write is expected back by the cache, and told in an event."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_kftrain.cluster.client import Cluster
from airflow_kftrain.cluster.informer import Key
from airflow_kftrain.cluster.resources import PODGROUPS, PODS, Resource
from airflow_kftrain.controllers.events import EventRecorder
from airflow_kftrain.controllers.expectations import Expectations
from airflow_kftrain.controllers.objects import controller_of
from airflow_kftrain.controllers.replicas import is_terminating
from airflow_kftrain.controllers.status import Note, StatusDraft
from airflow_kftrain.controllers.view import JobView, Object
from airflow_kftrain.exceptions import AlreadyExists, ApiError, ApiUnreachable, Conflict, NotFound


@dataclass
class Turn:
    """One reconciliation of one job.

    :param resource_version: of the job as last read or written; the status is written on top of it
    :param pods: the job's own
    :param services: the job's own
    """

    key: Key
    job: JobView
    draft: StatusDraft
    resource_version: str
    pods: list[Object]
    services: list[Object]


class ObjectControl:
    """Creates and deletes the objects of jobs."""

    def __init__(self, cluster: Cluster, expectations: Expectations[Key], recorder: EventRecorder) -> None:
        self._cluster = cluster
        self._expectations = expectations
        self._recorder = recorder

    async def create(self, turn: Turn, resource: Resource, obj: Object) -> None:
        """Create; one that is there already and is the job's own counts as created.

        :raises ApiError: refused; an event says why
        :raises ApiUnreachable: no answer; whether it exists is unknown
        """
        name = obj["metadata"]["name"]
        token = (resource.plural, "created", name)
        self._expectations.expect(turn.key, token)
        try:
            await self._cluster.create(resource, obj)
        except AlreadyExists as error:
            if await self._is_own(turn, resource, name):
                return
            self._refused(turn, token, f"FailedCreate{resource.kind}", f"Error creating: {error.message}")
            raise
        except ApiError as error:
            self._refused(turn, token, f"FailedCreate{resource.kind}", f"Error creating: {error.message}")
            raise
        except ApiUnreachable:
            self._expectations.seen(turn.key, token)
            raise
        if resource != PODGROUPS:
            text = f"Created {resource.kind.lower()}: {name}"
            self._record(turn, Note("Normal", f"SuccessfulCreate{resource.kind}", text))

    async def delete(self, turn: Turn, resource: Resource, obj: Object) -> bool:
        """Delete this very object, unless it is on its way out; whether it was for us to delete.

        :raises ApiError: refused; an event says why
        """
        if is_terminating(obj):
            return False
        metadata = obj["metadata"]
        token = (resource.plural, "deleted", metadata["uid"])
        self._expectations.expect(turn.key, token)
        try:
            await self._cluster.delete(resource, metadata["name"], turn.job.namespace, uid=metadata["uid"])
        except (NotFound, Conflict):  # gone, or another of that name
            self._expectations.seen(turn.key, token)
            return False
        except ApiError as error:
            self._refused(turn, token, f"FailedDelete{resource.kind}", f"Error deleting: {error.message}")
            raise
        except ApiUnreachable:
            self._expectations.seen(turn.key, token)
            raise
        shown = "PodGroup" if resource == PODGROUPS else resource.kind.lower()
        text = f"Deleted {shown}: {metadata['name']}"
        self._record(turn, Note("Normal", f"SuccessfulDelete{resource.kind}", text))
        return True

    async def live_pods(self, turn: Turn, label_selector: str) -> list[Object]:
        """The job's pods as the API has them now, past any cache."""
        listed = await self._cluster.list(PODS, turn.job.namespace, label_selector=label_selector)
        return [pod for pod in listed.items if _uid_of_controller(pod) == turn.job.uid]

    def record(self, turn: Turn) -> None:
        """Record what the rules wanted told."""
        for note in turn.draft.notes:
            self._record(turn, note)
        turn.draft.notes.clear()

    async def _is_own(self, turn: Turn, resource: Resource, name: str) -> bool:
        try:
            found = await self._cluster.get(resource, name, turn.job.namespace)
        except NotFound:
            return False
        return _uid_of_controller(found) == turn.job.uid

    def _refused(self, turn: Turn, token: tuple[str, ...], reason: str, message: str) -> None:
        self._expectations.seen(turn.key, token)
        self._record(turn, Note("Warning", reason, message))

    def _record(self, turn: Turn, note: Note) -> None:
        self._recorder.record(turn.job, note)


def _uid_of_controller(obj: Object) -> str | None:
    controller = controller_of(obj)
    return None if controller is None else controller.get("uid")
