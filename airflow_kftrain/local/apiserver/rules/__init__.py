"""What the API server does beyond a schema, kind by kind: defaults, checks, fields that may not change."""

from __future__ import annotations

from airflow_kftrain.local.apiserver.kinds import Kind
from airflow_kftrain.local.apiserver.rules import objects, pod, service
from airflow_kftrain.local.apiserver.rules.base import Rules, World

_BY_KIND: dict[str, Rules] = {
    "Pod": pod.RULES,
    "Service": service.RULES,
    "Namespace": objects.NAMESPACE,
    "Secret": objects.SECRET,
    "ConfigMap": objects.CONFIG_MAP,
    "PriorityClass": objects.PRIORITY_CLASS,
    "PersistentVolumeClaim": objects.CLAIM,
    "Node": objects.NODE,
}
_NONE = Rules()


def rules_of(kind: Kind) -> Rules:
    """The rules of a kind; a kind without any has ones that allow everything."""
    return _NONE if kind.custom else _BY_KIND.get(kind.kind, _NONE)


__all__ = ["Rules", "World", "rules_of"]
