"""List-and-watch as a state machine: what happened goes in, what to do next comes out. Pure; no clock, no I/O.

    Listing
       ├─ page, more to come ──▶ Listing (the next page)
       ├─ last page ──▶ Watching (from the list's version); what was not listed has vanished
       ├─ token expired ──▶ Listing from the start, in one page; Pausing first if it keeps happening
       ├─ page of another version ──▶ Pausing ▶ Listing from the start, in one page
       ├─ list older than what is known, request refused as wrong ──▶ Pausing ▶ Listing from the start
       └─ any other failure ──▶ Pausing ▶ Listing (the same page)
    Watching
       ├─ event, bookmark ──▶ Watching (from its version)
       ├─ closed, gone silent ──▶ Watching (same version); Pausing first if it keeps happening
       ├─ version expired ──▶ Listing; Pausing first if it keeps happening
       ├─ event older than what is known, line unreadable, version from the future, request refused as wrong,
       │  resource type gone, 5xx as an event ──▶ Pausing ▶ Listing
       └─ any other failure ──▶ Pausing ▶ Watching (same version)

Three rules hold everywhere. In a row of failures, which only a watch that lasts can end, each kind is followed by a
request at once at most one time, and the pauses double; but a server that closes a watch which brought something new
(as it does with one that is slower than what happens) is asked for the rest at once, every time. The version only
moves forward, unless the server insists (it was restored from a backup). A throttling server's ``Retry-After`` is
obeyed; a failing one's (such as "starting, come back in 10 s") no longer than the longest pause.

Lists are always consistent reads (no resourceVersion is asked for), also the first one: with ``resourceVersion=0`` the
server may answer from a cache that is older than what this controller wrote, or acted on, before it was restarted, and
a fresh process has no memory to tell that from the present.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from frameworkcontroller.backoff import Backoff
from frameworkcontroller.kube.errors import ApiError, Gone, KubeError, SilenceError, TransportError

BACKOFF: Final = Backoff(base=0.5, maximum=5.0)
# A watch that lasted this long ends a row of failures. Anything shorter, a successful list included, does not: else a
# server that closes each watch, or expires each version, at once would be asked in a tight circle.
STEADY_SECONDS: Final = 10.0
# So many lists in a row that are older than what was seen before are believed: then it is the world that went back.
STALE_LISTS_BELIEVED: Final = 6


@dataclass(frozen=True, slots=True)
class FetchPage:
    """Ask for a page of the list: the first one if ``token`` is None, and all of the list if not ``paged``."""

    token: str | None
    paged: bool


@dataclass(frozen=True, slots=True)
class OpenWatch:
    """Watch for what happened after ``resource_version``."""

    resource_version: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Do nothing for so many seconds."""

    seconds: float


Instruction = FetchPage | OpenWatch | Pause


@dataclass(frozen=True, slots=True)
class Listing:
    """A page is wanted: the first one if ``token`` is None. ``resource_version`` is that of the pages before it."""

    token: str | None = None
    resource_version: str | None = None
    paged: bool = True


@dataclass(frozen=True, slots=True)
class Watching:
    """A watch is wanted, or open, and everything up to ``resource_version`` is known."""

    resource_version: str


@dataclass(frozen=True, slots=True)
class Pausing:
    """Waiting before ``then``."""

    seconds: float
    then: Listing | Watching


State = Listing | Watching | Pausing


class Failure(Enum):
    """Why a list or a watch did not go on; each has its place in the transitions above."""

    CLOSED = "closed"  # the server ended the watch, as it does every few minutes
    SILENT = "silent"  # a watch said nothing for longer than it may: probably a dead connection
    EXPIRED = "expired"  # 410: the version or the token is older than the server's history
    AHEAD = "ahead"  # the server has not reached this version, and does not soon: it lost some of its history
    STALE = "stale"  # a list is older than what is known
    REPLAYED = "replayed"  # an event is older than what is known
    INCONSISTENT = "inconsistent"  # the pages of a list are of different versions
    MALFORMED = "malformed"  # not the JSON that it must be: what it would have said is lost
    REJECTED = "rejected"  # 4xx: the request is wrong as it is, such as a version that the server cannot read
    DENIED = "denied"  # 401, 403: may be granted (again) later
    ABSENT = "absent"  # 404: the resource type is not served (yet, or any more)
    THROTTLED = "throttled"  # 429
    FAILED = "failed"  # 5xx
    UNTOLD = "untold"  # 5xx said within a watch: what there was to tell cannot be told, nor if it is asked for again
    BROKEN = "broken"  # connection refused, reset or cut
    RELIST = "relist"  # not a failure: somebody asked for a fresh list


def classify(error: KubeError) -> Failure:
    """What an error of the client means for a list or a watch."""
    if isinstance(error, SilenceError):
        return Failure.SILENT
    if isinstance(error, TransportError) or not isinstance(error, ApiError):
        return Failure.BROKEN
    if isinstance(error, Gone):
        return Failure.EXPIRED
    if error.has_cause("ResourceVersionTooLarge"):
        return Failure.AHEAD
    if error.code in (401, 403):
        return Failure.DENIED
    if error.code == 404:
        return Failure.ABSENT
    if error.code == 429:
        return Failure.THROTTLED
    return Failure.REJECTED if 400 <= error.code < 500 else Failure.FAILED


class PageVerdict(NamedTuple):
    """What to do with a page: whether to take over its objects, and whether the list is complete with it.

    If ``complete`` is not None, whatever is cached and not among these keys has vanished.
    """

    accept: bool
    complete: Collection[str] | None


