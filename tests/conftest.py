"""What holds for all tests."""

from __future__ import annotations

from hypothesis import settings

from tests.support.requires import in_ci

# A run of CI judges one change: the same examples each time. At a desk every run looks for new ones.
settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("desk", deadline=None)
settings.load_profile("ci" if in_ci() else "desk")
