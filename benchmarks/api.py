"""How fast the local API server is: ``python -m benchmarks.api``.

Each figure stands beside the same client's figure against a bare aiohttp server that echoes over the same TLS in the
same run, so that machines of different speed can be compared. Server and client are two processes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import ssl
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import aiohttp
import psutil

Json = dict[str, Any]
JOBS = "/apis/kubeflow.org/v1/namespaces/default/xgboostjobs"
AIM_CREATES, AIM_LATENCY_MS = 1000.0, 50.0
_START_SECONDS = 60


@dataclass(frozen=True)
class Reached:
    """How to reach a server."""

    url: str
    token: str
    ca_file: str


def _serve(directory: str, ready: Any, stop: Event) -> None:
    """The local API server and the echo beside it, each on a port of its own."""
    from aiohttp import web

    from airflow_kftrain.local.apiserver import ApiServer
    from airflow_kftrain.local.apiserver.security import credentials

    async def echo(request: web.Request) -> web.Response:
        return web.Response(body=await request.read(), content_type="application/json")

    async def main() -> None:
        server = ApiServer(Path(directory))
        await server.start()
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", echo)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        context = credentials(Path(directory), "127.0.0.1").server_context()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        echo_url = f"https://127.0.0.1:{runner.addresses[0][1]}"
        ready.put((server.url, echo_url, server.token, str(server.ca_file)))
        await asyncio.to_thread(stop.wait)
        await runner.cleanup()
        await server.stop()

    asyncio.run(main())


def job(name: str) -> Json:
    """An XGBoostJob of usual size."""
    container = {
        "name": "xgboost",
        "image": "acme/train:1",
        "command": ["python", "train.py"],
        "env": [{"name": f"V{i}", "value": "x" * 20} for i in range(5)],
        "resources": {"limits": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}},
    }
    replica = {"replicas": 1, "restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "XGBoostJob",
        "metadata": {"name": name, "labels": {"bench": "1"}},
        "spec": {"xgbReplicaSpecs": {"Master": replica, "Worker": {**replica, "replicas": 2}}},
    }


def _session(reached: Reached, connections: int) -> aiohttp.ClientSession:
    context = ssl.create_default_context(cafile=reached.ca_file)
    headers = {"Authorization": f"Bearer {reached.token}", "Content-Type": "application/json"}
    connector = aiohttp.TCPConnector(ssl=context, limit=connections)
    return aiohttp.ClientSession(reached.url, headers=headers, connector=connector)


async def posts_per_second(reached: Reached, prefix: str, count: int, clients: int) -> float:
    """POSTs of jobs that ``clients`` make one after another, each on its own connection."""
    bodies = [json.dumps(job(f"{prefix}-{i}")).encode() for i in range(count)]
    async with _session(reached, clients) as session:

        async def post(body: bytes) -> None:
            async with session.post(JOBS, data=body) as answer:
                await answer.read()
                answer.raise_for_status()

        async def client(own: list[bytes]) -> None:
            for body in own:
                await post(body)

        await asyncio.gather(*(post(json.dumps(job(f"{prefix}-warm-{i}")).encode()) for i in range(clients)))
        start = time.perf_counter()
        await asyncio.gather(*(client(bodies[i::clients]) for i in range(clients)))
        return count / (time.perf_counter() - start)


async def watch_latency(reached: Reached, watchers: int, changes: int) -> list[float]:
    """Milliseconds from the sending of each change until the last watcher has it."""
    async with _session(reached, watchers + 4) as session:
        async with session.get(JOBS, params={"limit": "1"}) as answer:
            version = (await answer.json())["metadata"]["resourceVersion"]
        arrivals: dict[str, list[float]] = {}
        ready, everyone = asyncio.Semaphore(0), asyncio.Event()

        async def watcher() -> None:
            params = {"watch": "1", "resourceVersion": version, "labelSelector": "bench=latency"}
            timeout = aiohttp.ClientTimeout(total=600)
            async with session.get(JOBS, params=params, timeout=timeout) as stream:
                ready.release()
                async for line in stream.content:
                    now = time.perf_counter()
                    name = json.loads(line)["object"]["metadata"]["name"]
                    times = arrivals.setdefault(name, [])
                    times.append(now)
                    if len(times) == watchers:
                        everyone.set()

        tasks = [asyncio.create_task(watcher()) for _ in range(watchers)]
        for _ in range(watchers):
            await ready.acquire()
        latencies = []
        for number in range(changes):
            obj = job(f"latency-{watchers}-{number}")
            obj["metadata"]["labels"] = {"bench": "latency"}
            everyone.clear()
            sent = time.perf_counter()
            async with session.post(JOBS, data=json.dumps(obj)) as answer:
                answer.raise_for_status()
                await answer.read()
            await asyncio.wait_for(everyone.wait(), 60)
            latencies.append((max(arrivals[obj["metadata"]["name"]]) - sent) * 1000)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return latencies


async def round_trip(reached: Reached, count: int) -> list[float]:
    """Milliseconds of single POSTs to the echo."""
    async with _session(reached, 1) as session:
        body, latencies = json.dumps(job("echo")).encode(), []
        for _ in range(count):
            sent = time.perf_counter()
            async with session.post(JOBS, data=body) as answer:
                await answer.read()
            latencies.append((time.perf_counter() - sent) * 1000)
        return latencies


def percentile(values: list[float], share: float) -> float:
    """The value that ``share`` of ``values`` do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def cpu_per_post(reached: Reached, pid: int, prefix: str, count: int) -> float:
    """Microseconds of the server's processor that one POST costs; hardly depends on what else the machine does."""
    server = psutil.Process(pid)
    before = server.cpu_times()
    await posts_per_second(reached, prefix, count, 1)
    after = server.cpu_times()
    return (after.user + after.system - before.user - before.system) / count * 1e6


