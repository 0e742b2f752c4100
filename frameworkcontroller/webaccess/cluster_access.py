"""Access by bearer tokens of the cluster: the API server identifies their users and permissions.

A viewer may read the Frameworks of a namespace whose Frameworks it may ``get`` from the API server, and send records if
it may ``patch`` ``frameworks/status``, as the controller may. Logs of containers in the namespace need ``get`` of
``pods/log``, too.

All that is known by a token is asked again within a minute, the API server's own cache of 10 s included: a deleted
binding, a deleted ServiceAccount and an expired token count by then. If the API server cannot be asked, requests are
refused.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from aiohttp import web

from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.kube.accessreview import (
    ALL_NAMESPACES,
    PathPermission,
    Permission,
    ResourcePermission,
    User,
    review_access,
    review_token,
)
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.errors import KubeError
from frameworkcontroller.kube.resources import PODS
from frameworkcontroller.lru import LRUCache
from frameworkcontroller.webaccess.singleflight import SingleFlight
from frameworkcontroller.webaccess.viewers import (
    AccessUnavailable,
    AuthenticationRequired,
    SimpleViewer,
    Viewer,
    WebAccess,
)

VALID_SECONDS: Final = 45.0
"""The life of a token's review."""
DENIED_SECONDS: Final = 15.0
"""The life of a denied permission: new bindings are to count soon."""
INVALID_SECONDS: Final = 5.0
"""The life of a refused token."""
ANSWER_SECONDS: Final = 10.0
"""An API server that takes longer to answer is unavailable."""

_TOKENS: Final = 2_000
_PERMISSIONS: Final = 10_000
"""Per token."""
_MAX_TOKEN_BYTES: Final = 16 << 10
_CONCURRENT_REVIEWS: Final = 20
_LOG_SECONDS: Final = 30.0

# A DNS label, which names of namespaces are.
_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
# The characters of RFC 6750.
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*", re.ASCII)

_log: Final = logging.getLogger(__name__)
_T = TypeVar("_T")


class ClusterAccess(WebAccess):
    """Admits holders of valid tokens. Belongs to one event loop."""

    def __init__(
        self, client: KubeClient, *, audiences: Sequence[str] = (), writer_token_file: Path | None = None
    ) -> None:
        """Create it; sends no request.

        Args:
            client: may create TokenReviews and SubjectAccessReviews.
            audiences: tokens must be for one of them, where "" is the API server; empty: for the API server.
            writer_token_file: a file with a token that may send records, and nothing else; read for each request.
        """
        self._client = client
        self._audiences = tuple(audience for audience in audiences if audience)
        self._takes_api_tokens = not audiences or "" in audiences
        self._writer_token_file = writer_token_file
        self._valid: LRUCache[bytes, _Review] = LRUCache(_TOKENS)
        # Apart: invalid tokens, which cost a sender nothing, must not evict valid ones.
        self._invalid: LRUCache[bytes, float] = LRUCache(_TOKENS)
        self._token_reviews: SingleFlight[bytes, _Review | None] = SingleFlight()
        self._access_reviews: SingleFlight[tuple[_Review, Permission], bool] = SingleFlight()
        self._token_slots = asyncio.Semaphore(_CONCURRENT_REVIEWS)
        self._access_slots = asyncio.Semaphore(_CONCURRENT_REVIEWS)
        self._logged = float("-inf")

    def check_address(self, request: web.BaseRequest) -> None:
        """Accept any: a token is required, which pages of other names do not have."""

    async def identify(self, request: web.BaseRequest, token: str | None) -> Viewer:
        """Review the token, unless it was reviewed within the last minute."""
        del request
        if token is None:
            raise AuthenticationRequired("a bearer token is required")
        if self._is_writers(token):
            return SimpleViewer("writer", reads=False)
        return _ClusterViewer(self, token, (await self.review(token)).user.name)

    async def review(self, token: str) -> _Review:
        """Return the review of ``token``. Raises as `identify`."""
        if len(token) > _MAX_TOKEN_BYTES or not _TOKEN.fullmatch(token):
            raise AuthenticationRequired("the token is malformed")
        digest = hashlib.sha256(token.encode()).digest()
        now = _now()
        review = self._valid.get(digest)
        if review is None or now >= review.expires:
            review = None
            if now >= (self._invalid.get(digest) or 0.0):
                review = await self._token_reviews.run(digest, lambda: self._review_token(digest, token))
        if review is None:
            raise AuthenticationRequired("the token is invalid or expired, or not meant for this server")
        return review

    async def allows(self, token: str, permission: Permission) -> bool:
        """Return whether the user of ``token`` has ``permission``. Raises as `identify`."""
        review = await self.review(token)
        answer = review.permissions.get(permission)
        if answer is not None and _now() < answer[0]:
            return answer[1]
        return await self._access_reviews.run((review, permission), lambda: self._review_access(review, permission))

    async def _review_token(self, digest: bytes, token: str) -> _Review | None:
        asked = _now()
        user = None
        if self._audiences:
            user = await self._ask(self._token_slots, lambda: review_token(self._client, token, self._audiences))
        if user is None and self._takes_api_tokens:
            user = await self._ask(self._token_slots, lambda: review_token(self._client, token))
        if user is None:
            self._valid.pop(digest)
            self._invalid.put(digest, asked + INVALID_SECONDS)
            return None
        return self._valid.put(digest, _Review(user, asked + VALID_SECONDS))

    async def _review_access(self, review: _Review, permission: Permission) -> bool:
        asked = _now()
        allowed = await self._ask(self._access_slots, lambda: review_access(self._client, review.user, permission))
        expires = min(review.expires, asked + (VALID_SECONDS if allowed else DENIED_SECONDS))
        review.permissions.put(permission, (expires, allowed))
        return allowed

    async def _ask(self, slots: asyncio.Semaphore, question: Callable[[], Awaitable[_T]]) -> _T:
        try:
            async with asyncio.timeout(ANSWER_SECONDS), slots:
                return await question()
        except (KubeError, TimeoutError) as error:
            now = _now()
            if now >= self._logged + _LOG_SECONDS:
                self._logged = now
                _log.warning("Cannot check access: %s", str(error) or "the API server does not answer")
            raise AccessUnavailable("the API server does not confirm your identity and permissions") from None

    def _is_writers(self, token: str) -> bool:
        if self._writer_token_file is None:
            return False
        try:
            expected = self._writer_token_file.read_bytes().strip()
        except OSError as error:
            _log.warning("Cannot read the token of writers: %s", error)
            return False
        # Bytes: the value may not be ASCII.
        return bool(expected) and hmac.compare_digest(token.encode(errors="replace"), expected)


