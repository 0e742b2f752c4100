"""The archive's API as an aiohttp application: takes records, answers queries, mounts pages."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Final

import orjson
from aiohttp import web

from frameworkcontroller.history.apidocument import JSON, NAMESPACE_HEADER, NDJSON, PROBLEM, ROUTES, document
from frameworkcontroller.history.archive import HistoryArchive, encode
from frameworkcontroller.history.archiveerrors import ArchiveError, QueryError, RecordError
from frameworkcontroller.history.archivemetrics import HTTP, ArchiveMetrics
from frameworkcontroller.history.reads import READS, Read
from frameworkcontroller.history.upload import UploadError, Uploads, outline
from frameworkcontroller.webaccess.middleware import protect
from frameworkcontroller.webaccess.viewers import VIEWER, WebAccess

_log: Final = logging.getLogger(__name__)

_CHECK_SEC: Final = 5.0
_RETRY_AFTER_SECONDS: Final = 5
_MAX_BODY_BYTES: Final = 64 * 1024
"""Of requests without records, such as a login."""

_PAGES: Final = "page"
"""Value of the label ``route`` for mounted pages."""

_TITLES: Final = {404: "Not found", 405: "Method not allowed", 413: "Too large"}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Mount = Callable[[web.Application], None]


def application(
    archive: HistoryArchive, access: WebAccess, *, metrics: ArchiveMetrics | None = None, mounts: Iterable[Mount] = ()
) -> web.Application:
    """Return the API over ``archive``, for the viewers whom ``access`` admits.

    ``mounts`` are called with the application before it is protected: they add routes of pages. The API has
    ``/v1/…``, ``/openapi.json``, ``/healthz``, ``/readyz`` and ``/metrics``.
    """
    metrics = metrics or new_metrics()
    app = web.Application(client_max_size=_MAX_BODY_BYTES, middlewares=[_observed(metrics)])
    api = _Api(archive, metrics)
    handlers = {read.path: (read.operation, partial(api.read, read)) for read in READS}
    handlers |= {route.path: (route.operation, getattr(api, route.operation)) for route in ROUTES}
    for path, (operation, handler) in handlers.items():
        if operation == "records":
            app.router.add_post(path, handler, name="api-records")
        else:
            app.router.add_get(path, handler, name=f"api-{operation}")
    for mount in mounts:
        mount(app)
    protect(app, access)
    return app


def new_metrics() -> ArchiveMetrics:
    """Return metrics with the time series of all routes."""
    return ArchiveMetrics([*(read.operation for read in READS), *(route.operation for route in ROUTES), _PAGES])


class _Api:
    """The handlers: `read`, and for each other route the method of its name."""

    def __init__(self, archive: HistoryArchive, metrics: ArchiveMetrics) -> None:
        self._archive = archive
        self._metrics = metrics
        self._uploads = Uploads(metrics)
        self._document = orjson.dumps(document(), option=orjson.OPT_INDENT_2)

    async def read(self, kind: type[Read[Any]], request: web.Request) -> web.Response:
        """Answer a read."""
        query = kind.parse(request.match_info, request.query.items())
        answer = await (await self._archive.for_viewer(request[VIEWER])).read(query)
        if answer is None:
            return _problem(404, "Not found", f"there is no {query.what()}")
        return _json(answer)

    async def records(self, request: web.Request) -> web.Response:
        viewer = request[VIEWER]
        named = request.headers.getall(NAMESPACE_HEADER, ())
        # Before the body is read: a refused body must cost its sender more than the archive.
        if not await viewer.may_write_history(named):
            where = f"the namespace of the header {NAMESPACE_HEADER}" if named else "all namespaces"
            raise UploadError(403, "Not permitted", f"this needs the permission to patch frameworks/status in {where}")
        async with self._uploads.turn(viewer.owner) as read:
            content_type = request.headers.get("Content-Type", NDJSON).partition(";")[0].strip().lower()
            if content_type != NDJSON:
                detail = f'Content-Type: must be {NDJSON}, not "{content_type[:50]}"'
                raise UploadError(415, "Unsupported type", detail, field="Content-Type")
            numbered = await read(request)
            lines = [line for _, line in numbered]
            namespaces, triggers = outline(lines)
            if not await viewer.may_write_history(namespaces):
                # The answer does not mention the records: it must not reveal known names.
                raise UploadError(403, "Not permitted", "this needs the permission to patch frameworks/status there")
            if lines:
                try:
                    await self._archive.store(lines)
                except RecordError as error:
                    number = numbered[error.line - 1][0]
                    detail = f"line {number}: {error.problem}; nothing was stored"
                    raise UploadError(400, "Bad record", detail, line=number) from None
            self._metrics.stored(HTTP, triggers)
        return _json({"stored": len(lines)})

    async def openapi(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._document, content_type=JSON)

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


def _json(value: Any) -> web.Response:
    return web.Response(body=encode(value), content_type=JSON)


def _problem(status: int, title: str, detail: str, **at: str | int) -> web.Response:
    body = orjson.dumps({"title": title, "detail": detail, **at}, option=orjson.OPT_APPEND_NEWLINE)
    response = web.Response(status=status, body=body, content_type=PROBLEM)
    if status == 503:
        response.headers["Retry-After"] = str(_RETRY_AFTER_SECONDS)
    return response


_PLAIN_PATHS: Final = frozenset(route.path for route in ROUTES) | {"/v1"}


def _observed(metrics: ArchiveMetrics) -> Any:
    """Return the middleware that measures requests, and answers errors of the API as problems."""

    @web.middleware
    async def observe(request: web.Request, handler: Handler) -> web.StreamResponse:
        began = time.monotonic()
        name = request.match_info.route.name or ""
        resource = request.match_info.route.resource
        if not name and resource is not None:
            name = resource.name or ""
        route = name.removeprefix("api-") if name.startswith("api-") else _PAGES
        is_api = request.path.startswith("/v1/") or request.path in _PLAIN_PATHS
        status = 500
        try:
            response = await (_answer(request, handler) if is_api else handler(request))
            status = response.status
        except web.HTTPException as error:
            status = error.status
            raise
        except Exception as error:
            # Of the API: a refusal of the viewer, which the outer middleware answers.
            status = getattr(error, "status", 500) if is_api else 500
            raise
        else:
            if is_api and request.method == "POST" and status >= 400:
                metrics.refused(HTTP, status)
            return response
        finally:
            metrics.answered(route, status, time.monotonic() - began)

    return observe


async def _answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as error:
        title = _TITLES.get(error.status, error.reason)
        response = _problem(error.status, title, f"{request.method} {request.path}: {error.reason}")
        if isinstance(error, web.HTTPMethodNotAllowed):
            response.headers["Allow"] = ", ".join(sorted(error.allowed_methods))
        return response
    except QueryError as error:
        return _problem(400, "Bad parameter", str(error), field=error.field)
    except UploadError as error:
        return _problem(error.status, error.title, str(error), **error.at)
    except ArchiveError as error:
        _log.warning("Cannot answer %s %s: %s", request.method, request.path, error)
        return _problem(503, "Database unavailable", str(error))
    except Exception as error:
        if isinstance(error, ConnectionError) or hasattr(error, "status"):
            raise
        _log.exception("Cannot serve %s %s", request.method, request.path)
        return _problem(500, "Internal error", "an unexpected error, which is in the log")
