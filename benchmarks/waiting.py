"""What waiting costs: CPU, memory and connections of one process with many triggers on jobs whose gangs are not up.

The API server is a process of its own. Run: ``python -m benchmarks.waiting [TRIGGERS]``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import psutil

SETTLE, MEASURE = 30.0, 20.0

SERVER = """
import asyncio, sys
from pathlib import Path
from airflow_kftrain.local.apiserver import ApiServer

async def main(directory):
    server = ApiServer(directory / "api")
    await server.start()
    server.write_kubeconfig(directory / "kubeconfig")
    print("up", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop()

asyncio.run(main(Path(sys.argv[1])))
"""


async def measure(kubeconfig: Path, count: int) -> dict[str, float]:
    """Start ``count`` triggers, let them settle, and watch them wait."""
    from airflow_kftrain.cluster.client import Cluster
    from airflow_kftrain.cluster.resources import resource_of
    from airflow_kftrain.jobs.frameworks import XGBOOST
    from airflow_kftrain.jobs.identity import TaskKey
    from airflow_kftrain.jobs.manifest import from_manifest
    from airflow_kftrain.operators.arguments import Arguments, build
    from airflow_kftrain.operators.submission import Submission, named
    from airflow_kftrain.triggers.events import JobRef
    from airflow_kftrain.triggers.training_job import TrainingJobTrigger

    process = psutil.Process()
    silent = logging.getLogger("benchmark")
    silent.addHandler(logging.NullHandler())
    silent.propagate = False
    spec = from_manifest(build(Arguments(XGBOOST, image="i", counts={"Master": 1, "Worker": 3})))
    triggers = []
    async with Cluster.from_kubeconfig(str(kubeconfig)) as cluster:
        for number in range(count):
            key, token = TaskKey("d", f"t{number}", "r", 1), f"token-{number}"
            submission = Submission(cluster, resource_of(XGBOOST), "default", key, token, say=silent.info)
            meta = (await submission.create(named(spec, key, token, "default")))["metadata"]
            ref = JobRef(XGBOOST.kind, "default", meta["name"], meta["uid"], token)
            trigger = TrainingJobTrigger(asdict(ref), limits={"start": 36000.0})
            trigger._log = silent
            triggers.append(trigger)
    memory = process.memory_info().rss
    waiting = [asyncio.ensure_future(anext(aiter(trigger.run()))) for trigger in triggers]
    await asyncio.sleep(SETTLE)
    cpu = time.process_time()
    await asyncio.sleep(MEASURE)
    result = {
        "cores while waiting": (time.process_time() - cpu) / MEASURE,
        "MB for all triggers": (process.memory_info().rss - memory) / 2**20,
        "connections": float(len(process.net_connections())),
        "ended early": float(sum(task.done() for task in waiting)),
    }
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    return result


def main(count: int) -> None:
    """Run the benchmark and print its figures."""
    with tempfile.TemporaryDirectory(prefix="kftrain-waiting-") as name:
        directory = Path(name)
        os.environ.setdefault("AIRFLOW_HOME", str(directory / "airflow"))
        server = subprocess.Popen(
            [sys.executable, "-c", SERVER, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdout.readline()
        connection = {"conn_type": "kubernetes", "extra": {"kube_config_path": str(directory / "kubeconfig")}}
        os.environ["AIRFLOW_CONN_KUBERNETES_DEFAULT"] = json.dumps(connection)
        try:
            figures = asyncio.run(measure(directory / "kubeconfig", count))
        finally:
            server.stdin.close()
            server.wait(30)
    print(f"{count} waiting triggers")
    for name, figure in figures.items():
        print(f"  {name}: {figure:.3g}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
