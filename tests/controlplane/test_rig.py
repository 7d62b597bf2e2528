"""The rig itself: its parts, its clock of a pod's life, its errors."""

from __future__ import annotations

import asyncio
import datetime as dt
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from airflow_kftrain.cluster.client import Cluster, Object
from airflow_kftrain.cluster.resources import PODS, XGBOOSTJOBS
from airflow_kftrain.cluster.watch import Changed, list_and_watch
from airflow_kftrain.exceptions import Forbidden
from tests.controlplane.conftest import GANG_NAMESPACES
from tests.controlplane.parts import Part, PartFailed, answers, free_ports
from tests.controlplane.rig import Rig

SECONDS = 60.0


def pod(name: str, *, restart: str = "Never", **annotations: Any) -> Object:
    """A pod that plays what its annotations say."""
    notes = {f"kftrain.test/{key.replace('_', '-')}": str(value) for key, value in annotations.items()}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": notes},
        "spec": {"restartPolicy": restart, "containers": [{"name": "main", "image": "x:1"}]},
    }


async def until(cluster: Cluster, namespace: str, name: str, **wanted: Any) -> Object:
    """The pod, once it has the wanted ``phase``, ``restarts``, ``waiting`` reason, or is ``gone``."""
    async with asyncio.timeout(SECONDS):
        async for event in list_and_watch(cluster, PODS, namespace, field_selector=f"metadata.name={name}"):
            found = [event.object] if isinstance(event, Changed) else event.items
            if wanted.get("gone") and (not found or (isinstance(event, Changed) and event.type == "DELETED")):
                return {}
            for one in found:
                containers = one["status"].get("containerStatuses") or [{}]
                seen = {
                    "phase": one["status"].get("phase"),
                    "restarts": containers[0].get("restartCount"),
                    "waiting": containers[0].get("state", {}).get("waiting", {}).get("reason"),
                }
                if wanted.items() <= seen.items():
                    return one
    raise AssertionError("a watch never ends")


def exit_code(one: Object) -> int:
    """What the pod's container ended with."""
    return int(one["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"])


async def test_a_pod_ends_with_the_code_that_its_annotation_names(cluster: Cluster, namespace: str) -> None:
    await cluster.create(PODS, pod("well", exit_codes=0), namespace)
    await cluster.create(PODS, pod("badly", exit_codes=3, run_seconds=1), namespace)
    assert exit_code(await until(cluster, namespace, "well", phase="Succeeded")) == 0
    assert exit_code(await until(cluster, namespace, "badly", phase="Failed")) == 3


async def test_a_failed_start_is_followed_by_another_one_in_the_same_pod(
    cluster: Cluster, namespace: str
) -> None:
    await cluster.create(PODS, pod("again", restart="OnFailure", exit_codes="137,1,0"), namespace)
    ended = await until(cluster, namespace, "again", phase="Succeeded")
    assert ended["status"]["containerStatuses"][0]["restartCount"] == 2


async def test_an_image_that_cannot_be_pulled_keeps_the_pod_waiting(cluster: Cluster, namespace: str) -> None:
    await cluster.create(PODS, pod("pull", waiting_reason="ErrImagePull"), namespace)
    assert (await until(cluster, namespace, "pull", waiting="ErrImagePull"))["status"]["phase"] == "Pending"


async def test_a_deleted_pod_takes_its_time_and_reports_its_exit_code(
    cluster: Cluster, namespace: str
) -> None:
    made = pod("slow", termination_seconds=2, termination_exit_code=0)
    await cluster.create(PODS, made, namespace)
    await until(cluster, namespace, "slow", phase="Running")
    await cluster.delete(PODS, "slow", namespace)
    ended = await until(cluster, namespace, "slow", phase="Succeeded")
    assert "deletionTimestamp" in ended["metadata"]
    assert exit_code(ended) == 0
    await until(cluster, namespace, "slow", gone=True)


async def test_a_pod_starts_after_its_delay(cluster: Cluster, namespace: str) -> None:
    await cluster.create(PODS, pod("late", start_seconds=3), namespace)
    running = await until(cluster, namespace, "late", phase="Running")
    bound = next(one for one in running["status"]["conditions"] if one["type"] == "PodScheduled")
    # Both are whole seconds, cut off.
    assert _seconds(running["status"]["startTime"]) - _seconds(bound["lastTransitionTime"]) >= 2


def _seconds(text: str) -> float:
    return dt.datetime.fromisoformat(text).timestamp()


async def test_the_operator_s_webhook_refuses_a_job_by_its_own_rule(cluster: Cluster) -> None:
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "XGBoostJob",
        "metadata": {"name": "refused"},
        "spec": {
            "xgbReplicaSpecs": {
                "Master": {
                    "replicas": 1,
                    "template": {"spec": {"containers": [{"name": "wrong", "image": "x"}]}},
                }
            }
        },
    }
    with pytest.raises(Forbidden, match="must have at least one container with name xgboost"):
        await cluster.create(XGBOOSTJOBS, job, GANG_NAMESPACES[0])


async def test_a_person_without_a_role_may_not_list_pods(rig: Rig) -> None:
    async with Cluster.from_kubeconfig(str(rig.kubeconfig_of("person"))) as person:
        with pytest.raises(Forbidden):
            await person.list(PODS, "default")


def test_every_process_of_a_stopped_rig_is_gone(tmp_path: Path) -> None:
    part = Part("sleeper", ["sleep", "600"], tmp_path, lambda: True)
    part.start()
    process = part.process
    assert process is not None
    part.stop()
    assert process.poll() is not None
    part.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent was killed")
def test_no_process_outlives_a_killed_test_run(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from tests.controlplane.parts import Part\n"
        "part = Part('sleeper', ['sleep', '600'], Path(sys.argv[1]), lambda: True); part.start()\n"
        "print(part.process.pid, flush=True); sys.stdin.read()"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert run.stdout is not None
    sleeper = psutil.Process(int(run.stdout.readline()))
    run.kill()
    run.communicate()
    sleeper.wait(10)


def test_a_part_that_ends_before_it_is_ready_is_named_with_the_end_of_its_log(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print('bad flag'); raise SystemExit(3)"]
    part = Part("etcd", command, tmp_path, answers(f"http://127.0.0.1:{free_ports(1)[0]}/"))
    part.start()
    with pytest.raises(PartFailed, match=r"(?s)etcd ended with code 3 before it was ready.*bad flag"):
        part.wait_ready()


def test_a_part_that_never_answers_is_named_and_ended(tmp_path: Path) -> None:
    part = Part("kwok", ["sleep", "600"], tmp_path, answers(f"http://127.0.0.1:{free_ports(1)[0]}/"))
    part.start()
    with pytest.raises(PartFailed, match="kwok is not ready after 0 s"):
        part.wait_ready(seconds=0.3)
    part.stop()
