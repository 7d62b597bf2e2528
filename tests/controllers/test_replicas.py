"""What is decided about pods and services, and when limits end a job."""

from __future__ import annotations

import datetime as dt
import json

import pytest

from airflow_kftrain.controllers import limits, ownership, replicas
from airflow_kftrain.controllers.kinds import RECONCILERS
from airflow_kftrain.controllers.objects import job_labels
from airflow_kftrain.controllers.status import Counts, StatusDraft
from airflow_kftrain.controllers.validation import faults
from tests.controllers.recorded import OBJECTS, job_of

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def job(policy="OnFailure", workers=2, **run_policy):
    raw = job_of(OBJECTS["xgb-1-2"]["manifest"])
    for spec in raw["spec"]["xgbReplicaSpecs"].values():
        spec["restartPolicy"] = policy
    raw["spec"]["xgbReplicaSpecs"]["Worker"]["replicas"] = workers
    raw["spec"]["runPolicy"] = run_policy
    return raw


def view(raw):
    return RECONCILERS[raw["kind"]].view(raw)


def pod(
    index, phase="Running", code=None, *, kind="worker", uid=None, deleted=False, restarts=0, created="a"
):
    state = {"terminated": {"exitCode": code}} if code is not None else {"running": {}}
    metadata = {
        "name": f"xgb-1-2-{kind}-{index}",
        "namespace": "default",
        "uid": uid or f"{kind}-{index}",
        "creationTimestamp": created,
        "labels": {
            "training.kubeflow.org/replica-type": kind,
            "training.kubeflow.org/replica-index": str(index),
        },
    }
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    containers = [{"name": "xgboost", "state": state, "restartCount": restarts}]
    return {"metadata": metadata, "status": {"phase": phase, "containerStatuses": containers}}


def plan(raw, *pods):
    seen = view(raw)
    return replicas.plan_pods(seen, seen.replicas["Worker"], pods)


def names(pods):
    return [p["metadata"]["name"][-8:] for p in pods]


def test_missing_places_are_named():
    assert plan(job(workers=3), pod(1)).missing == [0, 2]


def test_pods_of_another_type_or_without_index_hold_no_place():
    stray = pod(1)
    stray["metadata"]["labels"]["training.kubeflow.org/replica-index"] = "one"
    assert plan(job(), pod(0, kind="master"), stray).missing == [0, 1]


def test_b26_surplus_pods_are_deleted_once_and_say_nothing_of_the_job():
    found = plan(job(workers=1), pod(0), pod(2, "Succeeded", 0), pod(3, deleted=True))
    assert names(found.surplus) == ["worker-2"]
    assert (found.missing, found.counts) == ([], Counts(active=1))


def test_b26_no_place_between_the_wanted_and_a_surplus_pod_is_filled():
    assert plan(job(workers=1), pod(0), pod(3, deleted=True)).missing == []


@pytest.mark.parametrize(
    ("policy", "code", "outcome"),
    [
        pytest.param("ExitCode", 1, "fails the job", id="ExitCode 1 is permanent"),
        pytest.param("ExitCode", 127, "fails the job", id="ExitCode 127 is permanent"),
        pytest.param("ExitCode", 128, "made anew", id="ExitCode 128 is a signal"),
        pytest.param("ExitCode", 137, "made anew", id="ExitCode 137 is a kill"),
        pytest.param("ExitCode", None, "made anew", id="ExitCode without a code is a lost pod"),
        pytest.param("OnFailure", 1, "made anew", id="OnFailure restarts whatever the code"),
        pytest.param("Always", 1, "made anew", id="Always restarts"),
        pytest.param("Never", 137, "left", id="Never leaves the pod"),
    ],
)
def test_restart_policies(policy, code, outcome):
    found = plan(job(policy), pod(0), pod(1, "Failed", code))
    assert found.counts == Counts(active=1, failed=1)
    assert {"made anew": (1, False), "fails the job": (0, True), "left": (0, False)}[outcome] == (
        len(found.failed),
        found.condemned,
    )


def test_a_running_pod_that_is_being_deleted_counts_as_failed():
    assert plan(job(), pod(0), pod(1, deleted=True)).counts == Counts(active=1, failed=1)


@pytest.mark.parametrize(
    ("finished", "grace", "expected"),
    [
        pytest.param("2026-01-01T00:00:10Z", 30, Counts(failed=1), id="ended after it was told to"),
        pytest.param(
            "2025-12-31T23:59:00Z", 30, Counts(succeeded=1, first_succeeded=True), id="ended before"
        ),
        pytest.param(
            "2025-12-31T23:59:45Z", 30, Counts(failed=1), id="the grace period counts from the request"
        ),
        pytest.param(None, 30, Counts(failed=1), id="an end without a time"),
    ],
)
def test_b25_a_pod_that_was_told_to_end_has_not_succeeded(finished, grace, expected):
    ended = pod(0, "Succeeded", 0, deleted=True)
    ended["metadata"]["deletionGracePeriodSeconds"] = grace
    if finished:
        ended["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"] = finished
    assert plan(job(workers=1), ended).counts == expected


