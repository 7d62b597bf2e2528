"""Which host names stand for which pod, as cluster DNS would say, without waiting for Services.

The training operator makes pods before their Services, so a replica's name is known by its form
(``<job>-<replica type>-<index>``) as well as by a Service of that name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

JOB_NAME_LABELS = ("training.kubeflow.org/job-name", "jobset.sigs.k8s.io/jobset-name")
_ZONE = ("cluster", "local")
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_REPLICA_PART = re.compile(r"[a-z]+-\d+")


@dataclass(frozen=True)
class Endpoint:
    """A port of a pod, by the pod's stable name: a pod made anew under the same name keeps its endpoint."""

    namespace: str
    name: str
    port: int


@dataclass(frozen=True)
class Host:
    """What a host name stands for: a pod's name, and the Service between, if there is one."""

    namespace: str
    name: str
    service: Mapping[str, Any] | None = None
    pod: Mapping[str, Any] | None = None

    def endpoint(self, port: int) -> Endpoint:
        """The endpoint that answers on ``port`` of this host: a Service's ``port`` becomes its ``targetPort``."""
        return Endpoint(self.namespace, self.name, self._target_port(port))

    def _target_port(self, port: int) -> int:
        for entry in (self.service or {}).get("spec", {}).get("ports") or ():
            if entry.get("port") == port:
                return _port_number(entry.get("targetPort", port), self.pod, port)
        return port


@dataclass(frozen=True)
class Names:
    """The names that resolve for one pod.

    :param namespace: the pod's own namespace, where short names are looked up
    :param jobs: names of training jobs per namespace
    :param services: Services by (namespace, name)
    :param pods: the pods known, for Services that select a pod of another name
    """

    namespace: str
    jobs: Mapping[str, frozenset[str]] = field(default_factory=dict)
    services: Mapping[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    pods: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def known(
        cls, namespace: str, pods: Iterable[Mapping[str, Any]], services: Iterable[Mapping[str, Any]]
    ) -> Names:
        """The names that follow from the pods and Services there are."""
        present = tuple(pods)
        jobs: dict[str, set[str]] = {}
        for pod in present:
            labels = pod["metadata"].get("labels") or {}
            jobs.setdefault(pod["metadata"]["namespace"], set()).update(
                labels[key] for key in JOB_NAME_LABELS if key in labels
            )
        by_name = {(s["metadata"]["namespace"], s["metadata"]["name"]): s for s in services}
        return cls(namespace, {ns: frozenset(names) for ns, names in jobs.items()}, by_name, present)

    def find(self, host: str) -> Host | None:
        """What ``host`` stands for; ``None`` for a name that is not of this cluster.

        Forms: ``name``, ``name.ns``, ``name.ns.svc``, ``name.ns.svc.cluster.local``, each also with a pod's
        ``hostname.subdomain`` in place of ``name``.
        """
        labels = host.split(".")
        if not all(_LABEL.fullmatch(label) for label in labels):
            return None
        if tuple(labels[-2:]) == _ZONE and "svc" in labels:
            labels = labels[:-2]
        if labels[-1] == "svc":
            return self._in_zone(labels[:-1])
        if len(labels) == 1:
            return self._known(self.namespace, labels[0])
        return self._qualified(labels)

    def _in_zone(self, labels: list[str]) -> Host | None:
        """``….ns.svc`` is nowhere but in the cluster, so it resolves whether or not a Service is there yet."""
        if len(labels) == 3:
            return Host(labels[2], labels[0])
        if len(labels) != 2:
            return None
        name, namespace = labels
        return self._known(namespace, name) or Host(namespace, name)

    def _qualified(self, labels: list[str]) -> Host | None:
        if len(labels) == 2:
            name, second = labels
            return self._known(second, name) or self._member(self.namespace, name, second)
        if len(labels) == 3:
            return self._member(labels[2], labels[0], labels[1])
        return None

    def _known(self, namespace: str, name: str) -> Host | None:
        service = self.services.get((namespace, name))
        if service is not None:
            return self._behind(service)
        if self._is_replica(namespace, name):
            return Host(namespace, name)
        return None

    def _is_replica(self, namespace: str, name: str) -> bool:
        return any(
            name.startswith(f"{job}-") and _REPLICA_PART.fullmatch(name, len(job) + 1)
            for job in self.jobs.get(namespace, ())
        )

    def _member(self, namespace: str, hostname: str, subdomain: str) -> Host | None:
        for pod in self.pods:
            spec = pod.get("spec", {})
            if pod["metadata"]["namespace"] == namespace and spec.get("subdomain") == subdomain:
                return Host(namespace, hostname)
        return None

    def _behind(self, service: Mapping[str, Any]) -> Host:
        meta = service["metadata"]
        chosen = sorted(
            (p for p in self.pods if selects(service, p)), key=lambda p: str(p["metadata"]["name"])
        )
        if not chosen:
            return Host(meta["namespace"], meta["name"], service)
        return Host(meta["namespace"], host_name(chosen[0]), service, chosen[0])


def host_name(pod: Mapping[str, Any]) -> str:
    """The name a pod has on the network."""
    return str(pod.get("spec", {}).get("hostname") or pod["metadata"]["name"])


def selects(service: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    """Whether the Service's selector matches the pod."""
    selector = service.get("spec", {}).get("selector")
    labels = pod["metadata"].get("labels") or {}
    return (
        bool(selector)
        and service["metadata"]["namespace"] == pod["metadata"]["namespace"]
        and all(labels.get(key) == value for key, value in selector.items())
    )


def container_ports(pod: Mapping[str, Any]) -> list[int]:
    """The ports that the pod's containers declare, in order, each once."""
    containers = [*(pod["spec"].get("containers") or ()), *(pod["spec"].get("initContainers") or ())]
    return list(dict.fromkeys(p["containerPort"] for c in containers for p in c.get("ports") or ()))


def aliases(pod: Mapping[str, Any], services: Iterable[Mapping[str, Any]]) -> dict[int, list[Endpoint]]:
    """Per port of the pod: the endpoints under which Services that select it may be known already."""
    found: dict[int, list[Endpoint]] = {}
    for service in services:
        if not selects(service, pod):
            continue
        meta = service["metadata"]
        for entry in service["spec"].get("ports") or ():
            number = _port_number(entry.get("targetPort", entry["port"]), pod, entry["port"])
            found.setdefault(number, []).append(Endpoint(meta["namespace"], meta["name"], number))
            found[number].append(Endpoint(meta["namespace"], meta["name"], entry["port"]))
    return found


def _port_number(target: int | str, pod: Mapping[str, Any] | None, default: int) -> int:
    if isinstance(target, int):
        return target
    containers = (pod or {}).get("spec", {}).get("containers") or ()
    named = [p["containerPort"] for c in containers for p in c.get("ports") or () if p.get("name") == target]
    return named[0] if named else default
