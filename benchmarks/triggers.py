"""What waiting costs: Airflow's real triggerer with many deferred tasks, against the real API server.

Prints, for each number and kind of trigger: CPU and memory of the triggerer (both processes), requests a second as the
API server counts them, and the time from the end of a job to the trigger's event. Beside ours stand as many triggers
that do nothing (Airflow's own floor, measured in the same run) and the cncf.kubernetes provider's triggers.
Our jobs wait in the queue: suspended, with limits to watch. The time to the event is that of jobs
that end while their master pod is known.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import resource
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import yaml
from rich.console import Console
from rich.table import Table

from airflow_kftrain.cluster.client import Cluster
from airflow_kftrain.cluster.resources import PODS, XGBOOSTJOBS, Resource
from airflow_kftrain.exceptions import TooManyRequests
from tests.controlplane.rig import Rig
from tests.e2e.postgres import postgres

JOBS = Resource("batch", "v1", "jobs", "Job")
REPOSITORY = Path(__file__).parents[1]
COUNTED = ("xgboostjobs", "pods", "jobs", "events")
WINDOW = 60.0
ENDED = 200
NAMESPACE = "default"


@dataclass(frozen=True)
class Kind:
    """One kind of trigger: how its object is made, what its trigger is told, how the object ends."""

    name: str
    classpath: str
    resource: Resource | None
    manifest: Callable[[str], dict[str, Any]]
    arguments: Callable[[dict[str, Any]], dict[str, Any]]
    end: dict[str, Any]
    begin: dict[str, Any] | None = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[300, 1000, 10000])
    parser.add_argument(
        "--compared", type=int, default=300, help="how many of the cncf.kubernetes provider's triggers"
    )
    given = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    console = Console(width=160)
    console.print(f"ulimit -n: {hard} (was {soft}); {WINDOW:.0f} s a row; {os.cpu_count()} cores")
    table = Table(
        "triggers", "number", "cores", "over idle", "MB", "over idle", "requests/s", "event p50 ms", "p99 ms"
    )
    with tempfile.TemporaryDirectory(prefix="kftrain-bench-") as folder, _rig(Path(folder)) as rig:
        plan = [(size, kind) for size in given.sizes for kind in (IDLE, OURS)]
        plan += (
            [(given.compared, kind) for kind in (KUBERNETES_JOB, KUBERNETES_POD)] if given.compared else []
        )
        floors: dict[int, Measured] = {}
        for size, kind in plan:
            measured = _measure(rig, kind, size, Path(folder))
            floor = floors.setdefault(size, measured)
            table.add_row(*_row(kind, size, measured, floor))
            console.print(table)


@dataclass(frozen=True)
class Measured:
    """One row."""

    cores: float
    megabytes: float
    requests: float
    latencies: list[float]


def _row(kind: Kind, size: int, measured: Measured, floor: Measured) -> list[str]:
    latencies = sorted(measured.latencies)
    at = (
        (lambda share: f"{1000 * latencies[int(share * (len(latencies) - 1))]:.0f}")
        if latencies
        else (lambda _: "-")
    )
    return [
        kind.name,
        str(size),
        f"{measured.cores:.3f}",
        f"{measured.cores - floor.cores:+.3f}",
        f"{measured.megabytes:.0f}",
        f"{measured.megabytes - floor.megabytes:+.0f}",
        f"{measured.requests:.2f}",
        at(0.5),
        at(0.99),
    ]


@contextlib.contextmanager
def _rig(folder: Path) -> Iterator[Rig]:
    rig = Rig(folder / "rig", operators=(), nodes=0)
    rig.start()
    try:
        yield rig
    finally:
        rig.stop()


def _measure(rig: Rig, kind: Kind, size: int, folder: Path) -> Measured:
    names = [f"bench-{kind.name.lower().replace(' ', '-')}-{number}" for number in range(size)]
    made = asyncio.run(_make(rig, kind, names))
    try:
        with _airflow(rig, folder, kind, [kind.arguments(obj) for obj in made]) as (processes, marks):
            _wait_for(lambda: _lines(marks, "begin") >= size, f"{size} triggers begin", 900)
            time.sleep(15)  # lists are read, and the loops have come to rest
            cpu, requests, started = _cpu(processes), _requests(rig), time.monotonic()
            time.sleep(WINDOW)
            seconds = time.monotonic() - started
            cores, rate = (_cpu(processes) - cpu) / seconds, (_requests(rig) - requests) / seconds
            memory = sum(process.memory_full_info().uss for process in processes) / 1e6
            latencies = _latencies(rig, kind, names[:ENDED], marks) if kind.resource else []
        return Measured(cores, memory, rate, latencies)
    finally:
        asyncio.run(_remove(rig, kind))


@contextlib.contextmanager
def _airflow(
    rig: Rig, folder: Path, kind: Kind, arguments: list[dict[str, Any]]
) -> Iterator[tuple[list[psutil.Process], Path]]:
    home = Path(tempfile.mkdtemp(dir=folder))
    (home / "dags").mkdir()
    (home / "dags" / "bench.py").write_text(
        "from airflow.sdk import DAG\nfrom airflow.providers.standard.operators.empty import EmptyOperator\n"
        "with DAG('bench', schedule=None):\n    EmptyOperator(task_id='wait')\n"
    )
    marks = home / "marks"
    marks.touch()
    connection = {"conn_type": "kubernetes", "extra": {"kube_config_path": str(rig.kubeconfig)}}
    with postgres() as url:
        environment = {
            **os.environ,
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": url,
            "AIRFLOW__TRIGGERER__CAPACITY": "20000",
            "AIRFLOW__TRIGGERER__MAX_TRIGGER_TO_SELECT_PER_LOOP": "1000",
            "AIRFLOW_CONN_KUBERNETES_DEFAULT": json.dumps(connection),
            "PYTHONPATH": str(REPOSITORY),
            "KFTRAIN_BENCH_MARKS": str(marks),
        }
        for command in (["db", "migrate"], ["dags", "reserialize"]):
            subprocess.run(
                [sys.executable, "-m", "airflow", *command], env=environment, check=True, capture_output=True
            )
        wanted = json.dumps({"classpath": kind.classpath, "kwargs": arguments})
        subprocess.run(
            [sys.executable, "-m", "benchmarks.deferred_tasks"],
            env=environment,
            input=wanted.encode(),
            check=True,
            capture_output=True,
            cwd=REPOSITORY,
        )
        log = (home / "triggerer.log").open("wb")
        triggerer = subprocess.Popen(
            [sys.executable, "-m", "airflow", "triggerer", "--skip-serve-logs"],
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            _wait_for(lambda: _lines(marks, "begin") > 0, "the triggerer begins", 180)
            parent = psutil.Process(triggerer.pid)
            yield [parent, *parent.children(recursive=True)], marks
        finally:
            os.killpg(triggerer.pid, signal.SIGKILL)
            triggerer.wait()
            log.close()


async def _make(rig: Rig, kind: Kind, names: list[str]) -> list[dict[str, Any]]:
    if kind.resource is None:
        return [{"metadata": {"name": name}} for name in names]
    target, ending = kind.resource, set(names[:ENDED])
    limit = asyncio.Semaphore(16)
    async with Cluster.from_kubeconfig(str(rig.kubeconfig)) as cluster:

        async def one(name: str) -> dict[str, Any]:
            async with limit:
                made = await cluster.create(target, kind.manifest(name), NAMESPACE)
                if kind is OURS and name in ending:
                    await cluster.create(PODS, _master_pod(made), NAMESPACE)
                if kind.begin is not None:
                    await cluster.patch(target, name, {"status": kind.begin}, NAMESPACE, subresource="status")
                return made

        return await asyncio.gather(*map(one, names))


def _latencies(rig: Rig, kind: Kind, names: list[str], marks: Path) -> list[float]:
    """End objects one by one; seconds from each end to its trigger's event."""
    ended = asyncio.run(_end(rig, kind, names))
    _wait_for(lambda: _lines(marks, "event") >= len(names), f"{len(names)} events", 120)
    marked = [line.split() for line in marks.read_text().splitlines()]
    return [float(at) - ended[name] for what, name, at in marked if what == "event"]


