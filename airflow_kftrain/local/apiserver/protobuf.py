"""Protobuf bodies of the few kinds for which kubectl 1.32 and newer send nothing else (``kubectl create namespace x``).

Field numbers are those of the ``generated.proto`` files of ``k8s.io/api`` and ``k8s.io/apimachinery``. A body of
another kind, or with a field that is not in the tables, is refused rather than read in part.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import Any

from airflow_kftrain.local.apiserver.errors import StatusError, bad_request, unsupported_media

Json = dict[str, Any]
# Number to name and type of a field; types: a scalar, ``[string]``, ``{type}`` for a map, or a message.
_Table = dict[int, tuple[str, str]]

_MAGIC = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MESSAGES: dict[str, _Table] = {
    "ObjectMeta": {
        1: ("name", "string"),
        2: ("generateName", "string"),
        3: ("namespace", "string"),
        5: ("uid", "string"),
        6: ("resourceVersion", "string"),
        11: ("labels", "{string}"),
        12: ("annotations", "{string}"),
        14: ("finalizers", "[string]"),
    },
    "Namespace": {
        1: ("metadata", "ObjectMeta"),
        2: ("spec", "NamespaceSpec"),
        3: ("status", "NamespaceStatus"),
    },
    "NamespaceSpec": {1: ("finalizers", "[string]")},
    "NamespaceStatus": {1: ("phase", "string")},
    "ServiceAccount": {1: ("metadata", "ObjectMeta")},
    "ConfigMap": {
        1: ("metadata", "ObjectMeta"),
        2: ("data", "{string}"),
        3: ("binaryData", "{bytes}"),
        4: ("immutable", "bool"),
    },
    "Secret": {
        1: ("metadata", "ObjectMeta"),
        2: ("data", "{bytes}"),
        3: ("type", "string"),
        4: ("stringData", "{string}"),
        5: ("immutable", "bool"),
    },
    "ResourceQuota": {1: ("metadata", "ObjectMeta"), 2: ("spec", "ResourceQuotaSpec")},
    "ResourceQuotaSpec": {1: ("hard", "{Quantity}"), 2: ("scopes", "[string]")},
    "PriorityClass": {
        1: ("metadata", "ObjectMeta"),
        2: ("value", "int"),
        3: ("globalDefault", "bool"),
        4: ("description", "string"),
        5: ("preemptionPolicy", "string"),
    },
    "Eviction": {1: ("metadata", "ObjectMeta"), 2: ("deleteOptions", "DeleteOptions")},
    "DeleteOptions": {
        1: ("gracePeriodSeconds", "int"),
        2: ("preconditions", "Preconditions"),
        3: ("orphanDependents", "bool"),
        4: ("propagationPolicy", "string"),
        5: ("dryRun", "[string]"),
    },
    "Preconditions": {1: ("uid", "string"), 2: ("resourceVersion", "string")},
}
_ROOTS = (
    "Namespace",
    "ServiceAccount",
    "ConfigMap",
    "Secret",
    "ResourceQuota",
    "PriorityClass",
    "Eviction",
    "DeleteOptions",
)


def decode_protobuf(data: bytes) -> Json:
    """The object in a Kubernetes protobuf envelope.

    :raises StatusError: 400, no such envelope; 415, a kind or a field that is not known here
    """
    if not data.startswith(_MAGIC):
        raise bad_request("the body is not a Kubernetes protobuf envelope")
    try:
        envelope = dict(_fields(data[len(_MAGIC) :]))
        api_version, kind = (dict(_fields(envelope[1])).get(number, b"").decode() for number in (1, 2))
        if kind not in _ROOTS:
            raise _unknown(f"the kind {kind}")
        return {"apiVersion": api_version, "kind": kind, **_message(kind, envelope[2])}
    except (IndexError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise bad_request(f"the protobuf body cannot be read: {error!r}") from error


def _unknown(what: str) -> StatusError:
    return unsupported_media(
        f"this server does not read {what} in protobuf, which kubectl sends for typed commands: write the object to a "
        "file (add `--dry-run=client -o yaml`) and use `kubectl apply -f FILE`"
    )


def _message(name: str, data: bytes) -> Json:
    made: Json = {}
    for number, raw in _fields(data):
        if number not in _MESSAGES[name]:
            if raw:  # Go writes what is empty, too
                raise _unknown(f"field {number} of {name}")
            continue
        field, kind = _MESSAGES[name][number]
        if kind.startswith("["):
            made.setdefault(field, []).append(raw.decode())
        elif kind.startswith("{"):
            entry = dict(_fields(raw))
            made.setdefault(field, {})[entry[1].decode()] = _value(kind[1:-1], entry.get(2, b""))
        elif raw != b"":
            made[field] = _value(kind, raw)
    return made


def _value(kind: str, raw: Any) -> Any:
    scalar = _SCALARS.get(kind)
    return scalar(raw) if scalar is not None else _message(kind, raw)


_SCALARS: dict[str, Callable[[Any], Any]] = {
    "string": lambda raw: raw.decode(),
    "bytes": lambda raw: base64.b64encode(raw).decode(),
    "bool": bool,
    # int32 and int64 are written as 64 bits of two's complement.
    "int": lambda raw: raw - 2**64 if raw >= 2**63 else raw,
    "Quantity": lambda raw: dict(_fields(raw))[1].decode(),
}


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Number and value of each field: an integer, or bytes."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, position = _varint(data, position)
            yield number, value
            continue
        if wire == _BYTES:
            size, position = _varint(data, position)
        elif wire in (_FIXED32, _FIXED64):
            size = 4 if wire == _FIXED32 else 8
        else:
            raise ValueError(f"wire type {wire}")
        if position + size > len(data):
            raise ValueError("the body ends too early")
        yield number, data[position : position + size]
        position += size


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position
        if shift > 63:
            raise ValueError("a number that is too long")
