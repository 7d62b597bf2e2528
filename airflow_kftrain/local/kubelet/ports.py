"""Host ports for endpoints: each (pod, port) has one of its own, the same for all who name it."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from airflow_kftrain.exceptions import LocalClusterError
from airflow_kftrain.local.kubelet.names import Endpoint

# Below the range that Linux (32768) and macOS (49152) give to outgoing connections, above well-known services.
FIRST_PORT, LAST_PORT = 12000, 32000
_BLOCK = 400


@dataclass
class PortBlocks:
    """Ports of this process alone: a block is claimed by listening on its first port.

    Two clusters on one machine so never hand out the same port, and the kernel gives a claim back whatever ends the
    process that made it.
    """

    _claims: list[socket.socket] = field(default_factory=list)
    _free: list[int] = field(default_factory=list)

    def take(self) -> int:
        """A port on which nobody listens. :raises LocalClusterError: none is left"""
        while True:
            while self._free:
                port = self._free.pop()
                if _is_free(port):
                    return port
            self._claim()

    def give_back(self, port: int) -> None:
        """The port may be taken again, after all that were never used."""
        self._free.insert(0, port)

    def close(self) -> None:
        """Give all claims back."""
        while self._claims:
            self._claims.pop().close()
        self._free.clear()

    def _claim(self) -> None:
        mine = {claim.getsockname()[1] for claim in self._claims}
        for first in range(FIRST_PORT, LAST_PORT, _BLOCK):
            if first in mine:
                continue
            claim = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            try:
                claim.bind(("127.0.0.1", first))
                claim.listen(1)
            except OSError:
                claim.close()
                continue
            self._claims.append(claim)
            self._free.extend(range(first + _BLOCK - 1, first, -1))
            return
        raise LocalClusterError(
            f"no host port is left between {FIRST_PORT} and {LAST_PORT}: end other local clusters or finished jobs"
        )


@dataclass
class PortTable:
    """Which endpoint has which host port."""

    take: Callable[[], int]
    give_back: Callable[[int], None]
    _ports: dict[Endpoint, int] = field(default_factory=dict)

    def host_port(self, endpoint: Endpoint) -> int:
        """The endpoint's host port, allocated when first asked for."""
        if endpoint not in self._ports:
            self._ports[endpoint] = self.take()
        return self._ports[endpoint]

    def own(self, endpoint: Endpoint, aliases: Iterable[Endpoint] = ()) -> int:
        """The host port on which a pod is to listen; one that others know by an alias already is taken over."""
        known = [self._ports[alias] for alias in aliases if alias in self._ports]
        if endpoint not in self._ports and known:
            self._ports[endpoint] = known[0]
        port = self.host_port(endpoint)
        for alias in aliases:
            self._ports.setdefault(alias, port)
        return port

    def forget(self, in_use: Callable[[Endpoint], bool]) -> None:
        """Give back the ports of endpoints that nobody uses any more."""
        for endpoint in [e for e in self._ports if not in_use(e)]:
            port = self._ports.pop(endpoint)
            if port not in self._ports.values():
                self.give_back(port)


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As the strictest server binds. Without SO_REUSEADDR a port in TIME_WAIT is not free: XGBoost's tracker, for
        # one, cannot listen on the port that an earlier gang's master closed within the last minute.
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
