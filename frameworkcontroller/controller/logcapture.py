"""The logs of containers on their way to the history, read before their Pods are deleted.

Source: docs/lifecycle.md, "Logs". Imported only if a sink takes them.

The API reads logs from their beginning, or their last lines. So the lines are asked for that probably have the bytes,
and once more if they have too few or too many. All is bounded: bytes kept and read, logs at once, and time.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Literal, Protocol, get_args

from frameworkcontroller.api.historyrecords import LogRecord, RecordId
from frameworkcontroller.api.objects import ContainerRun
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.errors import KubeError
from frameworkcontroller.kube.podlog import NotALog, Tail
from frameworkcontroller.machine.kernel.model import Capture

_log: Final = logging.getLogger(__name__)

Result = Literal["captured", "cut", "missed"]
"""``cut``: something is missing, for a reason in the record. ``missed``: all is."""

RESULTS: Final[tuple[Result, ...]] = get_args(Result)

OPEN_SEC: Final = 2.0
"""An API server may answer a request to follow a log with its first byte: a silent one is taken for open then."""

SILENT_SEC: Final = 60.0
"""The longest wait for that first byte."""

FOLLOW_SEC: Final = 600.0
"""The longest time for which a log is followed."""

MAX_READ_BYTES: Final = 16 * 2**20
"""The most bytes that are read of one log: a container may write a hundred megabytes a second."""

_LINE_BYTES: Final = 64
"""Length of lines that is expected at first, and then the last log's: Tasks of a role write the same."""

_SHORT_LINE_BYTES: Final = 16
"""The same of a log that is followed, which is asked for once."""

_LONG_LINE_BYTES: Final = 1024
_STAMP_BYTES: Final = 40
_FEWEST_LINES: Final = 16
_READS: Final = 3
_MAX_WHY: Final = 300
_IN_LOOP_BYTES: Final = 2**16
"""More is compressed in a thread."""


class LogSink(Protocol):
    """Where the records go (``HistorySink``)."""

    def offer_log(self, place: tuple[str, str, int], found: RecordId, log: LogRecord) -> bool:
        """Take a log. Return False if there is room only for its reason, or for nothing."""


@dataclass(slots=True, eq=False)
class _Pod:
    """A Pod whose logs are captured. ``awaited``: runs that are neither read nor followed yet."""

    namespace: str
    place: tuple[str, str, int]
    capture: Capture
    done: Callable[[], None]
    awaited: int
    timer: asyncio.TimerHandle | None = None


@dataclass(slots=True, eq=False)
class _Job:
    """One log. ``follows``: to its end. ``over``: its record is made, or not wanted.

    ``queued``: it waits for its turn. ``opened``: its node has answered the request to follow it.
    """

    pod: _Pod
    run: ContainerRun
    tail: Tail
    follows: bool = False
    queued: bool = False
    opened: bool = False
    released: bool = False
    over: bool = False


