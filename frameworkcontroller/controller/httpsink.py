"""The history's records by HTTP: POST of NDJSON, compressed by gzip.

Source: docs/history-records.md.
"""

from __future__ import annotations

import asyncio
import gzip
import io
import re
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import aiohttp
import orjson

from frameworkcontroller import __version__
from frameworkcontroller.controller.historysink import RecordsRefused, Unavailable
from frameworkcontroller.kube.errors import retry_after_seconds

_CONNECT_SEC: Final = 5.0
_ANSWER_SEC: Final = 30.0
"""From the end of the request until its answer, and between two parts of that."""
_BYTES_PER_SEC: Final = 2**18
"""A slower destination counts as one that hangs."""
_KEEPALIVE_SEC: Final = 15.0
"""Less than servers and proxies keep idle connections: a request into one that is being closed fails."""
_IN_THREAD_BYTES: Final = 2**15
_LARGE_BODY_BYTES: Final = 2**20
_GZIP_LEVEL: Final = 1
_MAX_ANSWER_BYTES: Final = 4096
_MAX_QUOTED: Final = 300

_REFUSED_RECORDS: Final = frozenset({400, 413, 422})
"""Answers that mean the records. All others than 2xx mean the server, its address, or the credentials."""

_TOKEN: Final = re.compile(rb"[\x21-\x7e]+")


class HttpDestination:
    """A server that takes records. Belongs to one event loop.

    Redirects are not followed, and no proxy of the environment is used: neither is to get the token.
    """

    concurrency = 4

    def __init__(
        self,
        url: str,
        *,
        token_file: Path | None,
        ca_file: Path | None,
        namespace: str | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """``token_file``: of a bearer token. ``ca_file``: certificates to trust, in place of the system's.
        ``namespace``: the one of all records, None: several.

        Both files are read again when they change. ``wall``: seconds since the epoch.
        """
        self.name = url
        self._url = url
        self._token_file = None if token_file is None else _WatchedFile(token_file, "history.tokenFile")
        self._ca_file = None if ca_file is None else _WatchedFile(ca_file, "history.caFile")
        self._of = {} if namespace is None else {"Framework-Namespace": namespace}
        self._wall = wall
        self._tls: ssl.SSLContext | None = None
        self._session: aiohttp.ClientSession | None = None

    async def send(self, lines: Sequence[bytes]) -> None:
        """Store the lines.

        Raises:
            Unavailable: some may not be stored.
            RecordsRefused: because of the lines.
        """
        size = sum(map(len, lines))
        # Compression of a whole batch takes 10 ms, in which the event loop would do nothing else.
        body = _compress(lines) if size < _IN_THREAD_BYTES else await asyncio.to_thread(_compress, lines)
        headers = {"Content-Type": "application/x-ndjson", "Content-Encoding": "gzip", **self._of}
        headers |= self._authorization()
        tls = self._trusted()
        try:
            async with asyncio.timeout(_CONNECT_SEC + _ANSWER_SEC + len(body) / _BYTES_PER_SEC):
                try:
                    await self._post(body, headers, tls, len(lines))
                except aiohttp.ServerDisconnectedError:
                    # Perhaps it has closed an idle connection just now. Records may come twice.
                    await self._post(body, headers, tls, len(lines))
        except aiohttp.ClientConnectorError as error:
            raise Unavailable(f"{self.name}: cannot connect: {getattr(error, 'os_error', error)}") from error
        except TimeoutError as error:
            what = "no connection" if isinstance(error, aiohttp.ConnectionTimeoutError) else "no answer"
            raise Unavailable(f"{self.name}: {what} in time") from error
        except aiohttp.ServerDisconnectedError as error:
            raise Unavailable(f"{self.name}: closed the connection without an answer") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise Unavailable(f"{self.name}: {type(error).__name__}: {error}") from error

    async def _post(self, body: bytes, headers: Mapping[str, str], tls: ssl.SSLContext, records: int) -> None:
        # A large body that is written at once would block the event loop.
        data = io.BytesIO(body) if len(body) >= _LARGE_BODY_BYTES else body
        async with self._opened().post(
            self._url, data=data, headers=headers, ssl=tls, allow_redirects=False
        ) as response:
            text = await response.content.read(_MAX_ANSWER_BYTES)
        message = f"{self.name}: {response.status} {_words(response, text)}"
        if 200 <= response.status < 300:
            if not _acknowledges(response, text, records):
                raise Unavailable(f"{message}: not the answer of an archive that has stored {records}", response.status)
            return
        if response.status in _REFUSED_RECORDS:
            raise RecordsRefused(message, response.status)
        retry_after = retry_after_seconds(response.headers.get("Retry-After", ""), self._wall())
        raise Unavailable(message, response.status, retry_after or 0.0)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self.concurrency, keepalive_timeout=_KEEPALIVE_SEC),
                headers={"User-Agent": f"frameworkcontroller/{__version__}"},
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SEC, sock_read=_ANSWER_SEC),
            )
        return self._session

    def _authorization(self) -> dict[str, str]:
        if self._token_file is None:
            return {}
        token = self._token_file.read()[0].strip()
        if not _TOKEN.fullmatch(token):
            raise Unavailable(f"{self._token_file}: must hold a bearer token, without spaces")
        return {"Authorization": f"Bearer {token.decode()}"}

    def _trusted(self) -> ssl.SSLContext:
        if self._ca_file is None:
            if self._tls is None:
                self._tls = ssl.create_default_context()
            return self._tls
        content, changed = self._ca_file.read()
        if self._tls is None or changed:
            self._tls = None
            try:
                # Comments in PEM may have any encoding. Empty text would mean the system's certificates.
                tls = ssl.create_default_context(cadata=content.decode("ascii", "ignore") or "empty")
            except (ssl.SSLError, ValueError) as error:
                raise Unavailable(f"{self._ca_file}: must hold certificates as PEM: {error}") from error
            # Python 3.13 is stricter than many clusters' own authorities.
            tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
            self._tls = tls
        return self._tls


