"""One cycle of the planner: a snapshot in, a plan out. Pure: no clock, no cluster, no memory of its own."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from airflow_kftrain.scheduling.backfill import Admission, admit
from airflow_kftrain.scheduling.book import Book
from airflow_kftrain.scheduling.decisions import Decision, Explain, Start
from airflow_kftrain.scheduling.fit import grid_of
from airflow_kftrain.scheduling.model import Request, Running, Snapshot
from airflow_kftrain.scheduling.ordering import order, queue_of, ranks
from airflow_kftrain.scheduling.reasons import Code, Reason
from airflow_kftrain.scheduling.settings import PlannerSettings
from airflow_kftrain.scheduling.vectors import axes_of


@dataclass
class Plan:
    """What should happen now, and why the rest waits.

    :param decisions: acts, in the order they should be carried out
    """

    decisions: list[Decision] = field(default_factory=list)
    _admissions: list[Admission] = field(default_factory=list)

    @property
    def starts(self) -> list[Start]:
        """Gangs that start now."""
        return [decision for decision in self.decisions if isinstance(decision, Start)]

    def explanations(self) -> list[Explain]:
        """One reason for each gang that neither starts nor has a reservation; made when asked for."""
        return [explained for admission in self._admissions for explained in admission.explanations()]


def plan(snapshot: Snapshot, settings: PlannerSettings | None = None) -> Plan:
    """The plan for ``snapshot``; the same for equal snapshots."""
    settings = settings or PlannerSettings()
    made = Plan()
    axes = axes_of(node.allocatable for partition in snapshot.partitions for node in partition.nodes)
    queues, running = _by_partition(snapshot)
    for partition in snapshot.partitions:
        # 1. Charge what runs: free now on each node, and free over time.
        grid = grid_of(partition, axes)
        book = Book(grid, running[partition.name], snapshot.now)
        # 2. Put the queue in order.
        queue = queue_of(queues.pop(partition.name, []), grid, snapshot.costs)
        claimed = frozenset(claim.beneficiary for claim in snapshot.claims)
        rank = ranks(queue, snapshot.now, 0.0, claimed, settings)
        looked_at = order(queue, rank, snapshot.now, snapshot.shares, settings)
        # 3. Start what fits, reserve for the first that does not, backfill beneath it.
        admission = admit(book, queue, looked_at, rank, settings)
        made.decisions.extend(admission.decisions)
        made._admissions.append(admission)
    for name, lost in sorted(queues.items()):
        made.decisions.extend(Explain(r.id, Reason(Code.NO_PARTITION, {"partition": name})) for r in lost)
    return made


def _by_partition(snapshot: Snapshot) -> tuple[dict[str, list[Request]], dict[str, list[Running]]]:
    queues: defaultdict[str, list[Request]] = defaultdict(list)
    for request in snapshot.queue:
        queues[request.partition].append(request)
    running: defaultdict[str, list[Running]] = defaultdict(list)
    for gang in snapshot.running:
        running[gang.partition].append(gang)
    return queues, running
