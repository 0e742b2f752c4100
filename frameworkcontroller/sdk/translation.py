"""The SDK's errors in place of the errors of requests to the API server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from frameworkcontroller.api.problems import Problem
from frameworkcontroller.kube import errors
from frameworkcontroller.sdk.exceptions import (
    AlreadyExists,
    Forbidden,
    InvalidSpec,
    NotFound,
    RequestRefused,
    Unreachable,
)

_UNAUTHORIZED: Final = 401


@contextmanager
def translated(verb: str = "", resource: str = "", *, name: str = "", namespace: str = "") -> Iterator[None]:
    """Raise the SDK's error in place of one of a request. The arguments describe the request."""
    try:
        yield
    except errors.NotFound as error:
        if isinstance(error, errors.ObjectNotFound) and resource == "frameworks" and name:
            if verb == "create":
                # Its namespace.
                raise RequestRefused(str(error)) from None
            raise NotFound(f'there is no Framework "{name}" in namespace "{namespace}"') from None
        if resource == "frameworks":
            raise RequestRefused(f"this cluster knows no Frameworks: is the controller installed? ({error})") from None
        raise RequestRefused(str(error)) from None
    except errors.AlreadyExists as error:
        if resource == "frameworks":
            raise AlreadyExists(f'a Framework "{name}" exists already in namespace "{namespace}"') from None
        raise AlreadyExists(str(error)) from None
    except errors.Invalid as error:
        raise InvalidSpec(_causes(error)) from None
    except errors.Forbidden as error:
        hint = f"Ask for the permission to {verb} {resource} in namespace {namespace}: docs/permissions.md"
        raise Forbidden(str(error), verb=verb, resource=resource, hint=hint if verb else "") from None
    except errors.ApiError as error:
        if error.code == _UNAUTHORIZED:
            hint = "Log in again, or choose another context: kubectl config get-contexts"
            raise Forbidden(f"the API server does not accept the credentials: {error}", hint=hint) from None
        if errors.may_pass(error):
            raise Unreachable(f"the API server cannot answer: {error}") from None
        raise RequestRefused(str(error)) from None
    except errors.NoClusterError:
        raise Unreachable(
            "no cluster is configured: set $KUBECONFIG, or use frameworkcontroller.local() for one of your own"
        ) from None
    except errors.KubeError as error:
        raise Unreachable(str(error)) from None


def _causes(error: errors.ApiError) -> list[Problem]:
    """Return the fields that the API server has refused."""
    causes: Any = error.details.get("causes")
    found = [one for one in causes if isinstance(one, dict) and one.get("field")] if isinstance(causes, list) else []
    return [Problem((str(one["field"]),), str(one.get("message") or "")) for one in found] or [Problem((), str(error))]
