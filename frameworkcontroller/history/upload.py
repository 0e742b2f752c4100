"""Bodies of records: read within bounds of size, time and memory, and split into lines.

The bounds on memory hold for all clients together: at most ``UPLOADS`` bodies of up to ``SMALL_BYTES``, ``LARGE``
larger ones that arrive, and one that is stored. The bytes of the others wait in their connections, which TCP makes
their senders notice.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import orjson
from aiohttp import ClientError, web

from frameworkcontroller.history.archivemetrics import ArchiveMetrics
from frameworkcontroller.webaccess.requestbodies import SlowBodyError, pieces

MAX_BODY_BYTES: Final = 64 * 2**20
"""Of a decompressed body, and so of a record: some 20 times the largest object of an API server."""

SMALL_BYTES: Final = 2 * 2**20
"""The batches of a controller have 1 MiB, unless a single record is larger."""

UPLOADS: Final = 32
UPLOADS_OF_ONE: Final = 16
"""Of one sender, who must not take the turns of the others."""

LARGE: Final = 2
"""Large bodies that arrive at the same time, each of another sender."""

BODY_SEC: Final = 120.0
"""Longest time for a whole body."""

TURN_SEC: Final = 15.0
"""Longest wait for a turn, shorter than the patience of clients."""

_PIECE_BYTES: Final = 256 * 1024
_LINE: Final = re.compile(rb"[^\n]+")


NumberedLine = tuple[int, bytes]
"""A line, after its number from 1."""


class UploadError(Exception):
    """A body is refused. ``status``: of the answer. ``at``: the ``field`` (a header) or the ``line`` at fault."""

    def __init__(self, status: int, title: str, detail: str, **at: str | int) -> None:
        super().__init__(detail)
        self.status = status
        self.title = title
        self.at = at


class SenderTurns:
    """A bounded number of places, for which senders take turns: one that sends much delays the others by one place."""

    def __init__(self, places: int, of_one: int, metrics: ArchiveMetrics, turn_sec: float = TURN_SEC) -> None:
        """``of_one``: places that one sender may have. ``turn_sec``: the longest wait for a place."""
        self._free = places
        self._of_one = of_one
        self._metrics = metrics
        self._turn_sec = turn_sec
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By sender, the one with the next turn first."""

    @asynccontextmanager
    async def turn(self, sender: str) -> AsyncIterator[None]:
        """Wait for a place, which is held while inside.

        Raises:
            UploadError: it does not come in time.
        """
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(sender, deque()).append(place)
        self._grant()
        try:
            with self._metrics.waiting.track_inprogress():
                async with asyncio.timeout(self._turn_sec):
                    await place
        except BaseException as error:
            # It may have come just now.
            if place.done() and not place.cancelled():
                self._release(sender)
            place.cancel()
            self._grant()
            if isinstance(error, TimeoutError):
                raise UploadError(503, "Busy", "too many records arrive at once; try again") from None
            raise
        try:
            yield
        finally:
            self._release(sender)

    def _release(self, sender: str) -> None:
        self._free += 1
        self._held[sender] -= 1
        if not self._held[sender]:
            del self._held[sender]
        self._grant()

    def _grant(self) -> None:
        for sender, waiting in list(self._waiting.items()):
            while waiting and waiting[0].done():
                _ = waiting.popleft()
            if not waiting:
                del self._waiting[sender]
        while self._free:
            sender = next((one for one in self._waiting if self._held[one] < self._of_one), "")
            if not sender:
                return
            waiting = self._waiting.pop(sender)
            waiting.popleft().set_result(None)
            self._free -= 1
            self._held[sender] += 1
            if waiting:
                self._waiting[sender] = waiting


