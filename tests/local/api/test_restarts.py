"""What survives: a clean stop, SIGKILL in the middle of writes, two servers on one directory."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_kftrain.exceptions import LocalClusterError
from airflow_kftrain.local.apiserver import ApiServer
from tests.local.api.objects import config_map, job, owned_by
from tests.support.http_api import HttpApi

Json = dict[str, Any]
MAPS = "/api/v1/namespaces/default/configmaps"
JOBS = "/apis/kubeflow.org/v1/namespaces/default/xgboostjobs"
SECONDS = 60

_SERVE = """
import asyncio, sys
from pathlib import Path
from airflow_kftrain.local.apiserver import ApiServer

async def main():
    server = ApiServer(Path(sys.argv[1]))
    await server.start()
    print("ready", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def _listed(api: HttpApi, path: str = MAPS) -> dict[str, str]:
    return {o["metadata"]["name"]: o["metadata"]["resourceVersion"] for o in (await api.get(path))["items"]}


async def test_a_restart_keeps_port_token_authority_and_state(tmp_path: Path):
    first = ApiServer(tmp_path / "api")
    await first.start()
    before = (first.url, first.token, first.ca_file.read_bytes())
    async with HttpApi(first) as api:
        await api.post(MAPS, config_map("kept"))
        await api.post(MAPS, config_map("gone"))
        await api.delete(f"{MAPS}/gone")
        made = await api.get(f"{MAPS}/kept")
        version = int((await api.get(MAPS))["metadata"]["resourceVersion"])
    await first.stop()

    second = ApiServer(tmp_path / "api")
    await second.start()
    async with HttpApi(second) as api:
        assert (second.url, second.token, second.ca_file.read_bytes()) == before
        assert await api.get(f"{MAPS}/kept") == made
        assert list(await _listed(api)) == ["kept"]
        later = await api.post(MAPS, config_map("later"))
        assert int(later["metadata"]["resourceVersion"]) > version
        # Changes from before the restart are not known any more; from its own version on a watch goes on.
        (gone,) = await api.watch_lines(MAPS, 1, resourceVersion=str(version - 1))
        assert gone["object"]["code"] == 410
        (event,) = await api.watch_lines(MAPS, 1, resourceVersion=str(version))
        assert event["object"]["metadata"]["name"] == "later"
    await second.stop()


async def test_open_watches_end_when_the_server_stops(tmp_path: Path):
    server = ApiServer(tmp_path / "api")
    await server.start()
    async with HttpApi(server) as api:
        start = (await api.get(MAPS))["metadata"]["resourceVersion"]
        watching = asyncio.create_task(api.watch_lines(MAPS, 2, resourceVersion=start))
        await api.post(MAPS, config_map())
        async with asyncio.timeout(SECONDS):
            await server.stop()
            with contextlib.suppress(OSError, Exception):
                assert len(await watching) <= 1


async def test_what_was_answered_survives_sigkill(tmp_path: Path):
    """Eight writers until the process is killed; all that was answered is there, and no version comes twice."""
    directory = tmp_path / "api"
    seen = 0
    answered: dict[str, int] = {}
    for round_ in range(3):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _SERVE, str(directory), stdout=asyncio.subprocess.PIPE
        )
        try:
            assert process.stdout is not None
            async with asyncio.timeout(SECONDS):
                assert await process.stdout.readline() == b"ready\n"
            async with HttpApi(_Reached(directory)) as api:
                assert {n: int(v) for n, v in (await _listed(api)).items()}.items() >= answered.items()
                enough = asyncio.Event()
                writers = [asyncio.create_task(_write(api, round_, w, answered, enough)) for w in range(8)]
                async with asyncio.timeout(SECONDS):
                    await enough.wait()
                process.send_signal(signal.SIGKILL)
                await process.wait()
                await asyncio.gather(*writers)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        newest = max(answered.values())
        assert newest > seen
        seen = newest

    server = ApiServer(directory)
    await server.start()
    async with HttpApi(server) as api:
        found = {name: int(version) for name, version in (await _listed(api)).items()}
        assert {name: found.get(name) for name in answered} == answered
        assert len(set(found.values())) == len(found)
        assert int((await api.post(MAPS, config_map("after")))["metadata"]["resourceVersion"]) > max(
            found.values()
        )
    await server.stop()


