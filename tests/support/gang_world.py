"""A small world that carries out plans and checks every promise while time passes; for property tests."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from airflow_kftrain.jobs.resources import Resources
from airflow_kftrain.scheduling.decisions import Reserve, Resize, Start, Suspend
from airflow_kftrain.scheduling.model import (
    Claim,
    Costs,
    Partition,
    Phase,
    Placement,
    Request,
    Running,
    Snapshot,
    Window,
)
from airflow_kftrain.scheduling.planner import Plan, plan
from airflow_kftrain.scheduling.settings import PlannerSettings

TERMINATION = 30.0


class PromiseBroken(AssertionError):
    """A plan did what no plan may do."""


@dataclass
class World:
    """Gangs with true run times (seconds at requested size), under the planner.

    :param truth: true seconds of work by request id
    """

    partitions: tuple[Partition, ...]
    truth: dict[str, float]
    settings: PlannerSettings
    windows: tuple[Window, ...] = ()
    costs: Costs = field(
        default_factory=lambda: Costs(startup=0.0, termination=TERMINATION, restart=0.0, rescale=0.0)
    )
    now: float = 0.0
    queue: dict[str, Request] = field(default_factory=dict)
    running: dict[str, Running] = field(default_factory=dict)
    claims: dict[str, Claim] = field(default_factory=dict)
    finished: dict[str, float] = field(default_factory=dict)
    begun: dict[str, float] = field(default_factory=dict)
    suspended: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)

    def snapshot(self) -> Snapshot:
        return Snapshot(
            self.now,
            self.partitions,
            tuple(self.queue.values()),
            tuple(self.running.values()),
            tuple(w for w in self.windows if w.end > self.now),
            tuple(c for c in self.claims.values() if c.expires > self.now),
            costs=self.costs,
            prediction_error={partition.name: 0.0 for partition in self.partitions},
        )

    def run(self, requests: list[Request], until: float) -> None:
        """Submit ``requests`` at their times and plan at every event."""
        coming = sorted(requests, key=lambda r: (r.submitted, r.id))
        while self.now <= until:
            while coming and coming[0].submitted <= self.now:
                request = coming.pop(0)
                self.queue[request.id] = request
            self.step()
            later = self._next(coming)
            if later is None:
                return
            self.now = later

    def step(self) -> Plan:
        """End what is over, plan, carry the plan out, check."""
        self._end()
        seen = self.snapshot()
        made = plan(seen, self.settings)
        self._check_answers(seen, made)
        for decision in made.decisions:
            self.codes[decision.reason.code.value] += 1
            if isinstance(decision, Start):
                self._start(decision)
            elif isinstance(decision, Suspend):
                self._suspend(decision)
            elif isinstance(decision, Resize):
                self._resize(decision)
        self.check()
        return made

    # -- what happens by itself ----------------------------------------------------------------------------------

    def _over_at(self, gang: Running) -> float:
        if gang.phase is Phase.TERMINATING:
            assert gang.gone_by is not None
            return gang.gone_by
        assert gang.since is not None
        left = self.truth[gang.request.id] - gang.request.attained - gang.work
        return min(gang.since + left / gang.speed, gang.hard_end)

    def _end(self) -> None:
        for name, gang in list(self.running.items()):
            if self._over_at(gang) <= self.now:
                del self.running[name]
                if gang.phase is not Phase.TERMINATING:
                    self.finished[name] = self.now

    def _next(self, coming: list[Request]) -> float | None:
        times = [self._over_at(gang) for gang in self.running.values()]
        times += [request.submitted for request in coming[:1]]
        times += [claim.expires for claim in self.claims.values()]
        for window in self.windows:
            times += [window.start - max(window.lead, TERMINATION + 30.0), window.start, window.end]
        if any(gang.request.elastic for gang in self.running.values()) or self.suspended:
            times.append(self.now + self.settings.rescale_every)
        ahead = [t for t in times if t > self.now]
        return min(ahead) if ahead and (self.queue or self.running or coming) else None

    # -- what plans do -------------------------------------------------------------------------------------------

    def _start(self, act: Start) -> None:
        request = self.queue.pop(act.request)
        self.begun.setdefault(request.id, self.now)
        self.claims.pop(request.id, None)
        wanted = {
            p.name: p.count for p in (request.podsets if act.size is None else request.at_size(act.size))
        }
        placed: Counter[str] = Counter()
        for part in act.placement:
            placed[part.podset] += part.count
        if {name: count for name, count in wanted.items() if count} != dict(placed):
            raise PromiseBroken(f"{request.id} is not placed whole: {dict(placed)} of {wanted}")
        gang = Running(
            request, act.partition, act.placement, self.now, self.now, size=act.size, window=act.window
        )
        self.running[request.id] = gang

    def _suspend(self, act: Suspend) -> None:
        gang = self.running[act.request]
        if gang.phase is Phase.TERMINATING:
            raise PromiseBroken(f"{act.request} is suspended twice")
        drained = act.beneficiary is None
        if (
            not drained
            and self.now - gang.admitted < self.settings.protected
            and gang.partition == gang.request.partition
        ):
            raise PromiseBroken(f"{act.request} is preempted within its protected time")
        self.suspended[act.request] += not drained
        assert gang.since is not None
        done = gang.request.attained + gang.work + (self.now - gang.since) * gang.speed
        self.running[act.request + "!"] = replace(
            gang, phase=Phase.TERMINATING, gone_by=self.now + TERMINATION
        )
        del self.running[act.request]
        kept = done if gang.request.resumable else 0.0
        again = replace(
            gang.request,
            attained=kept,
            preemptions=gang.request.preemptions + 1,
            not_before=self.now + TERMINATION,
        )
        self.queue[act.request] = again
        self._claim(act.beneficiary, gang.partition)

    def _resize(self, act: Resize) -> None:
        gang = self.running[act.request]
        assert gang.since is not None
        assert gang.request.elastic is not None
        if act.size not in gang.request.elastic.sizes:
            raise PromiseBroken(f"{act.request} is resized to {act.size}")
        work = gang.work + (self.now - gang.since) * gang.speed
        self.running[act.request] = Running(
            gang.request,
            gang.partition,
            act.placement,
            gang.admitted,
            self.now,
            size=act.size,
            work=work,
            resized=self.now,
            window=gang.window,
        )
        self._claim(act.beneficiary, gang.partition)

    def _claim(self, beneficiary: str | None, partition: str) -> None:
        if beneficiary is not None:
            self.claims[beneficiary] = Claim(beneficiary, partition, self.now + 2 * TERMINATION)

    # -- what must hold ------------------------------------------------------------------------------------------

    def check(self) -> None:
        """No node holds more than it has; no window in force is short."""
        for partition in self.partitions:
            held: dict[str, Resources] = {node.name: node.foreign for node in partition.nodes}
            for gang in self.running.values():
                if gang.partition == partition.name:
                    for part in gang.placement:
                        held[part.node] += _amount(gang, part)
            for node in partition.nodes:
                if not held[node.name].fits(node.allocatable):
                    raise PromiseBroken(
                        f"at {self.now} {node.name} holds {held[node.name]} of {node.allocatable}"
                    )
            self._check_windows(partition, Resources.total(held.values()))

    def _check_windows(self, partition: Partition, held: Resources) -> None:
        capacity = Resources.total(node.allocatable for node in partition.nodes)
        for window in self.windows:
            if window.partition == partition.name and window.start <= self.now < window.end:
                inside = [g for g in self.running.values() if g.window == window.reservation]
                inside_holds = Resources.total(_amount(g, p) for g in inside for p in g.placement)
                if not (window.amount + held - inside_holds).fits(capacity):
                    raise PromiseBroken(
                        f"at {self.now} {window} is broken: {held} is held in {partition.name}"
                    )

    def _check_answers(self, seen: Snapshot, made: Plan) -> None:
        """Each request starts, is reserved for, or is told why it waits: exactly one of these."""
        said = Counter(d.request for d in made.decisions if isinstance(d, Start | Reserve))
        said.update(explained.request for explained in made.explanations())
        if said != Counter(request.id for request in seen.queue):
            raise PromiseBroken(f"answers {said} to {[request.id for request in seen.queue]}")


def _amount(gang: Running, part: Placement) -> Resources:
    one = next(p.request for p in gang.request.podsets if p.name == part.podset)
    return one * part.count


__all__ = ["PromiseBroken", "World"]
