"""The way from an Airflow connection to :class:`~airflow_kftrain.cluster.client.Cluster`."""

from __future__ import annotations

import asyncio
import concurrent.futures
import hashlib
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.sdk import BaseHook

from airflow_kftrain.cluster.client import Cluster
from airflow_kftrain.exceptions import InvalidInput

if TYPE_CHECKING:
    from airflow.providers.cncf.kubernetes.hooks.kubernetes import AsyncKubernetesHook
    from kubernetes_asyncio.client import ApiClient

T = TypeVar("T")

_CREDENTIALS = ("in_cluster", "kube_config_path", "kube_config", "cluster_context")
_TYPES = ("kubernetes", "kftrain")


class TrainingJobHook(BaseHook):
    """Reaches the cluster of a ``kubernetes`` connection (``kftrain`` connections have the same fields).

    The cncf.kubernetes provider reads the connection and makes the credentials; all calls are made by
    :class:`~airflow_kftrain.cluster.client.Cluster`. One code, asynchronous, serves triggers and, through :meth:`run`,
    workers.

    :param kubernetes_conn_id: the connection; where ``kubernetes_default`` does not exist, the environment's own
        kubeconfig is used
    """

    conn_name_attr = "kubernetes_conn_id"
    default_conn_name = "kubernetes_default"
    conn_type = "kftrain"
    hook_name = "KFTrain Kubernetes Cluster"

    def __init__(self, kubernetes_conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.kubernetes_conn_id = kubernetes_conn_id
        self._extras: dict[str, Any] | None = None

    def open(self) -> Cluster:
        """The cluster; whoever opens it closes it. Credentials are read at first use, and anew once refused."""
        refused = False

        async def connect() -> ApiClient:
            from airflow.sdk.exceptions import AirflowException
            from kubernetes_asyncio.client import ApiClient
            from kubernetes_asyncio.config import ConfigException
            from yaml import YAMLError

            nonlocal refused
            kubernetes = await self._kubernetes(anew=refused)
            try:
                async with kubernetes.get_conn() as client:
                    configuration = client.configuration
            except (AirflowException, ConfigException, YAMLError, OSError, ValueError) as error:
                raise InvalidInput(
                    "kubernetes_conn_id",
                    self.kubernetes_conn_id,
                    f"set kube_config_path, kube_config or in_cluster of the connection, or KUBECONFIG ({error})",
                ) from error
            refused = True
            # Log streams hold a connection each: a bounded pool would in the end keep the watch from coming back.
            configuration.connection_pool_maxsize = 0
            return ApiClient(configuration=configuration)

        return Cluster(connect)

    async def namespace(self) -> str:
        """The connection's namespace, ``default`` when it names none."""
        extras = await (await self._kubernetes()).get_conn_extras()
        return extras.get("namespace") or extras.get("extra__kubernetes__namespace") or "default"

    async def identity(self) -> str:
        """A key that is equal for hooks that reach the same API with the same credentials; holds no secret."""
        extras = await (await self._kubernetes()).get_conn_extras()
        held = {name: extras.get(name, extras.get(f"extra__kubernetes__{name}")) for name in _CREDENTIALS}
        return hashlib.sha256(json.dumps(held, sort_keys=True, default=str).encode()).hexdigest()

    def run(self, call: Callable[[Cluster], Awaitable[T]]) -> T:
        """The result of ``call`` with the cluster, for code that is not asynchronous."""

        async def main() -> T:
            async with self.open() as cluster:
                return await call(cluster)

        return run_in_loop(main)

    def test_connection(self) -> tuple[bool, str]:
        """Whether the API answers, for the button of the connection form."""

        async def ask(cluster: Cluster) -> str:
            version = await cluster.raw("GET", "/version")
            return f"Kubernetes {version.get('gitVersion', 'of unknown version')}"

        try:
            return True, self.run(ask)
        except Exception as error:  # noqa: BLE001 - whatever it is, the form shows it
            return False, str(error)

    async def _kubernetes(self, *, anew: bool = False) -> AsyncKubernetesHook:
        """A new provider hook (a used one answers with the credentials it read first) with the connection's fields.

        :param anew: read the connection again
        """
        from airflow.providers.cncf.kubernetes.hooks.kubernetes import AsyncKubernetesHook

        if self._extras is None or anew:
            self._extras = await self._read_connection()
        return AsyncKubernetesHook(conn_id=self.kubernetes_conn_id, connection_extras=self._extras)

    async def _read_connection(self) -> dict[str, Any]:
        """The connection's fields.

        :raises InvalidInput: there is none of that name, or it leads to something else than a cluster
        """
        from airflow.providers.common.compat.connection import get_async_connection
        from airflow.sdk.exceptions import AirflowNotFoundException

        try:
            connection = await get_async_connection(self.kubernetes_conn_id)
        except AirflowNotFoundException:
            if self.kubernetes_conn_id == self.default_conn_name:
                return {}
            raise InvalidInput(
                "kubernetes_conn_id",
                self.kubernetes_conn_id,
                "there is no such connection; create it (type kubernetes), or name one that exists",
            ) from None
        if connection.conn_type and connection.conn_type not in _TYPES:
            raise InvalidInput(
                "kubernetes_conn_id",
                self.kubernetes_conn_id,
                f"the connection is of the type {connection.conn_type}; name one of the type kubernetes",
            )
        extras: dict[str, Any] = connection.extra_dejson
        return extras


def run_in_loop(main: Callable[[], Awaitable[T]]) -> T:
    """Run ``main`` to its end in an event loop of its own, in a thread where the present one has a loop already."""

    async def awaited() -> T:
        return await main()

    if not _in_loop():
        return asyncio.run(awaited())
    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(asyncio.run, awaited()).result()


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
