"""Errors as metav1.Status, with the texts of kube-apiserver.

Each function returns a :class:`StatusError` for use as ``raise api_errors.not_found(t, name)``. People search for the
texts, and programs such as kubectl parse them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from frameworkcontroller.local.apiserver.api_resources import ApiResource
from frameworkcontroller.local.apiserver.status_causes import Cause, summary

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"
"""Why an update lost the race for a resourceVersion."""


class ApiStatusError(Exception):
    """A refused request, with its Status."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        """``reason`` is a metav1.StatusReason, or empty where the real server gives none."""
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = dict(details) if details is not None else None
        self.metadata: dict[str, Any] = {}

    def body(self) -> dict[str, Any]:
        """The metav1.Status."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = self.details
        body["code"] = self.code
        return body

    def headers(self) -> dict[str, str]:
        """Its headers: ``Retry-After`` (seconds) if the Status asks for a retry."""
        seconds = (self.details or {}).get("retryAfterSeconds")
        return {"Retry-After": str(seconds)} if seconds else {}

    def causes(self) -> list[dict[str, str]]:
        """``details.causes``, empty if there are none."""
        return list((self.details or {}).get("causes") or ())


def success(t: ApiResource | None = None, name: str = "", uid: str = "") -> dict[str, Any]:
    """The Status in answer to a DELETE that removed the object at once."""
    body: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if t is not None:
        body["details"] = _details(t, name, uid=uid)
    return body


def not_found(t: ApiResource, name: str) -> ApiStatusError:
    """404: the object does not exist."""
    return ApiStatusError(404, "NotFound", f'{t.resource} "{name}" not found', _details(t, name))


def resource_not_found() -> ApiStatusError:
    """404: the path has the form of a resource's, but is not served."""
    return ApiStatusError(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(t: ApiResource, name: str, *, deleting: bool = False) -> ApiStatusError:
    """409: the name is taken, perhaps by an object in deletion."""
    message = f'{t.resource} "{name}" already exists'
    if deleting:
        message = f"object is being deleted: {message}"
    return ApiStatusError(409, "AlreadyExists", message, _details(t, name))


def generate_name_exhausted(t: ApiResource, name: str) -> ApiStatusError:
    """409: no free name was found for a generateName; a retry may succeed."""
    message = f'{t.resource} "{name}" already exists, the server was not able to generate a unique name for the object'
    return ApiStatusError(409, "AlreadyExists", message, {**_details(t, name), "retryAfterSeconds": 1})


def conflict(t: ApiResource, name: str, detail: str = MODIFIED) -> ApiStatusError:
    """409: the object differs from the request's precondition."""
    message = f'Operation cannot be fulfilled on {t.resource} "{name}": {detail}'
    return ApiStatusError(409, "Conflict", message, _details(t, name))


def uid_mismatch(t: ApiResource, name: str, given: str, actual: str) -> ApiStatusError:
    """409: a write names another uid than the object's (``actual`` is empty if there is no object)."""
    return conflict(t, name, f"Precondition failed: UID in precondition: {given}, UID in object meta: {actual}")


def delete_uid_mismatch(t: ApiResource, name: str, given: str, actual: str) -> ApiStatusError:
    """409: a DELETE's uid precondition fails. It names the kind where other conflicts name the resource."""
    detail = (
        f"the UID in the precondition ({given}) does not match the UID in record ({actual}). "
        "The object might have been deleted and then recreated"
    )
    return _kind_conflict(t, name, detail)


def delete_version_mismatch(t: ApiResource, name: str, given: str, actual: str) -> ApiStatusError:
    """409: a DELETE's resourceVersion precondition fails."""
    detail = (
        f"the ResourceVersion in the precondition ({given}) does not match the ResourceVersion in record ({actual}). "
        "The object might have been modified"
    )
    return _kind_conflict(t, name, detail)


def apply_conflict(causes: Sequence[Cause], managers: str) -> ApiStatusError:
    """409: server-side apply would take fields from other managers; ``managers`` is "conflict with ..."."""
    plural = "conflicts" if len(causes) != 1 else "conflict"
    message = f"Apply failed with {len(causes)} {plural}: {managers}"
    return ApiStatusError(409, "Conflict", message, {"causes": [cause.body() for cause in causes]})


def invalid(t: ApiResource, name: str, causes: Iterable[Cause]) -> ApiStatusError:
    """422: the object violates rules of its type."""
    return _invalid(t.kind, t.group, name, causes)


def invalid_kind(kind: str, group: str, name: str, causes: Iterable[Cause]) -> ApiStatusError:
    """422: the object's kind is not the resource's."""
    return _invalid(kind, group, name, causes)


def invalid_options(kind: str, causes: Iterable[Cause]) -> ApiStatusError:
    """422: a request's options are invalid; ``kind`` is ``ListOptions``, ``PatchOptions``, ``DeleteOptions``, ..."""
    return _invalid(kind, "meta.k8s.io", "", causes)


def invalid_patch(causes: Iterable[Cause]) -> ApiStatusError:
    """422: the result of a patch cannot be decoded. The real server names no kind here."""
    return _invalid("", "", "", causes)


def unpatchable() -> ApiStatusError:
    """422: a JSON patch does not apply: a failed test or a missing path (the text does not say which)."""
    return ApiStatusError(422, "Invalid", "the server rejected our request due to an error in our request", {})


def bad_request(message: str) -> ApiStatusError:
    """400, with this message."""
    return ApiStatusError(400, "BadRequest", message)


def forbidden(t: ApiResource, name: str, why: str, causes: Iterable[Cause] = ()) -> ApiStatusError:
    """403: the object may not be written, for a reason other than its form."""
    subject = f'{t.resource} "{name}"' if name else t.resource
    details = _details(t, name)
    listed = [cause.body() for cause in causes]
    if listed:
        details["causes"] = listed
    return ApiStatusError(403, "Forbidden", f"{subject} is forbidden: {why}", details)


def exceeded_quota(
    t: ApiResource,
    name: str,
    quota: str,
    requested: Mapping[str, str],
    used: Mapping[str, str],
    limited: Mapping[str, str],
) -> ApiStatusError:
    """403: a ResourceQuota is used up. The mappings go from the counted resource (``pods``) to a quantity."""
    why = (
        f"exceeded quota: {quota}, requested: {_quantities(requested)}, "
        f"used: {_quantities(used)}, limited: {_quantities(limited)}"
    )
    return forbidden(t, name, why)


def namespace_terminating(t: ApiResource, name: str, namespace: str) -> ApiStatusError:
    """403: no creation in a namespace that is being deleted."""
    cause = Cause("NamespaceTerminating", f"namespace {namespace} is being terminated", "metadata.namespace")
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    return forbidden(t, name, why, [cause])


def unauthorized(why: str) -> ApiStatusError:
    """401: missing or wrong credentials. The real server does not say why."""
    return ApiStatusError(401, "Unauthorized", f"Unauthorized: {why}")


def forbidden_request(why: str) -> ApiStatusError:
    """403: the request is refused regardless of its resource."""
    return ApiStatusError(403, "Forbidden", f"the request is forbidden: {why}")


def method_not_allowed() -> ApiStatusError:
    """405: the path does not support this HTTP method."""
    message = "the server does not allow this method on the requested resource"
    return ApiStatusError(405, "MethodNotAllowed", message, {})


def not_acceptable(accepted: Sequence[str]) -> ApiStatusError:
    """406: none of the requested media types is available."""
    message = f"only the following media types are accepted: {', '.join(accepted)}"
    return ApiStatusError(406, "NotAcceptable", message)


def unsupported_media_type(accepted: Sequence[str]) -> ApiStatusError:
    """415: the body's Content-Type is not supported."""
    message = f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
    return ApiStatusError(415, "UnsupportedMediaType", message)


def unsupported_patch_type() -> ApiStatusError:
    """415: a PATCH whose Content-Type is no patch format of the resource."""
    return ApiStatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})


