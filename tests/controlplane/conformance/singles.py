"""Jobs that show one behaviour each, beside those that cover the pairs; :data:`SINGLE_CASES` are the cases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_kftrain.cluster.client import Object
from tests.controlplane.conformance.cases import (
    KINDS,
    Case,
    Change,
    Create,
    Delete,
    End,
    LosePod,
    Pass,
    Step,
    job,
    replica,
)

XGB, PT, TF = "XGBoostJob", "PyTorchJob", "TFJob"
CREATED = Step("created", Create(), "running")
NUDGE = Change({"metadata": {"annotations": {"kftrain.test/nudge": "1"}}})


def xgb(name: str, *, workers: int = 2, restart: str = "OnFailure", **spec: Any) -> Object:
    """An XGBoostJob of a master and ``workers``."""
    return job(
        XGB, name, {"Master": replica(XGB, 1, restart), "Worker": replica(XGB, workers, restart)}, **spec
    )


def elastic(name: str, *, workers: int = 2, policy: Mapping[str, Any] | None = None, **spec: Any) -> Object:
    """An elastic PyTorchJob of 1 to 4 workers."""
    bounds = {"minReplicas": 1, "maxReplicas": 4, **(policy or {})}
    return job(PT, name, {"Worker": replica(PT, workers)}, elasticPolicy=bounds, **spec)


def scale(kind: str, replicas: int, replica_type: str = "Worker") -> Change:
    """Change the number of one replica type."""
    return Change({"spec": {KINDS[kind].replica_specs: {replica_type: {"replicas": replicas}}}})


def suspend(value: bool) -> Change:
    """Suspend or resume."""
    return Change({"spec": {"runPolicy": {"suspend": value}}})


def _with(manifest: Object, replica_type: str, **changes: Any) -> Object:
    """``manifest`` with other fields in one replica type's training container."""
    specs = manifest["spec"][KINDS[manifest["kind"]].replica_specs]
    specs[replica_type]["template"]["spec"]["containers"][-1].update(changes)
    return manifest


def _annotated(manifest: Object, replica_type: str) -> Object:
    specs = manifest["spec"][KINDS[manifest["kind"]].replica_specs]
    specs[replica_type]["template"]["metadata"] = {
        "labels": {"team": "churn", "training.kubeflow.org/job-role": "mine"},
        "annotations": {"note": "kept"},
    }
    return manifest


def _slow_to_end(manifest: Object) -> Object:
    """With workers that take three seconds to end, so that a controller sees them ending."""
    template = manifest["spec"][KINDS[manifest["kind"]].replica_specs]["Worker"]["template"]
    template["metadata"] = {"annotations": {"kftrain.test/termination-seconds": "3"}}
    command = template["spec"]["containers"][0]["command"]
    command[-1] = f"trap 'sleep 3; exit 143' TERM; {command[-1]}"
    return manifest


def _cases() -> list[Case]:
    return [*_over_time(), *_scaled(), *_limits(), *_pods(), *_frameworks(), *_groups(), *_invalid()]


def _over_time() -> list[Case]:
    finished = Step("finished", End({"master-0": 0}), "finished")
    return [
        Case(
            "deleted-while-running",
            xgb("deleted-while-running"),
            (CREATED, Step("deleted", Delete(), "gone")),
        ),
        Case(
            "deleted-while-suspended",
            xgb("deleted-while-suspended", runPolicy={"suspend": True}),
            (Step("created", Create(), "suspended"), Step("deleted", Delete(), "gone")),
        ),
        Case("worker-lost", _slow_to_end(xgb("worker-lost")), (CREATED, Step("lost", LosePod("worker-1")))),
        *(
            Case(f"{prefix}-worker-lost", _slow_to_end(made), (CREATED, Step("lost", LosePod("worker-1"))))
            for prefix, made in (
                (
                    "pytorch",
                    job(PT, "pytorch-worker-lost", {"Master": replica(PT), "Worker": replica(PT, 2)}),
                ),
                ("tensorflow", job(TF, "tensorflow-worker-lost", {"Worker": replica(TF, 2)})),
            )
        ),
        Case(
            "workers-end-then-master",
            xgb("workers-end-then-master"),
            (CREATED, Step("workers end", End({"worker-0": 0, "worker-1": 0})), finished),
        ),
        Case(
            "suspended-twice",
            xgb("suspended-twice"),
            (
                CREATED,
                Step("suspended", suspend(True), "suspended"),
                Step("resumed", suspend(False), "running"),
                Step("suspended again", suspend(True), "suspended"),
                Step("resumed again", suspend(False), "running"),
                finished,
            ),
        ),
        Case(
            "suspended-when-finished",
            xgb("suspended-when-finished"),
            (CREATED, finished, Step("suspended", suspend(True)), Step("resumed", suspend(False))),
        ),
        Case(
            "changed-when-finished",
            xgb("changed-when-finished", runPolicy={"cleanPodPolicy": "All"}),
            (CREATED, finished, Step("annotated", NUDGE)),
        ),
    ]


