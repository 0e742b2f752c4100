"""The history's records on their way to the sink: batches, acknowledgments, bounds.

Source: docs/history-records.md. Imported only if a sink is configured.

A sink repeats no record that a machine waits for: it answers with the problem, and the machine backs off and asks
again. Between two requests the sink itself backs off, for all Frameworks at once, as they share the destination.
Other records stay until they are stored, or until there is no room for them.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Protocol, get_args

import orjson

from frameworkcontroller.api.historyrecords import (
    HistoryRecord,
    HistoryRecordError,
    LogRecord,
    RecordId,
    Trigger,
    encode_record,
    framework_attempt_id,
    pod_id,
    task_attempt_id,
)
from frameworkcontroller.api.names import framework_of
from frameworkcontroller.api.objects import FrameworkRecord
from frameworkcontroller.api.timestamps import format_precise_time
from frameworkcontroller.backoff import Backoff
from frameworkcontroller.controller.snapshots import SnapshotObjects, deleted_framework_object, pod_object
from frameworkcontroller.lru import LRUCache
from frameworkcontroller.machine.kernel.model import Snapshot
from frameworkcontroller.machine.kernel.requests import Answer, Answered, Refusal, Refused, Unanswered

_log: Final = logging.getLogger(__name__)

Result = Literal["stored", "failed", "refused", "dropped"]
"""The outcome of a record. ``failed``: the sink was unavailable. ``refused``: it does not accept this one.
``dropped``: the record is given up, sent or not."""

RESULTS: Final[tuple[Result, ...]] = get_args(Result)

BATCH_BYTES: Final = 2**20
"""Uncompressed size of a batch. Only a single record may be larger."""

LINGER_SEC: Final = 0.05
"""Least time between two batches that are not full. After a pause, a record does not wait."""

BACKOFF: Final = Backoff(0.5, 15.0)
"""Between the requests to a destination that is unavailable."""

LONGEST_WAIT_SEC: Final = 15.0
"""If the destination wants a longer pause, its end is not waited for."""

FORGET_FAILURE_SEC: Final = 60.0
"""After this time without a record, an earlier failure of the destination concerns nothing any longer."""

_GIVE_UP_AFTER: Final = 8
"""Refused records of a batch without a stored one, which prove that the destination refuses all."""

_SUSPECTS: Final = 1024

_STORED: Final = Answered(b"")

_BEGIN_OF_STATUS: Final = re.compile(rb'\{[^{}]*\{[^{}]*\},"attemptStatus":\{"id":([0-9]{1,9}),')
"""With braces of the retry policy only, as no text of a user comes before."""


class Unavailable(Exception):
    """The destination accepts no records now. The message names it and the reason.

    ``code``: of its answer, 0 if there is none. ``retry_after_sec``: the least wait that it asks for.
    """

    def __init__(self, message: str, code: int = 0, retry_after_sec: float = 0.0) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after_sec = retry_after_sec


class RecordsRefused(Exception):
    """The destination refuses at least one of these records, and has stored none or some. ``code``: of its answer."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class Destination(Protocol):
    """Stores lines."""

    name: str
    """For messages."""
    concurrency: int
    """The number of batches that may be in flight."""

    async def send(self, lines: Sequence[bytes]) -> None:
        """Store the lines, which lack their ends. Returns when all are stored durably, and within some 30 s.

        Raises:
            Unavailable: some may not be stored.
            RecordsRefused: because of the lines.
        """

    async def close(self) -> None:
        """Release all resources."""


@dataclass(slots=True, eq=False)
class _Waiter:
    """A call of `HistorySink.store` waits for ``left`` records."""

    answer: asyncio.Future[Answer]
    left: int

    def settle(self, problem: Answer | None) -> None:
        """One of the records is stored, or (``problem``) is not."""
        self.left -= 1
        if not self.answer.done() and (problem is not None or self.left == 0):
            self.answer.set_result(_STORED if problem is None else problem)


@dataclass(slots=True, eq=False)
class _Pending:
    """A record that is not stored. ``since``: by the monotonic clock. ``settled``: it is stored, or given up."""

    id: str
    trigger: Trigger
    line: bytes
    since: float = 0.0
    waiter: _Waiter | None = None
    settled: bool = False


