"""metav1.Status: the body of every refusal, in the real API server's words.

Each function returns a :class:`StatusError`, so that a handler says ``raise status.not_found(t, name)``. The texts are
those of kube-apiserver: people search for them, and programs (kubectl among them) read them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from frameworkcontroller.local.apiserver.api_resources import ApiResource
from frameworkcontroller.local.apiserver.status_causes import Cause, summary

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"
"""Why an update lost the race for a resourceVersion."""


class StatusError(Exception):
    """A request that is refused, and the Status that says so."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        """``reason`` is a metav1.StatusReason, or empty where the real server names none."""
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
        """Headers that go with it: ``Retry-After`` (seconds) where the Status asks for a retry."""
        seconds = (self.details or {}).get("retryAfterSeconds")
        return {"Retry-After": str(seconds)} if seconds else {}

    def causes(self) -> list[dict[str, str]]:
        """``details.causes``, empty if there are none."""
        return list((self.details or {}).get("causes") or ())


def success(t: ApiResource | None = None, name: str = "", uid: str = "") -> dict[str, Any]:
    """The Status that answers a DELETE which removed the object at once."""
    body: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if t is not None:
        body["details"] = _details(t, name, uid=uid)
    return body


def not_found(t: ApiResource, name: str) -> StatusError:
    """404: there is no such object."""
    return StatusError(404, "NotFound", f'{t.resource} "{name}" not found', _details(t, name))


def resource_not_found() -> StatusError:
    """404: the path has the form of a resource's, but nothing serves it."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(t: ApiResource, name: str, *, deleting: bool = False) -> StatusError:
    """409: the name is taken, perhaps by an object that is about to go."""
    message = f'{t.resource} "{name}" already exists'
    if deleting:
        message = f"object is being deleted: {message}"
    return StatusError(409, "AlreadyExists", message, _details(t, name))


def generate_name_exhausted(t: ApiResource, name: str) -> StatusError:
    """409: no free name was found for a generateName; a client may try again."""
    message = f'{t.resource} "{name}" already exists, the server was not able to generate a unique name for the object'
    return StatusError(409, "AlreadyExists", message, {**_details(t, name), "retryAfterSeconds": 1})


def conflict(t: ApiResource, name: str, detail: str = MODIFIED) -> StatusError:
    """409: the object is not, or no longer, what the request takes it for."""
    message = f'Operation cannot be fulfilled on {t.resource} "{name}": {detail}'
    return StatusError(409, "Conflict", message, _details(t, name))


def uid_mismatch(t: ApiResource, name: str, given: str, actual: str) -> StatusError:
    """409: a write names a uid that is not the object's (``actual`` is empty when there is no object)."""
    return conflict(t, name, f"Precondition failed: UID in precondition: {given}, UID in object meta: {actual}")


def delete_uid_mismatch(t: ApiResource, name: str, given: str, actual: str) -> StatusError:
    """409: a DELETE's uid precondition does not hold. It names the kind where other conflicts name the resource."""
    detail = (
        f"the UID in the precondition ({given}) does not match the UID in record ({actual}). "
        "The object might have been deleted and then recreated"
    )
    return _kind_conflict(t, name, detail)


def delete_version_mismatch(t: ApiResource, name: str, given: str, actual: str) -> StatusError:
    """409: a DELETE's resourceVersion precondition does not hold."""
    detail = (
        f"the ResourceVersion in the precondition ({given}) does not match the ResourceVersion in record ({actual}). "
        "The object might have been modified"
    )
    return _kind_conflict(t, name, detail)


def apply_conflict(causes: Sequence[Cause], managers: str) -> StatusError:
    """409: server-side apply would take fields from other managers, ``managers`` in words ("conflict with ...")."""
    plural = "conflicts" if len(causes) != 1 else "conflict"
    message = f"Apply failed with {len(causes)} {plural}: {managers}"
    return StatusError(409, "Conflict", message, {"causes": [cause.body() for cause in causes]})


def invalid(t: ApiResource, name: str, causes: Iterable[Cause]) -> StatusError:
    """422: the object breaks rules of its type."""
    return _invalid(t.kind, t.group, name, causes)


def invalid_kind(kind: str, group: str, name: str, causes: Iterable[Cause]) -> StatusError:
    """422: the object says that it is of a kind that the resource does not hold."""
    return _invalid(kind, group, name, causes)


def invalid_options(kind: str, causes: Iterable[Cause]) -> StatusError:
    """422: a request's options break rules; ``kind`` is ``ListOptions``, ``PatchOptions``, ``DeleteOptions``, ..."""
    return _invalid(kind, "meta.k8s.io", "", causes)


def invalid_patch(causes: Iterable[Cause]) -> StatusError:
    """422: what a patch yields cannot be read as an object. The real server names no kind here."""
    return _invalid("", "", "", causes)


