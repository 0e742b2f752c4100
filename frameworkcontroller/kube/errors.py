"""What can go wrong when talking to an API server, as a tree of exceptions.

KubeError
├── ConnectionConfigError   the settings do not lead to an API server: nothing was tried, or no try can succeed
├── TransportError          no whole answer arrived; the request may or may not have been executed
└── ApiError                the server (or a proxy before it) refused
    ├── BadRequest 400 · Unauthorized 401 · Forbidden 403 · MethodNotAllowed 405
    ├── NotFound 404
    │   └── ObjectNotFound
    ├── Conflict 409
    │   └── AlreadyExists
    ├── Gone 410
    ├── TooLarge 413 · UnsupportedMediaType 415 · Invalid 422 · TooManyRequests 429
    └── ServerError 5xx
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, Final

import orjson

_MAX_QUOTED_BODY: Final = 300
_MAX_RETRY_AFTER_SECONDS: Final = 300.0
"""API servers ask for seconds; what asks for more than this is broken, and must not silence a controller for long."""


class KubeError(Exception):
    """Root of everything this package raises on purpose."""


class ConnectionConfigError(KubeError):
    """The connection settings are unusable. The message names the file, variable or value at fault."""


class TransportError(KubeError):
    """No whole answer arrived: refused, reset, timed out, cut in the middle, or not what HTTP or JSON allow.

    ``maybe_sent`` is False only if it is certain that the server never received the request, so that nothing can have
    been executed. Otherwise a write may have been done with its answer lost: look before doing it again.
    """

    def __init__(self, message: str, *, maybe_sent: bool = True) -> None:
        super().__init__(message)
        self.maybe_sent = maybe_sent


class SilenceError(TransportError):
    """Nothing came for longer than the read timeout: the other side hangs, or is gone without a word."""


class ApiError(KubeError):
    """An answer that is an error: ``str()`` is the server's message.

    ``retry_after`` is in seconds, from the ``Retry-After`` header or ``details.retryAfterSeconds``; None if neither
    was sent. ``reason`` is the machine-readable ``metav1.Status`` reason, ``""`` if there was none (a proxy's answer).
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
        """The ``metav1.Status`` that was received, or one made up from the answer if it was not one."""
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
        """Whether it came as a ``metav1.Status``, as an API server refuses; if not, something before it spoke."""
        return self._status is not None

    def has_cause(self, reason: str) -> bool:
        """Whether ``details.causes`` names this reason."""
        causes = self.details.get("causes") if self.details else None
        return isinstance(causes, list) and any(isinstance(c, dict) and c.get("reason") == reason for c in causes)


class BadRequest(ApiError):
    """400: the request itself is malformed, or an admission plugin refused with this code."""


class Unauthorized(ApiError):
    """401: no or unknown credentials, also after they were refreshed."""


class Forbidden(ApiError):
    """403: RBAC, quota, or another admission plugin refused."""


class NotFound(ApiError):
    """404: no such object, or no such resource type; or what answered is no API server."""


class ObjectNotFound(NotFound):
    """404, naming the object that is not there: the only one that says so of an object."""


class MethodNotAllowed(ApiError):
    """405: the resource does not support this verb."""


class Conflict(ApiError):
    """409: a precondition (resourceVersion, uid) did not hold, or two apply managers own a field."""


class AlreadyExists(Conflict):
    """409, reason AlreadyExists: an object of that name exists, possibly ours, by a request whose answer was lost."""


class Gone(ApiError):
    """410: the resourceVersion or continue token is older than the server's history."""


class TooLarge(ApiError):
    """413: the request body is larger than the server or its storage takes."""


def is_too_large(error: KubeError) -> bool:
    """Whether the object, or the request, is larger than the server or its storage takes; nothing was done.

    What etcd and the client library before it refuse, the server passes on as a 500 in their words.
    """
    if isinstance(error, TooLarge):
        return True
    return isinstance(error, ServerError) and error.code == 500 and error.message.startswith(_TOO_LARGE_FOR_STORAGE)


class UnsupportedMediaType(ApiError):
    """415: the server does not know this patch type."""


class Invalid(ApiError):
    """422: validation refused the object; ``details.causes`` names the fields."""


class TooManyRequests(ApiError):
    """429: overload or priority-and-fairness; come back after ``retry_after`` seconds."""


class ServerError(ApiError):
    """5xx: the server failed, or gave up waiting (504: a write may have been done)."""


_TOO_LARGE_FOR_STORAGE: Final = (
    "etcdserver: request is too large",
    "rpc error: code = ResourceExhausted desc = trying to send message larger than max",
)

_BY_CODE: Final[dict[int, type[ApiError]]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: MethodNotAllowed,
    409: Conflict,
    410: Gone,
    413: TooLarge,
    415: UnsupportedMediaType,
    422: Invalid,
    429: TooManyRequests,
}
# The reasons that say more than, or (in a watch's ERROR event of some servers) something else than, the code.
_BY_REASON: Final[dict[str, type[ApiError]]] = {"AlreadyExists": AlreadyExists, "Expired": Gone, "Gone": Gone}


def may_pass(error: BaseException) -> bool:
    """Whether asking again may help: trouble, and what speaks in place of the API server (a gateway's page)."""
    if isinstance(error, TransportError | ServerError | TooManyRequests):
        return True
    return isinstance(error, ApiError) and not error.is_of_api


def error_from_status(status: Mapping[str, Any], *, code: int = 0, retry_after: float | None = None) -> ApiError:
    """The error that a ``metav1.Status`` describes, tolerating missing or mistyped fields.

    ``code`` is the HTTP code of the answer and wins over the body's own; a watch's ERROR event has only the latter.
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
    """The error that an HTTP answer outside 2xx describes.

    Bodies that are no ``metav1.Status`` (proxies, load balancers and redirects send those) are quoted, shortened, with
    the request they answer, so that the reader sees who really spoke. ``retry_after`` is the raw header, ``now`` the
    time as seconds since the epoch.
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
        # A header need not be text, and what cannot be encoded could be neither logged nor told.
        message = message.encode("utf-8", "replace").decode()
    else:
        text = " ".join(body[: 4 * _MAX_QUOTED_BODY].decode("utf-8", "replace").split())
        if len(text) > _MAX_QUOTED_BODY:
            text = text[:_MAX_QUOTED_BODY] + "…"
        message = f"{request}: answered {code} with no Kubernetes status: {text or '(empty body)'}"
    kind = _BY_CODE.get(code) or (ServerError if code >= 500 else ApiError)
    return kind(message, code=code, retry_after=seconds)


def parse_retry_after(value: str | None, now: float) -> float | None:
    """Seconds to wait by a ``Retry-After`` header: a number or (RFC 9110) a date. None if absent or unreadable."""
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