async def _end(rig: Rig, kind: Kind, names: list[str]) -> dict[str, float]:
    assert kind.resource is not None
    ended: dict[str, float] = {}
    async with Cluster.from_kubeconfig(str(rig.kubeconfig)) as cluster:
        for name in names:
            if kind is OURS:
                done = {"phase": "Succeeded"}
                await cluster.patch(
                    PODS, f"{name}-master-0", {"status": done}, NAMESPACE, subresource="status"
                )
            ended[name] = time.time()
            await cluster.patch(kind.resource, name, {"status": kind.end}, NAMESPACE, subresource="status")
            await asyncio.sleep(0.05)
    return ended


async def _remove(rig: Rig, kind: Kind) -> None:
    if kind.resource is None:
        return
    async with Cluster.from_kubeconfig(str(rig.kubeconfig), timeout=300) as cluster:
        with contextlib.suppress(TooManyRequests):
            await cluster.raw("DELETE", kind.resource.path(NAMESPACE), query={"gracePeriodSeconds": "0"})


def _requests(rig: Rig) -> float:
    """Requests for the kinds that triggers read, so far."""
    total = 0.0
    for line in _metrics(rig).splitlines():
        if line.startswith("apiserver_request_total{") and any(
            f'resource="{kind}"' in line for kind in COUNTED
        ):
            total += float(line.rsplit(" ", 1)[1])
    return total


def _metrics(rig: Rig) -> str:
    token = yaml.safe_load(rig.kubeconfig.read_text())["users"][0]["user"]["token"]
    context = ssl.create_default_context(cafile=str(rig.ca))
    answer = httpx.get(
        f"{rig.url}/metrics", headers={"Authorization": f"Bearer {token}"}, verify=context, timeout=30
    )
    answer.raise_for_status()
    return answer.text


