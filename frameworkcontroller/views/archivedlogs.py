"""Logs of containers whose Pods are gone, from the archive."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from frameworkcontroller.history.reads import MAX_PAGE, ArchiveReader, GetAttempt, GetLog, ListFrameworks, ListLogs
from frameworkcontroller.views.apiobjects import Json
from frameworkcontroller.views.containerlogs import ArchivedLog, of_default_containers
from frameworkcontroller.views.logfollower import LAST_LINES_SEC, LogFollower, Target

Item: TypeAlias = Mapping[str, Any]

_MAX_IN_FLIGHT: Final = 8
_POLL_SEC: Final = 0.5


@dataclass(slots=True)
class ArchivedLogs:
    """The archived logs of the Frameworks of one name."""

    source: ArchiveReader
    namespace: str
    name: str

    async def find(self, uid: str | None) -> Item | None:
        """Return the Framework of that UID, or the newest one of the name; None if the archive has none."""
        page = await self.source.read(ListFrameworks(self.namespace, self.name, limit=MAX_PAGE))
        return next((one for one in page["items"] if uid in (None, one["uid"])), None)

    async def logs(
        self, uid: str, attempt: int | None, role: str | None, index: int | None, container: str | None = None
    ) -> list[ArchivedLog]:
        """Return the logs of a Framework: of an attempt, a role, a Task or a container, or all."""
        query = ListLogs(uid, attempt, role or "", index, container or "", limit=MAX_PAGE)
        found: list[ArchivedLog] = []
        while True:
            page = await self.source.read(query)
            if page is None:
                return found
            found += map(ArchivedLog, page["items"])
            if page["next"] is None:
                return found
            query = replace(query, after=page["next"])

    async def missed(
        self,
        framework: Json,
        following: LogFollower,
        target: Target,
        container: str | None = None,
        *,
        every: bool = False,
    ) -> list[ArchivedLog]:
        """Return the logs of containers that a follower could not read, as their Pods were gone too soon.

        Records arrive in batches: wait some seconds for missing ones.
        """
        deadline = time.monotonic() + LAST_LINES_SEC
        while True:
            found = await self.logs(framework["metadata"]["uid"], None, *target, container)
            if not container and not every:
                found = of_default_containers(found, framework)
            missed = [
                log
                for log in found
                if log.item["frameworkAttempt"] >= following.first and log.place not in following.read
            ]
            if not following.missed - {log.place for log in missed} or time.monotonic() > deadline:
                return missed
            await asyncio.sleep(_POLL_SEC)

    async def framework(self, uid: str, attempt: int) -> Json:
        """Return the Framework as archived with that attempt; an empty one if the archive has no object."""
        found = await self.source.read(GetAttempt(uid, attempt))
        return (found["object"] if found is not None else None) or {}

    async def lines(
        self, uid: str, logs: Sequence[ArchivedLog], tail: int | None
    ) -> AsyncGenerator[tuple[ArchivedLog, list[bytes]], None]:
        """Yield the lines of each log, in the order of the logs. Only a few are in memory at once."""
        for start in range(0, len(logs), _MAX_IN_FLIGHT):
            some = logs[start : start + _MAX_IN_FLIGHT]
            reads = (self.source.read(GetLog(uid, log.item["id"], tail, raw=True)) for log in some)
            for log, found in zip(some, await asyncio.gather(*reads), strict=True):
                if found is not None:
                    yield log, _lines(base64.b64decode(found["data"] or ""))


def _lines(data: bytes) -> list[bytes]:
    return data.removesuffix(b"\n").split(b"\n") if data else []
