"""The exceptions of requests to an API server."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, Final

import orjson

_MAX_QUOTED_BODY: Final = 300
_MAX_RETRY_AFTER_SECONDS: Final = 300.0
"""API servers send seconds. A longer time is an error, and must not stop a controller."""


class KubeError(Exception):
    """Base class of the errors of this package."""


class ConnectionConfigError(KubeError):
    """The connection settings are unusable. The message names the file, variable or value at fault."""


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


class ApiError(KubeError):
    """An error answer; ``str()`` is the server's message.

    ``retry_after`` is in seconds, from the ``Retry-After`` header or ``details.retryAfterSeconds``, or None.
    ``reason`` is that of the ``metav1.Status``; ``""`` without one (a proxy's answer).
    """

    def __init__(
        self,
        message: str,
        *,
        code: int,
        reason: str = "",
        details: dict[str, Any] | None = None,
        retry_after: float | None = None,
        status: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason
        self.details = details
        self.retry_after = retry_after
        self._status = status

    @property
    def status(self) -> dict[str, Any]:
        """The received ``metav1.Status``, or one that represents the answer."""
        if self._status is not None:
            return self._status
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        if self.details is not None:
            status["details"] = self.details
        return status

    @property
    def is_of_api(self) -> bool:
        """True if the answer was a ``metav1.Status``; otherwise it came from a proxy or gateway."""
        return self._status is not None

    def has_cause(self, reason: str) -> bool:
        """Return whether ``details.causes`` has this reason."""
        causes = self.details.get("causes") if self.details else None
        return isinstance(causes, list) and any(isinstance(c, dict) and c.get("reason") == reason for c in causes)


class BadRequest(ApiError):
    """400: the request is malformed, or an admission plugin refused with this code."""


class Unauthorized(ApiError):
    """401: no or unknown credentials, also after a renewal."""


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


class Gone(ApiError):
    """410: the resourceVersion or continue token is older than the server's history."""


class TooLarge(ApiError):
    """413: the request body is too large for the server or its storage."""


def is_too_large(error: KubeError) -> bool:
    """Return whether the object or request is too large for the server or its storage. Nothing was done then.

    The server passes on refusals of etcd and of its client library as a 500 with their text.
    """
    if isinstance(error, TooLarge):
        return True
    return isinstance(error, ServerError) and error.code == 500 and error.message.startswith(_TOO_LARGE_FOR_STORAGE)


class Invalid(ApiError):
    """422: validation refused the object; ``details.causes`` names the fields."""


class TooManyRequests(ApiError):
    """429: overload, or API priority and fairness; retry after ``retry_after`` seconds."""


class ServerError(ApiError):
    """5xx: the server failed, or timed out (504: a write may have been executed)."""


_TOO_LARGE_FOR_STORAGE: Final = (
    "etcdserver: request is too large",
    "rpc error: code = ResourceExhausted desc = trying to send message larger than max",
)

_BY_CODE: Final[dict[int, type[ApiError]]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    413: TooLarge,
    422: Invalid,
    429: TooManyRequests,
}
# These reasons are more specific than the code, or (in an ERROR event of some servers) contradict it.
_BY_REASON: Final[dict[str, type[ApiError]]] = {"AlreadyExists": AlreadyExists, "Expired": Gone, "Gone": Gone}


def may_pass(error: BaseException) -> bool:
    """Return whether a retry may help: outages, and answers of a gateway in place of the API server."""
    if isinstance(error, TransportError | ServerError | TooManyRequests):
        return True
    return isinstance(error, ApiError) and not error.is_of_api


def error_from_status(status: Mapping[str, Any], *, code: int = 0, retry_after: float | None = None) -> ApiError:
    """Return the error for a ``metav1.Status``, whose fields may be missing or of a wrong type.

    ``code``, the HTTP code, takes precedence over that of the body. An ERROR event of a watch has only the latter.
    """
    stated = status.get("code")
    if not code:
        code = stated if type(stated) is int and 100 <= stated <= 999 else 500
    reason = status.get("reason")
    reason = reason if isinstance(reason, str) else ""
    details = status.get("details")
    details = details if isinstance(details, dict) else None
    if retry_after is None and details is not None:
        seconds = details.get("retryAfterSeconds")
        if isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds > 0:
            retry_after = min(float(seconds), _MAX_RETRY_AFTER_SECONDS)
    message = status.get("message")
    if not isinstance(message, str) or not message:
        message = f"the server answered {code} {reason or 'without a reason'}"
    kind = _BY_REASON.get(reason) or _BY_CODE.get(code) or (ServerError if code >= 500 else ApiError)
    if kind is NotFound and details is not None and details.get("name"):
        kind = ObjectNotFound
    return kind(message, code=code, reason=reason, details=details, retry_after=retry_after, status=dict(status))


def error_from_answer(
    code: int,
    body: bytes,
    *,
    request: str,
    now: float,
    retry_after: str | None = None,
    location: str | None = None,
) -> ApiError:
    """Return the error for an HTTP answer other than 2xx.

    The message quotes the beginning of a body that is not a ``metav1.Status`` (of a proxy, for example), and the
    request. ``retry_after`` is the raw header, ``now`` seconds since the epoch.
    """
    seconds = parse_retry_after(retry_after, now)
    try:
        parsed = orjson.loads(body)
    except ValueError:
        parsed = None
    if isinstance(parsed, dict) and parsed.get("kind") == "Status":
        return error_from_status(parsed, code=code, retry_after=seconds)
    if 300 <= code < 400:
        message = (
            f"{request}: answered {code}, a redirect to {location or 'nowhere'}, which is not followed: "
            "is this the address of an API server?"
        )
        # A header may have characters that cannot be encoded, and hence not be logged.
        message = message.encode("utf-8", "replace").decode()
    else:
        text = " ".join(body[: 4 * _MAX_QUOTED_BODY].decode("utf-8", "replace").split())
        if len(text) > _MAX_QUOTED_BODY:
            text = text[:_MAX_QUOTED_BODY] + "…"
        message = f"{request}: answered {code} with no Kubernetes status: {text or '(empty body)'}"
    kind = _BY_CODE.get(code) or (ServerError if code >= 500 else ApiError)
    return kind(message, code=code, retry_after=seconds)


def parse_retry_after(value: str | None, now: float) -> float | None:
    """Return the seconds of a ``Retry-After`` header, a number or (RFC 9110) a date; None if absent or invalid."""
    if value is None:
        return None
    value = value.strip()
    if value.isascii() and value.isdigit():
        return min(float(value), _MAX_RETRY_AFTER_SECONDS)
    try:
        when = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return min(max(when.timestamp() - now, 0.0), _MAX_RETRY_AFTER_SECONDS)
