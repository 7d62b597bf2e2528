"""What a job goes through besides its first start and its end, on the local API."""

from __future__ import annotations

import contextlib
import copy

import pytest

from airflow_kftrain.cluster.resources import PODGROUPS, PODS, RESOURCEQUOTAS, SERVICES
from airflow_kftrain.controllers.limits import REPLACED_PODS
from airflow_kftrain.controllers.objects import JOB_NAME
from airflow_kftrain.exceptions import Forbidden
from tests.controllers.faulty import Killed, Mortal
from tests.controllers.recorded import ENDS, OBJECTS
from tests.controllers.stage import NAMESPACE

FIELD = {"XGBoostJob": "xgbReplicaSpecs", "PyTorchJob": "pytorchReplicaSpecs", "TFJob": "tfReplicaSpecs"}


def manifest(recording, *, policy=None, node=False, counts=None, **run_policy):
    """A recorded manifest, changed.

    :param node: pods are bound, so that a deletion waits for their end as it does under a kubelet
    """
    job = copy.deepcopy((OBJECTS | ENDS)[recording]["manifest"])
    job["metadata"]["name"] = "job"
    for replica_type, replica in job["spec"][FIELD[job["kind"]]].items():
        replica["restartPolicy"] = policy or replica["restartPolicy"]
        replica["replicas"] = (counts or {}).get(replica_type, replica["replicas"])
        if node:
            replica["template"]["spec"]["nodeName"] = "node-1"
    if run_policy:
        job["spec"]["runPolicy"] = job["spec"].get("runPolicy", {}) | run_policy
    return job


def conditions(stage):
    return [f"{kind}={truth}" for kind, truth, _ in stage.history[-1]["conditions"]]


def scaled(kind, **counts):
    return {FIELD[kind]: {replica_type: {"replicas": count} for replica_type, count in counts.items()}}


async def running(stage, job):
    submitted = await stage.submit(job)
    await stage.settle()
    await stage.play()
    return submitted


# --- deadlines, limits, time to live ---------------------------------------------------------------------------------


async def test_a_deadline_fires_by_itself(stage):
    stage = await stage("XGBoostJob")
    await running(stage, manifest("xgb-1-2", activeDeadlineSeconds=60, cleanPodPolicy="None"))
    assert 59 <= stage.look_again[NAMESPACE, "job"] <= 60
    await stage.clock.advance(61)
    await stage.wake("job")
    assert conditions(stage) == ["Created=True", "Running=False", "Failed=True"]
    failed = (await stage.job("job"))["status"]["conditions"][-1]
    assert failed["message"] == "Job job has failed because it was active longer than specified deadline"
    assert (await stage.pods(), await stage.services()) == ({}, [])


async def test_a_deadline_counts_from_the_resumption(stage):
    stage = await stage("XGBoostJob")
    await running(stage, manifest("xgb-1-2", activeDeadlineSeconds=60))
    await stage.clock.advance(40)
    await stage.change("job", {"runPolicy": {"suspend": True}})
    await stage.settle()
    await stage.clock.advance(400)
    await stage.wake("job")
    await stage.change("job", {"runPolicy": {"suspend": False}})
    await stage.settle()
    await stage.play()
    assert conditions(stage) == ["Created=True", "Suspended=False", "Running=True"]
    assert 59 <= stage.look_again[NAMESPACE, "job"] <= 60


async def test_b07_replaced_pods_count_against_the_backoff_limit(stage):
    stage = await stage("XGBoostJob")
    await running(stage, manifest("xgb-1-2", policy="ExitCode", backoffLimit=3))
    uids = set()
    for start in range(1, 5):
        uids.add((await stage.pods())["job-worker-0"]["metadata"]["uid"])
        await stage.end("job-worker-0", 137)
        await stage.play()
        assert conditions(stage)[-1] == ("Failed=True" if start == 4 else "Running=True"), start
    assert len(uids) == 4
    job = await stage.job("job")
    assert job["status"]["conditions"][-1]["message"] == (
        "Job job has failed because it has reached the specified backoff limit"
    )
    assert len(job["metadata"]["annotations"][REPLACED_PODS].split(",")) == 3
    assert await stage.pods() == {}


