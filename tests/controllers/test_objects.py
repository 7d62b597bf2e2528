"""Pods, services and PodGroups against the recordings, and what those do not show."""

from __future__ import annotations

import copy
import json

import pytest

from airflow_kftrain.controllers import objects
from airflow_kftrain.controllers.kinds import RECONCILERS
from tests.controllers.recorded import OBJECTS, UID, as_recorded, job_of

GANG = "gang-scheduler"


def made_of(job):
    """All objects of a running job, in the form of the recordings and in their order."""
    reconciler = RECONCILERS[job["kind"]]
    seen = reconciler.view(job)
    found = {"pods": [], "services": [], "podgroups": [as_recorded(objects.pod_group(seen), UID)]}
    for replica in seen.replicas.values():
        for index in range(replica.count):
            pod = objects.pod(reconciler, seen, replica, index, gang_scheduler=GANG)
            found["pods"].append(as_recorded(pod, UID))
            found["services"].append(as_recorded(objects.service(reconciler, seen, replica, index), UID))
    return {kind: sorted(objs, key=lambda o: o["metadata"]["name"]) for kind, objs in found.items()}


RUNNING = sorted(name for name in OBJECTS if OBJECTS[name]["pods"])


@pytest.mark.parametrize("kind", ["pods", "services", "podgroups"])
@pytest.mark.parametrize("name", RUNNING)
def test_objects_equal_those_of_the_training_operator(name, kind):
    assert made_of(job_of(OBJECTS[name]["manifest"]))[kind] == OBJECTS[name][kind]


def xgb(**replicas):
    job = job_of(OBJECTS["xgb-1-2"]["manifest"])
    specs = job["spec"]["xgbReplicaSpecs"]
    for replica_type, change in replicas.items():
        specs[replica_type] |= change
    return job


def env_of(pod, container=0):
    return {e["name"]: e.get("value") for e in pod["spec"]["containers"][container]["env"]}


def test_the_job_and_its_template_stay_as_they_were():
    job = xgb()
    before = copy.deepcopy(job)
    made_of(job)
    assert job == before


def test_replica_types_are_taken_in_any_case():
    job = xgb()
    job["spec"]["xgbReplicaSpecs"] = {
        name.lower(): spec for name, spec in job["spec"]["xgbReplicaSpecs"].items()
    }
    assert made_of(job) == made_of(xgb())


def test_defaults_fill_what_a_manifest_leaves_out():
    job = xgb()
    del job["spec"]["xgbReplicaSpecs"]["Worker"]["replicas"]
    del job["spec"]["xgbReplicaSpecs"]["Worker"]["restartPolicy"]
    worker = RECONCILERS["XGBoostJob"].view(job).replicas["Worker"]
    assert (worker.count, worker.restart_policy) == (1, "Never")


def test_zero_workers_make_no_worker_and_a_world_of_one():
    made = made_of(xgb(Worker={"replicas": 0}))
    assert [pod["metadata"]["name"] for pod in made["pods"]] == ["xgb-1-2-master-0"]
    assert env_of(made["pods"][0])["WORLD_SIZE"] == "1"


def test_nproc_per_node_as_a_number_multiplies_the_world_size():
    job = job_of(OBJECTS["pt-1-3"]["manifest"])
    job["spec"]["nprocPerNode"] = "2"
    env = env_of(made_of(job)["pods"][1])
    assert (env["WORLD_SIZE"], env["RANK"], env["PET_NNODES"], env["PET_NPROC_PER_NODE"]) == (
        "8",
        "1",
        "4",
        "2",
    )


@pytest.mark.parametrize("word", ["auto", "gpu", "cpu"])
def test_nproc_per_node_as_a_word_is_left_to_torchrun(word):
    job = job_of(OBJECTS["pt-1-3"]["manifest"])
    job["spec"]["nprocPerNode"] = word
    env = env_of(made_of(job)["pods"][0])
    assert (env["WORLD_SIZE"], env["PET_NPROC_PER_NODE"]) == ("4", word)


def test_torchrun_variables_without_master_name_no_master():
    job = job_of(OBJECTS["pt-1-3"]["manifest"])
    del job["spec"]["pytorchReplicaSpecs"]["Master"]
    worker = made_of(job)["pods"][0]
    assert env_of(worker) == {"PYTHONUNBUFFERED": "1", "PET_NPROC_PER_NODE": "auto", "PET_NNODES": "3"}
    assert "initContainers" not in worker["spec"]
    assert worker["metadata"]["labels"][objects.JOB_ROLE] == "master"


@pytest.mark.parametrize(
    ("policy", "nnodes"),
    [
        pytest.param({}, "2:2", id="no bounds: the number of workers"),
        pytest.param({"minReplicas": 1}, "1:1", id="a lower bound alone is both"),
        pytest.param({"maxReplicas": 4}, "4:4", id="an upper bound alone is both"),
    ],
)
def test_elastic_bounds(policy, nnodes):
    job = job_of(OBJECTS["pt-elastic"]["manifest"])
    job["spec"]["elasticPolicy"] = policy
    assert env_of(made_of(job)["pods"][0])["PET_NNODES"] == nnodes


