"""What a case of the conformance table is: a job's manifest, and what is done to it step by step."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from airflow_kftrain.cluster.client import Object
from airflow_kftrain.cluster.resources import PYTORCHJOBS, TFJOBS, XGBOOSTJOBS, Resource

Until = Literal["settled", "running", "finished", "suspended", "gone"]
"""What a step leads to: nothing changes any more; all pods that the job asks for run; it is over; it is suspended and
without pods; the object does not exist."""


@dataclass(frozen=True)
class Kind:
    """A kind of job, as the table's builders need it."""

    resource: Resource
    replica_specs: str
    container: str
    port_name: str


KINDS = {
    "XGBoostJob": Kind(XGBOOSTJOBS, "xgbReplicaSpecs", "xgboost", "xgboostjob-port"),
    "PyTorchJob": Kind(PYTORCHJOBS, "pytorchReplicaSpecs", "pytorch", "pytorchjob-port"),
    "TFJob": Kind(TFJOBS, "tfReplicaSpecs", "tensorflow", "tfjob-port"),
}


@dataclass(frozen=True)
class Create:
    """The job is submitted."""


@dataclass(frozen=True)
class End:
    """Containers of pods end: an exit code per replica, for instance ``{"worker-0": 137}``."""

    codes: Mapping[str, int]


@dataclass(frozen=True)
class Change:
    """The job is changed by a merge patch."""

    patch: Mapping[str, Any]


@dataclass(frozen=True)
class LosePod:
    """Somebody else deletes a pod, named by its replica."""

    replica: str


@dataclass(frozen=True)
class Delete:
    """The job is deleted."""


@dataclass(frozen=True)
class Pass:
    """Time passes, in seconds."""

    seconds: float


Action = Create | End | Change | LosePod | Delete | Pass


@dataclass(frozen=True)
class Step:
    """One act and what to wait for after it; ``title`` names the step in what is compared."""

    title: str
    action: Action
    until: Until = "settled"


@dataclass(frozen=True)
class Case:
    """One row: ``features`` are the values of the dimensions that it covers.

    :param gang: whether the controllers run in gang mode for it
    """

    name: str
    manifest: Object
    steps: tuple[Step, ...]
    gang: bool = True
    features: Mapping[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> Kind:
        """Its kind."""
        return KINDS[self.manifest["kind"]]


ENDS = "/ends"
"""Stands in manifests for the folder of named pipes by which the player ends pods that are processes: each waits for
its exit code there. Where pods are played, nothing runs."""

COMMAND = (
    "sh",
    "-c",
    'f="$ENDS/$POD.$CONTAINER"; [ -p "$f" ] || mkfifo "$f"; read -r code <"$f"; exit "$code"',
)


def container(name: str, **fields: Any) -> Object:
    """A container that waits for the exit code it is to end with."""
    env = [
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "CONTAINER", "value": name},
        {"name": "ENDS", "value": ENDS},
    ]
    return {"name": name, "image": "train:1", "command": list(COMMAND), "env": env, **fields}


def replica(
    kind: str,
    replicas: int | None = 1,
    restart_policy: str | None = "OnFailure",
    *,
    gpus: int = 1,
    **spec: Any,
) -> Object:
    """A replica spec with one training container; ``spec`` adds to the pod's spec."""
    limits = {"resources": {"limits": {"nvidia.com/gpu": gpus, "cpu": "10m"}}} if gpus else {}
    result: Object = {
        "template": {"spec": {"containers": [container(KINDS[kind].container, **limits)], **spec}}
    }
    if replicas is not None:
        result["replicas"] = replicas
    if restart_policy is not None:
        result["restartPolicy"] = restart_policy
    return result


def job(kind: str, name: str, replicas: Mapping[str, Object], **spec: Any) -> Object:
    """A job of ``kind`` with these replica specs; ``spec`` adds to its spec."""
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {KINDS[kind].replica_specs: copy.deepcopy(dict(replicas)), **spec},
    }
