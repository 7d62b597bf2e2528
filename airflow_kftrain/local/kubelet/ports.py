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
                if is_free(port):
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
    """Which endpoint has which host port, and which pods were told of it.

    :param take: allocates a port
    :param give_back: takes one that is not used any more
    :param is_free: whether a strict server could listen on a port now
    """

    take: Callable[[], int]
    give_back: Callable[[int], None]
    is_free: Callable[[int], bool]
    _ports: dict[Endpoint, int] = field(default_factory=dict)
    _users: dict[Endpoint, set[str]] = field(default_factory=dict)

    def host_port(self, endpoint: Endpoint, user: str) -> int:
        """The endpoint's host port, allocated when first asked for, and kept as long as any pod that knows it lives.

        When none does, a port that is not free (an earlier gang's connections linger on it for a minute) is replaced.

        :param user: uid of the pod that is told
        """
        users = self._users.setdefault(endpoint, set())
        known = self._ports.get(endpoint)
        if known is not None and not users and not self.is_free(known):
            self.give_back(known)
            known = None
        if known is None:
            self._ports[endpoint] = self.take()
        users.add(user)
        return self._ports[endpoint]

    def own(self, endpoint: Endpoint, owner: str, aliases: Iterable[Endpoint] = ()) -> int:
        """The host port on which a pod is to listen; one that others know by an alias already is taken over."""
        known = [alias for alias in aliases if self._users.get(alias)]
        if known and not self._users.get(endpoint):
            self._ports[endpoint] = self._ports[known[0]]
            self._users[endpoint] = {owner}
        port = self.host_port(endpoint, owner)
        for alias in aliases:
            if not self._users.get(alias):
                self._ports[alias] = port
            self._users.setdefault(alias, set()).add(owner)
        return port

    def release(self, user: str) -> None:
        """A pod has ended: it does not know any port any more."""
        for users in self._users.values():
            users.discard(user)

    def forget(self, in_use: Callable[[Endpoint], bool]) -> None:
        """Give back the ports of endpoints that nobody uses any more."""
        for endpoint in [e for e in self._ports if not in_use(e) and not self._users.get(e)]:
            port = self._ports.pop(endpoint)
            self._users.pop(endpoint, None)
            if port not in self._ports.values():
                self.give_back(port)


def is_free(port: int) -> bool:
    """Whether a server could listen on ``port`` of any address now, be it as strict as it may."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As the strictest server binds. Without SO_REUSEADDR a port in TIME_WAIT is not free: XGBoost's tracker, for
        # one, cannot listen on the port that an earlier gang's master closed within the last minute.
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
