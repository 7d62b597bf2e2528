from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from airflow_kftrain.testing import local_cluster
from tests.examples.stage import ROOT, Stage, airflow_environment
from tests.support import interpreters


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """One local cluster and one Airflow for all examples."""
    home = tmp_path_factory.mktemp("airflow")
    subprocess.run(
        [sys.executable, "-m", "airflow", "db", "migrate"],
        env=airflow_environment(home), cwd=ROOT, check=True, capture_output=True, timeout=300,
    )  # fmt: skip
    with local_cluster(nodes=2, gpus=4, images=interpreters.images()) as cluster:
        yield Stage(cluster, home)
