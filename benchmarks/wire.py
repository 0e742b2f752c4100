"""HTTP/1.1 with next to nothing around it: what the null client and the simulated node send their requests with.

Whole requests are made as bytes beforehand, one is in flight per connection, and of an answer only its status code and
its end are looked for. Answers that the caller wants to read are returned as they came.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections import Counter, deque
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple, cast
from urllib.parse import urlsplit

from frameworkcontroller.kube.client import MERGE_PATCH

_METADATA_ONLY: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json"
LIST_METADATA_ONLY: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_UID: Final = re.compile(rb'"uid":"([^"]+)"')


class Answer(NamedTuple):
    """What came back: the status code, and the head and body as bytes."""

    code: int
    text: bytes

    @property
    def uid(self) -> str:
        """The UID of the object that a metadata-only answer shows."""
        # Its own comes before those of its owners or after: owner references are objects in a list of their own.
        head, _, rest = self.text.partition(b'"ownerReferences":[')
        found = _UID.search(head) or _UID.search(rest.partition(b"]")[2])
        if found is None:
            raise ValueError(f"no uid in {self.text[:300]!r}")
        return found[1].decode()

    @property
    def body(self) -> bytes:
        """The body, whole."""
        head, _, rest = self.text.partition(b"\r\n\r\n")
        if _LENGTH.search(head):
            return rest
        parts = []
        while size := int((line := rest.partition(b"\r\n"))[0], 16):
            parts.append(line[2][:size])
            rest = line[2][size + 2 :]
        return b"".join(parts)


class _Connection(asyncio.Protocol):
    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._buffer = bytearray()
        self._answer: asyncio.Future[Answer] | None = None
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's is none by inheritance.
        self._transport = cast("asyncio.WriteTransport", transport)

    def send(self, request: bytes) -> asyncio.Future[Answer]:
        assert self._transport is not None
        self._buffer.clear()
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._answer

    @property
    def open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        head = buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        length = _LENGTH.search(buffer, 0, head)
        if length is not None:
            whole = len(buffer) >= head + 4 + int(length[1])
        else:
            whole = buffer.endswith(b"\r\n0\r\n\r\n") or buffer.startswith(b"HTTP/1.1 204")
        if whole and self._answer is not None and not self._answer.done():
            self._answer.set_result(Answer(int(buffer[9:12]), bytes(buffer)))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError(f"the API server closed the connection: {exc}"))


class Pool:
    """So many connections to one API server, each with one request in flight."""

    def __init__(self, server: str, token: str, ca_file: Path, size: int) -> None:
        parts = urlsplit(server)
        assert parts.hostname is not None
        self._host, self._port = parts.hostname, parts.port or 443
        self._token = token
        self._tls = ssl.create_default_context(cafile=str(ca_file))
        self._size = size
        self._idle: deque[_Connection] = deque()
        self._free = asyncio.Semaphore(size)
        self.sent: Counter[str] = Counter()
        self.sent_bytes: Counter[str] = Counter()

    async def close(self) -> None:
        """Close the connections that are idle."""
        while self._idle:
            self._idle.pop().close()

    def request(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        content_type: str = "application/json",
        accept: str = _METADATA_ONLY,
    ) -> bytes:
        """A request as bytes, ready to be sent any number of times."""
        return (
            f"{method} {path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\nAuthorization: Bearer {self._token}\r\n"
            f"Accept: {accept}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode() + body

    def merge_patch(self, path: str, body: bytes) -> bytes:
        """A merge patch as bytes."""
        return self.request("PATCH", path, body, MERGE_PATCH)

    async def send(self, request: bytes, *, what: str = "") -> Answer:
        """Send one request when a connection is free. ``what``: under which name to count it.

        Raises ConnectionError.
        """
        async with self._free:
            self.sent[what] += 1
            self.sent_bytes[what] += len(request)
            connection = self._idle.pop() if self._idle else await self._connect()
            if not connection.open:
                connection = await self._connect()
            answer = await connection.send(request)
            if connection.open:
                self._idle.append(connection)
            return answer

    async def send_all(self, requests: Iterable[bytes], *, what: str, accept: tuple[int, ...] = ()) -> list[Answer]:
        """Send them all, as many at once as there are connections; their answers in order.

        Raises RuntimeError if one was refused other than by a code in ``accept``.
        """
        todo = list(requests)
        numbered = iter(enumerate(todo))
        answers: dict[int, Answer] = {}

        async def work() -> None:
            for number, request in numbered:
                answer = answers[number] = await self.send(request, what=what)
                if answer.code >= 300 and answer.code not in accept:
                    raise RuntimeError(f"{what}: {answer.text[:600]!r}")

        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._size, len(todo))):
                group.create_task(work())
        return [answers[number] for number in range(len(answers))]

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            lambda: _Connection(self), self._host, self._port, ssl=self._tls, server_hostname=self._host
        )
        return connection
