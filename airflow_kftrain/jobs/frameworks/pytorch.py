"""PyTorchJob: a master and workers around ``torch.distributed``, or workers alone under torchrun's rendezvous."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.jobs.fields import Boolean, Integer, ListOf, RecordOf, Text, Untouched, declared
from airflow_kftrain.jobs.frameworks.base import Framework, LiveResize


@dataclass(frozen=True, slots=True)
class RendezvousSetting:
    """One ``key=value`` of ``--rdzv-conf``."""

    key: str | None = declared("key", Text())
    value: str | None = declared("value", Text())


@dataclass(frozen=True, slots=True)
class ElasticPolicy:
    """Workers may come and go between ``min_replicas`` and ``max_replicas``; torchrun forms the group anew.

    :param min_replicas: fewest workers; ``max_replicas`` when absent, the number of workers when both are
    :param max_replicas: most workers; ``min_replicas`` when absent
    :param rdzv_backend: ``c10d``, ``etcd`` or ``etcd-v2``
    :param rdzv_port: port of the rendezvous, the job's port when absent
    :param rdzv_host: host of the rendezvous, worker 0 when absent
    :param rdzv_id: name of the rendezvous, the job's when absent
    :param rdzv_conf: further settings of the rendezvous
    :param standalone: one node only, with a rendezvous of its own
    :param n_proc_per_node: the older place of ``nprocPerNode``
    :param max_restarts: how often torchrun restarts the group before it gives up
    :param metrics: ``autoscaling/v2`` metric specs; with any, the training operator makes an autoscaler
    """

    min_replicas: int | None = declared("minReplicas", Integer(minimum=1))
    max_replicas: int | None = declared("maxReplicas", Integer(minimum=1))
    rdzv_backend: str | None = declared("rdzvBackend", Text(("c10d", "etcd", "etcd-v2")))
    rdzv_port: int | None = declared("rdzvPort", Integer(minimum=1))
    rdzv_host: str | None = declared("rdzvHost", Text())
    rdzv_id: str | None = declared("rdzvId", Text())
    rdzv_conf: tuple[RendezvousSetting, ...] | None = declared(
        "rdzvConf", ListOf(RecordOf(RendezvousSetting))
    )
    standalone: bool | None = declared("standalone", Boolean())
    n_proc_per_node: int | None = declared("nProcPerNode", Integer(minimum=1))
    max_restarts: int | None = declared("maxRestarts", Integer(minimum=0))
    metrics: tuple[dict[str, Any], ...] | None = declared("metrics", ListOf(Untouched()))


@dataclass(frozen=True, slots=True)
class ProcessCount:
    """``auto``, ``cpu``, ``gpu`` or a whole number as text; an integer is taken too."""

    def read(self, value: Any, path: str) -> str:
        text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
        if not isinstance(text, str) or not (text in ("auto", "cpu", "gpu") or _is_positive(text)):
            raise InvalidInput(path, value, "give 'auto', 'cpu', 'gpu' or a number of processes from 1")
        return text

    def write(self, value: str | int) -> str:
        return str(value)

    def schema(self) -> dict[str, Any]:
        return {"type": "string"}


@dataclass(frozen=True, slots=True)
class PyTorchOptions:
    """What only a PyTorchJob has.

    :param elastic_policy: bounds and rendezvous of an elastic job
    :param nproc_per_node: processes that torchrun starts per replica; ``auto`` when absent
    """

    elastic_policy: ElasticPolicy | None = declared("elasticPolicy", RecordOf(ElasticPolicy))  # noqa: RUF009
    nproc_per_node: str | None = declared("nprocPerNode", ProcessCount())

    @property
    def processes_per_replica(self) -> int | None:
        """The number of processes per replica when it is stated; None when torchrun finds it out."""
        if self.nproc_per_node is not None:
            return int(self.nproc_per_node) if _is_positive(self.nproc_per_node) else None
        return self.elastic_policy.n_proc_per_node if self.elastic_policy else None


class _PyTorch(Framework):
    def check(self, replicas: Mapping[str, int], options: PyTorchOptions) -> None:
        policy = options.elastic_policy
        if policy is None:
            return
        where = "spec.elasticPolicy"
        if policy.n_proc_per_node is not None and options.nproc_per_node is not None:
            raise InvalidInput(
                f"{where}.nProcPerNode",
                policy.n_proc_per_node,
                "give only spec.nprocPerNode, its newer place",
            )
        if "Worker" not in replicas:
            raise InvalidInput(where, sorted(replicas), "an elastic job needs Workers; add them")
        resize = self.live_resize(options, replicas)
        if resize is None or resize.maximum is None:
            return
        if resize.minimum > resize.maximum:
            raise InvalidInput(
                f"{where}.minReplicas",
                resize.minimum,
                f"it is above maxReplicas ({resize.maximum}); lower it or raise the other",
            )
        if not resize.minimum <= replicas["Worker"] <= resize.maximum:
            raise InvalidInput(
                f"spec.{self.replica_specs_field}.Worker.replicas",
                replicas["Worker"],
                f"it is outside elasticPolicy's {resize.minimum} to {resize.maximum}; change one of them",
            )

    def live_resize(self, options: PyTorchOptions, replicas: Mapping[str, int]) -> LiveResize | None:
        policy = self.default_options(options, replicas).elastic_policy
        if policy is None or policy.min_replicas is None:
            return None
        return LiveResize("Worker", policy.min_replicas, policy.max_replicas)

    def default_options(self, options: PyTorchOptions, replicas: Mapping[str, int]) -> PyTorchOptions:
        policy = options.elastic_policy
        nproc = options.nproc_per_node
        if policy is None:
            return replace(options, nproc_per_node=nproc or "auto")
        workers = replicas.get("Worker")
        bounded = replace(
            policy,
            min_replicas=policy.min_replicas or policy.max_replicas or workers,
            max_replicas=policy.max_replicas or policy.min_replicas or workers,
        )
        return replace(
            options,
            elastic_policy=bounded,
            nproc_per_node=nproc if nproc or policy.n_proc_per_node else "auto",
        )


def _is_positive(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text) > 0


PYTORCH = _PyTorch(
    name="pytorch",
    kind="PyTorchJob",
    plural="pytorchjobs",
    replica_specs_field="pytorchReplicaSpecs",
    replica_types=("Master", "Worker"),
    leaders=("Master",),
    singletons=("Master",),
    container="pytorch",
    port_name="pytorchjob-port",
    port=23456,
    restart_policy="OnFailure",
    options=PyTorchOptions,
    scale_type="Worker",
)