async def test_without_a_backoff_limit_the_job_is_not_annotated(stage):
    stage = await stage("XGBoostJob")
    await running(stage, manifest("xgb-1-2", policy="ExitCode"))
    await stage.end("job-worker-0", 137)
    await stage.play()
    assert "annotations" not in (await stage.job("job"))["metadata"]


@pytest.mark.parametrize(
    ("policy", "code", "suspended"),
    [
        pytest.param("OnFailure", 0, False, id="after success"),
        pytest.param("Never", 1, False, id="after failure"),
        pytest.param("ExitCode", 1, False, id="after a failure that has no completionTime"),
        pytest.param("OnFailure", 0, True, id="although it is suspended"),
    ],
)
async def test_a_finished_job_expires(stage, policy, code, suspended):
    stage = await stage("XGBoostJob")
    await running(stage, manifest("xgb-1-2", policy=policy, ttlSecondsAfterFinished=30))
    await stage.end("job-master-0", code)
    if suspended:
        await stage.change("job", {"runPolicy": {"suspend": True}})
        await stage.settle()
    assert 29 <= stage.look_again[NAMESPACE, "job"] <= 30
    await stage.clock.advance(31)
    await stage.wake("job")
    listed = await stage.cluster.list(stage.resource, NAMESPACE)
    assert listed.items == []
    assert ["Normal", "SuccessfulDeleteJob"] in await stage.event_kinds("job")


async def test_a_finished_job_expires_although_it_is_suspended(stage):
    await test_a_finished_job_expires(stage, "OnFailure", 0, suspended=True)


# --- suspend and resume ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recording", ["xgb-1-2", "pt-1-3", "tf-chief-ps-eval"])
async def test_suspending_leaves_nothing_and_resuming_starts_anew(stage, recording):
    job = manifest(recording, cleanPodPolicy="None")
    stage = await stage(job["kind"])
    await running(stage, job)
    first = {name: pod["metadata"]["uid"] for name, pod in (await stage.pods()).items()}
    started = (await stage.job("job"))["status"]["startTime"]

    await stage.change("job", {"runPolicy": {"suspend": True}})
    await stage.settle()
    assert conditions(stage) == ["Created=True", "Running=False", "Suspended=True"]
    assert set(map(str, stage.history[-1]["replicaStatuses"].values())) == {"{}"}
    assert (await stage.pods(), await stage.services()) == ({}, [])
    assert (await stage.cluster.list(PODGROUPS, NAMESPACE)).items == []
    assert (await stage.job("job"))["status"]["startTime"] == started

    await stage.clock.advance(100)
    await stage.change("job", {"runPolicy": {"suspend": False}})
    await stage.settle()
    await stage.play()
    assert conditions(stage) == ["Created=True", "Suspended=False", "Running=True"]
    again = {name: pod["metadata"]["uid"] for name, pod in (await stage.pods()).items()}
    assert again.keys() == first.keys()
    assert not set(again.values()) & set(first.values())
    assert (await stage.job("job"))["status"]["startTime"] > started
    kinds = await stage.event_kinds("job")
    assert ["Normal", f"{job['kind']}Resumed"] in kinds
    assert ["Normal", f"{job['kind']}Suspended"] in kinds