def _scaled() -> list[Case]:
    fewest = {"schedulingPolicy": {"minAvailable": 1}}
    return [
        Case(
            "plain-scaled-up-live",
            xgb("plain-scaled-up-live", runPolicy=fewest),
            (CREATED, Step("scaled", scale(XGB, 4), "running")),
        ),
        Case(
            "elastic-scaled-up-live",
            elastic("elastic-scaled-up-live", runPolicy=fewest),
            (CREATED, Step("scaled", scale(PT, 4), "running"), Step("ended", End({"worker-0": 0}))),
        ),
        Case(
            "elastic-scaled-down-live",
            elastic("elastic-scaled-down-live", workers=3, runPolicy=fewest),
            (CREATED, Step("scaled", scale(PT, 2), "running")),
        ),
        Case(
            "dynamic-scaled-up-live",
            job(
                TF,
                "dynamic-scaled-up-live",
                {"PS": replica(TF), "Worker": replica(TF, 2)},
                enableDynamicWorker=True,
                runPolicy=fewest,
            ),
            (CREATED, Step("scaled", scale(TF, 3), "running")),
        ),
        Case(
            "plain-scaled-down-live",
            xgb("plain-scaled-down-live", workers=3),
            (CREATED, Step("scaled", scale(XGB, 1), "running")),
            gang=False,
        ),
    ]


def _limits() -> list[Case]:
    killed = End({"worker-0": 137})
    backoff = {"backoffLimit": 1}
    return [
        Case(
            "finished-job-is-removed",
            xgb("finished-job-is-removed", runPolicy={"ttlSecondsAfterFinished": 2}),
            (CREATED, Step("ended", End({"master-0": 0}), "gone")),
        ),
        Case(
            "deadline-passes",
            xgb("deadline-passes", runPolicy={"activeDeadlineSeconds": 8}),
            (CREATED, Step("passed", Pass(8)), Step("annotated", NUDGE, "finished")),
        ),
        Case(
            "restarts-in-place-to-the-limit",
            xgb("restarts-in-place-to-the-limit", runPolicy={"backoffLimit": 2}),
            (CREATED, Step("killed", killed), Step("killed again", killed), Step("killed thrice", killed)),
        ),
        Case(
            "restarts-anew-to-the-limit",
            xgb("restarts-anew-to-the-limit", restart="ExitCode", runPolicy=backoff),
            (CREATED, Step("killed", killed), Step("killed again", killed), Step("killed thrice", killed)),
        ),
        Case(
            "no-restart-allowed",
            xgb("no-restart-allowed", restart="ExitCode", runPolicy={"backoffLimit": 0}),
            (CREATED, Step("killed", killed)),
        ),
        Case(
            "exit-codes-at-the-border",
            xgb("exit-codes-at-the-border", restart="ExitCode"),
            (
                CREATED,
                Step("user signal", End({"worker-0": 138})),
                Step("terminated", End({"worker-0": 143})),
                Step("segmentation fault", End({"worker-1": 139})),
            ),
        ),
    ]


