"""The planner as a policy: the same :func:`~airflow_kftrain.scheduling.planner.plan` as in production.

This is the host's part (snapshot out of the world, acts out of the plan, claims and progress kept between plans),
with a simulated cluster in place of Kubernetes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from airflow_kftrain.jobs.resources import GPU_RESOURCES, Resources
from airflow_kftrain.scheduling import decisions as plans
from airflow_kftrain.scheduling import model
from airflow_kftrain.scheduling.forecast import Calibration
from airflow_kftrain.scheduling.planner import Plan, plan
from airflow_kftrain.scheduling.settings import PlannerSettings
from airflow_kftrain.simulate.engine import Act, Decision, Preempt, Resize, Start
from airflow_kftrain.simulate.predicting import Learnt, Predictor
from airflow_kftrain.simulate.workload import Job
from airflow_kftrain.simulate.world import Gang, Placement, World, pods_of

GPU = GPU_RESOURCES[0]
WORKER = "Worker"
#: Seconds between reports of progress that reach the planner.
REPORT_EVERY = 300.0
HORIZON = 14 * 86400.0


@dataclass(frozen=True, slots=True)
class Lending:
    """Lending between partitions, in GPUs; None is no limit."""

    borrowing: int | None = None
    lending: int | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """What the host of the planner is told.

    :param planner: the planner's own parameters
    :param windows: occurrences of calendar reservations, on the workload's clock
    :param lending: None when partitions are apart
    :param elastic: whether gangs with measured speeds may be resized
    :param debounce: seconds from an event to the plan
    :param wait_every: seconds after which a plan is made without an event while gangs wait
    """

    planner: PlannerSettings = field(default_factory=PlannerSettings)
    windows: tuple[model.Window, ...] = ()
    lending: Lending | None = None
    elastic: bool = False
    debounce: float = 5.0
    wait_every: float = 600.0


class Planned:
    """The planner in the engine."""

    def __init__(
        self, name: str = "planner", settings: Settings | None = None, predictor: Predictor | None = None
    ) -> None:
        self.name = name
        self.settings = settings or Settings()
        self.debounce = self.settings.debounce
        self.predictor = predictor or Learnt()
        self.given = 0
        self._requests: dict[int, model.Request] = {}
        self._running: dict[int, tuple[object, model.Running]] = {}
        self._partitions: tuple[model.Partition, ...] = ()
        self._node_index: dict[str, int] = {}
        self._claims: list[model.Claim] = []
        self._reserved: tuple[model.Reserved, ...] = ()
        self._calibration = Calibration()
        self._new: set[int] = set()
        self._next_round = 0.0
        self._begun = 0
        self._over = 0
        self._broken: set[int] = set()

    @property
    def broken(self) -> int:
        """Windows whose capacity was not free all the time."""
        return len(self._broken)

    # -- events ------------------------------------------------------------------------------------------------

    def submitted(self, world: World, job: int) -> None:
        estimate = self.predictor.estimate(world, job)
        self._requests[job] = self._request(world, job, estimate)
        self._new.add(job)

    def finished(self, world: World, job: int) -> None:
        self.predictor.finished(world, job)
        self._running.pop(job, None)

    # -- one plan ----------------------------------------------------------------------------------------------

    def decide(self, world: World) -> Decision:
        # 1. What the cluster says.
        self._check_windows(world)
        snapshot = self._snapshot(world)
        # 2. What the planner makes of it.
        made = plan(snapshot, self.settings.planner)
        # 3. What newcomers are told.
        self._tell_etas(world, made)
        # 4. What has to be done, and what has to be remembered.
        acts = self._acts(world, made.decisions)
        self._check_windows(world, acts)
        self._reserved = tuple(
            model.Reserved(d.request, d.partition, d.start)
            for d in made.decisions
            if isinstance(d, plans.Reserve)
        )
        return Decision(acts, self._wake(world, made))

    def _snapshot(self, world: World) -> model.Snapshot:
        now = world.now
        if not self._partitions:
            self._partitions = tuple(self._make_partitions(world))
        self._claims = [claim for claim in self._claims if claim.expires > now]
        error = self.predictor.error
        return model.Snapshot(
            now=now,
            partitions=self._partitions,
            queue=tuple(self._requests[job] for job in world.waiting),
            running=tuple(self._gang(world, gang) for gang in world.gangs.values())
            + tuple(self._leaving(world, gang) for gang in world.ending.values()),
            windows=tuple(w for w in self.settings.windows if now < w.end and w.start < now + HORIZON),
            claims=tuple(self._claims),
            reserved=self._reserved,
            prediction_error={} if error is None else dict.fromkeys(world.nodes.partitions, error),
            costs=model.Costs(
                world.costs.startup, world.costs.termination, world.costs.restart, world.costs.rescale
            ),
            round_due=self._round_due(now),
        )

    def _round_due(self, now: float) -> bool:
        """Whether running gangs may be resized by this plan."""
        if not self.settings.elastic or now < self._next_round:
            return False
        self._next_round = now + self.settings.planner.rescale_every
        return True

    def _make_partitions(self, world: World) -> Iterable[model.Partition]:
        lending = self.settings.lending
        for name, sizes in world.cluster.nodes:
            nodes = []
            for number, gpus in enumerate(sizes):
                node = f"{name}/{number:04d}"
                self._node_index[node] = world.nodes.range_of(name).start + number
                nodes.append(model.Node(node, Resources({GPU: gpus})))
            borrowing, lent = (0, 0) if lending is None else (lending.borrowing, lending.lending)
            yield model.Partition(name, tuple(nodes), borrowing=borrowing, lending=lent)

    def _request(self, world: World, job: int, estimate: model.Estimate) -> model.Request:
        spec = world.jobs[job]
        elastic = self._elastic(spec, world)
        return model.Request(
            id=f"{job:07d}",
            partition=world.home(job),
            podsets=(self._podset(world, job, elastic),),
            submitted=spec.submit,
            estimate=estimate,
            deadline=model.NEVER if spec.deadline is None else spec.deadline,
            run_limit=model.NEVER if spec.run_limit is None else spec.run_limit,
            preemptible=spec.preemptible and spec.resumable,
            resumable=spec.resumable,
            grace=world.costs.termination,
            elastic=elastic,
            share=spec.group,
            attained=world.kept[job],
            preemptions=world.records[job].preemptions,
        )

    def _elastic(self, spec: Job, world: World) -> model.Elastic | None:
        if not self.settings.elastic or spec.speed is None:
            return None
        sizes = tuple(size for size in spec.speed.sizes if size <= world.cluster.capacity)
        return model.Elastic(WORKER, sizes, tuple(spec.rate(size) for size in sizes))

    @staticmethod
    def _podset(world: World, job: int, elastic: model.Elastic | None) -> model.PodSet:
        gpus = world.jobs[job].gpus
        count, each = (gpus, 1) if elastic else pods_of(gpus, world.nodes.largest_node(world.home(job)))
        return model.PodSet(WORKER, count, _gpus(each))

    def _gang(self, world: World, gang: Gang) -> model.Running:
        """A gang as the planner sees it; the same object as long as nothing has changed."""
        working = world.now >= gang.works_from
        reports = world.jobs[gang.job].reports and working
        stamp = (gang.admitted, gang.resized, working, world.now // REPORT_EVERY if reports else 0)
        kept = self._running.get(gang.job)
        if kept is not None and kept[0] == stamp:
            return kept[1]
        request = self._requests[gang.job]
        left = (world.jobs[gang.job].duration - gang.done_by(world.now)) / gang.rate if reports else 0.0
        running = model.Running(
            request=request,
            partition=gang.partition,
            placement=self._placed(world, gang),
            admitted=gang.admitted,
            since=max(gang.works_from, gang.admitted) if working else None,
            phase=model.Phase.RUNNING if working else model.Phase.STARTING,
            size=gang.gpus if request.elastic else None,
            work=gang.done - gang.done_at_admission,
            remaining=model.Estimate.exactly(left, "progress") if reports else None,
            reported=world.now,
            checkpointed=None if world.costs.checkpoint_every else world.now,
            resized=gang.resized if gang.resized > 0 else None,
        )
        self._running[gang.job] = (stamp, running)
        return running

    def _leaving(self, world: World, gang: Gang) -> model.Running:
        request = self._requests[gang.job]
        return model.Running(
            request=request,
            partition=gang.partition,
            placement=self._placed(world, gang),
            admitted=gang.admitted,
            phase=model.Phase.TERMINATING,
            size=gang.gpus if request.elastic else None,
            gone_by=gang.freed_at,
        )

    def _placed(self, world: World, gang: Gang) -> tuple[model.Placement, ...]:
        sizes = world.nodes.range_of(gang.partition)
        each = self._requests[gang.job].podsets[0].request.gpus
        return tuple(
            model.Placement(WORKER, f"{gang.partition}/{node - sizes.start:04d}", gpus // each)
            for node, gpus in gang.placement
        )

    # -- acts --------------------------------------------------------------------------------------------------

    def _acts(self, world: World, decided: Sequence[plans.Decision]) -> list[Act]:
        acts: list[Act] = []
        for decision in decided:
            job = int(decision.request)
            if isinstance(decision, plans.Start):
                acts.append(self._start(job, decision))
            elif isinstance(decision, plans.Suspend):
                acts.append(Preempt(job))
                self._claim(world, decision.beneficiary, world.gangs[job].partition)
                self._after_suspension(world, job)
            elif isinstance(decision, plans.Resize):
                gpus, placement = self._placement(job, decision.placement)
                acts.append(Resize(job, gpus, placement))
                self._claim(world, decision.beneficiary, world.gangs[job].partition)
        return acts

    def _start(self, job: int, decision: plans.Start) -> Start:
        gpus, placement = self._placement(job, decision.placement)
        self._claims = [claim for claim in self._claims if claim.beneficiary != decision.request]
        return Start(job, gpus, decision.partition, placement)

    def _placement(self, job: int, placement: Iterable[model.Placement]) -> tuple[int, Placement]:
        each = self._requests[job].podsets[0].request.gpus
        nodes: dict[int, int] = {}
        for part in placement:
            node = self._node_index[part.node]
            nodes[node] = nodes.get(node, 0) + part.count * each
        return sum(nodes.values()), tuple(nodes.items())

    def _claim(self, world: World, beneficiary: str | None, partition: str) -> None:
        if beneficiary is None or any(claim.beneficiary == beneficiary for claim in self._claims):
            return
        expires = world.now + 2 * max(world.costs.termination, 30.0)
        self._claims.append(model.Claim(beneficiary, partition, expires))

    def _after_suspension(self, world: World, job: int) -> None:
        """The request as it will wait, with what it has done so far."""
        gang, request = world.gangs[job], self._requests[job]
        kept = gang.done_by(world.now) if world.jobs[job].resumable else 0.0
        _, running = self._running.pop(job, (None, None))
        if running is not None and running.remaining is not None and kept:
            # What it reported is known better than what history says, also while it waits.
            left = running.remaining.p50 * gang.rate - (world.now - running.reported) * gang.rate
            request = replace(request, estimate=model.Estimate.exactly(kept + max(left, 60.0), "progress"))
        self._requests[job] = _again(request, kept)

    # -- what is told, and when to plan again --------------------------------------------------------------------

    def _tell_etas(self, world: World, made: Plan) -> None:
        """The start that a newcomer is told, once: now for who starts now."""
        starting = {int(start.request) for start in made.starts}
        for job in starting:
            if not world.records[job].admissions:
                self._calibration.started(f"{job:07d}", world.now)
        for job in self._new:
            told = made.eta(f"{job:07d}", self._calibration) if job not in starting else None
            world.records[job].eta = (world.now,) * 3 if job in starting else told
        self._new.clear()

    def _check_windows(self, world: World, starts: Sequence[Act] = ()) -> None:
        """Count the windows that have begun, and those whose capacity was not free at every instant."""
        windows, now = self.settings.windows, world.now
        while self._begun < len(windows) and windows[self._begun].start <= now:
            self._begun += 1
            self.given += 1
        for number in range(self._over, self._begun):
            window = windows[number]
            if now >= window.end:
                if number == self._over:
                    self._over += 1
                continue
            free = sum(world.nodes.free[node] for node in world.nodes.range_of(window.partition))
            started = sum(
                a.gpus or 0 for a in starts if isinstance(a, Start) and a.partition == window.partition
            )
            if free - started < window.amount.gpus and number not in self._broken:
                self._broken.add(number)

    def _wake(self, world: World, made: Plan) -> float | None:
        now = world.now
        times = [made.again, *(edge for w in self.settings.windows for edge in (w.start, w.end))]
        if self.settings.elastic and (world.gangs or world.waiting):
            times.append(self._next_round)
        if world.waiting:
            times.append(now + self.settings.wait_every)
        if any(isinstance(decision, plans.Suspend) for decision in made.decisions):
            times.append(now + max(1.0, world.costs.termination))
        soonest = min((at for at in times if at > now), default=math.inf)
        return None if soonest == math.inf else max(soonest, now + 1.0)


def _again(request: model.Request, kept: float) -> model.Request:
    return replace(request, attained=kept, preemptions=request.preemptions + 1)


def _gpus(count: int) -> Resources:
    return _AMOUNTS.setdefault(count, Resources({GPU: count}))


_AMOUNTS: dict[int, Resources] = {}
