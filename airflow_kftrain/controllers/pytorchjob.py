"""PyTorchJob: the master's end is the job's; without one, all workers', or the first of an elastic job's."""

from __future__ import annotations

from airflow_kftrain.cluster.resources import PYTORCHJOBS
from airflow_kftrain.controllers import conditions as cond
from airflow_kftrain.controllers.objects import type_selector
from airflow_kftrain.controllers.reconciler import (
    UNBUFFERED,
    Reconciler,
    add_environment,
    open_replicas,
    variable,
)
from airflow_kftrain.controllers.status import Counts, Note, StatusDraft
from airflow_kftrain.controllers.view import JobView, Object, ReplicaView
from airflow_kftrain.jobs.frameworks import PYTORCH

_WAIT_FOR_MASTER = (
    "err=1;for i in $(seq 100); do if nslookup {master}; then err=0 && break; fi;"
    "echo waiting for master; sleep 2; done; exit $err"
)


class PyTorchJobReconciler(Reconciler):
    """Rules of the PyTorchJob."""

    framework = PYTORCH
    resource = PYTORCHJOBS
    # The training operator reports a deleted PyTorchJob by the reason it has for pods.
    deleted_reason = "SuccessfulDeletePod"

    def view(self, job: Object) -> JobView:
        seen = super().view(job)
        spec = seen.spec
        policy = spec.get("elasticPolicy")
        if policy is not None:
            workers = (spec[self.framework.replica_specs_field].get("Worker") or {}).get("replicas")
            least, most = policy.get("minReplicas"), policy.get("maxReplicas")
            policy["minReplicas"] = _first(least, most, workers)
            policy["maxReplicas"] = _first(most, least, workers)
        if spec.get("nprocPerNode") is None and (policy is None or policy.get("nProcPerNode") is None):
            spec["nprocPerNode"] = "auto"
        return seen

    def set_cluster_spec(self, job: JobView, spec: Object, replica: ReplicaView, index: int) -> None:
        variables = [UNBUFFERED, *_master(job, replica, index)]
        nproc = job.spec.get("nprocPerNode")
        variables += [] if nproc is None else [variable("PET_NPROC_PER_NODE", nproc)]
        policy = job.spec.get("elasticPolicy")
        variables += [variable("PET_NNODES", job.total)] if policy is None else _elastic(job, policy)
        for container in spec["containers"]:
            add_environment(container, variables)
        if "Master" in job.replicas and replica.replica_type == "Worker":
            spec["initContainers"] = [*(spec.get("initContainers") or ()), _wait_for_master(job)]

    def warnings(self, job: JobView) -> list[Note]:
        if not (job.spec.get("elasticPolicy") or {}).get("metrics"):
            return []
        text = "elasticPolicy.metrics is not acted on: no autoscaler is made; change the number of workers yourself"
        return [Note("Warning", "AutoscalerNotSupported", text)]

    def judge(self, job: JobView, draft: StatusDraft) -> None:
        for replica in job.replicas.values():
            counts = draft.counts[replica.replica_type]
            counts.selector = type_selector(self, job, replica)
            if replica.replica_type == "Master":
                if counts.active > 0:
                    draft.set(cond.RUNNING, f"{job.kind} {job.name} is running.")
                if open_replicas(replica, counts) == 0:
                    draft.succeed(f"{job.kind} {job.name} is successfully completed.")
                    _add_selectors(self, job, draft)
                    return
            elif "Master" not in job.replicas:
                _judge_workers(job, draft, replica, counts)
            _judge_failures(job, draft, replica, counts)


def _add_selectors(reconciler: Reconciler, job: JobView, draft: StatusDraft) -> None:
    for replica in job.replicas.values():
        draft.counts[replica.replica_type].selector = type_selector(reconciler, job, replica)


def _judge_workers(job: JobView, draft: StatusDraft, replica: ReplicaView, counts: Counts) -> None:
    elastic = job.spec.get("elasticPolicy") is not None
    if open_replicas(replica, counts) == 0 or (elastic and counts.succeeded > 0):
        draft.succeed(f"{job.kind} {job.namespace}/{job.name} successfully completed.")
    elif counts.active > 0:
        draft.set(cond.RUNNING, f"{job.kind} {job.namespace}/{job.name} is running.")


def _judge_failures(job: JobView, draft: StatusDraft, replica: ReplicaView, counts: Counts) -> None:
    if counts.failed == 0 or replica.count <= counts.succeeded + counts.active:
        return
    failed = f"{counts.failed} {replica.replica_type} replica(s) failed."
    if replica.restart_policy == "Never":
        draft.fail(f"{job.kind} {job.name} is failed because {failed}")
    else:
        draft.restart(f"{job.kind} {job.name} is restarting because {failed}")


def _master(job: JobView, replica: ReplicaView, index: int) -> list[Object]:
    """Where the master is, and the replica's place among all; nothing without a master."""
    master = job.replicas.get("Master")
    if master is None:
        return []
    port, address = master.port(job.framework), f"{job.name}-master-0"
    rank = index + (1 if replica.replica_type == "Worker" else 0)
    nproc = str(job.spec.get("nprocPerNode"))
    # "auto", "gpu" and "cpu" are resolved by torchrun, which then ignores WORLD_SIZE.
    processes = int(nproc) if nproc.isdecimal() else 1
    return [
        variable("MASTER_PORT", port),
        variable("PET_MASTER_PORT", port),
        variable("MASTER_ADDR", address),
        variable("PET_MASTER_ADDR", address),
        variable("WORLD_SIZE", job.total * processes),
        variable("RANK", rank),
        variable("PET_NODE_RANK", rank),
    ]


def _elastic(job: JobView, policy: Object) -> list[Object]:
    """What torchrun needs for a rendezvous of changing members."""
    worker = job.replicas.get("Worker")
    port = worker.port(job.framework) if worker else job.framework.port
    host = _first(policy.get("rdzvHost"), f"{job.name}-worker-0")
    endpoint = f"{host}:{_first(policy.get('rdzvPort'), port)}"
    found = [
        variable("PET_RDZV_ENDPOINT", endpoint),
        variable("PET_RDZV_BACKEND", policy.get("rdzvBackend") or "c10d"),
        variable("PET_NNODES", f"{policy['minReplicas']}:{policy['maxReplicas']}"),
    ]
    for field, name in (
        ("maxRestarts", "PET_MAX_RESTARTS"),
        ("nProcPerNode", "PET_NPROC_PER_NODE"),
        ("rdzvId", "PET_RDZV_ID"),
    ):
        if policy.get(field) is not None:
            found.append(variable(name, policy[field]))
    if policy.get("rdzvConf"):
        settings = ",".join(f"{c.get('key', '')}={c.get('value', '')}" for c in policy["rdzvConf"])
        found.append(variable("PET_RDZV_CONF", settings))
    return [*found, variable("PET_STANDALONE", "")] if policy.get("standalone") else found


def _wait_for_master(job: JobView) -> Object:
    """The init container that holds a worker back until the master's name resolves."""
    return {
        "name": "init-pytorch",
        "image": "alpine:3.10",
        "imagePullPolicy": "IfNotPresent",
        "resources": {
            "limits": {"cpu": "100m", "memory": "20Mi"},
            "requests": {"cpu": "50m", "memory": "10Mi"},
        },
        "command": ["sh", "-c", _WAIT_FOR_MASTER.format(master=f"{job.name}-master-0")],
    }


def _first(*values: object) -> object:
    return next((value for value in values if value is not None), None)
