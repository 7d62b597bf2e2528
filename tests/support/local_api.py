"""The local API server in a thread of its own, for tests whose clients block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Self, TypeVar

from airflow_kftrain.clock import Clock, SystemClock
from airflow_kftrain.local.apiserver import ApiServer
from airflow_kftrain.local.kubelet.logs import LogBook

Result = TypeVar("Result")
SECONDS = 60


class LocalApi:
    """A running server with a log book; the same directory gives the same server again.

    :param directory: state, log files and kubeconfig
    """

    def __init__(self, directory: Path, *, clock: Clock | None = None, history: int = 10_000) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.kubeconfig = directory / "kubeconfig"
        self.logs = LogBook(directory / "logs", clock or SystemClock())
        self.server = ApiServer(directory / "api", clock=clock, logs=self.logs, history=history)

    def __enter__(self) -> Self:
        self._thread.start()
        self.run(self.server.start())
        self.server.write_kubeconfig(self.kubeconfig)
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self.server.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SECONDS)
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The result of a coroutine that runs in the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(SECONDS)