def test_of_two_pods_in_one_place_the_one_that_stays_counts():
    found = plan(job(workers=1), pod(0, deleted=True, created="a"), pod(0, uid="new", created="b"))
    assert found.live[0]["metadata"]["uid"] == "new"


def test_services_follow_the_number_of_replicas():
    seen = view(job(workers=2))
    assert [
        names(x) if x and isinstance(x[0], dict) else x
        for x in replicas.plan_services(seen.replicas["Worker"], [pod(0), pod(2)])
    ] == [[1], ["worker-2"]]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param(
            {
                "conditions": [
                    {"status": "True", "type": "Initialized", "lastTransitionTime": "1"},
                    {
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/2 nodes",
                        "lastTransitionTime": "2",
                    },
                ]
            },
            ("Unschedulable", "Error pod p condition message: 0/2 nodes"),
            id="a pod that no node takes",
        ),
        pytest.param(
            {
                "containerStatuses": [
                    {"name": "c", "state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}}
                ]
            },
            ("ErrImagePull", "Error pod p container c waiting message: not found"),
            id="an image that cannot be pulled",
        ),
        pytest.param(
            {
                "initContainerStatuses": [
                    {
                        "name": "i",
                        "state": {"terminated": {"reason": "Error", "exitCode": 3, "message": "m"}},
                    }
                ]
            },
            ("Error", "Error pod p container i exitCode: 3 terminated message: m"),
            id="an init container that failed",
        ),
        pytest.param(
            {"containerStatuses": [{"name": "c", "state": {"waiting": {"reason": "ContainerCreating"}}}]},
            None,
            id="a container that is being created",
        ),
    ],
)
def test_what_hinders_a_pod_is_told(status, expected):
    told = replicas.abnormal_notes([{"metadata": {"name": "p"}, "status": {"phase": "Pending"} | status}])
    assert [(n.reason, n.message) for n in told] == ([] if expected is None else [expected])


def exceeded(raw, *pods, failed=0, start=None):
    draft = StatusDraft("XGBoostJob", {"startTime": start} if start else {}, NOW)
    draft.counts = {"Worker": Counts(failed=failed)}
    return limits.exceeded(view(raw), draft, pods)


def replaced(raw, *uids):
    raw["metadata"]["annotations"] = {limits.REPLACED_PODS: json.dumps(uids)}
    return raw


@pytest.mark.parametrize(
    ("raw", "pods", "over"),
    [
        pytest.param(job("ExitCode"), [pod(0, "Failed", 137)], False, id="no limit"),
        pytest.param(job("ExitCode", backoffLimit=0), [pod(0)], False, id="limit 0, none failed"),
        pytest.param(
            job("ExitCode", backoffLimit=0), [pod(0, "Failed", 137)], True, id="limit 0, one failed"
        ),
        pytest.param(job("Never", backoffLimit=0), [pod(0, "Failed", 1)], True, id="limit 0, policy Never"),
        pytest.param(
            job("ExitCode", backoffLimit=3), [pod(0, "Failed", 137)], False, id="limit 3, first failure"
        ),
        pytest.param(
            replaced(job("ExitCode", backoffLimit=3), "a", "b"),
            [pod(0, "Failed", 137)],
            False,
            id="third failure",
        ),
        pytest.param(
            replaced(job("ExitCode", backoffLimit=3), "a", "b", "c"),
            [pod(0, "Failed", 137)],
            True,
            id="b07: the fourth start that fails is past a limit of 3",
        ),
        pytest.param(
            replaced(job("ExitCode", backoffLimit=1), "a"),
            [pod(0, "Failed", 137, uid="a")],
            False,
            id="a failed pod that is still there counts once",
        ),
        pytest.param(
            job("OnFailure", backoffLimit=2), [pod(0, restarts=1)], False, id="one container restart of 2"
        ),
        pytest.param(
            job("OnFailure", backoffLimit=2), [pod(0, restarts=2)], True, id="two container restarts of 2"
        ),
        pytest.param(
            job("Never", backoffLimit=1), [pod(0, restarts=9)], False, id="restarts do not count for Never"
        ),
    ],
)
def test_backoff_limit(raw, pods, over):
    assert exceeded(raw, *pods) == (
        "Job xgb-1-2 has failed because it has reached the specified backoff limit" if over else None
    )


def test_a_failure_that_the_status_knows_is_no_new_one():
    assert exceeded(job("Never", backoffLimit=0), pod(0, "Failed", 1), failed=1) is None


@pytest.mark.parametrize(
    ("start", "over"),
    [
        pytest.param(None, False, id="not started"),
        pytest.param("2025-12-31T23:59:51Z", False, id="9 of 10 seconds"),
        pytest.param("2025-12-31T23:59:50Z", True, id="10 of 10 seconds"),
    ],
)
def test_active_deadline(start, over):
    text = exceeded(job(activeDeadlineSeconds=10), start=start)
    assert (text is not None) == over


