"""What the kinds of training job have in common, and where they differ.

A kind is one file beside this one that makes a :class:`Framework` (or a subclass, where its rules go beyond the
table), and one line in the registry of this package.
"""

# ruff: noqa: ARG002 (the methods are an interface: a kind uses what it needs)
from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_kftrain.exceptions import InvalidInput

RESTART_POLICIES = ("Always", "OnFailure", "Never", "ExitCode")


@dataclass(frozen=True, slots=True)
class LiveResize:
    """Replicas of this type may come and go while the job runs, within the bounds (both inclusive).

    :param maximum: None when there is no upper bound
    """

    replica_type: str
    minimum: int
    maximum: int | None


@dataclass(frozen=True, slots=True)
class NoOptions:
    """The options of a kind that has none beyond replicas and run policy."""


@dataclass(frozen=True)
class Framework:
    """One kind of training job, with the names and defaults of training-operator v1.8.1.

    :param name: the framework, as its container and our example images call it
    :param kind: Kubernetes kind
    :param plural: resource name in the API's paths
    :param replica_specs_field: the field under ``spec`` that holds the replica types
    :param replica_types: all replica types, those that lead first
    :param leaders: types whose replica 0 leads the gang, in order; without any of them, Worker 0 leads
    :param singletons: types of exactly one replica
    :param required: types a job cannot do without
    :param container: the container that trains; others are its sidecars
    :param port_name: name of the port that replicas use among each other
    :param port: its default number
    :param restart_policy: what applies to a replica type without ``restartPolicy``
    :param options: record of the fields under ``spec`` that only this kind has
    :param scale_type: the replica type behind the ``scale`` subresource, None when the kind has none
    """

    name: str
    kind: str
    plural: str
    replica_specs_field: str
    replica_types: tuple[str, ...]
    leaders: tuple[str, ...]
    container: str
    port_name: str
    port: int
    restart_policy: str
    singletons: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    options: type[Any] = NoOptions
    scale_type: str | None = None
    group: str = "kubeflow.org"
    version: str = "v1"

    @property
    def api_version(self) -> str:
        """``group/version``, as manifests write it."""
        return f"{self.group}/{self.version}"

    @property
    def singular(self) -> str:
        """Lower-case kind, as kubectl takes it."""
        return self.kind.lower()

    def replica_type(self, given: str) -> str | None:
        """The replica type that ``given`` spells in any case (the training operator takes any), or None."""
        return next((t for t in self.replica_types if t.lower() == given.lower()), None)

    def ordered(self, types: Iterable[str]) -> list[str]:
        """``types`` in the order of :attr:`replica_types`."""
        present = set(types)
        return [t for t in self.replica_types if t in present]

    def first(self, types: Iterable[str]) -> str:
        """The replica type whose replica 0 is the gang's first: it reports, and decides the job's success."""
        present = set(types)
        return next((t for t in self.leaders if t in present), "Worker")

    def live_resize(self, options: Any, replicas: Mapping[str, int]) -> LiveResize | None:
        """What may be resized while the job runs; None when a resize needs suspend, patch, resume."""
        return None

    def check(self, replicas: Mapping[str, int], options: Any) -> None:
        """Check what the table cannot say.

        :param replicas: replica type to number, all types known and numbers positive
        :raises InvalidInput: the combination cannot run
        """

    def default_options(self, options: Any, replicas: Mapping[str, int]) -> Any:
        """``options`` with what the training operator assumes where a field is absent."""
        return options

    def check_replicas(self, replicas: Mapping[str, int], options: Any) -> None:
        """Check types and numbers of replicas against the table, then :meth:`check`.

        :raises InvalidInput: naming the replica type
        """
        where = f"spec.{self.replica_specs_field}"
        if not replicas:
            raise InvalidInput(where, dict(replicas), f"give at least one of {', '.join(self.replica_types)}")
        for replica_type in self.required:
            if replica_type not in replicas:
                raise InvalidInput(where, sorted(replicas), f"{self.kind} needs a {replica_type}; add one")
        for replica_type in self.singletons:
            if replicas.get(replica_type, 1) != 1:
                raise InvalidInput(
                    f"{where}.{replica_type}.replicas",
                    replicas[replica_type],
                    f"{self.kind} has one {replica_type}; give more Workers instead",
                )
        self.check(replicas, options)
