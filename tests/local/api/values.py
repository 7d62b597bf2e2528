"""Arbitrary JSON."""

from __future__ import annotations

from hypothesis import strategies as st

names = st.text("abcxyz-._/ ~", min_size=1, max_size=4)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab~/", max_size=3),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(names, below, max_size=3),
    max_leaves=12,
)
objects = st.dictionaries(names, values, max_size=4)
