"""The account of one partition while a plan is made: what is free now on each node, and over time in all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from airflow_kftrain.scheduling.calendar import Floats, Profile
from airflow_kftrain.scheduling.fit import Chosen, Grid, pack
from airflow_kftrain.scheduling.model import Placement, PodSet, Running
from airflow_kftrain.scheduling.prediction import expected_ends


@dataclass
class Hold:
    """A reservation's room on the nodes chosen for it.

    :param start: from when it is held
    :param end: until when
    :param amount: what is held on each node, shape (nodes, axes)
    :param spare: what is free on each node at ``start`` beside all reservations, shape (nodes, axes)
    :param owner: id of the request it is for
    """

    start: float
    end: float
    amount: Floats
    spare: Floats
    owner: str


class Book:
    """Capacity of one partition at ``now``, charged with what runs there."""

    def __init__(self, grid: Grid, running: Sequence[Running], now: float) -> None:
        self.grid = grid
        self.now = now
        self.running = running
        self.ends = expected_ends(running, now)
        charges = [charge_of(gang, grid) for gang in running]
        self.free: Floats = grid.allocatable - grid.foreign
        self.free[~grid.usable] = 0.0
        owners, nodes, amounts = _flat(charges, len(grid.axes))
        counted = grid.usable[nodes]
        self.owners, self.nodes, self.amounts = owners[counted], nodes[counted], amounts[counted]
        np.subtract.at(self.free, self.nodes, self.amounts)
        back = np.zeros((len(running), len(grid.axes)))
        np.add.at(back, self.owners, self.amounts)
        self.profile = Profile.of_releases(now, self.free.sum(axis=0), self.ends, back)
        self.usable: Floats = np.maximum(grid.allocatable - grid.foreign, 0.0)[grid.usable].sum(axis=0)
        self.holds: list[Hold] = []

    def free_at(self, when: float) -> Floats:
        """Free on each node at ``when`` if nothing more starts; shape (nodes, axes)."""
        free = self.free.copy()
        gone = self.ends[self.owners] <= when
        np.add.at(free, self.nodes[gone], self.amounts[gone])
        return free

    def place(self, podsets: tuple[PodSet, ...], duration: float) -> Chosen | None:
        """Nodes for a gang that starts now and stays for ``duration``, leaving every hold alone; or None."""
        return pack(self.grid, self._room(self.free, self.now, self.now + duration), podsets)

    def _room(self, free: Floats, start: float, end: float) -> Floats:
        """``free`` at ``start``, cut to what is spare whenever a hold begins before ``end``."""
        for hold in self.holds:
            if start < hold.start < end:
                free = np.minimum(free, hold.spare)
            elif hold.start <= start < hold.end:
                free = free - hold.amount
        return free

    def charge(self, podsets: tuple[PodSet, ...], chosen: Chosen, duration: float) -> None:
        """Take the room of ``chosen`` from now for ``duration``."""
        total = np.zeros(len(self.grid.axes))
        for which, node, count in chosen:
            amount = self.grid.pod(podsets[which]) * count
            self.free[node] -= amount
            total += amount
            for hold in self.holds:
                if self.now + duration > hold.start:
                    hold.spare[node] -= amount
        self.profile.take(total, self.now, self.now + duration)
        self._remember(podsets, chosen, self.now + duration)

    def _remember(self, podsets: tuple[PodSet, ...], chosen: Chosen, end: float) -> None:
        owner = len(self.ends)
        self.ends = np.append(self.ends, end)
        self.owners = np.append(self.owners, [owner] * len(chosen))
        self.nodes = np.append(self.nodes, [node for _, node, _ in chosen])
        amounts = [self.grid.pod(podsets[which]) * count for which, _, count in chosen]
        self.amounts = np.vstack((self.amounts, *amounts))

    def earliest(self, podsets: tuple[PodSet, ...], amount: Floats, duration: float) -> float:
        """The first instant at which a gang fits for ``duration``, in all and on nodes; infinity when there is none."""
        if not self.ever_fits(podsets):
            return float(np.inf)
        start = self.profile.earliest(amount, duration)
        if not np.isfinite(start):
            return start
        instants = np.append(start, np.unique(self.ends[self.ends > start]))
        found = first_good(
            len(instants), lambda i: self._fits_at(podsets, amount, float(instants[i]), duration)
        )
        return float(np.inf) if found is None else float(instants[found])

    def _fits_at(self, podsets: tuple[PodSet, ...], amount: Floats, start: float, duration: float) -> bool:
        if not self.profile.fits(amount, start, start + duration):
            return False
        return len(self.grid.names) == 1 or self._chosen_at(podsets, start, start + duration) is not None

    def _chosen_at(self, podsets: tuple[PodSet, ...], start: float, end: float) -> Chosen | None:
        return pack(self.grid, self._room(self.free_at(start), start, end), podsets)

    def ever_fits(self, podsets: tuple[PodSet, ...]) -> bool:
        """Whether the nodes could take the gang if nothing of ours ran on them."""
        empty = np.maximum(self.grid.allocatable - self.grid.foreign, 0.0)
        return pack(self.grid, empty, podsets) is not None

    def hold(self, podsets: tuple[PodSet, ...], amount: Floats, start: float, end: float, owner: str) -> None:
        """Hold room for a gang from ``start`` (as :meth:`earliest` found it) until ``end``."""
        held = np.zeros_like(self.free)
        for which, node, count in self._chosen_at(podsets, start, end) or ():
            held[node] += self.grid.pod(podsets[which]) * count
        for other in self.holds:
            if start <= other.start < end:
                other.spare -= held
        spare = self.free_at(start) - held
        for other in self.holds:
            if other.start <= start < other.end:
                spare -= other.amount
        self.holds.append(Hold(start, end, held, spare, owner))
        self.profile.take(amount, start, end)

    def free_beside(self, owners: Collection[str]) -> Floats:
        """Free now on each node beside what ``owners`` hold from later on; shape (nodes, axes)."""
        free = self.free
        for hold in self.holds:
            if hold.owner in owners:
                free = np.minimum(free, hold.spare)
        return free

    def placement(self, podsets: tuple[PodSet, ...], chosen: Chosen) -> tuple[Placement, ...]:
        """``chosen`` by names."""
        return tuple(Placement(podsets[which].name, self.grid.names[node], n) for which, node, n in chosen)

    def gpus(self, amount: Floats) -> int:
        """GPUs in a vector."""
        return int(amount[self.grid.gpu].sum())

    def units_free(self, owners: Collection[str]) -> float:
        """Free GPUs beside what ``owners`` hold; pods, where the partition has no GPUs."""
        free = np.minimum(np.maximum(self.free_beside(owners), 0.0).sum(axis=0), self.profile.free[0])
        return float(free[self.grid.gpu].sum() if self.grid.gpu.any() else free.max(initial=0.0))

    @property
    def free_gpus(self) -> int:
        """GPUs that are free now, whether or not they are held."""
        return self.gpus(np.maximum(self.free, 0.0).sum(axis=0))


def first_good(count: int, good: Callable[[int], bool]) -> int | None:
    """The first index that is good, if goodness is lasting; found by doubling steps, then halving.

    Where it is not lasting the index is good all the same, but there may be an earlier one.
    """
    low, step, high = 0, 1, 0
    while not good(high):
        if high == count - 1:
            return None
        low, high, step = high + 1, min(high + step, count - 1), step * 2
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if good(middle) else (middle + 1, high)
    return high


def charge_of(gang: Running, grid: Grid) -> tuple[tuple[int, Floats], ...]:
    """What ``gang`` holds on each node of ``grid`` as (node index, amount); kept on the gang while the grid lives."""
    kept = gang.__dict__.get("_charge")
    if kept is None or kept[0] is not grid:
        podsets = {podset.name: podset for podset in gang.request.podsets}
        charge = tuple(
            (grid.index[p.node], grid.pod(podsets[p.podset]) * p.count)
            for p in gang.placement
            if p.node in grid.index
        )
        kept = (grid, charge)
        gang.__dict__["_charge"] = kept
    charged: tuple[tuple[int, Floats], ...] = kept[1]
    return charged


def total_of(gang: Running, grid: Grid) -> Floats:
    """What ``gang`` holds on ``grid`` in all; shape (axes,)."""
    charge = charge_of(gang, grid)
    return sum((amount for _, amount in charge), start=np.zeros(len(grid.axes)))


def _flat(charges: list[tuple[tuple[int, Floats], ...]], axes: int) -> tuple[np.ndarray, np.ndarray, Floats]:
    owners = [owner for owner, charge in enumerate(charges) for _ in charge]
    nodes = [node for charge in charges for node, _ in charge]
    amounts = [amount for charge in charges for _, amount in charge]
    return (
        np.array(owners, dtype=np.int64),
        np.array(nodes, dtype=np.int64),
        np.array(amounts, dtype=float).reshape(len(amounts), axes),
    )
