"""The exceptions of requests to an API server."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any, Final, TypeVar

import orjson

T = TypeVar("T")

_MAX_QUOTED_BODY: Final = 300
_MAX_RETRY_AFTER_SECONDS: Final = 300.0
"""API servers send seconds. A longer time is an error, and must not stop a controller."""


class KubeError(Exception):
    """Base class of the errors of this package."""


class ConnectionConfigError(KubeError):
    """The connection settings are unusable. The message names the file, variable or value at fault."""


class NoClusterError(ConnectionConfigError):
    """No setting names an API server."""


class TransportError(KubeError):
    """The answer is missing, incomplete or invalid: connection refused or reset, timeout, bad HTTP or JSON.

    ``maybe_sent`` is False only if the server certainly did not receive the request. Otherwise a write may have been
    executed, and its result must be read before it is repeated.
    """

    def __init__(self, message: str, *, maybe_sent: bool = True) -> None:
        super().__init__(message)
        self.maybe_sent = maybe_sent


class SilenceError(TransportError):
    """Nothing arrived within the read timeout: the peer hangs or has vanished."""


class AnswerTooLargeError(TransportError):
    """The answer has more bytes than the caller accepts."""


class ApiError(KubeError):
    """An error answer; ``str()`` is the server's message.

    ``retry_after`` is in seconds, from the ``Retry-After`` header or ``details.retryAfterSeconds``, or None.
    ``status`` is the received ``metav1.Status``, or one that represents the answer of a proxy or gateway, which has
    none; ``is_of_api`` is False then, and ``reason`` empty.
    """

    def __init__(
        self,
        message: str,
        *,
        code: int,
        reason: str = "",
        details: dict[str, Any] | None = None,
        retry_after: float | None = None,
        status: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason
        self.details = details or {}
        self.retry_after = retry_after
        self.is_of_api = status is not None
        self.status = status or {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "code": code,
        }

    def has_cause(self, reason: str) -> bool:
        """Return whether ``details.causes`` has this reason."""
        causes = self.details.get("causes")
        return isinstance(causes, list) and any(isinstance(c, dict) and c.get("reason") == reason for c in causes)


class Forbidden(ApiError):
    """403: refused by RBAC, quota, or another admission plugin."""


class NotFound(ApiError):
    """404: no such object or resource type, or not an API server."""


class ObjectNotFound(NotFound):
    """404 with the name of an object in its details: that object does not exist."""


class Conflict(ApiError):
    """409: a precondition (resourceVersion, uid) did not hold, or two apply managers own a field."""


class AlreadyExists(Conflict):
    """409, reason AlreadyExists: an object of that name exists, possibly created by a request whose answer was lost."""


class ResourceExpired(ApiError):
    """410: the resourceVersion or continue token is older than the server's history."""


class TooLarge(ApiError):
    """413, or 500 of etcd or its client library: the object is too large for the server or its storage."""


class Invalid(ApiError):
    """422: validation refused the object; ``details.causes`` names the fields."""


class TooManyRequests(ApiError):
    """429: overload, or API priority and fairness; retry after ``retry_after`` seconds."""


class ApiServerError(ApiError):
    """5xx: the server failed, or timed out (504: a write may have been executed)."""


_TOO_LARGE_FOR_STORAGE: Final = (
    "etcdserver: request is too large",
    "rpc error: code = ResourceExhausted desc = trying to send message larger than max",
)

_BY_CODE: Final[dict[int, type[ApiError]]] = {
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: ResourceExpired,
    413: TooLarge,
    422: Invalid,
    429: TooManyRequests,
}
# These reasons are more specific than the code, or (in an ERROR event of some servers) contradict it.
_BY_REASON: Final[dict[str, type[ApiError]]] = {
    "AlreadyExists": AlreadyExists,
    "Expired": ResourceExpired,
    "Gone": ResourceExpired,
}


def may_pass(error: BaseException) -> bool:
    """Return whether a retry may help: outages, and answers of a gateway in place of the API server."""
    if isinstance(error, TransportError | ApiServerError | TooManyRequests):
        return True
    return isinstance(error, ApiError) and not error.is_of_api


def error_from_status(status: Mapping[str, Any], *, code: int = 0, retry_after: float | None = None) -> ApiError:
    """Return the error for a ``metav1.Status``, whose fields may be missing or of a wrong type.

    ``code``, the HTTP code, takes precedence over the body's. An ERROR event of a watch has only the body's.
    """

    def field(key: str, kind: type[T]) -> T:
        value = status.get(key)
        return value if isinstance(value, kind) else kind()

    code = code or field("code", int)
    if not 100 <= code <= 999:
        code = 500
    reason, details = field("reason", str), field("details", dict)
    seconds = details.get("retryAfterSeconds")
    if retry_after is None and isinstance(seconds, int | float) and seconds is not True and seconds > 0:
        retry_after = min(float(seconds), _MAX_RETRY_AFTER_SECONDS)
    message = field("message", str) or f"the server answered {code} {reason or 'without a reason'}"
    kind = _BY_REASON.get(reason) or _by_code(code)
    if kind is NotFound and details.get("name"):
        kind = ObjectNotFound
    elif code == 500 and message.startswith(_TOO_LARGE_FOR_STORAGE):
        kind = TooLarge
    return kind(message, code=code, reason=reason, details=details, retry_after=retry_after, status=status)


def error_from_answer(code: int, body: bytes, headers: Mapping[str, str], *, request: str, now: float) -> ApiError:
    """Return the error for an HTTP answer other than 2xx.

    The message quotes the beginning of a body that is not a ``metav1.Status`` (of a proxy, for example), and the
    request. ``now``: seconds since the epoch.
    """
    seconds = retry_after_seconds(headers.get("Retry-After", ""), now)
    with suppress(ValueError):
        parsed = orjson.loads(body)
        if isinstance(parsed, dict) and parsed.get("kind") == "Status":
            return error_from_status(parsed, code=code, retry_after=seconds)
    if 300 <= code < 400:
        message = (
            f"{request}: answered {code}, a redirect to {headers.get('Location', 'nowhere')}, which is not followed: "
            "is this the address of an API server?"
        )
        # A header may have characters that cannot be encoded, and hence not be logged.
        message = message.encode("utf-8", "replace").decode()
    else:
        text = " ".join(body[: 4 * _MAX_QUOTED_BODY].decode("utf-8", "replace").split())
        if len(text) > _MAX_QUOTED_BODY:
            text = text[:_MAX_QUOTED_BODY] + "…"
        message = f"{request}: answered {code} with no Kubernetes status: {text or '(empty body)'}"
    return _by_code(code)(message, code=code, retry_after=seconds)


def _by_code(code: int) -> type[ApiError]:
    return _BY_CODE.get(code) or (ApiServerError if code >= 500 else ApiError)


def retry_after_seconds(value: str, now: float) -> float | None:
    """Return the seconds of a ``Retry-After`` header, a number or (RFC 9110) a date; None if absent or invalid."""
    value = value.strip()
    try:
        seconds = (
            float(value) if value.isascii() and value.isdigit() else parsedate_to_datetime(value).timestamp() - now
        )
    except (ValueError, OverflowError):
        return None
    return min(max(seconds, 0.0), _MAX_RETRY_AFTER_SECONDS)
