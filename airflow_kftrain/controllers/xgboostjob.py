"""XGBoostJob: the master runs the tracker; its end is the job's."""

from __future__ import annotations

from airflow_kftrain.cluster.resources import XGBOOSTJOBS
from airflow_kftrain.controllers import conditions as cond
from airflow_kftrain.controllers.reconciler import (
    UNBUFFERED,
    Reconciler,
    add_environment,
    open_replicas,
    variable,
)
from airflow_kftrain.controllers.status import StatusDraft
from airflow_kftrain.controllers.view import JobView, Object, ReplicaView
from airflow_kftrain.jobs.frameworks import XGBOOST


class XGBoostJobReconciler(Reconciler):
    """Rules of the XGBoostJob."""

    framework = XGBOOST
    resource = XGBOOSTJOBS

    def set_cluster_spec(self, job: JobView, spec: Object, replica: ReplicaView, index: int) -> None:
        master = job.replicas["Master"]
        rank = index + (master.count if replica.replica_type == "Worker" else 0)
        variables = [
            variable("MASTER_PORT", master.port(self.framework)),
            variable("MASTER_ADDR", f"{job.name}-master-0"),
            variable("WORLD_SIZE", job.total),
            variable("RANK", rank),
            UNBUFFERED,
        ]
        worker = job.replicas.get("Worker")
        if job.total > 1 and worker is not None:  # LightGBM wants its peers named
            peers = ",".join(f"{job.name}-worker-{n}" for n in range(job.total - 1))
            variables += [
                variable("WORKER_PORT", worker.port(self.framework)),
                variable("WORKER_ADDRS", peers),
            ]
        for container in spec["containers"]:
            add_environment(container, variables)

    def judge(self, job: JobView, draft: StatusDraft) -> None:
        running = f"{job.kind} {job.name} is running."
        for replica in job.replicas.values():
            counts = draft.counts[replica.replica_type]
            if replica.replica_type == "Master":
                if counts.active > 0:
                    draft.set(cond.RUNNING, running)
                if open_replicas(replica, counts) == 0:
                    draft.set(cond.RUNNING, running)
                    draft.succeed(f"{job.kind} {job.name} is successfully completed.")
                    return
            if counts.failed > 0:
                draft.set(cond.RUNNING, running)
                failed = f"{counts.failed} {replica.replica_type} replica(s) failed."
                # Under OnFailure a pod only fails as a whole when it was evicted or its node was lost (containers are
                # restarted in place), and is made anew. The training operator fails the job then.
                if replica.restart_policy != "Never":
                    draft.restart(f"{job.kind} {job.name} is restarting because {failed}")
                else:
                    draft.fail(f"{job.kind} {job.name} is failed because {failed}")