class _Reached:
    """A server in another process, as far as a client must know it."""

    def __init__(self, directory: Path) -> None:
        self.url = f"https://127.0.0.1:{(directory / 'port').read_text().strip()}"
        self.token = (directory / "token").read_text()
        self.ca_file = directory / "ca.crt"


async def _write(
    api: HttpApi, round_: int, writer: int, answered: dict[str, int], enough: asyncio.Event
) -> None:
    for number in range(100_000):
        name = f"r{round_}-w{writer}-{number}"
        try:
            status, made = await api.send("POST", MAPS, config_map(name))
        except Exception:
            return  # the server is dead: nobody was told of this one
        assert status == 201, made
        answered[name] = int(made["metadata"]["resourceVersion"])
        if len([n for n in answered if n.startswith(f"r{round_}-")]) >= 200:
            enough.set()


async def test_garbage_collection_goes_on_after_a_restart(tmp_path: Path):
    server = ApiServer(tmp_path / "api")
    await server.start()
    async with HttpApi(server) as api:
        owner = await api.post(JOBS, job("owner"))
        held = owned_by(config_map("held"), owner)
        held["metadata"]["finalizers"] = ["example.com/hold"]
        await api.post(MAPS, held)
        await api.send("DELETE", f"{JOBS}/owner", {"propagationPolicy": "Foreground"})
        async for event in api.watch(MAPS):
            if "deletionTimestamp" in event["object"]["metadata"]:
                break
    await server.stop()

    again = ApiServer(tmp_path / "api")
    await again.start()
    async with HttpApi(again) as api:
        jobs = await api.get(JOBS)
        assert jobs["items"][0]["metadata"]["finalizers"] == ["foregroundDeletion"]
        await api.send("PATCH", f"{MAPS}/held", {"metadata": {"finalizers": None}}, "merge-patch")
        (event,) = await api.watch_lines(JOBS, 1, resourceVersion=jobs["metadata"]["resourceVersion"])
        assert (event["type"], event["object"]["metadata"]["name"]) == ("DELETED", "owner")
    await again.stop()


async def test_a_directory_has_one_server(tmp_path: Path):
    first = ApiServer(tmp_path / "api")
    await first.start()
    with pytest.raises(LocalClusterError, match="another API server uses"):
        await ApiServer(tmp_path / "api").start()
    await first.stop()
    again = ApiServer(tmp_path / "api")
    await again.start()
    await again.stop()


async def test_a_taken_port_is_named(tmp_path: Path):
    first = ApiServer(tmp_path / "one")
    await first.start()
    port = int(first.url.rpartition(":")[2])
    with pytest.raises(LocalClusterError, match=str(port)):
        await ApiServer(tmp_path / "two", port=port).start()
    await first.stop()


async def test_a_disk_that_refuses_is_told_to_clients(tmp_path: Path):
    server = ApiServer(tmp_path / "api")
    await server.start()
    async with HttpApi(server) as api:
        # Another writer that holds the database makes every commit fail, as a full disk does.
        blocker = sqlite3.connect(tmp_path / "api" / "state.db", isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        status, answer = await api.send("POST", MAPS, config_map("lost"))
        assert (status, answer["reason"]) == (500, "InternalError")
        async with api.session.get("/readyz") as health:
            assert health.status == 500
        blocker.execute("ROLLBACK")
        blocker.close()
    await server.stop()

    again = ApiServer(tmp_path / "api")
    await again.start()
    async with HttpApi(again) as api:
        assert list(await _listed(api)) == [], "what was not answered as done is not there"
    await again.stop()


@pytest.mark.parametrize("damage", ["noise", "another format", "other columns"])
async def test_a_state_that_cannot_be_read_says_what_to_do(tmp_path: Path, damage: str):
    directory = tmp_path / "api"
    directory.mkdir()
    if damage == "noise":
        (directory / "state.db").write_bytes(b"not a database " * 1000)
    else:
        with contextlib.closing(sqlite3.connect(directory / "state.db")) as connection:
            if damage == "another format":
                connection.execute("PRAGMA user_version = 99")
            else:  # of a version from before formats had numbers
                connection.execute("CREATE TABLE objects (kind TEXT, name TEXT, data BLOB)")
    with pytest.raises(LocalClusterError, match="kftrain local reset"):
        await ApiServer(directory).start()
