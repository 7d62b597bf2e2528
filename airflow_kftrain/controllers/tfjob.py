"""TFJob: the Chief's end is the job's; without one, worker 0's, or all workers' by success policy."""

from __future__ import annotations

import json

from airflow_kftrain.cluster.resources import TFJOBS
from airflow_kftrain.controllers import conditions as cond
from airflow_kftrain.controllers.reconciler import (
    Reconciler,
    add_environment,
    open_replicas,
    variable,
)
from airflow_kftrain.controllers.status import Counts, StatusDraft
from airflow_kftrain.controllers.view import JobView, Object, ReplicaView
from airflow_kftrain.jobs.frameworks import TENSORFLOW

# The order in which the training operator looks at them, which shows in conditions and events.
_JUDGED = ("Chief", "Evaluator", "Master", "PS", "Worker")


class TFJobReconciler(Reconciler):
    """Rules of the TFJob."""

    framework = TENSORFLOW
    resource = TFJOBS

    def set_cluster_spec(self, job: JobView, spec: Object, replica: ReplicaView, index: int) -> None:
        if job.total == 1:  # a single process is no cluster
            return
        text = json.dumps(_tf_config(job, replica, index), separators=(",", ":"))
        for container in spec["containers"]:
            if container.get("name") == self.framework.container:
                add_environment(container, [variable("TF_CONFIG", text)])
                return

    def judge(self, job: JobView, draft: StatusDraft) -> None:
        restarting = cond.find(draft.conditions, cond.RESTARTING)
        running = f"{job.kind} {job.namespace}/{job.name} is running."
        for replica in (job.replicas[t] for t in _JUDGED if t in job.replicas):
            counts = draft.counts[replica.replica_type]
            decides = replica.replica_type in (self.framework.leaders if job.has_leader else ("Worker",))
            if decides and _is_done(job, replica, counts):
                draft.succeed(f"{job.kind} {job.namespace}/{job.name} successfully completed.")
            if decides and counts.active > 0 and not draft.is_true(cond.SUCCEEDED):
                draft.set(cond.RUNNING, running)
            if counts.failed > 0:
                _judge_failures(job, draft, replica, counts, restarting)


def _is_done(job: JobView, replica: ReplicaView, counts: Counts) -> bool:
    """Whether the replica type that decides has done its work."""
    if open_replicas(replica, counts) == 0:
        return True
    return counts.first_succeeded and not job.has_leader and job.spec.get("successPolicy") != "AllWorkers"


def _judge_failures(
    job: JobView,
    draft: StatusDraft,
    replica: ReplicaView,
    counts: Counts,
    restarting: cond.Condition | None,
) -> None:
    if restarting is not None:
        # A Running set above has taken its place; the failed replica is already being made anew.
        draft.conditions = cond.with_condition(
            draft.conditions,
            cond.RESTARTING,
            "True",
            restarting["reason"],
            restarting["message"],
            draft.now,
        )
    elif not (replica.replica_type == "Worker" and job.spec.get("enableDynamicWorker")):
        failed = f"{counts.failed} {replica.replica_type} replica(s) failed."
        draft.fail(f"{job.kind} {job.namespace}/{job.name} has failed because {failed}")


def _tf_config(job: JobView, replica: ReplicaView, index: int) -> Object:
    cluster = {r.label: _addresses(job, r) for r in sorted(job.replicas.values(), key=lambda r: r.label)}
    task = {"type": replica.label, "index": index}
    if not job.spec.get("enableDynamicWorker"):
        return {"cluster": cluster, "task": task, "environment": "cloud"}
    # The sparse form: workers know the parameter servers and themselves, so that others may come and go.
    own = cluster[replica.label][index : index + 1]
    sparse: Object = {"worker": {}, "ps": []}
    if replica.replica_type == "PS":
        sparse["ps"] = own
    elif replica.replica_type == "Worker":
        sparse = {"worker": {str(index): own[0]}, "ps": cluster.get("ps")}
    return {"cluster": sparse, "task": task}


def _addresses(job: JobView, replica: ReplicaView) -> list[str]:
    port = replica.port(job.framework)
    return [f"{job.name}-{replica.label}-{n}.{job.namespace}.svc:{port}" for n in range(replica.count)]
