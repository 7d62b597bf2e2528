"""Airflow's connection leads to the control plane."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.controlplane.rig import Rig
from tests.operators.conftest import connection
from tests.support.faulty_proxy import FaultyProxy


@pytest.fixture
def connected(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """``kubernetes_default`` is the rig's API."""
    monkeypatch.setenv("AIRFLOW_CONN_KUBERNETES_DEFAULT", connection(rig.kubeconfig))


@pytest_asyncio.fixture
async def proxy(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FaultyProxy]:
    """A proxy before the rig's API; ``kubernetes_default`` leads through it."""
    async with FaultyProxy.before(rig.kubeconfig) as proxy:
        through = proxy.kubeconfig(rig.kubeconfig, tmp_path / "proxied")
        monkeypatch.setenv("AIRFLOW_CONN_KUBERNETES_DEFAULT", connection(through))
        yield proxy
