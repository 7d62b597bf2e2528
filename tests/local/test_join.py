"""What keeps a machine from joining a cluster is one clear error."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from airflow_kftrain.cli.local import app
from airflow_kftrain.exceptions import InvalidInput, LocalClusterError
from airflow_kftrain.local.home import Home
from airflow_kftrain.local.join import run
from airflow_kftrain.local.log_server import subject
from tests.support.local_api import LocalApi


def test_an_api_server_without_an_authority_for_clients_is_named(tmp_path: Path) -> None:
    with (
        LocalApi(tmp_path / "other") as api,
        pytest.raises(LocalClusterError, match="start the API server with --client-ca-file"),
    ):
        run(Home(tmp_path / "home"), api.kubeconfig)


def test_a_kubeconfig_that_does_not_exist_is_named(tmp_path: Path) -> None:
    missing = str(tmp_path / "none")
    result = CliRunner().invoke(app, ["join", "--kubeconfig", missing, "--home", str(tmp_path / "home")])
    assert isinstance(result.exception, InvalidInput)
    assert str(result.exception).startswith(
        f"--kubeconfig: {missing!r} cannot be used: there is no such file"
    )


def test_a_number_of_nodes_out_of_range_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"^nodes: 0 cannot be used"):
        run(Home(tmp_path / "home"), None, nodes=0)


def test_user_and_groups_of_a_certificate_are_its_common_name_and_organisations() -> None:
    names = ((("organizationName", "system:masters"),), (("organizationName", "b"),), (("commonName", "me"),))
    assert subject({"subject": names}) == ("me", ("system:masters", "b"))
    assert subject({}) == ("", ())
