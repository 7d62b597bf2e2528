"""Brings a local cluster up and down: one daemon per directory, found by its lock, swept after by its mark."""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from airflow_kftrain.exceptions import LocalClusterError
from airflow_kftrain.local.daemon_environment import daemon_environment
from airflow_kftrain.local.home import Config, Home, default_home
from airflow_kftrain.local.kubelet.sweep import sweep
from airflow_kftrain.local.nodes import make_nodes
from airflow_kftrain.local.overview import Overview, overview

READY = "ready"
_LOG_LINES = 15
_LOG_BYTES = 10 * 1024 * 1024
_END_SECONDS = 20.0


class LocalCluster:
    """A local cluster by its directory.

    :param home: where its state is; ``$KFTRAIN_HOME`` or ``~/.kftrain/default`` when absent
    """

    def __init__(self, home: Path | str | None = None) -> None:
        self._home = Home(Path(home).expanduser().absolute() if home is not None else default_home())

    @property
    def home(self) -> Path:
        return self._home.path

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of this cluster alone; the user's own is never touched."""
        return self._home.kubeconfig

    @property
    def images(self) -> Path:
        """The table of images, for the user to write; see :class:`~airflow_kftrain.local.kubelet.Images`."""
        return self._home.images

    @property
    def running(self) -> bool:
        """Whether the daemon lives."""
        return self._home.daemon_pid() is not None

    @property
    def pid(self) -> int | None:
        """The daemon's process id while it lives."""
        return self._home.daemon_pid()

    def up(self, nodes: int | None = None, gpus: int | None = None, *, timeout: float = 60.0) -> bool:
        """Bring the cluster up; returns when it answers and its nodes are ready.

        :param nodes: how many nodes to make up; as the last time when absent, at first 1
        :param gpus: GPUs per node; as the last time when absent, at first 0
        :param timeout: seconds the start may take
        :returns: False when it was up already
        :raises LocalClusterError: it does not start, or is up with other nodes
        :raises InvalidInput: a number out of range
        """
        self._home.make()
        with self._home.exclusive():
            last = self._home.config() or Config()
            wanted = Config(last.nodes if nodes is None else nodes, last.gpus if gpus is None else gpus)
            make_nodes(wanted.nodes, wanted.gpus)
            if self.running:
                if wanted != last:
                    raise LocalClusterError(
                        f"the cluster in {self.home} is up with {last}, not with {wanted}: "
                        "run kftrain local down first, then up again (its objects are kept)"
                    )
                return False
            sweep(self._home.cluster_id())
            self._home.write_config(wanted)
            self._start(timeout)
            return True

    def down(self) -> bool:
        """End the daemon and every process of its pods, whatever was killed before; objects are kept.

        :returns: False when there was nothing to end
        :raises LocalClusterError: the daemon cannot be ended
        """
        if not self.home.exists():
            return False
        with self._home.exclusive():
            return self._end()

    def reset(self) -> None:
        """:meth:`down`, then delete the cluster's objects, logs and volumes. The table of images is kept."""
        if not self.home.exists():
            return
        with self._home.exclusive():
            self._end()
            for path in self._home.state_paths:
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)

    def status(self) -> Overview | None:
        """Nodes, pods and jobs as they are now; None when the cluster is down. Not to be called in an event loop.

        :raises ApiUnreachable: the daemon lives but does not answer
        """
        return overview(self.kubeconfig) if self.running else None

    def _start(self, timeout: float) -> None:
        self._rotate_log()
        read_end, write_end = os.pipe()
        try:
            with self._home.log.open("ab") as log:
                starter = subprocess.Popen(
                    [sys.executable, "-m", "airflow_kftrain.local.detach", str(self.home), str(write_end)],
                    env=daemon_environment(),
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=[write_end],
                )
            os.close(write_end)
            write_end = -1
            answer = _read_until_closed(read_end, timeout)
            starter.wait(timeout)
        finally:
            os.close(read_end)
            if write_end >= 0:
                os.close(write_end)
        if answer == READY:
            return
        self._end()
        raise LocalClusterError(self._why(answer, timeout))

    def _rotate_log(self) -> None:
        log = self._home.log
        if log.exists() and log.stat().st_size > _LOG_BYTES:
            log.replace(log.with_suffix(".log.1"))

    def _why(self, answer: str | None, timeout: float) -> str:
        if answer:
            return f"the local cluster did not start: {answer} (its log is {self._home.log})"
        what = f"it was not ready within {timeout:g} s" if answer is None else "its process ended"
        return f"the local cluster did not start: {what}\nlast lines of {self._home.log}:\n{self._log_tail()}"

    def _log_tail(self) -> str:
        try:
            lines = self._home.log.read_text("utf-8", "replace").splitlines()
        except OSError:
            return "  (no log)"
        return "\n".join(f"  {line}" for line in lines[-_LOG_LINES:])

    def _end(self) -> bool:
        pid = self._home.daemon_pid()
        if pid is not None:
            _end_process(pid)
        swept = sweep(self._home.cluster_id())
        if self._home.daemon_pid() is not None:
            raise LocalClusterError(f"the daemon of {self.home} (process {pid}) cannot be ended")
        self._home.remove_tmp()
        return pid is not None or bool(swept)


def _end_process(pid: int) -> None:
    """SIGTERM, and SIGKILL if that does not end it in time."""
    try:
        process = psutil.Process(pid)
        process.send_signal(signal.SIGTERM)
        _, alive = psutil.wait_procs([process], timeout=_END_SECONDS)
        for left in alive:
            left.kill()
        psutil.wait_procs(alive, timeout=5)
    except psutil.NoSuchProcess:
        return


def _read_until_closed(descriptor: int, timeout: float) -> str | None:
    """All that is written until the other side closes; None when that takes longer than ``timeout`` seconds."""
    text = b""
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while selector.select(timeout):
            chunk = os.read(descriptor, 65536)
            if not chunk:
                return text.decode("utf-8", "replace")
            text += chunk
    return None
