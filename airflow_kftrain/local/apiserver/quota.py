"""ResourceQuota: what a namespace uses, and who may add to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from functools import lru_cache
from typing import Any

from airflow_kftrain.jobs.pods import pod_limit, pod_request
from airflow_kftrain.jobs.resources import format_quantity, parse_quantity
from airflow_kftrain.local.apiserver.errors import forbidden
from airflow_kftrain.local.apiserver.kinds import Kind, Registry
from airflow_kftrain.local.apiserver.store import Change, Json, Record, Store

Amounts = dict[str, Fraction]
# Names that quotas may use for these without a prefix (pkg/quota/v1/evaluator/core).
_PLAIN_REQUESTS = ("cpu", "memory", "ephemeral-storage")
_PLAIN_COUNTS = frozenset(
    {"pods", "services", "configmaps", "secrets", "persistentvolumeclaims", "resourcequotas"}
)
_OVER = ("Succeeded", "Failed")


class Quotas:
    """Checks new objects against the quotas of their namespace, and keeps the quotas' status up to date."""

    def __init__(self, registry: Registry, store: Store) -> None:
        self._registry = registry
        self._store = store
        self._quota_kind = registry.core("resourcequotas")
        self._stale: set[str] = set()

    def admit(self, kind: Kind, obj: Json) -> None:
        """Let ``obj`` in, or say which quota refuses it.

        :raises StatusError: 403 ``exceeded quota`` or ``failed quota``
        """
        namespace = obj["metadata"].get("namespace")
        if namespace is None:
            return
        for record in self._store.list(self._quota_kind, namespace):
            hard = _amounts(record.obj.get("spec", {}).get("hard", {}))
            if in_scope(record.obj.get("spec", {}), kind, obj):
                self._check(record.name, record.obj.get("spec", {}), hard, kind, obj)

    def _check(self, quota: str, spec: Json, hard: Amounts, kind: Kind, obj: Json) -> None:
        name = obj["metadata"]["name"]
        if kind.kind == "Pod" and not kind.custom:
            missing = _unstated(hard, obj)
            if missing:
                raise forbidden(kind, name, f"failed quota: {quota}: must specify {missing}")
        added = {n: v for n, v in usage(kind, obj).items() if n in hard and v}
        used = self._used(spec, hard, obj["metadata"]["namespace"]) if added else {}
        over = sorted(n for n, v in added.items() if used.get(n, Fraction(0)) + v > hard[n])
        if over:
            text = (
                f"exceeded quota: {quota}, requested: {_listed(over, added)}, used: {_listed(over, used)}, "
                f"limited: {_listed(over, hard)}"
            )
            raise forbidden(kind, name, text)

    def _used(self, spec: Json, hard: Amounts, namespace: str) -> Amounts:
        used = dict.fromkeys(hard, Fraction(0))
        for kind in self._counted_kinds(hard):
            for record in self._store.list(kind, namespace):
                if in_scope(spec, kind, record.obj):
                    for name, amount in _usage_of(record).items():
                        if name in used:
                            used[name] += amount
        return used

    def _counted_kinds(self, hard: Iterable[str]) -> Iterator[Kind]:
        """The kinds that some name in ``hard`` counts; pods always."""
        for kind in self._registry:
            names = {f"count/{kind.qualified}", *({kind.plural} & _PLAIN_COUNTS)}
            if kind.namespaced and (kind.plural == "pods" or not names.isdisjoint(hard)):
                yield kind

    def note(self, change: Change) -> None:
        """Remember that a namespace's usage may have changed."""
        if change.record.kind.kind != "Event":
            self._stale.add(change.record.namespace)

    def refresh(self) -> None:
        """Write the usage of the namespaces that changed into the status of their quotas."""
        stale, self._stale = self._stale, set()
        for namespace in stale:
            for record in self._store.list(self._quota_kind, namespace):
                spec = record.obj.get("spec", {})
                used = self._used(spec, _amounts(spec.get("hard", {})), namespace)
                status = {"hard": dict(spec.get("hard", {})), "used": _texts(used)}
                if record.obj.get("status") != status:
                    self._store.put(self._quota_kind, {**record.copy(), "status": status})
        self._stale.clear()


