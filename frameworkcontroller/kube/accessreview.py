"""Authentication of a token (TokenReview) and authorization of a user (SubjectAccessReview) by an API server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.errors import TransportError
from frameworkcontroller.kube.resources import SUBJECTACCESSREVIEWS, TOKENREVIEWS, Resource

ALL_NAMESPACES: Final = ""


@dataclass(frozen=True, slots=True)
class User:
    """A user, as an API server knows it."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class ResourcePermission:
    """The permission to do ``verb`` with a resource or subresource, in one namespace or in ALL_NAMESPACES."""

    verb: str
    resource: Resource
    namespace: str = ALL_NAMESPACES
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class PathPermission:
    """The permission to do ``verb`` with a nonResourceURL such as ``/metrics``."""

    verb: str
    path: str


Permission = ResourcePermission | PathPermission


async def review_token(client: KubeClient, token: str, audiences: Sequence[str] = ()) -> User | None:
    """Return the user of ``token``; None if it is invalid, expired, or for none of ``audiences``.

    Without ``audiences``, the token must be one for the API server.

    Raises:
        KubeError: the API server gave no valid answer, or the client may not ask.
    """
    spec: dict[str, Any] = {"token": token}
    if audiences:
        spec["audiences"] = list(audiences)
    status = await _review(client, TOKENREVIEWS, spec)
    if status.get("authenticated") is not True:
        return None
    # A server that does not know audiences returns none. The token is one for that server then, and for no other.
    if audiences and not set(audiences) & set(_strings(status.get("audiences"))):
        return None
    user = status.get("user")
    name = user.get("username") if isinstance(user, dict) else None
    if not isinstance(user, dict) or not isinstance(name, str) or not name:
        raise _invalid(TOKENREVIEWS)
    uid, extra = user.get("uid"), user.get("extra")
    return User(
        name=name,
        uid=uid if isinstance(uid, str) else "",
        groups=_strings(user.get("groups")),
        extra=tuple((key, _strings(values)) for key, values in extra.items()) if isinstance(extra, dict) else (),
    )


async def review_access(client: KubeClient, user: User, permission: Permission) -> bool:
    """Return whether ``user`` has ``permission``.

    Raises:
        KubeError: as `review_token`.
    """
    spec: dict[str, Any] = {
        "user": user.name,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": {key: list(values) for key, values in user.extra},
    }
    match permission:
        case ResourcePermission(verb, resource, namespace, subresource):
            spec["resourceAttributes"] = {
                "verb": verb,
                "group": resource.group,
                "version": resource.version,
                "resource": resource.plural,
                "subresource": subresource,
                "namespace": namespace,
            }
        case PathPermission(verb, path):
            spec["nonResourceAttributes"] = {"verb": verb, "path": path}
    status = await _review(client, SUBJECTACCESSREVIEWS, spec)
    return status.get("allowed") is True and status.get("denied") is not True


async def _review(client: KubeClient, resource: Resource, spec: Mapping[str, Any]) -> dict[str, Any]:
    review = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
    body = await client.create(resource, orjson.dumps(review))
    try:
        status = orjson.loads(body)["status"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        status = None
    if not isinstance(status, dict):
        raise _invalid(resource)
    return status


def _invalid(resource: Resource) -> TransportError:
    return TransportError(f"the answer to a {resource.kind} is invalid")


def _strings(value: object) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()
