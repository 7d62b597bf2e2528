"""Addresses in a container's environment and arguments, made reachable on one loopback address.

All pods share 127.0.0.1 (macOS has no other), and training libraries listen on the wildcard address, so each
(pod, port) has a host port of its own. What the API shows stays as it was made; only the process sees this.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from airflow_kftrain.local.kubelet.names import Endpoint, Names

LOOPBACK = "127.0.0.1"
_SELF = frozenset({"localhost", "0.0.0.0", LOOPBACK})  # noqa: S104 - recognised, not bound
# A maximal run of host-name characters, so that worker-1 is never found inside worker-10 or my-worker-1;
# one slash before it makes it a path, two make it an URL's host.
_ADDRESS = re.compile(
    r"(?<![A-Za-z0-9_.\-])(?<!(?<!/)/)"
    r"(?P<host>[a-z0-9](?:[a-z0-9.\-]*[a-z0-9])?)(?::(?P<port>\d{1,5})(?!\d))?(?![A-Za-z0-9_\-])"
)
_HOST_SUFFIX = re.compile(r"(?P<stem>.*?)(?:ADDRESS|ADDR|HOSTNAME|HOST|IP)", re.IGNORECASE)
_PORT_SUFFIX = re.compile(r"(?P<stem>.*?)PORT", re.IGNORECASE)
_IDENTITY = re.compile(r"(?:^|.*_)(?:NAME|HOSTNAME|ID|UID)", re.IGNORECASE)
_FLAG = re.compile(r"--?(?P<name>[A-Za-z][\w\-]*)(?:=(?P<value>.*))?", re.DOTALL)


@dataclass(frozen=True)
class Rewriter:
    """Rewrites what one pod's processes get to see.

    :param names: what resolves for this pod
    :param host_port: the host port of an endpoint; allocated when first asked for
    :param own: the pod's own container ports and their host ports
    """

    names: Names
    host_port: Callable[[Endpoint], int]
    own: Mapping[int, int] = field(default_factory=dict)

    def environment(self, env: Mapping[str, str], *, keep: frozenset[str] = frozenset()) -> dict[str, str]:
        """``env`` with its addresses rewritten.

        ``X_ADDR`` with ``X_PORT`` (also ``_ADDRESS``, ``_HOST``, ``_IP``) is one address; a lone ``…PORT`` that
        is a port of this pod becomes its host port; names in other values become ``127.0.0.1[:port]``.

        :param keep: variables left alone because they name the pod rather than address it (field references)
        """
        paired = self._pairs(env)
        return {
            name: value
            if name in keep or (_IDENTITY.fullmatch(name) and name not in paired)
            else paired.get(name, self.text(value))
            for name, value in env.items()
        }

    def arguments(self, argv: Sequence[str]) -> list[str]:
        """``argv`` with its addresses rewritten; ``--x-host H --x-port P`` is one address, with ``=`` or without."""
        flags = _flags(argv)
        paired = self._pairs({name: value for name, (_, value, _) in flags.items()})
        result = [self.text(argument) for argument in argv]
        for name, replaced in paired.items():
            position, _, prefix = flags[name]
            result[position] = prefix + replaced
        return result

    def text(self, text: str) -> str:
        """``text`` with each ``name``, ``name:port`` and own ``0.0.0.0:port`` replaced; all else is kept."""
        return _ADDRESS.sub(self._replacement, text)

    def mentions(self, text: str) -> bool:
        """Whether a name of the cluster stands in ``text``."""
        return any(self.names.find(match["host"]) for match in _ADDRESS.finditer(text))

    def _replacement(self, match: re.Match[str]) -> str:
        host, port = match["host"], match["port"]
        if host in _SELF:
            own = self.own.get(int(port)) if port else None
            return match[0] if own is None else f"{host}:{own}"
        if port is None and _is_path(match):
            return match[0]
        found = self.names.find(host)
        if found is None:
            return match[0]
        return LOOPBACK if port is None else f"{LOOPBACK}:{self.host_port(found.endpoint(int(port)))}"

    def _pairs(self, values: Mapping[str, str]) -> dict[str, str]:
        """The rewritten values of those that make an address together, by name."""
        hosts = {m["stem"].upper(): name for name in values if (m := _HOST_SUFFIX.fullmatch(name))}
        rewritten: dict[str, str] = {}
        for name, value in values.items():
            match = _PORT_SUFFIX.fullmatch(name)
            if match is None or not value.isascii() or not value.isdigit():
                continue
            host_variable = hosts.get(match["stem"].upper())
            host = values[host_variable] if host_variable else LOOPBACK
            rewritten.update(self._pair(name, int(value), host_variable, host))
        return rewritten

    def _pair(self, port_name: str, port: int, host_name: str | None, host: str) -> dict[str, str]:
        if host in _SELF:
            return {port_name: str(self.own[port])} if port in self.own else {}
        found = self.names.find(host)
        if found is None or host_name is None:
            return {}
        return {host_name: LOOPBACK, port_name: str(self.host_port(found.endpoint(port)))}


def _is_path(match: re.Match[str]) -> bool:
    """A bare name before a slash is a relative path, unless an URL's ``//`` stands before it."""
    text = match.string
    return (
        text[match.end() : match.end() + 1] == "/" and text[max(0, match.start() - 2) : match.start()] != "//"
    )


def _flags(argv: Sequence[str]) -> dict[str, tuple[int, str, str]]:
    """Per flag, in the spelling of a variable: where its value stands, the value, and what stands before it."""
    found: dict[str, tuple[int, str, str]] = {}
    for position, argument in enumerate(argv):
        match = _FLAG.fullmatch(argument)
        if match is None:
            continue
        name = match["name"].replace("-", "_").upper()
        if match["value"] is not None:
            found[name] = (position, match["value"], argument[: match.start("value")])
        elif position + 1 < len(argv):
            found[name] = (position + 1, argv[position + 1], "")
    return found
