"""Kubernetes Events of Frameworks: the story that `kubectl describe` tells, out of the same records as the log lines.

Events are news, not records: one that cannot be told is counted and dropped, and nothing ever waits for one. They are
about Frameworks alone: clients keep the Events of Pods that are named like a Task's for their own story of it.

What single Tasks do is told for many at once: such records are held for a second, for twice as long each time while
they keep coming, and until something is told of the Framework as a whole, so that the order is that of what happened.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.backoff import Backoff
from frameworkcontroller.controller.eventcorrelator import CACHE_CAPACITY, Draft, EventCorrelator, Subject, Telling
from frameworkcontroller.kube.client import MERGE_PATCH, KubeClient
from frameworkcontroller.kube.errors import (
    AlreadyExists,
    ApiError,
    Forbidden,
    NotFound,
    ServerError,
    TooManyRequests,
    TransportError,
)
from frameworkcontroller.kube.resources import EVENTS
from frameworkcontroller.lru import LRUCache
from frameworkcontroller.machine.model import Record
from frameworkcontroller.machine.reasons import ABOUT, EventPolicy, Reason
from frameworkcontroller.machine.wording import brief

_log: Final = logging.getLogger(__name__)

COMPONENT: Final = "frameworkcontroller"
"""Who tells: what `kubectl describe` shows as From."""

QPS: Final = 20.0
BURST: Final = 100
"""A budget of their own, so that Events take nothing from what Frameworks are run with."""

MAX_QUEUED: Final = 1000
"""Events that wait to be sent; a controller that starts with thousands of stuck Frameworks has more to tell."""

MAX_MESSAGE_BYTES: Final = 1024
"""As the newer of the two APIs for Events (events.k8s.io) has it."""

HOLD_SEC: Final = 1.0
HOLD_MAX_SEC: Final = 300.0
QUIET_SEC: Final = 600.0
"""What Tasks do is held for so long, for twice as long each time up to the most, and anew after so long a silence."""

TRIES: Final = 12
RETRY: Final = Backoff(1.0, 10.0)
"""An Event that cannot be sent is tried so often, while those behind it wait, as client-go does."""

MUTE_SEC: Final = 60.0
"""A namespace that takes no Events (it is terminating, or RBAC forbids them) is not tried again for so long."""

_VITAL: Final = frozenset({Reason.FRAMEWORK_SUCCEEDED, Reason.FRAMEWORK_FAILED})
_TASKS_NAMED: Final = 5


@dataclass(slots=True)
class EventCounters:
    """What became of what was to be told. To be read at any time, e.g. when metrics are collected."""

    created: int = 0
    patched: int = 0
    rationed: int = 0
    """Not told, as too much was told of the Framework."""
    overflowed: int = 0
    """Not told, as too many others waited."""
    refused: int = 0
    """Not told, as the API server does not take it."""
    unsent: int = 0
    """Not told, as the API server could not be reached for long."""


@dataclass(slots=True)
class _Group:
    """What Tasks of one role did in the same way: the first record of the first few, and the indexes of the others."""

    first: dict[int | None, Record] = field(default_factory=dict)
    others: set[int | None] = field(default_factory=set)
    times: int = 0

    @property
    def warning(self) -> bool:
        return next(iter(self.first.values())).warning

    def add(self, record: Record) -> None:
        self.times += 1
        if record.index in self.first:
            return
        if len(self.first) < _TASKS_NAMED:
            self.first[record.index] = record
        else:
            self.others.add(record.index)


@dataclass(slots=True)
class _Held:
    """What the Tasks of one Framework did, still to be told."""

    groups: dict[tuple[Reason, str, str], _Group] = field(default_factory=dict)
    timer: asyncio.TimerHandle | None = None
    hold: float = HOLD_SEC
    last: float = float("-inf")


@dataclass(slots=True)
class _Letter:
    """An Event that waits to be sent. ``known``: the API server has one of its name."""

    telling: Telling
    known: bool


class EventBroadcaster:
    """Tells of Frameworks by Events. ``tell`` never waits and never fails; ``run`` sends."""

    def __init__(
        self, client: KubeClient, *, wall: Callable[[], float], rng: random.Random, instance: str = COMPONENT
    ) -> None:
        """``wall``: seconds since the epoch. ``instance``: which of several controllers tells."""
        self._client = client
        self._wall = wall
        self._rng = rng
        self._instance = instance
        self.counters = EventCounters()
        self._correlator = EventCorrelator(self._new_name)
        self._held: LRUCache[Subject, _Held] = LRUCache(CACHE_CAPACITY)
        self._queue: OrderedDict[str, _Letter] = OrderedDict()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._latest = 0
        self._overflowing = False
        self._muted: LRUCache[str, float] = LRUCache(CACHE_CAPACITY)
        self._silent: LRUCache[str, bool] = LRUCache(CACHE_CAPACITY)

    @property
    def is_full(self) -> bool:
        """Whether it remembers as many Events, and objects of Events, as it ever will (`CACHE_CAPACITY`)."""
        return self._correlator.is_full

    # --- what is to be told ---

    def tell(self, namespace: str, name: str, uid: str, records: Iterable[Record]) -> None:
        """Take in what happened to that Framework, in its order."""
        subject = Subject(namespace, name, uid)
        for record in records:
            told = ABOUT[record.reason].event
            if told is EventPolicy.NEVER or (told is EventPolicy.IF_WARNING and not record.warning):
                continue
            if record.role is None:
                held = self._held.get(subject)
                if held is not None:
                    self._flush(subject, held)
                vital = record.reason in _VITAL
                self._post(Draft(subject, record.reason, record.message, record.warning, vital=vital))
            else:
                self._hold(subject, record)

    def _hold(self, subject: Subject, record: Record) -> None:
        held = self._held.get(subject)
        if held is None:
            held = self._held.put(subject, _Held())
        now = self._wall()
        if now - held.last > QUIET_SEC:
            held.hold = HOLD_SEC
        held.last = now
        how = "" if record.completion is None else brief(record.completion)
        held.groups.setdefault((record.reason, record.role or "", how), _Group()).add(record)
        if held.timer is None:
            held.timer = asyncio.get_running_loop().call_later(held.hold, self._flush, subject, held)
            held.hold = min(HOLD_MAX_SEC, 2 * held.hold)

    def _flush(self, subject: Subject, held: _Held) -> None:
        if held.timer is not None:
            held.timer.cancel()
            held.timer = None
        groups, held.groups = held.groups, {}
        for (reason, role, how), group in groups.items():
            self._post(Draft(subject, reason, _words(reason, role, how, group), group.warning, minor=True))

    def _post(self, draft: Draft) -> None:
        now = self._wall()
        if (self._muted.get(draft.subject.namespace) or 0.0) > now:
            self.counters.refused += 1
            return
        telling = self._correlator.correlate(draft, now)
        if telling is None:
            self.counters.rationed += 1
            return
        waiting = self._queue.get(telling.name)
        if waiting is not None:
            waiting.telling = telling
        elif len(self._queue) >= MAX_QUEUED:
            self.counters.overflowed += 1
            if not self._overflowing:
                self._overflowing = True
                _log.warning("More than %d Events wait to be sent: more are dropped until there are fewer", MAX_QUEUED)
        else:
            self._queue[telling.name] = _Letter(telling, known=not telling.fresh)
            self._wake.set()
            self._idle.clear()

    # --- sending ---

    async def run(self) -> None:
        """Send what is to be told, one at a time, until cancelled."""
        while True:
            while self._queue:
                _, letter = self._queue.popitem(last=False)
                await self._deliver(letter)
            self._overflowing = False
            self._idle.set()
            self._wake.clear()
            await self._wake.wait()

    async def drain(self, seconds: float) -> None:
        """Wait until all that is to be told is sent (``run`` does that), but no longer than so many seconds."""
        for subject, held in self._held.items():
            self._flush(subject, held)
        try:
            await asyncio.wait_for(self._idle.wait(), seconds)
        except TimeoutError:
            _log.warning("%d Events were not sent in time", len(self._queue))

    async def _deliver(self, letter: _Letter) -> None:
        for tries in range(1, TRIES + 1):
            try:
                await self._send(letter)
            except (TransportError, ServerError, TooManyRequests) as error:
                if tries == TRIES:
                    self.counters.unsent += 1
                    self._say_once(letter, "Events cannot be sent", error)
                    return
                asked = error.retry_after if isinstance(error, ApiError) else None
                await asyncio.sleep(max(asked or 0.0, RETRY.delay(tries, self._rng)))
            except ApiError as error:
                self.counters.refused += 1
                self._refused(letter, error)
                return
            except Exception:  # noqa: BLE001 - whatever it is, it must not end the telling of all others
                self.counters.unsent += 1
                _log.exception("An Event cannot be sent")
                return
            else:
                self._silent.pop(letter.telling.draft.subject.namespace)
                return

    async def _send(self, letter: _Letter) -> None:
        telling = letter.telling
        namespace = telling.draft.subject.namespace
        if letter.known:
            change = {"count": telling.count, "message": _cut(telling.message), "lastTimestamp": _time(telling.last)}
            try:
                await self._client.patch(
                    EVENTS,
                    telling.name,
                    orjson.dumps(change),
                    namespace,
                    content_type=MERGE_PATCH,
                    metadata_only=True,
                )
            except NotFound:
                # API servers keep an Event for an hour.
                letter.known = False
            else:
                self.counters.patched += 1
                return
        # It may be there by an earlier request, whose answer was lost.
        with suppress(AlreadyExists):
            await self._client.create(EVENTS, orjson.dumps(self._body(telling)), namespace, metadata_only=True)
        self.counters.created += 1

    def _refused(self, letter: _Letter, error: ApiError) -> None:
        namespace = letter.telling.draft.subject.namespace
        if isinstance(error, Forbidden | NotFound):
            self._muted.put(namespace, self._wall() + MUTE_SEC)
            if error.has_cause("NamespaceTerminating") or isinstance(error, NotFound):
                what = "Events are not taken any more, as the namespace is being deleted"
            else:
                what = "Events may not be created or patched by this controller"
        else:
            what = "An Event is not taken"
        self._say_once(letter, what, error)

    def _say_once(self, letter: _Letter, what: str, error: Exception) -> None:
        """Until Events of that namespace can be sent again."""
        namespace = letter.telling.draft.subject.namespace
        if self._silent.get(namespace) is None:
            self._silent.put(namespace, True)
            _log.warning("[%s]: %s: %s", namespace, what, error)

    def _body(self, telling: Telling) -> dict[str, Any]:
        subject = telling.draft.subject
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": telling.name, "namespace": subject.namespace},
            "involvedObject": {
                "apiVersion": names.API_VERSION,
                "kind": names.KIND,
                "namespace": subject.namespace,
                "name": subject.name,
                "uid": subject.uid,
            },
            "type": "Warning" if telling.draft.warning else "Normal",
            "reason": telling.draft.reason,
            "message": _cut(telling.message),
            "count": telling.count,
            "firstTimestamp": _time(telling.first),
            "lastTimestamp": _time(telling.last),
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "reportingInstance": self._instance,
        }

    def _new_name(self, subject: Subject) -> str:
        """A name by which Events stand in the order in which they began, as lists of them do."""
        self._latest = max(self._latest + 1, int(self._wall() * 1e9))
        return f"{subject.name}.{self._latest:016x}"


def _words(reason: Reason, role: str, how: str, group: _Group) -> str:
    first = next(iter(group.first.values()))
    count = len(group.first) + len(group.others)
    if count == 1:
        often = f" ({group.times} times)" if group.times > 1 else ""
        return f"Task {role}[{first.index}]{often}: {first.message}"
    # In the order of their names, which is seldom that of what happened.
    named = sorted(group.first.values(), key=lambda record: record.index or 0)
    who = ", ".join(f"{role}[{record.index}]" for record in named)
    more = f" and {len(group.others)} more" if group.others else ""
    what = f"{count} Tasks of TaskRole {role} {ABOUT[reason].many} {how}"
    return f"{what}: {who}{more}; {role}[{first.index}]: {first.message}"


def _cut(text: str) -> str:
    encoded = text.encode("utf-8", "backslashreplace")
    if len(encoded) <= MAX_MESSAGE_BYTES:
        return encoded.decode()
    return encoded[: MAX_MESSAGE_BYTES - 3].decode("utf-8", "ignore") + "..."


def _time(seconds: float) -> str:
    return format_time(int(seconds))
