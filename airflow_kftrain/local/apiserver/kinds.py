"""Which kinds are served, and what each of them can do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Column:
    """One printer column of a custom kind.

    :param path: dotted path into the object, or ``path[?type]`` handled by ``tables``
    """

    name: str
    path: str
    type: str = "string"
    priority: int = 0


@dataclass(frozen=True)
class Scale:
    """Where a kind keeps what its ``scale`` subresource shows; paths are tuples of keys."""

    replicas: tuple[str, ...]
    status_replicas: tuple[str, ...]
    selector: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Kind:
    """One served resource; compared by identity.

    :param custom: behaves as a CustomResourceDefinition's (no strategic merge, PUT needs a resourceVersion)
    :param status: whether ``/status`` is a subresource of its own
    :param generation: whether changes outside metadata and status count up ``metadata.generation``
    :param model: name of the ``kubernetes`` client's model its schema is made from; custom kinds have none
    :param returns_object: a completed DELETE answers with the object instead of a Status
    :param name_rule: ``subdomain`` (RFC 1123), ``label`` (RFC 1123), ``service`` (RFC 1035 label) or ``path``
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    singular: str = ""
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    custom: bool = False
    status: bool = False
    generation: bool = False
    scale: Scale | None = None
    model: str = ""
    returns_object: bool = False
    name_rule: str = "subdomain"
    columns: tuple[Column, ...] = ()
    schema: Mapping[str, Any] | None = field(default=None, repr=False)

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """``pods`` or ``tfjobs.kubeflow.org``: as messages name the resource."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def list_kind(self) -> str:
        return f"{self.kind}List"

    @property
    def single(self) -> str:
        return self.singular or self.kind.lower()


def _core(plural: str, kind: str, **more: Any) -> Kind:
    more.setdefault("model", f"V1{kind}")
    return Kind("", "v1", plural, kind, **more)


POD_SUBRESOURCES = ("log", "binding", "eviction")

CORE_KINDS: tuple[Kind, ...] = (
    _core(
        "pods",
        "Pod",
        short=("po",),
        categories=("all",),
        status=True,
        generation=True,
        returns_object=True,
    ),
    _core(
        "services",
        "Service",
        short=("svc",),
        categories=("all",),
        status=True,
        returns_object=True,
        name_rule="service",
    ),
    _core("events", "Event", short=("ev",), model="CoreV1Event"),
    _core("nodes", "Node", namespaced=False, short=("no",), status=True),
    _core("namespaces", "Namespace", namespaced=False, short=("ns",), status=True, name_rule="label"),
    _core("configmaps", "ConfigMap", short=("cm",)),
    _core("secrets", "Secret"),
    _core("serviceaccounts", "ServiceAccount", short=("sa",), returns_object=True),
    _core("endpoints", "Endpoints", short=("ep",)),
    _core("resourcequotas", "ResourceQuota", short=("quota",), status=True, returns_object=True),
    _core(
        "persistentvolumeclaims", "PersistentVolumeClaim", short=("pvc",), status=True, returns_object=True
    ),
    Kind("coordination.k8s.io", "v1", "leases", "Lease", model="V1Lease"),
    Kind(
        "scheduling.k8s.io",
        "v1",
        "priorityclasses",
        "PriorityClass",
        namespaced=False,
        short=("pc",),
        model="V1PriorityClass",
    ),
    Kind("rbac.authorization.k8s.io", "v1", "roles", "Role", model="V1Role", name_rule="path"),
    Kind(
        "rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", model="V1RoleBinding",
        name_rule="path",
    ),
    Kind(
        "rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False,
        model="V1ClusterRole", name_rule="path",
    ),
    Kind(
        "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False,
        model="V1ClusterRoleBinding", name_rule="path",
    ),
)  # fmt: skip


class Registry:
    """The served kinds, found by (group, version, plural) and by (apiVersion, kind)."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self._kinds = tuple(kinds)
        self._by_path = {(k.group, k.version, k.plural): k for k in self._kinds}
        self._by_type = {(k.api_version, k.kind): k for k in self._kinds}

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._kinds)

    def at(self, group: str, version: str, plural: str) -> Kind | None:
        return self._by_path.get((group, version, plural))

    def of_type(self, api_version: str, kind: str) -> Kind | None:
        return self._by_type.get((api_version, kind))

    def core(self, plural: str) -> Kind:
        """A kind of the core group, which is always there."""
        return self._by_path["", "v1", plural]

    def groups(self) -> dict[str, dict[str, list[Kind]]]:
        """Group to version to kinds, in the order of registration."""
        found: dict[str, dict[str, list[Kind]]] = {}
        for kind in self._kinds:
            found.setdefault(kind.group, {}).setdefault(kind.version, []).append(kind)
        return found