class HistorySink:
    """Sends the records of all Frameworks to one destination.

    ``blocks``: `store` answers when the records are stored; otherwise at once, and records for which there is no room
    are dropped. At most ``max_pending_bytes`` of records wait; records without a waiting call have half of that.
    """

    def __init__(
        self,
        destination: Destination,
        *,
        triggers: Collection[Trigger],
        blocks: bool,
        max_pending_bytes: int,
        wall: Callable[[], float],
        rng: random.Random,
    ) -> None:
        """``wall``: seconds since the epoch. It must be created on the loop that runs it."""
        self._destination = destination
        self.triggers = frozenset(triggers)
        """Triggers of accepted records."""
        self._blocks = blocks
        self._max_pending_bytes = max_pending_bytes
        self._wall = wall
        self._clock = asyncio.get_running_loop().time
        self._rng = rng
        self.requested: Callable[[bool, float], None] = lambda _succeeded, _seconds: None
        """For metrics: takes success and duration of each request."""
        self.find_framework: Callable[[str], FrameworkRecord | None] = lambda _: None
        """Takes the key of a Framework, and gives the cached one: no Pod has its generation."""
        self.cluster = ""
        """The name of the cluster in the records."""
        self.records: Counter[tuple[Trigger, Result]] = Counter()
        """Numbers of sent and dropped records."""
        self.pending: Counter[Trigger] = Counter()
        """Numbers of records that are not stored yet."""
        self.pending_bytes = 0
        self._unawaited_bytes = 0
        self._queue: deque[_Pending] = deque()
        self._queued_bytes = 0
        self._sending: dict[asyncio.Task[None], list[_Pending]] = {}
        self._rendering = asyncio.Lock()
        self._changed = asyncio.Event()
        self._linger_end = 0.0
        self._failures = 0
        self._failing_since: float | None = None
        self._problem: Unavailable | None = None
        self._gate = 0.0
        """When the next request may be sent, after a failure."""
        self._last_added = self._clock()
        self._drop_logged = False
        self._suspects: LRUCache[str, bool] = LRUCache(_SUSPECTS)
        """Ids of refused records, which are sent alone."""
        self._closing = False
        self._closed = False

    # --- intake ---

    def wants(self, trigger: Trigger) -> bool:
        return trigger in self.triggers and not self._closed

    async def store(self, framework: FrameworkRecord, resource_version: str, snapshots: Sequence[Snapshot]) -> Answer:
        """Store snapshots of a Framework. Answered: all are stored durably, or nothing is to wait for that.

        ``resource_version``: of the object with the shown status. Never raises, and answers within about a minute for
        each batch.
        """
        least = len(snapshots[0].status_json) if snapshots and snapshots[0].trigger in self.triggers else 0
        if self._blocks and least and (problem := self._no_room(least)) is not None:
            # Thousands of Frameworks ask again every 15 s, and need no records for that.
            return problem
        try:
            batches = self._batches(framework, resource_version, snapshots)
            while True:
                # One batch takes some 10 ms: 10,000 Tasks that retry at once are not to stop the event loop.
                async with self._rendering:
                    records = next(batches, None)
                    await asyncio.sleep(0)
                if records is None:
                    break
                if self._blocks:
                    answer = await self._store(records)
                    if not isinstance(answer, Answered):
                        return answer
                else:
                    for record in records:
                        self._add_unawaited(record)
        except (ValueError, TypeError, KeyError) as error:
            return Unanswered(f"cannot make the records of the history: {error!r}")
        return _STORED

    def offer(self, framework: FrameworkRecord, resource_version: str, snapshots: Sequence[Snapshot]) -> None:
        """Take snapshots of a Framework that nothing waits for."""
        objects = SnapshotObjects(framework, resource_version)
        for snapshot in snapshots:
            if self.wants(snapshot.trigger):
                with _reported(framework.key):
                    self._add_unawaited(self._of_snapshot(framework, objects, snapshot))

    def offer_deleted_framework(self, framework: FrameworkRecord, *, status_json: bytes | None = None) -> None:
        """Take a deleted Framework. ``status_json`` replaces its status."""
        if not self.wants(Trigger.FRAMEWORK_DELETION):
            return
        status = framework.status if status_json is None else orjson.loads(status_json)
        with _reported(framework.key):
            found = framework_attempt_id({"metadata": {"uid": framework.uid}, "status": status})
            body = deleted_framework_object(framework, status_json)
            self._add_unawaited(self._record(_place_of(framework), found, Trigger.FRAMEWORK_DELETION, body))

    def offer_deleted_pod(self, pod: Mapping[str, Any]) -> None:
        if not self.wants(Trigger.POD_DELETION):
            return
        namespace, name = pod["metadata"]["namespace"], framework_of(pod["metadata"]["name"])
        with _reported(f"{namespace}/{name}"):
            found = pod_id(pod)
            framework = self.find_framework(f"{namespace}/{name}")
            is_owner = framework is not None and framework.uid == found.framework_uid
            generation = framework.generation if framework is not None and is_owner else 0
            place = namespace, name, generation
            self._add_unawaited(self._record(place, found, Trigger.POD_DELETION, pod_object(pod)))

    def offer_log(self, place: tuple[str, str, int], found: RecordId, log: LogRecord) -> bool:
        """Take a log. Return False if there is no room: then its record has only the reason.

        ``place``: namespace, name and generation of the Framework. Logs have half of the bytes of unawaited records.
        """
        if not self.wants(Trigger.POD_LOG):
            return False
        record = self._record(place, found, Trigger.POD_LOG, log.encode())
        if self._unawaited_bytes + len(record.line) <= self._unawaited_limit // 2:
            self._add_unawaited(record)
            return True
        why = "" if self._problem is None else f": {self._problem}"
        log = replace(log, packed=b"", size=0, cut_start=True, cut_end=True, why=f"the history's sink is full{why}")
        self._add_unawaited(self._record(place, found, Trigger.POD_LOG, log.encode()))
        return False

    async def _store(self, records: list[_Pending]) -> Answer:
        if self._closed:
            return Unanswered(f"{self._destination.name}: the controller stops")
        now = self._last_added = self._clock()
        if self._problem is not None and self._gate - now > LONGEST_WAIT_SEC:
            return self._unavailable()
        if (problem := self._no_room(sum(len(record.line) for record in records))) is not None:
            return problem
        waiter = _Waiter(asyncio.get_running_loop().create_future(), len(records))
        for record in records:
            record.waiter = waiter
            self._add(record)
        return await waiter.answer

    def _no_room(self, size: int) -> Answer | None:
        """The answer to awaited records of that size, for which there is no room."""
        if self.pending_bytes <= self._unawaited_bytes or self.pending_bytes + size <= self._max_pending_bytes:
            return None
        why = "" if self._problem is None else f"; {self._problem}"
        return Unanswered(
            f"{self.pending_bytes} bytes of records wait for {self._destination.name}, and with these {size} there "
            f"would be more than history.maxPendingBytes ({self._max_pending_bytes}){why}"
        )

    def _add_unawaited(self, record: _Pending) -> None:
        self._last_added = self._clock()
        if self._closed or self._unawaited_bytes + len(record.line) > self._unawaited_limit:
            self.records[record.trigger, "dropped"] += 1
            if not self._drop_logged:
                self._drop_logged = True
                _log.error(
                    "History: dropping records, as %d bytes of them wait for %s already (history.maxPendingBytes)%s",
                    self._unawaited_bytes,
                    self._destination.name,
                    "" if self._problem is None else f": {self._problem}",
                )
            return
        self._unawaited_bytes += len(record.line)
        self._add(record)

    @property
    def _unawaited_limit(self) -> int:
        """Under Block these records must not take the place of records that Frameworks wait for."""
        return self._max_pending_bytes // 2 if self._blocks else self._max_pending_bytes

    def _add(self, record: _Pending) -> None:
        record.since = self._clock()
        self.pending[record.trigger] += 1
        self.pending_bytes += len(record.line)
        self._queued_bytes += len(record.line)
        self._queue.append(record)
        self._changed.set()

    # --- figures ---

    @property
    def oldest_seconds(self) -> float:
        """For how long the oldest record waits, or for how long the destination has failed, if that is longer.

        A record that is refused a place, or that failed and will be sent again, is known by the failure only.
        """
        now = self._clock()
        batches: Iterable[Iterable[_Pending]] = (self._queue, *self._sending.values())
        oldest = (next((record.since for record in batch if not record.settled), None) for batch in batches)
        since = [found for found in oldest if found is not None]
        # Without records nothing is sent that would show that the failure is over.
        concerned = since or self._gate > now or now - self._last_added < FORGET_FAILURE_SEC
        if self._failing_since is not None and concerned:
            since.append(self._failing_since)
        return max(0.0, now - min(since)) if since else 0.0

    # --- run ---

    async def run(self) -> None:
        """Send batches; never returns."""
        try:
            while True:
                await self._until_due()
                batch = self._take_batch()
                task = asyncio.create_task(self._send(batch), name="records of the history")
                self._sending[task] = batch
                task.add_done_callback(self._sent)
        finally:
            await self._close()

    async def drain(self, seconds: float) -> None:
        """Send pending records, for at most ``seconds``, also to a destination that was unavailable."""
        self._closing = True
        self._gate = 0.0
        self._changed.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.pending_bytes:
                    await self._wait_for_change()
        if self.pending_bytes:
            _log.warning(
                "History: %d records are not stored in %s after %.0f s%s",
                self.pending.total(),
                self._destination.name,
                seconds,
                "" if self._problem is None else f": {self._problem}",
            )

    async def _close(self) -> None:
        self._closed = True
        sending = list(self._sending)
        for task in sending:
            task.cancel()
        await asyncio.gather(*sending, return_exceptions=True)
        left = list(self._queue)
        self._queue.clear()
        self._give_back(left, Unanswered(f"{self._destination.name}: the controller stops"))
        await self._destination.close()

    async def _until_due(self) -> None:
        """Wait until a batch is to be sent."""
        while (delay := self._delay()) != 0.0:
            with suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._wait_for_change()

    async def _wait_for_change(self) -> None:
        await self._changed.wait()
        self._changed.clear()

    def _delay(self) -> float | None:
        """Seconds until the next batch is due; None: not without a change."""
        concurrency = 1 if self._failures else self._destination.concurrency
        if not self._queue or len(self._sending) >= concurrency:
            return None
        is_full = self._queued_bytes >= BATCH_BYTES or self._closing
        return max(0.0, self._gate - self._clock(), 0.0 if is_full else self._linger_end - self._clock())

    def _take_batch(self) -> list[_Pending]:
        self._linger_end = self._clock() + LINGER_SEC
        batch: list[_Pending] = []
        size = 0
        while self._queue:
            record = self._queue[0]
            size += len(record.line) + 1
            is_suspect = self._suspects.get(record.id) is not None
            if batch and (size > BATCH_BYTES or is_suspect):
                break
            batch.append(self._queue.popleft())
            self._queued_bytes -= len(record.line)
            if is_suspect:
                break
        return batch

    # --- sending ---

    async def _send(self, batch: list[_Pending]) -> None:
        """Send a batch. If it is refused, send its halves, until the refused records are found: others continue."""
        parts = [batch]
        stored = refused = 0
        try:
            while parts:
                part = parts.pop()
                refusal = await self._request(part)
                self._recover()
                if refusal is None:
                    for record in part:
                        self._settle(record, "stored", _STORED)
                    stored += len(part)
                elif len(part) > 1:
                    middle = len(part) // 2
                    parts += [part[middle:], part[:middle]]
                else:
                    self._refuse(part[0], refusal)
                    refused += 1
                    if refused >= _GIVE_UP_AFTER and not stored:
                        for record in batch:
                            self._refuse(record, refusal)
                        break
        except Unavailable as problem:
            self._fail(batch, problem)

    async def _request(self, records: list[_Pending]) -> RecordsRefused | None:
        began = self._clock()
        succeeded = False
        try:
            await self._destination.send([record.line for record in records])
            succeeded = True
        except RecordsRefused as refusal:
            return refusal
        finally:
            self.requested(succeeded, self._clock() - began)
        return None

    def _sent(self, task: asyncio.Task[None]) -> None:
        batch = self._sending.pop(task)
        if task.cancelled():
            self._give_back(batch, Unanswered(f"{self._destination.name}: the controller stops"))
        elif (error := task.exception()) is not None:
            _log.error("History: unexpected error: %r", error, exc_info=error)
            self._fail(batch, Unavailable(f"{self._destination.name}: unexpected error: {error!r}"))
        self._changed.set()

    def _recover(self) -> None:
        if self._failures:
            _log.info("History: %s is available again", self._destination.name)
        self._failures = 0
        self._failing_since = self._problem = None

    def _fail(self, batch: list[_Pending], problem: Unavailable) -> None:
        """The destination is unavailable: answer the waiting calls, and keep the other records."""
        now = self._clock()
        if self._problem is None or str(self._problem) != str(problem):
            _log.warning("History: %s; retrying", problem)
        self._failures += 1
        self._problem = problem
        if self._failing_since is None:
            self._failing_since = min([now, *(record.since for record in batch)])
        self._gate = now + max(BACKOFF.delay(self._failures, self._rng), problem.retry_after_sec)
        self._give_back(batch, self._unavailable())
        if self._gate - now > LONGEST_WAIT_SEC:
            waiting = list(self._queue)
            self._queue.clear()
            self._queued_bytes = 0
            self._give_back(waiting, self._unavailable())

    def _unavailable(self) -> Answer:
        problem = self._problem
        if problem is None or not problem.code:
            return Unanswered(str(problem))
        if problem.code == 429:
            kind = Refusal.TOO_MANY_REQUESTS
        else:
            kind = Refusal.SERVER_ERROR if problem.code >= 500 else Refusal.OTHER
        retry_after = max(0.0, self._gate - self._clock()) if problem.retry_after_sec else 0.0
        return Refused(problem.code, str(problem), b"", retry_after, kind=kind, by_api=False)

    def _give_back(self, records: list[_Pending], answer: Answer) -> None:
        """Answer those who wait for the records; put the others back into the queue, or drop them at the end."""
        kept = []
        for record in records:
            if record.settled:
                continue
            self.records[record.trigger, "failed"] += 1
            if record.waiter is not None:
                self._settle(record, None, answer)
            elif self._closed:
                self._settle(record, "dropped", answer)
            else:
                kept.append(record)
                self._queued_bytes += len(record.line)
        self._queue.extendleft(reversed(kept))

    def _refuse(self, record: _Pending, refusal: RecordsRefused) -> None:
        if record.settled:
            return
        message = f"record {record.id}: {refusal}"
        self._suspects.put(record.id, True)
        if record.waiter is None:
            _log.error("History: dropped a record that is refused: %s", message)
            self.records[record.trigger, "refused"] += 1
            self._settle(record, "dropped", _STORED)
        else:
            answer = Refused(refusal.code, message, b"", kind=Refusal.INVALID, by_api=False)
            self._settle(record, "refused", answer)

    def _settle(self, record: _Pending, result: Result | None, answer: Answer) -> None:
        if record.settled:
            return
        record.settled = True
        if result is not None:
            self.records[record.trigger, result] += 1
        self.pending[record.trigger] -= 1
        self.pending_bytes -= len(record.line)
        if record.waiter is None:
            self._unawaited_bytes -= len(record.line)
        else:
            record.waiter.settle(None if isinstance(answer, Answered) else answer)
        if not self.pending_bytes:
            self._drop_logged = False

    # --- rendering ---

    def _batches(
        self, framework: FrameworkRecord, resource_version: str, snapshots: Sequence[Snapshot]
    ) -> Iterator[list[_Pending]]:
        """Records of about the size of a batch at a time, made when they are needed."""
        objects = SnapshotObjects(framework, resource_version)
        records: list[_Pending] = []
        size = 0
        for snapshot in snapshots:
            if snapshot.trigger not in self.triggers:
                continue
            record = self._of_snapshot(framework, objects, snapshot)
            if records and size + len(record.line) > BATCH_BYTES:
                yield records
                records, size = [], 0
            records.append(record)
            size += len(record.line) + 1
        if records:
            yield records

    def _of_snapshot(self, framework: FrameworkRecord, objects: SnapshotObjects, snapshot: Snapshot) -> _Pending:
        body = objects.of(snapshot)
        if snapshot.role is None:
            found = _framework_attempt_id(framework.uid, snapshot.status_json)
        else:
            status = orjson.loads(snapshot.status_json)
            found = task_attempt_id({"metadata": body["metadata"], "status": status})
        return self._record(_place_of(framework), found, snapshot.trigger, body)

    def _record(self, place: tuple[str, str, int], found: RecordId, trigger: Trigger, body: Any) -> _Pending:
        """Return a record. ``place``: namespace, name and generation of the Framework."""
        namespace, name, generation = place
        record = HistoryRecord(
            id=found,
            trigger=trigger,
            time=format_precise_time(self._wall()),
            cluster=self.cluster,
            namespace=namespace,
            name=name,
            generation=generation,
            object=body,
        )
        return _Pending(str(found), trigger, encode_record(record))


def _place_of(framework: FrameworkRecord) -> tuple[str, str, int]:
    return framework.namespace, framework.name, framework.generation


def _framework_attempt_id(uid: str, status_json: bytes) -> RecordId:
    # The status of 10,000 Tasks takes 50 ms to parse. In the codec's order, its beginning is enough.
    if begin := _BEGIN_OF_STATUS.match(status_json):
        return RecordId(framework_uid=uid, attempt=int(begin[1]))
    return framework_attempt_id({"metadata": {"uid": uid}, "status": orjson.loads(status_json)})


@contextmanager
def _reported(key: str) -> Iterator[None]:
    try:
        yield
    except HistoryRecordError as error:
        _log.warning("[%s]: no record for the history: %s", key, error)
