"""Node and Pod objects to what the planner plans with: nodes, what foreign pods hold, what a gang is charged.

Pure functions over objects as the API gives them. Capacity is ``status.allocatable``; a pod holds its effective request
from its assignment until a final phase, terminating included. Taints and cordons keep new pods away, they do not free
what is held.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_kftrain.jobs import identity
from airflow_kftrain.jobs.pods import pod_request
from airflow_kftrain.jobs.resources import GPU_RESOURCES, Resources
from airflow_kftrain.scheduling.fit import admits
from airflow_kftrain.scheduling.model import Node, Placement, Taint, Toleration

Object = Mapping[str, Any]

_FINAL = ("Succeeded", "Failed")
_ONE_POD = Resources({"pods": 1})
_PRODUCT_LABELS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "cloud.google.com/gke-accelerator")


def holds_capacity(pod: Object) -> bool:
    """Whether ``pod`` has a node and no final phase: a finished pod holds nothing, a terminating one all it did."""
    assigned = (pod.get("spec") or {}).get("nodeName")
    return bool(assigned) and (pod.get("status") or {}).get("phase") not in _FINAL


def why_unusable(node: Object) -> str:
    """Why nothing may be started on ``node``: ``not ready``, ``cordoned``, ``being removed``; empty when it may."""
    if node["metadata"].get("deletionTimestamp"):
        return "being removed"
    if (node.get("spec") or {}).get("unschedulable"):
        return "cordoned"
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = next((c.get("status") for c in conditions if c.get("type") == "Ready"), "missing")
    return "" if ready == "True" else "not ready"


def node_of(node: Object, foreign: Resources | None = None) -> Node:
    """The planner's view of a Node object.

    :param foreign: what pods that the planner does not charge hold there
    :raises InvalidInput: a quantity is illegal
    """
    metadata, status = node["metadata"], node.get("status") or {}
    return Node(
        name=metadata["name"],
        allocatable=Resources(status.get("allocatable") or {}, field=f"node {metadata['name']}.allocatable"),
        foreign=foreign or Resources(),
        labels=dict(metadata.get("labels") or {}),
        taints=tuple(
            Taint(t["key"], t.get("value") or "", t["effect"])
            for t in (node.get("spec") or {}).get("taints") or ()
        ),
        unusable=why_unusable(node),
    )


def nodes_of(
    nodes: Iterable[Object],
    pods: Iterable[Object],
    *,
    selector: Mapping[str, str] | None = None,
    ours: frozenset[str] = frozenset(),
) -> tuple[Node, ...]:
    """The nodes of a partition, by name.

    :param selector: labels that make a node part of the partition; all nodes when None
    :param ours: uids of pods that the planner charges through their gang; all others count as foreign
    """
    chosen = [node for node in nodes if _selected(node, selector or {})]
    foreign: defaultdict[str, list[Resources]] = defaultdict(list)
    for pod in pods:
        if holds_capacity(pod) and pod["metadata"].get("uid") not in ours:
            foreign[pod["spec"]["nodeName"]].append(_effective(pod) + _ONE_POD)
    made = (node_of(node, Resources.total(foreign[node["metadata"]["name"]])) for node in chosen)
    return tuple(sorted(made, key=lambda node: node.name))


def tolerations_of(pod_spec: Object) -> tuple[Toleration, ...]:
    """The tolerations of a pod spec."""
    return tuple(
        Toleration(
            t.get("key") or "", t.get("operator") or "Equal", t.get("value") or "", t.get("effect") or ""
        )
        for t in pod_spec.get("tolerations") or ()
    )


def placements(pods: Iterable[Object], assigned: Mapping[tuple[str, int], str]) -> tuple[Placement, ...]:
    """What an admitted gang is charged, by replica type and node.

    Each replica is charged where its live pod is, terminating pods and those beyond the gang's size included, so that
    two pods of one replica count twice; a replica without a pod is charged where it was assigned.

    :param pods: all pods of the job
    :param assigned: node by (replica type, index), as the admission chose them
    """
    counts: defaultdict[tuple[str, str], int] = defaultdict(int)
    seen: set[tuple[str, int]] = set()
    for pod in pods:
        replica = replica_of(pod)
        if holds_capacity(pod) and replica is not None:
            counts[replica[0], pod["spec"]["nodeName"]] += 1
            seen.add((replica[0].lower(), replica[1]))
    for (replica_type, index), node in assigned.items():
        if (replica_type.lower(), index) not in seen:
            counts[replica_type, node] += 1
    names = {replica_type.lower(): replica_type for replica_type, _ in assigned}
    merged: defaultdict[tuple[str, str], int] = defaultdict(int)
    for (replica_type, node), count in counts.items():
        merged[names.get(replica_type.lower(), replica_type), node] += count
    return tuple(Placement(name, node, count) for (name, node), count in sorted(merged.items()))


def replica_of(pod: Object) -> tuple[str, int] | None:
    """(replica type, index) of a gang's pod by its labels; None when it has none."""
    labels = pod["metadata"].get("labels") or {}
    replica_type = labels.get(identity.REPLICA_TYPE)
    index = labels.get(identity.REPLICA_INDEX, "")
    return (replica_type, int(index)) if replica_type and index.isdigit() else None


def node_class(node: Node) -> str:
    """What kind of GPUs a node has, for people: its product label; the resource name if that is missing or empty."""
    labelled = next((node.labels[label] for label in _PRODUCT_LABELS if node.labels.get(label)), None)
    if labelled:
        return labelled
    names = [name for name in node.allocatable if name in GPU_RESOURCES or name.startswith("nvidia.com/mig-")]
    return names[0] if names else "cpu"


@dataclass(frozen=True)
class Capacity:
    """What a set of nodes offers to pods with given tolerations.

    :param total: allocatable of all nodes
    :param usable: allocatable of those that pods may start on
    :param free: what is left of that beside foreign pods
    :param apart: name and reason of each node that does not count
    """

    total: Resources
    usable: Resources
    free: Resources
    apart: tuple[tuple[str, str], ...]


def capacity_of(nodes: Sequence[Node], tolerations: tuple[Toleration, ...] = ()) -> Capacity:
    """What ``nodes`` offer to a pod with ``tolerations``, and which do not count, and why."""
    open_to = [node for node in nodes if admits(node, {}, tolerations)]
    usable = Resources.total(node.allocatable for node in open_to)
    held = Resources.total(node.foreign for node in open_to)
    apart = [(node.name, _why_apart(node, tolerations)) for node in nodes if node not in open_to]
    return Capacity(Resources.total(node.allocatable for node in nodes), usable, usable - held, tuple(apart))


def drift(charged: Resources, pods: Iterable[Object]) -> Resources:
    """Charges less what the pods of admitted gangs really hold; empty when the account is right."""
    return charged - Resources.total(_effective(pod) for pod in pods if holds_capacity(pod))


def _why_apart(node: Node, tolerations: tuple[Toleration, ...]) -> str:
    if node.unusable:
        return node.unusable
    keeps = next(
        taint
        for taint in node.taints
        if taint.effect in ("NoSchedule", "NoExecute") and not any(t.tolerates(taint) for t in tolerations)
    )
    return f"tainted {keeps.key}={keeps.value}:{keeps.effect}"


def _effective(pod: Object) -> Resources:
    return pod_request(pod["spec"], field=f"pod {pod['metadata'].get('name', '?')}.spec")


def _selected(node: Object, selector: Mapping[str, str]) -> bool:
    labels = node["metadata"].get("labels") or {}
    return all(labels.get(key) == value for key, value in selector.items())