class _WatchedFile:
    """A file that is read again when it changes."""

    def __init__(self, path: Path, key: str) -> None:
        """``key``: of the configuration, for messages."""
        self._path = path
        self._key = key
        self._seen: tuple[int, int, int] | None = None
        self._content = b""

    def __str__(self) -> str:
        return f"{self._key} {self._path}"

    def read(self) -> tuple[bytes, bool]:
        """The content, and whether it may have changed since the last time.

        Raises:
            Unavailable: it cannot be read.
        """
        try:
            found = self._path.stat()
            seen = (found.st_ino, found.st_mtime_ns, found.st_size)
            if seen == self._seen:
                return self._content, False
            self._content = self._path.read_bytes()
        except OSError as error:
            self._seen = None
            raise Unavailable(f"{self}: {error.strerror}") from error
        self._seen = seen
        return self._content, True


def _compress(lines: Sequence[bytes]) -> bytes:
    return gzip.compress(b"".join(part for line in lines for part in (line, b"\n")), _GZIP_LEVEL, mtime=0)


def _acknowledges(response: aiohttp.ClientResponse, body: bytes, records: int) -> bool:
    """True if the destination itself answered 2xx: gateways answer 200 with pages, such as one to log in.

    An archive returns the number of stored records, other collectors nothing or any text.
    """
    if response.content_type in ("text/html", "application/xhtml+xml") or body.lstrip()[:1] == b"<":
        return False
    with suppress(ValueError):
        said: Any = orjson.loads(body)
        if isinstance(said, dict) and "stored" in said:
            return bool(said["stored"] == records)
    return True


def _words(response: aiohttp.ClientResponse, body: bytes) -> str:
    """The server's own words: of a problem (RFC 9457), or the beginning of any other answer."""
    if 300 <= response.status < 400:
        return f"redirect to {response.headers.get('Location', 'nowhere')!r}, which is not followed"
    text = body.decode("utf-8", "replace")
    with suppress(ValueError):
        problem: Any = orjson.loads(body)
        if isinstance(problem, dict):
            parts = [problem[field] for field in ("title", "detail") if isinstance(problem.get(field), str)]
            text = ": ".join(parts) or text
    text = " ".join(text.split())
    return text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}…"
