"""Refusals, worded and shaped as the API server's ``Status`` objects are (``k8s.io/apimachinery/pkg/api/errors``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_kftrain.local.apiserver.kinds import Kind

Json = dict[str, Any]


@dataclass(frozen=True)
class Cause:
    """One field that is wrong.

    :param reason: ``FieldValueRequired``, ``FieldValueInvalid``, ``FieldValueNotSupported``, …
    :param message: what is wrong, without the field
    :param field: dotted path with ``[index]``
    """

    reason: str
    message: str
    field: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def required(field: str, text: str = "") -> Cause:
    return Cause("FieldValueRequired", f"Required value{f': {text}' if text else ''}", field)


def wrong(field: str, value: object, text: str) -> Cause:
    return Cause("FieldValueInvalid", f"Invalid value: {_shown(value)}: {text}", field)


def unsupported(field: str, value: object, allowed: Sequence[object]) -> Cause:
    options = ", ".join(_shown(option) for option in allowed)
    return Cause(
        "FieldValueNotSupported", f"Unsupported value: {_shown(value)}: supported values: {options}", field
    )


def forbidden_field(field: str, text: str) -> Cause:
    return Cause("FieldValueForbidden", f"Forbidden: {text}", field)


def duplicate(field: str, value: object) -> Cause:
    return Cause("FieldValueDuplicate", f"Duplicate value: {_shown(value)}", field)


class StatusError(Exception):
    """An answer that is a refusal.

    :param code: HTTP status
    :param reason: machine-readable reason of the Status object
    :param message: for people
    :param details: the Status object's ``details``
    """

    def __init__(self, code: int, reason: str, message: str, details: Json | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details

    def body(self) -> Json:
        """The Status object."""
        status: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        if self.details:
            status["details"] = self.details
        return status


def success(kind: Kind, name: str, uid: str) -> Json:
    """The Status object that answers a completed deletion."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {**_details(kind, name), "uid": uid},
    }


def not_found(kind: Kind, name: str) -> StatusError:
    return StatusError(404, "NotFound", f'{kind.qualified} "{name}" not found', _details(kind, name))


def no_such_path(path: str) -> StatusError:
    return StatusError(404, "NotFound", f"the server could not find the requested resource ({path})")


def already_exists(kind: Kind, name: str) -> StatusError:
    return StatusError(
        409, "AlreadyExists", f'{kind.qualified} "{name}" already exists', _details(kind, name)
    )


def conflict(kind: Kind, name: str, text: str = "") -> StatusError:
    text = text or (
        "the object has been modified; please apply your changes to the latest version and try again"
    )
    return StatusError(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {kind.qualified} "{name}": {text}',
        _details(kind, name),
    )


def invalid(kind: Kind, name: str, causes: Sequence[Cause]) -> StatusError:
    text = str(causes[0]) if len(causes) == 1 else f"[{', '.join(map(str, causes))}]"
    qualified = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    details = {
        "name": name,
        "group": kind.group,
        "kind": kind.kind,
        "causes": [{"reason": c.reason, "message": c.message, "field": c.field} for c in causes],
    }
    return StatusError(422, "Invalid", f'{qualified} "{name}" is invalid: {text}', details)


def forbidden(kind: Kind, name: str, text: str) -> StatusError:
    return StatusError(
        403, "Forbidden", f'{kind.qualified} "{name}" is forbidden: {text}', _details(kind, name)
    )


def bad_request(text: str) -> StatusError:
    return StatusError(400, "BadRequest", text)


def expired(text: str) -> StatusError:
    return StatusError(410, "Expired", text)


def too_old(asked: int, oldest: int) -> StatusError:
    return expired(f"too old resource version: {asked} ({oldest})")


def unsupported_media(text: str) -> StatusError:
    return StatusError(415, "UnsupportedMediaType", text)


def method_not_allowed() -> StatusError:
    return StatusError(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource"
    )


def unauthorized() -> StatusError:
    return StatusError(401, "Unauthorized", "Unauthorized")


def internal(text: str) -> StatusError:
    return StatusError(500, "InternalError", f"Internal error occurred: {text}")


def _details(kind: Kind, name: str) -> Json:
    details = {"name": name, "group": kind.group, "kind": kind.plural}
    return {key: value for key, value in details.items() if value}


def _shown(value: object) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if value is None:
        return '"null"'
    return str(value).lower() if isinstance(value, bool) else str(value)
