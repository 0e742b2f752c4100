"""A bad network between a controller and its API server: a proxy that loses, delays, refuses and lies.

It forwards to any API server, embedded or real, and works by the running loop's clock, virtual or not. It does nothing
by itself: a fault is *armed* (`FaultProxy.arm`) and then met by the next requests that it fits, so that a list of
faults with their times, made from one seed, replays itself. ``met`` has the faults that requests met.
"""

import asyncio
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

import aiohttp
import orjson
from aiohttp import web

from frameworkcontroller.kube.resources import WORKLOADS
from tests.support.reverseproxy import ConnectionDropped, Request, ReverseProxy, abort, refusal


class Kind(StrEnum):
    """A fault that a request meets."""

    DROP = "is lost on its way"
    DELAY = "is delayed"
    SLOW = "is answered slowly"
    CUT = "is executed, its answer cut in the middle"
    LOST = "is executed, and answered with 504"
    GARBLED = "is executed, its answer is no JSON"
    LATE = "is answered with 504, and executed later"
    THROTTLED = "is answered with 429 and Retry-After"
    FAILED = "is answered with 500"
    UNAVAILABLE = "is answered with 503"
    CONFLICT = "is answered with 409"
    UNAUTHORIZED = "is answered with 401"
    EXPIRED = "is answered with 410"
    NO_BACKEND = "is answered by a gateway: a page, with 404"
    LOGIN = "is answered by a gateway: a page, with 200"
    BLOCKED = "is answered by a gateway: a page, with 403"
    STALE = "is answered with a list of before"
    MUTED = "is a watch that says nothing more"
    SKIPPED = "is a watch that leaves out an event"
    REPLAYED = "is a watch that says an event of before again"
    HELD = "is a watch that is held up"
    UNTOLD = "is a watch that ends by saying 500"


OF_WATCHES: Final = frozenset({Kind.MUTED, Kind.SKIPPED, Kind.REPLAYED, Kind.HELD, Kind.UNTOLD})
_OF_OPEN_WATCHES: Final = frozenset({Kind.CUT, Kind.GARBLED, Kind.EXPIRED})
"""What a watch that is open meets at its next event, if the fault is said to be of watches."""
_WRITES: Final = ("create", "patch", "update", "delete")
_VERBS: Final = {
    Kind.STALE: ("list",),
    Kind.EXPIRED: ("list", "watch"),
    Kind.CONFLICT: _WRITES,
    Kind.LATE: _WRITES,
    Kind.LOST: _WRITES,
}
"""Requests that meet these; all others meet all requests."""
_REFUSALS: Final = {
    Kind.THROTTLED: (429, "TooManyRequests"),
    Kind.FAILED: (500, "InternalError"),
    Kind.UNAVAILABLE: (503, "ServiceUnavailable"),
    Kind.CONFLICT: (409, "Conflict"),
    Kind.UNAUTHORIZED: (401, "Unauthorized"),
    Kind.EXPIRED: (410, "Expired"),
    Kind.LATE: (504, "Timeout"),
    Kind.LOST: (504, "Timeout"),
}
_PAGES: Final = {Kind.NO_BACKEND: 404, Kind.LOGIN: 200, Kind.BLOCKED: 403}
"""What is between the controller and the API server speaks for it, which is seen by the answer's being no JSON."""


@dataclass(frozen=True)
class Fault:
    """A fault of the next ``times`` requests of ``verb`` and ``resource`` ("" fits all); ``seconds`` as `kind` needs.

    For a watch, ``times`` is the number of events; `HELD` delays all events of its ``seconds``.
    """

    kind: Kind
    verb: str = ""
    resource: str = ""
    times: int = 1
    seconds: float = 1.0

    def fits(self, verb: str, resource: str) -> bool:
        """Whether such a request meets it."""
        if self.verb not in ("", verb) or self.resource not in ("", resource):
            return False
        if self.kind in _VERBS:
            return verb in _VERBS[self.kind]
        # A watch that is answered slowly is one that is held up; one that is cut or no JSON is so while it is open.
        return verb != "watch" or self.kind not in (Kind.SLOW, Kind.CUT, Kind.GARBLED)

    @property
    def is_of_streams(self) -> bool:
        """Whether watches that are open meet it, and not requests that are still to come."""
        return self.kind in OF_WATCHES or (self.verb == "watch" and self.kind in _OF_OPEN_WATCHES)


