"""The routes of the pages.

All URLs in the pages are relative, so the pages work below any prefix. Every page is whole without a script. Handlers
check the viewer's permission for a namespace before they read from it: forbidden and missing objects have the same
answer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from base64 import b64decode
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from importlib.resources import files
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

from aiohttp import web

from frameworkcontroller import __version__
from frameworkcontroller.dashboard.costpage import CostPage, CostQuery
from frameworkcontroller.dashboard.eventstreams import EventStreams
from frameworkcontroller.dashboard.failurepage import FailurePage, FailureQuery
from frameworkcontroller.dashboard.frameworkpage import FrameworkPage, FrameworkSource
from frameworkcontroller.dashboard.listing import LIVE, ROWS, FrameworkList, ListQuery, PastRows, live_rows
from frameworkcontroller.dashboard.live import LiveFrameworks, Stale
from frameworkcontroller.dashboard.logpage import PAGE_LINES, LogLink, LogPage
from frameworkcontroller.dashboard.pagesources import Archived, PageSources
from frameworkcontroller.dashboard.rendering import render
from frameworkcontroller.dashboard.rows import FrameworkRow, past_row
from frameworkcontroller.dashboard.taskpage import TaskPage, TaskSource
from frameworkcontroller.dashboard.views import ErrorPage, Note, NoteLevel, Page, Shell
from frameworkcontroller.history.archiveerrors import ArchiveError, QueryError
from frameworkcontroller.history.reads import (
    MAX_PAGE,
    PHASES,
    ArchiveReader,
    ArchiveSource,
    CostKey,
    CountCost,
    CountFailures,
    FailureKey,
    GetFramework,
    GetLog,
    ListFailures,
    ListFrameworks,
    ListLogs,
    ListNamespaces,
)
from frameworkcontroller.kube.parsing import gc_paused
from frameworkcontroller.views.containerlogs import ArchivedLog
from frameworkcontroller.views.texts import clean_line, duration
from frameworkcontroller.webaccess.viewers import VIEWER, AccessError, Viewer

T = TypeVar("T")

Json = dict[str, Any]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_log: Final = logging.getLogger(__name__)

_ARCHIVE_SEC: Final = 10.0
_PAST_PAGE: Final = 200
_FAILED_ATTEMPTS: Final = 200
_PAST_PAGES: Final = 10
"""At most this number is read to fill a page, if most archived Frameworks are live, or words are rare."""

_COMPRESSED_BYTES: Final = 2048
_CONTENT_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".png": "image/png"}


class Pages:
    """The pages of live Frameworks, of past ones, or of both."""

    def __init__(
        self,
        live: LiveFrameworks | None,
        past: ArchiveSource | None = None,
        *,
        wall: Callable[[], float] = time.time,
        archive_sec: float = _ARCHIVE_SEC,
        streams: EventStreams | None = None,
    ) -> None:
        """``wall``: a clock, in seconds since the epoch. ``archive_sec``: the longest wait for the archive where live
        Frameworks can be shown without it. ``streams``: for other intervals than the usual ones."""
        self._live = live
        self._past = past
        self._wall = wall
        self._archive_sec = archive_sec
        self._sources = PageSources(live)
        self._static = dict(_static_files())
        self._streams = streams or (EventStreams(live) if live is not None else None)

    def add_to(self, app: web.Application) -> None:
        """Add the routes. The application must be protected: each request needs a viewer."""
        for path, handler in (
            ("/", self._frameworks),
            ("/failures", self._failures),
            ("/cost", self._cost),
            ("/frameworks/{namespace}/{name}", self._framework),
            ("/frameworks/{namespace}/{name}/{uid}", self._framework),
            ("/frameworks/{namespace}/{name}/{uid}/tasks/{role}/{index}", self._task),
            ("/frameworks/{namespace}/{name}/{uid}/logs/{id}", self._log),
            ("/frameworks/{namespace}/{name}/{uid}/logs/{id}/text", self._log_text),
            ("/events", self._events),
            ("/static/{name}", self._static_file),
        ):
            app.router.add_get(path, self._with_error_pages(handler))
        app.on_shutdown.append(self._close)

    def application(self) -> web.Application:
        """Return an application of the pages alone, with ``/healthz`` and ``/readyz``, yet to be protected."""
        app = web.Application(middlewares=[self._unknown_paths])
        self.add_to(app)
        app.router.add_get("/healthz", _healthy)
        app.router.add_get("/readyz", self._ready)
        return app

    async def _ready(self, _request: web.Request) -> web.Response:
        """Answer 200 once Frameworks have been listed. Without the cluster, the pages then show the last state."""
        if self._stale is not None and not self._stale.listed:
            return web.Response(text="[-]frameworks not listed yet\nfailed\n", status=503)
        return web.Response(text="[+]frameworks ok\nok\n")

    async def _close(self, _app: web.Application) -> None:
        if self._streams is not None:
            self._streams.close()

    # --- the list ---

    async def _frameworks(self, request: web.Request) -> web.StreamResponse:
        query = ListQuery.of(request.query)
        viewer = request[VIEWER]
        scope = await self._scope(viewer)
        live = () if self._live is None else self._live.all()
        readable = [one for one in live if scope is None or one.namespace in scope]
        matched = query.ordered(one for one in readable if query.matches(one))
        archived = await self._archived(viewer)
        namespaces = {one.namespace for one in readable}
        past = PastRows()
        if archived.past is not None:
            try:
                async with self._in_time():
                    namespaces.update((await archived.past.read(ListNamespaces()))["items"])
                    past = await self._past_rows(query, archived.past, live_rows(query, matched), viewer)
            except QueryError:
                raise web.HTTPBadRequest(text="This link to past Frameworks is not valid.") from None
            except ArchiveError as error:
                archived = Archived(None, str(error))
        events = {"seen": self._fingerprint(await self._scope(viewer))}
        if query.namespace and await viewer.may_read(query.namespace):
            events = {"namespace": query.namespace, "seen": self._fingerprint(frozenset({query.namespace}))}
        shell = self._shell(request, "frameworks", "Frameworks", events, archived)
        listed = self._stale is None or self._stale.listed
        return await _page(FrameworkList(shell, query, readable, matched, past, sorted(namespaces), listed=listed))

    async def _scope(self, viewer: Viewer) -> frozenset[str] | None:
        return None if self._live is None else await viewer.readable(self._live.namespaces)

    async def _past_rows(
        self, query: ListQuery, past: ArchiveReader, shown: Sequence[FrameworkRow], viewer: Viewer
    ) -> PastRows:
        """Return the past Frameworks that fill the page."""
        room = ROWS - len(shown)
        if query.which == LIVE or room <= 0 or query.phase not in ("", *PHASES):
            return PastRows()
        # A Framework in the cluster is shown as live: the archive has its earlier attempts.
        asked = ListFrameworks(
            namespace=query.namespace, phase=query.phase, q=query.text, limit=room, after=query.after
        )
        rows: list[FrameworkRow] = []
        for _ in range(_PAST_PAGES):
            page = await past.read(asked)
            for item in page["items"]:
                if self._is_live(item["uid"]) or not await viewer.may_read(item["namespace"]):
                    continue
                rows.append(past_row(item))
            if page["next"] is None:
                return PastRows(rows)
            asked = replace(asked, limit=room - len(rows) or room, after=page["next"])
            if len(rows) == room:
                break
        return PastRows(rows, asked.after)

    def _is_live(self, uid: str) -> bool:
        return self._live is not None and self._live.by_uid(uid) is not None

    # --- one Framework ---

    async def _framework(self, request: web.Request) -> web.StreamResponse:
        namespace, name, uid = await self._named(request)
        wanted = _number(request.query.get("attempt"))

        async def read(archived: Archived, notes: list[Note]) -> FrameworkSource:
            return await self._sources.framework(namespace, name, uid, wanted, archived, notes)

        source, archived, notes = await self._read(request[VIEWER], read)
        events = self._events_of(source)
        shell = self._shell(request, "framework", f"{namespace}/{name}", events, archived, notes)
        # Many Tasks take long, which must not delay other requests.
        return await _page(partial(FrameworkPage, shell, source))

    async def _read(
        self, viewer: Viewer, read: Callable[[Archived, list[Note]], Awaitable[T]]
    ) -> tuple[T, Archived, list[Note]]:
        """Read with the archive, or, if it cannot be read, from the cluster alone."""
        archived = await self._archived(viewer)
        notes: list[Note] = []
        try:
            async with self._in_time():
                return await read(archived, notes), archived, notes
        except ArchiveError as error:
            archived, notes = Archived(None, str(error)), []
            return await read(archived, notes), archived, notes

    # --- one Task ---

    async def _task(self, request: web.Request) -> web.StreamResponse:
        namespace, name, uid = await self._named(request)
        role, index = request.match_info["role"], _number(request.match_info["index"])
        if index is None:
            raise web.HTTPNotFound

        async def read(archived: Archived, notes: list[Note]) -> tuple[FrameworkSource, TaskSource]:
            framework = await self._sources.framework(namespace, name, uid, None, archived, notes)
            return framework, await self._sources.task(framework, uid, role, index, archived.past)

        (framework, source), archived, notes = await self._read(request[VIEWER], read)
        title = f"{namespace}/{name} {role}[{index}]"
        shell = self._shell(request, "task", title, self._events_of(framework), archived, notes)
        page = await asyncio.to_thread(TaskPage, shell, framework, source)
        if not page.is_known:
            raise web.HTTPNotFound
        return await _page(page)

    # --- one log ---

    async def _log(self, request: web.Request) -> web.StreamResponse:
        framework, past = await self._archived_framework(request)
        lines = None if request.query.get("lines") == "all" else PAGE_LINES
        found = await self._read_log(request, past, framework["uid"], lines)
        query = ListLogs(framework["uid"], found["frameworkAttempt"], found["role"], found["index"], limit=MAX_PAGE)
        page = await past.read(query)
        others = [
            LogLink.of(ArchivedLog(item), framework["namespace"], framework["name"], framework["uid"])
            for item in (page["items"] if page is not None else ())
            if item["podUid"] == found["podUid"] and item["id"] != found["id"]
        ]
        title = f"{framework['namespace']}/{framework['name']} {found['role']}[{found['index']}] {found['container']}"
        shell = self._shell(request, "log", title, {}, Archived(past))
        # A text of 1 MiB takes long to escape.
        return await _page(partial(LogPage, shell, framework, found, others, lines=lines))

    async def _log_text(self, request: web.Request) -> web.StreamResponse:
        """Send the bytes of a log as a file."""
        framework, past = await self._archived_framework(request)
        found = await self._read_log(request, past, framework["uid"], None)
        name = f"{found['pod']}-{found['container']}-{found['run']}.log"
        plain = "".join(one if one.isascii() and (one.isalnum() or one in "-.") else "_" for one in name)
        headers = {"Content-Disposition": f'attachment; filename="{plain}"'}
        return web.Response(body=b64decode(found["data"] or ""), content_type="text/plain", headers=headers)

    async def _archived_framework(self, request: web.Request) -> tuple[Mapping[str, Any], ArchiveReader]:
        """Return the archive's entry of the Framework in the path, and the archive."""
        namespace, name, uid = await self._named(request)
        archived = await self._archived(request[VIEWER])
        if archived.problem:
            raise ArchiveError(archived.problem)
        if archived.past is None:
            raise web.HTTPNotFound
        found = await archived.past.read(GetFramework(uid))
        if found is None or (found["namespace"], found["name"]) != (namespace, name):
            raise web.HTTPNotFound
        return found, archived.past

    async def _read_log(
        self, request: web.Request, past: ArchiveReader, uid: str, lines: int | None
    ) -> Mapping[str, Any]:
        number = _number(request.match_info["id"])
        found = None if number is None else await past.read(GetLog(uid, number, lines, raw=True))
        if found is None:
            raise web.HTTPNotFound(text="There is no such log. Logs are removed earlier than their Frameworks.")
        return found

    # --- failures ---

    async def _failures(self, request: web.Request) -> web.StreamResponse:
        query = FailureQuery.of(request.query)
        return await self._of_archive(request, "failures", partial(self._counted, query))

    async def _of_archive(
        self, request: web.Request, name: str, make: Callable[[Shell, ArchiveReader | None], Awaitable[Page]]
    ) -> web.StreamResponse:
        """Answer with a page that the archive alone fills."""
        archived = await self._archived(request[VIEWER])
        if archived.past is None and self._past is not None:
            raise web.HTTPServiceUnavailable(text=f"The archive cannot be read: {archived.problem}")
        shell = self._shell(request, name, name.capitalize(), {}, archived)
        try:
            page = await make(shell, archived.past)
        except ArchiveError as error:
            raise web.HTTPServiceUnavailable(text=f"The archive cannot be read: {error}") from None
        return await _page(page)

    async def _counted(self, query: FailureQuery, shell: Shell, past: ArchiveReader | None) -> FailurePage:
        if past is None:
            return FailurePage(shell, query, None)
        begins = query.begins(self._wall())
        if query.key:
            namespaces = await past.read(ListNamespaces())
            listed = ListFailures(query.by, query.key, query.namespace, begins, limit=_FAILED_ATTEMPTS)
            return FailurePage(
                shell, query, (), namespaces=namespaces["items"], attempts=(await past.read(listed))["items"]
            )
        found = await past.read(CountFailures(query.by, query.namespace, begins))
        by_day = CountFailures(FailureKey.DAY, query.namespace, begins)
        days = (await past.read(by_day))["items"] if query.by != FailureKey.DAY else ()
        namespaces = await past.read(ListNamespaces())
        return FailurePage(shell, query, found["items"], days, namespaces["items"])

    # --- cost ---

    async def _cost(self, request: web.Request) -> web.StreamResponse:
        return await self._of_archive(request, "cost", partial(self._summed, CostQuery.of(request.query)))

    async def _summed(self, query: CostQuery, shell: Shell, past: ArchiveReader | None) -> CostPage:
        if past is None:
            return CostPage(shell, query, None)
        begins = query.begins(self._wall())
        found = await past.read(CountCost(query.by, query.resource, query.namespace, begins))
        days = await past.read(CountCost(CostKey.DAY, query.resource, query.namespace, begins))
        namespaces = await past.read(ListNamespaces())
        return CostPage(shell, query, found, days, namespaces["items"])

    # --- events, static files ---

    async def _events(self, request: web.Request) -> web.StreamResponse:
        if self._streams is None:
            raise web.HTTPNotFound
        return await self._streams.serve(request, request[VIEWER])

    async def _static_file(self, request: web.Request) -> web.StreamResponse:
        found = self._static.get(request.match_info["name"])
        if found is None:
            raise web.HTTPNotFound
        content, content_type, etag = found
        headers = {"ETag": etag, "Cache-Control": "no-cache"}
        if request.headers.get("If-None-Match") == etag:
            return web.Response(status=304, headers=headers)
        return web.Response(body=content, content_type=content_type, charset="utf-8", headers=headers)

    # --- common parts ---

    async def _named(self, request: web.Request) -> tuple[str, str, str]:
        """Return namespace, name and UID ("" for none) in the path. Raises HTTPNotFound if they may not be read."""
        found = request.match_info
        if not await request[VIEWER].may_read(found["namespace"]):
            raise web.HTTPNotFound
        return found["namespace"], found["name"], found.get("uid", "")

    async def _archived(self, viewer: Viewer) -> Archived:
        if self._past is None:
            return Archived(None)
        try:
            return Archived(await self._past.for_viewer(viewer))
        except ArchiveError as error:
            return Archived(None, str(error))

    @asynccontextmanager
    async def _in_time(self) -> AsyncIterator[None]:
        """Raise ArchiveError for an archive that answers too late, sooner than its client: the cluster's state is shown
        without it.
        """
        if self._past is None:
            yield
            return
        try:
            async with asyncio.timeout(self._archive_sec if self._live is not None else None):
                yield
        except TimeoutError:
            raise ArchiveError(f"no answer within {self._archive_sec:.0f} s") from None

    @property
    def _stale(self) -> Stale | None:
        return None if self._live is None else self._live.stale

    def _fingerprint(self, scope: frozenset[str] | None, uid: str = "") -> str:
        return "" if self._live is None else self._live.fingerprint(scope, uid)

    def _events_of(self, source: FrameworkSource) -> dict[str, str]:
        if not source.live:
            return {}
        metadata = source.body["metadata"]
        scope = frozenset({metadata["namespace"]})
        seen = self._fingerprint(scope, metadata["uid"])
        return {"namespace": metadata["namespace"], "uid": metadata["uid"], "seen": seen}

    def _shell(
        self,
        request: web.Request,
        page: str,
        title: str,
        events: Mapping[str, str],
        archived: Archived,
        notes: Sequence[Note] = (),
    ) -> Shell:
        now = self._wall()
        found = list(notes)
        stale = self._stale
        if stale is not None:
            span = duration(now - stale.since)
            problem = f": {clean_line(stale.problem)}" if stale.problem else ""
            text = f"Not current for {span}" if stale.listed else f"Frameworks have not been listed yet, for {span}"
            found.insert(0, Note(NoteLevel.WARNING, f"{text}{problem}", int(stale.since)))
        if archived.problem:
            text = f"Past Frameworks are missing, as the archive cannot be read: {clean_line(archived.problem)}"
            found.append(Note(NoteLevel.WARNING, text))
        namespace = self._live.namespace if self._live is not None else None
        viewer: Viewer | None = request.get(VIEWER)
        return Shell(
            root=_root(request.rel_url.raw_path),
            page=page,
            title=title,
            now=now,
            live=self._live is not None,
            past=self._past is not None,
            events=f"events?{urlencode(events)}" if events and self._live is not None else "",
            scope="all namespaces" if namespace is None else f"namespace {namespace}",
            user=viewer.name if viewer is not None and viewer.token is not None else "",
            version=__version__,
            notes=tuple(found),
        )

    def _with_error_pages(self, handler: Handler) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            try:
                return await handler(request)
            except web.HTTPException as error:
                return await self._error(request, error.status, error.text or "", error.headers.get("Retry-After"))
            except AccessError:
                raise
            except QueryError as error:
                return await self._error(request, 400, f"{error}", None)
            except ArchiveError as error:
                return await self._error(request, 503, f"The archive cannot be read: {error}", "5")
            except Exception:  # noqa: BLE001 - an error concerns this request only
                _log.exception("Cannot serve %s", request.path)
                return await self._error(request, 500, "The log of the server has the details.", None)

        return handle

    async def _error(self, request: web.Request, status: int, text: str, retry_after: str | None) -> web.StreamResponse:
        title = _TITLES.get(status, "Cannot show this page")
        if not text or text.startswith(f"{status}: "):
            text = _TEXTS.get(status, "")
        shell = self._shell(request, "error", title, {}, Archived(None))
        headers = {"Retry-After": retry_after or "5"} if status == 503 else {}
        return await _page(ErrorPage(shell, status, title, clean_line(text, 1000)), status, headers)

    @web.middleware
    async def _unknown_paths(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPException as error:
            if error.status < 400:
                raise
            return await self._error(request, error.status, "", None)


_TITLES: Final = {
    400: "Cannot understand this link",
    404: "Not found",
    405: "Method not allowed",
    500: "Internal error",
    503: "Not available now",
}
_TEXTS: Final = {
    404: "There is no such page, or you may not read its content.",
    405: "These pages can only be read.",
}


def _number(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise web.HTTPNotFound
    return int(text)


def _root(path: str) -> str:
    """Return the relative URL of the root of the pages from the page of that path, in which %2F is no separator."""
    return "../" * (path.count("/") - 1) or "./"


async def _page(
    page: Page | Callable[[], Page], status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    """Render a page. A function makes it first; both run in a thread."""

    def make() -> bytes:
        with gc_paused():
            return render(page() if callable(page) else page).encode()

    body = await asyncio.to_thread(make) if callable(page) else make()
    response = web.Response(body=body, status=status, content_type="text/html", charset="utf-8", headers=headers)
    if len(body) >= _COMPRESSED_BYTES:
        response.enable_compression()
    return response


async def _healthy(_request: web.Request) -> web.Response:
    return web.Response(text="ok\n")


def _static_files() -> Sequence[tuple[str, tuple[bytes, str, str]]]:
    """Read the static files of the package: name, content, type and entity tag."""
    found = []
    with suppress(FileNotFoundError):
        for file in files("frameworkcontroller.dashboard").joinpath("static").iterdir():
            kind = _CONTENT_TYPES.get(f".{file.name.rpartition('.')[2]}")
            if kind is not None:
                content = file.read_bytes()
                found.append((file.name, (content, kind, f'"{blake2b(content, digest_size=12).hexdigest()}"')))
    return found
