"""Label and field selectors: text to predicate.

Label grammar: ``k8s.io/apimachinery/pkg/labels``; field grammar: ``k8s.io/apimachinery/pkg/fields``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from airflow_kftrain.local.apiserver.errors import bad_request
from airflow_kftrain.local.apiserver.kinds import Kind

Labels = Mapping[str, str]
LabelPredicate = Callable[[Labels], bool]
Predicate = Callable[[Mapping[str, Any]], bool]

_NAME = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_KEY = rf"(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?{_NAME}"
_VALUE = rf"(?:{_NAME})?"
_REQUIREMENT = re.compile(
    rf"\s*(?:(?P<absent>!\s*(?P<absent_key>{_KEY}))"
    rf"|(?P<key>{_KEY})\s*(?:(?P<op>==|=|!=|<|>)\s*(?P<value>{_VALUE})"
    rf"|\s(?P<set>in|notin)\s*\((?P<values>[^()]*)\))?)\s*(?:,|$)"
)
_VALUE_RE = re.compile(_VALUE)

_COMMON_FIELDS = ("metadata.name", "metadata.namespace")
_FIELDS: dict[str, tuple[str, ...]] = {
    "pods": (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    "events": (
        *(f"involvedObject.{part}" for part in (
            "kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")),
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
    "nodes": ("spec.unschedulable",),
    "secrets": ("type",),
    "namespaces": ("status.phase",),
    "services": ("spec.clusterIP", "spec.type"),
}  # fmt: skip
_FIELD_PATHS = {"source": "source.component"}


@lru_cache(maxsize=1024)
def label_selector(text: str) -> LabelPredicate:
    """The predicate on labels that ``text`` means; empty text matches everything.

    :raises StatusError: 400, ``text`` is not a selector
    """
    requirements: list[LabelPredicate] = []
    position = 0
    while position < len(text):
        match = _REQUIREMENT.match(text, position)
        if match is None or match.end() == position:
            raise bad_request(f"unable to parse requirement: {text[position:]!r} in selector {text!r}")
        requirements.append(_requirement(match, text))
        position = match.end()
    if text.rstrip().endswith(","):
        raise bad_request(f"unable to parse requirement: selector {text!r} ends with a comma")
    return lambda labels: all(holds(labels) for holds in requirements)


def _requirement(match: re.Match[str], text: str) -> LabelPredicate:
    if match["absent"]:
        absent = match["absent_key"]
        return lambda labels: absent not in labels
    key = match["key"]
    if match["set"]:
        values = _values(match["values"], text)
        if match["set"] == "in":
            return lambda labels: key in labels and labels[key] in values
        return lambda labels: labels.get(key) not in values
    operator, value = match["op"], match["value"]
    if operator is None:
        return lambda labels: key in labels
    if operator in ("<", ">"):
        return _comparison(key, operator, value, text)
    if operator == "!=":
        return lambda labels: labels.get(key) != value
    return lambda labels: labels.get(key) == value


def _values(text: str, selector: str) -> frozenset[str]:
    values = frozenset(value.strip() for value in text.split(","))
    for value in values:
        if not _VALUE_RE.fullmatch(value):
            raise bad_request(f"unable to parse requirement: {value!r} in selector {selector!r}")
    return values


def _comparison(key: str, operator: str, value: str, selector: str) -> LabelPredicate:
    if not re.fullmatch(r"-?\d+", value):
        raise bad_request(f"for '<' and '>' the value must be an integer: selector {selector!r}")
    bound = int(value)

    def holds(labels: Labels) -> bool:
        given = labels.get(key, "")
        if not re.fullmatch(r"-?\d+", given):
            return False
        return int(given) < bound if operator == "<" else int(given) > bound

    return holds


def field_selector(kind: Kind, text: str) -> Predicate:
    """The predicate on objects that ``text`` means.

    :raises StatusError: 400, not a selector, or a field that cannot be selected by
    """
    terms = [_term(kind, part) for part in text.split(",") if part.strip()]
    return lambda obj: all((_field(obj, path) == value) is equal for path, value, equal in terms)


def _term(kind: Kind, part: str) -> tuple[str, str, bool]:
    match = re.fullmatch(r"\s*([\w.]+)\s*(==|!=|=)\s*(.*?)\s*", part)
    if match is None:
        raise bad_request(f"invalid field selector {part!r}: use field=value or field!=value")
    name, operator, value = match.groups()
    allowed = (*_COMMON_FIELDS, *(() if kind.group else _FIELDS.get(kind.plural, ())))
    if name not in allowed:
        raise bad_request(f"field label not supported: {name}; known for {kind.plural}: {', '.join(allowed)}")
    return _FIELD_PATHS.get(name, name), value, operator != "!="


def _field(obj: Mapping[str, Any], path: str) -> str:
    value: Any = obj
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if value is None:
        return "false" if path in ("spec.unschedulable", "spec.hostNetwork") else ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def selection(kind: Kind, labels: str, fields: str) -> Predicate | None:
    """Both selectors as one predicate on objects; None where everything matches."""
    by_label = label_selector(labels) if labels.strip() else None
    by_field = field_selector(kind, fields) if fields.strip() else None
    if by_label is None:
        return by_field
    chosen = by_label

    def matches(obj: Mapping[str, Any]) -> bool:
        return chosen(obj["metadata"].get("labels") or {}) and (by_field is None or by_field(obj))

    return matches