@pytest.mark.parametrize(
    ("recording", "leader"),
    [("xgb-1-2", "job-master-0"), ("pt-1-3", "job-master-0"), ("tf-chief-ps-eval", "job-chief-0")],
)
@pytest.mark.parametrize("code", [0, 143, None])
async def test_b25_a_job_resumes_when_no_pod_of_its_last_admission_exists(stage, recording, leader, code):
    job = manifest(recording, node=True)
    stage = await stage(job["kind"])
    await running(stage, job)
    old = await stage.pods()
    await stage.change("job", {"runPolicy": {"suspend": True}})
    await stage.settle()
    await stage.change("job", {"runPolicy": {"suspend": False}})
    await stage.settle()
    assert conditions(stage)[-1] == "Suspended=True"
    assert stage.look_again[NAMESPACE, "job"] == 5
    for name in sorted(old):
        uids = {pod["metadata"]["uid"] for pod in (await stage.pods()).values()}
        assert uids <= {pod["metadata"]["uid"] for pod in old.values()}, "nothing new beside the old"
        await stage.terminated(name, code if name == leader else 143)
    await stage.play()
    assert conditions(stage) == ["Created=True", "Suspended=False", "Running=True"]
    assert not any("Succeeded=True" in str(status) for status in stage.history)
    await stage.end(leader, 0)
    assert conditions(stage)[-1] == "Succeeded=True"


async def test_b25_pods_that_the_cache_does_not_show_hold_a_resumption_back(stage, cluster):
    stage = await stage("XGBoostJob")
    await stage.submit(manifest("xgb-1-2", suspend=True))
    await stage.settle()
    # A pod of the last admission that this cache missed: the API alone knows of it.
    old = await old_pod(stage)
    await stage.change("job", {"runPolicy": {"suspend": False}})
    await stage.caught_up()
    stage.world.pods.store.pop((NAMESPACE, old))
    stage.world.pods._index.clear()
    await stage.controller.reconcile((NAMESPACE, "job"))
    assert (await stage.job("job"))["status"]["conditions"][-1]["status"] == "True"
    assert old not in await stage.pods()


async def test_b25_a_pod_that_ends_well_because_it_was_deleted_is_no_success(stage):
    """A node is drained: the master gets SIGTERM and ends with 0."""
    stage = await stage("PyTorchJob")
    await running(stage, manifest("pt-1-3", node=True))
    await stage.cluster.delete(PODS, "job-master-0", NAMESPACE)
    await stage.settle()
    await stage.terminated("job-master-0", 0)
    await stage.play()
    assert conditions(stage) == ["Created=True", "Running=True"]
    assert stage.made.count("job-master-0") == 2
    await stage.end("job-master-0", 0)
    assert conditions(stage)[-1] == "Succeeded=True"


@pytest.mark.parametrize("last", range(1, 6))
async def test_b25_a_suspension_cut_short_and_resumed_is_no_success(stage, cluster, last):
    """The controller dies while it suspends; before another one looks, the user resumes: a whole new gang."""
    first = await stage("PyTorchJob", acting=(mortal := Mortal(cluster, None)))
    await running(first, manifest("pt-1-3", node=True))
    old = {pod["metadata"]["uid"] for pod in (await first.pods()).values()}
    await first.change("job", {"runPolicy": {"suspend": True}})
    mortal.die_after(last)
    with contextlib.suppress(Killed):
        await first.settle()
    await cluster.patch(first.resource, "job", {"spec": {"runPolicy": {"suspend": False}}}, NAMESPACE)
    second = await stage("PyTorchJob")
    await second.settle()
    for name, pod in (await second.pods()).items():
        if pod["metadata"].get("deletionTimestamp"):
            await second.terminated(name, 0)
    await second.play()
    assert conditions(second)[-1] == "Running=True"
    new = {pod["metadata"]["uid"] for pod in (await second.pods()).values()}
    assert len(new) == 4
    assert not old & new


async def old_pod(stage):
    job = await stage.job("job")
    made = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "job-master-0",
            "labels": {
                "training.kubeflow.org/job-name": "job",
                "training.kubeflow.org/operator-name": "xgboostjob-controller",
                "training.kubeflow.org/replica-type": "master",
                "training.kubeflow.org/replica-index": "0",
            },
            "ownerReferences": [
                {
                    "apiVersion": "kubeflow.org/v1",
                    "kind": "XGBoostJob",
                    "name": "job",
                    "uid": job["metadata"]["uid"],
                    "controller": True,
                }
            ],
        },
        "spec": {"containers": [{"name": "xgboost", "image": "x"}]},
    }
    return (await stage.cluster.create(PODS, made, NAMESPACE))["metadata"]["name"]


