"""Logs of containers whose Pods are gone, from the archive."""

from __future__ import annotations

import argparse
import asyncio
import base64
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from frameworkcontroller.commands import program
from frameworkcontroller.commands.archivesource import open_archive
from frameworkcontroller.commands.invocation import Invocation
from frameworkcontroller.history.archiveerrors import ArchiveError, QueryError
from frameworkcontroller.history.folderfollower import FolderError
from frameworkcontroller.history.reads import MAX_PAGE, ArchiveReader, GetAttempt, GetLog, ListFrameworks, ListLogs
from frameworkcontroller.views.apiobjects import Json, default_container, roles_of
from frameworkcontroller.views.texts import clean_line
from frameworkcontroller.webaccess.viewers import LogAccessError

Item: TypeAlias = Mapping[str, Any]

_MAX_IN_FLIGHT: Final = 8
_MAX_REASON: Final = 300


@dataclass(frozen=True, slots=True)
class ArchivedLog:
    """The log of one run of a container. ``item``: its entry in the archive."""

    item: Item

    @property
    def task(self) -> tuple[str, int]:
        return self.item["role"], self.item["index"]

    @property
    def place(self) -> tuple[str, str, int]:
        """The Pod's UID, the container and its run."""
        return self.item["podUid"], self.item["container"], self.item["run"]

    @property
    def label(self) -> str:
        """``worker[3]``; ``worker[3]#1`` in the Task's second attempt."""
        role, index, attempt = self.item["role"], self.item["index"], self.item["attempt"]
        return f"{role}[{index}]{f'#{attempt}' if attempt else ''}"

    @property
    def missing(self) -> str:
        """Which part is missing, and why; "" if it is whole."""
        item = self.item
        ends = [name for name, cut in (("beginning", item["cutStart"]), ("end", item["cutEnd"])) if cut]
        if not item["size"] and item["why"]:
            ends = ["log"]
        if not ends:
            return ""
        why = f": {clean_line(item['why'], _MAX_REASON)}" if item["why"] else ""
        return f"its {' and its '.join(ends)} {'is' if len(ends) == 1 else 'are'} not in the archive{why}"


@asynccontextmanager
async def opened(invocation: Invocation, options: argparse.Namespace) -> AsyncIterator[ArchivedLogs]:
    """Open the archive of the options. Its errors end the command."""
    try:
        async with open_archive(invocation, options) as source:
            yield ArchivedLogs(source, invocation.namespace, options.name)
    except (ArchiveError, FolderError, LogAccessError) as error:
        raise program.CommandError(str(error)) from None
    except QueryError as error:
        raise program.UsageError(str(error)) from None


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

    async def framework(self, uid: str, attempt: int) -> Json:
        """Return the Framework as archived with that attempt; an empty one if the archive has no object."""
        found = await self.source.read(GetAttempt(uid, attempt))
        return (found["object"] if found is not None else None) or {}

    async def lines(
        self, uid: str, logs: Sequence[ArchivedLog], tail: int | None
    ) -> AsyncIterator[tuple[ArchivedLog, list[bytes]]]:
        """Yield the lines of each log, in the order of the logs. Only a few are in memory at once."""
        for start in range(0, len(logs), _MAX_IN_FLIGHT):
            some = logs[start : start + _MAX_IN_FLIGHT]
            reads = (self.source.read(GetLog(uid, log.item["id"], tail, raw=True)) for log in some)
            for log, found in zip(some, await asyncio.gather(*reads), strict=True):
                if found is not None:
                    yield log, _lines(base64.b64decode(found["data"] or ""))


def _lines(data: bytes) -> list[bytes]:
    return data.removesuffix(b"\n").split(b"\n") if data else []


def of_default_containers(logs: Iterable[ArchivedLog], framework: Json) -> list[ArchivedLog]:
    """Return the logs of the default container of each role's Pods; all, where that is not known."""
    named = {}
    for role in roles_of(framework):
        pod = (role.get("task") or {}).get("pod") or {}
        named[role.get("name")] = default_container({"metadata": {}, **pod})
    return [log for log in logs if named.get(log.item["role"]) in (None, log.item["container"])]


def newest(logs: Iterable[ArchivedLog], *, previous: bool = False) -> list[ArchivedLog]:
    """Return the logs of the newest attempt of each Task, and of each container its last run, or the one before it."""
    pods: dict[tuple[str, int], tuple[Any, ...]] = {}
    of_pod: dict[tuple[Any, ...], list[ArchivedLog]] = {}
    for log in logs:
        item = log.item
        pod = (item["captured"] or "", item["attempt"], item["podUid"])
        pods[log.task] = max(pods.get(log.task, pod), pod)
        of_pod.setdefault((*log.task, item["podUid"]), []).append(log)
    found: list[ArchivedLog] = []
    for task, (_, _, pod_uid) in pods.items():
        runs: dict[str, list[ArchivedLog]] = {}
        for log in of_pod[*task, pod_uid]:
            runs.setdefault(log.item["container"], []).append(log)
        for of_container in runs.values():
            of_container.sort(key=lambda log: int(log.item["run"]))
            found += of_container[-2:-1] if previous else of_container[-1:]
    return found
