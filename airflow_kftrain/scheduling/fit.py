"""Which nodes a gang's pods go to: whole gang or nothing.

A set of pods that fits on one node goes to the tightest such node; a wider one takes the emptiest nodes first, so
that it stands on as few nodes as possible, and its remainder goes to the tightest node that has room for it. Both
keep whole nodes free for gangs that need them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from airflow_kftrain.jobs.resources import GPU_RESOURCES
from airflow_kftrain.scheduling.calendar import Bools, Floats
from airflow_kftrain.scheduling.model import Node, Partition, PodSet, Toleration
from airflow_kftrain.scheduling.vectors import Axes, asked, there

Chosen = list[tuple[int, int, int]]  # (index of pod set, index of node, pods)


class Grid:
    """The nodes of a partition as arrays; made once for each partition object.

    ``allocatable`` and ``foreign`` have the shape (nodes, axes); ``usable`` (nodes,).
    """

    def __init__(self, partition: Partition, axes: Axes) -> None:
        self.partition = partition
        self.axes = axes
        nodes = partition.nodes
        shape = (len(nodes), len(axes))
        self.names = [node.name for node in nodes]
        self.index = {name: i for i, name in enumerate(self.names)}
        self.usable: Bools = np.array([not node.unusable for node in nodes], dtype=bool)
        self.allocatable = np.array([there(n.allocatable, axes) for n in nodes], dtype=float).reshape(shape)
        self.foreign = np.array([asked(n.foreign, axes) for n in nodes], dtype=float).reshape(shape)
        self.foreign[~np.isfinite(self.foreign)] = 0.0
        self.plain = not any(node.taints for node in nodes)
        self.gpu: Bools = np.array(
            [n in GPU_RESOURCES or n.startswith("nvidia.com/mig-") for n in axes], dtype=bool
        )
        self._masks: dict[object, Bools] = {}

    def eligible(self, podset: PodSet) -> Bools:
        """Nodes whose labels and taints let a pod of ``podset`` in; shape (nodes,)."""
        if self.plain and not podset.selector:
            return self.usable
        key = (tuple(sorted(podset.selector.items())), podset.tolerations)
        mask = self._masks.get(key)
        if mask is None:
            tolerations = (*podset.tolerations, *self.partition.tolerations)
            mask = np.array(
                [admits(node, podset.selector, tolerations) for node in self.partition.nodes], dtype=bool
            )
            self._masks[key] = mask
        return mask

    def pod(self, podset: PodSet) -> Floats:
        """One pod of ``podset`` along the axes."""
        vector = np.array(asked(podset.request, self.axes))
        if "pods" in self.axes:
            vector[self.axes.index("pods")] = 1.0
        return vector

    def total(self, podsets: tuple[PodSet, ...]) -> Floats:
        """All pods of ``podsets`` along the axes; infinite when one can never be placed on these axes."""
        amount = np.zeros(len(self.axes))
        for podset in podsets:
            if podset.count:
                amount += self.pod(podset) * podset.count
        return amount


@lru_cache(maxsize=256)
def grid_of(partition: Partition, axes: Axes) -> Grid:
    """The grid of ``partition``, kept while the very same object comes again."""
    return Grid(partition, axes)


def admits(node: Node, selector: Mapping[str, str], tolerations: tuple[Toleration, ...]) -> bool:
    """Whether a pod with this selector and these tolerations may start on ``node``."""
    if node.unusable or any(node.labels.get(key) != value for key, value in selector.items()):
        return False
    return all(
        taint.effect not in ("NoSchedule", "NoExecute") or any(t.tolerates(taint) for t in tolerations)
        for taint in node.taints
    )


def pack(grid: Grid, free: Floats, podsets: tuple[PodSet, ...]) -> Chosen | None:
    """Nodes for every pod of ``podsets`` within ``free`` (shape (nodes, axes)), or None; ``free`` is not changed.

    Pods that ask for more go first: what is left over for the small ones is more than the other way round.
    """
    left = free
    chosen: Chosen = []
    for which in _largest_first(podsets):
        podset = podsets[which]
        if not podset.count:
            continue
        pod = grid.pod(podset)
        placed = _spread(left, pod, podset.count, grid.eligible(podset))
        if placed is None:
            return None
        if len(podsets) > 1:
            left = left.copy()
            for node, count in placed:
                left[node] -= pod * count
        chosen.extend((which, node, count) for node, count in placed)
    return chosen


def _largest_first(podsets: tuple[PodSet, ...]) -> list[int]:
    if len(podsets) == 1:
        return [0]
    return sorted(range(len(podsets)), key=lambda i: (-podsets[i].request.gpus, i))


def _spread(free: Floats, pod: Floats, count: int, eligible: Bools) -> list[tuple[int, int]] | None:
    if len(free) == 1:
        return [(0, count)] if eligible[0] and (free[0] >= pod * count).all() else None
    asks = pod > 0
    if not np.isfinite(pod).all():
        return None
    if asks.any():
        slots = np.floor(free[:, asks] / pod[asks]).min(axis=1)
        slots = np.where(eligible, np.maximum(slots, 0), 0)
    else:
        slots = np.where(eligible, float(count), 0.0)
    if slots.sum() < count:
        return None
    emptiest = np.argsort(-slots, kind="stable")
    filled = np.cumsum(slots[emptiest])
    whole = int(np.searchsorted(filled, count, side="right"))  # nodes that are filled to the brim
    placed = [(int(node), int(slots[node])) for node in emptiest[:whole] if slots[node]]
    rest = count - (int(filled[whole - 1]) if whole else 0)
    if rest:
        others = emptiest[whole:]
        enough = others[slots[others] >= rest]
        placed.append((int(enough[-1]), rest))  # ascending room: the tightest comes last
    return placed
