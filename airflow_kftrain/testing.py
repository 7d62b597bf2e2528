"""For users' own tests: a local cluster that is there for a test session and gone after it.

::

    @pytest.fixture(scope="session")
    def cluster():
        with local_cluster(nodes=2, gpus=4) as running:
            yield running

    def test_my_dag(cluster, monkeypatch):
        for name, value in cluster.environment().items():
            monkeypatch.setenv(name, value)
        assert dag.test().state == "success"
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from airflow_kftrain.clock import VirtualClock
from airflow_kftrain.local.cluster import LocalCluster

__all__ = ["RunningCluster", "VirtualClock", "local_cluster"]


@dataclass(frozen=True)
class RunningCluster:
    """A local cluster that is up.

    :param local: to end it or bring it up again in the middle of a test
    """

    local: LocalCluster

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig that leads to it."""
        return self.local.kubeconfig

    @property
    def url(self) -> str:
        """The address of its API."""
        content = json.loads(self.kubeconfig.read_text())
        return str(content["clusters"][0]["cluster"]["server"])

    def environment(self, conn_id: str = "kubernetes_default") -> dict[str, str]:
        """Variables by which kubectl, clients and Airflow's connection ``conn_id`` reach it."""
        connection = {"conn_type": "kubernetes", "extra": {"kube_config_path": str(self.kubeconfig)}}
        return {
            "KUBECONFIG": str(self.kubeconfig),
            f"AIRFLOW_CONN_{conn_id.upper()}": json.dumps(connection),
        }


@contextmanager
def local_cluster(
    nodes: int = 1, gpus: int = 0, *, home: Path | str | None = None, images: str | None = None
) -> Iterator[RunningCluster]:
    """Bring up a local cluster, and take it down at the end with every process of its pods.

    :param nodes: nodes to make up
    :param gpus: GPUs per node
    :param home: its directory, kept at the end; a temporary one, removed at the end, when absent
    :param images: content of the table of images (TOML), see :class:`airflow_kftrain.local.kubelet.Images`
    :raises LocalClusterError: it does not start
    """
    directory = Path(home) if home is not None else Path(tempfile.mkdtemp(prefix="kftrain-"))
    local = LocalCluster(directory)
    directory.mkdir(parents=True, exist_ok=True)
    if images is not None:
        local.images.write_text(images, "utf-8")
    try:
        local.up(nodes, gpus)
        yield RunningCluster(local)
    finally:
        local.down()
        if home is None:
            shutil.rmtree(directory, ignore_errors=True)
