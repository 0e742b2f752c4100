"""A stand-in for the archive: takes the records of a controller's history by HTTP, keeps their content, and fails.

It runs on virtual or real time, and never forgets an acknowledgment and its time.
"""

import asyncio
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, Self

from aiohttp import web

from frameworkcontroller.api.codec import decode_status
from frameworkcontroller.api.historyrecords import HistoryRecord, HistoryRecordError, RecordId, decode_record
from frameworkcontroller.api.status import FrameworkStatus
from tests.support.reverseproxy import ConnectionDropped, Request, ReverseProxy

PATH: Final = "/v1/records"

Attempt = tuple[str, int]
"""UID of a Framework or of a Task instance, and the attempt's id."""


class SinkFault(StrEnum):
    """A fault that a request meets."""

    FAILED = "failed"
    UNAVAILABLE = "unavailable, and is to come again later"
    THROTTLED = "throttled"
    FORBIDDEN = "forbidden"
    DROPPED = "dropped, and nothing was stored"
    LOST = "stored, and its answer lost"
    HUNG = "not answered for long"
    LATE = "not answered, and stored some time"
    TWICE = "stored, and stored again later"
    SLOW = "answered late"
    LOGIN = "answered by a page for people"
    MOVED = "answered by a redirection"


_CODES: Final = {
    SinkFault.FAILED: 500,
    SinkFault.UNAVAILABLE: 503,
    SinkFault.THROTTLED: 429,
    SinkFault.FORBIDDEN: 403,
    SinkFault.LOGIN: 200,
    SinkFault.MOVED: 302,
}
_POISON: Final = 4
"""One of so many records is refused while some are."""


@dataclass(frozen=True)
class Trouble:
    """A fault of the next ``times`` requests; ``seconds`` as the fault needs."""

    kind: SinkFault
    times: int = 1
    seconds: float = 1.0


def attempts_of(framework: str, status: FrameworkStatus) -> dict[Attempt, int | None]:
    """Each attempt that a status shows, with its completion code, None before its completion is decided.

    ``framework``: its UID.
    """
    final = status.attempt.completion_status
    found: dict[Attempt, int | None] = {(framework, status.attempt.id): None if final is None else final.code}
    for role in status.attempt.roles:
        for task in role.tasks:
            code = task.attempt.completion_status
            found[task.instance_uid, task.attempt.id] = None if code is None else code.code
    return found


