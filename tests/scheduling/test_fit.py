"""Nodes for gangs: what is placed fits, is whole, and nothing that fits is missed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_kftrain.jobs.resources import Resources
from airflow_kftrain.scheduling.book import first_good
from airflow_kftrain.scheduling.fit import Grid, pack
from airflow_kftrain.scheduling.model import Node, Partition, PodSet, Taint, Toleration
from tests.support.gangs import GPU

sizes = st.integers(0, 8)
nodes = st.lists(st.tuples(sizes, st.integers(0, 16)), min_size=1, max_size=6)


def grid_of(free: list[tuple[int, int]]) -> Grid:
    made = tuple(Node(f"n{i}", Resources({GPU: g, "cpu": c})) for i, (g, c) in enumerate(free))
    return Grid(Partition("p", made), (GPU, "cpu"))


@settings(max_examples=300, deadline=None)
@given(nodes, st.integers(0, 4), st.integers(1, 4), st.integers(1, 10))
def test_equal_pods_are_placed_whenever_there_is_room_for_all(
    free: list[tuple[int, int]], gpu: int, cpu: int, count: int
) -> None:
    grid = grid_of(free)
    podset = PodSet("Worker", count, Resources({GPU: gpu, "cpu": cpu}))
    room = sum(min(c // cpu, g // gpu if gpu else 99) for g, c in free)
    chosen = pack(grid, grid.allocatable.copy(), (podset,))
    assert (chosen is not None) == (room >= count)
    if chosen is not None:
        assert sum(n for _, _, n in chosen) == count
        assert all(n > 0 and n * gpu <= free[i][0] and n * cpu <= free[i][1] for _, i, n in chosen)


@settings(max_examples=200, deadline=None)
@given(
    nodes,
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3), st.integers(1, 4)), min_size=1, max_size=3),
)
def test_several_replica_types_together_stay_within_every_node(
    free: list[tuple[int, int]], asked: list[tuple[int, int, int]]
) -> None:
    grid = grid_of(free)
    podsets = tuple(PodSet(f"t{i}", n, Resources({GPU: g, "cpu": c})) for i, (n, g, c) in enumerate(asked))
    before = grid.allocatable.copy()
    chosen = pack(grid, before, podsets)
    assert (before == grid.allocatable).all(), "what is free is not changed"
    if chosen is None:
        return
    used = np.zeros_like(before)
    placed = dict.fromkeys(range(len(podsets)), 0)
    for which, node, count in chosen:
        used[node] += grid.pod(podsets[which]) * count
        placed[which] += count
    assert (used <= before).all()
    assert placed == {i: podset.count for i, podset in enumerate(podsets)}


def test_a_node_that_is_not_usable_takes_nothing() -> None:
    only = Node("n", Resources({GPU: 8}), unusable="cordoned")
    grid = Grid(Partition("p", (only,)), (GPU,))
    assert pack(grid, grid.allocatable.copy(), (PodSet("Worker", 1, Resources({GPU: 1})),)) is None


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (Toleration("team", "Equal", "b"), True),
        (Toleration("team", "Equal", "c"), False),
        (Toleration("team", "Exists"), True),
        (Toleration("", "Exists"), True),
        (Toleration("", "Equal"), False),
        (Toleration("team", "Exists", effect="NoExecute"), False),
        (Toleration("other", "Exists"), False),
    ],
    ids=[
        "same value",
        "other value",
        "any value",
        "any taint",
        "no key needs Exists",
        "other effect",
        "other key",
    ],
)
def test_tolerations_match_as_in_kubernetes(toleration: Toleration, tolerated: bool) -> None:
    assert toleration.tolerates(Taint("team", "b", "NoSchedule")) is tolerated


def test_a_preference_keeps_nobody_away() -> None:
    soft = Node("n", Resources({GPU: 1}), taints=(Taint("spot", "", "PreferNoSchedule"),))
    grid = Grid(Partition("p", (soft,)), (GPU,))
    assert pack(grid, grid.allocatable.copy(), (PodSet("Worker", 1, Resources({GPU: 1})),)) is not None


@given(st.integers(1, 200), st.integers(0, 250))
def test_the_first_good_index_is_found_where_goodness_lasts(count: int, first: int) -> None:
    assert first_good(count, lambda i: i >= first) == (first if first < count else None)
