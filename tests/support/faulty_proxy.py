"""An HTTP proxy in front of any Kubernetes API that fails on demand, as networks and API servers do.

It speaks plain HTTP on loopback, passes the caller's credentials on, and streams watches and logs through.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import aiohttp
import yaml
from aiohttp import web

Answer = Callable[["FaultyProxy", web.Request, bytes], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Call:
    """One request that came in."""

    method: str
    path: str
    query: dict[str, str]

    @property
    def watch(self) -> bool:
        return self.query.get("watch") in ("true", "1")


@dataclass
class Rule:
    """Answers up to ``times`` requests that match, in place of the API."""

    method: str
    path: re.Pattern[str]
    answer: Answer
    times: int
    watch: bool | None = None
    used: int = 0

    def takes(self, call: Call) -> bool:
        return (
            self.used < self.times
            and self.method in (call.method, "*")
            and self.path.search(call.path) is not None
            and self.watch in (None, call.watch)
        )


def status(code: int, reason: str, message: str = "injected", *, retry_after: int | None = None) -> Answer:
    """The API refuses; nothing reaches it."""

    async def answer(proxy: FaultyProxy, request: web.Request, body: bytes) -> web.StreamResponse:
        text = {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "code": code, "reason": reason, "message": message,
        }  # fmt: skip
        headers = {"Retry-After": str(retry_after)} if retry_after is not None else {}
        return web.json_response(text, status=code, headers=headers)

    return answer


def lost_answer() -> Answer:
    """The API does what was asked, and the answer is lost on the way back."""

    async def answer(proxy: FaultyProxy, request: web.Request, body: bytes) -> web.StreamResponse:
        async with proxy.upstream(request, body) as response:
            await response.read()
        return _cut(request)

    return answer


def dropped() -> Answer:
    """The connection breaks before anything reaches the API."""

    async def answer(proxy: FaultyProxy, request: web.Request, body: bytes) -> web.StreamResponse:
        return _cut(request)

    return answer


def stalled() -> Answer:
    """No answer comes until the caller gives up or the proxy stops."""

    async def answer(proxy: FaultyProxy, request: web.Request, body: bytes) -> web.StreamResponse:
        await proxy.stopping.wait()
        return _cut(request)

    return answer


def watch_gone() -> Answer:
    """A watch whose first line is ERROR 410."""

    async def answer(proxy: FaultyProxy, request: web.Request, body: bytes) -> web.StreamResponse:
        gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
        return web.Response(
            text=json.dumps({"type": "ERROR", "object": gone}) + "\n", content_type="application/json"
        )

    return answer


def watch_closed() -> Answer:
    """A watch that ends at once without a line."""

    async def answer(proxy: FaultyProxy, request: web.Request, body: bytes) -> web.StreamResponse:
        return web.Response(text="", content_type="application/json")

    return answer


def watch_silent() -> Answer:
    """A watch that is answered, and then neither says anything nor closes."""

    async def answer(proxy: FaultyProxy, request: web.Request, body: bytes) -> web.StreamResponse:
        silent = web.StreamResponse(headers={"Content-Type": "application/json"})
        await silent.prepare(request)
        await proxy.stopping.wait()
        return silent

    return answer


def cut_in_mid_line() -> Answer:
    """What streams is passed on until the first line would be whole; half of it, and the connection breaks."""

    async def answer(proxy: FaultyProxy, request: web.Request, body: bytes) -> web.StreamResponse:
        async with proxy.upstream(request, body) as response:
            passed = web.StreamResponse(status=response.status)
            await passed.prepare(request)
            line = await response.content.readline()
            await passed.write(line[: len(line) // 2])
        if request.transport is not None:
            request.transport.abort()
        return passed

    return answer


def slow(seconds: float) -> Answer:
    """The API is asked only after a while."""

    async def answer(proxy: FaultyProxy, request: web.Request, body: bytes) -> web.StreamResponse:
        await asyncio.sleep(seconds)
        return await proxy.forward(request, body)

    return answer


def token_expired(old: str, new: str) -> Answer:
    """The credential ``old`` is refused from now on; ``new`` is one that the API takes."""

    async def answer(proxy: FaultyProxy, request: web.Request, body: bytes) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {new}":
            return await status(401, "Unauthorized", "the token has expired")(proxy, request, body)
        return await proxy.forward(request, body, authorization=f"Bearer {old}")

    return answer


@dataclass
class FaultyProxy:
    """Forwards to ``url``; requests that a rule takes are answered by the rule.

    :param url: the API server
    :param ca: file of its certificate authority
    :param busiest: by method and last part of the path: most calls that were under way at one time
    """

    url: str
    ca: str | None = None
    calls: list[Call] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)
    at_once: Counter[str] = field(default_factory=Counter)
    busiest: Counter[str] = field(default_factory=Counter)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    open: list[web.Request] = field(default_factory=list)

    @classmethod
    def before(cls, kubeconfig: Path) -> Self:
        """A proxy before the API that a kubeconfig names."""
        config = yaml.safe_load(kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        ca = cluster.get("certificate-authority")
        if ca is None and "certificate-authority-data" in cluster:
            import base64

            path = kubeconfig.with_suffix(".proxy-ca.pem")
            path.write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
            ca = str(path)
        return cls(cluster["server"], ca)

    def fail(
        self, method: str, path: str, *answers: Answer, times: int = 1, watch: bool | None = None
    ) -> list[Rule]:
        """Let the next requests that match fail, ``times`` with each of ``answers``, in their order.

        :param path: regular expression, searched in the path
        :param watch: only watches, or only what is none
        """
        made = [Rule(method, re.compile(path), answer, times, watch) for answer in answers]
        self.rules.extend(made)
        return made

    def hang_up(self) -> None:
        """Break all connections that wait for an answer or stream one."""
        for request in list(self.open):
            _cut(request)

    def seen(self, method: str, path: str, *, watch: bool | None = None) -> list[Call]:
        """The matching calls so far."""
        return [
            call
            for call in self.calls
            if call.method == method and re.search(path, call.path) and watch in (None, call.watch)
        ]

    async def __aenter__(self) -> Self:
        verify: Any = ssl.create_default_context(cafile=self.ca) if self.ca else True
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=verify, limit=0), auto_decompress=False
        )
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        self._site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await self._site.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stopping.set()
        await self._session.close()
        await self._runner.cleanup()

    @property
    def address(self) -> str:
        """Where the proxy listens."""
        host, port = self._runner.addresses[0][:2]
        return f"http://{host}:{port}"

    def kubeconfig(self, original: Path, target: Path) -> Path:
        """Write ``original`` with this proxy as its server to ``target``."""
        config = yaml.safe_load(original.read_text())
        config["clusters"][0]["cluster"] = {"server": self.address}
        target.write_text(yaml.safe_dump(config))
        return target

    def upstream(self, request: web.Request, body: bytes, *, authorization: str | None = None) -> Any:
        """The same request to the API, with other credentials where they are given."""
        kept = {
            k: v
            for k, v in request.headers.items()
            if k.lower() not in ("host", "content-length", "connection")
        }
        if authorization is not None:
            kept["Authorization"] = authorization
        return self._session.request(
            request.method,
            f"{self.url}{request.rel_url}",
            headers=kept,
            data=body or None,
            timeout=aiohttp.ClientTimeout(total=None),
        )

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        call = Call(request.method, request.path, dict(request.query))
        self.calls.append(call)
        kind = f"{call.method} {call.path.rsplit('/', 1)[-1]}"
        self.at_once[kind] += 1
        self.open.append(request)
        self.busiest[kind] = max(self.busiest[kind], self.at_once[kind])
        try:
            return await self._answer(request, call, body)
        finally:
            self.at_once[kind] -= 1
            self.open.remove(request)

    async def _answer(self, request: web.Request, call: Call, body: bytes) -> web.StreamResponse:
        rule = next((r for r in self.rules if r.takes(call)), None)
        if rule is not None:
            rule.used += 1
            return await rule.answer(self, request, body)
        return await self.forward(request, body)

    async def forward(
        self, request: web.Request, body: bytes, *, authorization: str | None = None
    ) -> web.StreamResponse:
        """Pass the request on, and the answer back as it comes."""
        async with self.upstream(request, body, authorization=authorization) as response:
            passed = {
                k: v
                for k, v in response.headers.items()
                if k.lower() not in ("content-length", "transfer-encoding", "connection")
            }
            answer = web.StreamResponse(status=response.status, headers=passed)
            await answer.prepare(request)
            try:
                async for chunk in response.content.iter_any():
                    await answer.write(chunk)
                await answer.write_eof()
            except (ConnectionError, aiohttp.ClientError):
                pass  # either side went away: the other one learns it from the cut stream
            return answer


def _cut(request: web.Request) -> web.StreamResponse:
    """Break the connection of a request that was not answered."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()
