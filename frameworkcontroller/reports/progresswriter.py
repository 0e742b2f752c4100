"""Writes reports into the ConfigMaps of attempts: each at most once in its interval.

The first report of an attempt, and one with a checkpoint, are written at once, yet not within `MIN_SPACING_SEC` of the
last write. The first report of 100 % does not even wait for that: the attempt may end before. A write has the UID and
the version of the ConfigMap as preconditions: it concerns that attempt alone, and no report of another replica is lost.
A failed write is repeated, with all reports until then.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.backoff import Backoff
from frameworkcontroller.kube.client import MERGE_PATCH, KubeClient
from frameworkcontroller.kube.errors import Conflict, KubeError, NotFound
from frameworkcontroller.kube.resources import CONFIGMAPS
from frameworkcontroller.lru import LRUCache
from frameworkcontroller.reports.merging import (
    Pending,
    StoredProgress,
    decode_stored,
    encode_reporters,
    encode_stored,
    merged,
)
from frameworkcontroller.reports.podtokens import AttemptPath, ReportingPod, ReportRefused
from frameworkcontroller.reports.reportbody import Report

_log: Final = logging.getLogger(__name__)

INTERVAL_SEC: Final = 60
"""For a ConfigMap without an interval."""

MIN_SPACING_SEC: Final = 5.0
OPEN_SEC: Final = 3.0
"""The first report of an attempt waits at most this long for its ConfigMap."""

MAX_ATTEMPTS: Final = 20_000
MAX_IN_FLIGHT: Final = 16
UNWRITTEN_SEC: Final = 120.0
"""After failing for this time, reports are refused: their sender may reach another replica."""

SLOW_SEC: Final = 5.0
"""Time from which on a write in flight counts as a failure: the missing report is no hang."""

_BACKOFF: Final = Backoff(base=0.5, maximum=30.0)
_MAX_CONFLICTS: Final = 5
_DONE: Final = 100.0

Gone: Final = "the attempt is over"


@dataclass(slots=True, eq=False)
class _Attempt:
    """An attempt with reports. ``stored``, ``version``: of the last known state of its ConfigMap."""

    namespace: str
    framework: str
    uid: str
    attempt_id: int
    interval: float
    stored: StoredProgress | None
    version: str
    written_at: float = float("-inf")
    pending: Pending = field(default_factory=Pending)
    has_pending: bool = False
    timer: asyncio.TimerHandle | None = None
    due: float = float("inf")
    writing: bool = False
    failures: int = 0
    gone: bool = False
    done: bool = False
    """Whether 100 % was reported."""
    at_once: bool = False
    """Whether that is not written yet."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.framework}"


