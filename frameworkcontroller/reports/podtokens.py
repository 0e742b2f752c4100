"""Who reports: the Pod of a token, checked by the API server, and the attempt that owns the Pod.

A token is reviewed once a minute at most, and a Pod is read once. The cost of invalid tokens is bounded: claims that do
not fit are refused without a review, refusals are cached, and reviews are limited by address.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.errors import KubeError, NotFound
from frameworkcontroller.kube.resources import PODS, TOKENREVIEWS
from frameworkcontroller.lru import LRUCache
from frameworkcontroller.reports.merging import Reporter
from frameworkcontroller.tokenbucket import TokenBucket

_log: Final = logging.getLogger(__name__)

REVIEWED_SEC: Final = 60.0
"""A review counts for this time. It is the longest for which the token of a deleted Pod is taken."""

REFUSED_SEC: Final = 10.0
"""A refusal counts for this time: another API server may know the Pod later."""

MAX_PODS: Final = 20_000
MAX_REFUSED: Final = 4096
MAX_ADDRESSES: Final = 4096
MAX_TOKEN_CHARS: Final = 12_288

MAX_REVIEWS: Final = 32
MAX_REVIEWS_OF_ADDRESS: Final = 8
"""Reviews in flight."""

REFUSED_BURST: Final = 20
REFUSED_PER_SEC: Final = 0.5
"""Reviews of an address that find no Pod. Pods that share an address, of a node, have their tokens in the cache."""

REVIEW_SEC: Final = 3.0
"""A report waits at most this long for the review of its token: senders give up after five seconds."""

REPORT_BURST: Final = 5
REPORTS_PER_SEC: Final = 1.0
"""Reports of a Pod. The burst lets the last report of a program follow the one before at once."""

_POD_NAME: Final = "authentication.kubernetes.io/pod-name"
_POD_UID: Final = "authentication.kubernetes.io/pod-uid"
_USER: Final = "system:serviceaccount:"
_RECHECK_SEC: Final = 5.0


class ReportRefused(Exception):
    """A report that is not taken. The text is for its sender."""

    def __init__(self, status: HTTPStatus, text: str, retry_after: int | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.retry_after = retry_after


class AttemptPath(NamedTuple):
    """The attempt in the URL of a report."""

    namespace: str
    framework: str
    attempt_id: int


@dataclass(slots=True, eq=False)
class ReportingPod:
    """A Pod whose token was reviewed. ``configmap_uid``: of the attempt that owns it.

    ``reported``: its last report to this process.
    """

    namespace: str
    name: str
    uid: str
    framework: str
    configmap_uid: str
    bucket: TokenBucket
    reported: Reporter | None = None


@dataclass(slots=True)
class _Known:
    """A reviewed token. Times are by the clock."""

    pod: ReportingPod
    until: float
    checked_at: float


@dataclass(slots=True)
class _Address:
    bucket: TokenBucket
    reviews: int = 0


@dataclass(slots=True)
class _Claims:
    namespace: str
    expires: float


@dataclass(slots=True, eq=False)
class PodTokens:
    """Finds the Pods of tokens."""

    client: KubeClient
    clock: Callable[[], float]
    """Monotonic seconds."""
    wall: Callable[[], float]
    exists: Callable[[str, str, str], bool | None] = lambda _namespace, _name, _uid: None
    """Whether a Pod of that namespace, name and UID is in a cache; None without one. It only hastens a review."""
    failing_since: float | None = None
    """The time by the clock at which reviews began to fail, None while they work."""
    works_since: float | None = None
    """The time by the clock at which reviews began to work again after a failure."""
    reviews: int = 0
    _tokens: LRUCache[bytes, _Known] = field(default_factory=lambda: LRUCache(MAX_PODS))
    _refused: LRUCache[bytes, tuple[float, ReportRefused]] = field(default_factory=lambda: LRUCache(MAX_REFUSED))
    _pods: LRUCache[str, ReportingPod] = field(default_factory=lambda: LRUCache(MAX_PODS))
    _addresses: LRUCache[str, _Address] = field(default_factory=lambda: LRUCache(MAX_ADDRESSES))
    _running: dict[bytes, asyncio.Task[ReportingPod]] = field(default_factory=dict)

    async def find(self, token: str, target: AttemptPath, address: str) -> ReportingPod:
        """The Pod of the token, if it may report for the target's Framework. ``address``: of the sender.

        Raises:
            ReportRefused: there is none, it may not, or that is not known.
        """
        if not token or len(token) > MAX_TOKEN_CHARS or not token.isascii():
            raise ReportRefused(HTTPStatus.UNAUTHORIZED, "the token is not one of a service account")
        digest = hashlib.sha256(token.encode()).digest()
        pod = self._known(digest)
        if pod is None:
            pod = await self._reviewed(digest, token, target, address)
        if (pod.namespace, pod.framework) != (target.namespace, target.framework):
            raise ReportRefused(HTTPStatus.FORBIDDEN, f"the token is of a Pod of {pod.namespace}/{pod.framework}")
        return pod

    def _known(self, digest: bytes) -> ReportingPod | None:
        known, now = self._tokens.get(digest), self.clock()
        if known is None:
            return None
        pod = known.pod
        is_gone = now - known.checked_at > _RECHECK_SEC and self.exists(pod.namespace, pod.name, pod.uid) is False
        if now < known.until and not is_gone:
            return pod
        self._tokens.pop(digest)
        return None

    async def _reviewed(self, digest: bytes, token: str, target: AttemptPath, address: str) -> ReportingPod:
        now = self.clock()
        refused = self._refused.get(digest)
        if refused is not None and now < refused[0]:
            raise ReportRefused(refused[1].status, str(refused[1]))
        running = self._running.get(digest)
        if running is None:
            claims = _claims(token)
            if claims is None:
                raise ReportRefused(HTTPStatus.UNAUTHORIZED, "the token is not one of a Pod for this server")
            if claims.namespace != target.namespace:
                raise ReportRefused(HTTPStatus.FORBIDDEN, f"the token is of namespace {claims.namespace[:63]!r}")
            running = self._start(digest, token, claims.expires, address)
        # Others may wait for the same review, which must not end with this sender.
        done, _ = await asyncio.wait([running], timeout=REVIEW_SEC)
        if not done:
            raise ReportRefused(HTTPStatus.SERVICE_UNAVAILABLE, "the API server has not reviewed the token yet", 5)
        return running.result()

    def _start(self, digest: bytes, token: str, expires: float, address: str) -> asyncio.Task[ReportingPod]:
        sender = self._addresses.get(address)
        if sender is None:
            sender = self._addresses.put(address, _Address(TokenBucket(REFUSED_BURST, REFUSED_PER_SEC)))
        if not sender.bucket.take(self.clock()):
            raise ReportRefused(HTTPStatus.TOO_MANY_REQUESTS, "too many tokens of this address were refused", 30)
        if sender.reviews >= MAX_REVIEWS_OF_ADDRESS or len(self._running) >= MAX_REVIEWS:
            sender.bucket.put_back()
            raise ReportRefused(HTTPStatus.SERVICE_UNAVAILABLE, "too many tokens are being reviewed", 1)
        sender.reviews += 1
        task = asyncio.create_task(self._review(digest, token, expires, sender), name="review of a token")
        self._running[digest] = task

        def ended(_: asyncio.Task[ReportingPod]) -> None:
            sender.reviews -= 1
            del self._running[digest]
            if not task.cancelled():
                # Its senders may have left.
                task.exception()

        task.add_done_callback(ended)
        return task

    async def _review(self, digest: bytes, token: str, expires: float, sender: _Address) -> ReportingPod:
        try:
            pod = await self._find_pod(token)
        except ReportRefused as refused:
            self._refused.put(digest, (self.clock() + REFUSED_SEC, refused))
            self._worked()
            raise
        except (KubeError, ValueError, TypeError, LookupError, AttributeError) as error:
            sender.bucket.put_back()
            if self.failing_since is None:
                self.failing_since = self.clock()
                _log.warning("Cannot review tokens of Pods that report progress: %s", error)
            raise ReportRefused(HTTPStatus.SERVICE_UNAVAILABLE, "the API server cannot review the token", 5) from error
        sender.bucket.put_back()
        self._worked()
        now = self.clock()
        until = now + min(REVIEWED_SEC, expires - self.wall())
        self._tokens.put(digest, _Known(pod, until, now))
        return pod

    def _worked(self) -> None:
        if self.failing_since is not None:
            _log.info("Tokens of Pods that report progress are reviewed again")
            self.failing_since = None
            self.works_since = self.clock()

    def forget_refusals(self) -> None:
        """Let refused tokens be reviewed again at once."""
        self._refused = LRUCache(MAX_REFUSED)

    async def probe(self) -> None:
        """While reviews fail, review no token: without another report, their end would stay unknown."""
        if self.failing_since is not None:
            with suppress(KubeError, ValueError, TypeError, LookupError):
                await self._ask("probe")
                self._worked()

    async def _ask(self, token: str) -> Any:
        self.reviews += 1
        spec = {"token": token, "audiences": [names.PROGRESS_AUDIENCE]}
        body = {"apiVersion": TOKENREVIEWS.api_version, "kind": TOKENREVIEWS.kind, "spec": spec}
        return orjson.loads(await self.client.create(TOKENREVIEWS, orjson.dumps(body)))["status"]

    async def _find_pod(self, token: str) -> ReportingPod:
        status = await self._ask(token)
        if status.get("authenticated") is not True:
            raise ReportRefused(HTTPStatus.UNAUTHORIZED, "the API server does not accept the token")
        if names.PROGRESS_AUDIENCE not in (status.get("audiences") or ()):
            raise ReportRefused(HTTPStatus.UNAUTHORIZED, "the token has another audience")
        username, extra = status["user"]["username"], status["user"].get("extra") or {}
        namespace = username.removeprefix(_USER).partition(":")[0]
        name, uid = (next(iter(extra.get(key) or ()), "") for key in (_POD_NAME, _POD_UID))
        if not (username.startswith(_USER) and namespace and name and uid):
            raise ReportRefused(HTTPStatus.FORBIDDEN, "the token is not bound to a Pod")
        known = self._pods.get(uid)
        if known is not None and (known.namespace, known.name) == (namespace, name):
            return known
        try:
            pod = orjson.loads(await self.client.get(PODS, name, namespace, metadata_only=True))
        except NotFound:
            raise ReportRefused(HTTPStatus.UNAUTHORIZED, "the Pod of the token is gone") from None
        metadata = pod["metadata"]
        if metadata.get("uid") != uid:
            raise ReportRefused(HTTPStatus.UNAUTHORIZED, "the Pod of the token is gone")
        owner = _owner(metadata)
        if owner is None:
            raise ReportRefused(HTTPStatus.FORBIDDEN, "the Pod of the token belongs to no Framework")
        found = ReportingPod(namespace, name, uid, *owner, TokenBucket(REPORT_BURST, REPORTS_PER_SEC))
        return self._pods.put(uid, found)


def _owner(metadata: dict[str, Any]) -> tuple[str, str] | None:
    """The name of the Framework, and the UID of the ConfigMap of the attempt that controls the Pod."""
    for reference in metadata.get("ownerReferences") or ():
        if reference.get("controller") is True:
            framework = names.framework_of(reference["name"])
            kind = reference["apiVersion"], reference["kind"], reference["name"]
            if kind == ("v1", "ConfigMap", names.configmap_name(framework)):
                return framework, reference["uid"]
    return None


def _claims(token: str) -> _Claims | None:
    """The claims of an unchecked token; None if it cannot be one of a Pod for this server."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = orjson.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        bound = claims["kubernetes.io"]
        audiences = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
        fits = names.PROGRESS_AUDIENCE in audiences and bound["pod"]["uid"] and isinstance(bound["namespace"], str)
        return _Claims(bound["namespace"], float(claims["exp"])) if fits else None
    except (binascii.Error, ValueError, TypeError, LookupError):
        return None