async def measure(api: Reached, echo: Reached, pid: int, *, creates: int, changes: int) -> list[Json]:
    """All figures, as rows of name, value, unit, reference and aim."""
    rows: list[Json] = []
    for clients in (1, 16):
        reference = await posts_per_second(echo, f"e{clients}", creates, clients)
        rate = await posts_per_second(api, f"c{clients}", creates, clients)
        aim = AIM_CREATES if clients == 1 else None
        plural = "client" if clients == 1 else "clients"
        rows.append(_row(f"creates, {clients} {plural}", rate, "/s", reference, aim))
    reference = await cpu_per_post(echo, pid, "ecpu", creates)
    rows.append(
        _row("server's CPU per create", await cpu_per_post(api, pid, "ccpu", creates), "µs", reference, None)
    )
    base = await round_trip(echo, changes)
    for watchers in (1, 100):
        latencies = await watch_latency(api, watchers, changes)
        name = f"watch latency, {watchers} watcher{'s' if watchers > 1 else ''}"
        rows.append(_row(f"{name}, p50", statistics.median(latencies), "ms", statistics.median(base), None))
        reference = percentile(base, 0.99)
        rows.append(_row(f"{name}, p99", percentile(latencies, 0.99), "ms", reference, AIM_LATENCY_MS))
    return rows


def _row(name: str, value: float, unit: str, reference: float, aim: float | None) -> Json:
    return {
        "name": name,
        "value": value,
        "unit": unit,
        "echo": reference,
        "ratio": value / reference,
        "aim": aim,
    }


def main() -> None:
    """Measure and print; ``--json`` for machines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--creates", type=int, default=2000, help="POSTs of each rate")
    parser.add_argument("--changes", type=int, default=300, help="changes of each latency")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    ready, stop = context.Queue(), context.Event()
    with tempfile.TemporaryDirectory() as directory:
        server = context.Process(target=_serve, args=(directory, ready, stop))
        server.start()
        try:
            url, echo_url, token, ca_file = ready.get(timeout=_START_SECONDS)
            api, echo = Reached(url, token, ca_file), Reached(echo_url, token, ca_file)
            work = measure(api, echo, server.pid or 0, creates=options.creates, changes=options.changes)
            rows = asyncio.run(work)
        finally:
            stop.set()
            server.join(_START_SECONDS)
    if options.json:
        json.dump(rows, sys.stdout, indent=2)
        return
    load = ", ".join(f"{value:.1f}" for value in psutil.getloadavg())
    print(f"{psutil.cpu_count()} processors, load {load}")
    for row in rows:
        aim = f"   aim {row['aim']:g}" if row["aim"] is not None else ""
        print(
            f"{row['name']:<34}{row['value']:>10.1f} {row['unit']:<3}"
            f"  echo {row['echo']:>8.1f}  ratio {row['ratio']:5.2f}{aim}"
        )


if __name__ == "__main__":
    main()
