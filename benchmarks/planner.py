"""How long one plan takes: by queued gangs, nodes and partitions, with the memory it needs.

A cluster in use is planned again and again as in production: each plan sees the same frozen requests, a clock that has
moved on, and a queue in which a few gangs are new. Run by ``make bench-planner``; processor time, so that neighbours on
the machine do not count.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
import tracemalloc
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from airflow_kftrain.jobs.resources import Resources
from airflow_kftrain.scheduling.model import (
    NEVER,
    Estimate,
    Node,
    Partition,
    PodSet,
    Request,
    Running,
    Snapshot,
)
from airflow_kftrain.scheduling.planner import plan
from airflow_kftrain.scheduling.settings import PlannerSettings

HOUR = 3600.0
WIDTHS, CHANCES = (1, 2, 4, 8, 16, 32, 64), (0.45, 0.12, 0.13, 0.18, 0.06, 0.04, 0.02)
AIMS = {10_000: 0.1, 100_000: 0.5}  # seconds, p99


@dataclass(frozen=True)
class Size:
    """One row of the benchmark."""

    gangs: int
    nodes: int = 64
    partitions: int = 1
    node_level: bool = True


def sizes() -> list[Size]:
    """The rows: growth with gangs, then nodes, then partitions."""
    return [
        *(Size(gangs) for gangs in (300, 1_000, 10_000, 100_000)),
        *(Size(gangs, node_level=False) for gangs in (300, 10_000)),
        *(Size(10_000, nodes=nodes) for nodes in (16, 256, 1024)),
        *(Size(10_000, nodes=256, partitions=partitions) for partitions in (4, 16)),
    ]


def amount(gpus: int) -> Resources:
    """GPUs with the processors and memory that usually come with them."""
    return Resources({"nvidia.com/gpu": gpus, "cpu": 8 * gpus, "memory": f"{64 * gpus}Gi"})


def partitions_of(size: Size) -> tuple[Partition, ...]:
    """Partitions of 8-GPU nodes, or one place each."""
    each = size.nodes // size.partitions
    made = []
    for number in range(size.partitions):
        name = f"p{number}"
        nodes = [Node(f"{name}-{n}", amount(8)) for n in range(each)]
        made.append(Partition(name, tuple(nodes) if size.node_level else (Node(name, amount(8 * each)),)))
    return tuple(made)


def requests_of(size: Size, draw: np.random.Generator) -> list[Request]:
    """Gangs with widths and lengths as public traces have them; a third has a deadline."""
    shapes = {w: (PodSet("Worker", max(1, w // 8), amount(min(w, 8))),) for w in WIDTHS}
    widths = draw.choice(WIDTHS, size.gangs, p=CHANCES)
    seconds = np.exp(draw.normal(7.5, 1.8, size.gangs)).clip(60, 3e5)
    made = []
    for number, (width, p50) in enumerate(zip(widths, seconds, strict=True)):
        due = number % 3 == 0
        made.append(
            Request(
                id=f"g{number:06d}",
                partition=f"p{number % size.partitions}",
                podsets=shapes[int(width)],
                submitted=-float(draw.uniform(0, 48 * HOUR)),
                estimate=Estimate(p50 / 2, p50, p50 * 1.6, p50 * 2, runs=10),
                deadline=float(p50 * draw.uniform(1.5, 6)) if due else NEVER,
                share=f"dag{number % 50}",
            )
        )
    return made


def measure(size: Size, plans: int) -> dict[str, float]:
    """Processor seconds of ``plans`` plans of a busy cluster, and the memory that one holds at its peak."""
    draw = np.random.default_rng(1)
    queue = requests_of(size, draw)
    by_id = {request.id: request for request in queue}
    partitions, now = partitions_of(size), 0.0
    running: dict[str, Running] = {}
    spent: list[float] = []
    started = 0
    for turn in range(plans + 1):
        seen = Snapshot(
            now, partitions, tuple(queue), tuple(running.values()), shares={f"dag{n}": 1.0 for n in range(50)}
        )
        if turn == 1:
            tracemalloc.start()
            plan(seen)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        began = time.process_time()
        made = plan(seen)
        spent.append(time.process_time() - began)
        for start in made.starts:
            running[start.request] = Running(by_id[start.request], start.partition, start.placement, now, now)
        gone = {start.request for start in made.starts}
        started += len(gone)
        queue = [request for request in queue if request.id not in gone]
        now += 60.0
        ended = [name for name, gang in running.items() if gang.admitted + gang.request.estimate.p50 <= now]
        for name in ended:
            del running[name]
        queue += [
            dataclasses.replace(by_id[name], id=f"{name}.{turn}", submitted=now) for name in sorted(gone)
        ]
        by_id.update({request.id: request for request in queue[-len(gone) :]} if gone else {})
    first, usual = spent[0], np.array(spent[1:])
    return {
        "first_ms": 1e3 * first,
        "p50_ms": 1e3 * float(np.median(usual)),
        "p99_ms": 1e3 * float(np.quantile(usual, 0.99)),
        "peak_mib": peak / 2**20,
        "starts": started,
    }


def main() -> int:
    """Measure, print, and say whether the aims are met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plans", type=int, default=100, help="plans of each row")
    parser.add_argument("--json", action="store_true", help="print JSON lines")
    given = parser.parse_args()
    console = Console()
    table = Table(
        title=f"One plan (depth limit {PlannerSettings().depth:,} gangs a partition)", title_justify="left"
    )
    for column in (
        "gangs",
        "nodes",
        "partitions",
        "level",
        "first ms",
        "p50 ms",
        "p99 ms",
        "peak MiB",
        "aim p99 ms",
    ):
        table.add_column(column, justify="right")
    missed = 0
    for size in sizes():
        found = measure(size, given.plans)
        aim = AIMS.get(size.gangs) if (size.nodes, size.partitions) == (64, 1) else None
        missed += aim is not None and found["p99_ms"] > 1e3 * aim
        if given.json:
            console.print_json(json.dumps(dataclasses.asdict(size) | found))
        table.add_row(
            f"{size.gangs:,}", str(size.nodes), str(size.partitions), "nodes" if size.node_level else "count",
            f"{found['first_ms']:.1f}", f"{found['p50_ms']:.2f}", f"{found['p99_ms']:.2f}", f"{found['peak_mib']:.1f}",
            "" if aim is None else f"{1e3 * aim:.0f}",
        )  # fmt: skip
    if not given.json:
        console.print(table)
    return int(missed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
