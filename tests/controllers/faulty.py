"""Clients between a controller and the API that die, refuse, or lose answers."""

from __future__ import annotations

from airflow_kftrain.cluster.client import Cluster
from airflow_kftrain.exceptions import ApiUnreachable, ServerError

WRITES = ("create", "replace", "patch", "delete")


class Killed(BaseException):
    """The controller's process is no more; nothing in it may catch this."""


class Client:
    """Passes all calls on, writes through :meth:`write`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.writes = 0

    def __getattr__(self, name: str):
        call = getattr(self._cluster, name)
        if name not in WRITES:
            return call

        async def written(*args, **kwargs):
            self.writes += 1
            return await self.write(call, *args, **kwargs)

        return written

    async def write(self, call, *args, **kwargs):
        return await call(*args, **kwargs)


class Mortal(Client):
    """Kills its controller right after the ``last``-th write took effect, before the answer comes."""

    def __init__(self, cluster: Cluster, last: int | None) -> None:
        super().__init__(cluster)
        self._last = last

    def die_after(self, writes: int) -> None:
        """Kill after so many more writes."""
        self._last = self.writes + writes

    async def write(self, call, *args, **kwargs):
        answer = await call(*args, **kwargs)
        if self.writes == self._last:
            raise Killed
        return answer


class Flaky(Client):
    """Refuses one write in three, and loses the answer to another."""

    async def write(self, call, *args, **kwargs):
        if self.writes % 3 == 1:
            raise ServerError(503, "ServiceUnavailable", "the server is overloaded")
        answer = await call(*args, **kwargs)
        if self.writes % 3 == 2:
            raise ApiUnreachable("the connection was reset before the answer came")
        return answer
