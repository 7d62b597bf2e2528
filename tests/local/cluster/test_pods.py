"""Pods as processes, through the API: what goes in as a spec comes out as a kubelet would report it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys

import psutil
import pytest

from airflow_kftrain.cluster.resources import CONFIGMAPS, PODS, SECRETS
from airflow_kftrain.exceptions import BadRequest
from airflow_kftrain.testing import RunningCluster
from tests.support.live import Live, exit_code
from tests.support.processes import has_ended

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("local-cluster")]


def sh(script: str) -> list[str]:
    return ["sh", "-c", script]


@pytest.mark.parametrize(
    ("command", "code", "phase"),
    [
        pytest.param(sh("exit 0"), 0, "Succeeded", id="success"),
        pytest.param(sh("exit 3"), 3, "Failed", id="its own code"),
        pytest.param(sh("kill -9 $$$$"), 137, "Failed", id="128 + signal"),
        pytest.param(["no-such-program"], 127, "Failed", id="no such program"),
        pytest.param(["/etc"], 126, "Failed", id="not a program"),
        pytest.param(["python", "-c", "import sys; sys.exit(7)"], 7, "Failed", id="python is an interpreter"),
    ],
)
async def test_exit_codes(kube: Live, command: list[str], code: int, phase: str):
    await kube.pod("p", command)
    pod = await kube.ended("p")
    assert (exit_code(pod), pod["status"]["phase"]) == (code, phase)
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["reason"] == (
        "Completed" if code == 0 else "Error"
    )


async def test_the_status_of_a_running_pod(kube: Live):
    await kube.pod("p", ["sleep", "60"])
    pod = await kube.running("p")
    status = pod["status"]
    conditions = {c["type"]: c["status"] for c in status["conditions"]}
    assert {"PodScheduled", "Initialized", "Ready", "ContainersReady"} <= {
        kind for kind, value in conditions.items() if value == "True"
    }
    assert status["podIP"] == status["hostIP"] == "127.0.0.1"
    assert status["startTime"]
    (container,) = status["containerStatuses"]
    assert container["ready"]
    assert container["state"]["running"]["startedAt"]
    await kube.cluster.delete(PODS, "p", kube.namespace, grace_period_seconds=0)


async def test_the_environment_is_clean_and_the_pods_own(kube: Live):
    await kube.cluster.create(
        CONFIGMAPS, {"metadata": {"name": "cm"}, "data": {"rate": "0.1", "depth": "4"}}, kube.namespace
    )
    await kube.cluster.create(
        SECRETS, {"metadata": {"name": "s"}, "stringData": {"key": "xyz"}}, kube.namespace
    )
    env = [
        {"name": "RATE", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "rate"}}},
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "key"}}},
        {"name": "ABSENT", "valueFrom": {"secretKeyRef": {"name": "no", "key": "no", "optional": True}}},
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "CPUS", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        {"name": "ALL", "value": "$(RATE)/$(KEY)/$(NOT_THERE)/$$(RATE)"},
    ]
    command = ["python", "-c", "import json, os; print(json.dumps(dict(os.environ)))"]
    await kube.pod(
        "p",
        command,
        env=env,
        envFrom=[{"prefix": "X_", "configMapRef": {"name": "cm"}}],
        resources={"limits": {"cpu": "1500m"}},
    )
    assert (await kube.ended("p"))["status"]["phase"] == "Succeeded"
    seen = json.loads(await kube.logs("p"))
    assert {"RATE": "0.1", "KEY": "xyz", "POD": "p", "CPUS": "2", "X_depth": "4"}.items() <= seen.items()
    assert seen["ALL"] == "0.1/xyz/$(NOT_THERE)/$(RATE)"
    assert seen["OMP_NUM_THREADS"] == "2"
    assert seen["HOSTNAME"] == "p"
    assert "ABSENT" not in seen
    assert not [name for name in seen if name.startswith("AIRFLOW")]
    assert "a-secret" not in json.dumps(seen)


async def test_a_missing_reference_waits_and_heals(kube: Live):
    env = [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "late", "key": "a"}}}]
    await kube.pod("p", sh("echo $A"), env=env)
    waiting = await kube.until(PODS, "p", lambda p: p and _waiting(p) == "CreateContainerConfigError")
    message = waiting["status"]["containerStatuses"][0]["state"]["waiting"]["message"]
    assert message == 'configmap "late" not found'
    await kube.cluster.create(CONFIGMAPS, {"metadata": {"name": "late"}, "data": {"a": "7"}}, kube.namespace)
    await kube.ended("p")
    assert await kube.logs("p") == "7\n"


@pytest.mark.parametrize(
    ("fields", "reason", "text"),
    [
        pytest.param({"workingDir": "/no/such"}, "CreateContainerError", "/no/such", id="working directory"),
        pytest.param(
            {"command": None, "args": ["x"]},
            "CreateContainerError",
            "no command",
            id="no command: no image runs",
        ),
        pytest.param(
            {"image": "missing/x:1"}, "ErrImagePull", "missing/x:1", id="an image that is not there"
        ),
    ],
)
async def test_what_cannot_start_says_why(kube: Live, fields: dict, reason: str, text: str):
    await kube.pod("p", fields.pop("command", ["true"]), **fields)
    pod = await kube.until(PODS, "p", lambda p: p and _waiting(p) == reason)
    assert text in pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"]
    if reason == "ErrImagePull":
        await kube.until(PODS, "p", lambda p: p and _waiting(p) == "ImagePullBackOff")
    await kube.cluster.delete(PODS, "p", kube.namespace)
    await kube.until(PODS, "p", lambda p: p is None)


def _waiting(pod: dict) -> str | None:
    statuses = pod["status"].get("containerStatuses") or [{}]
    return statuses[0].get("state", {}).get("waiting", {}).get("reason")


async def test_volumes(kube: Live, tmp_path):
    (tmp_path / "input").write_text("from the host")
    await kube.cluster.create(
        CONFIGMAPS, {"metadata": {"name": "cm"}, "data": {"a.txt": "A"}}, kube.namespace
    )
    volumes = [
        {"name": "cm", "configMap": {"name": "cm"}},
        {"name": "host", "hostPath": {"path": str(tmp_path)}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "claim"}},
        {
            "name": "info",
            "downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]},
        },
        {"name": "scratch", "emptyDir": {}},
    ]
    mounts = [
        {"name": "cm", "mountPath": "/etc/cfg"},
        {"name": "host", "mountPath": "/mnt/host"},
        {"name": "data", "mountPath": "/data"},
        {"name": "info", "mountPath": "/etc/info"},
        {"name": "scratch", "mountPath": "/data/scratch"},
    ]
    script = "cat /etc/cfg/a.txt $INPUT /etc/info/n > /data/out && cat /data/out && touch /data/scratch/x && ls /data"
    await kube.pod(
        "first",
        sh(script),
        pod_volumes=volumes,
        volumeMounts=mounts,
        env=[{"name": "INPUT", "value": "/mnt/host/input"}],
    )
    await kube.ended("first")
    assert await kube.logs("first") == "Afrom the hostfirstout\n"
    await kube.pod(
        "second", sh("cat /data/out"), pod_volumes=volumes, volumeMounts=mounts, workingDir="/data"
    )
    await kube.ended("second")
    assert await kube.logs("second") == "Afrom the hostfirst"


async def test_init_containers_run_in_order_and_sidecars_beside(kube: Live):
    mount = [{"name": "w", "mountPath": "/w"}]
    common = {"image": "acme/test:1", "volumeMounts": mount}
    inits = [
        {"name": "one", "command": sh("echo one >> /w/log"), **common},
        {
            "name": "side",
            "command": sh("echo side >> /w/log; touch /w/up; exec sleep 60"),
            "restartPolicy": "Always",
            **common,
        },
        {
            "name": "two",
            "command": sh("while [ ! -e /w/up ]; do sleep 0.05; done; echo two >> /w/log"),
            **common,
        },
    ]
    await kube.pod(
        "p",
        sh("echo main >> /w/log; cat /w/log"),
        volumeMounts=mount,
        pod_volumes=[{"name": "w", "emptyDir": {}}],
        pod_initContainers=inits,
    )
    pod = await kube.ended("p")
    assert pod["status"]["phase"] == "Succeeded"
    assert await kube.logs("p", container="main") == "one\nside\ntwo\nmain\n"
    states = {s["name"]: s["state"]["terminated"] for s in pod["status"]["initContainerStatuses"]}
    assert states["one"]["exitCode"] == states["two"]["exitCode"] == 0
    assert states["side"]["exitCode"] == 143


async def test_a_failed_init_container_fails_the_pod(kube: Live):
    inits = [{"name": "bad", "image": "acme/test:1", "command": sh("exit 5")}]
    await kube.pod("p", sh("echo never"), pod_initContainers=inits)
    pod = await kube.ended("p")
    assert pod["status"]["phase"] == "Failed"
    assert pod["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 5
    assert "terminated" not in pod["status"]["containerStatuses"][0]["state"]


async def test_the_operators_wait_for_dns_is_skipped_with_an_event(kube: Live):
    loop = (
        "err=1;for i in $(seq 100); do if nslookup x-master-0; then err=0 && break; fi;"
        "echo waiting for master; sleep 2; done; exit $err"
    )
    inits = [{"name": "init-pytorch", "image": "alpine:3.10", "command": sh(loop)}]
    await kube.pod("p", sh("echo on"), pod_initContainers=inits)
    assert (await kube.ended("p"))["status"]["phase"] == "Succeeded"
    assert "skipped" in (await kube.until_event("p", "InitContainerSkipped"))["message"]


async def test_restart_on_failure_keeps_the_log_before(kube: Live):
    script = "if [ -e /w/again ]; then echo second; else touch /w/again; echo first; exit 4; fi"
    await kube.pod(
        "p",
        sh(script),
        restart="OnFailure",
        volumeMounts=[{"name": "w", "mountPath": "/w"}],
        pod_volumes=[{"name": "w", "emptyDir": {}}],
    )
    pod = await kube.ended("p")
    (status,) = pod["status"]["containerStatuses"]
    assert (pod["status"]["phase"], status["restartCount"]) == ("Succeeded", 1)
    assert status["lastState"]["terminated"]["exitCode"] == 4
    assert await kube.logs("p") == "second\n"
    assert await kube.logs("p", previous=True) == "first\n"


async def test_a_container_that_keeps_failing_backs_off(kube: Live):
    await kube.pod("p", sh("exit 1"), restart="Always")
    pod = await kube.until(PODS, "p", lambda p: p and _waiting(p) == "CrashLoopBackOff")
    (status,) = pod["status"]["containerStatuses"]
    assert pod["status"]["phase"] == "Running"
    assert status["restartCount"] == 1
    assert status["state"]["waiting"]["message"].startswith(
        "back-off 10s restarting failed container=main pod=p_"
    )
    await kube.cluster.delete(PODS, "p", kube.namespace)
    await kube.until(PODS, "p", lambda p: p is None)


async def test_sigterm_is_given_time_to_end_well(kube: Live, tmp_path):
    script = f"trap 'echo saved > {tmp_path}/state; exit 0' TERM; echo up; while true; do sleep 0.05; done"
    await kube.pod("p", sh(script))
    await kube.until_logged("p", "up")
    await kube.cluster.delete(PODS, "p", kube.namespace, grace_period_seconds=20)
    await kube.until(PODS, "p", lambda p: p is None, timeout=10)
    assert (tmp_path / "state").read_text() == "saved\n"


async def test_a_process_that_ignores_sigterm_is_killed_after_the_grace_period(kube: Live):
    await kube.pod("p", sh("trap '' TERM; echo $$$$; while true; do sleep 0.05; done"))
    await kube.until_logged("p", "\n")
    pid = int(await kube.logs("p"))
    loop = asyncio.get_running_loop()
    began = loop.time()
    await kube.cluster.delete(PODS, "p", kube.namespace, grace_period_seconds=1)
    await kube.until(PODS, "p", lambda p: p is None, timeout=10)
    assert loop.time() - began >= 0.9
    assert has_ended(pid)


async def test_forced_deletion_ends_the_process_at_once(kube: Live):
    await kube.pod("p", sh("trap '' TERM; echo $$$$; while true; do sleep 0.05; done"))
    await kube.until_logged("p", "\n")
    process = psutil.Process(int(await kube.logs("p")))
    await kube.cluster.delete(PODS, "p", kube.namespace, grace_period_seconds=0)
    _, alive = await asyncio.to_thread(psutil.wait_procs, [process], 10)
    assert not alive


async def test_a_prestop_hook_runs_before_sigterm(kube: Live, tmp_path):
    hook = {"preStop": {"exec": {"command": sh(f"echo hook >> {tmp_path}/order")}}}
    script = f"trap 'echo term >> {tmp_path}/order; exit 0' TERM; echo up; while true; do sleep 0.05; done"
    await kube.pod("p", sh(script), lifecycle=hook)
    await kube.until_logged("p", "up")
    await kube.cluster.delete(PODS, "p", kube.namespace)
    await kube.until(PODS, "p", lambda p: p is None)
    assert (tmp_path / "order").read_text() == "hook\nterm\n"


async def test_grandchildren_in_sessions_of_their_own_end_with_the_pod(kube: Live):
    code = (
        "import subprocess, sys\n"
        "child = subprocess.Popen(['sleep', '300'], start_new_session=True)\n"
        "print(child.pid, flush=True)\n"
    )
    await kube.pod("p", ["python", "-c", code])
    await kube.ended("p")
    child = int(await kube.logs("p"))
    await kube.cluster.delete(PODS, "p", kube.namespace)
    await kube.until(PODS, "p", lambda p: p is None)
    assert has_ended(child)


async def test_a_deadline_of_the_pod_ends_it(kube: Live):
    await kube.pod("p", ["sleep", "60"], pod_activeDeadlineSeconds=1)
    status = (await kube.ended("p", timeout=10))["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "DeadlineExceeded")


async def test_logs_in_all_forms(kube: Live):
    code = (
        "import sys\n"
        "sys.stdout.buffer.write(b'one\\nloss 0.1 \\xc6\\xff\\n10%\\r20%\\r30%\\n' + b'x' * 50000 + b'\\nlast')\n"
    )
    await kube.pod("p", ["python", "-c", code])
    await kube.ended("p")
    chunks = [chunk async for chunk in kube.cluster.logs("p", kube.namespace)]
    expected = b"one\nloss 0.1 \xc6\xff\n10%\r20%\r30%\n" + b"x" * 50000 + b"\nlast"
    assert b"".join(chunks) == expected
    assert await kube.logs("p", tail_lines=2) == "x" * 50000 + "\nlast"
    stamped = (await kube.logs("p", timestamps=True)).split("\n")
    assert stamped[0].endswith(" one")
    assert len(stamped) == 5
    assert await kube.logs("p", limit_bytes=5) == "one\nl"
    with pytest.raises(BadRequest, match="previous terminated container"):
        await kube.logs("p", previous=True)


async def test_a_followed_log_ends_with_its_container(kube: Live, tmp_path):
    await kube.pod("p", sh(f"echo a; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; echo b"))
    await kube.running("p")
    seen = []
    async with asyncio.timeout(20):
        async for chunk in kube.cluster.logs("p", kube.namespace, follow=True):
            seen.append(chunk)
            (tmp_path / "go").touch()
    assert b"".join(seen) == b"a\nb\n"


async def test_gpus_of_a_node_are_shared_out(kube: Live):
    script = sh("echo $CUDA_VISIBLE_DEVICES; sleep 60")
    gpus = {"limits": {"nvidia.com/gpu": "2"}}
    for name in ("a", "b"):
        await kube.pod(name, script, resources=gpus, pod_nodeSelector={"kubernetes.io/hostname": "node-1"})
        await kube.until_logged(name, "\n")
    seen = [(await kube.logs(name)).strip().split(",") for name in ("a", "b")]
    assert sorted(seen[0] + seen[1]) == ["4", "5", "6", "7"]
    await kube.pod("c", sh("echo [$CUDA_VISIBLE_DEVICES]"))
    await kube.ended("c")
    assert await kube.logs("c") == "[]\n"
    for name in ("a", "b"):
        await kube.cluster.delete(PODS, name, kube.namespace, grace_period_seconds=0)


async def test_a_finished_pods_gpus_go_to_the_next(kube: Live):
    for name in ("a", "b", "c"):
        await kube.pod(
            name,
            sh("echo $CUDA_VISIBLE_DEVICES"),
            resources={"limits": {"nvidia.com/gpu": "4"}},
            pod_nodeSelector={"kubernetes.io/hostname": "node-1"},
        )
    for name in ("a", "b", "c"):
        assert (await kube.ended(name))["status"]["phase"] == "Succeeded"
        assert await kube.logs(name) == "4,5,6,7\n"


async def test_several_containers_and_one_that_fails(kube: Live):
    second = {"name": "second", "image": "acme/test:1", "command": sh("exit 9")}
    first = {"name": "first", "image": "acme/test:1", "command": sh("exit 0")}
    await kube.pod("p", ["true"], pod_containers=[first, second])
    pod = await kube.ended("p")
    assert pod["status"]["phase"] == "Failed"
    assert (exit_code(pod, 0), exit_code(pod, 1)) == (0, 9)


async def test_the_end_of_the_log_becomes_the_message_where_asked(kube: Live):
    await kube.pod("p", sh("echo out of memory; exit 1"), terminationMessagePolicy="FallbackToLogsOnError")
    pod = await kube.ended("p")
    message = pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"]
    assert message == "out of memory\n"


async def test_a_signal_from_outside_is_the_exit_code(kube: Live, running: RunningCluster):
    await kube.pod(
        "p", [sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(60)"]
    )
    await kube.until_logged("p", "\n")
    os.kill(int(await kube.logs("p")), signal.SIGTERM)
    assert exit_code(await kube.ended("p")) == 143


async def test_sockets_can_be_made_in_the_temporary_directory(kube: Live):
    """Their paths are limited to about 100 bytes; multiprocessing puts its own there."""
    code = (
        "import multiprocessing as m\n"
        "if __name__ == '__main__':\n"
        "    with m.Manager() as manager: print(list(manager.list([1])))\n"
    )
    await kube.pod("p", ["python", "-c", code])
    assert (await kube.ended("p"))["status"]["phase"] == "Succeeded"
    assert await kube.logs("p") == "[1]\n"


async def test_a_pod_put_on_a_node_by_hand_that_has_not_the_gpus_is_refused(kube: Live):
    await kube.pod("p", ["true"], resources={"limits": {"nvidia.com/gpu": "5"}}, pod_nodeName="node-0")
    status = (await kube.ended("p"))["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "UnexpectedAdmissionError")
