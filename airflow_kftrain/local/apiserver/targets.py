"""URLs: which kind, namespace, object and subresource a path means."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

from airflow_kftrain.local.apiserver.kinds import Kind, Registry


@dataclass(frozen=True)
class Target:
    """What a path of the resource API addresses.

    :param namespace: None means all namespaces, or a kind that has none
    :param name: empty means the collection
    :param subresource: ``status``, ``scale``, ``log`` …; empty for the object itself
    """

    kind: Kind
    namespace: str | None
    name: str
    subresource: str = ""

    @property
    def space(self) -> str:
        """The namespace as the store knows it."""
        return self.namespace or ""


def target_of(registry: Registry, path: str) -> Target | None:
    """What a raw URL path addresses; None when it is no resource that is served."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    if parts[0] == "api" and len(parts) >= 3:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) >= 4:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace: str | None = None
    if rest[0] == "namespaces" and len(rest) >= 3 and _is_kind(registry, group, version, rest[2]):
        namespace, rest = rest[1], rest[2:]
    kind = registry.at(group, version, rest[0])
    if kind is None or len(rest) > 3 or (namespace is not None) > kind.namespaced:
        return None
    name, subresource = (*rest[1:], "", "")[:2]
    if name and kind.namespaced and namespace is None:
        return None
    return Target(kind, namespace, name, subresource)


def _is_kind(registry: Registry, group: str, version: str, plural: str) -> bool:
    """Tells ``namespaces/x/pods`` from ``namespaces/x/status``."""
    found = registry.at(group, version, plural)
    return found is not None and found.namespaced