_DISCARD: Final = PageVerdict(accept=False, complete=None)
_ACCEPT: Final = PageVerdict(accept=True, complete=None)
# Ordinary ends, each of which is excused once in a row of failures: then the next request follows at once.
_ORDINARY: Final = frozenset({Failure.CLOSED, Failure.SILENT, Failure.EXPIRED, Failure.RELIST})
# After these a watch from the same version would fail again, or would not bring what was missed.
_NEEDS_LIST: Final = frozenset(
    {
        Failure.EXPIRED,
        Failure.AHEAD,
        Failure.REPLAYED,
        Failure.MALFORMED,
        Failure.REJECTED,
        Failure.ABSENT,
        Failure.UNTOLD,
        Failure.RELIST,
    }
)
# After these, asking for the next page by the same token would fail again.
_NEEDS_FIRST_PAGE: Final = frozenset({Failure.AHEAD, Failure.REJECTED, Failure.RELIST})


class WatchMachine:
    """Follow ``instruction``, and report what came of it by exactly one of the ``on_`` methods."""

    def __init__(
        self, rng: random.Random, *, backoff: Backoff = BACKOFF, steady_seconds: float = STEADY_SECONDS
    ) -> None:
        self._rng = rng
        self._backoff = backoff
        self._steady_seconds = steady_seconds
        self._newest: str | None = None
        self._seen: set[str] = set()
        self._stale_lists = 0
        self._excused: set[Failure] = set()
        self._brought_news = False
        self.state: State = Listing()
        self.synced = False
        """Whether a list has ever been completed."""
        self.failures = 0
        """Failures in a row that were not excused, since a watch last stayed for long."""
        self.last_failure: Failure | None = None

    @property
    def newest(self) -> str | None:
        """The resourceVersion up to which everything is known, or was before the list that is under way."""
        return self._newest

    @property
    def instruction(self) -> Instruction:
        """What to do now."""
        match self.state:
            case Listing(token=token, paged=paged):
                return FetchPage(token, paged)
            case Watching(resource_version=version):
                return OpenWatch(version)
            case Pausing(seconds=seconds):
                return Pause(seconds)

    def on_pause_over(self) -> None:
        """The pause has passed."""
        if not isinstance(self.state, Pausing):
            raise AssertionError(f"no pause to end in {self.state}")
        self.state = self.state.then

    def on_page(self, keys: Iterable[str], resource_version: str, token: str | None) -> PageVerdict:
        """The page that was asked for has come, with these keys. ``token`` leads to the next page, if there is one."""
        state = self.state
        if not isinstance(state, Listing):
            raise AssertionError(f"a page came unasked in {state}")
        if state.resource_version is None:
            if is_older(resource_version, self._newest):
                self._stale_lists += 1
                if self._stale_lists < STALE_LISTS_BELIEVED:
                    self._fail(Failure.STALE, Listing())
                    return _DISCARD
            self._seen = set()
        elif resource_version != state.resource_version:
            self._fail(Failure.INCONSISTENT, Listing(paged=False))
            return _DISCARD
        self._seen.update(keys)
        if token:
            self.state = Listing(token, resource_version, state.paged)
            return _ACCEPT
        seen, self._seen = self._seen, set()
        self._stale_lists = 0
        self._newest = resource_version
        self.synced = True
        self.state = Watching(resource_version)
        return PageVerdict(accept=True, complete=seen)

    def on_event(self, resource_version: str) -> bool:
        """An event or bookmark of this version came. False if it is older than what is known: report it as REPLAYED.

        Such an event must not be applied (it is a replay, from a server that is behind), nor may it be dropped with
        nothing else done (it may be news from a server that was restored from a backup): a fresh list tells.
        """
        state = self.state
        if not isinstance(state, Watching):
            raise AssertionError(f"an event came unasked in {state}")
        if is_older(resource_version, state.resource_version):
            return False
        if resource_version != state.resource_version:
            self.state = Watching(resource_version)
            self._newest = resource_version
            self._brought_news = True
        return True

    def on_failure(self, failure: Failure, *, retry_after: float | None = None, lived: float = 0.0) -> None:
        """The request failed, or the watch ended. ``lived`` is for how many seconds a watch was open."""
        state = self.state
        if isinstance(state, Pausing):
            raise AssertionError(f"{failure} came unasked in {state}")
        if lived >= self._steady_seconds:
            self.failures = 0
            self._excused.clear()
        brought_news, self._brought_news = self._brought_news, False
        if failure is Failure.CLOSED and brought_news:
            self.last_failure = failure
            return
        then: Listing | Watching
        if isinstance(state, Watching):
            then = Listing() if failure in _NEEDS_LIST else state
        elif failure is Failure.EXPIRED:
            # One page cannot expire between pages: however short the server's history, this list comes to its end.
            then = Listing(paged=False)
        elif failure in _NEEDS_FIRST_PAGE:
            then = Listing()
        else:
            then = state
        self._fail(failure, then, retry_after)

    def _fail(self, failure: Failure, then: Listing | Watching, retry_after: float | None = None) -> None:
        self.last_failure = failure
        if retry_after is not None and failure is not Failure.THROTTLED:
            retry_after = min(retry_after, self._backoff.maximum)
        if failure in _ORDINARY and failure not in self._excused:
            self._excused.add(failure)
            seconds = retry_after or 0.0
        else:
            self.failures += 1
            seconds = max(self._backoff.delay(self.failures, self._rng), retry_after or 0.0)
        self.state = Pausing(seconds, then) if seconds > 0 else then


def is_older(version: str, than: str | None) -> bool:
    """Whether a resourceVersion is older than another; False if they are not the numbers that can be compared.

    They are decimal numbers in order on every API server there is (KEP-5504 makes that a promise); one that does
    otherwise loses this protection and nothing else.
    """
    if than is None or version == than:
        return False
    if not (version.isdecimal() and than.isdecimal()):
        return False
    return int(version) < int(than)
