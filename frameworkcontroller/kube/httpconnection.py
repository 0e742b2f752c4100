"""A connection for HTTP/1 requests, one at a time.

A general client spends twice as much CPU on a small request. Here a request is one write of prepared bytes, its
answer mostly one read, and a connection has one timer, which requests postpone without touching it.
"""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import Callable
from typing import Final, cast

from frameworkcontroller.kube.answerparser import AnswerParser, BadAnswer, Head

# A large body written at once would block the event loop.
_SLICE_BYTES: Final = 256 * 1024
# Limit of unread bytes of a watch, some dozens of Pods: one step of the event loop, two milliseconds.
_MAX_UNREAD_BYTES: Final = 128 * 1024


class NoAnswer(ConnectionError):
    """The connection was closed before the first byte of an answer."""


class BrokenOff(ConnectionError):
    """The connection was closed within an answer."""


class TooManyBytes(ConnectionError):
    """The body has more bytes than the request accepts."""


class HttpConnection(asyncio.Protocol):
    """Sends a request with `send`, waits for its answer with `opened`, reads the body, and ends it with `release`.

    An exception of a method, and cancellation, leave the connection unusable: `release` closes it.
    """

    def __init__(self, closed: Callable[[HttpConnection], None]) -> None:
        """``closed`` is called once when the connection is closed."""
        self._closed = closed
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._lost = False
        self._busy = False
        self._parser = AnswerParser()
        self._parts: list[bytes] = []
        self._unread = 0
        self.received = 0
        """Bytes of the body so far."""
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._at_most: float = math.inf
        self._whole = False
        self._sent = False
        self._paused = False
        self._writable = True
        self._limit = 0.0
        self._close_at = 0.0
        self._timer: asyncio.Handle | None = None
        self._timer_due = 0.0

    # --- a request ---

    @property
    def is_open(self) -> bool:
        """Whether a request can be sent."""
        return not self._lost and not self._transport.is_closing()

    async def send(self, head: bytes, body: bytes, *, limit: float, at_most: float = math.inf) -> None:
        """Begin a request. If the server neither takes nor sends a byte for ``limit`` seconds, it fails.

        It also fails, by TooManyBytes, once the body of the answer has more than ``at_most`` bytes.
        Raises the error if the connection is closed meanwhile. Ends early if the answer comes first.
        """
        self._busy = True
        parser = self._parser
        parser.expect()
        self._parts = []
        self._unread = self.received = 0
        self._at_most = at_most
        self._whole = False
        self.set_limit(limit)
        if len(body) <= _SLICE_BYTES:
            self._transport.write(head + body)
            self._sent = True
            return
        self._sent = False
        self._transport.write(head)
        view = memoryview(body)
        for start in range(0, len(body), _SLICE_BYTES):
            self._transport.write(view[start : start + _SLICE_BYTES])
            await asyncio.sleep(0)
            while not self._writable and self._error is None and parser.head is None:
                await self._change()
            if self._error is not None or parser.head is not None:
                return
        self._sent = True

    def set_limit(self, seconds: float) -> None:
        """Let the connection fail if it is silent for this time from now on."""
        self._limit = seconds
        self._postpone(self._loop.time() + seconds)

    async def opened(self, *, whole: bool) -> Head:
        """Wait for the head of the answer; or, with ``whole``, rather until it is complete or fails.

        Raises NoAnswer, BrokenOff, BadAnswer, TooManyBytes, or TimeoutError for silence.
        """
        parser = self._parser
        self._whole = whole
        if whole:
            self._resume()
        while not parser.done and self._error is None and (whole or parser.head is None):
            await self._change()
        if parser.head is None:
            raise self._error or NoAnswer
        return parser.head

    async def read(self) -> bytes:
        """Return the next part of the body, empty at its end. Raises the errors of `opened`."""
        parser = self._parser
        self._whole = False
        while not self._parts:
            if self._error is not None:
                raise self._error
            if parser.done:
                return b""
            await self._change()
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts = []
        self._resume()
        return data

    async def read_all(self) -> bytes:
        """Return the whole body. Raises the errors of `opened`."""
        parser = self._parser
        self._whole = True
        self._resume()
        while not parser.done and self._error is None:
            await self._change()
        if self._error is not None:
            raise self._error
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)

    def release(self, keep_seconds: float) -> bool:
        """End the request. Return whether the connection is open for another one, for that time; else it is closed."""
        parser = self._parser
        is_clean = parser.done and parser.reusable and self._sent and self._writable and not self._paused
        if self._busy and not is_clean:
            self.abort()
        self._busy = False
        self._parts = []
        if not self.is_open:
            return False
        self._postpone(self._loop.time() + keep_seconds)
        return True

    async def start_tls(self, context: ssl.SSLContext, server_name: str | None) -> None:
        """Speak TLS from now on, after a proxy has answered to CONNECT. Raises OSError."""
        self._busy = False
        self._parser = AnswerParser()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        transport = await self._loop.start_tls(self._transport, self, context, server_hostname=server_name)
        if transport is None:
            raise NoAnswer("the proxy closed the connection")
        self._transport = transport

    def abort(self) -> None:
        if not self._lost:
            self._transport.abort()

    # --- of asyncio ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport does not inherit from asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        parser = self._parser
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._busy and not parser.done and self._error is None:
            try:
                if exc is not None:
                    raise BadAnswer(exc)
                parser.feed_eof()
            except BadAnswer as error:
                self._error = BrokenOff(str(error)) if parser.begun else NoAnswer("" if exc is None else str(exc))
        self._lost = True
        self._wake()
        self._closed(self)

    def data_received(self, data: bytes) -> None:
        parser = self._parser
        if not self._busy:
            # Not an answer: nothing was asked.
            self.abort()
            return
        self._close_at = self._loop.time() + self._limit
        try:
            parts = parser.feed(data)
        except BadAnswer as error:
            self._fail(error)
            return
        self._parts += parts
        size = sum(map(len, parts))
        self.received += size
        if self.received > self._at_most:
            self._fail(TooManyBytes(f"more than {self._at_most:.0f} bytes"))
            return
        if not self._whole:
            self._unread += size
            if self._unread > _MAX_UNREAD_BYTES and not self._paused and not parser.done:
                self._paused = True
                self._transport.pause_reading()
            self._wake()
        elif parser.done:
            self._wake()

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._close_at = self._loop.time() + self._limit
        self._wake()

    # --- inside ---

    async def _change(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _resume(self) -> None:
        self._unread = 0
        if self._paused:
            self._paused = False
            self.set_limit(self._limit)
            if self.is_open:
                self._transport.resume_reading()

    def _fail(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
        self.abort()
        self._wake()

    def _postpone(self, close_at: float) -> None:
        """Let the timer ring at that time. One that rings earlier stays, and is set again when it rings."""
        self._close_at = close_at
        if self._timer is not None and self._timer_due > close_at:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer, self._timer_due = self._loop.call_at(close_at, self._ring), close_at

    def _ring(self) -> None:
        self._timer = None
        now = self._loop.time()
        if self._paused or (self._busy and self._parser.done):
            # It is not the server that is slow.
            self._close_at = now + self._limit
        if now < self._close_at:
            self._postpone(self._close_at)
        elif not self._busy:
            self.abort()
        else:
            self._fail(TimeoutError("silence"))
