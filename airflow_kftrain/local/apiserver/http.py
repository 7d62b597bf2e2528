"""HTTP: authentication, routing, forms of answers, streams."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any

from aiohttp import web

from airflow_kftrain.clock import Clock
from airflow_kftrain.local.apiserver import discovery
from airflow_kftrain.local.apiserver.bodies import PROTOBUF, decode, wanted_form
from airflow_kftrain.local.apiserver.errors import (
    StatusError,
    bad_request,
    internal,
    method_not_allowed,
    no_such_path,
    unauthorized,
)
from airflow_kftrain.local.apiserver.kinds import Kind, Registry
from airflow_kftrain.local.apiserver.logs import LogSource, pod_log
from airflow_kftrain.local.apiserver.openapi import EMPTY_OPENAPI_V2, OPENAPI_V2, OPENAPI_V2_TYPE, openapi
from airflow_kftrain.local.apiserver.reads import Lister, Page, flag
from airflow_kftrain.local.apiserver.resources import Call, Resources
from airflow_kftrain.local.apiserver.security import Credentials
from airflow_kftrain.local.apiserver.store import Json, Record, Store, encode
from airflow_kftrain.local.apiserver.tables import partial, table
from airflow_kftrain.local.apiserver.targets import Target, target_of
from airflow_kftrain.local.apiserver.watches import WatchRequest, follow

log = logging.getLogger(__name__)

# kube-apiserver's own limit of a request body.
BODY_LIMIT = 3 * 1024 * 1024
_FOR_EVER = "public, immutable, max-age=31536000"
_HEALTH = ("/healthz", "/readyz", "/livez")


class Frontend:
    """Answers HTTP requests."""

    def __init__(
        self,
        registry: Registry,
        store: Store,
        resources: Resources,
        lister: Lister,
        clock: Clock,
        credentials: Credentials,
        logs: LogSource | None,
    ) -> None:
        self._registry = registry
        self._store = store
        self._resources = resources
        self._lister = lister
        self._clock = clock
        self._credentials = credentials
        self.logs = logs

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Any request."""
        try:
            return await self._handle(request)
        except StatusError as refusal:
            return _json(refusal.body(), refusal.code)
        except RecursionError:
            return _json(bad_request("the object is nested too deeply").body(), 400)
        except (ConnectionResetError, asyncio.CancelledError):
            raise
        except Exception as error:
            log.exception("%s %s failed", request.method, request.path)
            return _json(internal(repr(error)).body(), 500)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        path = request.rel_url.raw_path
        if path.rstrip("/") in _HEALTH or path.startswith("/readyz/"):
            return self._health()
        if not self._credentials.admits(request.headers.get("Authorization", "")):
            raise unauthorized()
        target = target_of(self._registry, path)
        if target is not None:
            return await self._resource(request, target)
        if request.method == "GET":
            return self._document(request, path)
        if request.method == "POST":
            return await self._review(request, path)
        raise no_such_path(path)

    def _health(self) -> web.Response:
        if self._store.failure is not None:
            return web.Response(status=500, text=self._store.failure.message)
        return web.Response(text="ok")

    def _document(self, request: web.Request, path: str) -> web.Response:
        if path.rstrip("/") == "/version":
            return _json(discovery.version())
        if path == OPENAPI_V2:
            return web.Response(body=EMPTY_OPENAPI_V2, headers={"Content-Type": OPENAPI_V2_TYPE})
        document = openapi(self._registry, path)
        if document is not None:
            caching = _FOR_EVER if "hash" in request.query else "no-cache"
            return web.Response(
                body=document,
                content_type="application/json",
                headers={"Cache-Control": caching, "Vary": "Accept"},
            )
        found = discovery.discovery(self._registry, path, request.host)
        if found is None:
            raise no_such_path(path)
        return _json(found)

    async def _review(self, request: web.Request, path: str) -> web.Response:
        data, media = await request.read(), _media_type(request)
        # The answer does not depend on the question, so one in protobuf need not be read.
        answer = discovery.review(path, None if media == PROTOBUF else decode(media, data))
        if answer is None:
            raise no_such_path(path)
        return _json(answer, 201)

    async def _resource(self, request: web.Request, target: Target) -> web.StreamResponse:
        query = request.query
        if request.method in ("GET", "HEAD"):
            if target.subresource == "log" and target.kind.kind == "Pod":
                return await self._log(request, target)
            if not target.name:
                return await self._collection(request, target, query)
        return await self._single(request, target, query)

    async def _single(
        self, request: web.Request, target: Target, query: Mapping[str, str]
    ) -> web.StreamResponse:
        body = None
        if request.can_read_body:
            try:
                body = decode(_media_type(request), await request.read())
            except web.HTTPRequestEntityTooLarge as error:
                text = f"Request entity too large: limit is {BODY_LIMIT}"
                raise StatusError(413, "RequestEntityTooLarge", text) from error
        method = "GET" if request.method == "HEAD" else request.method
        answer = self._resources.answer(Call(method, target, query, _media_type(request), body))
        data = self._shown(request, target, answer.obj)
        await self._store.durable()
        response = web.Response(body=data, status=answer.code, content_type="application/json")
        for text in answer.warnings:
            response.headers.add("Warning", f'299 - "{text.replace(chr(34), chr(92) + chr(34))}"')
        return response

    def _shown(self, request: web.Request, target: Target, obj: Json) -> bytes:
        form, version = wanted_form(request.headers.get("Accept", ""))
        if not form or obj.get("kind") == "Status":
            record = self._store.get(target.kind, target.space, obj["metadata"].get("name", ""))
            return record.data if record is not None and record.obj is obj else encode(obj)
        if form == "PartialObjectMetadata":
            return encode(partial(obj))
        metadata = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
        include = request.query.get("includeObject", "Metadata")
        return encode(
            table(target.kind, obj.get("items", [obj]), self._clock.now(), metadata, include, version)
        )

    async def _collection(
        self, request: web.Request, target: Target, query: Mapping[str, str]
    ) -> web.StreamResponse:
        if flag(query, "watch"):
            asked = WatchRequest.read(target.kind, target.namespace, query)
            present = _Presenter(self, request, target.kind)
            return await self._stream(
                request, follow(self._store, self._clock, asked, present), "application/json"
            )
        page = self._lister.list(target.kind, target.namespace, query)
        data = self._page(request, target.kind, page)
        await self._store.durable()
        return web.Response(body=data, content_type="application/json")

    def _page(self, request: web.Request, kind: Kind, page: Page) -> bytes:
        metadata: Json = {"resourceVersion": str(page.revision)}
        if page.token:
            metadata["continue"] = page.token
            if page.remaining is not None:
                metadata["remainingItemCount"] = page.remaining
        form, version = wanted_form(request.headers.get("Accept", ""))
        if form == "Table":
            include = request.query.get("includeObject", "Metadata")
            objects = [record.obj for record in page.records]
            return encode(table(kind, objects, self._clock.now(), metadata, include, version))
        if form:
            head = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
            return _listed(head, [encode(partial(record.obj)) for record in page.records])
        head = {"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": metadata}
        return _listed(head, [record.data for record in page.records])

    def present(self, request: web.Request, kind: Kind, record: Record, first: bool) -> bytes:
        """One watched object as its follower wants it; only a Table's first row tells the columns."""
        form, version = wanted_form(request.headers.get("Accept", ""))
        if not form:
            return record.data
        if form == "PartialObjectMetadata":
            return encode(partial(record.obj))
        metadata = {"resourceVersion": record.obj["metadata"]["resourceVersion"]}
        include = request.query.get("includeObject", "Metadata")
        made = table(kind, [record.obj], self._clock.now(), metadata, include, version)
        return encode(made if first else {**made, "columnDefinitions": None})

    async def _log(self, request: web.Request, target: Target) -> web.StreamResponse:
        if request.method == "HEAD":
            raise method_not_allowed()
        pod = self._resources.record(target).obj
        return await self._stream(
            request, pod_log(self.logs, pod, request.query, self._clock.now()), "text/plain"
        )

    @staticmethod
    async def _stream(
        request: web.Request, chunks: AsyncIterator[bytes], content_type: str
    ) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={"Content-Type": content_type, "Cache-Control": "no-cache, private"}
        )
        response.enable_chunked_encoding()
        await response.prepare(request)
        try:
            async for chunk in chunks:
                if chunk:
                    await response.write(chunk)
            await response.write_eof()
        except ConnectionResetError:
            log.debug("%s went away", request.rel_url)
        return response


class _Presenter:
    """Shows the records of one watch."""

    def __init__(self, frontend: Frontend, request: web.Request, kind: Kind) -> None:
        self._frontend = frontend
        self._request = request
        self._kind = kind
        self._first = True

    def __call__(self, record: Record) -> bytes:
        first, self._first = self._first, False
        return self._frontend.present(self._request, self._kind, record, first)


def _media_type(request: web.Request) -> str:
    """As it was sent: aiohttp's own property takes a missing header for a binary body, client-go omits it for JSON."""
    return request.headers.get("Content-Type", "").partition(";")[0].strip().lower()


def _listed(head: Json, items: list[bytes]) -> bytes:
    return encode(head)[:-1] + b',"items":[' + b",".join(items) + b"]}"


def _json(value: Any, code: int = 200) -> web.Response:
    return web.Response(body=encode(value), status=code, content_type="application/json")


__all__ = ["BODY_LIMIT", "Frontend"]
