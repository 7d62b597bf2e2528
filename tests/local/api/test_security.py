"""Who is let in, what is left on disk, and what bad requests do."""

from __future__ import annotations

import asyncio
import json
import ssl
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest
import yaml

from airflow_kftrain.exceptions import LocalClusterError
from airflow_kftrain.local.apiserver import ApiServer
from airflow_kftrain.local.apiserver.bodies import PROTOBUF
from airflow_kftrain.local.apiserver.security import Credentials
from tests.local.api.objects import config_map, job
from tests.support.http_api import HttpApi

MAPS = "/api/v1/namespaces/default/configmaps"
Json = dict[str, Any]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiServer]:
    server = ApiServer(tmp_path / "api")
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def api(server: ApiServer) -> AsyncIterator[HttpApi]:
    async with HttpApi(server) as api:
        yield api


@pytest.mark.parametrize(
    "path", ["/api", "/apis", "/version", "/openapi/v3", MAPS, "/metrics", "/", "/api/v1/pods/x/log"]
)
@pytest.mark.parametrize(
    "header", [None, "Bearer wrong", "Bearer ", "", "Basic {token}", "{token}", "bearer {token}"]
)
async def test_nothing_but_health_is_told_without_the_token(server: ApiServer, path: str, header: str | None):
    context = ssl.create_default_context(cafile=str(server.ca_file))
    headers = {} if header is None else {"Authorization": header.format(token=server.token)}
    async with aiohttp.ClientSession(server.url, connector=aiohttp.TCPConnector(ssl=context)) as session:
        for method in ("GET", "POST", "DELETE", "OPTIONS"):
            async with session.request(method, path, headers=headers) as answer:
                assert answer.status == 401
                assert json.loads(await answer.read())["reason"] == "Unauthorized"
        for health in ("/healthz", "/readyz", "/livez"):
            async with session.get(health) as answer:
                assert (answer.status, await answer.text()) == (200, "ok")


async def test_plain_http_is_not_spoken(server: ApiServer):
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError):
            await session.get(server.url.replace("https", "http") + "/healthz")


async def test_the_certificate_is_checked(server: ApiServer):
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await session.get(server.url + "/healthz")


def test_only_loopback_is_served(tmp_path: Path):
    for host in ("0.0.0.0", "192.168.1.1", "localhost.example.com"):
        with pytest.raises(LocalClusterError, match="loopback"):
            ApiServer(tmp_path, host=host)