async def test_ten_fast_suspensions_and_resumptions_lose_nothing(stage):
    stage = await stage("PyTorchJob")
    await running(stage, manifest("pt-1-3"))
    for cycle in range(10):
        await stage.change("job", {"runPolicy": {"suspend": True}})
        if cycle % 2:
            await stage.settle()
        await stage.change("job", {"runPolicy": {"suspend": False}})
        if cycle % 3:
            await stage.settle()
    await stage.settle()
    await stage.play()
    assert conditions(stage)[-1] == "Running=True"
    assert len(await stage.pods()) == 4


async def test_a_resumed_job_takes_the_size_it_was_given_meanwhile(stage):
    stage = await stage("PyTorchJob")
    await stage.submit(manifest("pt-1-3", suspend=True))
    await stage.settle()
    await stage.change("job", scaled("PyTorchJob", Worker=5) | {"runPolicy": {"suspend": False}})
    await stage.settle()
    await stage.play()
    pods = await stage.pods()
    assert len(pods) == 6
    env = {e["name"]: e["value"] for e in pods["job-worker-4"]["spec"]["containers"][0]["env"]}
    assert (env["WORLD_SIZE"], env["RANK"]) == ("6", "5")
    (group,) = (await stage.cluster.list(PODGROUPS, NAMESPACE)).items
    assert group["spec"]["minMember"] == 6


# --- scale -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 143])
async def test_b26_shrinking_an_elastic_job_neither_ends_it_nor_storms(stage, code):
    stage = await stage("PyTorchJob")
    await running(stage, manifest("pt-elastic", counts={"Worker": 4}, node=True))
    before = await stage.pods()
    await stage.change("job", scaled("PyTorchJob", Worker=2))
    await stage.settle()
    for name in ("job-worker-2", "job-worker-3"):
        assert (await stage.pods())[name]["metadata"]["deletionTimestamp"]
        await stage.terminated(name, code)
    await stage.wake("job")
    assert conditions(stage) == ["Created=True", "Running=True"]
    assert {n: p["metadata"]["uid"] for n, p in (await stage.pods()).items()} == {
        n: before[n]["metadata"]["uid"] for n in ("job-worker-0", "job-worker-1")
    }
    assert sorted(stage.made) == [f"job-worker-{n}" for n in range(4)], "no pod was made twice"
    assert await stage.services() == ["job-worker-0", "job-worker-1"]
    await stage.end("job-worker-1", 0)
    assert conditions(stage)[-1] == "Succeeded=True"


async def test_b26_places_between_are_not_filled_while_a_high_one_terminates(stage):
    stage = await stage("PyTorchJob")
    await running(stage, manifest("pt-elastic", counts={"Worker": 4}, node=True))
    await stage.change("job", scaled("PyTorchJob", Worker=1))
    await stage.settle()
    await stage.terminated("job-worker-1", 0)
    await stage.terminated("job-worker-2", 0)
    for _ in range(5):
        await stage.wake("job")
    assert sorted(stage.made) == [f"job-worker-{n}" for n in range(4)]
    await stage.terminated("job-worker-3", 0)
    assert sorted(await stage.pods()) == ["job-worker-0"]
    assert conditions(stage)[-1] == "Running=True"


@pytest.mark.parametrize("recording", ["pt-elastic", "tf-dynamic"])
async def test_growing_keeps_the_old_pods(stage, recording):
    job = manifest(recording)
    stage = await stage(job["kind"])
    await running(stage, job)
    before = await stage.pods()
    await stage.change("job", scaled(job["kind"], Worker=4))
    await stage.settle()
    await stage.play()
    after = await stage.pods()
    assert len(after) == len(before) + 2
    assert all(after[name]["metadata"]["uid"] == pod["metadata"]["uid"] for name, pod in before.items())
    (group,) = (await stage.cluster.list(PODGROUPS, NAMESPACE)).items
    assert group["spec"]["minMember"] == len(after)
    assert stage.history[-1]["replicaStatuses"]["Worker"] == {"active": 4}


