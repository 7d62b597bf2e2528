"""Elastic gangs: everyone's minimum first, then shares that keep deadlines, then where a GPU saves most time.

A waiting elastic gang counts, and starts, at its minimum; growth is a loan from whoever comes next. One round finds the
size that each gang should have:

1. the minimum of each gang that runs, and room for the first gangs that are blocked;
2. in order of deadlines, the smallest size at which the deadline is met (the minimum satisfactory share);
3. the rest step by step to the gang that saves the most seconds per GPU, as long as that is worth a resize.

Shrinks come first and growth takes only what is free already, so that no instant is over-committed; what a shrink
frees for growth is handed out by the next plan.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace

import numpy as np

from airflow_kftrain.scheduling.calendar import Floats
from airflow_kftrain.scheduling.decisions import Resize, Start
from airflow_kftrain.scheduling.desk import Desk
from airflow_kftrain.scheduling.model import Elastic, Phase, Placement, Request, Resizing, Running
from airflow_kftrain.scheduling.reasons import Code, Reason

BLOCKED = 8  # waiting gangs, first in order, that a round makes room for
STICKY = 1.25  # how much more a step counts that a gang has taken already
INSTANT = 1.0  # growth is given back when it is needed: it must only be free now
WORTH = 10.0  # a gang is resized only if it still needs so many times what the resize costs


@dataclass
class Share:
    """One elastic gang in a round.

    :param present: its size now; its minimum if it starts in this plan
    :param left: seconds it still needs at its requested size
    :param units: GPUs (or pods, where it asks for none) of one replica
    :param running: None for a gang that starts in this plan
    :param movable: whether a running gang may be resized now
    """

    request: Request
    elastic: Elastic
    present: int
    left: float
    units: float
    running: Running | None
    movable: bool
    step: int = 0

    @property
    def target(self) -> int:
        """The size it should have."""
        return self.elastic.sizes[self.step]

    def needs(self, step: int) -> float:
        """Seconds it still needs at that size."""
        return self.left / self.elastic.speeds[step]


def resize(desk: Desk) -> None:
    """The sizes of a desk's elastic gangs; see the module.

    Everything is weighed anew in a round, when a gang is blocked, and when one with a deadline has just started; in all
    other plans gangs only grow into what is free.
    """
    shares = _shares(desk)
    if not shares:
        return
    if not (desk.snapshot.round_due or desk.blocked(1) or any(_in_a_hurry(share) for share in shares)):
        for share in shares:
            share.step = share.elastic.sizes.index(share.present)
    spare = _spare(desk, shares)
    spare, helped = _make_room(desk, spare)
    spare = _keep_deadlines(desk, shares, spare)
    _most_time_saved(desk, shares, spare)
    _act(desk, shares, helped)


def _shares(desk: Desk) -> list[Share]:
    now, found = desk.book.now, []
    for gang, end in zip(desk.book.running, desk.book.ends.tolist(), strict=False):
        elastic = gang.request.elastic
        if (
            elastic is not None
            and gang.phase is not Phase.TERMINATING
            and gang.request.id not in desk.stopped
        ):
            movable = _movable(gang, desk)
            share = _share(gang.request, elastic, gang.present_size, _left(gang, end, now), gang, movable)
            found.append(share)
    outside = {d.request: d.size for d in desk.decisions if isinstance(d, Start) and d.window is None}
    for index in sorted(desk.started):
        request = desk.queue.requests[index]
        if request.elastic is not None and request.id in outside:
            left = max(request.estimate.p50 - request.attained, 60.0)
            present = outside[request.id] or request.elastic.sizes[0]
            share = _share(request, request.elastic, present, left, None, True)
            share.step = request.elastic.sizes.index(present)  # the deadline ladder may have made it larger
            found.append(share)
    return found


def _share(
    request: Request, elastic: Elastic, present: int, left: float, running: Running | None, movable: bool
) -> Share:
    share = Share(request, elastic, present, left, request.units, running, movable)
    share.step = 0 if movable else elastic.sizes.index(present)
    return share


def _in_a_hurry(share: Share) -> bool:
    return share.running is None and np.isfinite(share.request.deadline)


def _movable(gang: Running, desk: Desk) -> bool:
    """Whether it may be resized now: it works, can be, is in no window, and was not resized within a round."""
    return (
        gang.since is not None
        and gang.window is None
        and gang.request.elastic is not None
        and gang.request.elastic.mode is not Resizing.NONE
        and (gang.resized is None or desk.book.now - gang.resized >= desk.settings.rescale_every - 1.0)
    )


def _left(gang: Running, end: float, now: float) -> float:
    """Seconds of work at its requested size that are left, by its predicted end."""
    begin = now if gang.since is None else max(now, gang.since)
    return max(1.0, end - begin) * gang.speed


def _spare(desk: Desk, shares: list[Share]) -> float:
    """GPUs beyond the minimum of each share (immovable: beyond its present size)."""
    free = desk.book.units_free(desk.claimed)
    return free + sum((share.present - share.target) * share.units for share in shares)


def _make_room(desk: Desk, spare: float) -> tuple[float, list[str]]:
    """Set aside what the first blocked gangs want; what is left, and whom it was set aside for."""
    helped: list[str] = []
    for index in desk.blocked(BLOCKED):
        wants = float(max(desk.book.gpus(desk.queue.amounts[index]), 1))
        if wants <= spare:
            spare -= wants
            helped.append(desk.queue.requests[index].id)
    return spare, helped


def _keep_deadlines(desk: Desk, shares: list[Share], spare: float) -> float:
    due = [share for share in shares if np.isfinite(share.request.deadline) and share.movable]
    for share in sorted(due, key=lambda share: (share.request.deadline, share.request.id)):
        time = share.request.deadline - desk.book.now
        for step, size in enumerate(share.elastic.sizes):
            more = (size - share.target) * share.units
            if more > spare:
                break
            if share.needs(step) + _pause(desk, share, size) <= time:
                spare -= more
                share.step = step
                break
    return spare


def _pause(desk: Desk, share: Share, size: int) -> float:
    costs = desk.snapshot.costs
    if share.running is None:
        return costs.startup
    if size == share.present:
        return 0.0
    return costs.rescale if share.elastic.mode is Resizing.LIVE else costs.restart


def _most_time_saved(desk: Desk, shares: list[Share], spare: float) -> None:
    heap: list[tuple[float, str, int]] = []
    for number, share in enumerate(shares):
        _offer(desk, heap, number, share)
    while heap and spare > 0:
        _, _, number = heapq.heappop(heap)
        share = shares[number]
        step = _next(desk, share)
        if step is None:
            continue
        more = (share.elastic.sizes[step] - share.target) * share.units
        if more <= spare:
            spare -= more
            share.step = step
            _offer(desk, heap, number, share)


def _offer(desk: Desk, heap: list[tuple[float, str, int]], number: int, share: Share) -> None:
    step = _next(desk, share)
    if step is None:
        return
    more = (share.elastic.sizes[step] - share.target) * share.units
    gain = (share.needs(share.step) - share.needs(step)) / more
    if share.elastic.sizes[step] <= share.present:
        gain *= STICKY
    heapq.heappush(heap, (-gain, share.request.id, number))


def _next(desk: Desk, share: Share) -> int | None:
    """The next larger size that saves enough time, or None."""
    if not share.movable:
        return None
    before = share.needs(share.step)
    for step in range(share.step + 1, len(share.elastic.sizes)):
        size = share.elastic.sizes[step]
        if before - share.needs(step) >= desk.settings.rescale_gain * before:
            pause = _pause(desk, share, size)
            taken = share.running is None or size <= share.present
            return step if taken or before >= WORTH * pause else None
    return None


def _act(desk: Desk, shares: list[Share], helped: list[str]) -> None:
    beneficiaries = iter(helped)
    for share in shares:
        if share.running is not None and share.target < share.present:
            _shrink(desk, share, share.running, next(beneficiaries, helped[0] if helped else None))
    grown = [share for share in shares if share.target > share.present]
    for share in sorted(grown, key=lambda s: (s.request.deadline, s.request.id)):
        _grow(desk, share)


def _shrink(desk: Desk, share: Share, gang: Running, beneficiary: str | None) -> None:
    placement = _without(gang.placement, share.elastic.podset, share.present - share.target)
    numbers: dict[str, float | int | str] = {
        "old": share.present,
        "new": share.target,
        "beneficiary": beneficiary or "others",
    }
    reason = Reason(Code.SHRUNK, numbers)
    desk.decisions.append(Resize(gang.request.id, reason, share.target, placement, beneficiary))


def _without(placement: tuple[Placement, ...], podset: str, fewer: int) -> tuple[Placement, ...]:
    """``placement`` without ``fewer`` pods of ``podset``: last ones first, so that worker-0 stays where it is."""
    kept = []
    for part in reversed(placement):
        gone = min(fewer, part.count) if part.podset == podset else 0
        fewer -= gone
        if part.count > gone:
            kept.append(replace(part, count=part.count - gone))
    return tuple(reversed(kept))


def _grow(desk: Desk, share: Share) -> None:
    """Grow to the largest size up to the target for whose pods there are nodes now."""
    for size in reversed([s for s in share.elastic.sizes if share.present < s <= share.target]):
        extra = tuple(
            replace(podset, count=size - share.present)
            for podset in share.request.podsets
            if podset.name == share.elastic.podset
        )
        amount: Floats = desk.book.grid.total(extra)
        over = share.request.grace if share.request.resumable else share.request.run_limit
        if not desk.fits(amount, INSTANT, over):
            continue
        chosen = desk.book.place(extra, 0.0)
        if chosen is None:
            continue
        stay = share.left / share.elastic.speed(size)
        desk.book.charge(extra, chosen, stay)
        desk.promises.admit(amount, over, None)
        _say(desk, share, size, desk.book.placement(extra, chosen))
        return


def _say(desk: Desk, share: Share, size: int, more: tuple[Placement, ...]) -> None:
    if share.running is not None:
        gain = share.left / share.elastic.speed(share.present) - share.left / share.elastic.speed(size)
        reason = Reason(Code.GROWN, {"old": share.present, "new": size, "gain": gain})
        desk.decisions.append(Resize(share.request.id, reason, size, share.running.placement + more))
        return
    for place, decision in enumerate(desk.decisions):
        if isinstance(decision, Start) and decision.request == share.request.id:
            desk.decisions[place] = replace(decision, placement=decision.placement + more, size=size)