@dataclass(slots=True, eq=False)
class ProgressWriter:
    """Takes the reports of authenticated Pods."""

    client: KubeClient
    clock: Callable[[], float]
    """Monotonic seconds of the event loop."""
    wall: Callable[[], float]
    rng: random.Random
    writes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("written", "conflict", "gone", "failed"), 0))
    works_since: float | None = None
    """The time by the clock of the last success after a failure, or of the end of the last slow write."""
    _failing: set[_Attempt] = field(default_factory=set)
    _failing_since: float | None = None
    _attempts: LRUCache[str, _Attempt] = field(default_factory=lambda: LRUCache(MAX_ATTEMPTS))
    _unwritten: set[_Attempt] = field(default_factory=set)
    _opening: dict[str, asyncio.Task[_Attempt]] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _begun: dict[_Attempt, float] = field(default_factory=dict)
    """When the writes in flight began, the oldest first."""
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_IN_FLIGHT))

    @property
    def failing_since(self) -> float | None:
        """The time by the clock at which writes began to fail, None while none fails."""
        return self._failing_since

    @property
    def is_slow(self) -> bool:
        """Whether a write has been in flight for too long."""
        return self._is_slow(next(iter(self._begun.values()), self.clock()))

    def _is_slow(self, begun: float) -> bool:
        return self.clock() - begun > SLOW_SEC

    async def take(self, pod: ReportingPod, target: AttemptPath, report: Report) -> None:
        """Take a report, which is written later.

        Raises:
            ReportRefused: the attempt is over or not the Pod's, or nothing can be written.
        """
        attempt = await self.find(pod, target)
        if attempt.failures and self.failing_since is not None and self.clock() > self.failing_since + UNWRITTEN_SEC:
            raise ReportRefused(HTTPStatus.SERVICE_UNAVAILABLE, "reports cannot be written to the API server", 5)
        pod.reported = attempt.pending.add(pod.uid, report, int(self.wall()), pod.reported)
        attempt.has_pending = True
        self._unwritten.add(attempt)
        is_first = attempt.stored is None
        spacing = min(MIN_SPACING_SEC, attempt.interval) if is_first or report.checkpoint else attempt.interval
        if report.percentage == _DONE and not attempt.done:
            attempt.done = attempt.at_once = True
        self._schedule(attempt, attempt.written_at + (0.0 if attempt.at_once else spacing))

    async def find(self, pod: ReportingPod, target: AttemptPath) -> _Attempt:
        """The attempt that owns the Pod.

        Raises:
            ReportRefused: it is over, is not the target, or cannot be read now.
        """
        attempt = self._attempts.get(pod.configmap_uid) or await self._open(pod)
        if attempt.gone:
            raise ReportRefused(HTTPStatus.GONE, Gone)
        if attempt.attempt_id != target.attempt_id:
            raise ReportRefused(HTTPStatus.FORBIDDEN, f"the token is of a Pod of attempt {attempt.attempt_id}")
        return attempt

    async def stop(self, seconds: float) -> None:
        """Write the pending reports, for at most this time; then end."""
        for attempt in list(self._unwritten):
            attempt.failures = 0
            self._schedule(attempt, self.clock())
        deadline = self.clock() + seconds
        while self._unwritten and self.clock() < deadline:
            if not self._tasks:
                # Timers that are due start tasks in the next turn of the loop.
                await asyncio.sleep(0.01)
                continue
            await asyncio.wait(self._tasks, timeout=deadline - self.clock(), return_when=asyncio.FIRST_COMPLETED)
        for attempt in self._unwritten:
            if attempt.timer is not None:
                attempt.timer.cancel()
        tasks = [*self._tasks, *self._opening.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- opening ---

    async def _open(self, pod: ReportingPod) -> _Attempt:
        opening = self._opening.get(pod.configmap_uid)
        if opening is None:
            opening = asyncio.create_task(self._read(pod), name=f"attempt of {pod.namespace}/{pod.framework}")
            self._opening[pod.configmap_uid] = opening

            def ended(task: asyncio.Task[_Attempt]) -> None:
                del self._opening[pod.configmap_uid]
                if not task.cancelled():
                    task.exception()

            opening.add_done_callback(ended)
        done, _ = await asyncio.wait([opening], timeout=OPEN_SEC)
        if not done:
            raise ReportRefused(HTTPStatus.SERVICE_UNAVAILABLE, "the API server does not answer", 5)
        return opening.result()

    async def _read(self, pod: ReportingPod) -> _Attempt:
        attempt = _Attempt(pod.namespace, pod.framework, pod.configmap_uid, -1, INTERVAL_SEC, None, "")
        try:
            await self._refresh(attempt)
        except KubeError as error:
            raise ReportRefused(HTTPStatus.SERVICE_UNAVAILABLE, f"the attempt cannot be read: {error}", 5) from error
        return self._attempts.put(attempt.uid, attempt)

    async def _refresh(self, attempt: _Attempt) -> None:
        """Read the ConfigMap. Raises KubeError."""
        name = names.configmap_name(attempt.framework)
        try:
            body = orjson.loads(await self.client.get(CONFIGMAPS, name, attempt.namespace, flow=attempt.key))
        except NotFound:
            attempt.gone = True
            return
        self._fold(attempt, body)

    def _fold(self, attempt: _Attempt, body: dict[str, Any]) -> None:
        metadata, data = body["metadata"], body.get("data") or {}
        if metadata.get("uid") != attempt.uid:
            attempt.gone = True
            return
        attempt.version = metadata["resourceVersion"]
        attempt.attempt_id = _whole((metadata.get("annotations") or {}).get(names.FRAMEWORK_ATTEMPT_ID), -1)
        attempt.interval = float(min(3600, max(1, _whole(data.get(names.INTERVAL_KEY), INTERVAL_SEC))))
        attempt.stored = decode_stored(data.get(names.PROGRESS_KEY), data.get(names.REPORTERS_KEY))

    # --- writing ---

    def _schedule(self, attempt: _Attempt, due: float) -> None:
        """Write at that time, or earlier if that was asked for."""
        if attempt.writing or attempt.failures:
            # The write that follows has the new reports, too.
            attempt.due = min(attempt.due, due)
            return
        if attempt.timer is not None:
            if attempt.due <= due:
                return
            attempt.timer.cancel()
        self._arm(attempt, due)

    def _arm(self, attempt: _Attempt, due: float) -> None:
        attempt.due = due
        attempt.timer = asyncio.get_running_loop().call_at(max(due, self.clock()), self._begin, attempt)

    def _begin(self, attempt: _Attempt) -> None:
        attempt.timer, attempt.due, attempt.writing, attempt.at_once = None, float("inf"), True, False
        self._begun[attempt] = self.clock()
        task = asyncio.create_task(self._write(attempt), name=f"progress of {attempt.key}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write(self, attempt: _Attempt) -> None:
        pending, attempt.pending, attempt.has_pending = attempt.pending, Pending(), False
        try:
            async with self._slots:
                await self._patch(attempt, pending)
        except Exception as error:  # noqa: BLE001 - an error concerns this attempt only
            self._failed(attempt, pending, error)
            return
        finally:
            attempt.writing = False
            if self._is_slow(self._begun.pop(attempt)):
                self.works_since = self.clock()
        self._succeeded(attempt)
        if attempt.gone:
            self._unwritten.discard(attempt)
        elif attempt.has_pending:
            # They may have asked for a write earlier than the interval says, by the time of the former one.
            due = min(attempt.due, attempt.written_at + attempt.interval)
            spacing = 0.0 if attempt.at_once else min(MIN_SPACING_SEC, attempt.interval)
            self._arm(attempt, max(due, attempt.written_at + spacing))
        else:
            self._unwritten.discard(attempt)

    async def _patch(self, attempt: _Attempt, pending: Pending) -> None:
        """Write once. Raises KubeError."""
        for _ in range(_MAX_CONFLICTS):
            if attempt.gone:
                self.writes["gone"] += 1
                return
            new = merged(attempt.stored, pending, int(self.wall()))
            name = names.configmap_name(attempt.framework)
            try:
                answer = await self.client.patch(
                    CONFIGMAPS,
                    name,
                    orjson.dumps(_patch_body(attempt.uid, attempt.version, new)),
                    attempt.namespace,
                    content_type=MERGE_PATCH,
                    flow=attempt.key,
                )
            except Conflict:
                self.writes["conflict"] += 1
                await self._refresh(attempt)
            except NotFound:
                attempt.gone = True
            else:
                self._fold(attempt, orjson.loads(answer))
                attempt.written_at = self.clock()
                self.writes["written"] += 1
                return
        raise KubeError("other writers were faster each time")

    def _failed(self, attempt: _Attempt, pending: Pending, error: Exception) -> None:
        self.writes["failed"] += 1
        if self._failing_since is None:
            self._failing_since = self.clock()
            _log.warning("[%s]: Cannot write reported progress: %s", attempt.key, error)
        self._failing.add(attempt)
        pending.add_all(attempt.pending)
        attempt.pending, attempt.has_pending = pending, True
        attempt.failures += 1
        # The answer may have been lost: then the state that was written is read at the conflict.
        self._arm(attempt, self.clock() + _BACKOFF.delay(attempt.failures, self.rng))

    def _succeeded(self, attempt: _Attempt) -> None:
        attempt.failures = 0
        self._failing.discard(attempt)
        if self._failing_since is not None and not self._failing:
            self._failing_since = None
            self.works_since = self.clock()
            _log.info("[%s]: Reported progress is written again", attempt.key)


def _patch_body(uid: str, version: str, progress: StoredProgress) -> dict[str, Any]:
    """The merge patch of a ConfigMap, with its preconditions."""
    return {
        "metadata": {"uid": uid, "resourceVersion": version},
        "data": {
            names.PROGRESS_KEY: encode_stored(progress),
            names.REPORTERS_KEY: encode_reporters(progress.reporters),
        },
    }


def _whole(text: Any, otherwise: int) -> int:
    return int(text) if isinstance(text, str) and len(text) < 10 and text.isdecimal() and text.isascii() else otherwise
