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
    needed = _peak(pod_spec, field, ("limits", "requests"))
    return _of_whole_pod(pod_spec, needed, field) + _overhead(pod_spec, field)


def pod_limit(pod_spec: Mapping[str, Any], *, field: str = "spec") -> Resources:
    """The effective limit of a pod, by the same rule; what has no limit is not in it.

    :param field: what an error names
    :raises InvalidInput: a quantity is illegal
    """
    whole = _amounts(pod_spec, field, ("limits",))
    return Resources({**_peak(pod_spec, field, ("limits",)), **whole}) + _overhead(pod_spec, field)


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


def _peak(pod_spec: Mapping[str, Any], field: str, parts: tuple[str, ...]) -> Resources:
    """The most that a pod's containers need at one time."""
    sidecars = peak = Resources()
    for n, container in enumerate(pod_spec.get("initContainers") or ()):
        amounts = _amounts(container, f"{field}.initContainers[{n}]", parts)
        if container.get("restartPolicy") == "Always":
            sidecars += amounts
            peak = peak.largest(sidecars)
        else:
            peak = peak.largest(sidecars + amounts)
    running = Resources.total(
        _amounts(container, f"{field}.containers[{n}]", parts)
        for n, container in enumerate(pod_spec.get("containers") or ())
    )
    return (running + sidecars).largest(peak)


def _of_whole_pod(pod_spec: Mapping[str, Any], needed: Resources, field: str) -> Resources:
    """``needed``, with what the pod as a whole requests in its place; its limits stand in for what is not said."""
    limits = _amounts(pod_spec, field, ("limits",))
    return Resources({**limits, **needed, **_amounts(pod_spec, field, ("requests",))})


def _overhead(pod_spec: Mapping[str, Any], field: str) -> Resources:
    return Resources(pod_spec.get("overhead") or {}, field=f"{field}.overhead")


def _amounts(holder: Mapping[str, Any], field: str, parts: tuple[str, ...]) -> Resources:
    """The amounts under ``resources`` of a container or pod; a later part replaces an earlier one's."""
    resources = holder.get("resources") or {}
    merged = {name: amount for part in parts for name, amount in (resources.get(part) or {}).items()}
    return Resources(merged, field=f"{field}.resources.{parts[-1]}")
