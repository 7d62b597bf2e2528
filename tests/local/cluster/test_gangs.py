"""Gangs that exchange data, through controllers, binder and kubelet."""

from __future__ import annotations

import asyncio
import sys

import pytest

from airflow_kftrain.cluster.resources import PODS, PYTORCHJOBS, TFJOBS, XGBOOSTJOBS
from tests.support import ring
from tests.support.live import RING, Live, exit_code, final_state

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("local-cluster")]
ROLES = ("master-0", "worker-0", "worker-1")


async def models(kube: Live, job: str) -> set[str]:
    logs = [await kube.logs(f"{job}-{role}") for role in ROLES]
    return {log.rsplit("model ", 1)[1].strip() for log in logs}


async def test_two_gangs_on_the_same_port_train_side_by_side_each_to_one_model(kube: Live, tmp_path):
    await asyncio.gather(
        kube.job("a", "--hold", f"{tmp_path}/go", "--record", str(tmp_path)),
        kube.job("b", "--hold", f"{tmp_path}/go", "--record", str(tmp_path)),
    )
    for job in ("a", "b"):
        for role in ROLES:
            await kube.running(f"{job}-{role}")
    (tmp_path / "go").touch()
    assert await kube.job_ended("a") == await kube.job_ended("b") == "Succeeded"
    whole = ring.trained_on([0, 1, 2])
    assert await models(kube, "a") == await models(kube, "b") == {whole}
    assert whole not in {ring.trained_on([rank]) for rank in range(3)}
    specs = [await kube.cluster.get(PODS, f"{job}-master-0", kube.namespace) for job in ("a", "b")]
    env = [{e["name"]: e["value"] for e in s["spec"]["containers"][0]["env"]} for s in specs]
    assert [e["MASTER_PORT"] for e in env] == ["9999", "9999"]
    assert [e["MASTER_ADDR"] for e in env] == ["a-master-0", "b-master-0"]


async def test_a_gang_that_does_not_fit_waits_whole_and_goes_when_there_is_room(kube: Live, tmp_path):
    await kube.job("first", "--hold", f"{tmp_path}/go", gpus=2)
    for role in ROLES:
        await kube.running(f"first-{role}")
    await kube.job("second", gpus=2)
    waiting = await kube.until(PODS, "second-worker-1", lambda p: p and _unschedulable(p))
    assert "3 pods must be placed at once and 1 can be" in _unschedulable(waiting)
    pods = (await kube.cluster.list(PODS, kube.namespace)).items
    assert not [p for p in pods if p["metadata"]["name"].startswith("second") and p["spec"].get("nodeName")]
    (tmp_path / "go").touch()
    assert await kube.job_ended("second") == "Succeeded"


async def test_b28_a_gang_starts_as_soon_as_a_foreign_pod_gives_its_gpus_back(kube: Live, tmp_path):
    hold = f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done"
    await kube.pod("foreign", ["sh", "-c", hold], resources={"limits": {"nvidia.com/gpu": "3"}})
    await kube.running("foreign")
    await kube.job("j", gpus=2)
    await kube.until(PODS, "j-master-0", lambda p: p and _unschedulable(p))
    loop = asyncio.get_running_loop()
    freed = loop.time()
    (tmp_path / "go").touch()
    for role in ROLES:
        await kube.until(PODS, f"j-{role}", lambda p: p and p["spec"].get("nodeName"))
    assert loop.time() - freed < 5
    assert await kube.job_ended("j") == "Succeeded"


def _unschedulable(pod: dict) -> str:
    for condition in pod["status"].get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
            return condition["message"]
    return ""


async def test_a_member_that_fails_fails_the_job_with_its_exit_code(kube: Live):
    await kube.job("j", "--exit", "1:3")
    assert await kube.job_ended("j") == "Failed"
    assert exit_code(await kube.ended("j-worker-0")) == 3


async def test_deleting_a_job_ends_its_processes_and_pods(kube: Live, tmp_path):
    await kube.job("j", "--hold", f"{tmp_path}/never", "--record", str(tmp_path))
    for role in ROLES:
        await kube.running(f"j-{role}")
    await kube.cluster.delete(XGBOOSTJOBS, "j", kube.namespace)
    for role in ROLES:
        await kube.until(PODS, f"j-{role}", lambda p: p is None)


async def test_a_pytorchjob_with_the_operators_init_container(kube: Live):
    template = {
        "spec": {"containers": [{"name": "pytorch", "image": "i:1", "command": [sys.executable, RING]}]}
    }
    replica = {"restartPolicy": "Never", "template": template}
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "pt"},
        "spec": {
            "runPolicy": {"cleanPodPolicy": "None"},
            "pytorchReplicaSpecs": {
                "Master": {"replicas": 1, **replica},
                "Worker": {"replicas": 2, **replica},
            },
        },
    }
    await kube.cluster.create(PYTORCHJOBS, job, kube.namespace)
    ended = await kube.until(PYTORCHJOBS, "pt", final_state)
    assert final_state(ended) == "Succeeded"
    assert len(await models(kube, "pt")) == 1


TF_SCRIPT = """
import json, os, socket, time
config = json.loads(os.environ["TF_CONFIG"])
mine, peers = config["task"], config["cluster"]
host, port = peers[mine["type"]][mine["index"]].split(":")
server = socket.create_server(("", int(port)))
for kind, addresses in peers.items():
    for address in addresses:
        host, port = address.split(":")
        while True:
            try:
                socket.create_connection((host, int(port)), timeout=5).close()
                break
            except OSError:
                time.sleep(0.02)
for _ in range(sum(map(len, peers.values()))):
    server.accept()
print("met", sum(map(len, peers.values())))
"""


async def test_every_task_of_a_tfjob_meets_every_other_by_tf_config(kube: Live):
    main = {"name": "tensorflow", "image": "i:1", "command": ["python", "-c", TF_SCRIPT]}
    replica = {"restartPolicy": "Never", "template": {"spec": {"containers": [main]}}}
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "tf"},
        "spec": {
            "runPolicy": {"cleanPodPolicy": "None"},
            "tfReplicaSpecs": {
                "Chief": {"replicas": 1, **replica},
                "PS": {"replicas": 1, **replica},
                "Worker": {"replicas": 2, **replica},
            },
        },
    }
    await kube.cluster.create(TFJOBS, job, kube.namespace)
    for name in ("tf-chief-0", "tf-ps-0", "tf-worker-0", "tf-worker-1"):
        assert exit_code(await kube.ended(name)) == 0
        assert await kube.logs(name) == "met 4\n"
