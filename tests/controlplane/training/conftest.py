"""Our process kubelet as nodes of the real API server, and an Airflow whose connection leads there."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_kftrain.cluster.client import Cluster
from airflow_kftrain.cluster.resources import NODES, PYTORCHJOBS, TFJOBS, XGBOOSTJOBS
from tests.controlplane.conftest import GANG_NAMESPACES, PLAIN_NAMESPACES
from tests.controlplane.parts import Part
from tests.controlplane.rig import PLAYED_NODES, Rig
from tests.examples.stage import Stage, migrate
from tests.support import interpreters

NODE_NAMES = ("kftrain-node-0", "kftrain-node-1")


@pytest.fixture(scope="package")
def joined(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Two nodes of this machine, the only ones that take pods meanwhile; the directory of their kubelet."""
    home = tmp_path_factory.mktemp("joined")
    (home / "images.toml").write_text(interpreters.images())
    asyncio.run(clear_jobs(rig, GANG_NAMESPACES[0], PLAIN_NAMESPACES[0]))
    asyncio.run(cordon_played_nodes(rig, cordoned=True))
    command = [
        Path(sys.executable).with_name("kftrain"), "local", "join",
        "--kubeconfig", rig.kubeconfig, "--nodes", "2", "--gpus", "4", "--home", home,
    ]  # fmt: skip
    kubelet = Part("process-kubelet", command, rig.folder, lambda: all(is_ready(rig, n) for n in NODE_NAMES))
    kubelet.stop_seconds = 15.0
    try:
        kubelet.start()
        kubelet.wait_ready()
        yield home
        kubelet.check()
    finally:
        kubelet.stop()
        asyncio.run(cordon_played_nodes(rig, cordoned=False))


@pytest.fixture(scope="package")
def airflow_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated database."""
    home = tmp_path_factory.mktemp("airflow")
    migrate(home)
    return home


@pytest.fixture
def stage(rig: Rig, joined: Path, airflow_home: Path, request: pytest.FixtureRequest) -> Stage:
    """Jobs go to the training operator of the module's NAMESPACE, by default one in gang mode."""
    namespace = getattr(request.module, "NAMESPACE", GANG_NAMESPACES[0])
    extra = {"kube_config_path": str(rig.kubeconfig), "namespace": namespace}
    connection = json.dumps({"conn_type": "kubernetes", "extra": extra})
    variables = {"AIRFLOW_CONN_KUBERNETES_DEFAULT": connection}
    return Stage(airflow_home, rig.kubeconfig, variables, joined, namespace)


async def clear_jobs(rig: Rig, *namespaces: str) -> None:
    """Delete the jobs that earlier tests left."""
    async with Cluster.from_kubeconfig(str(rig.kubeconfig)) as cluster:
        for namespace in namespaces:
            for kind in (TFJOBS, PYTORCHJOBS, XGBOOSTJOBS):
                for job in (await cluster.list(kind, namespace)).items:
                    await cluster.delete(kind, job["metadata"]["name"], namespace)


async def cordon_played_nodes(rig: Rig, *, cordoned: bool) -> None:
    """Keep the schedulers off the nodes that kwok plays, or let them use these again."""
    async with Cluster.from_kubeconfig(str(rig.kubeconfig)) as cluster:
        played = await cluster.list(NODES, label_selector=f"{PLAYED_NODES}=true")
        for node in played.items:
            await cluster.patch(NODES, node["metadata"]["name"], {"spec": {"unschedulable": cordoned}})


def is_ready(rig: Rig, name: str) -> bool:
    """Whether the cluster's own controllers hold a node for one that takes pods."""
    node = rig.call("GET", f"/api/v1/nodes/{name}")
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", ()))
    return ready and not node["spec"].get("taints")
