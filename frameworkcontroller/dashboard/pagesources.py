"""Reads the data of the pages of a Framework and of a Task, from the cluster, the archive, or both."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from aiohttp import web

from frameworkcontroller.api import names
from frameworkcontroller.api.completion import SUCCEEDED
from frameworkcontroller.dashboard.frameworkpage import FrameworkSource, read_attempt_id
from frameworkcontroller.dashboard.live import LiveFrameworks, PodsAndEvents
from frameworkcontroller.dashboard.logpage import LAST_LINES, LastWords, LogLink, printable_lines
from frameworkcontroller.dashboard.rows import framework_href
from frameworkcontroller.dashboard.taskpage import TaskSource, find_task
from frameworkcontroller.dashboard.views import Link, Note, NoteLevel
from frameworkcontroller.history.reads import (
    MAX_PAGE,
    ArchiveReader,
    GetAttempt,
    GetFramework,
    GetLog,
    GetTaskAttempt,
    GetTaskHistory,
    ListFrameworks,
    ListLogs,
    ListTasks,
)
from frameworkcontroller.kube.errors import KubeError, NotFound
from frameworkcontroller.kube.parsing import gc_paused
from frameworkcontroller.lru import LRUCache
from frameworkcontroller.views.containerlogs import ArchivedLog, newest, of_default_containers
from frameworkcontroller.views.diagnosis import FrameworkView as View
from frameworkcontroller.views.diagnosis import read_view
from frameworkcontroller.webaccess.viewers import LogAccessError

Json = dict[str, Any]
Item: TypeAlias = Mapping[str, Any]

_OTHERS: Final = 20
_MAX_VIEWS: Final = 4
"""Of 10,000 Tasks, one takes some 15 MB."""
_DRAWN_ATTEMPTS: Final = 8
_DRAWN_TASKS: Final = 2000
"""Of an archived attempt: the picture shows no more rows than some hundreds."""


@dataclass(frozen=True, slots=True)
class Archived:
    """The archive for one request. ``past``: None without an archive, or, because of ``problem``, without access."""

    past: ArchiveReader | None
    problem: str = ""


class PageSources:
    """Reads the data of a page. The caller has checked that the viewer may read the namespace."""

    def __init__(self, live: LiveFrameworks | None) -> None:
        self._live = live
        self._views: LRUCache[tuple[str, str], View] = LRUCache(_MAX_VIEWS)

    async def framework(
        self, namespace: str, name: str, uid: str, wanted: int | None, archived: Archived, notes: list[Note]
    ) -> FrameworkSource:
        """Read the Framework of that name or UID: the live one, or else the newest past one.

        Raises:
            HTTPNotFound: there is none, or not such an attempt.
            HTTPServiceUnavailable: it cannot be known.
        """
        body, more = await self._read_live(namespace, name, uid, notes)
        item: Item | None = None
        others: tuple[Link, ...] = ()
        past = archived.past
        if past is not None:
            page = await past.read(ListFrameworks(namespace, name, limit=_OTHERS))
            if body is not None:
                uid = body["metadata"]["uid"]
            elif not uid and page["items"]:
                uid = page["items"][0]["uid"]
            found = await past.read(GetFramework(uid)) if uid else None
            if found is not None and (found["namespace"], found["name"]) == (namespace, name):
                item = found
            others = self._others(namespace, name, uid, page["items"])
        if body is None and item is None:
            self._check_complete(archived)
            raise web.HTTPNotFound
        attempts: Sequence[Item] = item["attempts"] if item else ()
        live, summary, decoded = body is not None, None, None
        if body is None:
            body = (await _newest_object(past, uid, attempts) if past else None) or _unrecorded(item or {})
        else:
            summary = self._live.by_uid(body["metadata"]["uid"]) if self._live is not None else None
            decoded = await self._decoded(body)
        source = FrameworkSource(
            body,
            body,
            live=live,
            item=item,
            attempts=attempts,
            more=more,
            others=others,
            summary=summary,
            decoded=decoded,
        )
        return await _with_logs(await _with_archived(source, past, uid, wanted), past, uid)

    async def _read_live(
        self, namespace: str, name: str, uid: str, notes: list[Note]
    ) -> tuple[Json | None, PodsAndEvents]:
        live = self._live
        one = live.get(namespace, name) if live is not None else None
        if live is None or one is None or uid not in ("", one.uid):
            return None, PodsAndEvents()
        try:
            body, problem = await live.read(one)
        except NotFound:
            return None, PodsAndEvents()
        except KubeError as error:
            raise web.HTTPServiceUnavailable(text=f"The Framework cannot be read: {error}") from None
        if body["metadata"]["uid"] != one.uid and uid:
            # Deleted and created again since the last event.
            return None, PodsAndEvents()
        if problem is not None:
            notes.append(Note(NoteLevel.WARNING, f"This is an older state, as the object cannot be read: {problem}"))
        return body, await live.of_framework(body)

    async def _decoded(self, body: Json) -> View:
        """Decode a live Framework, which many Tasks make slow, unless its last page has decoded it."""
        metadata = body["metadata"]
        key = metadata["uid"], metadata["resourceVersion"]
        known = self._views.get(key)
        return known or self._views.put(key, await asyncio.to_thread(_read, body))

    def _others(self, namespace: str, name: str, uid: str, items: Sequence[Item]) -> tuple[Link, ...]:
        """Return links to the Frameworks of that name, if there are several."""
        found: dict[str, Link] = {}
        if self._live is not None and (one := self._live.get(namespace, name)) is not None:
            found[one.uid] = Link("live", framework_href(namespace, name), one.uid == uid)
        for item in items:
            text = f"created {item.get('created') or 'at an unknown time'}"
            link = Link(text, framework_href(namespace, name, item["uid"]), item["uid"] == uid)
            found.setdefault(item["uid"], link)
        return tuple(found.values()) if len(found) > 1 else ()

    def _check_complete(self, archived: Archived) -> None:
        """Raise HTTPServiceUnavailable if the missing Framework may exist."""
        stale = self._live.stale if self._live is not None else None
        if stale is not None and not stale.listed:
            raise web.HTTPServiceUnavailable(text=f"Frameworks have not been listed yet. {stale.problem}".strip())
        if archived.problem:
            raise web.HTTPServiceUnavailable(text=f"The archive cannot be read: {archived.problem}")

    async def task(
        self, framework: FrameworkSource, uid: str, role: str, index: int, past: ArchiveReader | None
    ) -> TaskSource:
        """Read the attempts of a Task: the live one, with its Pod, and the past ones."""
        archived: list[tuple[int, Item, Item | None]] = []
        if past is not None and (history := await past.read(GetTaskHistory(uid, role, index))) is not None:
            items: Sequence[Item] = history["items"]
            for left, item in zip(range(len(items), 0, -1), items, strict=True):
                body = await _task_object(past, uid, role, index, item) if left <= _DRAWN_ATTEMPTS else None
                archived.append((item["frameworkAttempt"], item, body))
        logs, problem = await _logs(past, ListLogs(uid, role=role, index=index, limit=MAX_PAGE))
        source = TaskSource(role, index, archived, logs=logs, logs_problem=problem)
        if not framework.live or self._live is None:
            return source
        view = framework.view()
        task = find_task(view, role, index)
        if task is None or task.attempt.pod_uid is None:
            return source
        more = await self._live.of_pod(view.namespace, names.pod_name(view.name, role, index))
        if more.pod is not None and more.pod["metadata"]["uid"] != task.attempt.pod_uid:
            # The Pod of another attempt, or of another client.
            more = replace(more, pod=None)
        return replace(source, more=more)


def _read(body: Json) -> View:
    with gc_paused():
        return read_view(body, {})


async def _with_archived(
    source: FrameworkSource, past: ArchiveReader | None, uid: str, wanted: int | None
) -> FrameworkSource:
    """Add the archived attempts, and show the wanted one."""
    recorded = read_attempt_id(source.body)
    # One without a record of its own has only Tasks: its newest attempt is shown.
    current = max([recorded, *(item["id"] for item in source.attempts)]) if recorded < 0 else recorded
    number = current if wanted is None else wanted
    shown: Item = source.body
    if number != current:
        found = await past.read(GetAttempt(uid, number)) if past is not None else None
        if found is None:
            raise web.HTTPNotFound(text=f"Attempt {number} of this Framework is not in the archive.")
        shown = found["object"] or _unrecorded(source.item or {})
    if past is None:
        return source
    retried = await past.read(ListTasks(uid, number, failed=True, limit=MAX_PAGE)) if number >= 0 else None
    earlier: list[Item] = []
    task_attempts: list[Item] = []
    newest = sorted((item["id"] for item in source.attempts), reverse=True)
    few = [item["id"] for item in source.attempts if (item.get("tasks") or 0) <= _DRAWN_TASKS]
    for one in dict.fromkeys([current, number, *newest[:_DRAWN_ATTEMPTS]]):
        if one < 0 or (one not in few and one not in (current, number)):
            continue
        if one not in (current, number) and (found := await past.read(GetAttempt(uid, one))) and found["object"]:
            earlier.append(found["object"])
        page = await past.read(ListTasks(uid, one, limit=MAX_PAGE))
        task_attempts += page["items"] if page is not None else ()
    return replace(
        source,
        shown=shown,
        number=number,
        earlier=earlier,
        task_attempts=task_attempts,
        retried=retried["items"] if retried is not None else (),
    )


async def _logs(past: ArchiveReader | None, query: ListLogs) -> tuple[Sequence[Item], str]:
    """Return entries of logs, and why they cannot be read."""
    if past is None or not query.uid:
        return (), ""
    try:
        page = await past.read(query)
    except LogAccessError as error:
        return (), f"Logs are not shown: {error}."
    return () if page is None else page["items"], ""


async def _with_logs(source: FrameworkSource, past: ArchiveReader | None, uid: str) -> FrameworkSource:
    """Add the end of the log of the failing Task, and the last lines of failed Tasks."""
    place = _failing_task(source)
    if past is None or place is None:
        return source
    role, index = place
    every, problem = await _logs(past, ListLogs(uid, source.number, limit=MAX_PAGE))
    its = [one for one in every if (one["role"], one["index"]) == place]
    if not its and len(every) == MAX_PAGE:
        its, problem = [*(await _logs(past, ListLogs(uid, source.number, role, index, limit=MAX_PAGE)))[0]], ""
    last_lines: dict[tuple[str, str, int], str] = {}
    for item in of_default_containers(map(ArchivedLog, every), source.shown):
        one = item.item
        last_lines[one["role"], one["taskUid"], one["attempt"]] = one["lastLine"]
    if problem:
        return replace(source, last_words=LastWords(role, index, problem=problem))
    said = await _last_words(past, source, uid, [*map(ArchivedLog, its)])
    return replace(source, last_words=said, last_lines=last_lines)


async def _last_words(
    past: ArchiveReader, source: FrameworkSource, uid: str, logs: Sequence[ArchivedLog]
) -> LastWords | None:
    pod = newest(logs)
    chosen = of_default_containers(pod, source.shown) or pod
    if not chosen:
        return None
    log = max(chosen, key=lambda one: bool(one.item["size"]))
    found = await past.read(GetLog(uid, log.item["id"], LAST_LINES))
    if found is None:
        return None
    metadata = source.body["metadata"]
    links = {
        one.item["id"]: LogLink.of(one, metadata["namespace"], metadata["name"], uid)
        for one in logs
        if one.item["podUid"] == log.item["podUid"]
    }
    own = links.pop(log.item["id"])
    text = printable_lines(found["text"] or "")
    return LastWords(*log.task, text, own, tuple(links.values()), own.note if own.is_empty else "")


def _failing_task(source: FrameworkSource) -> tuple[str, int] | None:
    """Return the Task that failed first in the shown attempt, or else the one that ended it, or else a failed one."""
    try:
        status = source.shown["status"]
        completion = status["attemptStatus"]["completionStatus"] or {}
        first = status.get("firstFailure") or {}
        is_its = first.get("frameworkAttemptID") == status["attemptStatus"]["id"]
        trigger = (first if is_its else completion.get("trigger")) or {}
        role, index = trigger.get("taskRoleName"), trigger.get("taskIndex")
        kind = (completion.get("type") or {}).get("name")
    except (KeyError, TypeError, AttributeError):
        role, index, kind = None, None, None
    if kind == SUCCEEDED:
        return None
    if isinstance(role, str) and isinstance(index, int):
        return role, index
    return next(((item["role"], item["index"]) for item in source.retried), None)


def _unrecorded(item: Item) -> Json:
    """Return the object of a Framework, or of an attempt, that has only Tasks in the archive."""
    return {
        "metadata": {
            "namespace": item["namespace"],
            "name": item["name"],
            "uid": item["uid"],
            "resourceVersion": "",
            "creationTimestamp": item["created"],
        }
    }


async def _newest_object(past: ArchiveReader, uid: str, attempts: Sequence[Item]) -> Json | None:
    for item in sorted(attempts, key=lambda one: int(one["id"]), reverse=True):
        found = await past.read(GetAttempt(uid, item["id"]))
        if found is not None and found["object"] is not None:
            body: Json = found["object"]
            return body
    return None


async def _task_object(past: ArchiveReader, uid: str, role: str, index: int, item: Item) -> Item | None:
    asked = GetTaskAttempt(uid, item["frameworkAttempt"], role, index, item["taskUid"], item["attempt"])
    found = await past.read(asked)
    return found["object"] if found is not None else None
