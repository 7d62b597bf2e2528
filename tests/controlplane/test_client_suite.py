"""The client suite of the local API, unchanged, on a real API server with its controller manager."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane.rig import Rig

pytestmark = [pytest.mark.controlplane, pytest.mark.slow, pytest.mark.xdist_group("client-suite")]

ROOT = Path(__file__).parents[2]
SUITE = ("test_objects.py", "test_pods.py", "test_kubectl.py")
SECONDS = 900


class BareRig(Rig):
    """Without schedulers and played kubelets: the suite's pods stay as the suite left them."""

    def _start(self) -> None:
        self._run(self._etcd())
        self._run(self._api_server())
        self._install_objects()
        self._run(self._controller_manager())


@pytest.fixture
def bare_rig(programs: None, tmp_path: Path) -> Iterator[BareRig]:
    rig = BareRig(tmp_path)
    rig.start()
    yield rig
    rig.stop()


def test_the_client_suite_passes_on_a_real_api_server(bare_rig: BareRig):
    environment = {
        **os.environ,
        "KFTRAIN_API_KUBECONFIG": str(bare_rig.kubeconfig),
        "KFTRAIN_API_CAPABILITIES": "gc,namespaces,quota",
    }
    files = [str(ROOT / "tests" / "local" / "api" / name) for name in SUITE]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--tb=short",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        *files,
    ]
    done = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    bare_rig.check()
    print(done.stdout[-4000:])
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) > 250
