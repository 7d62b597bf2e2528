"""The account of one partition while a plan is made: what is free now on each node, and over time in all."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from airflow_kftrain.scheduling.calendar import Floats, Profile
from airflow_kftrain.scheduling.fit import Chosen, Grid, pack
from airflow_kftrain.scheduling.model import Placement, PodSet, Running
from airflow_kftrain.scheduling.prediction import expected_ends


@dataclass
class Hold:
    """Room that a reservation has on chosen nodes: from ``start`` on, gangs still there must leave ``spare`` alone.

    :param spare: what a gang that stays beyond ``start`` may use, shape (nodes, axes)
    :param owner: id of the request it is for
    """

    start: float
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
        free = self.free
        for hold in self.holds:
            if self.now + duration > hold.start:
                free = np.minimum(free, hold.spare)
        return pack(self.grid, free, podsets)

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

    def reserve(self, podsets: tuple[PodSet, ...], amount: Floats, duration: float, owner: str) -> float:
        """Hold room for a gang at the earliest instant it fits in all and on nodes; the instant, or infinity."""
        if not self.ever_fits(podsets):
            return float(np.inf)
        start = self.profile.earliest(amount, duration)
        while np.isfinite(start):
            free = self.free_at(start)
            for hold in self.holds:
                if start + duration > hold.start:
                    free = np.minimum(free, hold.spare)
            chosen = pack(self.grid, free, podsets)
            if chosen is not None:
                self._hold(podsets, chosen, free, start, owner)
                self.profile.take(amount, start, start + duration)
                return start
            later = self.ends[self.ends > start]
            if not len(later):
                return float(np.inf)
            start = self.profile.earliest(amount, duration, after=float(later.min()))
        return start

    def ever_fits(self, podsets: tuple[PodSet, ...]) -> bool:
        """Whether the nodes could take the gang if nothing of ours ran on them."""
        empty = np.maximum(self.grid.allocatable - self.grid.foreign, 0.0)
        return pack(self.grid, empty, podsets) is not None

    def _hold(
        self, podsets: tuple[PodSet, ...], chosen: Chosen, free: Floats, start: float, owner: str
    ) -> None:
        spare = free.copy()
        for which, node, count in chosen:
            spare[node] -= self.grid.pod(podsets[which]) * count
        self.holds.append(Hold(start, spare, owner))

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