def test_a_damaged_annotation_counts_as_none():
    raw = job("ExitCode", backoffLimit=3)
    raw["metadata"]["annotations"] = {limits.REPLACED_PODS: "{oops"}
    assert limits.failures(view(raw), []).total == 0


def claimed(*candidates):
    seen = view(job())
    found = ownership.claims(seen, job_labels(RECONCILERS["XGBoostJob"], seen), candidates)
    return {"owned": names(found.owned), "orphans": names(found.orphans), "strays": names(found.strays)}


def owned_by(obj, uid, *, labelled=True):
    labels = {
        "training.kubeflow.org/job-name": "xgb-1-2" if labelled else "other",
        "training.kubeflow.org/operator-name": "xgboostjob-controller",
    }
    obj["metadata"]["labels"] |= labels
    obj["metadata"]["ownerReferences"] = [{"uid": uid, "controller": True}] if uid else []
    return obj


def test_an_object_belongs_to_its_controller_whatever_its_labels():
    assert claimed(
        owned_by(pod(0), "JOB-UID"),
        owned_by(pod(1), None),
        owned_by(pod(2), "JOB-UID", labelled=False),
        owned_by(pod(3), "someone-else"),
        owned_by(pod(4, deleted=True), None),
        owned_by(pod(5), None, labelled=False),
    ) == {"owned": ["worker-0"], "orphans": ["worker-1"], "strays": ["worker-2"]}


def test_adoption_and_release_touch_no_other_owner():
    seen, orphan = view(job()), owned_by(pod(0), None)
    orphan["metadata"] |= {"resourceVersion": "7", "ownerReferences": [{"uid": "x"}]}
    patch = ownership.adoption(seen, orphan)["metadata"]
    assert [r["uid"] for r in patch["ownerReferences"]] == ["x", "JOB-UID"]
    assert (patch["uid"], patch["resourceVersion"]) == ("worker-0", "7")
    adopted = {"metadata": orphan["metadata"] | {"ownerReferences": patch["ownerReferences"]}}
    assert ownership.release(seen, adopted)["metadata"]["ownerReferences"] == [{"uid": "x"}]


def invalid(change):
    raw = job()
    change(raw["spec"]["xgbReplicaSpecs"], raw)
    return faults(RECONCILERS["XGBoostJob"].framework, raw)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        pytest.param(lambda s, j: s.pop("Master"), "[Master]: must be present", id="no master"),
        pytest.param(lambda s, j: s["Master"].update(replicas=2), "must be 1", id="two masters"),
        pytest.param(
            lambda s, j: s.update(PS=s["Worker"]), "no such replica type", id="a type it does not have"
        ),
        pytest.param(lambda s, j: s["Worker"].update(replicas=-1), "from 0", id="a negative number"),
        pytest.param(
            lambda s, j: s["Worker"].update(restartPolicy="Maybe"), "must be one of", id="a policy of its own"
        ),
        pytest.param(
            lambda s, j: s["Worker"].pop("template"), "container with name xgboost", id="no template"
        ),
        pytest.param(
            lambda s, j: s["Worker"]["template"]["spec"]["containers"][0].pop("image"), "image", id="no image"
        ),
        pytest.param(
            lambda s, j: s["Worker"]["template"]["spec"]["containers"][0].update(name="main"),
            "container with name xgboost",
            id="no container of the framework's name",
        ),
        pytest.param(lambda s, j: j["spec"].pop("xgbReplicaSpecs"), "must be given", id="no replicas at all"),
        pytest.param(
            lambda s, j: j["metadata"].update(name="1st"), "DNS label", id="a name that starts with a digit"
        ),
        pytest.param(lambda s, j: j["metadata"].update(name="a" * 64), "DNS label", id="a name too long"),
    ],
)
def test_each_fault_is_named_once(change, text):
    (found,) = invalid(change)
    assert text in found


def test_a_tensorflow_job_has_one_leader():
    raw = job_of(OBJECTS["tf-chief-ps-eval"]["manifest"])
    raw["spec"]["tfReplicaSpecs"]["Master"] = raw["spec"]["tfReplicaSpecs"]["Chief"]
    assert faults(RECONCILERS["TFJob"].framework, raw) == [
        "spec.tfReplicaSpecs: must not have more than one of Chief, Master"
    ]


def test_processes_per_node_have_one_place():
    raw = job_of(OBJECTS["pt-elastic"]["manifest"])
    raw["spec"]["nprocPerNode"] = "2"
    raw["spec"]["elasticPolicy"]["nProcPerNode"] = 2
    (found,) = faults(RECONCILERS["PyTorchJob"].framework, raw)
    assert found.startswith("spec.elasticPolicy.nProcPerNode: must not be given beside spec.nprocPerNode")


@pytest.mark.parametrize("name", sorted(OBJECTS))
def test_what_the_training_operator_ran_is_valid(name):
    raw = job_of(OBJECTS[name]["manifest"])
    assert faults(RECONCILERS[raw["kind"]].framework, raw) == []
