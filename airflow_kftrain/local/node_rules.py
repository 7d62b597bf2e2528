"""Whether a pod may run on a node at all, resources aside: readiness, taints, selectors, required affinity; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Object = Mapping[str, Any]
_HARD_EFFECTS = ("NoSchedule", "NoExecute")


def obstacle(pod: Object, node: Object) -> str | None:
    """Why the node cannot take the pod, in the scheduler's words; None when it can."""
    spec = node.get("spec") or {}
    if spec.get("unschedulable") and not _tolerates(pod, _CORDONED):
        return "node(s) were unschedulable"
    if not _is_ready(node):
        return "node(s) were not ready"
    for taint in spec.get("taints") or ():
        if taint.get("effect") in _HARD_EFFECTS and not _tolerates(pod, taint):
            return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
    if not _selected(pod, node):
        return "node(s) didn't match Pod's node affinity/selector"
    return None


_CORDONED = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def _is_ready(node: Object) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def _tolerates(pod: Object, taint: Object) -> bool:
    return any(_tolerated(t, taint) for t in pod["spec"].get("tolerations") or ())


def _tolerated(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    exists = toleration.get("operator") == "Exists"
    if not toleration.get("key"):
        return exists
    same_value = (toleration.get("value") or "") == (taint.get("value") or "")
    return bool(toleration["key"] == taint["key"] and (exists or same_value))


def _selected(pod: Object, node: Object) -> bool:
    spec, labels = pod["spec"], node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    terms = (affinity or {}).get("nodeSelectorTerms") or ()
    return affinity is None or any(_term_matches(term, node) for term in terms)


def _term_matches(term: Object, node: Object) -> bool:
    """All of a term's expressions; an empty term matches nothing."""
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    labels = node["metadata"].get("labels") or {}
    return bool(expressions or fields) and (
        all(_matches(e, labels) for e in expressions)
        and all(_matches(f, {"metadata.name": node["metadata"]["name"]}) for f in fields)
    )


def _matches(expression: Object, labels: Mapping[str, str]) -> bool:
    key, operator = str(expression["key"]), str(expression["operator"])
    values: Sequence[str] = expression.get("values") or ()
    present = labels.get(key)
    if operator in ("Exists", "DoesNotExist"):
        return (present is not None) == (operator == "Exists")
    if operator == "In":
        return present in tuple(values)
    if operator == "NotIn":
        return present not in values
    return operator in ("Gt", "Lt") and _compares(operator, present, values)


def _compares(operator: str, present: str | None, values: Sequence[str]) -> bool:
    try:
        number, bound = int(present or ""), int(values[0])
    except (ValueError, IndexError):
        return False
    return number > bound if operator == "Gt" else number < bound
