"""Which pods go to which nodes: a whole gang or none of it. Pure: a snapshot in, bindings and explanations out."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.jobs.pods import pod_request
from airflow_kftrain.jobs.resources import Resources
from airflow_kftrain.local.node_rules import obstacle

Object = Mapping[str, Any]
POD_GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
_FINAL_PHASES = ("Succeeded", "Failed")
# Steps of the search for one gang. Equal replicas need one per pod; only odd mixtures come near.
_SEARCH_STEPS = 5000


@dataclass(frozen=True)
class Binding:
    """A pod and the node it is to run on."""

    namespace: str
    name: str
    uid: str
    node: str


@dataclass(frozen=True)
class Waiting:
    """A pod that cannot be placed now, and why, in a sentence.

    :param reason: ``Unschedulable`` or ``SchedulingGated``
    """

    namespace: str
    name: str
    uid: str
    message: str
    reason: str = "Unschedulable"


@dataclass(frozen=True)
class Placement:
    """What one look at the cluster decides."""

    bindings: tuple[Binding, ...] = ()
    waiting: tuple[Waiting, ...] = ()


@dataclass
class _Node:
    obj: Object
    free: Resources

    @property
    def name(self) -> str:
        return str(self.obj["metadata"]["name"])


@dataclass(frozen=True)
class _Want:
    """A pod to be placed; pods of one ``kind`` are alike to the search."""

    pod: Object
    request: Resources
    kind: str


@dataclass(frozen=True)
class _Unit:
    """Pods decided on together.

    :param least: how many of them must be placed at once for any to be placed
    :param gang: the group's ``namespace/name``; empty for a pod on its own
    """

    wants: tuple[_Want, ...]
    least: int
    gang: str = ""
    missing: str = ""


def decide(nodes: Iterable[Object], pods: Iterable[Object], pod_groups: Iterable[Object]) -> Placement:
    """Place what can be placed, by priority, then age.

    Pods labelled with a PodGroup are placed only if as many of the group as its ``minMember`` have a place at once
    (finished and running members count); others one by one. A pod goes to the fullest node that can take it, which
    keeps whole nodes free for larger gangs.
    """
    everything = list(pods)
    if not any(map(_is_open, everything)):
        return Placement()
    wants, unreadable = _read(everything)
    free = _free_nodes(nodes, wants)
    bindings: list[Binding] = []
    waiting = [_waiting(pod, text) for pod, text in unreadable if _is_open(pod)]
    waiting += [
        _waiting(w.pod, _GATED, "SchedulingGated") for w in wants if _is_open(w.pod) and _gates(w.pod)
    ]
    for unit in _units(wants, pod_groups):
        chosen = [] if unit.missing else _place(unit, free)
        bindings += [_binding(want, node) for want, node in chosen]
        placed = {want.pod["metadata"]["uid"] for want, _ in chosen}
        left = [w for w in unit.wants if w.pod["metadata"]["uid"] not in placed]
        if left:
            waiting += _explained(unit, left, free)
    return Placement(tuple(bindings), tuple(waiting))


_GATED = "Scheduling is blocked due to non-empty scheduling gates"


def effective_request(pod: Object) -> Resources:
    """What a node must have for the pod; one of ``pods`` is always in it."""
    return pod_request(pod["spec"]) + Resources({"pods": 1})


def _read(pods: Iterable[Object]) -> tuple[list[_Want], list[tuple[Object, str]]]:
    """All pods with what they need, and those whose amounts cannot be read, with the reason."""
    wants: list[_Want] = []
    unreadable: list[tuple[Object, str]] = []
    for pod in pods:
        try:
            wants.append(_want(pod))
        except InvalidInput as error:
            unreadable.append((pod, str(error)))
    return wants, unreadable


def _free_nodes(nodes: Iterable[Object], wants: Sequence[_Want]) -> list[_Node]:
    used: dict[str, list[Resources]] = {}
    for want in wants:
        node = want.pod["spec"].get("nodeName")
        if node and not _is_final(want.pod):
            used.setdefault(node, []).append(want.request)
    free = []
    for node in nodes:
        allocatable = Resources((node.get("status") or {}).get("allocatable"))
        taken = Resources.total(used.get(node["metadata"]["name"], ()))
        free.append(_Node(node, allocatable - taken))
    return free


def _units(wants: Sequence[_Want], pod_groups: Iterable[Object]) -> list[_Unit]:
    groups = {(g["metadata"]["namespace"], g["metadata"]["name"]): g for g in pod_groups}
    members: dict[tuple[str, str], list[_Want]] = {}
    units: list[_Unit] = []
    for want in wants:
        name = (want.pod["metadata"].get("labels") or {}).get(POD_GROUP_LABEL)
        if name:
            members.setdefault((want.pod["metadata"]["namespace"], name), []).append(want)
        elif _is_open(want.pod) and not _gates(want.pod):
            units.append(_Unit((want,), 1))
    for key, gang in members.items():
        units += _gang_units(key, gang, groups.get(key))
    return sorted(units, key=_order)


def _gang_units(key: tuple[str, str], members: Sequence[_Want], group: Object | None) -> Iterator[_Unit]:
    name = "/".join(key)
    pending = (w for w in members if _is_open(w.pod) and not _gates(w.pod))
    wants = tuple(sorted(pending, key=lambda want: _age(want.pod)))
    if not wants:
        return
    if group is None:
        yield _Unit(wants, len(wants), name, f"PodGroup {name} does not exist")
        return
    there = sum(1 for want in members if _counts(want.pod))
    lacking = max(0, int(group.get("spec", {}).get("minMember", 1)) - there)
    if lacking == 0:
        yield from (_Unit((want,), 1) for want in wants)
    elif lacking > len(wants):
        text = f"gang {name}: {there + len(wants)} of its {there + lacking} pods exist"
        yield _Unit(wants, lacking, name, text)
    else:
        yield _Unit(wants, lacking, name)


def _counts(pod: Object) -> bool:
    """Whether the pod is a member that need not be placed: it runs, or ran and succeeded."""
    if pod.get("status", {}).get("phase") == "Succeeded":
        return True
    going = pod["metadata"].get("deletionTimestamp") or pod.get("status", {}).get("phase") == "Failed"
    return bool(pod["spec"].get("nodeName")) and not going


def _is_open(pod: Object) -> bool:
    """Whether the pod still wants a node."""
    return (
        not pod["spec"].get("nodeName")
        and not pod["metadata"].get("deletionTimestamp")
        and not _is_final(pod)
    )


def _gates(pod: Object) -> bool:
    return bool(pod["spec"].get("schedulingGates"))


def _is_final(pod: Object) -> bool:
    return pod.get("status", {}).get("phase") in _FINAL_PHASES


def _want(pod: Object) -> _Want:
    if _is_final(pod):  # it needs nothing; it may count as a member of its gang
        return _Want(pod, Resources(), "")
    spec, request = pod["spec"], effective_request(pod)
    rules = [spec.get("nodeSelector"), spec.get("affinity"), spec.get("tolerations"), request.to_dict()]
    return _Want(pod, request, json.dumps(rules, sort_keys=True))


def _order(unit: _Unit) -> tuple[int, str, str]:
    first = min((want.pod for want in unit.wants), key=_age)
    priority = max(int(want.pod["spec"].get("priority") or 0) for want in unit.wants)
    return (-priority, first["metadata"].get("creationTimestamp") or "", unit.gang or _name(first))


def _age(pod: Object) -> tuple[str, list[tuple[int, str]]]:
    """Oldest first; those of one second by name, numbers in it as numbers (worker-2 before worker-10)."""
    parts = re.split(r"(\d+)", pod["metadata"]["name"])
    natural = [(int(part), "") if part.isdigit() else (0, part) for part in parts]
    return pod["metadata"].get("creationTimestamp") or "", natural


def _place(unit: _Unit, nodes: list[_Node]) -> list[tuple[_Want, _Node]]:
    """Places for all pods of the unit, else for the fewest that must go together, else none; takes what it gives."""
    candidates = [unit.wants] if unit.least == len(unit.wants) else [unit.wants, unit.wants[: unit.least]]
    for wants in candidates:
        chosen = _search(wants, nodes)
        if chosen is not None:
            return chosen
    return []


def _search(wants: Sequence[_Want], nodes: list[_Node]) -> list[tuple[_Want, _Node]] | None:
    """Depth first, largest pods first, fullest nodes first; pods alike never try the same nodes in another order."""
    ordered = sorted(wants, key=lambda w: (_weight(w.request), w.kind), reverse=True)
    ranked = sorted(nodes, key=lambda n: (*_weight(n.free), n.name))
    allowed = {w.kind: [obstacle(w.pod, node.obj) is None for node in ranked] for w in ordered}
    chosen: list[int] = []
    position = 0
    for _ in range(_SEARCH_STEPS):
        if len(chosen) == len(ordered):
            return [(want, ranked[index]) for want, index in zip(ordered, chosen, strict=True)]
        want = ordered[len(chosen)]
        found = _next_fit(want, ranked, allowed[want.kind], position)
        if found is not None:
            ranked[found].free = ranked[found].free - want.request
            chosen.append(found)
            alike = len(chosen) < len(ordered) and ordered[len(chosen)].kind == want.kind
            position = found if alike else 0
        elif chosen:
            last = chosen.pop()
            ranked[last].free = ranked[last].free + ordered[len(chosen)].request
            position = last + 1
        else:
            return None
    for want, index in zip(ordered, chosen, strict=False):
        ranked[index].free = ranked[index].free + want.request
    return None


def _next_fit(want: _Want, nodes: Sequence[_Node], allowed: Sequence[bool], start: int) -> int | None:
    return next(
        (i for i in range(start, len(nodes)) if allowed[i] and want.request.fits(nodes[i].free)), None
    )


def _weight(amounts: Resources) -> tuple[Any, ...]:
    """GPUs count first: they are what runs out."""
    return amounts.gpus, amounts.amount("cpu"), amounts.amount("memory")


def _explained(unit: _Unit, left: Sequence[_Want], nodes: list[_Node]) -> list[Waiting]:
    if unit.missing:
        return [_waiting(want.pod, unit.missing) for want in left]
    if not unit.gang:
        return [_waiting(want.pod, _why_not(want, nodes)) for want in left]
    if len(left) < len(unit.wants):  # the gang runs with its least; these are the rest
        return [_waiting(want.pod, _why_not(want, nodes)) for want in left]
    fitting, text = _how_many(left, nodes)
    intro = f"gang {unit.gang}: {unit.least} pods must be placed at once and {fitting} can be"
    return [_waiting(want.pod, f"{intro}; {text}") for want in left]


def _how_many(wants: Sequence[_Want], nodes: Sequence[_Node]) -> tuple[int, str]:
    """How many would find a place one by one, and why the next one does not."""
    trial = [_Node(node.obj, node.free) for node in nodes]
    for number, want in enumerate(wants):
        if _search([want], trial) is None:
            return number, _why_not(want, trial)
    return len(wants), "they cannot be combined on the nodes there are"


def _why_not(want: _Want, nodes: Sequence[_Node]) -> str:
    """The scheduler's sentence: how many nodes refuse for which reason."""
    reasons: Counter[str] = Counter()
    for node in nodes:
        refusal = obstacle(want.pod, node.obj)
        lacking = want.request.lacking(node.free)
        reasons.update([refusal] if refusal else [f"Insufficient {name}" for name in lacking])
    parts = ", ".join(f"{count} {text}" for text, count in sorted(reasons.items()))
    return f"0/{len(nodes)} nodes are available: {parts or 'there is no node'}."


def _binding(want: _Want, node: _Node) -> Binding:
    meta = want.pod["metadata"]
    return Binding(meta["namespace"], meta["name"], meta["uid"], node.name)


def _waiting(pod: Object, message: str, reason: str = "Unschedulable") -> Waiting:
    meta = pod["metadata"]
    return Waiting(meta["namespace"], meta["name"], meta["uid"], message, reason)


def _name(pod: Object) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