class ArchiveStandIn(ReverseProxy):
    """``async with``. `refuse` and `accept` stop and start it, as a proxy's do."""

    def __init__(self, moment: Callable[[], Awaitable[int]]) -> None:
        """``moment`` tells where the record of writes stands: the revision of the next one, or less."""
        super().__init__("")
        self._moment = moment
        self._armed: list[Trouble] = []
        self._poison: int | None = None
        self._late: set[asyncio.Task[None]] = set()
        self.acknowledged: dict[Attempt, dict[int | None, int]] = {}
        """When each attempt was first acknowledged with which code."""
        self.codes: dict[Attempt, set[int]] = {}
        """Each code that a record gave an attempt, acknowledged or not."""
        self.ids: set[str] = set()
        """Of all records that were stored."""
        self.wrong: list[str] = []
        """What is wrong with what came."""
        self.met: Counter[str] = Counter()

    @property
    def records_url(self) -> str:
        """Where records go."""
        return self.url + PATH

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        for task in list(self._late):
            task.cancel()
        await asyncio.gather(*self._late, return_exceptions=True)
        await super().__aexit__(*exc)

    def arm(self, trouble: Trouble) -> None:
        """The next requests meet it."""
        self._armed.append(trouble)

    def poison(self, which: int | None) -> None:
        """From now on refuse some of the records, the same ones each time; None: no more."""
        self._poison = which

    async def calm(self) -> None:
        """End all faults."""
        self._armed.clear()
        self._poison = None
        if self._late:
            await asyncio.wait(self._late)
        await self.accept()

    async def respond(self, _: Request, incoming: web.BaseRequest, body: bytes) -> web.StreamResponse:
        """Answer a request."""
        if (incoming.method, incoming.path) != ("POST", PATH):
            self.wrong.append(f"{incoming.method} {incoming.path}")
            return web.Response(status=404)
        if incoming.content_type != "application/x-ndjson":
            self.wrong.append(f"content type {incoming.content_type}")
        records = list(self._decode(body))
        kind, seconds = self._take()
        if kind in _CODES:
            return _refusal(kind, seconds)
        if kind is SinkFault.DROPPED:
            raise ConnectionDropped
        if kind is SinkFault.HUNG:
            # Who hangs up meanwhile has this cancelled.
            await asyncio.sleep(seconds)
            return web.Response(status=504)
        if kind is SinkFault.LATE:
            self._store_later(records, seconds)
            raise ConnectionDropped
        if kind is SinkFault.SLOW:
            await asyncio.sleep(seconds)
        for number, record in enumerate(records, start=1):
            if self._poison is not None and zlib.crc32(str(record.id).encode()) % _POISON == self._poison:
                self.met["refused"] += 1
                problem = {"title": "a record cannot be used", "detail": f"line {number}: refused on purpose"}
                return web.json_response(problem, status=400)
        for record in records:
            self._store(record)
        if kind is SinkFault.LOST:
            raise ConnectionDropped
        if kind is SinkFault.TWICE:
            self._store_later(records, seconds)
        moment = await self._moment()
        for record in records:
            for attempt, code in _said(record).items():
                self.acknowledged.setdefault(attempt, {}).setdefault(code, moment)
        return web.json_response({"stored": len(records)})

    def _take(self) -> tuple[SinkFault | None, float]:
        if not self._armed:
            return None, 0.0
        first = self._armed[0]
        if first.times > 1:
            self._armed[0] = replace(first, times=first.times - 1)
        else:
            del self._armed[0]
        self.met[first.kind.name.lower()] += 1
        return first.kind, first.seconds

    def _decode(self, body: bytes) -> Iterator[HistoryRecord]:
        lines = body.split(b"\n")
        if lines.pop():
            self.wrong.append("the last line has no end")
        for line in lines:
            try:
                yield decode_record(line)
            except HistoryRecordError as error:
                self.wrong.append(str(error))

    def _store_later(self, records: list[HistoryRecord], seconds: float) -> None:
        async def store() -> None:
            await asyncio.sleep(seconds)
            for record in records:
                self._store(record)

        task = asyncio.create_task(store(), name="storing late")
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    def _store(self, record: HistoryRecord) -> None:
        self.ids.add(str(record.id))
        said = _said(record)
        if record.id.pod_uid is None and _attempt(record.id) not in said:
            self.wrong.append(f"the record {record.id} says nothing of this attempt")
        for attempt, code in said.items():
            if code is not None:
                self.codes.setdefault(attempt, set()).add(code)


def _attempt(found: RecordId) -> Attempt:
    if found.task_uid is None or found.task_attempt is None:
        return found.framework_uid, found.attempt
    return found.task_uid, found.task_attempt


def _said(record: HistoryRecord) -> Mapping[Attempt, int | None]:
    """The attempts in a record."""
    body: Mapping[str, Any] = record.object
    if record.id.kind == "Framework":
        status = decode_status(body.get("status"))
        if status is None:
            return {(record.id.framework_uid, record.id.attempt): None}
        return attempts_of(body["metadata"]["uid"], status)
    if record.id.kind == "Task":
        attempt = body["status"]["attemptStatus"]
        completion = attempt["completionStatus"]
        return {(body["metadata"]["uid"], attempt["id"]): None if completion is None else completion["code"]}
    return {}


def _refusal(kind: SinkFault, seconds: float) -> web.Response:
    headers = {}
    if kind in (SinkFault.UNAVAILABLE, SinkFault.THROTTLED):
        headers["Retry-After"] = str(max(1, round(seconds)))
    elif kind is SinkFault.MOVED:
        headers["Location"] = "/login"
    if kind is SinkFault.LOGIN:
        return web.Response(text="<html>Welcome!</html>\n", content_type="text/html")
    problem = {"title": "not now", "detail": f"chaos: this request is {kind}"}
    return web.json_response(problem, status=_CODES[kind], headers=headers)
