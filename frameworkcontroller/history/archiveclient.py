"""A client of the archive's HTTP API."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlencode, urlsplit

import aiohttp
import orjson
from pydantic import ValidationError
from yarl import URL

from frameworkcontroller import __version__
from frameworkcontroller.history.archiveerrors import ArchiveError, QueryError
from frameworkcontroller.history.reads import A, ArchiveReader, Read
from frameworkcontroller.webaccess.viewers import LogAccessError, Viewer

_log: Final = logging.getLogger(__name__)

_TIMEOUT: Final = aiohttp.ClientTimeout(total=60.0, sock_connect=10.0)
_MAX_ANSWER_BYTES: Final = 256 * 2**20
_MAX_QUOTED: Final = 300


class ArchiveURLError(ValueError):
    """The URL or the CA file of an archive cannot be used. The text says why."""


class ArchiveClient:
    """Connections to one archive, used within ``async with``."""

    def __init__(self, url: str, *, ca_file: Path | None = None, token_file: Path | None = None) -> None:
        """``url``: of the server, with the path under which it is served, if any. ``ca_file``: PEM, for https.
        ``token_file``: has the token for viewers without one.

        Raises:
            ArchiveURLError: one of them cannot be used.
        """
        self.url = check_url(url)
        self._tls: ssl.SSLContext | bool = True
        if ca_file is not None:
            try:
                self._tls = ssl.create_default_context(cafile=str(ca_file))
            except (OSError, ssl.SSLError) as error:
                raise ArchiveURLError(f"{ca_file}: cannot be read as certificates: {error}") from None
        self._token_file = token_file
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def reader(self, token: str | None = None) -> ArchiveReader:
        """Return a reader that sends requests with this bearer token."""
        return _RemoteReader(self, token)

    async def for_viewer(self, viewer: Viewer) -> ArchiveReader:
        """Return the archive as the viewer may read it, which it decides: it is asked with the token of the viewer.

        On loopback, viewers have no token of the cluster: then the archive gets the one in ``token_file``.
        """
        token = viewer.token
        if token is None and self._token_file is not None:
            try:
                # It may be renewed at any time.
                token = self._token_file.read_text(encoding="utf-8").strip()
            except OSError as error:
                raise ArchiveError(f"{self._token_file}: cannot be read: {error.strerror}") from None
        return self.reader(token)

    async def get(self, path: str, query: Mapping[str, str], token: str | None) -> dict[str, Any] | None:
        """Return the JSON object at a path; None if there is none (404).

        Raises:
            ArchiveError: it cannot be read now.
            QueryError: the server refuses the query.
        """
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=_TIMEOUT,
                connector=aiohttp.TCPConnector(ssl=self._tls, limit=20),
                headers={"User-Agent": f"frameworkcontroller/{__version__}", "Accept": "application/json"},
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        text = f"{self.url}{path}{'?' if query else ''}{urlencode(query)}"
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        try:
            # A redirect could carry the token elsewhere.
            async with self._session.get(URL(text, encoded=True), headers=headers, allow_redirects=False) as response:
                body = await response.content.read(_MAX_ANSWER_BYTES)
                if not response.content.at_eof():
                    raise ArchiveError(f"{self.url}: the answer has more than {_MAX_ANSWER_BYTES} bytes")
                return self._answer(response.status, body)
        except TimeoutError:
            raise ArchiveError(f"{self.url}: no answer within {_TIMEOUT.total:.0f} s") from None
        except aiohttp.ClientConnectorError as error:
            # Of a certificate that is not accepted, it has no other error.
            raise ArchiveError(f"{self.url}: cannot connect: {getattr(error, 'os_error', error)}") from None
        except (aiohttp.ClientError, OSError) as error:
            raise ArchiveError(f"{self.url}: {' '.join(str(error).split()) or type(error).__name__}") from None

    def _answer(self, status: int, body: bytes) -> dict[str, Any] | None:
        try:
            content = orjson.loads(body)
        except orjson.JSONDecodeError:
            content = None
        if status == 200:
            if not isinstance(content, dict):
                raise ArchiveError(f"{self.url}: the answer is no JSON object: is this an archive?")
            return content
        problem = content if isinstance(content, dict) and isinstance(content.get("detail"), str) else None
        if status == 404 and problem is not None:
            return None
        detail = problem["detail"][:_MAX_QUOTED] if problem is not None else "without an explanation"
        if status == 400 and problem is not None and isinstance(problem.get("field"), str):
            raise QueryError(problem["field"], detail.removeprefix(f"{problem['field']}: "))
        answered = "" if status == 401 else f"answered {status}: "
        words = f"{self.url}: {answered}{detail}"
        raise _ForbiddenError(words, detail) if status == 403 and problem is not None else ArchiveError(words)


class _ForbiddenError(ArchiveError):
    def __init__(self, words: str, detail: str) -> None:
        super().__init__(words)
        self.detail = detail


@dataclass(frozen=True, slots=True)
class _RemoteReader:
    client: ArchiveClient
    token: str | None

    async def read(self, query: Read[A]) -> A:
        path, parameters = query.location()
        try:
            found = await self.client.get(path, parameters, self.token)
        except _ForbiddenError as error:
            if query.of_logs:
                raise LogAccessError(words=error.detail) from None
            raise
        if found is None and not query.missing:
            raise ArchiveError(f"{self.client.url}: has no {path}: is this an archive of this version?")
        try:
            answer: A = query.answer().validate_python(found)
        except ValidationError as error:
            _log.warning("Cannot read the answer of the archive to %s: %s", path, error)
            raise ArchiveError(
                f"{self.client.url}: unexpected response; is this a history server of this version?"
            ) from None
        return answer


def check_url(url: str) -> str:
    """Return the URL of an archive without a slash at its end. Raise ArchiveURLError if it cannot be used."""
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
            raise ValueError
    except ValueError:
        raise ArchiveURLError(f'must be http://HOST:PORT or https://HOST:PORT, not "{url[:_MAX_QUOTED]}"') from None
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ArchiveURLError("must have no spaces, and other characters than ASCII percent-encoded")
    if parts.query or parts.fragment or parts.username is not None:
        raise ArchiveURLError("must have no user, no query and no fragment")
    return url.rstrip("/").removesuffix("/v1/records")
