"""The archive's API as an aiohttp application: takes records, answers queries, with what is mounted beside them."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

import orjson
from aiohttp import web

from frameworkcontroller.history import openapi
from frameworkcontroller.history.archive import (
    Archive,
    ArchiveError,
    FailureQuery,
    FrameworkQuery,
    Page,
    QueryError,
    RecordError,
    TaskQuery,
    encode,
)
from frameworkcontroller.history.metrics import HTTP, Metrics
from frameworkcontroller.history.openapi import ParameterError, Route, shown
from frameworkcontroller.history.upload import UploadError, Uploads, outline
from frameworkcontroller.webaccess.access import VIEWER, Access, Viewer
from frameworkcontroller.webaccess.middleware import protect

_log: Final = logging.getLogger(__name__)

_CHECK_SEC: Final = 5.0
_RETRY_AFTER_SECONDS: Final = 5
_MAX_BODY_BYTES: Final = 64 * 1024
"""Of requests without records, such as a login."""

_PAGES: Final = "page"
"""Value of the label ``route`` for what is mounted beside the API."""

_TITLES: Final = {404: "Not found", 405: "Method not allowed", 413: "Too large"}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Mount = Callable[[web.Application], None]


def application(
    archive: Archive, access: Access, *, metrics: Metrics | None = None, mounts: Iterable[Mount] = ()
) -> web.Application:
    """Return the API over ``archive``, for those whom ``access`` admits.

    ``mounts`` are called with the application before it is protected: they add routes of pages. Those of the API are
    ``/v1/…``, ``/openapi.json``, ``/healthz``, ``/readyz`` and ``/metrics``.
    """
    metrics = metrics or new_metrics()
    app = web.Application(client_max_size=_MAX_BODY_BYTES, middlewares=[_observed(metrics), _problems(metrics)])
    api = _Api(archive, metrics)
    for route in openapi.ROUTES:
        app.router.add_route(route.method, route.path, api.handler(route), name=f"api-{route.name}")
        if route.method == "GET":
            app.router.add_route("HEAD", route.path, api.handler(route))
    for mount in mounts:
        mount(app)
    protect(app, access)
    return app


def new_metrics() -> Metrics:
    """Return metrics with the time series of all routes."""
    return Metrics([*(route.name for route in openapi.ROUTES), _PAGES])


class _Api:
    """The handlers. A route's is the method of its name."""

    def __init__(self, archive: Archive, metrics: Metrics) -> None:
        self._archive = archive
        self._metrics = metrics
        self._uploads = Uploads(metrics)
        self._document = orjson.dumps(openapi.document(), option=orjson.OPT_INDENT_2)

    def handler(self, route: Route) -> Handler:
        """Return the handler of a route, which checks the parameters."""
        work: Callable[..., Awaitable[web.Response]] = getattr(self, route.name)

        async def handle(request: web.Request) -> web.Response:
            values = route.path_values(request.match_info) | route.query(request.query.items())
            if values.get("after"):
                values["after"] = _place(values["after"], _list_of(route.name, values))
            return await work(request, **values)

        return handle

    async def records(self, request: web.Request) -> web.Response:
        viewer = request[VIEWER]
        named = request.headers.getall(openapi.NAMESPACE_HEADER, ())
        # Before the body is read: it must cost those who may not send it more than the archive.
        if not await viewer.may_write_history(named):
            where = f"the namespace of the header {openapi.NAMESPACE_HEADER}" if named else "all namespaces"
            raise UploadError(403, "Not permitted", f"this needs the permission to patch frameworks/status in {where}")
        async with self._uploads.turn(viewer.owner) as upload:
            content_type = request.headers.get("Content-Type", openapi.NDJSON).partition(";")[0].strip().lower()
            if content_type != openapi.NDJSON:
                detail = f'Content-Type: must be {openapi.NDJSON}, not "{content_type[:50]}"'
                raise UploadError(415, "Unsupported type", detail, field="Content-Type")
            numbered = await upload.read(request)
            lines = [line for _, line in numbered]
            namespaces, triggers = outline(lines)
            if not await viewer.may_write_history(namespaces):
                # Nothing is said of the records, so that no one learns which names are known.
                raise UploadError(403, "Not permitted", "this needs the permission to patch frameworks/status there")
            if lines:
                try:
                    await self._archive.store(lines)
                except RecordError as error:
                    raise _BadRecord(numbered[error.line - 1][0], error.problem) from None
            self._metrics.stored(HTTP, triggers)
        return _json({"stored": len(lines)})

    async def frameworks(self, request: web.Request, **values: Any) -> web.Response:
        page = await self._archive.frameworks(FrameworkQuery(**values), await self._readable(request[VIEWER]))
        return _json(_page(page, _list_of("frameworks", values)))

    async def framework(self, request: web.Request, uid: str) -> web.Response:
        return _found(await self._archive.framework(uid, await self._readable(request[VIEWER])), f"Framework {uid}")

    async def attempt(self, request: web.Request, uid: str, n: int) -> web.Response:
        found = await self._archive.attempt(uid, n, await self._readable(request[VIEWER]))
        return _found(found, f"attempt {n} of Framework {uid}")

    async def tasks(self, request: web.Request, uid: str, n: int, **values: Any) -> web.Response:
        page = await self._archive.tasks(uid, n, TaskQuery(**values), await self._readable(request[VIEWER]))
        items = None if page is None else _page(page, _list_of("tasks", {"uid": uid, "n": n} | values))
        return _found(items, f"attempt {n} of Framework {uid}")

    async def task_attempt(
        self, request: web.Request, uid: str, n: int, role: str, index: int, attempt: int, **values: str
    ) -> web.Response:
        task_uid = values["taskUid"]
        readable = await self._readable(request[VIEWER])
        found = await self._archive.task_attempt(uid, n, role, index, task_uid, attempt, readable)
        return _found(
            found, f"attempt {attempt} of Task {role}[{index}] ({task_uid}) in attempt {n} of Framework {uid}"
        )

    async def task_history(self, request: web.Request, uid: str, role: str, index: int) -> web.Response:
        items = await self._archive.task_history(uid, role, index, await self._readable(request[VIEWER]))
        return _found(None if items is None else {"items": items}, f"Framework {uid}")

    async def failures(self, request: web.Request, **values: Any) -> web.Response:
        items = await self._archive.failures(FailureQuery(**values), await self._readable(request[VIEWER]))
        return _json({"items": items})

    async def namespaces(self, request: web.Request) -> web.Response:
        found = await self._archive.namespaces()
        readable = await request[VIEWER].readable(found)
        return _json({"items": [one for one in found if readable is None or one in readable]})

    async def openapi(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._document, content_type=openapi.JSON)

    async def healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(self, _request: web.Request) -> web.Response:
        try:
            async with asyncio.timeout(_CHECK_SEC):
                await self._archive.check()
        except (ArchiveError, TimeoutError) as error:
            # The text of the error is for the log: this answer needs no token.
            _log.warning("Not ready: %s", str(error) or f"the database has not answered for {_CHECK_SEC:.0f} s")
            return web.Response(text="[-]database cannot be used\nfailed\n", status=503)
        return web.Response(text="[+]database ok\nok\n")

    async def metrics(self, request: web.Request) -> web.Response:
        body, content_type = self._metrics.encode(request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def _readable(self, viewer: Viewer) -> frozenset[str] | None:
        return await viewer.readable(await self._archive.namespaces())


class _BadRecord(Exception):
    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line


def _list_of(route: str, values: Mapping[str, Any]) -> bytes:
    """Return what tells lists apart: the route and its parameters, except those of the page."""
    parameters = sorted((name, str(value)) for name, value in values.items() if name not in ("after", "limit"))
    return orjson.dumps([route, parameters])


def _page(page: Page, of: bytes) -> dict[str, Any]:
    return {"items": page.items, "next": None if page.next is None else f"{page.next}.{_seal(page.next, of)}"}


def _place(after: str, of: bytes) -> str:
    """Return the place in a list. Raise ParameterError if it is not one that ``_page`` gave out for the same list."""
    place, dot, seal = after.rpartition(".")
    if not dot or not hmac.compare_digest(seal.encode(errors="replace"), _seal(place, of).encode()):
        raise ParameterError("after", f"must be `next` of a page of the same list, not {shown(after)}")
    return place


def _seal(place: str, of: bytes) -> str:
    # It has no secret: what a place gives access to is checked by the viewer. It finds mistakes.
    return hashlib.sha256(b"%b %b" % (of, place.encode(errors="replace"))).hexdigest()[:16]


def _json(value: Any) -> web.Response:
    return web.Response(body=encode(value), content_type=openapi.JSON)


def _found(value: Any, what: str) -> web.Response:
    return _problem(404, "Not found", f"there is no {what}") if value is None else _json(value)


def _problem(status: int, title: str, detail: str, **more: Any) -> web.Response:
    given = {"title": title, "detail": detail} | {name: value for name, value in more.items() if value is not None}
    response = web.Response(
        status=status,
        body=orjson.dumps(given, option=orjson.OPT_APPEND_NEWLINE),
        content_type=openapi.PROBLEM,
    )
    if status == 503:
        response.headers["Retry-After"] = str(_RETRY_AFTER_SECONDS)
    return response


def _is_api(path: str) -> bool:
    return path.startswith("/v1/") or path in _PLAIN_PATHS


_PLAIN_PATHS: Final = frozenset(route.path for route in openapi.ROUTES if "{" not in route.path) | {"/v1"}


def _problems(metrics: Metrics) -> Any:
    """Return the middleware that answers errors of the API as problems. Pages have error pages."""

    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not _is_api(request.path):
            return await handler(request)
        response = await _answer(request, handler)
        if request.method == "POST" and response.status >= 400:
            metrics.refused(HTTP, response.status)
        return response

    return answer


async def _answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as error:
        response = _problem(
            error.status, _TITLES.get(error.status, error.reason), f"{request.method} {request.path}: {error.reason}"
        )
        if isinstance(error, web.HTTPMethodNotAllowed):
            response.headers["Allow"] = ", ".join(sorted(error.allowed_methods))
        return response
    except ParameterError as error:
        return _problem(400, "Bad parameter", str(error), field=error.field)
    except QueryError as error:
        return _problem(400, "Bad parameter", str(error), field=error.field)
    except UploadError as error:
        return _problem(error.status, error.title, str(error), field=error.field)
    except _BadRecord as error:
        return _problem(400, "Bad record", f"line {error.line}: {error}; nothing was stored", line=error.line)
    except ArchiveError as error:
        _log.warning("Cannot answer %s %s: %s", request.method, request.path, error)
        return _problem(503, "Database unavailable", str(error))


def _observed(metrics: Metrics) -> Any:
    """Return the middleware that measures requests, and hides what was not expected."""

    @web.middleware
    async def observe(request: web.Request, handler: Handler) -> web.StreamResponse:
        began = time.monotonic()
        name = request.match_info.route.name or ""
        resource = request.match_info.route.resource
        if not name and resource is not None:
            name = resource.name or ""
        route = name.removeprefix("api-") if name.startswith("api-") else _PAGES
        status = 500
        try:
            response = await handler(request)
            status = response.status
        except web.HTTPException as error:
            status = error.status
            raise
        except Exception as error:
            if not _is_api(request.path) or isinstance(error, ConnectionError):
                raise
            status = getattr(error, "status", 500)
            if status != 500:
                raise  # a refusal of the viewer, which the outer middleware answers
            _log.exception("Cannot serve %s %s", request.method, request.path)
            return _problem(500, "Internal error", "an unexpected error, which is in the log")
        else:
            return response
        finally:
            metrics.answered(route, status, time.monotonic() - began)

    return observe