class LogCapture:
    """Reads the logs of all Frameworks' Pods: ``concurrency`` at once, and as many more are followed."""

    def __init__(self, client: KubeClient, sink: LogSink, *, tail_bytes: int, concurrency: int) -> None:
        """It must be created on the loop that runs it."""
        self._client = client
        self._sink = sink
        self._tail_bytes = tail_bytes
        self._concurrency = concurrency
        self._loop = asyncio.get_running_loop()
        self.results: Counter[Result] = Counter()
        """Numbers of records."""
        self._queue: list[tuple[int, int, _Job]] = []
        self._order = itertools.count()
        self._waiting = 0
        """Logs that wait for their turn. The queue may also have some that are over."""
        self._reading: dict[asyncio.Task[None], _Job] = {}
        self._following: dict[asyncio.Task[None], _Job] = {}
        self._line_bytes = _LINE_BYTES
        self._stopping = False

    def capture(self, key: str, generation: int, capture: Capture, done: Callable[[], None]) -> None:
        """Send the logs of a Pod to the sink. Call ``done`` once its deletion need not wait, by ``until``.

        ``key``, ``generation``: of the Framework.
        """
        namespace, _, name = key.partition("/")
        pod = _Pod(namespace, (namespace, name, generation), capture, done, len(capture.runs))
        jobs = [_Job(pod, run, Tail(self._tail_bytes)) for run in capture.runs]
        if capture.why or self._stopping:
            for job in jobs:
                self._miss(job, capture.why or "the controller stops")
            return
        pod.timer = self._loop.call_at(capture.until, self._expire, pod, jobs)
        for job in jobs:
            if capture.follow and not job.run.previous and len(self._following) < self._concurrency:
                job.follows = True
                self._start(job)
            else:
                job.queued = True
                self._waiting += 1
                heapq.heappush(self._queue, (capture.rank, next(self._order), job))
        self._start_next()

    async def stop(self) -> None:
        """Stop. Logs that the next process may not find any longer are kept as far as they are read."""
        self._stopping = True
        self._clear_queue()
        tasks = [*self._reading, *self._following]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def clear(self) -> None:
        """Forget all, as another process leads now."""
        for job in (*self._reading.values(), *self._following.values(), *(entry[2] for entry in self._queue)):
            job.over = True
            if job.pod.timer is not None:
                job.pod.timer.cancel()
        self._clear_queue()
        for task in (*self._reading, *self._following):
            task.cancel()

    # --- turns ---

    def _clear_queue(self) -> None:
        self._queue.clear()
        self._waiting = 0

    def _start_next(self) -> None:
        while self._queue and len(self._reading) < self._concurrency:
            job = heapq.heappop(self._queue)[2]
            if not job.over:
                job.queued = False
                self._waiting -= 1
                self._start(job)

    def _start(self, job: _Job) -> None:
        running = self._following if job.follows else self._reading
        task = asyncio.create_task(self._run(job), name=f"log of {job.pod.capture.pod_name}")
        running[task] = job
        task.add_done_callback(lambda task: self._ended(running, task))

    def _ended(self, running: dict[asyncio.Task[None], _Job], task: asyncio.Task[None]) -> None:
        running.pop(task, None)
        self._start_next()

    def _expire(self, pod: _Pod, jobs: list[_Job]) -> None:
        """The deletion of the Pod waits no longer: logs that wait for their turn are not read."""
        pod.timer = None
        if not self._waiting:
            return
        why = f"its turn did not come in time, as {self._waiting} logs waited (history.logs.concurrency)"
        for job in jobs:
            if job.queued and not job.over:
                self._waiting -= 1
                self._miss(job, why)
                self._release(job)

    def _release(self, job: _Job) -> None:
        """The deletion of the Pod need not wait for this log."""
        if job.released:
            return
        job.released = True
        pod = job.pod
        pod.awaited -= 1
        if not pod.awaited:
            if pod.timer is not None:
                pod.timer.cancel()
            pod.done()

    # --- one log ---

    async def _run(self, job: _Job) -> None:
        is_cut, why = True, ""
        try:
            if job.follows:
                is_cut, why = await self._follow(job)
            else:
                is_cut, why = await self._read(job)
        except KubeError as error:
            why = str(error)
        except TimeoutError:
            why = self._why_late(job)
        except asyncio.CancelledError:
            if job.over or not (job.released or job.tail.received):
                # The next process reads it.
                raise
            why = "the controller stopped before its end"
        except Exception as error:  # noqa: BLE001 - an error concerns this log only
            _log.exception("Cannot read a log of Pod %s/%s", job.pod.namespace, job.pod.capture.pod_name)
            why = f"an error of the controller: {error!r}"
        with suppress(NotALog):
            # The last line of a broken stream.
            job.tail.end()
        if not job.over:
            await self._keep(job, is_cut=is_cut, why=why)
            self._release(job)

    def _why_late(self, job: _Job) -> str:
        if job.opened:
            return f"it did not end within {FOLLOW_SEC:.0f} s"
        return "its node did not send it in time" if not job.tail.received else "its node did not send all in time"

    async def _read(self, job: _Job) -> tuple[bool, str]:
        """Read the end of a log as it stands. Return whether its end is missing, and why something is."""
        lines, why, too_long = max(_FEWEST_LINES, self._tail_bytes * 9 // 8 // self._line_bytes), "", False
        async with asyncio.timeout_at(job.pod.capture.until):
            for reads_left in reversed(range(_READS)):
                limit = 4 * self._tail_bytes + lines * _STAMP_BYTES
                tail = await self._read_lines(job, lines, None if lines == 1 or not reads_left else limit)
                too_long = tail.received >= (MAX_READ_BYTES if lines == 1 or not reads_left else limit)
                too_short = tail.lines >= lines and not tail.is_full and lines < self._tail_bytes
                if not reads_left or not (too_short or (too_long and lines > 1)):
                    break
                if too_long:
                    # Its end is cut off: ask for fewer lines, which are long.
                    lines = max(1, 2 * self._tail_bytes * tail.lines // tail.received)
                else:
                    size = max(1, len(tail.data()))
                    lines = min(self._tail_bytes, lines * (1 + self._tail_bytes // size) * 5 // 4)
        tail = job.tail
        if tail.lines >= lines > _FEWEST_LINES:
            self._line_bytes = max(_SHORT_LINE_BYTES, min(_LONG_LINE_BYTES, tail.text_bytes // tail.lines))
        if too_long:
            return True, f"its lines are longer than {MAX_READ_BYTES} bytes"
        if job.pod.capture.follow and not job.run.previous:
            why = f"it was not followed to its end, as {self._concurrency} others were (history.logs.concurrency)"
        return bool(why), why

    async def _read_lines(self, job: _Job, lines: int, limit: int | None) -> Tail:
        options: dict[str, str | int] = {"timestamps": "true", "tailLines": lines}
        if limit is not None:
            options["limitBytes"] = limit
        if job.run.previous:
            options["previous"] = "true"
        tail, capture = Tail(self._tail_bytes), job.pod.capture
        most = MAX_READ_BYTES if limit is None else limit
        if not job.tail.received:
            # The lines of an earlier read stay if this one fails: they are the newest ones.
            job.tail = tail
        async with self._client.log(capture.pod_name, job.pod.namespace, job.run.container, **options) as chunks:
            async for chunk in chunks:
                tail.feed(chunk)
                if tail.received >= most:
                    break
        tail.end()
        tail.cut = tail.cut or tail.lines >= lines
        job.tail = tail
        return tail

    async def _follow(self, job: _Job) -> tuple[bool, str]:
        """Follow a log to its end. Return as ``_read``."""
        capture, loop = job.pod.capture, self._loop
        lines = max(_FEWEST_LINES, self._tail_bytes // _SHORT_LINE_BYTES)
        options: dict[str, str | int] = {"timestamps": "true", "follow": "true", "tailLines": lines}
        async with asyncio.timeout_at(capture.until) as limit:

            def taken_for_open() -> None:
                limit.reschedule(loop.time() + SILENT_SEC)
                self._release(job)

            opening = loop.call_at(min(loop.time() + OPEN_SEC, capture.until - 0.1), taken_for_open)
            try:
                async with self._client.log(
                    capture.pod_name, job.pod.namespace, job.run.container, **options
                ) as chunks:
                    job.opened = True
                    opening.cancel()
                    limit.reschedule(loop.time() + FOLLOW_SEC)
                    self._release(job)
                    async for chunk in chunks:
                        job.tail.feed(chunk)
                        if job.tail.received >= MAX_READ_BYTES:
                            return True, f"it was followed for {MAX_READ_BYTES} bytes only"
            finally:
                opening.cancel()
        job.tail.end()
        job.tail.cut = job.tail.cut or job.tail.lines >= lines
        return False, ""

    # --- records ---

    def _miss(self, job: _Job, why: str) -> None:
        self._send(job, replace(self._record(job, why), cut_start=True, cut_end=True))

    async def _keep(self, job: _Job, *, is_cut: bool, why: str) -> None:
        data, tail = job.tail.data(), job.tail
        record = self._record(job, why)
        cut_start = tail.cut or (is_cut and not data)
        if len(data) > _IN_LOOP_BYTES:
            record = await asyncio.to_thread(record.with_data, data)
        else:
            record = record.with_data(data)
        self._send(job, replace(record, cut_start=cut_start, cut_end=is_cut))

    def _record(self, job: _Job, why: str) -> LogRecord:
        capture = job.pod.capture
        return LogRecord(
            index=capture.index,
            pod_name=capture.pod_name,
            node=capture.node,
            container=job.run.container,
            run=job.run.run,
            why=" ".join(why.split())[:_MAX_WHY],
        )

    def _send(self, job: _Job, record: LogRecord) -> None:
        job.over = True
        is_kept = self._sink.offer_log(job.pod.place, job.pod.capture.id, record)
        if not record.why and is_kept:
            self.results["captured"] += 1
        else:
            self.results["cut" if record.size and is_kept else "missed"] += 1
