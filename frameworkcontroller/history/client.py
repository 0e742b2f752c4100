"""The archive's HTTP API as a client sees it. The methods are those of `Archive`, with its queries and answers.

What the token may not read does not exist.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote, urlencode, urlsplit

import aiohttp
import orjson
from yarl import URL

from frameworkcontroller import __version__
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.history.errors import ArchiveError, QueryError
from frameworkcontroller.history.failures import FailureQuery
from frameworkcontroller.history.queries import FrameworkQuery, Page, TaskQuery

_TIMEOUT: Final = aiohttp.ClientTimeout(total=60.0, sock_connect=10.0)
_MAX_ANSWER_BYTES: Final = 256 * 2**20
_MAX_QUOTED: Final = 300


class ArchiveURLError(ValueError):
    """The URL or the CA file of an archive cannot be used. The text says why."""


class NotAdmittedError(ArchiveError):
    """The archive demands a valid token."""


class ArchiveClient:
    """Connections to one archive, used within ``async with``. ``reader`` sends requests."""

    def __init__(self, url: str, *, ca_file: Path | None = None) -> None:
        """``url``: of the server, with the path under which it is served, if any. ``ca_file``: PEM, for https.

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
        """Return what sends requests with this bearer token."""
        return ArchiveReader(self, token)

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
        if status == 401:
            raise NotAdmittedError(f"{self.url}: {detail}")
        raise ArchiveError(f"{self.url}: answered {status}: {detail}")


class ArchiveReader:
    """The archive as one token may read it. All methods raise ArchiveError; those with a query raise QueryError."""

    def __init__(self, client: ArchiveClient, token: str | None) -> None:
        self._client = client
        self._token = token

    async def frameworks(self, query: FrameworkQuery) -> Page:
        """List Frameworks."""
        return _page(await self._required("/v1/frameworks", _query(query)))

    async def namespaces(self) -> list[str]:
        """List namespaces."""
        return list((await self._required("/v1/namespaces"))["items"])

    async def framework(self, uid: str) -> dict[str, Any] | None:
        """Return a Framework and its attempts."""
        return await self._get(_path("frameworks", uid))

    async def attempt(self, uid: str, attempt: int) -> dict[str, Any] | None:
        """Return an attempt of a Framework."""
        return await self._get(_path("frameworks", uid, "attempts", attempt))

    async def tasks(self, uid: str, attempt: int, query: TaskQuery) -> Page | None:
        """List the Task attempts of an attempt of a Framework."""
        found = await self._get(_path("frameworks", uid, "attempts", attempt, "tasks"), _query(query))
        return None if found is None else _page(found)

    async def task_history(self, uid: str, role: str, index: int) -> list[dict[str, Any]] | None:
        """List the attempts of a Task over all attempts of its Framework."""
        found = await self._get(_path("frameworks", uid, "tasks", role, index))
        return None if found is None else list(found["items"])

    async def task_attempt(
        self, uid: str, attempt: int, role: str, index: int, task_uid: str, task_attempt: int
    ) -> dict[str, Any] | None:
        """Return a Task attempt with its objects."""
        return await self._get(
            _path("frameworks", uid, "attempts", attempt, "tasks", role, index, task_uid, task_attempt)
        )

    async def failures(self, query: FailureQuery) -> list[dict[str, Any]]:
        """Count failures."""
        return list((await self._required("/v1/failures", _query(query)))["items"])

    async def _get(self, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any] | None:
        return await self._client.get(path, query or {}, self._token)

    async def _required(self, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        found = await self._get(path, query)
        if found is None:
            raise ArchiveError(f"{self._client.url}: has no {path}: is this an archive of this version?")
        return found


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


def _page(content: Mapping[str, Any]) -> Page:
    return Page(list(content["items"]), content["next"])


def _path(*parts: object) -> str:
    return "/v1/" + "/".join(quote(str(part), safe="") for part in parts)


def _query(query: FrameworkQuery | TaskQuery | FailureQuery) -> dict[str, str]:
    """Return the parameters that are not at their defaults."""
    default = type(query)()
    given: dict[str, str] = {}
    for name in type(query).__slots__:
        value = getattr(query, name)
        if value is None or value == getattr(default, name):
            continue
        if name in ("since", "until"):
            value = format_time(value)
        given[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return given
