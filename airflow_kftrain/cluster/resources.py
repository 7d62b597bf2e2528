"""The kinds of objects this package speaks of, by their place in the API."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from airflow_kftrain.jobs.frameworks.base import Framework


@dataclass(frozen=True)
class Resource:
    """A kind as the API addresses it.

    :param group: API group; empty for the core group
    :param version: for instance ``v1``
    :param plural: the name in URLs, for instance ``xgboostjobs``
    :param kind: the name in objects, for instance ``XGBoostJob``
    :param namespaced: whether objects live in a namespace
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """As objects write it: ``v1``, ``kubeflow.org/v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """The URL path of the collection, of one object, or of its subresource.

        A namespaced kind without a namespace means all namespaces.
        """
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if self.namespaced and namespace is not None:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part is not None]
        return "/" + "/".join(quote(part, safe="") for part in parts)


PODS = Resource("", "v1", "pods", "Pod")
SERVICES = Resource("", "v1", "services", "Service")
EVENTS = Resource("", "v1", "events", "Event")
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")
SECRETS = Resource("", "v1", "secrets", "Secret")
RESOURCEQUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
PVCS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
PODGROUPS = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup")
TFJOBS = Resource("kubeflow.org", "v1", "tfjobs", "TFJob")
PYTORCHJOBS = Resource("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob")
XGBOOSTJOBS = Resource("kubeflow.org", "v1", "xgboostjobs", "XGBoostJob")


def resource_of(framework: Framework) -> Resource:
    """Where the jobs of a framework are in the API."""
    return Resource(framework.group, framework.version, framework.plural, framework.kind)
