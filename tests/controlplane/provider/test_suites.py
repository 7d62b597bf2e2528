"""Suites that were written for the local API, unchanged, on a real API server with its controller manager.

Together with the client suite they are one conformance suite: what operators, triggers, hook and controllers do is the
same on both. What is left out of a run is listed here, and nothing else may be skipped.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.controlplane.test_client_suite import BareRig, bare_rig

__all__ = ["bare_rig"]

pytestmark = [pytest.mark.controlplane, pytest.mark.slow, pytest.mark.xdist_group("client-suite")]

ROOT = Path(__file__).parents[3]
SECONDS = 900


@dataclass(frozen=True)
class Suite:
    """Files of tests, and how many of them must pass at least."""

    files: tuple[str, ...]
    least: int


SUITES = {
    "operators, triggers and hook": Suite(
        (
            "tests/operators/test_operator_faults.py",
            "tests/operators/test_trigger_faults.py",
            "tests/operators/test_sharing.py",
            "tests/operators/test_janitor.py",
        ),
        least=95,
    ),
    "faults of the API": Suite(("tests/operators/test_api_faults.py",), least=45),
}


@pytest.mark.parametrize("suite", SUITES.values(), ids=SUITES)
def test_the_suite_passes_on_a_real_api_server(bare_rig: BareRig, suite: Suite) -> None:
    environment = {**os.environ, "KFTRAIN_TEST_KUBECONFIG": str(bare_rig.kubeconfig)}
    command = [
        sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", "-p", "no:xdist",
        *suite.files,
    ]  # fmt: skip
    done = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    bare_rig.check()
    print(done.stdout[-1000:])
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    counted = {word: int(number) for number, word in re.findall(r"(\d+) (passed|skipped)", done.stdout)}
    assert counted.get("passed", 0) >= suite.least, counted
    assert "skipped" not in counted, done.stdout[-4000:]