def _cpu(processes: list[psutil.Process]) -> float:
    return sum(process.cpu_times().user + process.cpu_times().system for process in processes)


def _lines(marks: Path, what: str) -> int:
    return sum(line.startswith(what) for line in marks.read_text().splitlines())


def _wait_for(look: Callable[[], bool], what: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not look():
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.5)


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _xgboost_job(name: str) -> dict[str, Any]:
    container = {"name": "xgboost", "image": "example/none", "command": ["true"]}
    replica = {"replicas": 1, "restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "XGBoostJob",
        "metadata": {"name": name, "labels": {"kftrain/managed": "true", "kftrain/instance": "bench"}},
        "spec": {"xgbReplicaSpecs": {"Master": replica, "Worker": replica}, "runPolicy": {"suspend": True}},
    }


def _master_pod(job: dict[str, Any]) -> dict[str, Any]:
    """What the training operator makes of the Master, as far as a trigger looks at it."""
    name = job["metadata"]["name"]
    labels = {
        "kftrain/managed": "true",
        "training.kubeflow.org/job-name": name,
        "training.kubeflow.org/replica-type": "master",
        "training.kubeflow.org/replica-index": "0",
    }
    owner = {
        "apiVersion": job["apiVersion"],
        "kind": job["kind"],
        "name": name,
        "uid": job["metadata"]["uid"],
        "controller": True,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{name}-master-0", "labels": labels, "ownerReferences": [owner]},
        # No scheduler of that name: the benchmark itself says how the pod fares.
        "spec": {**_pod_spec("Never"), "schedulerName": "none"},
    }


def _condition(kind: str) -> dict[str, Any]:
    now = _now()
    return {
        "type": kind,
        "status": "True",
        "reason": f"XGBoostJob{kind}",
        "message": "",
        "lastUpdateTime": now,
        "lastTransitionTime": now,
    }


def _pod_spec(restart: str) -> dict[str, Any]:
    return {"restartPolicy": restart, "containers": [{"name": "base", "image": "example/none"}]}


IDLE = Kind(
    "idle",
    "benchmarks.trigger_kinds.IdleTrigger",
    None,
    lambda _: {},
    lambda obj: {"name": obj["metadata"]["name"]},
    {},
)
OURS = Kind(
    "TrainingJobTrigger",
    "benchmarks.trigger_kinds.TimedTrainingJobTrigger",
    XGBOOSTJOBS,
    _xgboost_job,
    lambda obj: {
        "job": {
            "kind": "XGBoostJob",
            "namespace": NAMESPACE,
            "name": obj["metadata"]["name"],
            "uid": obj["metadata"]["uid"],
            "owner": "bench",
        },
        "limits": {"queue": 86400.0, "start": 1800.0, "run": 86400.0},
    },
    {"conditions": [_condition("Created"), _condition("Running"), _condition("Succeeded")]},
    {"conditions": [_condition("Created"), _condition("Suspended")]},
)
KUBERNETES_JOB = Kind(
    "KubernetesJobTrigger",
    "benchmarks.trigger_kinds.TimedJobTrigger",
    JOBS,
    lambda name: {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"suspend": True, "template": {"spec": _pod_spec("Never")}},
    },
    lambda obj: {
        "job_name": obj["metadata"]["name"],
        "job_namespace": NAMESPACE,
        "pod_names": [],
        "pod_namespace": NAMESPACE,
        "base_container_name": "base",
        "kubernetes_conn_id": "kubernetes_default",
        "get_logs": False,
    },
    {
        "conditions": [{"type": "FailureTarget", "status": "True"}, {"type": "Failed", "status": "True"}],
        "startTime": _now(),
    },
)
KUBERNETES_POD = Kind(
    "KubernetesPodTrigger",
    "benchmarks.trigger_kinds.TimedPodTrigger",
    PODS,
    lambda name: {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {**_pod_spec("Never"), "nodeName": "bench-node", "tolerations": [{"operator": "Exists"}]},
    },
    lambda obj: {
        "pod_name": obj["metadata"]["name"],
        "pod_namespace": NAMESPACE,
        "trigger_start_time": {
            "__classname__": "datetime.datetime",
            "__version__": 2,
            "__data__": {
                "timestamp": time.time(),
                "tz": {
                    "__classname__": "builtins.tuple",
                    "__version__": 1,
                    "__data__": ["UTC", "pendulum.tz.timezone.Timezone", 1, True],
                },
            },
        },
        "base_container_name": "base",
        "kubernetes_conn_id": "kubernetes_default",
        "get_logs": False,
    },
    {"phase": "Succeeded"},
    {
        "phase": "Running",
        "containerStatuses": [
            {
                "name": "base",
                "image": "example/none",
                "imageID": "",
                "restartCount": 0,
                "ready": True,
                "state": {"running": {"startedAt": _now()}},
            }
        ],
    },
)

if __name__ == "__main__":
    main()
