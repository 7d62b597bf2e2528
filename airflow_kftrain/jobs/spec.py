"""What a training job is: frozen values that :mod:`airflow_kftrain.jobs.manifest` turns into objects and back.

Fields, names and defaults are those of training-operator v1.8.1 (``pkg/apis/kubeflow.org/v1``). ``None`` leaves a
field out of the object, so that the cluster's own default applies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_kftrain.jobs.fields import Boolean, Integer, Quantities, RecordOf, Text, Untouched, declared
from airflow_kftrain.jobs.frameworks import Framework, LiveResize, framework
from airflow_kftrain.jobs.frameworks.base import RESTART_POLICIES
from airflow_kftrain.jobs.frameworks.pytorch import ElasticPolicy, PyTorchOptions, RendezvousSetting
from airflow_kftrain.jobs.frameworks.tensorflow import TensorFlowOptions
from airflow_kftrain.jobs.identity import replica_name

__all__ = [
    "ElasticPolicy",
    "PyTorchOptions",
    "RendezvousSetting",
    "ReplicaSpec",
    "RunPolicy",
    "SchedulingPolicy",
    "TensorFlowOptions",
    "TrainingJobSpec",
]

CLEAN_POD_POLICIES = ("None", "Running", "All")


@dataclass(frozen=True, slots=True)
class SchedulingPolicy:
    """How the gang is scheduled.

    :param min_available: pods that must have a place before any starts; all of them when absent
    :param queue: queue of the gang scheduler; cannot change later
    :param min_resources: what the gang needs at least; summed from its pods when absent
    :param priority_class: name of the PriorityClass
    :param schedule_timeout_seconds: seconds the gang scheduler holds places for an incomplete gang
    """

    min_available: int | None = declared("minAvailable", Integer(minimum=1))
    queue: str | None = declared("queue", Text())
    min_resources: Mapping[str, str | int | float] | None = declared("minResources", Quantities())
    priority_class: str | None = declared("priorityClass", Text())
    schedule_timeout_seconds: int | None = declared("scheduleTimeoutSeconds", Integer(minimum=0))


@dataclass(frozen=True, slots=True)
class RunPolicy:
    """How the job runs and what is left of it.

    :param clean_pod_policy: which pods go when the job has finished: ``None`` (the default), ``Running``, ``All``
    :param ttl_seconds_after_finished: seconds until the finished job is deleted; never when absent
    :param active_deadline_seconds: seconds the job may be active, counted from its start time
    :param backoff_limit: restarts before the job counts as failed
    :param scheduling_policy: how the gang is scheduled
    :param suspend: the job exists and has no pods; ``false`` by default
    :param managed_by: controller that looks after the job (training-operator v1.9; older ones drop the field)
    """

    clean_pod_policy: str | None = declared("cleanPodPolicy", Text(CLEAN_POD_POLICIES))
    ttl_seconds_after_finished: int | None = declared("ttlSecondsAfterFinished", Integer(minimum=0))
    active_deadline_seconds: int | None = declared("activeDeadlineSeconds", Integer(minimum=1, bits=64))
    backoff_limit: int | None = declared("backoffLimit", Integer(minimum=0))
    scheduling_policy: SchedulingPolicy | None = declared("schedulingPolicy", RecordOf(SchedulingPolicy))  # noqa: RUF009
    suspend: bool | None = declared("suspend", Boolean(default=False))
    managed_by: str | None = declared("managedBy", Text())


@dataclass(frozen=True, slots=True)
class ReplicaSpec:
    """The replicas of one type.

    :param template: pod template in Kubernetes' own words, passed whole
    :param replicas: how many, from 1
    :param restart_policy: ``Always``, ``OnFailure``, ``Never`` or ``ExitCode`` (128 to 255 restart, 1 to 127 do
        not); the framework's default when absent
    """

    template: Mapping[str, Any] = declared("template", Untouched(), factory=dict)
    replicas: int = declared("replicas", Integer(minimum=1), default=1)
    restart_policy: str | None = declared("restartPolicy", Text(RESTART_POLICIES))


@dataclass(frozen=True, slots=True)
class TrainingJobSpec:
    """A training job of any kind.

    Values are checked by :func:`airflow_kftrain.jobs.validation.check`, which reading and writing a manifest call.

    :param kind: Kubernetes kind, for instance ``XGBoostJob``
    :param replicas: replica type to its replicas
    :param name: of the object; the prefix of it while the job has none of its own
    :param namespace: None where the connection decides
    :param options: what only this kind has (:class:`PyTorchOptions`, :class:`TensorFlowOptions`)
    """

    kind: str
    replicas: Mapping[str, ReplicaSpec]
    name: str | None = None
    namespace: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    run_policy: RunPolicy = field(default_factory=RunPolicy)
    options: Any = None
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[Mapping[str, Any], ...] = ()

    def __post_init__(self) -> None:
        if self.options is None:
            object.__setattr__(self, "options", self.framework.options())

    @property
    def framework(self) -> Framework:
        """The framework of this kind.

        :raises InvalidInput: the kind is unknown
        """
        return framework(self.kind)

    @property
    def counts(self) -> dict[str, int]:
        """Replica type to number of replicas, those that lead first."""
        return {t: self.replicas[t].replicas for t in self.framework.ordered(self.replicas)}

    @property
    def total(self) -> int:
        """Number of replicas of the whole gang."""
        return sum(self.counts.values())

    @property
    def min_available(self) -> int:
        """Pods that must have a place before any starts."""
        policy = self.run_policy.scheduling_policy
        return policy.min_available if policy and policy.min_available is not None else self.total

    @property
    def first(self) -> str:
        """Name of the replica that leads the gang and reports for it, for instance ``master-0``."""
        return replica_name(self.framework.first(self.replicas), 0)

    @property
    def replica_names(self) -> list[str]:
        """All replicas, those that lead first: ``master-0``, ``worker-0``, ``worker-1`` …"""
        return [replica_name(t, n) for t, count in self.counts.items() for n in range(count)]

    @property
    def live_resize(self) -> LiveResize | None:
        """What may be resized while the job runs."""
        return self.framework.live_resize(self.options, self.counts)

    def restart_policy(self, replica_type: str) -> str:
        """The restart policy that applies to a replica type."""
        return self.replicas[replica_type].restart_policy or self.framework.restart_policy
