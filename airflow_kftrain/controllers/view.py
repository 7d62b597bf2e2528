"""A job as a controller reads it: the object of the API, with the defaults of training-operator v1.8.1 filled in.

The defaults live in memory alone. What the API keeps stays as its user wrote it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from airflow_kftrain.jobs.frameworks import Framework

Object = dict[str, Any]

CLEAN_NONE = "None"
CLEAN_RUNNING = "Running"
CLEAN_ALL = "All"


@dataclass(frozen=True)
class ReplicaView:
    """One replica type of a job.

    :param count: how many replicas are wanted, zero or more
    :param restart_policy: Always, OnFailure, Never or ExitCode
    :param template: the pod template as given, its training container with the default port
    """

    replica_type: str
    count: int
    restart_policy: str
    template: Object

    @property
    def label(self) -> str:
        """The replica type as labels and names have it."""
        return self.replica_type.lower()

    def port(self, framework: Framework) -> int:
        """The port that replicas use among each other."""
        container = training_container(self.template, framework)
        ports = container.get("ports") or ()
        return next(
            (int(p["containerPort"]) for p in ports if p.get("name") == framework.port_name), framework.port
        )


@dataclass(frozen=True)
class JobView:
    """One job, read-only.

    :param raw: the object as the API gave it
    :param spec: its ``spec`` with defaults
    """

    framework: Framework
    raw: Object
    spec: Object

    @property
    def name(self) -> str:
        return str(self.raw["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.raw["metadata"].get("namespace") or "default")

    @property
    def uid(self) -> str:
        return str(self.raw["metadata"].get("uid", ""))

    @property
    def kind(self) -> str:
        return self.framework.kind

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.raw["metadata"].get("annotations") or {}

    @property
    def deleting(self) -> bool:
        return self.raw["metadata"].get("deletionTimestamp") is not None

    @property
    def run_policy(self) -> Object:
        policy: Object = self.spec["runPolicy"]
        return policy

    @property
    def clean_pod_policy(self) -> str:
        return str(self.run_policy["cleanPodPolicy"])

    @property
    def suspended(self) -> bool:
        """Whether its user wants it suspended (the condition tells whether it is)."""
        return bool(self.run_policy.get("suspend"))

    @property
    def backoff_limit(self) -> int | None:
        return _integer(self.run_policy.get("backoffLimit"))

    @property
    def active_deadline(self) -> int | None:
        """Seconds from ``startTime``."""
        return _integer(self.run_policy.get("activeDeadlineSeconds"))

    @property
    def ttl(self) -> int | None:
        """Seconds a finished job is kept."""
        return _integer(self.run_policy.get("ttlSecondsAfterFinished"))

    @cached_property
    def replicas(self) -> dict[str, ReplicaView]:
        """By replica type, those that lead first."""
        given = self.spec.get(self.framework.replica_specs_field) or {}
        return {
            replica_type: ReplicaView(
                replica_type,
                int(given[replica_type]["replicas"]),
                given[replica_type]["restartPolicy"],
                given[replica_type]["template"],
            )
            for replica_type in self.framework.ordered(given)
        }

    @property
    def total(self) -> int:
        """Replicas of all types."""
        return sum(replica.count for replica in self.replicas.values())

    @property
    def has_leader(self) -> bool:
        """Whether there is a Master or Chief, whose end decides the job's."""
        return any(leader in self.replicas for leader in self.framework.leaders)


def view(framework: Framework, job: Object) -> JobView:
    """``job`` with the defaults that hold for every kind; the object itself is not touched.

    Replica types are accepted in any case. A spec too broken to take defaults keeps its faults; see
    :func:`airflow_kftrain.controllers.validation.faults`.
    """
    spec = copy.deepcopy(job.get("spec") or {})
    policy = spec.get("runPolicy") or {}
    spec["runPolicy"] = policy | {"cleanPodPolicy": policy.get("cleanPodPolicy") or CLEAN_NONE}
    field = framework.replica_specs_field
    given = spec.get(field) or {}
    spec[field] = {
        framework.replica_type(name) or name: _replica_spec(framework, replica or {})
        for name, replica in given.items()
    }
    return JobView(framework, job, spec)


def bare_view(framework: Framework, job: Object) -> JobView:
    """A view of a job whose replicas make no sense: its name and run policy alone."""
    policy = (job.get("spec") or {}).get("runPolicy")
    policy = policy if isinstance(policy, dict) else {}
    return JobView(framework, job, {"runPolicy": {"cleanPodPolicy": CLEAN_NONE} | policy})


def training_container(template: Object, framework: Framework) -> Object:
    """The container that trains: the one of the framework's name, else the first."""
    containers = template["spec"]["containers"]
    found: Object = next((c for c in containers if c.get("name") == framework.container), containers[0])
    return found


def _replica_spec(framework: Framework, replica: Object) -> Object:
    template = replica.get("template") or {}
    if (template.get("spec") or {}).get("containers"):
        container = training_container(template, framework)
        ports = container.get("ports") or []
        if not any(port.get("name") == framework.port_name for port in ports):
            container["ports"] = [*ports, {"name": framework.port_name, "containerPort": framework.port}]
    count = replica.get("replicas")
    return replica | {
        "template": template,
        "replicas": 1 if count is None else count,
        "restartPolicy": replica.get("restartPolicy") or framework.restart_policy,
    }


def _integer(value: Any) -> int | None:
    return None if value is None else int(value)
