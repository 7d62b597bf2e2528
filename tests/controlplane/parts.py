"""One process of the control plane: started with a log of its own, waited for, ended by its pid."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

START_SECONDS = 60.0
"""How long a part may take until it answers; all take under five seconds on an idle machine."""

LOG_TAIL = 25
"""Lines of a part's log shown when it fails."""

_PR_SET_PDEATHSIG = 1


class PartFailed(Exception):
    """A part of the control plane ended or did not get ready; the text names it and shows the end of its log."""


@dataclass
class Part:
    """A process and how to tell that it is ready.

    :param ready: says whether it is; called again and again, an ``OSError`` means "not yet"
    :param stop_seconds: time it gets between SIGTERM and SIGKILL
    """

    name: str
    command: Sequence[str | Path]
    folder: Path
    ready: Callable[[], bool]
    environment: dict[str, str] = field(default_factory=dict)
    stop_seconds: float = 3.0
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def log(self) -> Path:
        """Where it writes its output to."""
        return self.folder / f"{self.name}.log"

    def start(self) -> None:
        """Start the process, without waiting until it is ready."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [str(word) for word in self.command],
                cwd=self.folder,
                env=_bare_environment(self.folder) | self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Its own session: a Ctrl-C at the terminal reaches the tests alone, which then stop parts in order.
                start_new_session=True,
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )

    def wait_ready(self, seconds: float = START_SECONDS) -> None:
        """Return once it is ready.

        Raises PartFailed when it ends before, or is not ready within ``seconds``.
        """
        assert self.process is not None, f"{self.name} was not started"
        deadline = time.monotonic() + seconds
        reason = "no answer"
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise self.failure(f"ended with code {self.process.returncode} before it was ready")
            try:
                if self.ready():
                    return
            except OSError as error:
                reason = str(error)
            time.sleep(0.05)
        raise self.failure(f"is not ready after {seconds:.0f} s ({reason})")

    def check(self) -> None:
        """Raise PartFailed when the process has ended."""
        if self.process is not None and self.process.poll() is not None:
            raise self.failure(f"ended with code {self.process.returncode}")

    def failure(self, what: str) -> PartFailed:
        """The error that names this part, with the end of its log."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        tail = "\n".join(f"    {line[:300]}" for line in lines[-LOG_TAIL:]) or "    (empty)"
        return PartFailed(f"{self.name} {what}; the end of its log {self.log}:\n{tail}")

    def stop(self) -> None:
        """End the process: SIGTERM, then SIGKILL after ``stop_seconds``. Safe to call again."""
        process, self.process = self.process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            process.wait(self.stop_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_ports(count: int) -> list[int]:
    """Distinct ports of loopback that nobody listens on at this moment."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def answers(url: str, *, ca: Path | None = None, token: str | None = None) -> Callable[[], bool]:
    """A ready check: ``url`` answers 200. Without ``ca`` the server's certificate is not looked at."""

    def check() -> bool:
        context = ssl.create_default_context(cafile=str(ca)) if ca else ssl._create_unverified_context()
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        with opener.open(request, timeout=5) as answer:
            return bool(answer.status == 200)

    return check


def _bare_environment(folder: Path) -> dict[str, str]:
    """As little as a Go program needs: nothing of the machine's Kubernetes or proxy settings reaches a part."""
    return {"PATH": os.environ.get("PATH", ""), "HOME": str(folder), "TMPDIR": str(folder)}


def _die_with_parent() -> None:
    """On Linux a part goes when the test process does, even by SIGKILL."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
