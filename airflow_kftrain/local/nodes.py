"""Nodes made up on request: what the local cluster says it has."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.local.kubelet.rewrite import LOOPBACK

LOCAL_LABEL = "kftrain/local"
"""On nodes whose pods run on this machine, as against Node objects that others made."""

_MOST_NODES, _MOST_GPUS = 1000, 64


@dataclass(frozen=True)
class NodeSpec:
    """One node to be made up.

    :param gpus: whole ``nvidia.com/gpu``
    :param cpu: quantity; generous by default, since processes share this machine's cores anyway
    :param memory: quantity
    :param kubelet_port: where the node's logs are served; None where the API server reads them itself
    """

    name: str
    gpus: int = 0
    cpu: str = "64"
    memory: str = "256Gi"
    labels: Mapping[str, str] = field(default_factory=dict)
    max_pods: int = 250
    kubelet_port: int | None = None


def make_nodes(nodes: int, gpus: int) -> list[NodeSpec]:
    """``nodes`` equal nodes of ``gpus`` GPUs each.

    :raises InvalidInput: fewer than one node, or a negative or absurd number
    """
    if not 1 <= nodes <= _MOST_NODES:
        raise InvalidInput("nodes", nodes, f"give a number from 1 to {_MOST_NODES}")
    if not 0 <= gpus <= _MOST_GPUS:
        raise InvalidInput("gpus", gpus, f"give GPUs per node, from 0 to {_MOST_GPUS}")
    return [NodeSpec(f"node-{number}", gpus) for number in range(nodes)]


def first_gpu(nodes: Sequence[NodeSpec], name: str) -> int:
    """The index that a node's first GPU has on this machine: nodes follow each other."""
    position = [node.name for node in nodes].index(name)
    return sum(node.gpus for node in nodes[:position])


def node_object(spec: NodeSpec, now: str) -> dict[str, Any]:
    """The Node object, without its status.

    :param now: the present, in RFC 3339
    """
    labels = {
        "kubernetes.io/hostname": spec.name,
        "kubernetes.io/os": platform.system().lower(),
        "kubernetes.io/arch": {"x86_64": "amd64", "aarch64": "arm64"}.get(
            platform.machine(), platform.machine()
        ),
        LOCAL_LABEL: "true",
        **({"nvidia.com/gpu.present": "true"} if spec.gpus else {}),
        **spec.labels,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": spec.name, "labels": labels},
        "spec": {},
        "status": node_status(spec, now),
    }


def node_status(spec: NodeSpec, now: str) -> dict[str, Any]:
    """Ready, with capacity and allocatable alike."""
    amounts = {"cpu": spec.cpu, "memory": spec.memory, "pods": str(spec.max_pods)}
    amounts |= {"nvidia.com/gpu": str(spec.gpus)} if spec.gpus else {}
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "kubelet is posting ready status",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }
    endpoints = {"kubeletEndpoint": {"Port": spec.kubelet_port}} if spec.kubelet_port is not None else {}
    return {
        "capacity": amounts,
        "allocatable": amounts,
        "conditions": [ready],
        "addresses": [
            {"type": "InternalIP", "address": LOOPBACK},
            {"type": "Hostname", "address": spec.name},
        ],
        "daemonEndpoints": endpoints,
        "nodeInfo": {
            "architecture": platform.machine(),
            "bootID": "",
            "containerRuntimeVersion": "process://1",
            "kernelVersion": platform.release(),
            "kubeProxyVersion": "",
            "kubeletVersion": "v1.32.0",
            "machineID": "",
            "operatingSystem": platform.system().lower(),
            "osImage": platform.platform(),
            "systemUUID": "",
        },
    }
