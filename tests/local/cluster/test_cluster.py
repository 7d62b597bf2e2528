"""The cluster as a whole: up, down, killed, back; and what is left after each."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from airflow_kftrain.cluster.resources import NODES, PODS, XGBOOSTJOBS
from airflow_kftrain.exceptions import ApiUnreachable, InvalidInput, LocalClusterError
from airflow_kftrain.local.cluster import LocalCluster
from airflow_kftrain.local.home import Home
from airflow_kftrain.local.kubelet.sweep import marked
from airflow_kftrain.testing import RunningCluster, local_cluster
from tests.support import ring
from tests.support.live import live
from tests.support.processes import has_ended

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("mortal-cluster")]


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with local_cluster(nodes=2, gpus=4, home=tmp_path_factory.mktemp("mortal") / "home") as cluster:
        yield cluster


@pytest.fixture
def own(mortal: RunningCluster) -> Iterator[RunningCluster]:
    """A cluster that the test may kill; it is up, and empty, when the test begins."""
    if not mortal.local.running:
        mortal.local.up(nodes=2, gpus=4)
    yield mortal
    mortal.local.reset()


def kill_daemon(cluster: LocalCluster) -> None:
    assert cluster.pid is not None
    daemon = psutil.Process(cluster.pid)
    daemon.kill()
    psutil.wait_procs([daemon], timeout=10)
    assert not cluster.running


def left_over(cluster: LocalCluster) -> list[int]:
    return [process.pid for process in marked(Home(cluster.home).cluster_id())]


def answers(url: str) -> bool:
    host, port = url.removeprefix("https://").split(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def test_up_is_idempotent_and_down_too(own: RunningCluster):
    cluster = own.local
    pid = cluster.pid
    assert not cluster.up()
    assert not cluster.up(nodes=2, gpus=4)
    assert cluster.pid == pid
    assert cluster.down()
    assert not cluster.down()
    assert not answers(own.url)


def test_of_two_that_bring_it_up_at_once_one_does(tmp_path: Path):
    clusters = [LocalCluster(tmp_path / "home") for _ in range(2)]
    try:
        with ThreadPoolExecutor() as pool:
            assert sorted(pool.map(lambda cluster: cluster.up(), clusters)) == [False, True]
        assert clusters[0].pid == clusters[1].pid
    finally:
        clusters[0].down()


def test_a_daemon_that_does_not_answer_is_told_apart_from_one_that_is_down(own: RunningCluster):
    daemon = psutil.Process(own.local.pid)
    daemon.suspend()
    try:
        with pytest.raises(ApiUnreachable):
            own.local.status()
    finally:
        daemon.resume()
    assert own.local.status() is not None


def test_other_nodes_are_refused_while_it_is_up_and_taken_after_down(own: RunningCluster):
    with pytest.raises(LocalClusterError, match="is up with 2 nodes of 4 GPUs, not with 1 node of 4 GPUs"):
        own.local.up(nodes=1)
    own.local.down()
    own.local.up(nodes=1)
    overview = own.local.status()
    assert overview is not None
    assert [node.name for node in overview.nodes] == ["node-0"]


@pytest.mark.parametrize(("nodes", "gpus", "field"), [(0, 1, "nodes"), (1, -1, "gpus"), (1, 65, "gpus")])
def test_numbers_out_of_range_are_refused_before_anything_starts(tmp_path: Path, nodes, gpus, field):
    cluster = LocalCluster(tmp_path / "home")
    with pytest.raises(InvalidInput, match=f"^{field}: "):
        cluster.up(nodes, gpus)
    assert not cluster.running


def test_a_start_that_fails_says_why_and_leaves_nothing(tmp_path: Path):
    with local_cluster(home=tmp_path / "home") as cluster:
        port = int(cluster.url.rsplit(":", 1)[1])
    with socket.create_server(("127.0.0.1", port)), pytest.raises(LocalClusterError, match=f"port {port}"):
        cluster.local.up()
    assert not cluster.local.running
    assert cluster.local.up()
    assert cluster.local.down()


@pytest.mark.parametrize("command", ["up", "status", "down", "reset"])
def test_a_home_that_is_no_directory_is_one_error_of_every_command(tmp_path: Path, command: str):
    (tmp_path / "home").touch()
    with pytest.raises(LocalClusterError, match=r"home cannot be used \(.*\): give another directory"):
        getattr(LocalCluster(tmp_path / "home"), command)()


def test_a_state_that_cannot_be_read_is_one_error_without_a_traceback(tmp_path: Path):
    state = tmp_path / "home" / "api" / "state.db"
    state.parent.mkdir(parents=True)
    state.write_bytes(b"noise " * 1000)
    cluster = LocalCluster(tmp_path / "home")
    with pytest.raises(LocalClusterError, match=r"state\.db cannot be read: .*kftrain local reset") as raised:
        cluster.up()
    assert "\n" not in str(raised.value)
    cluster.reset()
    assert cluster.up()
    cluster.reset()


def test_the_users_own_kubeconfig_is_not_touched_and_ours_is_private(tmp_path: Path, monkeypatch):
    own_home = tmp_path / "user"
    own_home.mkdir()
    monkeypatch.setenv("HOME", str(own_home))
    with local_cluster(home=tmp_path / "home") as cluster:
        assert not list(own_home.iterdir())
        assert cluster.kubeconfig.stat().st_mode & 0o777 == 0o600


def test_two_clusters_side_by_side_do_not_touch_each_other(own: RunningCluster, tmp_path: Path):
    with local_cluster(home=tmp_path / "other") as other:
        assert other.url != own.url
        assert other.local.status() is not None
    assert own.local.running
    assert own.local.status() is not None


async def test_objects_survive_down_and_up(own: RunningCluster):
    async with live(own.kubeconfig) as kube:
        await kube.job("j")
        assert await kube.job_ended("j") == "Succeeded"
    await asyncio.to_thread(own.local.down)
    await asyncio.to_thread(own.local.up)
    async with live(own.kubeconfig) as kube:
        assert await kube.job_ended("j") == "Succeeded"
        assert "model" in await kube.logs("j-master-0")
    await asyncio.to_thread(own.local.reset)
    assert not own.local.running
    await asyncio.to_thread(own.local.up)
    async with live(own.kubeconfig) as kube:
        assert (await kube.cluster.list(XGBOOSTJOBS)).items == []
        assert len((await kube.cluster.list(NODES)).items) == 1  # nothing is left of the last time


GRANDCHILD = """
import subprocess, time
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
print(child.pid, flush=True)
time.sleep(600)
"""


async def test_after_kill_9_of_the_daemon_up_sweeps_and_reports_lost_pods(own: RunningCluster):
    async with live(own.kubeconfig) as kube:
        await kube.pod("p", ["python", "-c", GRANDCHILD])
        await kube.until_logged("p", "\n")
        child = int(await kube.logs("p"))
        process_id = (await kube.running("p"))["status"]["containerStatuses"][0]["containerID"]
    kill_daemon(own.local)
    await asyncio.to_thread(own.local.up)
    assert left_over(own.local) == []
    assert has_ended(child)
    async with live(own.kubeconfig) as kube:
        pod = await kube.ended("p")
    status = pod["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "NodeLost")
    (container,) = status["containerStatuses"]
    assert container["state"]["terminated"]["exitCode"] == 137
    assert container["containerID"] == process_id


async def test_down_after_kill_9_leaves_no_process(own: RunningCluster):
    async with live(own.kubeconfig) as kube:
        await kube.pod("p", ["python", "-c", GRANDCHILD])
        await kube.until_logged("p", "\n")
    assert len(left_over(own.local)) == 2
    kill_daemon(own.local)
    assert await asyncio.to_thread(own.local.down)
    assert left_over(own.local) == []


@pytest.mark.parametrize(
    ("restart", "end"),
    [
        pytest.param("Never", "Failed", id="Never: a lost gang fails its job"),
        pytest.param("OnFailure", "Succeeded", id="OnFailure: a lost gang trains anew"),
        pytest.param(
            "ExitCode", "Succeeded", id="ExitCode: a lost pod counts as killed, so it is tried again"
        ),
    ],
)
async def test_restart_policies_act_on_pods_that_died_with_the_daemon(
    own: RunningCluster, tmp_path: Path, restart: str, end: str
):
    async with live(own.kubeconfig) as kube:
        await kube.job("j", "--hold", f"{tmp_path}/go", "--record", str(tmp_path), restart=restart)
        for role in ("worker-0", "worker-1"):
            await kube.running(f"j-{role}")
        await kube.until_logged("j-master-0", "KFTRAIN")
    kill_daemon(own.local)
    (tmp_path / "go").touch()
    await asyncio.to_thread(own.local.up)
    async with live(own.kubeconfig) as kube:
        assert await kube.job_ended("j") == end
    starts = [entry for entry in ring.recorded(tmp_path) if entry["event"] == "start"]
    assert len(starts) == (3 if end == "Failed" else 6)


async def test_a_pod_that_was_being_deleted_when_the_daemon_was_killed_is_gone_after_up(own: RunningCluster):
    async with live(own.kubeconfig) as kube:
        await kube.pod("p", ["sh", "-c", "trap '' TERM; echo up; while true; do sleep 0.05; done"])
        await kube.until_logged("p", "up")
        await kube.cluster.delete(PODS, "p", kube.namespace, grace_period_seconds=600)
    kill_daemon(own.local)
    await asyncio.to_thread(own.local.up)
    async with live(own.kubeconfig) as kube:
        await kube.until(PODS, "p", lambda p: p is None)


def test_the_commands_of_the_cli(tmp_path: Path):
    home = tmp_path / "home"

    def kftrain(*arguments: str) -> subprocess.CompletedProcess[str]:
        code = "from airflow_kftrain.cli.app import main; main()"
        command = [sys.executable, "-c", code, "local", *arguments, "--home", str(home)]
        return subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)

    assert kftrain("status").returncode == 3
    up = kftrain("up", "--nodes", "2", "--gpus", "4")
    try:
        assert f"export KUBECONFIG={home}/kubeconfig" in up.stdout, up.stderr
        status = kftrain("status").stdout
        assert "node-1" in status
        assert "0 of 4" in status
        refused = kftrain("up", "--gpus", "99")
        assert (refused.returncode, refused.stderr.splitlines()) == (
            1,
            ["kftrain: gpus: 99 cannot be used: give GPUs per node, from 0 to 64"],
        )
    finally:
        down = kftrain("down")
    assert "ended" in down.stdout
    assert "reset" in kftrain("reset").stdout
    assert not (home / "api").exists()


def test_the_daemon_ends_on_sigterm_and_takes_its_pods_with_it(own: RunningCluster):
    daemon = psutil.Process(own.local.pid)
    daemon.send_signal(signal.SIGTERM)
    _, alive = psutil.wait_procs([daemon], timeout=15)
    assert not alive
    assert not own.local.running
    assert left_over(own.local) == []


def test_sigterm_during_the_start_ends_it_without_a_fuss(tmp_path: Path):
    home = Home(tmp_path / "home")
    home.make()
    daemon = subprocess.Popen(
        [sys.executable, "-m", "airflow_kftrain.local.daemon", str(home.path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    pause = threading.Event()
    try:
        while not (home.api / "state.db").exists() and daemon.poll() is None:
            pause.wait(0.01)
        daemon.send_signal(signal.SIGTERM)
        output, _ = daemon.communicate(timeout=30)
    finally:
        daemon.kill()
        daemon.wait()
        home.remove_tmp()
    assert (daemon.returncode, output.splitlines()[-1].split(": ")[-1]) == (0, "ended as asked")