async def test_dynamic_workers_may_fail_without_failing_the_job(stage):
    stage = await stage("TFJob")
    await running(stage, manifest("tf-dynamic", policy="Never"))
    await stage.end("job-worker-1", 1)
    assert conditions(stage) == ["Created=True", "Running=True"]


async def test_b01_a_successful_master_leaves_workers_alone_under_clean_pod_policy_none(stage):
    stage = await stage("PyTorchJob")
    await running(stage, manifest("pt-1-3", counts={"Worker": 2}))
    await stage.end("job-master-0", 0)
    assert conditions(stage)[-1] == "Succeeded=True"
    phases = {name: pod["status"]["phase"] for name, pod in (await stage.pods()).items()}
    assert phases == {"job-master-0": "Succeeded", "job-worker-0": "Running", "job-worker-1": "Running"}


async def test_b05_only_clean_pod_policy_none_leaves_an_evaluator_at_work(stage):
    stage = await stage("TFJob")
    await running(stage, manifest("tf-chief-ps-eval", cleanPodPolicy="None"))
    await stage.end("job-chief-0", 0)
    assert (await stage.pods())["job-evaluator-0"]["status"]["phase"] == "Running"


async def test_b08_a_pod_without_its_image_is_told_and_the_job_stays_created(stage):
    stage = await stage("XGBoostJob")
    await stage.submit(manifest("xgb-1-2"))
    await stage.settle()
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image registry.x/y:z"}}
    await stage.set_pod((await stage.pods())["job-worker-0"], "Pending", waiting)
    await stage.settle()
    assert conditions(stage) == ["Created=True"]
    told = [e["message"] for e in await stage.events("job") if e["reason"] == "ImagePullBackOff"]
    assert told == [
        "Error pod job-worker-0 container xgboost waiting message: Back-off pulling image registry.x/y:z"
    ]


# --- owners ----------------------------------------------------------------------------------------------------------


async def test_orphans_of_the_jobs_labels_are_adopted(stage):
    stage = await stage("XGBoostJob")
    submitted = await running(stage, manifest("xgb-1-2"))
    for resource in (PODS, SERVICES):
        await stage.cluster.patch(
            resource, "job-worker-1", {"metadata": {"ownerReferences": None}}, NAMESPACE
        )
    await stage.settle()
    for resource in (PODS, SERVICES):
        adopted = await stage.cluster.get(resource, "job-worker-1", NAMESPACE)
        assert [r["uid"] for r in adopted["metadata"]["ownerReferences"]] == [submitted["metadata"]["uid"]]
    assert sorted(stage.made) == ["job-master-0", "job-worker-0", "job-worker-1"]


async def test_an_own_pod_of_other_labels_is_released(stage):
    stage = await stage("XGBoostJob")
    await running(stage, manifest("xgb-1-2"))
    patch = {"metadata": {"labels": {"training.kubeflow.org/job-name": "kept-for-debugging"}}}
    await stage.cluster.patch(PODS, "job-worker-1", patch, NAMESPACE)
    await stage.settle()
    assert not (await stage.pods())["job-worker-1"]["metadata"].get("ownerReferences")
    assert ["Warning", "FailedCreatePod"] in await stage.event_kinds("job"), (
        "its name is taken, and that is told"
    )


async def test_pods_of_a_deleted_namesake_are_not_taken_for_own(stage):
    stage = await stage("XGBoostJob")
    first = await running(stage, manifest("xgb-1-2", node=True))
    await stage.cluster.delete(stage.resource, "job", NAMESPACE, propagation_policy="Orphan")
    await stage.settle()
    # Orphaned pods still bear the labels, so a namesake adopts them: give them another owner first.
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u-1", "controller": True}
    for name in await stage.pods():
        await stage.cluster.patch(PODS, name, {"metadata": {"ownerReferences": [other]}}, NAMESPACE)
    second = await stage.submit(manifest("xgb-1-2", node=True))
    await stage.settle()
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    for pod in (await stage.pods()).values():
        assert [r["uid"] for r in pod["metadata"]["ownerReferences"]] == ["u-1"]
    assert ["Warning", "FailedCreatePod"] in await stage.event_kinds("job")


