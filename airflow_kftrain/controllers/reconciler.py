"""What differs between the kinds of training job, as seen by their controller.

A kind is one small file beside this one, with a subclass of :class:`Reconciler` that holds no state and does no I/O,
and one line in :data:`airflow_kftrain.controllers.kinds.RECONCILERS`.
"""

from __future__ import annotations

from typing import ClassVar

from airflow_kftrain.cluster.resources import Resource
from airflow_kftrain.controllers.status import Counts, Note, StatusDraft
from airflow_kftrain.controllers.view import JobView, Object, ReplicaView, view
from airflow_kftrain.jobs.frameworks import Framework

UNBUFFERED = {"name": "PYTHONUNBUFFERED", "value": "1"}


class Reconciler:
    """The rules of one kind."""

    framework: ClassVar[Framework]
    resource: ClassVar[Resource]
    deleted_reason: ClassVar[str] = "SuccessfulDeleteJob"

    @property
    def controller_name(self) -> str:
        """The value of the operator-name label, and the source of events."""
        return f"{self.framework.singular}-controller"

    def view(self, job: Object) -> JobView:
        """``job`` with the defaults of its kind."""
        return view(self.framework, job)

    def set_cluster_spec(self, job: JobView, spec: Object, replica: ReplicaView, index: int) -> None:
        """Tell a replica of its peers: add environment (and init containers) to its pod spec."""
        raise NotImplementedError

    def is_master_role(self, job: JobView, replica: ReplicaView, index: int) -> bool:
        """Whether a replica bears the label ``job-role: master``: the leader, without one Worker 0."""
        if job.has_leader:
            return replica.replica_type in self.framework.leaders
        return replica.replica_type == "Worker" and index == 0

    def warnings(self, job: JobView) -> list[Note]:  # noqa: ARG002 - for kinds that override it
        """What in the job is not acted on."""
        return []

    def judge(self, job: JobView, draft: StatusDraft) -> None:
        """Set Running, Restarting, Succeeded and Failed by ``draft.counts``."""
        raise NotImplementedError


def add_environment(container: Object, variables: list[Object]) -> None:
    """Append; where a name is there already, Kubernetes takes the last."""
    container["env"] = [*(container.get("env") or ()), *variables]


def variable(name: str, value: object) -> Object:
    """One environment variable."""
    return {"name": name, "value": str(value)}


def open_replicas(replica: ReplicaView, counts: Counts) -> int:
    """How many replicas have not succeeded yet."""
    return replica.count - counts.succeeded