def test_every_setting_of_the_rendezvous_arrives():
    job = job_of(OBJECTS["pt-elastic"]["manifest"])
    job["spec"]["elasticPolicy"] = {
        "minReplicas": 1,
        "maxReplicas": 3,
        "rdzvBackend": "etcd",
        "rdzvHost": "etcd.infra",
        "rdzvPort": 2379,
        "rdzvId": "run-7",
        "rdzvConf": [{"key": "timeout", "value": "900"}, {"key": "read_timeout", "value": "60"}],
        "nProcPerNode": 2,
        "standalone": True,
    }
    assert env_of(made_of(job)["pods"][0]) == {
        "PYTHONUNBUFFERED": "1",
        "PET_RDZV_ENDPOINT": "etcd.infra:2379",
        "PET_RDZV_BACKEND": "etcd",
        "PET_NNODES": "1:3",
        "PET_NPROC_PER_NODE": "2",
        "PET_RDZV_ID": "run-7",
        "PET_RDZV_CONF": "timeout=900,read_timeout=60",
        "PET_STANDALONE": "",
    }


def test_a_single_tensorflow_process_gets_no_tf_config():
    job = job_of(OBJECTS["tf-workers"]["manifest"])
    job["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] = 1
    assert "env" not in made_of(job)["pods"][0]["spec"]["containers"][0]


def test_the_sparse_tf_config_names_parameter_servers_and_oneself():
    job = job_of(OBJECTS["tf-dynamic"]["manifest"])
    job["spec"]["tfReplicaSpecs"]["PS"]["replicas"] = 2
    config = {
        pod["metadata"]["name"]: json.loads(env_of(pod)["TF_CONFIG"])["cluster"]
        for pod in made_of(job)["pods"]
    }
    ps = ["tf-dynamic-ps-0.default.svc:2222", "tf-dynamic-ps-1.default.svc:2222"]
    assert config["tf-dynamic-ps-1"] == {"worker": {}, "ps": ps[1:]}
    assert config["tf-dynamic-worker-1"] == {
        "worker": {"1": "tf-dynamic-worker-1.default.svc:2222"},
        "ps": ps,
    }


def test_a_template_keeps_its_env_and_scheduler():
    job = xgb()
    template = job["spec"]["xgbReplicaSpecs"]["Master"]["template"]["spec"]
    template["schedulerName"] = "volcano"
    template["containers"][0]["env"] = [{"name": "MASTER_PORT", "value": "1"}, {"name": "A", "value": "b"}]
    pod = made_of(job)["pods"][0]
    assert pod["spec"]["schedulerName"] == "volcano"
    assert [e["name"] for e in pod["spec"]["containers"][0]["env"]][:3] == ["MASTER_PORT", "A", "MASTER_PORT"]


def test_warnings_name_what_is_not_taken_from_a_template():
    job = xgb()
    template = job["spec"]["xgbReplicaSpecs"]["Master"]["template"]["spec"]
    template |= {"restartPolicy": "Always", "schedulerName": "volcano"}
    seen = RECONCILERS["XGBoostJob"].view(job)
    found = objects.pod_warnings(seen, seen.replicas["Master"], gang_scheduler=GANG)
    assert [reason for reason, _ in found] == ["SetPodTemplateRestartPolicy", "SetPodTemplateSchedulerName"]
    assert objects.pod_warnings(seen, seen.replicas["Worker"], gang_scheduler=None) == []


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        pytest.param(
            {"requests": {"cpu": "500m", "memory": "1Gi"}}, {"cpu": "1500m", "memory": "3Gi"}, id="summed"
        ),
        pytest.param(
            {"requests": {"cpu": 1}, "limits": {"cpu": 9}}, {"cpu": "3"}, id="requests before limits"
        ),
        pytest.param(
            {"limits": {"amd.com/gpu": "2"}}, {"amd.com/gpu": "6"}, id="limits where nothing is requested"
        ),
        pytest.param({}, None, id="nothing asked for"),
    ],
)
def test_minimal_resources_of_a_gang(resources, expected):
    job = xgb()
    for replica in job["spec"]["xgbReplicaSpecs"].values():
        replica["template"]["spec"]["containers"][0]["resources"] = resources
    spec = objects.pod_group_spec(RECONCILERS["XGBoostJob"].view(job))
    assert spec.get("minResources") == expected


def test_the_scheduling_policy_has_its_say_in_the_pod_group():
    job = xgb()
    job["metadata"]["annotations"] = {"note": "x"}
    policy = {"minAvailable": 2, "minResources": {"cpu": "7"}, "scheduleTimeoutSeconds": 30}
    job["spec"]["runPolicy"] = {"schedulingPolicy": policy}
    group = objects.pod_group(RECONCILERS["XGBoostJob"].view(job))
    assert group["spec"] == {"minMember": 2, "minResources": {"cpu": "7"}, "scheduleTimeoutSeconds": 30}
    assert group["metadata"]["annotations"] == {"note": "x"}


def test_without_a_gang_scheduler_pods_bear_no_trace_of_one():
    reconciler, job = RECONCILERS["XGBoostJob"], xgb()
    seen = reconciler.view(job)
    pod = objects.pod(reconciler, seen, seen.replicas["Worker"], 1, gang_scheduler=None)
    assert "schedulerName" not in pod["spec"]
    assert objects.POD_GROUP not in pod["metadata"]["labels"]