def unpatchable() -> StatusError:
    """422: a JSON patch cannot be applied: a test failed, or a path does not exist (it does not say which)."""
    return StatusError(422, "Invalid", "the server rejected our request due to an error in our request", {})


def bad_request(message: str) -> StatusError:
    """400, with whatever there is to say."""
    return StatusError(400, "BadRequest", message)


def forbidden(t: ApiResource, name: str, why: str, causes: Iterable[Cause] = ()) -> StatusError:
    """403: the object may not be written, for a reason that is not about its form."""
    subject = f'{t.resource} "{name}"' if name else t.resource
    details = _details(t, name)
    listed = [cause.body() for cause in causes]
    if listed:
        details["causes"] = listed
    return StatusError(403, "Forbidden", f"{subject} is forbidden: {why}", details)


def exceeded_quota(
    t: ApiResource,
    name: str,
    quota: str,
    requested: Mapping[str, str],
    used: Mapping[str, str],
    limited: Mapping[str, str],
) -> StatusError:
    """403: a ResourceQuota is used up. The mappings go from what is counted (``pods``) to a quantity."""
    why = (
        f"exceeded quota: {quota}, requested: {_quantities(requested)}, "
        f"used: {_quantities(used)}, limited: {_quantities(limited)}"
    )
    return forbidden(t, name, why)


def namespace_terminating(t: ApiResource, name: str, namespace: str) -> StatusError:
    """403: nothing is created any more in a namespace that is being deleted."""
    cause = Cause("NamespaceTerminating", f"namespace {namespace} is being terminated", "metadata.namespace")
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    return forbidden(t, name, why, [cause])


def unauthorized(why: str) -> StatusError:
    """401: no credentials, or wrong ones. The real server does not say why."""
    return StatusError(401, "Unauthorized", f"Unauthorized: {why}")


def forbidden_request(why: str) -> StatusError:
    """403: a request that is refused whatever it asks for."""
    return StatusError(403, "Forbidden", f"the request is forbidden: {why}")


def method_not_allowed() -> StatusError:
    """405: the path exists, but not with this HTTP method."""
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", message, {})


def not_acceptable(accepted: Sequence[str]) -> StatusError:
    """406: none of the media types asked for can be produced."""
    message = f"only the following media types are accepted: {', '.join(accepted)}"
    return StatusError(406, "NotAcceptable", message)


def unsupported_media_type(accepted: Sequence[str]) -> StatusError:
    """415: the body's Content-Type is not understood."""
    message = f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
    return StatusError(415, "UnsupportedMediaType", message)


def unsupported_patch_type() -> StatusError:
    """415: a PATCH whose Content-Type is no patch format of the resource."""
    return StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})


def expired(message: str) -> StatusError:
    """410: what is asked for lies before the history that is kept."""
    return StatusError(410, "Expired", message)


def too_old(requested: int, oldest: int) -> StatusError:
    """410: a watch from a resourceVersion that has been compacted away."""
    return expired(f"too old resource version: {requested} ({oldest})")


def continue_expired(token: str) -> StatusError:
    """410: a paged list's continue token is older than the history that is kept; ``token`` goes on all the same."""
    error = expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list "
        "without the continue parameter, or use the continue token in this response to retrieve the remainder of the "
        "results. Continuing with the provided token results in an inconsistent list - objects that were created, "
        "modified, or deleted between the time the first chunk was returned and now may show up in the list."
    )
    error.metadata = {"continue": token}
    return error


def too_large_resource_version(requested: int, current: int) -> StatusError:
    """504: a read at a resourceVersion that does not exist yet."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    message = f"Timeout: Too large resource version: {requested}, current: {current}"
    return StatusError(504, "Timeout", message, {"causes": [cause], "retryAfterSeconds": 1})


def too_large(limit: int) -> StatusError:
    """413: the body is longer than ``limit`` bytes."""
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


def internal_error(message: str) -> StatusError:
    """500: a fault of the server itself."""
    details = {"causes": [{"message": message}]}
    return StatusError(500, "InternalError", f"Internal error occurred: {message}", details)


def _kind_conflict(t: ApiResource, name: str, detail: str) -> StatusError:
    subject = f"{t.kind}.{t.group}" if t.group else t.kind
    details = _details(t, name)
    details["kind"] = t.kind
    return StatusError(409, "Conflict", f'Operation cannot be fulfilled on {subject} "{name}": {detail}', details)


def _invalid(kind: str, group: str, name: str, causes: Iterable[Cause]) -> StatusError:
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
    return StatusError(422, "Invalid", f'{subject} "{name}" is invalid: {summary(found)}', details)


def _details(t: ApiResource, name: str, uid: str = "") -> dict[str, Any]:
    details = {"name": name, "group": t.group, "kind": t.plural, "uid": uid}
    return {key: value for key, value in details.items() if value}


def _quantities(amounts: Mapping[str, str]) -> str:
    return ",".join(f"{name}={amounts[name]}" for name in sorted(amounts))
