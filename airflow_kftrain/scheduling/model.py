"""What the planner sees: one :class:`Snapshot` of partitions, gangs, windows and claims.

All values are frozen, so that an object which has not changed is handed to the next plan as it is: what the planner
derives from it (vectors, ordering rows) is kept on it. Times are seconds since the epoch, spans are seconds,
amounts are exact (:class:`~airflow_kftrain.jobs.resources.Resources`) until the planner turns them into vectors.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.jobs.resources import Resources

NEVER = math.inf


@dataclass(frozen=True)
class Taint:
    """A node's taint; only ``NoSchedule`` and ``NoExecute`` keep pods away."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True)
class Toleration:
    """A pod's toleration, with Kubernetes' matching rule (an empty key with ``Exists`` tolerates everything)."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Whether this toleration covers ``taint``."""
        if self.effect and self.effect != taint.effect:
            return False
        if not self.key:
            return self.operator == "Exists"
        return self.key == taint.key and (self.operator == "Exists" or self.value == taint.value)


@dataclass(frozen=True, eq=False)
class Node:
    """A node of a partition; at count level one node stands for the whole partition.

    :param name: ``metadata.name``
    :param allocatable: what pods may ask for in all (``status.allocatable``)
    :param foreign: what pods that the planner does not charge hold here (effective requests)
    :param labels: for the node selectors of pods
    :param taints: those that are not tolerated keep a pod away
    :param unusable: why nothing may start here (``not ready``, ``cordoned``); empty when it may
    """

    name: str
    allocatable: Resources
    foreign: Resources = field(default_factory=Resources)
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unusable: str = ""


@dataclass(frozen=True, eq=False)
class Partition:
    """A named set of nodes with its rules for lending.

    :param nodes: the same tuple as in the last snapshot while nothing changed (arrays are kept by identity)
    :param borrowing: the most GPUs that its gangs may hold on others' nodes; None is no limit, 0 never
    :param lending: the most of its own GPUs that others' gangs may hold; None is no limit, 0 never
    :param recallable_only: lend only what can surely be had back by ``loan_longest`` (resumable gangs and gangs
        whose hard run limit ends by then); without it predictions are trusted
    :param tolerations: added to each gang placed here
    :param highest_priority: what a request may claim at most; higher ones are cut to it
    """

    name: str
    nodes: tuple[Node, ...]
    borrowing: int | None = 0
    lending: int | None = 0
    recallable_only: bool = False
    tolerations: tuple[Toleration, ...] = ()
    highest_priority: int = 1_000


@dataclass(frozen=True)
class PodSet:
    """The pods of one replica type, all alike.

    :param name: replica type (``Worker``, ``Master`` …)
    :param count: number of pods
    :param request: effective request of one pod
    :param selector: node labels it insists on
    :param tolerations: taints it can live with
    """

    name: str
    count: int
    request: Resources
    selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()


@dataclass(frozen=True)
class Estimate:
    """Quantiles of a run time, in seconds of running with the requested replicas.

    :param runs: how many finished runs it rests on (0: a prior)
    :param source: where it comes from (``history of dag/task``, ``user``, ``progress``, ``prior``)
    """

    p10: float
    p50: float
    p80: float
    p90: float
    runs: int = 0
    source: str = "prior"

    @classmethod
    def exactly(cls, seconds: float, source: str = "exact") -> Estimate:
        """An estimate without spread, as progress at a steady pace or a test gives it."""
        return cls(seconds, seconds, seconds, seconds, runs=1_000, source=source)

    def scaled(self, factor: float) -> Estimate:
        """The same spread for ``factor`` times the work."""
        return replace(
            self, p10=self.p10 * factor, p50=self.p50 * factor, p80=self.p80 * factor, p90=self.p90 * factor
        )


class Resizing(enum.Enum):
    """How a gang's number of replicas may be changed while it runs."""

    NONE = "none"
    LIVE = "live"
    RESTART = "restart"


