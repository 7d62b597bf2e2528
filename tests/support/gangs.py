"""Builders for scheduling tests: partitions, requests and running gangs with only what a test is about."""

from __future__ import annotations

from typing import Any

from airflow_kftrain.jobs.resources import Resources
from airflow_kftrain.scheduling.decisions import Start
from airflow_kftrain.scheduling.model import (
    Costs,
    Estimate,
    Node,
    Partition,
    Placement,
    PodSet,
    Request,
    Running,
    Snapshot,
)

GPU = "nvidia.com/gpu"
FREE = Costs(startup=0.0, termination=0.0, restart=0.0, rescale=0.0)
HOUR = 3600.0


def gpus(count: int) -> Resources:
    return Resources({GPU: count})


def count_level(capacity: int, name: str = "p", **more: Any) -> Partition:
    """A partition that is one place."""
    return Partition(name, (Node("all", gpus(capacity)),), **more)


def of_nodes(nodes: int, each: int, name: str = "p", **more: Any) -> Partition:
    return Partition(name, tuple(Node(f"{name}-{i}", gpus(each)) for i in range(nodes)), **more)


def request(
    id: str,  # noqa: A002
    width: int = 1,
    seconds: float = HOUR,
    *,
    pods: int = 1,
    submitted: float = 0.0,
    partition: str = "p",
    **more: Any,
) -> Request:
    """A gang of ``pods`` workers with ``width`` GPUs in all, which surely runs ``seconds``."""
    more.setdefault("estimate", Estimate.exactly(seconds))
    more.setdefault("podsets", (PodSet("Worker", pods, gpus(width // pods)),))
    return Request(id=id, partition=partition, submitted=submitted, **more)


def running(gang: Request, *nodes: tuple[str, int], since: float = 0.0, **more: Any) -> Running:
    """``gang`` on ``nodes``: (name, number of its workers)."""
    placed = tuple(Placement("Worker", node, count) for node, count in nodes)
    more.setdefault("partition", gang.partition)
    return Running(gang, placement=placed, admitted=since, since=since, **more)


def snapshot(*partitions: Partition, now: float = 0.0, queue: Any = (), **more: Any) -> Snapshot:
    more.setdefault("costs", FREE)
    return Snapshot(now, tuple(partitions), tuple(queue), **more)


def started(start: Start, gang: Request, now: float) -> Running:
    """What runs after ``start`` was carried out."""
    return Running(
        gang, start.partition, start.placement, now, since=now, size=start.size, window=start.window
    )
