"""The control plane for the tests of this folder, started once a session."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from airflow_kftrain.cluster.client import Cluster
from tests.controlplane.build import BuildError, build, missing_programs
from tests.controlplane.rig import OperatorSpec, Rig
from tests.support.requires import unavailable

# An operator makes at most 20 calls a second: several of them share the work.
GANG_NAMESPACES = ("operator-gang-0", "operator-gang-1", "operator-gang-2")
PLAIN_NAMESPACES = ("operator-plain-0",)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever asks for the rig belongs to the control plane's tests."""
    for item in items:
        if "rig" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.controlplane)
            item.add_marker(pytest.mark.xdist_group("controlplane"))


@pytest.fixture(scope="session")
def programs() -> None:
    """All programs are built; where they are not and Go is missing, the tests are skipped (in CI: fail)."""
    missing = missing_programs()
    if missing and shutil.which("go") is None:
        unavailable(f"Go is missing, and {', '.join(missing)} cannot be built without it")
    try:
        build()
    except BuildError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def rig(programs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """The running control plane, with training operators in gang mode and without."""
    operators = (
        *(OperatorSpec(name, gang=True) for name in GANG_NAMESPACES),
        *(OperatorSpec(name, gang=False) for name in PLAIN_NAMESPACES),
    )
    running = Rig(tmp_path_factory.mktemp("rig"), operators=operators, nodes=12)
    running.start()
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture(autouse=True)
def _all_parts_live(request: pytest.FixtureRequest) -> Iterator[None]:
    """A part that died meanwhile is named by the test that saw it first, not by what follows from it."""
    yield
    if "rig" in request.fixturenames:
        request.getfixturevalue("rig").check()


@pytest_asyncio.fixture
async def cluster(rig: Rig) -> AsyncIterator[Cluster]:
    """The rig's API as its administrator."""
    async with Cluster.from_kubeconfig(str(rig.kubeconfig)) as client:
        yield client


@pytest.fixture
def namespace(rig: Rig, request: pytest.FixtureRequest) -> str:
    """A fresh namespace that no training operator sees to."""
    name = f"test-{zlib.crc32(request.node.nodeid.encode()):08x}"
    rig.add_namespace(name)
    return name
