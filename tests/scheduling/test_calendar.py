"""The availability profile, against a slow account that counts second by second."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_kftrain.scheduling.calendar import Profile

END = 60


class Slow:
    """Free amount for each whole second."""

    def __init__(self, free: int) -> None:
        self.free = [free] * END

    def take(self, amount: int, start: int, end: int) -> None:
        for second in range(max(start, 0), min(end, END)):
            self.free[second] -= amount

    def fits(self, amount: int, start: int, end: int) -> bool:
        return all(free >= amount for free in self.free[start:end])


takes = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 30), st.integers(1, 20)), max_size=8)


def both(made: list[tuple[int, int, int]]) -> tuple[Profile, Slow]:
    fast, slow = Profile(0.0, np.array([8.0])), Slow(8)
    for amount, start, length in made:
        fast.take(np.array([float(amount)]), float(start), float(start + length))
        slow.take(amount, start, start + length)
    return fast, slow


@settings(max_examples=200, deadline=None)
@given(takes, st.integers(1, 8), st.integers(1, 9))
def test_it_agrees_with_the_slow_account(made: list[tuple[int, int, int]], amount: int, length: int) -> None:
    fast, slow = both(made)
    vector = np.array([float(amount)])
    for start in range(50):
        assert fast.fits(vector, start, start + length) == slow.fits(amount, start, start + length), start
    starts = bool(fast.startable(vector[None, :], np.array([float(length)]))[0])
    assert starts == slow.fits(amount, 0, length)
    first = next((s for s in range(50) if slow.fits(amount, s, s + length)), None)
    assert fast.earliest(vector, float(length)) == first


@settings(max_examples=100, deadline=None)
@given(takes, st.integers(0, 40), st.integers(1, 15))
def test_the_least_of_a_span(made: list[tuple[int, int, int]], start: int, length: int) -> None:
    fast, slow = both(made)
    low, at = fast.least(float(start), float(start + length))
    assert low[0] == min(slow.free[start : start + length])
    assert start <= at < start + length
    assert slow.free[int(at)] == low[0]


def test_what_ends_comes_back_in_order_of_ends() -> None:
    profile = Profile.of_releases(
        10.0, np.array([1.0, 0.0]), np.array([30.0, 20.0]), np.array([[2.0, 0.0], [0.0, 5.0]])
    )
    assert profile.times.tolist() == [10.0, 20.0, 30.0]
    assert profile.free.tolist() == [[1, 0], [1, 5], [3, 5]]


def test_an_axis_that_is_never_free_has_no_earliest_instant() -> None:
    assert Profile(0.0, np.array([4.0, 0.0])).earliest(np.array([1.0, 1.0]), 5.0) == np.inf


def test_a_charge_without_an_end_stays() -> None:
    profile = Profile(0.0, np.array([4.0]))
    profile.take(np.array([3.0]), 5.0, np.inf)
    assert profile.earliest(np.array([2.0]), 6.0) == np.inf
    assert profile.earliest(np.array([2.0]), 5.0) == 0.0
