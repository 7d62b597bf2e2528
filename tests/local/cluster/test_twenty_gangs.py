"""Twenty gangs at once, some failing, some killed, and the cluster's own process killed in between."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path

import psutil
import pytest

from airflow_kftrain.cluster.resources import PODGROUPS, PODS, SERVICES, XGBOOSTJOBS
from airflow_kftrain.local.home import Home
from airflow_kftrain.local.kubelet.ports import FIRST_PORT, LAST_PORT
from airflow_kftrain.local.kubelet.sweep import marked
from airflow_kftrain.testing import RunningCluster, local_cluster
from tests.support import ring
from tests.support.live import Live, exit_code, final_state, live

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

EXITING = [f"exits-{n}" for n in range(5)]
KILLED = [f"killed-{n}" for n in range(5)]
RESTARTED = [f"restarted-{n}" for n in range(5)]
LOST = [f"lost-{n}" for n in range(5)]
RANKS = ("master-0", "worker-0", "worker-1")
MINUTES = 180.0


async def test_twenty_gangs_end_as_they_should_and_leave_nothing(tmp_path: Path):
    records = tmp_path / "records"
    records.mkdir()
    with local_cluster(nodes=4, gpus=16, home=tmp_path / "home") as cluster:
        async with live(cluster.kubeconfig) as kube:
            await submit(kube, records, tmp_path / "go")
            await every_process_has_exchanged_data(kube, records)
            await kill_one_worker_of_each(kube, records)
        kill_the_daemon(cluster)
        (tmp_path / "go").touch()
        await asyncio.to_thread(cluster.local.up)
        async with live(cluster.kubeconfig) as kube:
            await ends_are_right(kube)
            starts_are_those_of_the_pods(records)
            await delete_all(kube)
        await nothing_is_left(cluster)


async def submit(kube: Live, records: Path, go: Path) -> None:
    common = ("--record", str(records), "--hold", str(go))
    jobs = [
        *(kube.job(name, *common, "--exit", "1:3", restart="ExitCode", gpus=1) for name in EXITING),
        *(kube.job(name, *common, restart="Never", gpus=1) for name in KILLED),
        *(kube.job(name, *common, restart="OnFailure", gpus=1) for name in RESTARTED),
        *(kube.job(name, *common, restart="Never", gpus=1) for name in LOST),
    ]
    await asyncio.gather(*jobs)


async def every_process_has_exchanged_data(kube: Live, records: Path) -> None:
    """All 60 run at once, and each has received the sums of half the steps; then they wait."""
    for name in (*EXITING, *KILLED, *RESTARTED, *LOST):
        for rank in RANKS:
            await kube.until(PODS, f"{name}-{rank}", lambda p: p and p["status"]["phase"] == "Running")
            # Rank 0 writes this line when 40 of 100 per cent are done.
        await kube.until_logged(f"{name}-master-0", '"progressPercentage": 40', timeout=MINUTES)
    pids = [entry["pid"] for entry in ring.recorded(records) if entry["event"] == "start"]
    assert len(pids) == 60
    assert all(psutil.pid_exists(pid) for pid in pids)


async def kill_one_worker_of_each(kube: Live, records: Path) -> None:
    victims = {f"{name}-worker-1" for name in KILLED}
    for entry in ring.recorded(records):
        if entry["event"] == "start" and entry["pod"] in victims:
            os.kill(entry["pid"], signal.SIGKILL)
    for name in KILLED:
        assert exit_code(await kube.ended(f"{name}-worker-1")) == 137
        assert await kube.job_ended(name) == "Failed"


def kill_the_daemon(cluster: RunningCluster) -> None:
    daemon = psutil.Process(cluster.local.pid)
    daemon.kill()
    psutil.wait_procs([daemon], timeout=10)
    assert not cluster.local.running


async def ends_are_right(kube: Live) -> None:
    expected = {
        **dict.fromkeys([*EXITING, *KILLED, *LOST], "Failed"),
        **dict.fromkeys(RESTARTED, "Succeeded"),
    }
    ends = {name: await kube.job_ended(name, timeout=MINUTES) for name in expected}
    assert ends == expected
    for name in EXITING:
        assert exit_code(await kube.ended(f"{name}-worker-0")) == 3
    for name in LOST:
        assert (await kube.ended(f"{name}-worker-0"))["status"]["reason"] == "NodeLost"
    logs = [await kube.logs(f"{name}-{rank}") for name in RESTARTED for rank in RANKS]
    assert {log.rsplit("model ", 1)[1].strip() for log in logs} == {ring.trained_on([0, 1, 2])}


def starts_are_those_of_the_pods(records: Path) -> None:
    """Each pod was started once: 60 at first, and 30 made anew after the kill; only they ended by themselves."""
    entries = ring.recorded(records)
    uids = Counter(entry["uid"] for entry in entries if entry["event"] == "start")
    assert set(uids.values()) == {1}
    names = Counter(entry["pod"] for entry in entries if entry["event"] == "start")
    again = {f"{name}-{rank}" for name in (*EXITING, *RESTARTED) for rank in RANKS}
    assert {name for name, count in names.items() if count == 2} == again
    assert len(names) == 60
    assert sum(names.values()) == 90
    ended = Counter(entry["code"] for entry in entries if entry["event"] == "end")
    assert ended == {0: 15, 3: 5}


async def delete_all(kube: Live) -> None:
    jobs = (await kube.cluster.list(XGBOOSTJOBS, "default")).items
    assert len(jobs) == 20
    assert all(final_state(job) for job in jobs)
    for job in jobs:
        await kube.cluster.delete(XGBOOSTJOBS, job["metadata"]["name"], "default")
    for pod in (await kube.cluster.list(PODS, "default")).items:
        await kube.until(PODS, pod["metadata"]["name"], lambda p: p is None, timeout=MINUTES)
    for resource in (XGBOOSTJOBS, PODS, SERVICES, PODGROUPS):
        assert (await kube.cluster.list(resource, "default")).items == []


async def nothing_is_left(cluster: RunningCluster) -> None:
    identity = Home(cluster.local.home).cluster_id()
    assert [process.pid for process in marked(identity)] == []
    before = listeners()
    assert await asyncio.to_thread(cluster.local.down)
    assert [process.pid for process in marked(identity)] == []
    for directory in ("pods", "logs"):
        assert list((cluster.local.home / "machine" / directory).iterdir()) == []
    # What listened in our range was the daemon's own claim on ports; it is gone with it.
    assert len(before) - len(listeners()) >= 1
    assert not [process for process in psutil.process_iter() if str(cluster.local.home) in _command(process)]


def listeners() -> set[int]:
    return {
        connection.laddr.port
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and FIRST_PORT <= connection.laddr.port < LAST_PORT
    }


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
