"""List and watch as a state machine, which names the next request and gets the result. Pure; no clock, no I/O.

    Listing
       ├─ page, more to come ──▶ Listing (the next page)
       ├─ last page ──▶ Watching (from the version of the list); objects that were not listed are deleted
       ├─ token expired ──▶ Listing from the start, in one page; after a wait if it recurs
       ├─ page of another version ──▶ Waiting ▶ Listing from the start, in one page
       ├─ list older than the known version, request rejected ──▶ Waiting ▶ Listing from the start
       └─ any other failure ──▶ Waiting ▶ Listing (the same page)
    Watching
       ├─ event, bookmark ──▶ Watching (from its version)
       ├─ closed, silent ──▶ Watching (same version); after a wait if it recurs
       ├─ version expired ──▶ Listing; after a wait if it recurs
       ├─ event older than the known version, unreadable line, version from the future, request rejected,
       │  resource type not served, 5xx as an event ──▶ Waiting ▶ Listing
       └─ any other failure ──▶ Waiting ▶ Watching (same version)

Three rules hold everywhere:

- Consecutive failures back off. Only a watch that lasts ends the sequence. Each ordinary kind of failure is retried
  without a wait once in a sequence. A watch that the server closes after it brought news (as a server does with slow
  watchers) is always reopened at once.
- The version only moves forward, unless the server insists (it was restored from a backup).
- ``Retry-After`` of a throttling server is obeyed; from a failing server, only up to the maximum back-off.

Every list is a consistent read, without a resourceVersion. With ``resourceVersion=0`` the server may answer from a
cache that is older than the writes of this controller before its restart, and a new process could not detect that.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from frameworkcontroller.backoff import Backoff
from frameworkcontroller.kube.errors import ApiError, KubeError, ResourceExpired, SilenceError

BACKOFF: Final = Backoff(base=0.5, maximum=5.0)
# A watch that lasted this long ends a sequence of failures. A successful list does not: otherwise a server that closes
# every watch, or expires every version, at once would be asked in a tight loop.
STEADY_SECONDS: Final = 10.0
# After this many consecutive lists that are older than the known version, the server is assumed to have been restored.
STALE_LISTS_BELIEVED: Final = 6


@dataclass(frozen=True, slots=True)
class Listing:
    """Get a page of the list: the first if ``token`` is None; the whole list unless ``paged``.

    ``resource_version``: of earlier pages.
    """

    token: str | None = None
    resource_version: str | None = None
    paged: bool = True


@dataclass(frozen=True, slots=True)
class Watching:
    """Watch for events after ``resource_version``, up to which all changes are known."""

    resource_version: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """Send nothing for ``seconds``, then continue with ``then``."""

    seconds: float
    then: Listing | Watching


State = Listing | Watching | Waiting


class Failure(Enum):
    """Why a list or a watch ended. The values are labels of metrics."""

    CLOSED = "closed"  # the server ended the watch, as it does every few minutes
    SILENT = "silent"  # a watch was silent for too long: probably a dead connection
    EXPIRED = "expired"  # 410: the version or the token is older than the server's history
    AHEAD = "ahead"  # the server has not reached this version: it lost part of its history
    STALE = "stale"  # a list is older than the known version
    REPLAYED = "replayed"  # an event is older than the known version
    INCONSISTENT = "inconsistent"  # the pages of a list have different versions
    MALFORMED = "malformed"  # not the expected JSON: its content is lost
    REJECTED = "rejected"  # 4xx: the same request would fail again, for example with an unreadable version
    DENIED = "denied"  # 401, 403: may be granted later
    ABSENT = "absent"  # 404: the resource type is not served
    THROTTLED = "throttled"  # 429
    FAILED = "failed"  # 5xx
    UNTOLD = "untold"  # 5xx as an event of a watch: the event is lost, and a new watch would fail at it again
    BROKEN = "broken"  # connection refused, reset or cut
    RELIST = "relist"  # not a failure: a fresh list was requested


_BY_CODE: Final = {401: Failure.DENIED, 403: Failure.DENIED, 404: Failure.ABSENT, 429: Failure.THROTTLED}


def classify(error: KubeError) -> Failure:
    """Return the kind of failure that an error of the client is."""
    if isinstance(error, SilenceError):
        return Failure.SILENT
    if not isinstance(error, ApiError):
        return Failure.BROKEN
    if isinstance(error, ResourceExpired):
        return Failure.EXPIRED
    if error.has_cause("ResourceVersionTooLarge"):
        return Failure.AHEAD
    return _BY_CODE.get(error.code) or (Failure.REJECTED if 400 <= error.code < 500 else Failure.FAILED)


class PageVerdict(NamedTuple):
    """How to handle a page.

    ``accept``: apply its objects. ``complete``: if not None, the list is complete, and these are the keys of all
    existing objects.
    """

    accept: bool
    complete: Collection[str] | None = None


# Ordinary ends. Each is retried without a wait once in a sequence of failures.
_ORDINARY: Final = frozenset({Failure.CLOSED, Failure.SILENT, Failure.EXPIRED, Failure.RELIST})
# After these, the same watch can be opened again. After others it would fail again, or not bring the missed events.
_KEEPS_VERSION: Final = frozenset(
    {Failure.CLOSED, Failure.SILENT, Failure.DENIED, Failure.THROTTLED, Failure.FAILED, Failure.BROKEN}
)
# After these, a request with the same token would fail again.
_NEEDS_FIRST_PAGE: Final = frozenset({Failure.AHEAD, Failure.REJECTED, Failure.RELIST})


class Reflector:
    """The state of one list-and-watch. Carry out ``state``, then call exactly one of the ``on_`` methods."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.last_version: str | None = None
        """The resourceVersion up to which all changes are known, or were known before the current list."""
        self._seen: set[str] = set()
        self._stale_lists = 0
        # Failures in the current sequence: those retried at once, and the number of the others.
        self._excused: set[Failure] = set()
        self._failures = 0
        self._brought_news = False
        self.state: State = Listing()
        self.last_failure: Failure | None = None

    def on_wait_over(self) -> None:
        if not isinstance(self.state, Waiting):
            raise AssertionError(f"not waiting in {self.state}")
        self.state = self.state.then

    def on_page(self, keys: Iterable[str], resource_version: str, token: str | None) -> PageVerdict:
        """A page arrived with the objects of these keys. ``token``: of the next page, if there is one."""
        state = self.state
        if not isinstance(state, Listing):
            raise AssertionError(f"unexpected page in {state}")
        if state.resource_version is None:
            if is_older(resource_version, self.last_version):
                self._stale_lists += 1
                if self._stale_lists < STALE_LISTS_BELIEVED:
                    self._fail(Failure.STALE, Listing())
                    return PageVerdict(accept=False)
            self._seen = set()
        elif resource_version != state.resource_version:
            self._fail(Failure.INCONSISTENT, Listing(paged=False))
            return PageVerdict(accept=False)
        self._seen.update(keys)
        if token:
            self.state = Listing(token, resource_version, state.paged)
            return PageVerdict(accept=True)
        seen, self._seen = self._seen, set()
        self._stale_lists = 0
        self.last_version = resource_version
        self.state = Watching(resource_version)
        return PageVerdict(accept=True, complete=seen)

    def on_event(self, resource_version: str) -> bool:
        """An event or bookmark arrived. Return False if it is older than the known version: report REPLAYED then.

        Such an event is either a replay by a server that lags, and must not be applied, or news from a server that was
        restored from a backup, and must not be dropped. A fresh list decides.
        """
        state = self.state
        if not isinstance(state, Watching):
            raise AssertionError(f"unexpected event in {state}")
        if is_older(resource_version, state.resource_version):
            return False
        if resource_version != state.resource_version:
            self.state = Watching(resource_version)
            self.last_version = resource_version
            self._brought_news = True
        return True

    def on_failure(self, failure: Failure, *, retry_after: float | None = None, lived: float = 0.0) -> None:
        """The request failed, or the watch ended after ``lived`` seconds."""
        state = self.state
        if isinstance(state, Waiting):
            raise AssertionError(f"unexpected {failure} in {state}")
        if lived >= STEADY_SECONDS:
            self._failures = 0
            self._excused.clear()
        brought_news, self._brought_news = self._brought_news, False
        if failure is Failure.CLOSED and brought_news:
            self.last_failure = failure
            return
        then: Listing | Watching
        if isinstance(state, Watching):
            then = state if failure in _KEEPS_VERSION else Listing()
        elif failure is Failure.EXPIRED:
            # A list in one page cannot expire, however short the server's history is.
            then = Listing(paged=False)
        elif failure in _NEEDS_FIRST_PAGE:
            then = Listing()
        else:
            then = state
        self._fail(failure, then, retry_after)

    def _fail(self, failure: Failure, then: Listing | Watching, retry_after: float | None = None) -> None:
        self.last_failure = failure
        if retry_after is not None and failure is not Failure.THROTTLED:
            retry_after = min(retry_after, BACKOFF.maximum)
        if failure in _ORDINARY and failure not in self._excused:
            self._excused.add(failure)
            seconds = retry_after or 0.0
        else:
            self._failures += 1
            seconds = max(BACKOFF.delay(self._failures, self._rng), retry_after or 0.0)
        self.state = Waiting(seconds, then) if seconds > 0 else then


def is_older(version: str, than: str | None) -> bool:
    """Return whether a resourceVersion is older than another; False if they are not comparable.

    Source: KEP-5504, by which resourceVersions are increasing decimal numbers, as all known API servers have them.
    """
    if than is None or version == than:
        return False
    if not (version.isdecimal() and than.isdecimal()):
        return False
    return int(version) < int(than)
