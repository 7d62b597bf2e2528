"""What ``kftrain local status`` shows, as values."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_kftrain.cluster.client import Cluster
from airflow_kftrain.cluster.resources import NODES, PODS, PYTORCHJOBS, TFJOBS, XGBOOSTJOBS, Resource
from airflow_kftrain.jobs.resources import Resources
from airflow_kftrain.local.placement import effective_request

_FINAL = ("Succeeded", "Failed")
_JOBS: tuple[Resource, ...] = (TFJOBS, PYTORCHJOBS, XGBOOSTJOBS)


@dataclass(frozen=True)
class NodeOverview:
    """One node; GPUs in use are those of pods that are not over."""

    name: str
    ready: bool
    gpus: int
    gpus_used: int
    pods: int


@dataclass(frozen=True)
class JobOverview:
    """One training job; ``state`` is its last condition that is true."""

    kind: str
    namespace: str
    name: str
    state: str
    running: int
    pods: int


@dataclass(frozen=True)
class Overview:
    """A cluster at one moment.

    :param pods: how many pods there are in each phase
    """

    url: str
    nodes: tuple[NodeOverview, ...]
    jobs: tuple[JobOverview, ...]
    pods: Mapping[str, int]


def overview(kubeconfig: Path) -> Overview:
    """Ask the cluster that ``kubeconfig`` leads to."""
    content = json.loads(kubeconfig.read_text())
    return asyncio.run(_ask(kubeconfig, content["clusters"][0]["cluster"]["server"]))


async def _ask(kubeconfig: Path, url: str) -> Overview:
    async with Cluster.from_kubeconfig(str(kubeconfig), timeout=10.0) as cluster:
        nodes, pods, *jobs = await asyncio.gather(
            cluster.list(NODES), cluster.list(PODS), *(cluster.list(resource) for resource in _JOBS)
        )
    return summarize(
        url,
        nodes.items,
        pods.items,
        [job for listed in jobs for job in listed.items],
    )


def summarize(
    url: str, nodes: list[dict[str, Any]], pods: list[dict[str, Any]], jobs: list[dict[str, Any]]
) -> Overview:
    """The overview of what was listed; pure."""
    phases: dict[str, int] = {}
    for pod in pods:
        phase = pod.get("status", {}).get("phase", "Unknown")
        phases[phase] = phases.get(phase, 0) + 1
    return Overview(
        url, tuple(_node(node, pods) for node in nodes), tuple(_job(job, pods) for job in jobs), phases
    )


def _node(node: dict[str, Any], pods: list[dict[str, Any]]) -> NodeOverview:
    name = node["metadata"]["name"]
    here = [p for p in pods if p["spec"].get("nodeName") == name]
    active = [p for p in here if p.get("status", {}).get("phase") not in _FINAL]
    conditions = node.get("status", {}).get("conditions") or ()
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    capacity = Resources(node.get("status", {}).get("allocatable"))
    used = Resources.total(effective_request(pod) for pod in active)
    return NodeOverview(name, ready, capacity.gpus, used.gpus, len(active))


def _job(job: dict[str, Any], pods: list[dict[str, Any]]) -> JobOverview:
    meta = job["metadata"]
    mine = [
        p
        for p in pods
        if any(o.get("uid") == meta["uid"] for o in p["metadata"].get("ownerReferences") or ())
    ]
    running = sum(p.get("status", {}).get("phase") == "Running" for p in mine)
    true = [c["type"] for c in job.get("status", {}).get("conditions") or () if c.get("status") == "True"]
    final = [kind for kind in ("Failed", "Succeeded") if kind in true]
    state = (final or true[-1:] or ["Submitted"])[0]
    return JobOverview(job["kind"], meta["namespace"], meta["name"], state, running, len(mine))