class _Review:
    """The user of a token until ``expires``, with permissions: they depend on its groups, and expire with them."""

    def __init__(self, user: User, expires: float) -> None:
        self.user = user
        self.expires = expires
        self.permissions: LRUCache[Permission, tuple[float, bool]] = LRUCache(_PERMISSIONS)


class _ClusterViewer(Viewer):
    """The user of a token."""

    def __init__(self, access: ClusterAccess, token: str, name: str) -> None:
        self.name = name
        self.token = self._token = token
        self._access = access

    async def may_read(self, namespace: str) -> bool:
        return await self._reads(ALL_NAMESPACES) or await self._reads(namespace)

    async def readable(self, namespaces: Iterable[str]) -> frozenset[str] | None:
        if await self._reads(ALL_NAMESPACES):
            return None
        asked = sorted(set(namespaces))
        found: set[str] = set()
        # In parts, for a fair share of the slots: thousands of questions at once would make others wait too long.
        for at in range(0, len(asked), _CONCURRENT_REVIEWS):
            part = asked[at : at + _CONCURRENT_REVIEWS]
            answers = await asyncio.gather(*(self._reads(namespace) for namespace in part))
            found.update(namespace for namespace, may in zip(part, answers, strict=True) if may)
        return frozenset(found)

    async def may_read_logs(self, namespace: str) -> bool:
        every, one = (ResourcePermission("get", PODS, where, "log") for where in (ALL_NAMESPACES, namespace))
        return await self._may(every) or await self._may(one)

    async def may_write_history(self, namespaces: Iterable[str]) -> bool:
        if await self._writes(ALL_NAMESPACES):
            return True
        asked = sorted(set(namespaces))
        for namespace in asked:
            if not await self._writes(namespace):
                return False
        return bool(asked)

    async def may_get(self, path: str) -> bool:
        return await self._access.allows(self._token, PathPermission("get", path))

    async def _reads(self, namespace: str) -> bool:
        return await self._may(ResourcePermission("get", FRAMEWORKS, namespace))

    async def _writes(self, namespace: str) -> bool:
        return await self._may(ResourcePermission("patch", FRAMEWORKS, namespace, "status"))

    async def _may(self, permission: ResourcePermission) -> bool:
        if permission.namespace != ALL_NAMESPACES and not _NAMESPACE.fullmatch(permission.namespace):
            return False
        return await self._access.allows(self._token, permission)


def _now() -> float:
    return asyncio.get_running_loop().time()