def expired(message: str) -> ApiStatusError:
    """410: the requested revision is older than the kept history."""
    return ApiStatusError(410, "Expired", message)


def too_old(requested: int, oldest: int) -> ApiStatusError:
    """410: a watch from a compacted resourceVersion."""
    return expired(f"too old resource version: {requested} ({oldest})")


def continue_expired(token: str) -> ApiStatusError:
    """410: a paged list's continue token has expired; ``token`` continues the list at the current state."""
    error = expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list "
        "without the continue parameter, or use the continue token in this response to retrieve the remainder of the "
        "results. Continuing with the provided token results in an inconsistent list - objects that were created, "
        "modified, or deleted between the time the first chunk was returned and now may show up in the list."
    )
    error.metadata = {"continue": token}
    return error


def too_large_resource_version(requested: int, current: int) -> ApiStatusError:
    """504: a read at a future resourceVersion."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    message = f"Timeout: Too large resource version: {requested}, current: {current}"
    return ApiStatusError(504, "Timeout", message, {"causes": [cause], "retryAfterSeconds": 1})


def too_large(limit: int) -> ApiStatusError:
    """413: the body is longer than ``limit`` bytes."""
    return ApiStatusError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


def internal_error(message: str) -> ApiStatusError:
    """500: an internal error of the server."""
    details = {"causes": [{"message": message}]}
    return ApiStatusError(500, "InternalError", f"Internal error occurred: {message}", details)


def _kind_conflict(t: ApiResource, name: str, detail: str) -> ApiStatusError:
    subject = f"{t.kind}.{t.group}" if t.group else t.kind
    details = _details(t, name)
    details["kind"] = t.kind
    return ApiStatusError(409, "Conflict", f'Operation cannot be fulfilled on {subject} "{name}": {detail}', details)


def _invalid(kind: str, group: str, name: str, causes: Iterable[Cause]) -> ApiStatusError:
    found = list(causes)
    details: dict[str, Any] = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    if kind:
        details["kind"] = kind
    details["causes"] = [cause.body() for cause in found]
    subject = f"{kind}.{group}" if group else kind
    return ApiStatusError(422, "Invalid", f'{subject} "{name}" is invalid: {summary(found)}', details)


def _details(t: ApiResource, name: str, uid: str = "") -> dict[str, Any]:
    details = {"name": name, "group": t.group, "kind": t.plural, "uid": uid}
    return {key: value for key, value in details.items() if value}


def _quantities(amounts: Mapping[str, str]) -> str:
    return ",".join(f"{name}={amounts[name]}" for name in sorted(amounts))
