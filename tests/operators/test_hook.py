"""From a connection to a cluster."""

from __future__ import annotations

import asyncio
import json

import pytest
import yaml

from airflow_kftrain.cluster.resources import NAMESPACES
from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.hooks.training_job import TrainingJobHook, run_in_loop


def connect(monkeypatch, name, **extra):
    monkeypatch.setenv(
        f"AIRFLOW_CONN_{name.upper()}", json.dumps({"conn_type": "kubernetes", "extra": extra})
    )
    return TrainingJobHook(name)


async def names(cluster):
    return {item["metadata"]["name"] for item in (await cluster.list(NAMESPACES)).items}


async def test_a_kubeconfig_may_be_a_file_or_the_connections_own(kubeconfig, monkeypatch):
    content = yaml.safe_load(kubeconfig.read_text())
    for hook in (
        connect(monkeypatch, "by_path", kube_config_path=str(kubeconfig)),
        connect(monkeypatch, "by_content", kube_config=content),
        connect(monkeypatch, "by_text", kube_config=json.dumps(content)),
        connect(monkeypatch, "old_names", extra__kubernetes__kube_config_path=str(kubeconfig)),
    ):
        assert "default" in await asyncio.to_thread(hook.run, names)


async def test_a_connection_to_something_else_is_not_taken_for_the_environments_cluster(
    kubeconfig, monkeypatch
):
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    monkeypatch.setenv("AIRFLOW_CONN_WEB", json.dumps({"conn_type": "http", "host": "example.com"}))
    with pytest.raises(InvalidInput, match=r"kubernetes_conn_id: 'web' .*of the type http; .*kubernetes"):
        await asyncio.to_thread(TrainingJobHook("web").run, names)


async def test_run_works_inside_a_loop_and_outside(kubeconfig, monkeypatch):
    hook = connect(monkeypatch, "c", kube_config_path=str(kubeconfig))

    async def inside():
        return hook.run(names)

    assert "default" in await asyncio.to_thread(hook.run, names)
    assert "default" in await asyncio.to_thread(lambda: asyncio.run(inside()))


async def test_the_form_can_test_the_connection(kubeconfig, monkeypatch):
    good = connect(monkeypatch, "good", kube_config_path=str(kubeconfig))
    bad = connect(monkeypatch, "bad", kube_config_path="/nowhere/config")
    assert (await asyncio.to_thread(good.test_connection))[0] is True
    works, text = await asyncio.to_thread(bad.test_connection)
    assert works is False
    assert "kubernetes_conn_id: 'bad'" in text


@pytest.mark.parametrize(
    "extra",
    [
        {"kube_config_path": "/nowhere/config"},
        {"kube_config": "{not yaml"},
        {"kube_config_path": "/a", "in_cluster": True},
        {"kube_config": {"apiVersion": "v1"}},
    ],
    ids=["no such file", "no YAML", "two ways at once", "no context"],
)
def test_a_connection_that_leads_nowhere_is_named(monkeypatch, extra):
    with pytest.raises(InvalidInput, match="kubernetes_conn_id: 'wrong'"):
        connect(monkeypatch, "wrong", **extra).run(names)


def test_the_namespace_is_the_connections_or_default(monkeypatch):
    assert run_in_loop(connect(monkeypatch, "a", namespace="team-a").namespace) == "team-a"
    assert run_in_loop(connect(monkeypatch, "b").namespace) == "default"


def test_hooks_share_a_watch_when_they_reach_the_same_api_with_the_same_credentials(monkeypatch):
    one = connect(monkeypatch, "one", kube_config_path="/a", namespace="x")
    same = connect(monkeypatch, "same", kube_config_path="/a", namespace="y")
    other = connect(monkeypatch, "other", kube_config_path="/b")
    secret = connect(monkeypatch, "secret", kube_config='{"token": "s3cr3t"}')
    keys = [run_in_loop(hook.identity) for hook in (one, same, other, secret)]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3
    assert "s3cr3t" not in keys[3]


async def test_credentials_that_expire_are_read_anew(kubeconfig, monkeypatch, tmp_path):
    path = tmp_path / "changing"
    config = yaml.safe_load(kubeconfig.read_text())
    token = config["users"][0]["user"]["token"]
    config["users"][0]["user"]["token"] = "expired"
    path.write_text(yaml.safe_dump(config))
    hook = connect(monkeypatch, "changing", kube_config_path=str(path))
    async with hook.open() as cluster:
        await cluster._connected(stale=None)
        config["users"][0]["user"]["token"] = token
        path.write_text(yaml.safe_dump(config))
        assert "default" in await names(cluster)


def test_an_error_on_a_worker_has_no_other_error_above_it():
    async def fails():
        raise ValueError

    with pytest.raises(ValueError) as raised:
        run_in_loop(fails)
    assert raised.value.__context__ is None
