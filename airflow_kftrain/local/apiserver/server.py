"""The server: a data directory, a port, and what runs beside the requests."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import fcntl
import logging
import os
from pathlib import Path

from aiohttp import web

from airflow_kftrain.clock import Clock, SystemClock
from airflow_kftrain.exceptions import LocalClusterError
from airflow_kftrain.local.apiserver.collector import Collector
from airflow_kftrain.local.apiserver.custom_kinds import custom_kinds
from airflow_kftrain.local.apiserver.deletes import PERMANENT_NAMESPACES, Deleter
from airflow_kftrain.local.apiserver.errors import StatusError
from airflow_kftrain.local.apiserver.http import BODY_LIMIT, Frontend
from airflow_kftrain.local.apiserver.journal import Journal
from airflow_kftrain.local.apiserver.kinds import CORE_KINDS, Registry
from airflow_kftrain.local.apiserver.logs import LogSource
from airflow_kftrain.local.apiserver.quota import Quotas
from airflow_kftrain.local.apiserver.reads import Lister
from airflow_kftrain.local.apiserver.resources import Resources
from airflow_kftrain.local.apiserver.security import Credentials, credentials, kubeconfig, write_private
from airflow_kftrain.local.apiserver.store import Change, Store
from airflow_kftrain.local.apiserver.writes import Options, Writer

log = logging.getLogger(__name__)

EVENT_TTL = dt.timedelta(hours=1)
"""How long Events are kept (kube-apiserver's ``--event-ttl``)."""

_SWEEP_SECONDS = 60.0
_FIRST_NAMESPACES = (*PERMANENT_NAMESPACES, "kube-node-lease")


class ApiServer:
    """A Kubernetes API on loopback.

    Whoever has the token can run commands as the user, once a kubelet serves this API: the address must be one of
    the loopback network, the files are the owner's alone. Started again on the same directory it keeps port, token,
    certificate authority and state.

    :param data_dir: where all of that is; made when missing, for one server at a time
    :param port: 0 picks a free one at the first start
    :param logs: where containers' logs are; without it no container has started
    :param history: changes of each kind that a watch can go back to before it gets 410
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        clock: Clock | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        logs: LogSource | None = None,
        history: int = 10_000,
    ) -> None:
        if not host.startswith("127."):
            raise LocalClusterError(
                f"the local API is only served on loopback, not on {host!r}: use 127.0.0.1"
            )
        self._data_dir = data_dir
        self._clock = clock or SystemClock()
        self._host = host
        self._asked_port = port
        self._logs = logs
        self._history = history
        self._port = 0
        self._credentials: Credentials | None = None
        self._stack: contextlib.AsyncExitStack | None = None
        self._work = asyncio.Event()

    @property
    def url(self) -> str:
        """``https://127.0.0.1:port``; known once it is started."""
        return f"https://{self._host}:{self._port}"

    @property
    def token(self) -> str:
        """The bearer token."""
        return self._made.token

    @property
    def ca_file(self) -> Path:
        """The certificate authority that signed the server's certificate."""
        return self._made.ca_file

    def write_kubeconfig(self, path: Path) -> None:
        """Write a kubeconfig of mode 0600 for this server, whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_private(path, kubeconfig(self.url, self._made).encode())

    async def start(self) -> None:
        """Serve; returns when requests are answered.

        :raises LocalClusterError: another server uses the directory, or the port is taken
        """
        async with contextlib.AsyncExitStack() as stack:
            self._prepare_directory(stack)
            self._credentials = credentials(self._data_dir, self._host)
            await self._serve(stack)
            self._stack = stack.pop_all()

    async def stop(self) -> None:
        """End all connections, write what is queued, and let go of the directory."""
        if self._stack is not None:
            stack, self._stack = self._stack, None
            await stack.aclose()

    @property
    def _made(self) -> Credentials:
        if self._credentials is None:
            raise LocalClusterError("the API server is not started: await start() first")
        return self._credentials

    def _prepare_directory(self, stack: contextlib.AsyncExitStack) -> None:
        self._data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._data_dir.chmod(0o700)
        descriptor = os.open(self._data_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        stack.callback(os.close, descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            text = f"another API server uses {self._data_dir}: stop it first (kftrain local down)"
            raise LocalClusterError(text) from error

    async def _serve(self, stack: contextlib.AsyncExitStack) -> None:
        registry = Registry([*CORE_KINDS, *custom_kinds()])
        store = Store(registry, Journal(self._data_dir / "state.db"), history=self._history)
        store.open()
        stack.push_async_callback(store.close)
        quotas = Quotas(registry, store)
        writer, deleter = Writer(registry, store, self._clock, quotas), Deleter(store, self._clock)
        collector = Collector(registry, store, writer, deleter)
        collector.begin()
        self._make_namespaces(registry, store, writer)
        store.listen(collector.note)
        store.listen(quotas.note)
        store.listen(self._on_change)
        for chore in (self._collect(collector, quotas), self._sweep_events(registry, store)):
            stack.push_async_callback(_cancel, asyncio.create_task(chore))
        resources = Resources(store, writer, deleter, self._clock)
        lister = Lister(store, self._clock)
        frontend = Frontend(registry, store, resources, lister, self._clock, self._made, self._logs)
        await self._listen(stack, frontend)
        stack.callback(store.end_watches)
        self._work.set()

    async def _listen(self, stack: contextlib.AsyncExitStack, frontend: Frontend) -> None:
        app = web.Application(client_max_size=BODY_LIMIT)
        app.router.add_route("*", "/{path:.*}", frontend.handle)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        port_file = self._data_dir / "port"
        port = self._asked_port or (int(port_file.read_text()) if port_file.exists() else 0)
        site = web.TCPSite(
            runner,
            self._host,
            port,
            ssl_context=self._made.server_context(),
            reuse_address=True,
            backlog=1024,
        )
        try:
            await site.start()
        except OSError as error:
            text = f"port {port} of {self._host} is taken by another program: end it, or remove {port_file}"
            raise LocalClusterError(text) from error
        self._port = runner.addresses[0][1]
        write_private(port_file, f"{self._port}\n".encode())

    @staticmethod
    def _make_namespaces(registry: Registry, store: Store, writer: Writer) -> None:
        kind = registry.core("namespaces")
        for name in _FIRST_NAMESPACES:
            if store.get(kind, "", name) is None:
                writer.create(kind, "", {"metadata": {"name": name}}, Options())

    def _on_change(self, _: Change) -> None:
        self._work.set()

    async def _collect(self, collector: Collector, quotas: Quotas) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            try:
                collector.run_once()
                quotas.refresh()
            except StatusError:
                log.exception("garbage collection stops: the state cannot be written")
                return
            except Exception:
                log.exception("garbage collection failed; it goes on with the next change")

    async def _sweep_events(self, registry: Registry, store: Store) -> None:
        events = registry.core("events")
        while True:
            await self._clock.sleep(_SWEEP_SECONDS)
            oldest = (self._clock.now() - EVENT_TTL).strftime("%Y-%m-%dT%H:%M:%SZ")
            for record in store.list(events):
                if _last_seen(record.obj) < oldest:
                    store.remove(record)


def _last_seen(event: dict[str, object]) -> str:
    """When an event was last seen; times of one form compare as text."""
    metadata = event["metadata"]
    assert isinstance(metadata, dict)
    times = (event.get("lastTimestamp"), event.get("eventTime"), metadata["creationTimestamp"])
    return max(str(time) for time in times if time)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