def _pods() -> list[Case]:
    no_count = job(
        XGB, "counts-left-out", {"Master": replica(XGB, 1, None), "Worker": replica(XGB, None, None)}
    )
    host = job(PT, "host-network", {"Master": replica(PT, hostNetwork=True), "Worker": replica(PT)})
    own_scheduler = job(
        XGB, "scheduler-of-its-own", {"Master": replica(XGB, schedulerName="default-scheduler")}
    )
    own_environment = xgb("environment-of-its-own")
    training = own_environment["spec"]["xgbReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    training["env"] += [{"name": "WORLD_SIZE", "value": "99"}, {"name": "MINE", "value": "1"}]
    labelled = xgb("labels-of-its-own")
    labelled["metadata"] |= {"labels": {"team": "churn"}, "annotations": {"note": "of the job"}}
    return [
        Case("counts-left-out", no_count, (CREATED,)),
        Case("no-workers", xgb("no-workers", workers=0), (CREATED, Step("ended", End({"master-0": 0})))),
        Case("host-network", host, (CREATED,)),
        Case("scheduler-of-its-own", own_scheduler, (CREATED,)),
        Case("labels-of-its-own", _annotated(labelled, "Worker"), (CREATED,)),
        Case(
            "environment-of-its-own",
            own_environment,
            (CREATED,),
        ),
        Case(
            "training-port-by-another-name",
            _with(
                xgb("training-port-by-another-name"), "Master", ports=[{"name": "http", "containerPort": 80}]
            ),
            (CREATED,),
        ),
    ]


def _frameworks() -> list[Case]:
    rendezvous = {
        "rdzvBackend": "etcd",
        "rdzvHost": "etcd.example",
        "rdzvPort": 2379,
        "rdzvId": "group-7",
        "rdzvConf": [{"key": "timeout", "value": "60"}, {"key": "protocol", "value": "http"}],
        "maxRestarts": 5,
    }
    sparse = {"PS": replica(TF, 2), "Worker": replica(TF, 3)}
    with_evaluator = {"Chief": replica(TF), "Worker": replica(TF), "Evaluator": replica(TF)}
    evaluated = {"runPolicy": {"cleanPodPolicy": "Running"}}
    return [
        Case(
            "elastic-with-every-setting", elastic("elastic-with-every-setting", policy=rendezvous), (CREATED,)
        ),
        Case(
            "elastic-standalone",
            elastic("elastic-standalone", workers=1, policy={"standalone": True}),
            (CREATED,),
        ),
        Case("elastic-processes", elastic("elastic-processes", policy={"nProcPerNode": 2}), (CREATED,)),
        Case(
            "elastic-with-a-master",
            job(
                PT,
                "elastic-with-a-master",
                {"Master": replica(PT), "Worker": replica(PT, 2)},
                elasticPolicy={"minReplicas": 1, "maxReplicas": 3},
            ),
            (CREATED,),
        ),
        Case("dynamic-sparse", job(TF, "dynamic-sparse", sparse, enableDynamicWorker=True), (CREATED,)),
        Case(
            "evaluator-outlives-the-chief",
            job(TF, "evaluator-outlives-the-chief", with_evaluator, **evaluated),
            (CREATED, Step("chief ends", End({"chief-0": 0}))),
        ),
        Case(
            "evaluator-ends-first",
            job(TF, "evaluator-ends-first", with_evaluator),
            (CREATED, Step("evaluator ends", End({"evaluator-0": 0}))),
        ),
        Case(
            "single-tensorflow-worker",
            job(TF, "single-tensorflow-worker", {"Worker": replica(TF)}),
            (CREATED, Step("ended", End({"worker-0": 0}))),
        ),
        Case(
            "worker-1-ends-before-worker-0",
            job(TF, "worker-1-ends-before-worker-0", {"Worker": replica(TF, 2)}),
            (CREATED, Step("worker 1", End({"worker-1": 0})), Step("worker 0", End({"worker-0": 0}))),
        ),
    ]


def _groups() -> list[Case]:
    policy = {
        "minAvailable": 2,
        "minResources": {"cpu": "3", "nvidia.com/gpu": "2"},
        "scheduleTimeoutSeconds": 30,
    }
    too_big = job(
        XGB, "gang-that-does-not-fit", {"Master": replica(XGB), "Worker": replica(XGB, 2, gpus=5000)}
    )
    return [
        Case("group-settings", xgb("group-settings", runPolicy={"schedulingPolicy": policy}), (CREATED,)),
        Case(
            "group-of-a-queue",
            xgb("group-of-a-queue", runPolicy={"schedulingPolicy": {"queue": "gpu"}}),
            (CREATED,),
        ),
        Case("gang-that-does-not-fit", too_big, (Step("created", Create()),)),
        Case(
            "group-scaled-while-suspended",
            xgb("group-scaled-while-suspended"),
            (
                CREATED,
                Step("suspended", suspend(True), "suspended"),
                Step("scaled", scale(XGB, 1), "suspended"),
                Step("resumed", suspend(False), "running"),
            ),
        ),
    ]


def _invalid() -> list[Case]:
    """Each is refused, or fails at once."""
    tried = (Step("created", Create()),)
    master, worker = replica(XGB), replica(XGB, 2)
    wrong_name = _with(job(XGB, "invalid-container-name", {"Master": replica(XGB)}), "Master", name="train")
    no_image = _with(job(XGB, "invalid-no-image", {"Master": replica(XGB)}), "Master", image="")
    manifests = [
        job(XGB, "invalid-no-replicas", {}),
        job(XGB, "invalid-no-master", {"Worker": worker}),
        job(XGB, "invalid-two-masters", {"Master": replica(XGB, 2), "Worker": worker}),
        job(XGB, "invalid-replica-type", {"Master": master, "Chief": worker}),
        job(PT, "invalid-two-pytorch-masters", {"Master": replica(PT, 2)}),
        job(PT, "invalid-pytorch-replica-type", {"Master": replica(PT), "PS": replica(PT)}),
        job(TF, "invalid-chief-and-master", {"Chief": replica(TF), "Master": replica(TF)}),
        elastic("invalid-processes-twice", policy={"nProcPerNode": 2}, nprocPerNode="2"),
        xgb("invalid-restart-policy", restart="Sometimes"),
        wrong_name,
        no_image,
    ]
    digit = Case("invalid-name", xgb("9-starts-with-a-digit"), tried)
    return [digit, *(Case(manifest["metadata"]["name"], manifest, tried) for manifest in manifests)]


SINGLE_CASES: tuple[Case, ...] = tuple(_cases())