async def test_it_listens_on_loopback_alone(server: ApiServer):
    port = int(server.url.rpartition(":")[2])
    listening = [c.laddr for c in psutil.Process().net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    assert [address.ip for address in listening if address.port == port] == ["127.0.0.1"]


async def test_files_are_the_owners_alone(server: ApiServer, tmp_path: Path):
    kubeconfig = tmp_path / "new" / "kubeconfig"
    server.write_kubeconfig(kubeconfig)
    server.write_kubeconfig(kubeconfig)
    content = yaml.safe_load(kubeconfig.read_text())
    assert content["clusters"][0]["cluster"]["server"] == server.url
    for path in (kubeconfig, tmp_path / "api" / "token", tmp_path / "api" / "tls.key"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert stat.S_IMODE((tmp_path / "api").stat().st_mode) == 0o700


def test_tokens_are_compared_whole(tmp_path: Path):
    made = Credentials("secret", tmp_path, tmp_path, tmp_path)
    assert made.admits("Bearer secret")
    assert not any(
        made.admits(text) for text in ("Bearer secre", "Bearer secrets", "Bearer", "", "secret", "Bearer é")
    )


BAD_BODIES: dict[str, tuple[bytes, str, int]] = {
    "not JSON": (b"{", "application/json", 400),
    "a list": (b"[]", "application/json", 400),
    "a number": (b"7", "application/json", 400),
    "nothing": (b"", "application/json", 400),
    "not UTF-8": (b"\xff\xfe", "application/json", 400),
    "nested too deeply": (b"[" * 200_000, "application/json", 400),
    "YAML that is none": (b"a: [", "application/yaml", 400),
    "YAML that makes objects": (b"!!python/object/apply:os.system ['true']", "application/yaml", 400),
    "an unknown form": (b"x", "text/html", 415),
    "protobuf without its envelope": (b"\x0a\x00", PROTOBUF, 400),
    "protobuf that ends too early": (b"k8s\x00\x0a\x0d\x0a\x02v1\x12\x09Conf", PROTOBUF, 400),
    "protobuf of a kind that is not read": (b"k8s\x00\x0a\x09\x0a\x02v1\x12\x03Pod\x12\x00", PROTOBUF, 415),
    "another kind": (b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"}}', "application/json", 400),
    "metadata that is a list": (b'{"metadata":[]}', "application/json", 400),
    "no name": (b'{"metadata":{}}', "application/json", 422),
    "a name that is a number": (b'{"metadata":{"name":7}}', "application/json", 400),
    "labels that are a list": (b'{"metadata":{"name":"x","labels":["a"]}}', "application/json", 400),
    "another namespace": (b'{"metadata":{"name":"x","namespace":"other"}}', "application/json", 400),
    "data that is nested": (b'{"metadata":{"name":"x"},"data":{"a":{"b":"c"}}}', "application/json", 400),
    "owners without uid": (
        b'{"metadata":{"name":"x","ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":""}]}}',
        "application/json",
        422,
    ),
}


@pytest.mark.parametrize(("body", "media", "code"), BAD_BODIES.values(), ids=BAD_BODIES.keys())
async def test_a_bad_body_is_refused_and_the_server_goes_on(api: HttpApi, body: bytes, media: str, code: int):
    async with api.session.post(MAPS, data=body, headers={"Content-Type": media}) as answer:
        refusal = json.loads(await answer.read())
    assert (answer.status, refusal["kind"], refusal["status"]) == (code, "Status", "Failure"), refusal
    assert refusal["message"]
    assert (await api.get(MAPS))["items"] == []


async def test_a_body_that_is_too_large_is_refused(api: HttpApi):
    status, answer = await api.send("POST", MAPS, {"metadata": {"name": "x"}, "data": {"a": "x" * 4_000_000}})
    assert (status, answer["reason"]) == (413, "RequestEntityTooLarge")


BAD_CALLS = {
    "an unknown kind": ("GET", "/api/v1/nonsense", {}, 404),
    "an unknown group": ("GET", "/apis/nonsense.io/v1", {}, 404),
    "an unknown subresource": ("GET", f"{MAPS}/x/nonsense", {}, 404),
    "a list limit that is text": ("GET", MAPS, {"limit": "many"}, 400),
    "a negative limit": ("GET", MAPS, {"limit": "-1"}, 400),
    "an unknown dry run": ("POST", MAPS, {"dryRun": "Some"}, 400),
    "an unknown field validation": ("POST", MAPS, {"fieldValidation": "Perhaps"}, 400),
    "a POST to an object": ("POST", f"{MAPS}/x", {}, 405),
    "a PUT to a collection": ("PUT", MAPS, {}, 405),
    "a method that is none": ("LOCK", MAPS, {}, 405),
    "a delete of all namespaces": ("DELETE", "/api/v1/configmaps", {}, 405),
    "a propagation policy that is none": ("DELETE", f"{MAPS}/there", {"propagationPolicy": "Sideways"}, 400),
    "a grace period that is text": ("DELETE", f"{MAPS}/there", {"gracePeriodSeconds": "soon"}, 400),
    "a name with a slash": ("GET", f"{MAPS}/a%2F..%2Fb", {}, 404),
}


@pytest.mark.parametrize(("method", "path", "query", "code"), BAD_CALLS.values(), ids=BAD_CALLS.keys())
async def test_a_bad_call_is_refused(api: HttpApi, method: str, path: str, query: dict[str, str], code: int):
    await api.post(MAPS, config_map("there"))
    body = config_map() if method in ("POST", "PUT") else None
    status, answer = await api.send(method, path, body, **query)
    assert (status, answer["kind"]) == (code, "Status"), answer
    assert (await api.get(MAPS))["items"][0]["metadata"]["name"] == "there"


@pytest.mark.parametrize("precondition", ["uid", "resourceVersion"])
async def test_a_delete_may_say_which_object_it_means(api: HttpApi, precondition: str):
    made = await api.post(MAPS, config_map())
    status, answer = await api.send("DELETE", f"{MAPS}/cm", {"preconditions": {precondition: "1"}})
    assert (status, answer["reason"]) == (409, "Conflict")
    right = {"preconditions": {precondition: made["metadata"][precondition]}}
    assert (await api.send("DELETE", f"{MAPS}/cm", right))[0] == 200
    assert (await api.get(MAPS))["items"] == []


async def test_a_put_of_a_custom_kind_needs_a_version(api: HttpApi):
    path = "/apis/kubeflow.org/v1/namespaces/default/xgboostjobs"
    await api.post(path, job())
    status, answer = await api.send("PUT", f"{path}/job", job(workers=2))
    assert (status, answer["reason"]) == (422, "Invalid")
    assert "metadata.resourceVersion" in answer["message"]


async def test_a_put_with_another_uid_conflicts(api: HttpApi):
    made = await api.post(MAPS, config_map())
    made["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000"
    status, answer = await api.send("PUT", f"{MAPS}/cm", made)
    assert (status, answer["reason"]) == (409, "Conflict")


async def test_discovery_is_whole_and_true(api: HttpApi):
    groups = (await api.get("/apis"))["groups"]
    documents = [await api.get("/api/v1")]
    for group in groups:
        for version in group["versions"]:
            documents.append(await api.get(f"/apis/{version['groupVersion']}"))
    index = (await api.get("/openapi/v3"))["paths"]
    for document in documents:
        prefix = "api/v1" if document["groupVersion"] == "v1" else f"apis/{document['groupVersion']}"
        for entry in document["resources"]:
            if "/" not in entry["name"] and "list" in entry["verbs"]:
                assert (await api.get(f"/{prefix}/{entry['name']}"))["kind"] == f"{entry['kind']}List"
                assert prefix in index
    for place in index.values():
        assert (await api.get(place["serverRelativeURL"]))["components"]["schemas"]


async def test_two_writers_of_one_version_do_not_both_win(api: HttpApi):
    made = await api.post(MAPS, config_map())
    both = [{**made, "data": {"by": str(i)}} for i in range(8)]
    results = await asyncio.gather(*(api.send("PUT", f"{MAPS}/cm", body) for body in both))
    assert sorted(status for status, _ in results) == [200, *[409] * 7]


async def test_services_are_named_as_every_version_allows(api: HttpApi):
    """Kubernetes 1.37 also takes a leading digit; a name that only some clusters take is refused here."""
    services = "/api/v1/namespaces/default/services"
    made = {"metadata": {"name": "1-digit"}, "spec": {"clusterIP": "None"}}
    refusal = await api.post(services, made, 422)
    assert "a DNS-1035 label must consist of" in refusal["message"]


async def test_the_first_namespaces_stay(api: HttpApi):
    assert (await api.delete("/api/v1/namespaces/default", 403))["message"].endswith("may not be deleted")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"metadata":{"name":"x"},"data":{"a":NaN}}', 400),
        (b'{"metadata":{"name":"x"},"data":{"a":"\\ud800"}}', 201),
        (b'{"metadata":{"name":"x","annotations":{"a":' + b"[" * 800 + b"]" * 800 + b"}}}", 400),
    ],
    ids=["a number that is none", "half a surrogate pair", "nested deeper than it is walked"],
)
async def test_odd_json_comes_back_as_json(api: HttpApi, body: bytes, code: int):
    async with api.session.post(MAPS, data=body, headers={"Content-Type": "application/json"}) as answer:
        assert answer.status == code, await answer.text()
        json.loads(await answer.read())
    assert (await api.get(MAPS))["kind"] == "ConfigMapList"


async def test_what_is_not_read_in_protobuf_names_the_way_round(api: HttpApi):
    body = b"k8s\x00\x0a\x09\x0a\x02v1\x12\x03Pod\x12\x00"
    async with api.session.post(MAPS, data=body, headers={"Content-Type": PROTOBUF}) as answer:
        assert "kubectl apply -f" in json.loads(await answer.read())["message"]
