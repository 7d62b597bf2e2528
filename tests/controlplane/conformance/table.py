"""The conformance table: every job that is played through each column."""

from __future__ import annotations

from tests.controlplane.conformance.cases import Case
from tests.controlplane.conformance.pairs import PAIR_CASES
from tests.controlplane.conformance.singles import SINGLE_CASES

CASES: tuple[Case, ...] = (*PAIR_CASES, *SINGLE_CASES)
