"""Which GPUs of a node are whose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class Devices:
    """Hands out GPU indices per node.

    :param nodes: the indices of each node's GPUs
    """

    def __init__(self, nodes: Mapping[str, Sequence[int]]) -> None:
        self._free = {name: list(indices) for name, indices in nodes.items()}
        self._held: dict[str, tuple[str, list[int]]] = {}

    def take(self, node: str, owner: str, count: int) -> list[int] | None:
        """``count`` indices for ``owner``, the lowest that are free; None when there are not as many."""
        free = self._free.get(node, [])
        if count > len(free):
            return None
        taken, self._free[node] = free[:count], free[count:]
        self._held[owner] = (node, taken)
        return list(taken)

    def give_back(self, owner: str) -> None:
        """What ``owner`` held is free again; nothing happens when it held none."""
        if owner in self._held:
            node, indices = self._held.pop(owner)
            self._free[node] = sorted([*self._free[node], *indices])
