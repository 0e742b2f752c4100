"""Lists and watches a collection into an indexer: sends the requests of a reflector over the network."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from frameworkcontroller.depths import was_cut
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.deltaprocessor import DeltaProcessor, ObjectState, identify
from frameworkcontroller.kube.errors import AnswerTooLargeError, ApiError, KubeError, error_from_status
from frameworkcontroller.kube.indexer import Indexer, Item, Lister
from frameworkcontroller.kube.parsing import NestedTooDeeply, gc_paused, parse
from frameworkcontroller.kube.reflector import Failure, Listing, Reflector, Waiting, Watching, classify, is_older
from frameworkcontroller.kube.resources import Resource

T = TypeVar("T", bound=Item)

_log: Final = logging.getLogger(__name__)

# Pages are sized in bytes, which bounds the time (5 ms) and the memory (ten times its bytes) to parse one.
_FIRST_PAGE_ITEMS: Final = 50
_PAGE_BYTES: Final = 2**20
# Objects differ in size: a larger page is not read, but fewer objects.
_LARGEST_PAGE_BYTES: Final = 4 * _PAGE_BYTES
# Decoding yields to the event loop after this long.
_SLICE_SECONDS: Final = 0.005
# Watches end after a random time in this range, which spreads connections over API servers that have come back.
_WATCH_SECONDS: Final = (180, 300)
# Most servers send a bookmark every minute, and longer silence means a dead connection. Others (Kubernetes 1.20) send
# one only just before they end a watch. Bookmarks show which kind it is; until one arrives, silence does.
_HEARTBEAT_SECONDS: Final = 60
_SILENCE_SECONDS: Final = 90.0
_LATE_SECONDS: Final = 20.0
# The next watch opens within this time, or the cache may be behind.
_GAP_SECONDS: Final = 5.0
# A watch that reports a change later than this has lost it.
_LAG_SECONDS: Final = 30.0


@dataclass(slots=True)
class InformerCounters:
    """Totals of an informer, for metrics."""

    pages: int = 0
    lists: int = 0
    watches: int = 0
    events: int = 0
    bookmarks: int = 0
    undecodable: int = 0
    failures: dict[Failure, int] = field(default_factory=lambda: dict.fromkeys(Failure, 0))
    """Ends of watches and failed requests; CLOSED and RELIST are not errors."""

    @property
    def total(self) -> int:
        """A count of all activity: an informer whose total stays the same is idle or stuck."""
        return self.pages + self.watches + self.events + self.bookmarks + sum(self.failures.values())


class Informer(Generic[T]):
    """Lists and watches one collection, keeps an indexer current and calls event handlers.

    ``decode`` gets one object as a parsed dict without its ``managedFields``. It must not keep the dict, which is some
    thirty times larger than a slotted record. Its exceptions concern that object alone and go to
    ``on_undecodable(key, error, object)``.

    Handlers are plain functions that run right after each change of the indexer, in the order of the changes; see
    `DeltaProcessor`. The first list is a series of additions; later lists call handlers only for differences.
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
        index: Callable[[T], Hashable] | None = None,
        rng: random.Random | None = None,
        on_undecodable: Callable[[str, Exception, dict[str, Any]], None] | None = None,
        compare_seconds: Callable[[int], float] | None = None,
        on_deleted_object: Callable[[dict[str, Any]], None] | None = None,
        on_problem: Callable[[], None] | None = None,
        takes_cut: bool = False,
    ) -> None:
        """``index`` is that of the lister. ``page_size`` is the maximum number of objects per page. ``compare_seconds``
        returns, for a number of objects, the interval of comparisons, a guard against servers whose watches lose events
        (None: only those asked for). ``on_deleted_object`` gets the final state of each object whose deletion the watch
        reports, before the handlers. ``on_problem`` is called when ``problem`` gets another text. ``takes_cut``:
        ``decode`` accepts objects whose too deep values were cut off (depths.py).
        """
        self.resource = resource
        self._client = client
        self._selection: dict[str, Any] = {
            "namespace": namespace,
            "label_selector": label_selector,
            "field_selector": field_selector,
        }
        self._on_undecodable = on_undecodable
        self.counters = InformerCounters()
        self._page_size = page_size
        self._rng = rng if rng is not None else random.Random()
        self._compare_seconds = compare_seconds
        self._takes_cut = takes_cut
        indexer = Indexer(index)
        self.lister: Lister[T] = indexer
        """The read-only cache."""
        self._processor = DeltaProcessor(decode, indexer, self._undecodable, on_deleted_object)
        self._reflector = Reflector(self._rng)
        self._synced = asyncio.Event()
        self._page_items = min(_FIRST_PAGE_ITEMS, page_size)
        self._relist_wanted = False
        self._compare_at: float | None = None
        self._compare_rearmed = asyncio.Event()
        self._deleted: set[str] | None = None
        self._listing_since = -math.inf
        self._watching: asyncio.Timeout | None = None
        self._heartbeats = True
        self._heartbeats_until = 0.0
        self._failure: Failure | None = None
        self._failed_since = 0.0
        self._on_problem = on_problem
        self.problem = ""
        """Why listing or watching fails, "" while it works."""
        self._current_since: float | None = None
        self._interrupted_at: float | None = None
        self.running = False
        """True while `run` runs."""
        self.listed_since = -math.inf
        """The loop's time at which the last complete list was requested: the cache is at least that new."""

    @property
    def synced(self) -> bool:
        """True after the first complete list was passed to the handlers."""
        return self._synced.is_set()

    @property
    def backing_off(self) -> bool:
        return isinstance(self._reflector.state, Waiting)

    @property
    def failing_since(self) -> float | None:
        """The loop's time at which listing or watching began to fail; None while it works."""
        return self._failed_since if self.problem else None

    @property
    def current_since(self) -> float | None:
        """The loop's time since when the cache follows the server, None while it may not.

        A watch that the server ends is no interruption if the next one opens at once.
        """
        interrupted, now = self._interrupted_at, asyncio.get_running_loop().time()
        if interrupted is not None and now - interrupted > _GAP_SECONDS:
            self._current_since = None
        return self._current_since if self.running else None

    async def wait_synced(self) -> None:
        await self._synced.wait()

    def add_handler(
        self,
        *,
        on_add: Callable[[T], None] | None = None,
        on_update: Callable[[T, T], None] | None = None,
        on_delete: Callable[[T, T | None], None] | None = None,
        on_listed: Callable[[], None] | None = None,
    ) -> None:
        """Register ``on_add(new)``, ``on_update(old, new)``, ``on_delete(old, final)`` and ``on_listed()``.

        ``final`` is the object in the deletion event, or None if that event was missed (client-go's
        DeletedFinalStateUnknown). For each cached object, ``on_add`` is called at once. ``on_listed`` follows the
        changes of each complete list, and a comparison that has found none.
        """
        if on_add is not None:
            self._processor.on_add.append(on_add)
            for item in list(self.lister.values()):
                on_add(item)
        if on_update is not None:
            self._processor.on_update.append(on_update)
        if on_delete is not None:
            self._processor.on_delete.append(on_delete)
        if on_listed is not None:
            self._processor.on_listed.append(on_listed)

    def relist(self, *, anew: bool = False) -> None:
        """List again soon, because the cache was found to be wrong. Requests before that list count as one.

        ``anew``: also decode the objects that did not change, as the schema of their resource has.
        """
        self._relist_wanted = True
        if anew:
            self._processor.decode_again()
        if self._watching is not None and not self._watching.expired():
            self._watching.reschedule(asyncio.get_running_loop().time())

    def compare(self) -> None:
        """Compare the cache with a list soon. The watch stays open; if it has lost changes, list again."""
        self._compare_in(0.0)

    def _compare_in(self, seconds: float) -> None:
        self._compare_at = asyncio.get_running_loop().time() + seconds
        self._compare_rearmed.set()

    def forget_undecodable(self) -> bool:
        """Let the next list report the objects that cannot be decoded once more. Return whether there are any."""
        known = bool(self._processor.undecodable)
        self._processor.undecodable.clear()
        return known

    def reset(self) -> None:
        """Clear the cache without calling handlers; the next ``run`` starts like the first.

        Raises RuntimeError if it is running.
        """
        if self.running:
            raise RuntimeError(f"the informer of {self.resource.qualified} is running")
        self._processor.clear()
        self._synced.clear()
        self.problem = ""

    def use(self, resource: Resource) -> None:
        """List and watch this resource, such as another version.

        Raises RuntimeError if it is running.
        """
        if self.running:
            raise RuntimeError(f"the informer of {self.resource.qualified} is running")
        self.resource = resource

    async def run(self) -> None:
        """Keep the cache current until cancelled. Errors of the server are logged and retried, never raised.

        May be run again after it was cancelled, and lists again then. Raises RuntimeError if it is running already.
        """
        if self.running:
            raise RuntimeError(f"the informer of {self.resource.qualified} is running already")
        self.running = True
        # A page that the last run was cancelled in is lost: start from the beginning.
        self._reflector = Reflector(self._rng)
        self._current_since = self._interrupted_at = None
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._compare_in_time())
                await self._follow()
        finally:
            self.running = False

    async def _follow(self) -> None:
        while True:
            match self._reflector.state:
                case Waiting(seconds=seconds):
                    await asyncio.sleep(seconds)
                    self._reflector.on_wait_over()
                case Listing(token=token, paged=paged):
                    await self._fetch(token, paged=paged)
                case Watching(resource_version=version):
                    await self._watch(version)

    async def _fetch(self, token: str | None, *, paged: bool) -> None:
        if token is None:
            self._relist_wanted = False
            self._listing_since = asyncio.get_running_loop().time()
        try:
            if paged:
                body = await self._page(token)
            else:
                body = await self._client.list(self.resource, **self._selection, continue_token=token)
        except KubeError as error:
            self._failed(classify(error), error)
            return
        self.counters.pages += 1
        with gc_paused():
            await self._apply_page(body)

    async def _page(self, token: str | None) -> bytes:
        """Return a page of as many objects as fit. Raises KubeError."""
        while True:
            items = self._page_items
            most = _LARGEST_PAGE_BYTES if items > 1 else math.inf
            try:
                return await self._client.list(
                    self.resource, **self._selection, limit=items, continue_token=token, at_most_bytes=most
                )
            except AnswerTooLargeError:
                self._page_items = max(1, items * _PAGE_BYTES // _LARGEST_PAGE_BYTES)

    def _fit(self, objects: int, body: bytes) -> None:
        """Choose the size of the next page, whose objects may be larger."""
        if objects:
            fitting = _PAGE_BYTES * objects // len(body)
            self._page_items = max(1, min(self._page_size, fitting, 2 * self._page_items))

    async def _apply_page(self, body: bytes) -> None:
        try:
            page, whole = parse(body)
            version, token = page["metadata"]["resourceVersion"], page["metadata"].get("continue")
            if not (isinstance(version, str) and version):
                raise ValueError("the list has no resourceVersion")
            objects = page.get("items") or []
            identities = [identify(obj) for obj in objects]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self._failed(Failure.MALFORMED, error)
            return
        self._fit(len(objects), body)
        verdict = self._reflector.on_page([identity.key for identity in identities], version, token)
        if not verdict.accept:
            self._report(self._reflector.last_failure or Failure.STALE, f"resourceVersion {version}")
            return
        clock = asyncio.get_running_loop().time
        slice_ends = 0.0  # parsing has taken as long as a slice
        for number, identity in enumerate(identities):
            if number % 16 == 0 and clock() >= slice_ends:
                await asyncio.sleep(0)
                slice_ends = clock() + _SLICE_SECONDS
            self._upsert(identity, objects[number], whole=whole)
            objects[number] = None  # freed bit by bit, not with the page at once
        if verdict.complete is not None:
            self._processor.delete_except(verdict.complete)
            self.counters.lists += 1
            self.listed_since = self._listing_since
            self._compare_later()
            self._synced.set()
            self._processor.listed()

    def _compare_later(self) -> None:
        if self._compare_seconds is not None:
            self._compare_in(self._compare_seconds(len(self.lister)) * self._rng.uniform(0.8, 1.2))

    async def _compare_in_time(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._compare_at):
                    await self._compare_rearmed.wait()
            self._compare_rearmed.clear()
            if self._compare_at is None or clock() < self._compare_at:
                continue
            self._compare_at = None
            if not isinstance(self._reflector.state, Watching):
                # A list will compare, or nothing can be read now.
                self._compare_in(_LAG_SECONDS)
                continue
            self._deleted = set()
            try:
                await self._compare(self._deleted)
            except (KubeError, ValueError, KeyError, TypeError, AttributeError) as error:
                failure = classify(error) if isinstance(error, KubeError) else Failure.MALFORMED
                self.counters.failures[failure] += 1
                self._compare_in(_LAG_SECONDS)
                if failure is Failure.EXPIRED:
                    # The server's history is shorter than a list in pages takes.
                    self.relist()
            finally:
                self._deleted = None

    async def _compare(self, deleted: set[str]) -> None:
        """Find out whether the watch has lost changes, and list again if it has.

        ``deleted`` has the keys whose deletion the watch reports meanwhile. Listing at once would find the same, but
        leave the cache outdated for as long as a list takes: minutes with 100,000 objects.

        Raises:
            KubeError: a page cannot be read.
            ValueError, KeyError, TypeError, AttributeError: a page is no list.
        """
        listed_since, began = self.listed_since, asyncio.get_running_loop().time()
        seen: set[str] = set()
        unknown: dict[str, str] = {}  # versions by key
        token: str | None = None
        while True:
            body = await self._page(token)
            self.counters.pages += 1
            with gc_paused():
                page, _ = parse(body)
                listed, token = page["metadata"]["resourceVersion"], page["metadata"].get("continue")
                objects = page.get("items") or ()
                self._fit(len(objects), body)
                for obj in objects:
                    key, _, version = identify(obj)
                    if not self._knows(key, version):
                        unknown[key] = version
                    known = self.lister.get(key)
                    seen.add(key if known is None else known.key)
            if not token:
                break
        unlisted = {
            item.key: item.resource_version
            for item in self.lister.values()
            if item.key not in seen and not is_older(listed, item.resource_version)
        }
        if unknown or unlisted:
            # The watch may be about to report them.
            await asyncio.sleep(_LAG_SECONDS)
        if self.listed_since != listed_since or not isinstance(self._reflector.state, Watching):
            # A list has compared, or will.
            return
        lost = [key for key, version in unknown.items() if key not in deleted and not self._knows(key, version)]
        for key, version in unlisted.items():
            known = self.lister.get(key)
            if known is not None and known.resource_version == version:
                lost.append(key)
        if lost:
            _log.warning("The watch of %s has lost changes, of %s for example", self.resource.qualified, lost[0])
            self.relist()
            return
        self.counters.lists += 1
        self.listed_since = began
        self._compare_later()
        self._processor.listed()

    def _knows(self, key: str, version: str) -> bool:
        """True if this state of the object, or a later one, is known."""
        known = self._processor.undecodable.get(key) or self.lister.get(key)
        return known is not None and (known.resource_version == version or is_older(version, known.resource_version))

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
            async with asyncio.timeout_at(None) as self._watching:
                async with self._client.watch(
                    self.resource,
                    **self._selection,
                    resource_version=version,
                    timeout_seconds=seconds,
                    silence=_SILENCE_SECONDS if self._heartbeats else seconds + _LATE_SECONDS,
                ) as lines:
                    opened = clock()
                    self.counters.watches += 1
                    self._recovered()
                    if self.current_since is None:
                        self._current_since = opened
                    self._interrupted_at = None
                    async for line in lines:
                        if (end := self._apply_line(line)) is not None:
                            failure, cause = end
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

    def _apply_line(self, line: bytes) -> tuple[Failure, Exception | None] | None:
        """Apply an event. Return why the watch cannot continue after it, None if it can."""
        try:
            event, whole = parse(line)
            kind, obj = event["type"], event["object"]
            if kind == "ERROR":
                error = error_from_status(obj)
                failure = classify(error)
                return Failure.UNTOLD if failure is Failure.FAILED else failure, error
            if kind == "BOOKMARK":
                version = obj["metadata"]["resourceVersion"]
                if not (isinstance(version, str) and version):
                    raise ValueError("the bookmark has no resourceVersion")
                self.counters.bookmarks += 1
                if asyncio.get_running_loop().time() < self._heartbeats_until:
                    self._heartbeats = True
                return None if self._reflector.on_event(version) else (Failure.REPLAYED, None)
            if kind not in ("ADDED", "MODIFIED", "DELETED"):
                raise ValueError(f"unknown type of event: {kind!r}")
            identity = identify(obj)
        except (ValueError, KeyError, TypeError, AttributeError) as malformed:
            return Failure.MALFORMED, malformed
        self.counters.events += 1
        if not self._reflector.on_event(identity.resource_version):
            return Failure.REPLAYED, None
        if kind == "DELETED":
            self._processor.delete(identity, obj)
            if self._deleted is not None:
                self._deleted.add(identity.key)
        else:
            self._upsert(identity, obj, whole=whole)
        return None

    def _upsert(self, identity: ObjectState, obj: dict[str, Any], *, whole: bool) -> None:
        if not whole and not self._takes_cut and was_cut(obj):
            self._processor.reject(identity, NestedTooDeeply(), obj)
        else:
            self._processor.upsert(identity, obj)

    def _failed(self, failure: Failure, cause: Exception | None, *, lived: float = 0.0) -> None:
        if failure is not Failure.CLOSED:
            self._current_since = None
        elif self._interrupted_at is None:
            self._interrupted_at = asyncio.get_running_loop().time()
        retry_after = cause.retry_after if isinstance(cause, ApiError) else None
        self._reflector.on_failure(failure, retry_after=retry_after, lived=lived)
        self._report(failure, cause)

    def _report(self, failure: Failure, cause: object) -> None:
        self.counters.failures[failure] += 1
        state = self._reflector.state
        if not isinstance(state, Waiting) or failure is self._failure:
            return
        # Logged once per outage and kind of failure.
        if self._failure is None:
            self._failed_since = asyncio.get_running_loop().time()
        self._failure = failure
        self.problem = failure.value if cause is None else str(cause)
        if self._on_problem is not None:
            self._on_problem()
        _log.warning(
            "Cannot list or watch %s (%s), using the last known state; retrying in %.1f s: %s",
            self.resource.qualified,
            failure.value,
            state.seconds,
            cause if cause is not None else "no details",
        )

    def _recovered(self) -> None:
        if self._failure is not None:
            self._failure = None
            self.problem = ""
            _log.info(
                "Listing and watching %s again after %.1f s",
                self.resource.qualified,
                asyncio.get_running_loop().time() - self._failed_since,
            )

    def _undecodable(self, key: str, error: Exception, obj: dict[str, Any]) -> None:
        self.counters.undecodable += 1
        if self._on_undecodable is not None:
            self._on_undecodable(key, error, obj)
        else:
            name = self.resource.qualified
            _log.warning("Cannot decode an object of %s: %s: %s: %s", name, key, type(error).__name__, error)
