"""An HTTP server that answers list and watch calls as a test wrote down: shows a client what servers do rarely."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from airflow_kftrain.cluster.client import Cluster


@dataclass
class Answer:
    """One answer.

    :param body: JSON of a plain answer
    :param lines: events of a watch, sent one by one; then the connection closes, or with ``hang`` stays open
    :param cut: break the connection in the middle of the last line
    """

    status: int = 200
    body: Any = None
    lines: tuple[Any, ...] = ()
    headers: dict[str, str] = field(default_factory=dict)
    hang: bool = False
    cut: bool = False


def listed(*objects: dict[str, Any], version: str, more: str | None = None) -> Answer:
    """A list (or one page of it)."""
    return Answer(body={"items": list(objects), "metadata": {"resourceVersion": version, "continue": more}})


def watched(*events: tuple[str, dict[str, Any]], hang: bool = False, cut: bool = False) -> Answer:
    """A watch that says these events."""
    return Answer(lines=tuple({"type": kind, "object": obj} for kind, obj in events), hang=hang, cut=cut)


def failed(code: int, reason: str, **headers: str) -> Answer:
    """An error answer, with a Status body."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(code, {"kind": "Status", "code": code, "reason": reason, "message": reason}, headers=named)


def thing(name: str, version: int, uid: str | None = None, **more: Any) -> dict[str, Any]:
    """A small object."""
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": uid or f"uid-{name}",
        "resourceVersion": str(version),
    }
    return {"metadata": metadata, **more}


class ScriptedApi:
    """Gives the scripted answers in order: lists and gets from ``lists``, watches from ``watches``.

    When a script runs out, lists repeat their last answer and watches hang.
    """

    def __init__(self) -> None:
        self.lists: list[Answer] = []
        self.watches: list[Answer] = []
        self.calls: list[str] = []
        self.tokens = {"secret"}
        self.url = ""

    @property
    def list_calls(self) -> int:
        return sum(call.startswith("LIST") for call in self.calls)

    @property
    def watch_calls(self) -> int:
        return sum(call.startswith("WATCH") for call in self.calls)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization", "").removeprefix("Bearer ") not in self.tokens:
            self.calls.append("401")
            return self._plain(failed(401, "Unauthorized"))
        is_watch = request.query.get("watch") == "true"
        version = request.query.get("resourceVersion", "")
        self.calls.append(
            f"WATCH {version}" if is_watch else f"LIST {request.query.get('continue', '')}".strip()
        )
        if not is_watch:
            return self._plain(self.lists.pop(0) if len(self.lists) > 1 else self.lists[0])
        answer = self.watches.pop(0) if self.watches else Answer(hang=True)
        return self._plain(answer) if answer.status != 200 else await self._stream(request, answer)

    @staticmethod
    def _plain(answer: Answer) -> web.Response:
        return web.json_response(answer.body, status=answer.status, headers=answer.headers)

    @staticmethod
    async def _stream(request: web.Request, answer: Answer) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for number, line in enumerate(answer.lines, start=1):
            text = json.dumps(line).encode() + b"\n"
            if answer.cut and number == len(answer.lines):
                await response.write(text[: len(text) // 2])
                assert request.transport is not None
                request.transport.abort()
                return response
            await response.write(text)
        if answer.hang:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        return response


@contextlib.asynccontextmanager
async def scripted_api() -> AsyncIterator[ScriptedApi]:
    """Serve on a free port of loopback."""
    api = ScriptedApi()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", api.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    api.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield api
    finally:
        await runner.cleanup()


def client_of(api: ScriptedApi, *tokens: str) -> Cluster:
    """A client; each time it reads its credentials anew it takes the next token."""
    left = list(tokens or ("secret",))

    async def connect() -> Any:
        from kubernetes_asyncio.client import ApiClient, Configuration

        configuration = Configuration(host=api.url)
        configuration.api_key["BearerToken"] = f"Bearer {left.pop(0) if len(left) > 1 else left[0]}"
        return ApiClient(configuration)

    return Cluster(connect, timeout=5)
