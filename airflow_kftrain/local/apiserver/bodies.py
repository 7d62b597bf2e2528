"""What clients send, and which form they want back."""

from __future__ import annotations

import json
import re
from typing import Any

from airflow_kftrain.local.apiserver.errors import bad_request, unsupported_media
from airflow_kftrain.local.apiserver.protobuf import decode_protobuf

_JSON = ("", "application/json", "text/json", "*/*")
_YAML = ("application/yaml", "application/apply-patch+yaml", "application/x-yaml", "text/yaml")
PROTOBUF = "application/vnd.kubernetes.protobuf"


def decode(content_type: str, data: bytes) -> Any:
    """The value that a body holds; None for an empty one.

    :raises StatusError: 400, not readable; 415, a form that is not understood
    """
    if content_type.startswith(PROTOBUF):
        return decode_protobuf(data)
    if not data.strip():
        return None
    if content_type in _YAML:
        return _yaml(data)
    if content_type not in _JSON and not content_type.endswith("+json"):
        raise unsupported_media(
            f"the body of the request was in an unknown format ({content_type}) - accepted media types include: "
            "application/json, application/yaml"
        )
    try:
        return json.loads(data, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise bad_request(f"the body is not JSON: {error}") from error


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON value")


def _yaml(data: bytes) -> Any:
    import yaml

    try:
        return yaml.load(data, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe
    except (yaml.YAMLError, RecursionError) as error:
        raise bad_request(f"the body is not YAML: {error}") from error


_FORMS = re.compile(r"as=(?P<form>Table|PartialObjectMetadata(?:List)?)\b")
_VERSION = re.compile(r"\bv=(v1(?:beta1)?)\b")


def wanted_form(accept: str) -> tuple[str, str]:
    """``Table`` or ``PartialObjectMetadata`` and its version, if an ``Accept`` header puts that first; else empty."""
    first = accept.split(",", 1)[0]
    found = _FORMS.search(first)
    if found is None or not first.strip().startswith("application/json"):
        return "", ""
    version = _VERSION.search(first)
    return found["form"].removesuffix("List"), version[1] if version else "v1"
