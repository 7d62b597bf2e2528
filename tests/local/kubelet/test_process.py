"""Real processes: many at once, their whole group, and their end with their parent."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import uuid
from pathlib import Path

import psutil
import pytest

from airflow_kftrain.local.kubelet import process as process_module
from airflow_kftrain.local.kubelet.plan import CLUSTER_MARKER, POD_MARKER, Launch
from airflow_kftrain.local.kubelet.ports import PortBlocks
from airflow_kftrain.local.kubelet.process import start
from airflow_kftrain.local.kubelet.sweep import marked, sweep
from tests.support.processes import has_ended


def launch(*argv: str, **env: str) -> Launch:
    return Launch(argv, {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **env}, "/")


async def run(*argv: str) -> tuple[int, bytes]:
    output: list[bytes] = []
    code = await asyncio.wait_for(start(launch(*argv)).run(output.append), 20)
    return code, b"".join(output)


@pytest.mark.parametrize("pidfd", [True, False], ids=["pidfd", "a waiting thread, where there is no pidfd"])
async def test_output_and_code(monkeypatch, pidfd: bool):
    if not pidfd:
        monkeypatch.setattr(process_module, "_pidfd", lambda pid: None)
    assert await run("sh", "-c", "echo out; echo err >&2; exit 4") == (4, b"out\nerr\n")
    assert (await run("sh", "-c", "kill -TERM $$"))[0] == 143


async def test_a_program_that_is_not_there_says_so():
    code, output = await run("no-such-program")
    assert (code, output) == (127, b'exec: "no-such-program": no such file, or not on PATH\n')


async def test_a_process_gets_its_own_environment_and_nothing_of_ours(monkeypatch):
    monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", "a-secret")
    output: list[bytes] = []
    await start(launch("env", MINE="1")).run(output.append)
    names = {line.split(b"=")[0] for line in b"".join(output).splitlines()}
    assert names == {b"PATH", b"LANG", b"MINE"}


async def test_all_output_of_a_process_that_writes_much_and_ends_at_once_arrives():
    script = "import sys; sys.stdout.buffer.write(b'x' * 3_000_000)"
    code, output = await run(sys.executable, "-c", script)
    assert (code, len(output)) == (0, 3_000_000)


async def test_signal_settings_are_those_of_a_fresh_process():
    # Python ignores SIGPIPE, and what is ignored stays so over exec, unless it is set back.
    code, _ = await run("sh", "-c", "kill -PIPE $$; echo still here")
    assert code == 128 + signal.SIGPIPE


async def test_sixty_at_once_do_not_hold_the_loop_up():
    late = 0.0

    async def beat() -> None:
        nonlocal late
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + 0.01
            await asyncio.sleep(0.01)
            late = max(late, loop.time() - due)

    beating = asyncio.create_task(beat())
    results = await asyncio.gather(*(run("sh", "-c", f"echo {n}; exit {n}") for n in range(60)))
    beating.cancel()
    assert results == [(n, b"%d\n" % n) for n in range(60)]
    assert 0 < late < 2.0


async def test_the_whole_group_ends_with_its_first_process():
    script = "sleep 300 & echo $!; exit 0"
    code, output = await run("sh", "-c", script)
    assert code == 0
    child = int(output)
    assert has_ended(child)


async def test_a_signal_reaches_the_whole_group():
    process = start(launch("sh", "-c", "sh -c 'echo $$; exec sleep 300' & wait"))
    seen: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(process.run(lambda chunk: seen.done() or seen.set_result(chunk)))
    child = int(await asyncio.wait_for(seen, 20))
    process.signal(signal.SIGTERM)
    assert await asyncio.wait_for(running, 20) == 143
    assert has_ended(child)
    process.signal(signal.SIGTERM)  # nothing happens: it is gone


PARENT = """
import asyncio, os, sys
from airflow_kftrain.local.kubelet.plan import Launch
from airflow_kftrain.local.kubelet.process import start
async def main():
    process = start(Launch(["sleep", "300"], {"PATH": os.environ["PATH"]}, "/"))
    print(process.pid, flush=True)
    await process.run(lambda chunk: None)
asyncio.run(main())
"""


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux ends children with their parent; elsewhere the sweep"
)
def test_processes_end_with_a_kubelet_that_is_killed():
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(PARENT)], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    # Wait until the process is the one it was started for: only then has it asked to end with its parent.
    deadline = threading.Event()
    while "sleep" not in child.name() and not deadline.wait(0.01):
        pass
    parent.kill()
    parent.wait()
    _, alive = psutil.wait_procs([child], timeout=10)
    assert not alive


async def test_a_sweep_finds_what_left_its_group_and_spares_all_else():
    cluster, pod = uuid.uuid4().hex, uuid.uuid4().hex
    script = "import subprocess; subprocess.Popen(['sleep', '300'], start_new_session=True)"
    mine = {CLUSTER_MARKER: cluster, POD_MARKER: pod}
    await start(launch(sys.executable, "-c", script, **mine)).run(lambda chunk: None)
    other = start(launch("sleep", "300", **{CLUSTER_MARKER: cluster, POD_MARKER: "other"}))
    try:
        (left,) = [p.pid for p in marked(cluster, [pod])]
        assert await asyncio.to_thread(sweep, cluster, [pod]) == [left]
        assert list(marked(cluster, [pod])) == []
        assert [p.pid for p in marked(cluster)] == [other.pid]
        assert sweep(uuid.uuid4().hex) == []
    finally:
        other.signal(signal.SIGKILL)
        await other.run(lambda chunk: None)


def test_two_clusters_never_hand_out_the_same_port(tmp_path: Path):
    first, second = PortBlocks(), PortBlocks()
    try:
        ports = [blocks.take() for _ in range(500) for blocks in (first, second)]
        assert len(set(ports)) == 1000
        first.give_back(ports[0])
    finally:
        first.close()
        second.close()
