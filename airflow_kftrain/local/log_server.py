"""The kubelet's own HTTPS server, where a real API server fetches the logs of containers on our nodes.

It knows who asks as a real kubelet does: by a client certificate of the cluster's authority, and by asking the API
server whether that user may read it (``nodes/proxy``). Only ``/containerLogs`` is served.
"""

from __future__ import annotations

import datetime as dt
import ssl
from collections.abc import Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

from aiohttp import web

from airflow_kftrain.clock import Clock
from airflow_kftrain.cluster.client import Cluster
from airflow_kftrain.cluster.resources import CONFIGMAPS
from airflow_kftrain.exceptions import ApiError, ApiUnreachable, LocalClusterError, NotFound
from airflow_kftrain.local.apiserver.errors import StatusError
from airflow_kftrain.local.apiserver.logs import LogSource, pod_log
from airflow_kftrain.local.apiserver.security import credentials
from airflow_kftrain.local.kubelet.rewrite import LOOPBACK

_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_AUTHORITY = ("extension-apiserver-authentication", "kube-system", "client-ca-file")
_REMEMBERED = dt.timedelta(minutes=5)


class LogServer:
    """Serves ``/containerLogs/NAMESPACE/POD/CONTAINER`` on loopback.

    :param pod: the pod of a namespace and name, when it is on one of our nodes
    :param directory: where the server's certificate is, made at the first start and signed by nobody else: an API
        server takes any, unless it was started with ``--kubelet-certificate-authority``
    """

    def __init__(
        self,
        cluster: Cluster,
        logs: LogSource,
        pod: Callable[[str, str], Mapping[str, Any] | None],
        *,
        directory: Path,
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._logs = logs
        self._pod = pod
        self._directory = directory
        self._clock = clock
        self._allowed: dict[tuple[str, tuple[str, ...]], dt.datetime] = {}
        self._runner: web.AppRunner | None = None

    async def start(self) -> int:
        """Listen; the port.

        :raises LocalClusterError: the cluster names no authority for client certificates
        """
        context = self._context(await client_authority(self._cluster))
        app = web.Application()
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, LOOPBACK, 0, ssl_context=context).start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Stop listening, and end what is being read."""
        if self._runner is not None:
            await self._runner.cleanup()

    def _context(self, authority: str) -> ssl.SSLContext:
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        context = credentials(self._directory, LOOPBACK).server_context()
        context.load_verify_locations(cadata=authority)
        context.verify_mode = ssl.CERT_REQUIRED
        return context

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        user, groups = subject(_peer_certificate(request))
        if not await self._may_read(user, groups):
            return web.Response(status=403, text=f"Forbidden (user={user}, verb=get, resource=nodes/proxy)")
        where = request.match_info
        pod = self._pod(where["namespace"], where["pod"])
        if pod is None:
            return web.Response(status=404, text=f'pod "{where["pod"]}" not found')
        query = {**request.query, "container": where["container"]}
        try:
            chunks = pod_log(self._logs, dict(pod), query, self._clock.now())
        except StatusError as error:
            return web.Response(status=error.code, text=error.message)
        answer = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8"})
        await answer.prepare(request)
        async with aclosing(chunks):  # type: ignore[type-var]
            async for chunk in chunks:
                await answer.write(chunk)
        await answer.write_eof()
        return answer

    async def _may_read(self, user: str, groups: tuple[str, ...]) -> bool:
        """The API server's own word; a yes holds for a while, as it does for a kubelet."""
        now, who = self._clock.now(), (user, groups)
        if who in self._allowed and now - self._allowed[who] < _REMEMBERED:
            return True
        attributes = {"verb": "get", "resource": "nodes", "subresource": "proxy"}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": user, "groups": list(groups), "resourceAttributes": attributes},
        }
        try:
            answered = await self._cluster.raw("POST", _REVIEWS, body=review)
        except (ApiError, ApiUnreachable):
            return False
        if not answered["status"]["allowed"]:
            return False
        self._allowed[who] = now
        return True


async def client_authority(cluster: Cluster) -> str:
    """The PEM text of the authority whose client certificates the API server takes, and shows itself.

    :raises LocalClusterError: the API server was started without one (``--client-ca-file``)
    """
    name, namespace, key = _AUTHORITY
    try:
        found = await cluster.get(CONFIGMAPS, name, namespace)
    except NotFound:
        found = {}
    text = (found.get("data") or {}).get(key)
    if not text:
        raise LocalClusterError(
            f"the ConfigMap {namespace}/{name} has no {key}: start the API server with --client-ca-file, so that "
            "nodes can know who asks them for logs"
        )
    return str(text)


def subject(certificate: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """The user (common name) and groups (organisations) of a client certificate as :mod:`ssl` shows it."""
    fields = [pair for part in certificate.get("subject", ()) for pair in part]
    user = next((value for name, value in fields if name == "commonName"), "")
    return user, tuple(value for name, value in fields if name == "organizationName")


def _peer_certificate(request: web.Request) -> Mapping[str, Any]:
    connection = request.get_extra_info("ssl_object")
    return (connection.getpeercert() if connection is not None else None) or {}