async def test_a_gang_takes_no_pod_group_of_another_kinds_job(stage):
    first = await stage("XGBoostJob")
    await running(first, manifest("xgb-1-2"))
    second = await stage("TFJob")
    await second.submit(manifest("tf-workers"))
    await second.settle()
    assert second.look_again[NAMESPACE, "job"] == 30
    (told,) = [e for e in await second.events("job") if e["reason"] == "FailedCreatePodGroup"]
    assert told["message"] == "PodGroup job belongs to XGBoostJob job: rename one of the two jobs"
    await first.wake("job")
    assert conditions(first)[-1] == "Running=True"
    assert len(first.made) == 3


async def test_a_job_submitted_right_after_its_namesakes_deletion_gets_objects_of_its_own(stage):
    stage = await stage("XGBoostJob")
    await running(stage, manifest("xgb-1-2"))
    before = await stage.pods()
    await stage.cluster.delete(stage.resource, "job", NAMESPACE)
    submitted = await stage.submit(manifest("xgb-1-2"))
    await stage.settle()
    await stage.wake("job")
    await stage.play()
    pods = await stage.pods()
    assert pods.keys() == before.keys()
    (group,) = (await stage.cluster.list(PODGROUPS, NAMESPACE)).items
    services = (await stage.cluster.list(SERVICES, NAMESPACE, label_selector=JOB_NAME)).items
    for obj in [*pods.values(), *services, group]:
        assert obj["metadata"]["ownerReferences"][0]["uid"] == submitted["metadata"]["uid"]
    assert conditions(stage)[-1] == "Running=True"


# --- refusals --------------------------------------------------------------------------------------------------------


async def test_b09_a_quota_refusal_is_told_once_and_overcome_when_there_is_room(stage):
    stage = await stage("XGBoostJob")
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "gpu"},
        "spec": {"hard": {"requests.nvidia.com/gpu": "2"}},
    }
    await stage.cluster.create(RESOURCEQUOTAS, quota, NAMESPACE)
    await stage.submit(manifest("xgb-1-2"))
    await stage.settle()
    assert stage.errors
    assert all(isinstance(error, Forbidden) for error in stage.errors)
    (told,) = [e for e in await stage.events("job") if e["reason"] == "FailedCreatePod"]
    assert "exceeded quota" in told["message"]
    assert conditions(stage)[-1] == "Created=True"
    await stage.cluster.delete(RESOURCEQUOTAS, "gpu", NAMESPACE)
    await stage.wake("job")
    await stage.play()
    assert conditions(stage)[-1] == "Running=True"


async def test_repeated_events_are_one_event_written_rarely(stage):
    stage = await stage("XGBoostJob")
    await stage.submit(manifest("xgb-1-2"))
    await stage.settle()
    await stage.block()
    for _ in range(40):
        await stage.wake("job")
    (told,) = [e for e in await stage.events("job") if "job-worker-0 condition" in e["message"]]
    assert told["count"] == 1
    await stage.clock.advance(61)
    await stage.wake("job")
    (told,) = [e for e in await stage.events("job") if "job-worker-0 condition" in e["message"]]
    assert told["count"] > 40


async def test_the_same_event_of_another_controller_is_the_same_event(stage):
    first = await stage("XGBoostJob")
    await first.submit(manifest("xgb-1-2"))
    await first.settle()
    await first.block()
    second = await stage("XGBoostJob")
    await second.wake("job")
    await second.events("job")
    (told,) = [e for e in await first.events("job") if "job-worker-0 condition" in e["message"]]
    assert told["count"] == 2


async def test_a_status_written_by_another_is_read_again(stage):
    stage = await stage("XGBoostJob")
    await stage.submit(manifest("xgb-1-2"))
    await stage.caught_up()
    await stage.change("job", {"runPolicy": {"ttlSecondsAfterFinished": 5}})  # not yet in the cache
    await stage.settle()
    await stage.play()
    assert conditions(stage)[-1] == "Running=True"