@lru_cache(maxsize=20_000)
def _usage_of(record: Record) -> Amounts:
    """What a stored object counts for; kept, since quotas are counted anew with every change in their namespace."""
    return usage(record.kind, record.obj)


def usage(kind: Kind, obj: Json) -> Amounts:
    """What one object counts for, by quota name; a pod that has ended counts for nothing but itself."""
    counted = {f"count/{kind.qualified}": Fraction(1)}
    if kind.custom or kind.group or kind.plural not in _PLAIN_COUNTS:
        return counted
    if kind.plural != "pods":
        return {**counted, kind.plural: Fraction(1)}
    if obj.get("status", {}).get("phase") in _OVER:
        return counted
    return {**counted, "pods": Fraction(1), **_pod_usage(obj)}


def _pod_usage(pod: Json) -> Amounts:
    amounts: Amounts = {}
    for part in ("requests", "limits"):
        for name, amount in pod_amounts(pod["spec"], part).items():
            amounts[f"{part}.{name}"] = amount
            if part == "requests" and name in _PLAIN_REQUESTS:
                amounts[name] = amount
    return amounts


def pod_amounts(spec: Json, part: str) -> Amounts:
    """A pod's effective ``requests`` or ``limits``."""
    return dict(pod_request(spec) if part == "requests" else pod_limit(spec))


def in_scope(spec: Json, kind: Kind, obj: Json) -> bool:
    """Whether a quota with this spec looks at ``obj``; scopes are about pods alone."""
    scopes = [{"scopeName": scope, "operator": "Exists"} for scope in spec.get("scopes") or ()]
    terms = [*scopes, *((spec.get("scopeSelector") or {}).get("matchExpressions") or ())]
    if not terms:
        return True
    return kind.plural == "pods" and not kind.group and all(_scope_holds(term, obj) for term in terms)


def _scope_holds(term: Json, pod: Json) -> bool:
    scope, spec = str(term["scopeName"]), pod["spec"]
    if scope == "PriorityClass":
        name, values = spec.get("priorityClassName", ""), term.get("values") or ()
        operator = str(term.get("operator"))
        holds: dict[str, bool] = {"In": name in values, "NotIn": name not in values, "DoesNotExist": not name}
        return holds.get(operator, bool(name))
    best_effort = pod.get("status", {}).get("qosClass") == "BestEffort"
    terminating = spec.get("activeDeadlineSeconds") is not None
    known: dict[str, bool] = {
        "Terminating": terminating,
        "NotTerminating": not terminating,
        "BestEffort": best_effort,
        "NotBestEffort": not best_effort,
    }
    return known.get(scope, False)


def _unstated(hard: Amounts, pod: Json) -> str:
    """Which of the limited requests and limits which containers do not state, as a text."""
    lacks: dict[str, list[str]] = {}
    spec = pod["spec"]
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        resources = container.get("resources") or {}
        for name in hard:
            part, _, resource = name.partition(".") if "." in name else ("requests", "", name)
            if part not in ("requests", "limits") or resource not in _PLAIN_REQUESTS:
                continue
            if resource not in (resources.get(part) or {}):
                lacks.setdefault(name, []).append(container["name"])
    return "; ".join(f"{name} for: {','.join(sorted(names))}" for name, names in sorted(lacks.items()))


def _amounts(texts: dict[str, Any]) -> Amounts:
    return {name: parse_quantity(text) for name, text in texts.items()}


def _texts(amounts: Amounts) -> dict[str, str]:
    return {name: _text(name, amount) for name, amount in sorted(amounts.items())}


def _text(name: str, amount: Fraction) -> str:
    return format_quantity(amount, binary="memory" in name or "storage" in name)


def _listed(names: Iterable[str], amounts: Amounts) -> str:
    return ",".join(f"{name}={_text(name, amounts.get(name, Fraction(0)))}" for name in names)
