from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_kftrain.testing import local_cluster
from tests.examples.stage import Stage, migrate
from tests.support import interpreters


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """One local cluster and one Airflow for all examples."""
    home = tmp_path_factory.mktemp("airflow")
    migrate(home)
    with local_cluster(nodes=2, gpus=4, images=interpreters.images()) as cluster:
        yield Stage(home, cluster.kubeconfig, cluster.environment(), cluster.local.home)