class Uploads:
    """Gives requests their turns, and reads their bodies."""

    def __init__(self, metrics: ArchiveMetrics, *, turn_sec: float = TURN_SEC) -> None:
        """``turn_sec``: the longest wait for a turn."""
        self._metrics = metrics
        self._turns = SenderTurns(UPLOADS, UPLOADS_OF_ONE, metrics, turn_sec)
        # For the arrival of large bodies, which depends on their senders.
        self._large = SenderTurns(LARGE, 1, metrics, turn_sec)
        # For large bodies that have arrived: their lines and rows take several times their size.
        self._whole = SenderTurns(1, 1, metrics, turn_sec)

    @asynccontextmanager
    async def turn(self, sender: str) -> AsyncIterator[Callable[[web.Request], Awaitable[list[NumberedLine]]]]:
        """Wait for a turn, which lasts while inside. Yield a function that reads the lines of a request.

        Raises:
            UploadError: the turn does not come in time; of the function: see `_read`.
        """
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._turns.turn(sender))
            with self._metrics.active.track_inprogress():
                yield lambda request: self._read(request, sender, stack)

    async def _read(self, request: web.Request, sender: str, stack: AsyncExitStack) -> list[NumberedLine]:
        """Return the lines that are not blank.

        Raises:
            UploadError: the body is too large, too slow, incomplete, or not compressed as it says.
        """
        encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in ("identity", "gzip"):
            raise UploadError(
                415,
                "Unsupported encoding",
                f'Content-Encoding: must be gzip or identity, not "{encoding[:50]}"',
                field="Content-Encoding",
            )
        if request.content_length is not None and request.content_length > MAX_BODY_BYTES:
            raise _too_large()
        body = bytearray()
        unzip = _Unzip() if encoding == "gzip" else None
        large: AsyncExitStack | None = None
        try:
            async with asyncio.timeout(BODY_SEC):
                async for piece in pieces(request.content, _PIECE_BYTES):
                    for part in (piece,) if unzip is None else unzip.feed(piece):
                        body += part
                        if len(body) > MAX_BODY_BYTES:
                            raise _too_large()
                        if len(body) > SMALL_BYTES and large is None:
                            large = await stack.enter_async_context(AsyncExitStack())
                            await large.enter_async_context(self._large.turn(sender))
        except TimeoutError:
            raise UploadError(408, "Too slow", f"the body did not arrive within {BODY_SEC:.0f} s") from None
        except SlowBodyError as error:
            raise UploadError(408, "Too slow", str(error)) from None
        except (ClientError, web.RequestPayloadError, OSError) as error:
            raise UploadError(400, "Incomplete body", f"the body ended too early: {error}") from None
        if unzip is not None:
            unzip.finish()
        if large is not None:
            await stack.enter_async_context(self._whole.turn(sender))
            await large.aclose()
        # A view would keep the whole body in memory for a single line; these copies replace it.
        return list(_lines(body))


def _lines(body: bytearray) -> Iterator[NumberedLine]:
    """Yield the lines that are not blank. There may be 64 Mi blank ones: a list of all would be large."""
    number, end = 1, 0
    for found in _LINE.finditer(body):
        number += body.count(b"\n", end, found.start())
        end = found.end()
        line = found[0]
        if line.strip():
            yield number, bytes(line)


def outline(lines: Sequence[bytes]) -> tuple[frozenset[str], list[str]]:
    """Return the namespaces of records, and their triggers. The archive refuses other lines."""
    namespaces: set[str] = set()
    triggers: list[str] = []
    for line in lines:
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if isinstance(record, dict):
            namespace, trigger = record.get("namespace"), record.get("trigger")
            if isinstance(namespace, str) and isinstance(trigger, str):
                namespaces.add(namespace)
                triggers.append(trigger)
    return frozenset(namespaces), triggers


class _Unzip:
    """Decompresses gzip in pieces of bounded size, so that little input cannot take much memory."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(wbits=31)
        self._began = False

    def feed(self, piece: bytes) -> Iterator[bytes]:
        # One by one: the caller checks the size of each part before the next one exists.
        try:
            while piece:
                self._began = True
                yield self._member.decompress(piece, _PIECE_BYTES)
                piece = self._member.unconsumed_tail
                if self._member.eof:
                    piece = self._member.unused_data
                    self._member = zlib.decompressobj(wbits=31)
                    self._began = False
        except zlib.error as error:
            raise UploadError(
                400, "Bad compression", f"the body is not gzip: {error}", field="Content-Encoding"
            ) from None

    def finish(self) -> None:
        if self._began:
            raise UploadError(400, "Bad compression", "the gzip data ends too early", field="Content-Encoding")


def _too_large() -> UploadError:
    return UploadError(413, "Too large", f"the body has more than {MAX_BODY_BYTES} bytes, decompressed")
