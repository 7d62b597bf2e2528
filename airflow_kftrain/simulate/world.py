"""The simulated cluster: free GPUs by node, gangs that run, jobs that wait; the only place where they change."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

from airflow_kftrain.exceptions import InvalidInput, KFTrainError
from airflow_kftrain.simulate.workload import Job

#: Partition of a cluster that has only one.
DEFAULT = "default"
EPSILON = 1e-6


class SimulationError(KFTrainError):
    """A policy decided what the cluster cannot do: a fault of the policy, never of the workload."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds that changes take.

    :param startup: from admission until a fresh gang works
    :param termination: from the end or preemption of a gang until its GPUs are free
    :param restart: from admission until a gang that was preempted, or failed, works again
    :param rescale: pause of work when a running gang changes its size
    :param checkpoint_every: seconds of work between checkpoints; 0 means one is written on SIGTERM
    """

    startup: float = 120.0
    termination: float = 30.0
    restart: float = 300.0
    rescale: float = 60.0
    checkpoint_every: float = 0.0


#: No costs but those of changes of mind: what the published count-level figures assume.
FREE = Costs(startup=0.0, termination=0.0)


@dataclass(frozen=True, slots=True)
class Cluster:
    """Capacity by partition.

    :param nodes: GPUs of each node, by partition
    """

    nodes: tuple[tuple[str, tuple[int, ...]], ...]

    @staticmethod
    def count(capacity: int) -> Cluster:
        """Count level: one place that holds any gang of up to ``capacity`` GPUs."""
        return Cluster.partitions({DEFAULT: capacity})

    @staticmethod
    def of_nodes(capacity: int, per_node: int = 8) -> Cluster:
        """Node level: nodes of ``per_node`` GPUs in one partition."""
        return Cluster.partitions({DEFAULT: capacity}, per_node=per_node)

    @staticmethod
    def partitions(capacity: dict[str, int], *, per_node: int | None = None) -> Cluster:
        """Several partitions; each one place, or nodes of ``per_node`` GPUs.

        :raises InvalidInput: a capacity is not a positive whole number of nodes
        """
        for name, gpus in capacity.items():
            if gpus <= 0 or gpus % (per_node or 1):
                remedy = (
                    f"give a positive multiple of {per_node}, the GPUs of a node"
                    if per_node
                    else "give 1 or more"
                )
                raise InvalidInput("capacity" if name == DEFAULT else f"capacity of {name}", gpus, remedy)
        return Cluster(
            tuple((n, (per_node,) * (g // per_node) if per_node else (g,)) for n, g in capacity.items())
        )

    @property
    def capacity(self) -> int:
        """All GPUs."""
        return sum(sum(sizes) for _, sizes in self.nodes)


@lru_cache(maxsize=4096)
def pods_of(gpus: int, largest: int) -> tuple[int, int]:
    """Pods and GPUs of each for a gang of ``gpus``: equal pods, as few as nodes of ``largest`` allow."""
    each = min(gpus, largest)
    while gpus % each:
        each -= 1
    return gpus // each, each


#: (node, GPUs on it) for each node of a gang.
Placement: TypeAlias = tuple[tuple[int, int], ...]


class Nodes:
    """Free GPUs by node; cheap to copy, so that a policy can try things."""

    __slots__ = ("_partitions", "_sizes", "free", "total")

    def __init__(self, cluster: Cluster) -> None:
        self.free: list[int] = [size for _, sizes in cluster.nodes for size in sizes]
        self.total = sum(self.free)
        self._sizes = tuple(self.free)
        self._partitions: dict[str, range] = {}
        start = 0
        for name, sizes in cluster.nodes:
            self._partitions[name] = range(start, start + len(sizes))
            start += len(sizes)

    def copy(self) -> Nodes:
        """The same free GPUs, to be changed apart."""
        made = Nodes.__new__(Nodes)
        made.free = self.free.copy()
        made.total = self.total
        made._sizes = self._sizes
        made._partitions = self._partitions
        return made

    @property
    def partitions(self) -> Sequence[str]:
        """Names of the partitions."""
        return tuple(self._partitions)

    def range_of(self, partition: str) -> range:
        """Indices of the nodes of a partition."""
        return self._partitions[partition]

    def largest_node(self, partition: str = DEFAULT) -> int:
        """GPUs of a node of the partition."""
        return self._sizes[self._partitions[partition].start]

    def place(self, gpus: int, partition: str = DEFAULT) -> Placement | None:
        """Best fit: the fullest nodes that still take the pods; None when the gang does not fit."""
        if gpus > self.total:
            return None
        where = self._partitions[partition]
        pods, each = pods_of(gpus, self._sizes[where.start])
        free = self.free
        if len(where) == 1:
            return ((where.start, gpus),) if free[where.start] >= gpus else None
        if pods == 1:
            best = min((n for n in where if free[n] >= each), key=free.__getitem__, default=None)
            return None if best is None else ((best, each),)
        return self._place_many(pods, each, where)

    def _place_many(self, pods: int, each: int, where: range) -> Placement | None:
        chosen: list[tuple[int, int]] = []
        for node in sorted((n for n in where if self.free[n] >= each), key=self.free.__getitem__):
            here = min(pods, self.free[node] // each)
            chosen.append((node, here * each))
            pods -= here
            if not pods:
                return tuple(chosen)
        return None

    def fits(self, gpus: int, partition: str = DEFAULT) -> bool:
        """Whether the gang could start now."""
        return self.place(gpus, partition) is not None

    def take(self, placement: Placement) -> None:
        """Charge a gang to its nodes."""
        for node, gpus in placement:
            self.free[node] -= gpus
            self.total -= gpus

    def release(self, placement: Placement) -> None:
        """Give its GPUs back."""
        for node, gpus in placement:
            self.free[node] += gpus
            self.total += gpus

    def holds(self, placement: Placement) -> bool:
        """Whether the nodes have room for it."""
        return all(self.free[node] >= gpus for node, gpus in placement)

    def check(self) -> None:
        """Raise where a node is charged with more than it has, or with less than nothing."""
        for node, (free, size) in enumerate(zip(self.free, self._sizes, strict=True)):
            if not 0 <= free <= size:
                raise SimulationError(f"node {node} of {size} GPUs has {free} free")


@dataclass(slots=True)
class Gang:
    """A job that holds GPUs.

    :param works_from: instant from which work progresses at ``rate``
    :param done: seconds of work done by then
    """

    job: int
    gpus: int
    placement: Placement
    partition: str
    admitted: float
    works_from: float
    rate: float
    done: float
    done_at_admission: float
    resized: float = -1e18
    freed_at: float = 0.0

    def done_by(self, now: float) -> float:
        """Seconds of work done."""
        return self.done + max(0.0, now - self.works_from) * self.rate


@dataclass(slots=True)
class Record:
    """What happened to one job; times in seconds, GPU-seconds for what was lost.

    :param eta: p10, p50 and p90 of the start, as told when the job was submitted
    """

    first_start: float | None = None
    end: float | None = None
    waited: float = 0.0
    admissions: int = 0
    preemptions: int = 0
    rescales: int = 0
    failures: int = 0
    lost: float = 0.0
    eta: tuple[float, float, float] | None = None


@dataclass(slots=True)
class World:
    """State at one instant. Policies read it; only the engine calls what changes it."""

    jobs: tuple[Job, ...]
    cluster: Cluster
    costs: Costs
    now: float = 0.0
    nodes: Nodes = field(init=False)
    waiting: list[int] = field(default_factory=list)
    gangs: dict[int, Gang] = field(default_factory=dict)
    ending: dict[int, Gang] = field(default_factory=dict)
    records: list[Record] = field(init=False)
    kept: list[float] = field(init=False)
    served: list[float] = field(init=False)
    queued_since: list[float] = field(init=False)
    waiting_shapes: Counter[tuple[int, str]] = field(default_factory=Counter)
    single: bool = field(init=False)

    def __post_init__(self) -> None:
        self.nodes = Nodes(self.cluster)
        self.records = [Record() for _ in self.jobs]
        self.kept = [0.0] * len(self.jobs)
        self.served = [0.0] * len(self.jobs)
        self.queued_since = [job.submit for job in self.jobs]
        self.single = len(self.nodes.partitions) == 1

    def home(self, job: int) -> str:
        """The partition that a job was submitted to."""
        return DEFAULT if self.single else self.jobs[job].group

    def remaining(self, job: int) -> float:
        """True seconds of work left at the requested size: for oracles and progress reports only."""
        gang = self.gangs.get(job)
        done = self.kept[job] if gang is None else gang.done_by(self.now)
        return max(0.0, self.jobs[job].duration - done)

    def attained(self, job: int) -> float:
        """GPU-seconds of service so far, also what a preemption has made worthless."""
        gang = self.gangs.get(job)
        running = 0.0 if gang is None else gang.done_by(self.now) - gang.done_at_admission
        return self.served[job] + running * self.jobs[job].gpus

    def elapsed(self, job: int) -> float:
        """Seconds since the present admission began to work, plus work kept from earlier ones."""
        gang = self.gangs[job]
        return gang.done_at_admission + max(0.0, self.now - gang.admitted)

    # -- what the engine does ------------------------------------------------------------------------------

    def enqueue(self, job: int) -> None:
        """Let a job wait, at the rank of its submission."""
        bisect.insort(self.waiting, job)
        self.waiting_shapes[self.jobs[job].gpus, self.home(job)] += 1

    def start(self, job: int, *, gpus: int, partition: str, placement: Placement | None) -> Gang:
        """Admit a waiting job."""
        at = bisect.bisect_left(self.waiting, job)
        if at == len(self.waiting) or self.waiting[at] != job:
            raise SimulationError(f"job {self.jobs[job].id} does not wait and cannot start")
        found = placement or self.nodes.place(gpus, partition)
        if found is None:
            raise SimulationError(f"job {self.jobs[job].id} of {gpus} GPUs does not fit into {partition}")
        if not self.nodes.holds(found) or sum(held for _, held in found) != gpus:
            raise SimulationError(f"job {self.jobs[job].id} of {gpus} GPUs cannot be placed on {found}")
        self.nodes.take(found)
        del self.waiting[at]
        self._drop_shape(job)
        record = self.records[job]
        record.waited += self.now - self.queued_since[job]
        record.first_start = self.now if record.first_start is None else record.first_start
        pause = self.costs.restart if record.admissions else self.costs.startup
        record.lost += pause * gpus if record.admissions else 0.0
        record.admissions += 1
        rate, kept = self.jobs[job].rate(gpus), self.kept[job]
        gang = Gang(job, gpus, found, partition, self.now, self.now + pause, rate, kept, kept)
        self.gangs[job] = gang
        return gang

    def preempt(self, job: int) -> None:
        """Suspend a gang; it waits again, and its GPUs are free, from :meth:`free` on."""
        gang = self._end(job)
        record = self.records[job]
        record.preemptions += 1
        self._keep(gang, record)

    def fail(self, job: int) -> None:
        """Let a gang's attempt fail; the job waits again, at its old rank, from :meth:`free` on."""
        gang = self._end(job)
        record = self.records[job]
        record.failures += 1
        self._keep(gang, record)

    def finish(self, job: int) -> None:
        """End a gang whose work is done."""
        self._end(job)
        self.records[job].end = self.now

    def resize(self, job: int, gpus: int, placement: Placement | None = None) -> Gang:
        """Change the size of a running gang within its partition."""
        gang = self.gangs[job]
        done = gang.done_by(self.now)
        self.nodes.release(gang.placement)
        placement = placement or self.nodes.place(gpus, gang.partition)
        if placement is None or not self.nodes.holds(placement):
            raise SimulationError(f"job {self.jobs[job].id} cannot be resized to {gpus} GPUs")
        self.nodes.take(placement)
        pause = self.costs.rescale
        gang.placement, gang.gpus = placement, gpus
        gang.done, gang.works_from = done, max(gang.works_from, self.now + pause)
        gang.rate = self.jobs[job].rate(gpus)
        gang.resized = self.now
        self.records[job].rescales += 1
        self.records[job].lost += pause * gpus
        return gang

    def free(self, job: int) -> None:
        """Give back the GPUs of a gang that has terminated; a job that is not done waits again."""
        gang = self.ending.pop(job)
        self.nodes.release(gang.placement)
        if self.records[job].end is None:
            self.enqueue(job)

    def fits_any_waiting(self) -> bool:
        """Whether a waiting gang would fit as things are."""
        return any(self.nodes.fits(gpus, home) for gpus, home in self.waiting_shapes)

    def used(self) -> int:
        """GPUs that are charged."""
        return self.cluster.capacity - self.nodes.total

    def check(self) -> None:
        """Raise unless charges of nodes and gangs agree and no node is overcharged."""
        self.nodes.check()
        charged = sum(g.gpus for held in (self.gangs, self.ending) for g in held.values())
        if charged != self.used():
            raise SimulationError(f"gangs hold {charged} GPUs, nodes are charged with {self.used()}")

    def _drop_shape(self, job: int) -> None:
        shape = self.jobs[job].gpus, self.home(job)
        self.waiting_shapes[shape] -= 1
        if not self.waiting_shapes[shape]:
            del self.waiting_shapes[shape]

    def _end(self, job: int) -> Gang:
        gang = self.gangs.pop(job)
        self.queued_since[job] = self.now
        gang.freed_at = self.now + self.costs.termination
        self.ending[job] = gang
        self.served[job] += (gang.done_by(self.now) - gang.done_at_admission) * self.jobs[job].gpus
        return gang

    def _keep(self, gang: Gang, record: Record) -> None:
        """Work that survives the end of an admission."""
        done, every = gang.done_by(self.now), self.costs.checkpoint_every
        kept = done if not every else done // every * every
        kept = max(kept, gang.done_at_admission) if self.jobs[gang.job].resumable else 0.0
        record.lost += (done - kept) * self.jobs[gang.job].gpus
        self.kept[gang.job] = kept