@dataclass(frozen=True)
class Elastic:
    """The sizes an elastic gang may have.

    :param podset: the replica type whose count changes
    :param sizes: allowed counts, ascending; the first is the minimum gang
    :param speeds: progress per second at each size, 1.0 at the requested count
    :param mode: ``LIVE`` without a restart, ``RESTART`` by suspend, patch, resume
    """

    podset: str
    sizes: tuple[int, ...]
    speeds: tuple[float, ...]
    mode: Resizing = Resizing.LIVE

    def __post_init__(self) -> None:
        if (
            not self.sizes
            or len(self.sizes) != len(self.speeds)
            or list(self.sizes) != sorted(set(self.sizes))
        ):
            raise InvalidInput("elastic.sizes", self.sizes, "give ascending sizes and one speed for each")
        if min(self.sizes) < 1 or min(self.speeds) <= 0:
            raise InvalidInput("elastic.speeds", self.speeds, "sizes start at 1 and speeds are positive")

    def speed(self, size: int) -> float:
        """Progress per second at ``size`` (one of :attr:`sizes`), 1.0 at the requested count."""
        return self.speeds[self.sizes.index(size)]


@dataclass(frozen=True, eq=False)
class Request:
    """A gang that wants to run, whole or not at all.

    :param id: unique and stable over its life; ties are broken by it
    :param partition: where it belongs
    :param podsets: what it is made of
    :param submitted: when it first asked; its age counts from here, also after a preemption
    :param estimate: of its whole run time with the requested replicas
    :param priority: one unit is worth a factor ``e`` of predicted service
    :param deadline: when it should have ended, or ``NEVER``
    :param run_limit: it is ended after so many seconds of running, surely; ``NEVER`` without a limit
    :param preemptible: may be suspended for others' sake
    :param resumable: goes on from a checkpoint (a gang that is not loses all its work)
    :param grace: seconds from the order to stop until its checkpoint is written
    :param elastic: sizes it can have, or None
    :param share: whom its use is charged to (DAG, team or namespace)
    :param reservation: id of the calendar reservation it may use
    :param attained: seconds of work that earlier admissions have left behind
    :param not_before: back-off: not to be started earlier
    :param least_class: True for Airflow backfill runs: after everything else that is not hopeless
    """

    id: str
    partition: str
    podsets: tuple[PodSet, ...]
    submitted: float
    estimate: Estimate
    priority: int = 0
    deadline: float = NEVER
    run_limit: float = NEVER
    preemptible: bool = False
    resumable: bool = False
    grace: float = 30.0
    elastic: Elastic | None = None
    share: str = ""
    reservation: str | None = None
    attained: float = 0.0
    not_before: float = 0.0
    least_class: bool = False
    preemptions: int = 0

    @cached_property
    def total(self) -> Resources:
        """What the whole gang asks for, at its requested size."""
        return Resources.total(podset.request * podset.count for podset in self.podsets)

    @cached_property
    def units(self) -> float:
        """GPUs of one replica of the elastic pod set; 1 where it asks for none."""
        name = self.podsets[0].name if self.elastic is None else self.elastic.podset
        return float(max(next(p.request.gpus for p in self.podsets if p.name == name), 1))

    @cached_property
    def least(self) -> tuple[PodSet, ...]:
        """The pod sets at its minimum size: what it needs to start."""
        return self.podsets if self.elastic is None else self.at_size(self.elastic.sizes[0])

    @cached_property
    def least_speed(self) -> float:
        """Progress per second at its minimum size."""
        return 1.0 if self.elastic is None else self.elastic.speeds[0]

    @cached_property
    def gpus(self) -> int:
        """GPUs of the whole gang at its requested size, MIG slices counted one each."""
        return self.total.gpus

    @cached_property
    def row(self) -> tuple[float, ...]:
        """Numbers by which the queue is ordered; see :mod:`airflow_kftrain.scheduling.queue`."""
        estimate = self.estimate
        return (
            self.submitted, self.priority, estimate.p10, estimate.p50, estimate.p80, estimate.p90,
            self.deadline, self.run_limit, self.attained, max(self.gpus, 1), estimate.runs, self.not_before,
            self.least_class, self.resumable, self.least_speed, self.grace,
        )  # fmt: skip

    def at_size(self, size: int) -> tuple[PodSet, ...]:
        """The pod sets with ``size`` replicas of the elastic one."""
        if self.elastic is None:
            return self.podsets
        return tuple(replace(p, count=size) if p.name == self.elastic.podset else p for p in self.podsets)

    @cached_property
    def size(self) -> int:
        """Requested count of the elastic pod set; the number of pods when there is none."""
        if self.elastic is None:
            return sum(podset.count for podset in self.podsets)
        return next(p.count for p in self.podsets if p.name == self.elastic.podset)


@dataclass(frozen=True)
class Placement:
    """``count`` pods of ``podset`` on ``node``."""

    podset: str
    node: str
    count: int


