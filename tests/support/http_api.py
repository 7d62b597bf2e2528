"""The local API by plain HTTP, for what clients' libraries hide."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator
from typing import Any, Self

import aiohttp

from airflow_kftrain.local.apiserver import ApiServer

Json = dict[str, Any]
SECONDS = 20


class HttpApi:
    """An authenticated session with one server; answers are checked for their status."""

    def __init__(self, server: ApiServer) -> None:
        context = ssl.create_default_context(cafile=str(server.ca_file))
        self.session = aiohttp.ClientSession(
            server.url,
            headers={"Authorization": f"Bearer {server.token}"},
            connector=aiohttp.TCPConnector(ssl=context, limit=0),
            read_bufsize=2**22,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.session.close()

    async def send(
        self, method: str, path: str, body: Any, patch: str = "", **query: str
    ) -> tuple[int, Json]:
        """Status and body of any call.

        :param patch: ``merge-patch``, ``json-patch`` or ``strategic-merge-patch``
        """
        media = f"application/{patch}+json" if patch else "application/json"
        data = None if body is None else json.dumps(body)
        timeout = aiohttp.ClientTimeout(SECONDS)
        headers = {"Content-Type": media}
        async with self.session.request(
            method, path, data=data, params=query, headers=headers, timeout=timeout
        ) as answer:
            return answer.status, json.loads(await answer.read())

    async def _expect(self, code: int, method: str, path: str, body: Any, **query: str) -> Json:
        status, answer = await self.send(method, path, body, **query)
        assert status == code, answer
        return answer

    async def get(self, path: str, code: int = 200, **query: str) -> Json:
        return await self._expect(code, "GET", path, None, **query)

    async def post(self, path: str, body: Json, code: int = 201, **query: str) -> Json:
        return await self._expect(code, "POST", path, body, **query)

    async def put(self, path: str, body: Json, code: int = 200) -> Json:
        return await self._expect(code, "PUT", path, body)

    async def delete(self, path: str, code: int = 200) -> Json:
        return await self._expect(code, "DELETE", path, None)

    async def watch(self, path: str, **query: str) -> AsyncIterator[Json]:
        """Events, until the server ends the watch."""
        params = {"watch": "1", **{name: value for name, value in query.items() if value}}
        timeout = aiohttp.ClientTimeout(SECONDS)
        async with self.session.get(path, params=params, timeout=timeout) as stream:
            assert stream.status == 200
            async for line in stream.content:
                yield json.loads(line)

    async def watch_lines(self, path: str, count: int, **query: str) -> list[Json]:
        """The first ``count`` events, fewer if the watch ends before."""
        events: list[Json] = []
        async for event in self.watch(path, **query):
            events.append(event)
            if len(events) == count:
                break
        return events
