"""An asynchronous client for any kind of object: dicts in, dicts out, errors of our own tree.

``kubernetes_asyncio`` brings configuration, credentials, TLS and the connection pool. Its generated methods are not
used: they cover custom objects without list, watch or preconditions, and the cncf.kubernetes provider's subclass of
them cuts every call, watches included, after 60 seconds.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

from airflow_kftrain.cluster.resources import Resource
from airflow_kftrain.exceptions import ApiUnreachable, Gone, KFTrainError, Unauthorized, api_error

if TYPE_CHECKING:
    import aiohttp
    from kubernetes_asyncio.client import ApiClient

Object = dict[str, Any]
PatchStyle = Literal["merge", "json", "strategic", "apply"]
Connect = Callable[[], Awaitable["ApiClient"]]

PAGE = 500
"""Objects asked for at a time when listing; the page size that kubectl uses."""

_PATCH_TYPES: Mapping[str, str] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


@dataclass(frozen=True)
class ObjectList:
    """All objects of a collection at one resource version."""

    items: list[Object]
    resource_version: str


@dataclass(frozen=True)
class WatchEvent:
    """One line of a watch: ``ADDED``, ``MODIFIED``, ``DELETED`` or ``BOOKMARK``."""

    type: str
    object: Object


class Cluster:
    """One Kubernetes API as one identity.

    :param connect: makes an authenticated ``ApiClient``; called at first use, and again once when a call is answered
        401, so that credentials are read anew
    :param timeout: seconds a plain call may take in all
    """

    def __init__(self, connect: Connect, *, timeout: float = 30.0) -> None:
        self._connect = connect
        self._timeout = timeout
        self._client: ApiClient | None = None
        self._retired: ApiClient | None = None
        self._lock = asyncio.Lock()

    @classmethod
    def from_kubeconfig(
        cls, path: str | None = None, context: str | None = None, *, timeout: float = 30.0
    ) -> Self:
        """The API that a kubeconfig names: ``path``, else ``$KUBECONFIG``, else ``~/.kube/config``."""

        async def connect() -> ApiClient:
            from kubernetes_asyncio import config

            return await config.new_client_from_config(
                config_file=path, context=context, persist_config=False
            )

        return cls(connect, timeout=timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; a later call opens new ones."""
        clients, self._client, self._retired = (self._client, self._retired), None, None
        for client in clients:
            if client is not None:
                await client.close()

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object:
        """One object. :raises NotFound: there is none of that name"""
        return await self._json("GET", resource.path(namespace, name))

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        keep: Callable[[Object], Object | None] | None = None,
    ) -> ObjectList:
        """All objects of a kind in ``namespace`` (``None``: in all), read page by page.

        :param keep: called on each object as its page arrives; what it returns is kept, ``None`` drops the object.
            Bounds the memory of large lists.
        """
        query = _query(labelSelector=label_selector, fieldSelector=field_selector)
        try:
            return await self._pages(resource, namespace, query | {"limit": str(PAGE)}, keep)
        except Gone:  # the snapshot behind the pages expired: take it in one piece
            return await self._pages(resource, namespace, query, keep)

    async def _pages(
        self,
        resource: Resource,
        namespace: str | None,
        query: dict[str, str],
        keep: Callable[[Object], Object | None] | None,
    ) -> ObjectList:
        items: list[Object] = []
        while True:
            page = await self._json("GET", resource.path(namespace), query=query)
            for item in page.get("items") or ():
                # Items of a list carry neither of the two.
                item.setdefault("apiVersion", resource.api_version)
                item.setdefault("kind", resource.kind)
                kept = item if keep is None else keep(item)
                if kept is not None:
                    items.append(kept)
            metadata = page.get("metadata") or {}
            if not metadata.get("continue"):
                return ObjectList(items, metadata.get("resourceVersion", ""))
            query = query | {"continue": metadata["continue"]}

    async def create(self, resource: Resource, obj: Object, namespace: str | None = None) -> Object:
        """Create and return as stored. :raises AlreadyExists: the name is taken"""
        where = namespace or obj.get("metadata", {}).get("namespace")
        return await self._json("POST", resource.path(where), body=obj)

    async def replace(self, resource: Resource, obj: Object, *, subresource: str | None = None) -> Object:
        """Replace by name and namespace of ``obj``. :raises Conflict: its resourceVersion is not the newest"""
        metadata = obj["metadata"]
        path = resource.path(metadata.get("namespace"), metadata["name"], subresource)
        return await self._json("PUT", path, body=obj)

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Object | Sequence[Object],
        namespace: str | None = None,
        *,
        style: PatchStyle = "merge",
        subresource: str | None = None,
    ) -> Object:
        """Change and return as stored; put ``metadata.resourceVersion`` or ``uid`` into the patch as precondition."""
        return await self._json(
            "PATCH",
            resource.path(namespace, name, subresource),
            body=patch,
            query={"fieldManager": "airflow-kftrain"},
            content_type=_PATCH_TYPES[style],
        )

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_period_seconds: int | None = None,
        propagation_policy: Literal["Background", "Foreground", "Orphan"] | None = None,
    ) -> Object:
        """Delete, under preconditions when given.

        :raises NotFound: it is gone already
        :raises Conflict: another object has the name, or it changed since ``resource_version``
        """
        preconditions = _query(uid=uid, resourceVersion=resource_version)
        body: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        body |= {"preconditions": preconditions} if preconditions else {}
        body |= {"gracePeriodSeconds": grace_period_seconds} if grace_period_seconds is not None else {}
        body |= {"propagationPolicy": propagation_policy} if propagation_policy else {}
        return await self._json("DELETE", resource.path(namespace, name), body=body)

    async def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        resource_version: str,
        label_selector: str | None = None,
        field_selector: str | None = None,
        timeout_seconds: int = 300,
        stall_seconds: float = 90.0,
    ) -> AsyncIterator[WatchEvent]:
        """Changes after ``resource_version`` until the server ends the watch (at ``timeout_seconds``).

        :param stall_seconds: silence after which the connection counts as dead; servers send a bookmark a minute
        :raises Gone: the version is too old; list again
        :raises ApiUnreachable: the connection broke or stalled
        """
        query = _query(
            labelSelector=label_selector,
            fieldSelector=field_selector,
            resourceVersion=resource_version,
            timeoutSeconds=str(timeout_seconds),
        ) | {"watch": "true", "allowWatchBookmarks": "true"}
        path = resource.path(namespace)
        async for line in _lines(self._chunks(path, query, stall_seconds)):
            event = json.loads(line)
            if event["type"] == "ERROR":
                status = event.get("object") or {}
                raise api_error(
                    int(status.get("code") or 500),
                    str(status.get("reason") or "Unknown"),
                    str(status.get("message") or "the watch failed"),
                    call=f"WATCH {path}",
                )
            yield WatchEvent(event["type"], event["object"])

    async def logs(
        self,
        pod: str,
        namespace: str,
        *,
        container: str | None = None,
        follow: bool = False,
        tail_lines: int | None = None,
        since_seconds: int | None = None,
        timestamps: bool = False,
        previous: bool = False,
        limit_bytes: int | None = None,
        stall_seconds: float = 3600.0,
    ) -> AsyncIterator[bytes]:
        """A container's log in chunks as they come, cut anywhere.

        :raises BadRequest: the container has not started
        """
        query = _query(container=container)
        for name, number in (
            ("tailLines", tail_lines),
            ("sinceSeconds", since_seconds),
            ("limitBytes", limit_bytes),
        ):
            query |= {name: str(number)} if number is not None else {}
        for name, flag in (("follow", follow), ("timestamps", timestamps), ("previous", previous)):
            query |= {name: "true"} if flag else {}
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
        async for chunk in self._chunks(path, query, stall_seconds):
            yield chunk

    async def raw(
        self, method: str, path: str, *, query: dict[str, str] | None = None, body: Any = None
    ) -> Any:
        """Any other call of the API, JSON in and out."""
        return await self._json(method, path, query=query, body=body)

    async def _json(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
    ) -> Object:
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=self._timeout)
        try:
            response = await self._send(method, path, query, body, content_type, timeout)
            async with response:
                return _object(await response.read())
        except KFTrainError:
            raise
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _unreachable(method, path, error) from error

    async def _chunks(
        self, path: str, query: Mapping[str, str], stall_seconds: float
    ) -> AsyncIterator[bytes]:
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._timeout, sock_read=stall_seconds)
        try:
            response = await self._send("GET", path, query, None, "application/json", timeout)
            async with response:
                async for chunk in response.content.iter_any():
                    yield chunk
        except (aiohttp.ClientError, OSError) as error:
            raise _unreachable("GET", path, error) from error

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Any,
        content_type: str,
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        """Send; on 401 read the credentials anew and send once more. :raises ApiError: any status of 400 and above"""
        client = await self._connected(stale=None)
        for attempt in (1, 2):
            response = await self._send_as(client, method, path, query, body, content_type, timeout)
            try:
                await _raise_for_status(response, f"{method} {path}")
            except Unauthorized:
                if attempt == 2:
                    raise
                client = await self._connected(stale=client)
            else:
                break
        return response

    @staticmethod
    async def _send_as(
        client: ApiClient,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Any,
        content_type: str,
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        headers = {
            "Accept": "application/json",
            "Content-Type": content_type,
            "User-Agent": "airflow-kftrain",
        }
        await client.update_params_for_auth(headers, [], ["BearerToken"])
        response: aiohttp.ClientResponse = await client.rest_client.request(
            method,
            f"{client.configuration.host}{path}",
            query_params=dict(query or {}),
            headers=headers,
            body=body,
            _preload_content=False,
            _request_timeout=timeout,
        )
        return response

    async def _connected(self, *, stale: ApiClient | None) -> ApiClient:
        """The present client, or a new one in place of ``stale``; callers that raced share the new one."""
        async with self._lock:
            if self._client is None or self._client is stale:
                if self._retired is not None:
                    await self._retired.close()
                # Streams of other tasks may still run on the old client: it is closed one turn later.
                self._retired, self._client = self._client, await self._connect()
            return self._client


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Whole lines of a stream; a last line without its end is dropped: it was cut."""
    rest = b""
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if line:
                yield line


async def _raise_for_status(response: aiohttp.ClientResponse, call: str) -> None:
    if response.status < 400:
        return
    async with response:
        text = (await response.read()).decode("utf-8", "replace")
    try:
        status = json.loads(text)
    except ValueError:
        status = {}
    status = status if isinstance(status, dict) else {}
    raise api_error(
        response.status,
        str(status.get("reason") or response.reason or "Unknown"),
        str(status.get("message") or text[:500] or "no text"),
        call=call,
        retry_after=_retry_after(response.headers.get("Retry-After"), status),
    )


def _object(body: bytes) -> Object:
    answer = json.loads(body)
    if not isinstance(answer, dict):  # not of the API: a proxy's or a login page's answer
        raise ValueError(f"the answer is a {type(answer).__name__}, not an object")
    return answer


def _retry_after(header: str | None, status: Object) -> float | None:
    """Seconds to wait: the header (RFC 9110 allows a date too, which Kubernetes does not send), else the Status."""
    if header is not None and header.strip().isdigit():
        return float(header)
    seconds = (status.get("details") or {}).get("retryAfterSeconds")
    return float(seconds) if isinstance(seconds, int | float) and seconds > 0 else None


def _unreachable(method: str, path: str, error: BaseException) -> ApiUnreachable:
    return ApiUnreachable(f"{method} {path}: no answer from the API server ({type(error).__name__}: {error})")


def _query(**values: str | None) -> dict[str, str]:
    return {name: value for name, value in values.items() if value is not None}