class Phase(enum.Enum):
    """Where an admitted gang stands."""

    STARTING = "starting"
    RUNNING = "running"
    TERMINATING = "terminating"


@dataclass(frozen=True, eq=False)
class Running:
    """An admitted gang and what it holds, until its last pod is gone.

    :param request: as it was admitted; ``attained`` is the work of earlier admissions
    :param partition: whose nodes it holds (not ``request.partition``: a loan)
    :param placement: its pods by node
    :param admitted: when it was admitted
    :param since: since when it makes progress at its present size; None while it starts
    :param size: its present count of the elastic pod set (the requested one when None)
    :param work: seconds of work (at requested size) banked in this admission before ``since``
    :param remaining: of the run at its present size, counted from ``reported``: what progress says
    :param checkpointed: when its last checkpoint was written; None: never, or unknown
    :param gone_by: when a terminating gang's pods will be gone
    :param window: id of the reservation it runs in
    :param resized: when it was last resized; None: never
    """

    request: Request
    partition: str
    placement: tuple[Placement, ...]
    admitted: float
    since: float | None = None
    phase: Phase = Phase.RUNNING
    size: int | None = None
    work: float = 0.0
    remaining: Estimate | None = None
    reported: float = 0.0
    checkpointed: float | None = None
    gone_by: float | None = None
    window: str | None = None
    resized: float | None = None

    @cached_property
    def present_size(self) -> int:
        """Its count of the elastic pod set now."""
        return self.request.size if self.size is None else self.size

    @cached_property
    def speed(self) -> float:
        """Progress per second, 1.0 at the requested size."""
        elastic = self.request.elastic
        return 1.0 if elastic is None else elastic.speed(self.present_size)

    @cached_property
    def hard_end(self) -> float:
        """When it is ended by its own limit, at the latest; ``NEVER`` without a limit."""
        return self.admitted + self.request.run_limit


@dataclass(frozen=True)
class Window:
    """One occurrence of a calendar reservation, as instants.

    :param reservation: whose occurrence
    :param partition: where capacity is held
    :param start: when it must be free
    :param end: when it is given back
    :param amount: what is held
    :param lead: seconds before ``start`` from which nothing new may overlap it (drain time included)
    """

    reservation: str
    partition: str
    start: float
    end: float
    amount: Resources
    lead: float = 0.0


@dataclass(frozen=True)
class Claim:
    """Capacity freed for one gang (by preemption, recall, shrinking or draining) until it starts.

    :param beneficiary: the request it belongs to
    :param partition: where it lies
    :param expires: when it lapses (twice the termination time after it was made)
    """

    beneficiary: str
    partition: str
    expires: float


@dataclass(frozen=True)
class Reserved:
    """A plan reservation of the last plan, given back so that plans do not flap."""

    request: str
    partition: str
    start: float


@dataclass(frozen=True)
class Costs:
    """What acts cost here, in seconds, as measured by the host.

    Defaults are what the local control plane showed: an image pull and gang start of two minutes, pods gone 30 s after
    SIGTERM, five minutes from a restart until training is where it was.
    """

    startup: float = 120.0
    termination: float = 30.0
    restart: float = 300.0
    rescale: float = 60.0


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Everything one plan is made from.

    :param now: the instant of the plan
    :param partitions: in a fixed order
    :param queue: requests that wait, in any order; the plan does not depend on it
    :param running: admitted gangs, terminating ones included
    :param windows: occurrences of calendar reservations that end after ``now``
    :param claims: freed capacity that waits for its gang
    :param reserved: plan reservations of the last plan
    :param shares: use of each share key over its entitlement (1.0 is its fair share), decayed
    :param prediction_error: mean of abs(log(real / predicted)) of recent runs by partition; missing: unknown
    :param round_due: whether running gangs may be resized by this plan (the host says so every ``rescale_every``)
    :param costs: what starting, stopping, restarting and resizing take
    """

    now: float
    partitions: tuple[Partition, ...]
    queue: tuple[Request, ...] = ()
    running: tuple[Running, ...] = ()
    windows: tuple[Window, ...] = ()
    claims: tuple[Claim, ...] = ()
    reserved: tuple[Reserved, ...] = ()
    shares: Mapping[str, float] = field(default_factory=dict)
    prediction_error: Mapping[str, float] = field(default_factory=dict)
    costs: Costs = field(default_factory=Costs)
    round_due: bool = True
