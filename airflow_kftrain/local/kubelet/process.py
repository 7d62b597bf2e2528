"""One container's process: start it, read what it writes, end its whole group, and say how it ended."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from airflow_kftrain.local.kubelet.plan import Launch

_EXEC = str(Path(__file__).with_name("_exec.py"))
_CHUNK = 65536
# What a process left in the pipe when it ended is there at once; who still holds the pipe is being killed.
_DRAIN_SECONDS = 0.5


class ContainerProcess:
    """A started process with its process group; made by :func:`start`."""

    def __init__(self, popen: subprocess.Popen[bytes], output: int) -> None:
        self._popen = popen
        self._output = output

    @property
    def pid(self) -> int:
        """Its process id, which is its group's too."""
        return self._popen.pid

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the whole group; nothing happens when it is gone."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, number)

    async def run(self, write: Callable[[bytes], None]) -> int:
        """Hand all output to ``write`` until the process ends; its exit code, 128 + n when signal n ended it.

        What is left of its group then is killed, as a container ends with its first process.
        """
        reader = asyncio.ensure_future(self._pump(write))
        try:
            await _ended(self._popen)
        finally:
            # Before it is reaped: until then no other group can have its number.
            self.signal(signal.SIGKILL)
        code = self._popen.wait()
        # A grandchild in a session of its own may hold the pipe; the sweep ends it.
        with suppress(TimeoutError):
            await asyncio.wait_for(reader, _DRAIN_SECONDS)
        return code if code >= 0 else 128 - code

    async def _pump(self, write: Callable[[bytes], None]) -> None:
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        os.set_blocking(self._output, False)

        def readable() -> None:
            try:
                chunk = os.read(self._output, _CHUNK)
            except BlockingIOError:
                return
            except OSError:
                chunk = b""
            if chunk:
                write(chunk)
            else:
                _resolve(done)

        loop.add_reader(self._output, readable)
        try:
            await done
        finally:
            loop.remove_reader(self._output)
            os.close(self._output)


def start(launch: Launch) -> ContainerProcess:
    """Start a process in a session of its own, its output in one pipe, its input empty.

    It must be called in a thread that lives as long as the kubelet: the kernel ends children with their thread.

    :raises OSError: the system cannot start any process (out of processes, files or memory)
    """
    read_end, write_end = os.pipe()
    try:
        popen = subprocess.Popen(
            [sys.executable, "-I", "-S", _EXEC, str(os.getpid()), *launch.argv],
            env=dict(launch.env),
            cwd=launch.cwd,
            stdin=subprocess.DEVNULL,
            stdout=write_end,
            stderr=write_end,
            start_new_session=True,
        )
    except BaseException:
        os.close(read_end)
        raise
    finally:
        os.close(write_end)
    return ContainerProcess(popen, read_end)


async def _ended(popen: subprocess.Popen[bytes]) -> None:
    """Return when the process has ended, without blocking the loop and without a poll."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    descriptor = _pidfd(popen.pid)
    if descriptor is None:
        waiting = threading.Thread(target=_wait_in_thread, args=(popen, loop, ended), daemon=True)
        waiting.start()
        await ended
        return
    try:
        loop.add_reader(descriptor, _resolve, ended)
        await ended
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _pidfd(pid: int) -> int | None:
    """A descriptor that is readable once the process has ended; None where the system has none (macOS, sandboxes)."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _wait_in_thread(
    popen: subprocess.Popen[bytes], loop: asyncio.AbstractEventLoop, ended: asyncio.Future[None]
) -> None:
    popen.wait()
    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(_resolve, ended)
