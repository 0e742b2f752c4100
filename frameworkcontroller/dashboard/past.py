"""Past Frameworks: the archive as a viewer may read it, in this process or behind its HTTP API.

The methods and answers are those of `Archive`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from frameworkcontroller.history.archive import Archive, FrameworkQuery, Namespaces, Page, TaskQuery
from frameworkcontroller.history.client import ArchiveClient
from frameworkcontroller.history.errors import ArchiveError
from frameworkcontroller.history.failures import FailureQuery
from frameworkcontroller.webaccess.access import Viewer

Item: TypeAlias = Mapping[str, Any]


class Past(Protocol):
    """An archive, as one viewer may read it. The methods are those of `Archive`, without what the viewer may not read.

    All raise ArchiveError while it cannot be read.
    """

    async def frameworks(self, query: FrameworkQuery) -> Page: ...
    async def namespaces(self) -> Sequence[str]: ...
    async def framework(self, uid: str) -> Item | None: ...
    async def attempt(self, uid: str, attempt: int) -> Item | None: ...
    async def tasks(self, uid: str, attempt: int, query: TaskQuery) -> Page | None: ...
    async def task_history(self, uid: str, role: str, index: int) -> Sequence[Item] | None: ...
    async def task_attempt(
        self, uid: str, attempt: int, role: str, index: int, task_uid: str, task_attempt: int
    ) -> Item | None: ...
    async def failures(self, query: FailureQuery) -> Sequence[Item]: ...


class PastSource(Protocol):
    """Where past Frameworks come from."""

    async def for_viewer(self, viewer: Viewer) -> Past:
        """Return the archive as the viewer may read it. Raises ArchiveError and AccessError."""


class LocalArchive:
    """The archive of this process."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    async def for_viewer(self, viewer: Viewer) -> Past:
        """Ask which of the archive's namespaces the viewer may read."""
        every = await self._archive.namespaces()
        return _Restricted(self._archive, await viewer.readable(every), every)


@dataclass(frozen=True, slots=True)
class _Restricted:
    archive: Archive
    readable: Namespaces
    every: Sequence[str]

    async def frameworks(self, query: FrameworkQuery) -> Page:
        return await self.archive.frameworks(query, self.readable)

    async def namespaces(self) -> Sequence[str]:
        return [one for one in self.every if self.readable is None or one in self.readable]

    async def framework(self, uid: str) -> Item | None:
        return await self.archive.framework(uid, self.readable)

    async def attempt(self, uid: str, attempt: int) -> Item | None:
        return await self.archive.attempt(uid, attempt, self.readable)

    async def tasks(self, uid: str, attempt: int, query: TaskQuery) -> Page | None:
        return await self.archive.tasks(uid, attempt, query, self.readable)

    async def task_history(self, uid: str, role: str, index: int) -> Sequence[Item] | None:
        return await self.archive.task_history(uid, role, index, self.readable)

    async def task_attempt(
        self, uid: str, attempt: int, role: str, index: int, task_uid: str, task_attempt: int
    ) -> Item | None:
        return await self.archive.task_attempt(uid, attempt, role, index, task_uid, task_attempt, self.readable)

    async def failures(self, query: FailureQuery) -> Sequence[Item]:
        return await self.archive.failures(query, self.readable)


class RemoteArchive:
    """An archive behind its HTTP API, which is asked in the name of the viewer and so decides what that may read.

    On loopback, viewers have no token of the cluster: then the archive gets the one in ``token_file``.
    """

    def __init__(self, client: ArchiveClient, token_file: Path | None = None) -> None:
        self._client = client
        self._token_file = token_file

    async def for_viewer(self, viewer: Viewer) -> Past:
        """Return the archive as the viewer may read it."""
        token = viewer.token
        if token is None and self._token_file is not None:
            try:
                # It may be renewed at any time.
                token = self._token_file.read_text(encoding="utf-8").strip()
            except OSError as error:
                raise ArchiveError(f"{self._token_file}: cannot be read: {error.strerror}") from None
        return self._client.reader(token)