async def test_a_running_job_is_looked_at_now_and_then(stage):
    stage = await stage("XGBoostJob")
    await running(stage, manifest("xgb-1-2"))
    assert stage.look_again[NAMESPACE, "job"] == 300
    await stage.end("job-master-0", 0)
    assert stage.look_again[NAMESPACE, "job"] is None


async def test_a_turn_that_changes_nothing_writes_nothing(stage):
    stage = await stage("XGBoostJob")
    await running(stage, manifest("xgb-1-2"))
    before = await stage.job("job")
    for _ in range(3):
        await stage.wake("job")
    assert await stage.job("job") == before


async def test_a_deleted_job_is_left_to_the_garbage_collector(stage):
    stage = await stage("XGBoostJob")
    await running(stage, manifest("xgb-1-2"))
    await stage.cluster.delete(stage.resource, "job", NAMESPACE)
    await stage.settle()
    assert await stage.pods() == {}
    assert len(stage.made) == 3


async def test_an_invalid_job_fails_with_every_fault_named(stage):
    stage = await stage("XGBoostJob")
    job = manifest("xgb-1-2")
    del job["spec"]["xgbReplicaSpecs"]["Master"]
    job["spec"]["xgbReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["name"] = "main"
    await stage.submit(job)
    await stage.settle()
    assert conditions(stage) == ["Created=True", "Failed=True"]
    failed = (await stage.job("job"))["status"]["conditions"][-1]
    assert failed["reason"] == "XGBoostJobFailedValidation"
    assert "[Master]: must be present" in failed["message"]
    assert "must have at least one container with name xgboost" in failed["message"]
    assert ["Warning", "XGBoostJobFailedValidation"] in await stage.event_kinds("job")
    assert stage.made == []


async def test_an_elastic_job_with_metrics_is_told_that_no_autoscaler_is_made(stage):
    stage = await stage("PyTorchJob")
    job = manifest("pt-elastic")
    job["spec"]["elasticPolicy"]["metrics"] = [
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization"}}}
    ]
    await running(stage, job)
    assert ["Warning", "AutoscalerNotSupported"] in await stage.event_kinds("job")
    assert conditions(stage)[-1] == "Running=True"


async def test_warnings_about_a_template_become_events(stage):
    stage = await stage("XGBoostJob")
    job = manifest("xgb-1-2")
    job["spec"]["xgbReplicaSpecs"]["Worker"]["template"]["spec"]["restartPolicy"] = "Always"
    await running(stage, job)
    assert ["Warning", "SetPodTemplateRestartPolicy"] in await stage.event_kinds("job")


@pytest.mark.parametrize("recording", ["xgb-1-2", "pt-1-3", "tf-chief-ps-eval"])
async def test_a_pod_that_its_node_shut_down_is_made_anew_under_on_failure(stage, recording):
    job = manifest(recording, policy="OnFailure")
    stage = await stage(job["kind"])
    await running(stage, job)
    lost = {
        "phase": "Failed",
        "reason": "Terminated",
        "message": "Pod was terminated in response to node shutdown",
    }
    await stage.cluster.patch(PODS, "job-worker-1", {"status": lost}, NAMESPACE, subresource="status")
    await stage.settle()
    await stage.play()
    assert conditions(stage) == ["Created=True", "Running=True"]
    assert stage.made.count("job-worker-1") == 2
    assert ["Warning", f"{job['kind']}Restarting"] in await stage.event_kinds("job")


async def test_zero_workers_are_a_gang_of_one(stage):
    stage = await stage("XGBoostJob")
    await running(stage, manifest("xgb-1-2", counts={"Worker": 0}))
    assert conditions(stage)[-1] == "Running=True"
    await stage.end("job-master-0", 0)
    assert stage.history[-1]["replicaStatuses"] == {"Master": {"succeeded": 1}, "Worker": {}}