@dataclass(frozen=True)
class Deletion:
    """A DELETE as it was sent, executed or not. ``at``: seconds since the epoch."""

    at: float
    resource: str
    name: str
    uid: str | None
    """Of its precondition."""
    forced: bool
    """Whether it leaves the Pod no time."""


@dataclass(frozen=True)
class Change:
    """A PATCH or DELETE as it was sent, executed or not."""

    moment: int
    """As `FaultProxy.moment` was when it came."""
    verb: str
    name: str
    body: Mapping[str, Any]
    """The merge patch."""


class FaultProxy(ReverseProxy):
    """Without an armed fault, it passes the answers of ``upstream`` on."""

    def __init__(
        self, upstream: str, *, tls: ssl.SSLContext | None = None, wall: Callable[[], float] = time.time
    ) -> None:
        """``wall`` returns seconds since the epoch."""
        super().__init__(upstream, tls=tls)
        self.deletions: list[Deletion] = []
        self.moment: Callable[[], int] = lambda: 0
        """Where the record of writes stands."""
        self.changes_of_workloads: list[Change] = []
        self.busiest = 0
        """The most requests that came in a second."""
        self.asked: set[tuple[str, str]] = set()
        """Verb and resource of all requests."""
        self._denied: dict[str, tuple[str, ...]] = {}
        """Verbs that are not permitted, by resource."""
        self._second = (0, 0)
        self._wall = wall
        self._armed: list[Fault] = []
        self._streams: list[_Stream] = []
        self._lists: dict[str, bytes] = {}
        self._pace: dict[str, tuple[float, float]] = {}
        self._lossy: set[str] = set()
        """Resources of which some watch has lost an event."""
        self._late: set[asyncio.Task[None]] = set()
        self._delayed: set[asyncio.Future[None]] = set()
        self._unauthorized: set[str] = set()
        """Requests that were answered with 401 the last time."""
        self._fatal: tuple[int, bool, Callable[[], None]] | None = None
        self._injected: Counter[Kind] = Counter()

    async def __aexit__(self, *exc: object) -> None:
        for task in list(self._late):
            task.cancel()
        await asyncio.gather(*self._late, return_exceptions=True)
        await super().__aexit__(*exc)

    def met(self) -> Iterable[tuple[Kind, int]]:
        """How often which fault was met."""
        return self._injected.items()

    # --- faults to arm ----------------------------------------------------------------------------------------------

    def arm(self, fault: Fault) -> None:
        """The next requests that it fits meet it; of faults of watches, also those that are open."""
        if fault.is_of_streams:
            for stream in self._streams:
                if fault.resource in ("", stream.resource):
                    self._count(fault.kind)
                    stream.meet(fault)
                    if fault.kind is Kind.SKIPPED:
                        self._lossy.add(stream.resource)
        else:
            self._armed.append(fault)

    def slow_down(self, resource: str, before: float, after: float) -> None:
        """From now on each write of the resource takes this number of seconds before its execution, and after."""
        self._pace[resource] = (before, after)

    def deny(self, resource: str, *verbs: str) -> None:
        """From now on requests of these verbs are forbidden, and no others of the resource. Ends watches of it."""
        self._denied[resource] = verbs
        if "watch" in verbs:
            for stream in self._streams:
                if stream.resource == resource:
                    stream.break_off()

    def kill_at(self, number: int, *, executed: bool, strike: Callable[[], None]) -> None:
        """Call ``strike`` at that write from now on; it gets no answer, but is executed if so told."""
        self._fatal = (number, executed, strike)

    async def refuse(self) -> None:
        """As the base class; a controller that is to be killed is not."""
        self._fatal = None
        await super().refuse()

    async def calm(self, *, mend_watches: bool = False) -> None:
        """Disarm all faults, release all watches, and execute late requests.

        ``mend_watches``: end silent watches, and answer 410 to watches that lost an event, which a controller would
        otherwise notice only after minutes.
        """
        self._armed.clear()
        self._pace.clear()
        self._denied.clear()
        self._fatal = None
        for stream in self._streams:
            stream.calm()
            if mend_watches and (stream.muted or stream.resource in self._lossy):
                stream.break_off()
        if mend_watches:
            self._armed += [Fault(Kind.EXPIRED, "watch", resource) for resource in sorted(self._lossy)]
        self._lossy.clear()
        if running := {*self._late, *self._delayed}:
            # The stored state may contradict them now.
            await asyncio.wait(running)
        await self.accept()

    # --- requests ---------------------------------------------------------------------------------------------------

    async def respond(self, request: Request, incoming: web.BaseRequest, body: bytes) -> web.StreamResponse:
        resource = request.plural
        self._note_moment()
        if incoming.method == "DELETE":
            self.deletions.append(_deletion(request, body, self._wall()))
        if resource == WORKLOADS.plural and request.verb in ("patch", "delete"):
            said = orjson.loads(body) if body else {}
            self.changes_of_workloads.append(Change(self.moment(), request.verb, request.name, said))
        self.asked.add((request.verb, resource))
        if request.verb in self._denied.get(resource, ()):
            return refusal(403, "Forbidden", f"chaos: cannot {request.verb} resource {resource}")
        before, after = self._pace.get(resource, (0.0, 0.0)) if incoming.method != "GET" else (0.0, 0.0)
        await self._delay(before)
        if incoming.method != "GET":
            await self._count_down(incoming, body)
        fault = self._take(request.verb, resource, f"{incoming.method} {incoming.path_qs}")
        response = await self._meet(incoming, body, request.verb, resource, fault)
        await asyncio.sleep(after)
        return response

    async def _delay(self, seconds: float) -> None:
        """Wait. A client that hangs up meanwhile cancels this, and the request is not executed."""
        over = asyncio.get_running_loop().create_future()
        self._delayed.add(over)
        try:
            await asyncio.sleep(seconds)
        finally:
            self._delayed.discard(over)
            over.set_result(None)

    def _note_moment(self) -> None:
        now = int(asyncio.get_running_loop().time())
        second, number = self._second
        self._second = (now, number + 1 if now == second else 1)
        self.busiest = max(self.busiest, self._second[1])

    async def _meet(
        self, request: web.BaseRequest, body: bytes, verb: str, resource: str, fault: Fault | None
    ) -> web.StreamResponse:
        kind = None if fault is None else fault.kind
        seconds = 0.0 if fault is None else fault.seconds
        if kind is Kind.DROP:
            raise ConnectionDropped
        if kind is Kind.DELAY:
            await self._delay(seconds)
        elif kind is Kind.LATE:
            task = asyncio.create_task(self._execute_late(request, body, seconds))
            self._late.add(task)
            task.add_done_callback(self._late.discard)
            return _refusal(Kind.LATE, seconds)
        elif kind in _REFUSALS and kind is not Kind.LOST:
            return _refusal(kind, seconds)
        elif kind in _PAGES:
            return web.Response(status=_PAGES[kind], text="<html>Welcome!</html>\n", content_type="text/html")
        if verb == "watch":
            return await self._watched(request, resource)
        forwarded = await self.forward(request, body)
        answer = forwarded.body
        assert isinstance(answer, bytes)
        if verb == "list" and forwarded.status == 200 and "continue" not in request.query:
            before, self._lists[request.path_qs] = self._lists.get(request.path_qs), answer
            if kind is Kind.STALE and before is not None:
                # The list before this one, as from an API server that lags behind; and the next lag likewise.
                answer, self._lists[request.path_qs] = before, before
        if kind is Kind.LOST:
            return _refusal(Kind.LOST, seconds)
        if kind is Kind.GARBLED:
            answer = answer[: len(answer) // 2] + b"\x00<html>"
        if kind not in (Kind.CUT, Kind.SLOW):
            forwarded.body = answer
            return forwarded
        headers = {**forwarded.headers, "Content-Length": str(len(answer))}
        response = web.StreamResponse(status=forwarded.status, headers=headers)
        await response.prepare(request)
        if kind is Kind.CUT:
            await response.write(answer[: len(answer) // 2])
            raise ConnectionDropped
        for start in range(0, len(answer), max(1, len(answer) // 4)):
            await asyncio.sleep(seconds / 4)
            await response.write(answer[start : start + max(1, len(answer) // 4)])
        return response

    async def _count_down(self, request: web.BaseRequest, body: bytes) -> None:
        if self._fatal is None:
            return
        number, executed, strike = self._fatal
        self._fatal = (number - 1, executed, strike)
        if number == 1 and executed:
            await self.forward(request, body)
        if number == 1:
            strike()
        if number <= 1:
            # It counts as dead, and later requests are dropped.
            raise ConnectionDropped

    async def _execute_late(self, request: web.BaseRequest, body: bytes, seconds: float) -> None:
        await asyncio.sleep(seconds)
        # Late, and lost as well.
        with suppress(aiohttp.ClientError, OSError):
            await self.forward(request, body)

    async def _watched(self, request: web.BaseRequest, resource: str) -> web.StreamResponse:
        stream = _Stream(resource, request)
        self._streams.append(stream)
        try:
            return await self.watch(request, stream.pass_on)
        finally:
            self._streams.remove(stream)

    def _take(self, verb: str, resource: str, request: str) -> Fault | None:
        # Never twice in a row: a controller whose credentials are always refused may end.
        renewed = request in self._unauthorized
        self._unauthorized.discard(request)
        for position, fault in enumerate(self._armed):
            if fault.fits(verb, resource) and not (renewed and fault.kind is Kind.UNAUTHORIZED):
                if fault.kind is Kind.UNAUTHORIZED:
                    self._unauthorized.add(request)
                if fault.times > 1:
                    self._armed[position] = replace(fault, times=fault.times - 1)
                else:
                    del self._armed[position]
                self._count(fault.kind)
                return fault
        return None

    def _count(self, kind: Kind) -> None:
        self._injected[kind] += 1


class _Stream:
    """One watch that is open."""

    def __init__(self, resource: str, request: web.BaseRequest) -> None:
        self.resource = resource
        self._request = request
        self.muted = False
        self._ends_by: Kind | None = None
        self._skip = 0
        self._replay = 0
        self._held_until = 0.0
        self._freed = asyncio.Event()
        self._told: list[bytes] = []

    def meet(self, fault: Fault) -> None:
        match fault.kind:
            case Kind.MUTED:
                self.muted = True
            case Kind.SKIPPED:
                self._skip += fault.times
            case Kind.REPLAYED:
                self._replay += 1
            case Kind.HELD:
                self._held_until = asyncio.get_running_loop().time() + fault.seconds
                self._freed.clear()
            case _:
                self._ends_by = fault.kind

    def calm(self) -> None:
        """Its dropped events stay lost, and silent watches stay silent."""
        self._skip = self._replay = 0
        self._ends_by = None
        self._held_until = 0.0
        self._freed.set()

    def break_off(self) -> None:
        """Drop the connection."""
        abort(self._request)

    async def pass_on(self, line: bytes) -> AsyncIterator[bytes]:
        """Yield the lines to pass on in place of this event. Raises ConnectionDropped at the end of the watch."""
        if (wait := self._held_until - asyncio.get_running_loop().time()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._freed.wait()
        if self.muted:
            return
        if self._ends_by is not None:
            yield _END_OF_WATCH[self._ends_by](line)
            raise ConnectionDropped
        if b'"BOOKMARK"' in line[:40]:
            yield line
        elif self._skip:
            self._skip -= 1
        else:
            self._told = [*self._told[-9:], line]
            yield line
            if self._replay:
                self._replay -= 1
                yield self._told[0]


_GONE: Final = (
    b'{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,'
    b'"message":"too old resource version"}}\n'
)
_FAILED: Final = (
    b'{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"InternalError","code":500,'
    b'"message":"unable to decode an event"}}\n'
)
_END_OF_WATCH: Final[Mapping[Kind, Callable[[bytes], bytes]]] = {
    Kind.CUT: lambda line: line[: len(line) // 2],
    Kind.GARBLED: lambda line: line[: len(line) // 2] + b"\x00<html>\n",
    Kind.EXPIRED: lambda _: _GONE,
    Kind.UNTOLD: lambda _: _FAILED,
}


def _deletion(request: Request, body: bytes, at: float) -> Deletion:
    options = orjson.loads(body) if body else {}
    return Deletion(
        at,
        request.plural,
        request.name,
        (options.get("preconditions") or {}).get("uid"),
        options.get("gracePeriodSeconds") == 0,
    )


def _refusal(kind: Kind, seconds: float) -> web.Response:
    code, reason = _REFUSALS[kind]
    headers = {"Retry_After": str(max(1, round(seconds)))} if kind is Kind.THROTTLED else {}
    return refusal(code, reason, f"chaos: this request {kind}", **headers)
