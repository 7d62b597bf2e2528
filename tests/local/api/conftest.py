"""The API server under test, and the clients that ask it.

The suite runs against the local server. With ``KFTRAIN_API_KUBECONFIG`` it runs, unchanged, against the API server of
that kubeconfig; ``KFTRAIN_API_CAPABILITIES`` then names what that has beyond a bare API server (comma-separated, of
:data:`CAPABILITIES`), and tests of what it lacks are skipped.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from airflow_kftrain.cluster.resources import NAMESPACES
from tests.local.api.clients import AsyncClient, Client, Kubectl, OfficialClient
from tests.support.local_api import LocalApi
from tests.support.requires import require_program

CAPABILITIES = {
    "gc": "owner references and foreground or orphaning deletion are acted on (kube-controller-manager)",
    "namespaces": "a deleted namespace is emptied (kube-controller-manager)",
    "quota": "quotas count what is used (kube-controller-manager)",
    "logs": "containers' logs can be written by the test (only the local server)",
}


@dataclass(frozen=True)
class ControlPlane:
    """An API server and what is known of it.

    :param local: the local server's own handle; None for any other
    """

    kubeconfig: Path
    capabilities: frozenset[str]
    local: LocalApi | None = None


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    given = os.environ.get("KFTRAIN_API_KUBECONFIG")
    if given:
        names = os.environ.get("KFTRAIN_API_CAPABILITIES", "").split(",")
        yield ControlPlane(Path(given), frozenset(name for name in names if name))
        return
    with LocalApi(tmp_path_factory.mktemp("api")) as api:
        yield ControlPlane(api.kubeconfig, frozenset(CAPABILITIES), api)


@pytest.fixture(autouse=True)
def _capable(request: pytest.FixtureRequest) -> None:
    """Skip what the API server under test cannot do, by ``@pytest.mark.needs("gc")``."""
    for mark in request.node.iter_markers("needs"):
        lacking = set(mark.args) - request.getfixturevalue("control_plane").capabilities
        if lacking:
            pytest.skip("; ".join(f"the API server under test lacks {n}: {CAPABILITIES[n]}" for n in lacking))


@pytest.fixture(scope="session")
def official(control_plane: ControlPlane) -> Iterator[OfficialClient]:
    client = OfficialClient(control_plane.kubeconfig)
    yield client
    client.close()


@pytest.fixture(scope="session")
def asynchronous(control_plane: ControlPlane) -> Iterator[AsyncClient]:
    client = AsyncClient(control_plane.kubeconfig)
    yield client
    client.close()


@pytest.fixture(scope="session")
def kubectl_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kubectl-home")


@pytest.fixture
def kubectl(control_plane: ControlPlane, kubectl_home: Path) -> Kubectl:
    program = require_program("kubectl", "the API server is checked through it")
    return Kubectl(program, control_plane.kubeconfig, kubectl_home)


@pytest.fixture(
    params=["official", "asynchronous", "kubectl"], ids=["official client", "asyncio client", "kubectl"]
)
def client(request: pytest.FixtureRequest) -> Client:
    found: Client = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def namespace(official: OfficialClient) -> Iterator[str]:
    """A namespace that no other test uses."""
    name = f"t-{uuid.uuid4().hex[:10]}"
    official.create(NAMESPACES, {"metadata": {"name": name}}, "")
    yield name
    official.delete(NAMESPACES, name, "")
