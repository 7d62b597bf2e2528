"""``metadata``: what the server fills in, what may not change, what is valid."""

from __future__ import annotations

import datetime as dt
import random
import re
import uuid
from collections.abc import Iterator
from typing import Any

from airflow_kftrain.local.apiserver.errors import Cause, conflict, forbidden_field, required, wrong
from airflow_kftrain.local.apiserver.kinds import Kind

Json = dict[str, Any]

# Those of k8s.io/apiserver/pkg/storage/names: no vowels and no look-alikes, so that no words come out.
_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5
# Names and uids must differ, not be secret; asking the system for each costs more than the rest of a create.
_RANDOM = random.Random()  # noqa: S311
_LONGEST_GENERATED = 63
_ANNOTATIONS_LIMIT = 256 * 1024

_LABEL_RE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SERVICE_RE = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN_RE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED_RE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")

_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_SERVICE_TEXT = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
    "character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation "
    "is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_NAME_RULES = {
    "subdomain": (_SUBDOMAIN_RE, 253, _SUBDOMAIN_TEXT),
    "label": (_LABEL_RE, 63, _LABEL_TEXT),
    "service": (_SERVICE_RE, 63, _SERVICE_TEXT),
    "path": (re.compile(r"(?!\.\.?$)[^/%]+"), 253, "may not be '.' or '..' nor contain '/' or '%'"),
}
_KEY_TEXT = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for "
    "validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


def timestamp(now: dt.datetime) -> str:
    """As ``metav1.Time`` writes it: UTC, whole seconds."""
    return now.astimezone(dt.UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"


def generated_name(prefix: str) -> str:
    """``prefix``, cut so that five random characters make it at most 63 long."""
    suffix = "".join(_RANDOM.choice(_SUFFIX_ALPHABET) for _ in range(_SUFFIX_LENGTH))
    return prefix[: _LONGEST_GENERATED - _SUFFIX_LENGTH] + suffix


def begin(kind: Kind, metadata: Json, now: dt.datetime) -> None:
    """Fill in what a new object gets from the server."""
    for name in (
        "resourceVersion",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "selfLink",
    ):
        metadata.pop(name, None)
    metadata["uid"] = str(uuid.UUID(int=_RANDOM.getrandbits(128), version=4))
    metadata["creationTimestamp"] = timestamp(now)
    if kind.generation:
        metadata["generation"] = 1


def carry_over(kind: Kind, old: Json, new: Json) -> None:
    """Give ``new`` what only the server may set, as it stands in ``old``.

    :raises StatusError: 409, ``new`` is another object of the same name
    """
    if new.get("uid") not in (None, "", old["uid"]):
        text = f"Precondition failed: UID in precondition: {new['uid']}, UID in object meta: {old['uid']}"
        raise conflict(kind, old["name"], text)
    for name in (
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "generateName",
        "resourceVersion",
    ):
        if name in old:
            new[name] = old[name]
        else:
            new.pop(name, None)


def faults(kind: Kind, metadata: Json) -> list[Cause]:
    """What is wrong with an object's metadata; empty when nothing is."""
    return [
        *_name_faults(kind, metadata.get("name", "")),
        *_label_faults(metadata.get("labels") or {}),
        *_annotation_faults(metadata.get("annotations") or {}),
        *_owner_faults(metadata.get("ownerReferences") or []),
        *(
            wrong(f"metadata.finalizers[{i}]", name, _KEY_TEXT)
            for i, name in enumerate(metadata.get("finalizers") or [])
            if _qualified_fault(name)
        ),
    ]


def deletion_faults(old: Json, new: Json) -> list[Cause]:
    """An object that is being deleted gets no further finalizers."""
    if "deletionTimestamp" not in old:
        return []
    added = sorted(set(new.get("finalizers") or ()) - set(old.get("finalizers") or ()))
    text = f"no new finalizers can be added if the object is being deleted, found new finalizers {added}"
    return [forbidden_field("metadata.finalizers", text)] if added else []


def _name_faults(kind: Kind, name: str) -> Iterator[Cause]:
    if not name:
        yield required("metadata.name", "name or generateName is required")
        return
    pattern, longest, text = _NAME_RULES[kind.name_rule]
    if len(name) > longest:
        yield wrong("metadata.name", name, f"must be no more than {longest} characters")
    if not pattern.fullmatch(name):
        yield wrong("metadata.name", name, text)


def _label_faults(labels: Json) -> Iterator[Cause]:
    for key, value in labels.items():
        if text := _qualified_fault(key):
            yield wrong("metadata.labels", key, text)
        if len(value) > 63:
            yield wrong("metadata.labels", value, "must be no more than 63 characters")
        if value and not _QUALIFIED_RE.fullmatch(value):
            yield wrong("metadata.labels", value, _VALUE_TEXT)


def _annotation_faults(annotations: Json) -> Iterator[Cause]:
    for key in annotations:
        if text := _qualified_fault(key.lower()):
            yield wrong("metadata.annotations", key, text)
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > _ANNOTATIONS_LIMIT:
        text = f"Too long: may not be more than {_ANNOTATIONS_LIMIT} bytes"
        yield Cause("FieldValueTooLong", text, "metadata.annotations")


def _owner_faults(owners: list[Json]) -> Iterator[Cause]:
    for index, owner in enumerate(owners):
        for name in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(name):
                yield required(f"metadata.ownerReferences[{index}].{name}", f"{name} must not be empty")
    controllers = [owner for owner in owners if owner.get("controller")]
    if len(controllers) > 1:
        kinds = " and ".join(f"{o.get('kind')}/{o.get('name')}" for o in controllers[:2])
        text = f"Only one reference can have Controller set to true. Found {kinds}"
        yield wrong("metadata.ownerReferences", owners[0].get("name"), text)


def _qualified_fault(key: str) -> str:
    prefix, slash, name = key.rpartition("/")
    if slash and (not _SUBDOMAIN_RE.fullmatch(prefix) or len(prefix) > 253):
        return f"prefix part {_SUBDOMAIN_TEXT}"
    if not name or not _QUALIFIED_RE.fullmatch(name):
        return _KEY_TEXT
    return "name part must be no more than 63 characters" if len(name) > 63 else ""


def container_name_fault(name: str) -> str:
    """What is wrong with a container's, volume's or port's name; empty when nothing is."""
    if len(name) > 63:
        return "must be no more than 63 characters"
    return "" if _LABEL_RE.fullmatch(name) else _LABEL_TEXT


__all__ = [
    "begin",
    "carry_over",
    "container_name_fault",
    "deletion_faults",
    "faults",
    "generated_name",
    "timestamp",
]
