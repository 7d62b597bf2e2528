"""From the request to the whole gang running: our operator's code beside the bare API calls.

Both create the same XGBoostJob (one Master, three Workers) on the same local cluster and wait until all four pods run:
once as a task does (names, ownership, state store calls left out, shared watch, gang state from pods), once with
nothing but POST and a watch. What either waits for beyond the API (controllers, binder, kubelet) is the same.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from typing import Any

from rich.console import Console
from rich.table import Table

from airflow_kftrain.cluster.client import Cluster
from airflow_kftrain.cluster.resources import PODS, XGBOOSTJOBS
from airflow_kftrain.cluster.shared import SharedWatches
from airflow_kftrain.jobs.frameworks import framework
from airflow_kftrain.jobs.identity import JOB_NAME, TaskKey
from airflow_kftrain.jobs.manifest import from_manifest
from airflow_kftrain.operators.submission import Submission, named
from airflow_kftrain.testing import local_cluster
from airflow_kftrain.triggers.events import JobRef
from airflow_kftrain.triggers.observer import Observer, Wishes

NAMESPACE = "default"
GANG = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    with local_cluster(nodes=1) as running:
        bare, ours = asyncio.run(_measure(str(running.kubeconfig), rounds))
    table = Table(
        "create → whole gang running",
        "p50 s",
        "max s",
        "of bare",
        title=f"{GANG} pods, {rounds} rounds, in turn",
    )
    for name, times in (("bare API calls", bare), ("operator and trigger", ours)):
        ratio = statistics.median(times) / statistics.median(bare)
        table.add_row(name, f"{statistics.median(times):.3f}", f"{max(times):.3f}", f"{ratio:.2f}")
    Console().print(table)


async def _measure(kubeconfig: str, rounds: int) -> tuple[list[float], list[float]]:
    bare, ours = [], []
    async with Cluster.from_kubeconfig(kubeconfig) as cluster:
        for number in range(rounds + 1):
            for times, run in ((bare, _bare), (ours, _as_a_task)):
                spent = await run(cluster, kubeconfig, number)
                if number:  # the first round opens connections and loads code
                    times.append(spent)
    return bare, ours


def _manifest(name: str) -> dict[str, Any]:
    container = {"name": "xgboost", "image": "bench/sleep", "command": ["sleep", "60"]}
    template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}
    replicas = {"Master": 1, "Worker": GANG - 1}
    specs = {
        kind: {"replicas": n, "restartPolicy": "Never", "template": template} for kind, n in replicas.items()
    }
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "XGBoostJob",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"xgbReplicaSpecs": specs},
    }


async def _bare(cluster: Cluster, _: str, number: int) -> float:
    name, running = f"bare-{number}", set()
    listed = await cluster.list(PODS, NAMESPACE, label_selector=f"{JOB_NAME}={name}")
    start = time.perf_counter()
    await cluster.create(XGBOOSTJOBS, _manifest(name), NAMESPACE)
    changes = cluster.watch(
        PODS, NAMESPACE, resource_version=listed.resource_version, label_selector=f"{JOB_NAME}={name}"
    )
    async for event in changes:
        if event.object.get("status", {}).get("phase") == "Running":
            running.add(event.object["metadata"]["name"])
        if len(running) == GANG:
            break
    spent = time.perf_counter() - start
    await changes.aclose()  # type: ignore[attr-defined]
    await cluster.delete(XGBOOSTJOBS, name, NAMESPACE)
    return spent


async def _as_a_task(cluster: Cluster, kubeconfig: str, number: int) -> float:
    whole = asyncio.Event()

    def say(line: str) -> None:
        if line.startswith("The gang is whole"):
            whole.set()

    key = TaskKey("bench", "gang", f"run-{number}", 1)
    start = time.perf_counter()
    spec = named(from_manifest(_manifest("bench"), warn=False), key, f"token-{number}", NAMESPACE)
    jobs = Submission(cluster, XGBOOSTJOBS, NAMESPACE, key, f"token-{number}", say=say)
    job = await jobs.create(spec)
    metadata = job["metadata"]
    ref = JobRef(
        framework("XGBoostJob").kind, NAMESPACE, metadata["name"], metadata["uid"], f"token-{number}"
    )
    observer = Observer(
        ref,
        Wishes(logs=("none",)),
        connect=lambda: Cluster.from_kubeconfig(kubeconfig),
        identity=f"bench-{number}",
        say=say,
        watches=SharedWatches(),
    )
    following = asyncio.create_task(observer.run())
    await whole.wait()
    spent = time.perf_counter() - start
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    await cluster.delete(XGBOOSTJOBS, metadata["name"], NAMESPACE)
    return spent


if __name__ == "__main__":
    main()
