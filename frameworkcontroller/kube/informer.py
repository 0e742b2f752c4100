"""An always current local copy of a collection: drives the watch machine over the network, into a store."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.deepjson import NestedTooDeeply, was_cut, without_depths
from frameworkcontroller.kube.deltaprocessor import Identity, Replica, identify
from frameworkcontroller.kube.errors import ApiError, KubeError, error_from_status
from frameworkcontroller.kube.gcpause import gc_paused
from frameworkcontroller.kube.indexer import Indexer, Item, Lister
from frameworkcontroller.kube.managedfields import loads_without_managed_fields
from frameworkcontroller.kube.reflector import Failure, FetchPage, OpenWatch, Pause, Pausing, WatchMachine, classify
from frameworkcontroller.kube.resources import Resource

T = TypeVar("T", bound=Item)

_log: Final = logging.getLogger(__name__)

# Pages are sized by what the objects turn out to weigh, so that neither the time of parsing one (5 ms) nor the memory
# it takes meanwhile (ten times its bytes) depends on how large the objects are.
_FIRST_PAGE_ITEMS: Final = 50
_PAGE_BYTES: Final = 2**20
# For so long decoding may keep everything else waiting.
_SLICE_SECONDS: Final = 0.005
# The server is asked to end each watch after so many seconds, at random between these: connections get spread again
# over API servers that came back, and not all at once.
_WATCH_SECONDS: Final = (180, 300)
# Most servers send a bookmark every minute, so that silence for longer means a dead connection. Others (such as
# Kubernetes 1.20) send one only just before they end a watch: all that can be expected of those is that end. Which kind
# it is shows by the bookmarks, and until one has come by a watch that fell silent.
_HEARTBEAT_SECONDS: Final = 60
_SILENCE_SECONDS: Final = 90.0
_LATE_SECONDS: Final = 20.0


@dataclass(slots=True)
class InformerCounters:
    """What an informer has done since it was made. To be read at any time, e.g. when metrics are collected."""

    pages: int = 0
    lists: int = 0
    watches: int = 0
    events: int = 0
    bookmarks: int = 0
    unreadable: int = 0
    failures: dict[Failure, int] = field(default_factory=lambda: dict.fromkeys(Failure, 0))
    """Ends of watches and failed requests, by kind; CLOSED and RELIST are no trouble."""

    @property
    def total(self) -> int:
        """Grows with whatever happens: one that stays the same tells of an informer that does nothing."""
        return self.pages + self.watches + self.events + self.bookmarks + sum(self.failures.values())


class Informer(Generic[T]):
    """Lists and watches one collection, keeps ``store`` current and tells handlers what changed.

    ``decode`` gets one object as a parsed dict, its ``managedFields`` cut out. (Bytes would have to be parsed twice:
    the event's type and the object's version are needed first, and a page of a list is parsed in one go.) It must not
    keep the dict, which is some thirty times larger than a slotted record. What it raises concerns that object alone
    and goes to ``on_undecodable(key, error, object)``; ``on_undecodable_over(key)`` follows when that object can be
    read again or is gone.

    Handlers are plain functions that run right after the store has changed, in the order of the changes; see `Replica`.
    Before the first sync they are told of each object as added; later lists tell only what differs.
    """

    def __init__(
        self,
        client: KubeClient,
        resource: Resource,
        decode: Callable[[dict[str, Any]], T],
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        page_size: int = 500,
        indexers: Mapping[str, Callable[[T], Iterable[Hashable]]] | None = None,
        rng: random.Random | None = None,
        on_undecodable: Callable[[str, Exception, dict[str, Any]], None] | None = None,
        on_undecodable_over: Callable[[str], None] | None = None,
        relist_seconds: Callable[[int], float] | None = None,
        on_deleted_object: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        """``page_size`` is the most objects per page. ``relist_seconds``: list anew after so long, given how many
        objects there are, against a server whose watches lose events; None never does. ``on_deleted_object`` gets each
        object that the watch reports as deleted, whole, before the handlers do (what vanished while nobody watched is
        not among them).
        """
        self.resource = resource
        self._on_deleted_object = on_deleted_object
        self.counters = InformerCounters()
        self._client = client
        self._namespace = namespace
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._page_size = page_size
        self._rng = rng if rng is not None else random.Random()
        self._relist_seconds = relist_seconds
        indexer: Indexer[T] = Indexer(indexers)
        self._replica = Replica(
            decode, indexer, on_unreadable=self._counted(on_undecodable), on_unreadable_over=on_undecodable_over
        )
        self._machine = WatchMachine(self._rng)
        self._synced = asyncio.Event()
        self._page_items = min(_FIRST_PAGE_ITEMS, page_size)
        self._relist_wanted = False
        self._relist_at: float | None = None
        self._listing_since = -math.inf
        self._listed_since = -math.inf
        self._watching: asyncio.Timeout | None = None
        self._heartbeats = True
        self._heartbeats_until = 0.0
        self._trouble: Failure | None = None
        self._trouble_since = 0.0
        self._running = False

    @property
    def lister(self) -> Lister[T]:
        """The copy, to be read only."""
        return self._replica.indexer

    @property
    def synced(self) -> bool:
        """Whether a whole list has been in the store, and handlers been told of it, at least once."""
        return self._synced.is_set()

    @property
    def running(self) -> bool:
        """Whether `run` is under way."""
        return self._running

    @property
    def pausing(self) -> bool:
        """Whether it waits, on purpose, before it asks the server again."""
        return isinstance(self._machine.state, Pausing)

    @property
    def listed_since(self) -> float:
        """When (the loop's time) the last whole list was asked for: the copy shows all that was there then."""
        return self._listed_since

    async def wait_synced(self) -> None:
        """Wait until `synced`."""
        await self._synced.wait()

    def add_handler(
        self,
        *,
        on_add: Callable[[T], None] | None = None,
        on_update: Callable[[T, T], None] | None = None,
        on_delete: Callable[[T, T | None], None] | None = None,
    ) -> None:
        """Have ``on_add(new)``, ``on_update(old, new)`` and ``on_delete(old, final)`` called at each change.

        ``final`` is the last state, from the event that told of the deletion; None if that was missed (a list without
        the object told). What is in the store already is told as added at once.
        """
        if on_add is not None:
            self._replica.on_add.append(on_add)
            for item in list(self.lister.values()):
                on_add(item)
        if on_update is not None:
            self._replica.on_update.append(on_update)
        if on_delete is not None:
            self._replica.on_delete.append(on_delete)

    def relist(self) -> None:
        """Compare with the server soon: for somebody who has seen that the copy is wrong. Repeated wishes are one."""
        self._relist_wanted = True
        if self._watching is not None and not self._watching.expired():
            self._watching.reschedule(asyncio.get_running_loop().time())

    def reset(self) -> None:
        """Forget everything, telling no handler: the next ``run`` starts as if it were the first.

        Raises RuntimeError if it is running.
        """
        if self._running:
            raise RuntimeError(f"the informer of {self.resource.qualified} is running")
        self._replica.clear()
        self._synced.clear()

    async def run(self) -> None:
        """Keep the store current until cancelled. Trouble with the server is logged and waited out, never raised.

        May be run again after it was cancelled; it then lists anew. Raises RuntimeError if it is running already.
        """
        if self._running:
            raise RuntimeError(f"the informer of {self.resource.qualified} is running already")
        self._running = True
        # A page that was being taken over when the last run was cancelled is lost: begin from the beginning.
        self._machine = WatchMachine(self._rng)
        try:
            while True:
                match self._machine.instruction:
                    case Pause(seconds=seconds):
                        await asyncio.sleep(seconds)
                        self._machine.on_pause_over()
                    case FetchPage(token=token, paged=paged):
                        await self._fetch(token, paged=paged)
                    case OpenWatch(resource_version=version):
                        await self._watch(version)
        finally:
            self._running = False

    async def _fetch(self, token: str | None, *, paged: bool) -> None:
        if token is None:
            self._relist_wanted = False
            self._listing_since = asyncio.get_running_loop().time()
        try:
            body = await self._client.list(
                self.resource,
                self._namespace,
                label_selector=self._label_selector,
                field_selector=self._field_selector,
                limit=self._page_items if paged else None,
                continue_token=token,
            )
        except KubeError as error:
            self._failed(classify(error), error)
            return
        self.counters.pages += 1
        with gc_paused():
            await self._take_page(body)

    async def _take_page(self, body: bytes) -> None:
        try:
            page, whole = _parse(body)
            version, token = page["metadata"]["resourceVersion"], page["metadata"].get("continue")
            if not (isinstance(version, str) and version):
                raise ValueError("the list has no resourceVersion")
            objects = page.get("items") or []
            identities = [identify(obj) for obj in objects]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self._failed(Failure.MALFORMED, error)
            return
        if objects:
            fitting = _PAGE_BYTES * len(objects) // len(body)
            self._page_items = max(1, min(self._page_size, fitting))
        verdict = self._machine.on_page([identity.key for identity in identities], version, token)
        if not verdict.accept:
            self._report(self._machine.last_failure or Failure.STALE, f"resourceVersion {version}")
            return
        clock = asyncio.get_running_loop().time
        slice_ends = 0.0  # parsing has taken as long as a slice
        for number, identity in enumerate(identities):
            if number % 16 == 0 and clock() >= slice_ends:
                await asyncio.sleep(0)
                slice_ends = clock() + _SLICE_SECONDS
            self._observe(identity, objects[number], whole=whole)
            objects[number] = None  # freed little by little, not with the page all at once
        if verdict.complete is not None:
            self._replica.retain(verdict.complete)
            self.counters.lists += 1
            self._listed_since = self._listing_since
            if self._relist_seconds is not None:
                self._relist_at = clock() + self._relist_seconds(len(self.lister)) * self._rng.uniform(0.8, 1.2)
            self._synced.set()

    async def _watch(self, version: str) -> None:
        if self._relist_wanted:
            self._failed(Failure.RELIST, None)
            return
        clock = asyncio.get_running_loop().time
        seconds = self._rng.randint(*_WATCH_SECONDS)
        self._heartbeats_until = clock() + seconds - _HEARTBEAT_SECONDS
        opened: float | None = None
        failure = Failure.CLOSED
        cause: Exception | None = None
        try:
            async with asyncio.timeout_at(self._relist_at) as self._watching:
                async with self._client.watch(
                    self.resource,
                    self._namespace,
                    resource_version=version,
                    label_selector=self._label_selector,
                    field_selector=self._field_selector,
                    timeout_seconds=seconds,
                    silence=_SILENCE_SECONDS if self._heartbeats else seconds + _LATE_SECONDS,
                ) as lines:
                    opened = clock()
                    self.counters.watches += 1
                    self._recovered()
                    async for line in lines:
                        try:
                            self._take_line(line)
                        except _WatchEnded as ended:
                            failure, cause = ended.failure, ended.cause
                            break
        except TimeoutError:
            failure = Failure.RELIST
        except KubeError as error:
            failure, cause = classify(error), error
        finally:
            self._watching = None
        if failure is Failure.SILENT:
            self._heartbeats = False
        self._failed(failure, cause, lived=0.0 if opened is None else clock() - opened)

    def _take_line(self, line: bytes) -> None:
        """Raises _WatchEnded if the watch cannot go on after this line."""
        try:
            event, whole = _parse(line)
            kind, obj = event["type"], event["object"]
            if kind == "ERROR":
                raise _WatchEnded.by(error_from_status(obj))
            if kind == "BOOKMARK":
                version = obj["metadata"]["resourceVersion"]
                if not (isinstance(version, str) and version):
                    raise ValueError("the bookmark has no resourceVersion")
                self.counters.bookmarks += 1
                if asyncio.get_running_loop().time() < self._heartbeats_until:
                    self._heartbeats = True
                if not self._machine.on_event(version):
                    raise _WatchEnded(Failure.REPLAYED, None)
                return
            if kind not in ("ADDED", "MODIFIED", "DELETED"):
                raise ValueError(f"unknown type of event: {kind!r}")
            identity = identify(obj)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _WatchEnded(Failure.MALFORMED, error) from error
        self.counters.events += 1
        if not self._machine.on_event(identity.resource_version):
            raise _WatchEnded(Failure.REPLAYED, None)
        if kind == "DELETED":
            if self._on_deleted_object is not None:
                try:
                    self._on_deleted_object(obj)
                except Exception:  # noqa: BLE001 - it is logged, and must not stop what all others live on
                    _log.exception("Handler failed")
            self._replica.remove(identity, obj)
        else:
            self._observe(identity, obj, whole=whole)

    def _observe(self, identity: Identity, obj: dict[str, Any], *, whole: bool) -> None:
        if not whole and was_cut(obj):
            self._replica.reject(identity, NestedTooDeeply(), obj)
        else:
            self._replica.observe(identity, obj)

    def _failed(self, failure: Failure, cause: Exception | None, *, lived: float = 0.0) -> None:
        retry_after = cause.retry_after if isinstance(cause, ApiError) else None
        self._machine.on_failure(failure, retry_after=retry_after, lived=lived)
        self._report(failure, cause)

    def _report(self, failure: Failure, cause: object) -> None:
        self.counters.failures[failure] += 1
        state = self._machine.state
        if not isinstance(state, Pausing) or failure is self._trouble:
            return
        # One line when trouble begins or becomes another, however long it lasts; see also _recovered.
        if self._trouble is None:
            self._trouble_since = asyncio.get_running_loop().time()
        self._trouble = failure
        _log.warning(
            "Cannot follow %s (%s), the last known state stays in use; trying again in %.1f s and from then on: %s",
            self.resource.qualified,
            failure.value,
            state.seconds,
            cause if cause is not None else "no more is known",
        )

    def _recovered(self) -> None:
        if self._trouble is not None:
            self._trouble = None
            _log.info(
                "Following %s again after %.1f s",
                self.resource.qualified,
                asyncio.get_running_loop().time() - self._trouble_since,
            )

    def _counted(
        self, on_undecodable: Callable[[str, Exception, dict[str, Any]], None] | None
    ) -> Callable[[str, Exception, dict[str, Any]], None]:
        def counted(key: str, error: Exception, obj: dict[str, Any]) -> None:
            self.counters.unreadable += 1
            if on_undecodable is not None:
                on_undecodable(key, error, obj)
            else:
                _log.warning(
                    "Cannot read an object of %s: %s: %s: %s", self.resource.qualified, key, type(error).__name__, error
                )

        return counted


def _parse(data: bytes) -> tuple[Any, bool]:
    """What the server sent, and whether that is all of it; see `deepjson`. Raises ValueError if it is not JSON."""
    try:
        return loads_without_managed_fields(data), True
    except ValueError:
        shallow = without_depths(data)
        if shallow is data:
            raise
    return loads_without_managed_fields(shallow), False


class _WatchEnded(Exception):
    """A line after which the watch is of no use."""

    def __init__(self, failure: Failure, cause: Exception | None) -> None:
        super().__init__(failure.value)
        self.failure = failure
        self.cause = cause

    @classmethod
    def by(cls, error: KubeError) -> _WatchEnded:
        failure = classify(error)
        return cls(Failure.UNTOLD if failure is Failure.FAILED else failure, error)
