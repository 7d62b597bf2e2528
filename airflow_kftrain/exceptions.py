"""The error tree; a class says what its catcher may do next.

::

    KFTrainError
    ├── InvalidInput (ValueError)      the user must change something; never retried
    ├── ApiError                       the Kubernetes API answered with an error
    │   ├── BadRequest          400
    │   ├── Unauthorized        401    read the credentials anew, once
    │   ├── Forbidden           403    RBAC, admission or quota: the text says which; never retried
    │   ├── NotFound            404
    │   ├── Conflict            409    read again, then decide again
    │   │   └── AlreadyExists   409
    │   ├── Gone                410    list again
    │   ├── Invalid             422    the object breaks the schema; never retried
    │   ├── TooManyRequests     429    wait ``retry_after``, then the same call again
    │   └── ServerError         5xx    the same call again, with a growing pause
    ├── ApiUnreachable                 no answer: refused, reset, timed out; the call may have taken effect
    └── LocalClusterError              the local cluster cannot start, stop or answer
"""

from __future__ import annotations

from typing import Any


class KFTrainError(Exception):
    """Root of all errors this package raises on purpose."""


class InvalidInput(KFTrainError, ValueError):
    """A value that a person gave cannot be used.

    :param field: where it stands, as the person wrote it (``workers``, ``spec.runPolicy.suspend``)
    :param value: what was given
    :param remedy: what to do about it, as a full clause
    """

    def __init__(self, field: str, value: object, remedy: str) -> None:
        self.field = field
        self.value = value
        self.remedy = remedy
        super().__init__(f"{field}: {_shown(value)} cannot be used: {remedy}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.field, self.value, self.remedy)


class ApiError(KFTrainError):
    """The API server answered with an error status.

    :param status: HTTP status code
    :param reason: the ``reason`` of the Status object, for instance ``AlreadyExists``
    :param message: the server's own text
    :param call: what was asked, for instance ``POST xgboostjobs default/train-1``
    :param retry_after: seconds the server asked to wait, if it did
    """

    def __init__(
        self, status: int, reason: str, message: str, *, call: str = "", retry_after: float | None = None
    ) -> None:
        self.status = status
        self.reason = reason
        self.message = message
        self.call = call
        self.retry_after = retry_after
        where = f"{call}: " if call else ""
        super().__init__(f"{where}{status} {reason}: {message}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.status, self.reason, self.message, self.call, self.retry_after)


class BadRequest(ApiError):
    """400: the request cannot be read."""


class Unauthorized(ApiError):
    """401: the credentials are missing, wrong or out of date."""


class Forbidden(ApiError):
    """403: RBAC, an admission rule or a quota refuses."""


class NotFound(ApiError):
    """404: no such object (or no such kind: then ``message`` says so)."""


class Conflict(ApiError):
    """409: the object changed since it was read, or a precondition does not hold."""


class AlreadyExists(Conflict):
    """409: an object of that name is there already."""


class Gone(ApiError):
    """410: the resource version is too old to watch or page from."""


class Invalid(ApiError):
    """422: the object breaks its schema or an immutable field."""


class TooManyRequests(ApiError):
    """429: slow down."""


class ServerError(ApiError):
    """5xx: the server failed."""


class ApiUnreachable(KFTrainError):
    """No answer came; whether the call took effect is unknown."""


class LocalClusterError(KFTrainError):
    """The local cluster cannot do what was asked; the text says what to do."""


_BY_STATUS: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}


def api_error(
    status: int, reason: str, message: str, *, call: str = "", retry_after: float | None = None
) -> ApiError:
    """The error of the tree for one answer of the API server."""
    kind = _BY_STATUS.get(status, ServerError if status >= 500 else ApiError)
    if reason == "AlreadyExists":
        kind = AlreadyExists
    return kind(status, reason, message, call=call, retry_after=retry_after)


def _rebuild(
    kind: type[ApiError], status: int, reason: str, message: str, call: str, retry_after: float | None
) -> ApiError:
    return kind(status, reason, message, call=call, retry_after=retry_after)


def _shown(value: object, limit: int = 120) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
