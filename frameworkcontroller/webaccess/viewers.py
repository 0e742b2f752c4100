"""The viewer of a request: its permissions, and the reasons of refusals."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar, Final

from aiohttp import web


class Viewer(ABC):
    """The sender of a request. Handlers get it by ``request[VIEWER]``.

    Every method may be called at any time, also by a response that streams for hours: the answers are never older than
    a minute. They raise an `AccessError`, which ends the request: `AuthenticationRequired` once the token is no longer
    valid, `AccessUnavailable` if the API server cannot be asked.
    """

    name: str
    """The user name, to be shown to that user and in logs."""
    token: str | None
    """The bearer token, for requests to other servers on the viewer's behalf. Never log it."""

    @property
    def owner(self) -> str:
        """The one whose requests count together: a user, or all ServiceAccounts of a namespace.

        A user who may create a ServiceAccount may create many.
        """
        prefix, _, _ = self.name.rpartition(":")
        return prefix if prefix.startswith("system:serviceaccount:") else self.name

    @abstractmethod
    async def may_read(self, namespace: str) -> bool:
        """Whether the viewer may read Frameworks of ``namespace``."""

    @abstractmethod
    async def readable(self, namespaces: Iterable[str]) -> frozenset[str] | None:
        """The ``namespaces`` in which the viewer may read Frameworks; None: all, including others."""

    @abstractmethod
    async def may_read_logs(self, namespace: str) -> bool:
        """Whether the viewer may read the logs of containers in ``namespace``: ``get`` ``pods/log``."""

    @abstractmethod
    async def may_write_history(self, namespaces: Iterable[str]) -> bool:
        """Whether the viewer may send records of Frameworks in each of ``namespaces``; empty: in all that there are.

        This is the permission that the controller has: ``patch`` of ``frameworks/status``.
        """

    @abstractmethod
    async def may_get(self, path: str) -> bool:
        """Whether the viewer may ``get`` the nonResourceURL ``path``, for example ``/metrics``."""


class SimpleViewer(Viewer):
    """May read everything or nothing, and send records."""

    def __init__(self, name: str, *, reads: bool) -> None:
        self.name = name
        self.token = None
        self._reads = reads

    async def may_read(self, namespace: str) -> bool:
        del namespace
        return self._reads

    async def readable(self, namespaces: Iterable[str]) -> frozenset[str] | None:
        del namespaces
        return None if self._reads else frozenset()

    async def may_read_logs(self, namespace: str) -> bool:
        del namespace
        return self._reads

    async def may_write_history(self, namespaces: Iterable[str]) -> bool:
        del namespaces
        return True

    async def may_get(self, path: str) -> bool:
        del path
        return self._reads


VIEWER: Final = web.RequestKey("viewer", Viewer)


class WebAccess(ABC):
    """Identifies the senders of requests."""

    by_link: ClassVar[bool] = False
    """Whether a link may log a browser in. There must be one token only: else a page could choose the user."""

    @abstractmethod
    def check_address(self, request: web.BaseRequest) -> None:
        """Raise `AccessError` if the request was sent to a wrong host. Called for every request, public or not."""

    @abstractmethod
    async def identify(self, request: web.BaseRequest, token: str | None) -> Viewer:
        """Return the viewer.

        ``token`` is that of the header ``Authorization``, or of a login.

        Raises:
            AuthenticationRequired: without a valid token.
            AccessUnavailable: the API server cannot be asked.
        """


class AccessError(Exception):
    """A refused request. The text is for its sender."""

    status: ClassVar[int]
    title: ClassVar[str]


class AuthenticationRequired(AccessError):
    """401: no valid token."""

    status = 401
    title = "Authentication required"


class RequestRefused(AccessError):
    """403: a request that must not be sent like this, or by this sender."""

    status = 403
    title = "Request refused"


class LogAccessError(RequestRefused):
    """403: the viewer may read the Frameworks of a namespace, and not the logs of its Pods."""

    title = "Not permitted"

    def __init__(self, namespace: str = "", *, words: str = "") -> None:
        super().__init__(words or f"logs need the permission to get pods/log in namespace {namespace}")


class AccessUnavailable(AccessError):
    """503: the API server cannot be asked for the sender's identity or permissions."""

    status = 503
    title = "Access cannot be checked"
