"""What pods and gangs ask of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_kftrain.jobs.resources import Resources
from airflow_kftrain.jobs.spec import TrainingJobSpec


def pod_request(pod_spec: Mapping[str, Any], *, field: str = "spec") -> Resources:
    """The effective request of a pod, as the scheduler charges it to a node.

    Per resource: the larger of what runs at the end (all containers and sidecars) and of what the init containers
    need while they run one by one, each beside the sidecars started before it; then the pod's overhead. A request
    that is absent is its limit; requests of the pod as a whole replace the sum (KEP-753, KEP-2837,
    ``k8s.io/component-helpers/resource``).

    :param field: what an error names
    :raises InvalidInput: a quantity is illegal
    """
    sidecars = peak = Resources()
    for n, container in enumerate(pod_spec.get("initContainers") or ()):
        request = _request(container, f"{field}.initContainers[{n}]")
        if container.get("restartPolicy") == "Always":
            sidecars += request
            peak = peak.largest(sidecars)
        else:
            peak = peak.largest(sidecars + request)
    running = Resources.total(
        _request(container, f"{field}.containers[{n}]")
        for n, container in enumerate(pod_spec.get("containers") or ())
    )
    needed = (running + sidecars).largest(peak)
    return _of_whole_pod(pod_spec, needed, field) + Resources(
        pod_spec.get("overhead") or {}, field=f"{field}.overhead"
    )


@dataclass(frozen=True, slots=True)
class ReplicaRequest:
    """So many replicas of one type, and what each asks for."""

    replica_type: str
    count: int
    each: Resources

    @property
    def total(self) -> Resources:
        """What all of them ask for."""
        return self.each * self.count


@dataclass(frozen=True, slots=True)
class GangRequest:
    """What a whole gang asks for, by replica type, those that lead first."""

    replicas: tuple[ReplicaRequest, ...]

    @classmethod
    def of(cls, spec: TrainingJobSpec, counts: Mapping[str, int] | None = None) -> GangRequest:
        """The request of a job.

        :param counts: replica type to number, where it is not the spec's (an elastic job at its minimum)
        :raises InvalidInput: a quantity is illegal
        """
        numbers = {**spec.counts, **(counts or {})}
        where = f"spec.{spec.framework.replica_specs_field}"
        return cls(
            tuple(
                ReplicaRequest(
                    t,
                    numbers[t],
                    pod_request(
                        spec.replicas[t].template.get("spec") or {}, field=f"{where}.{t}.template.spec"
                    ),
                )
                for t in spec.counts
            )
        )

    @property
    def total(self) -> Resources:
        """What all replicas ask for together."""
        return Resources.total(replica.total for replica in self.replicas)

    @property
    def pods(self) -> int:
        """Number of pods."""
        return sum(replica.count for replica in self.replicas)

    @property
    def gpus(self) -> int:
        """Whole GPUs and MIG slices of all replicas together."""
        return self.total.gpus


def charged(pods: Iterable[Mapping[str, Any]]) -> Resources:
    """What pods hold of their nodes: those that have one, and have not reached a final phase."""
    return Resources.total(
        pod_request(pod["spec"])
        for pod in pods
        if (pod.get("spec") or {}).get("nodeName")
        and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
    )


def _of_whole_pod(pod_spec: Mapping[str, Any], needed: Resources, field: str) -> Resources:
    """``needed``, with what the pod as a whole requests in its place; its limits stand in for what is not said."""
    resources = pod_spec.get("resources") or {}
    requests = Resources(resources.get("requests") or {}, field=f"{field}.resources.requests")
    limits = Resources(resources.get("limits") or {}, field=f"{field}.resources.limits")
    return Resources({**limits, **needed, **requests})


def _request(container: Mapping[str, Any], field: str) -> Resources:
    resources = container.get("resources") or {}
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    return Resources({**limits, **requests}, field=f"{field}.resources.requests")
