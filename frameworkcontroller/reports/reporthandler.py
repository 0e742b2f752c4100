"""The endpoint to which Pods post their reports, by the rules of KEP-2779. Never waits for a write."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

import orjson
from aiohttp import web

from frameworkcontroller.api.problems import ProblemError
from frameworkcontroller.reports.podtokens import AttemptPath, PodTokens, ReportingPod, ReportRefused
from frameworkcontroller.reports.progresswriter import ProgressWriter
from frameworkcontroller.reports.reportbody import parse_report

MAX_BODY_BYTES: Final = 64 << 10

_PATH: Final = re.compile(
    r"/apis/progress/v1/namespaces/([a-z0-9-]{1,63})/frameworks/([a-z0-9]{1,63})/attempts/(0|[1-9][0-9]{0,8})", re.ASCII
)

RESULTS: Final = {
    HTTPStatus.OK: "accepted",
    HTTPStatus.BAD_REQUEST: "invalid",
    HTTPStatus.UNAUTHORIZED: "unauthorized",
    HTTPStatus.FORBIDDEN: "forbidden",
    HTTPStatus.GONE: "gone",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "too_large",
    HTTPStatus.TOO_MANY_REQUESTS: "throttled",
    HTTPStatus.SERVICE_UNAVAILABLE: "unavailable",
}
"""Results of reports by the status of their answers; all others are ``other``."""

_HEADERS: Final = {"Cache-Control": "no-store", "Server": "frameworkcontroller", "X-Content-Type-Options": "nosniff"}


class ReportHandler:
    """Answers requests, and counts them."""

    def __init__(self, authentication: PodTokens, writer: ProgressWriter, *, clock: Callable[[], float]) -> None:
        self._authentication = authentication
        self._writer = writer
        self._clock = clock
        self.results: Counter[str] = Counter()

    def application(self) -> web.Application:
        """The application for a server."""
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[self._answered])
        app.router.add_route("*", "/{path:.*}", self._report)
        return app

    @web.middleware
    async def _answered(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        response: web.StreamResponse
        try:
            response = await handler(request)
        except ReportRefused as refused:
            response = _error(refused.status, str(refused), refused.retry_after)
        except web.HTTPRequestEntityTooLarge:
            text = f"the body must not have more than {MAX_BODY_BYTES} bytes"
            response = _error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)
        except ProblemError as error:
            response = _error(HTTPStatus.BAD_REQUEST, str(error))
        self.results[RESULTS.get(HTTPStatus(response.status), "other")] += 1
        if response.status != HTTPStatus.OK and request.body_exists:
            # A body may be unread.
            response.force_close()
        return response

    async def _report(self, request: web.Request) -> web.StreamResponse:
        found = _PATH.fullmatch(request.rel_url.raw_path)
        if found is None:
            raise ReportRefused(HTTPStatus.NOT_FOUND, "no such path")
        if request.method != "POST":
            response = _error(HTTPStatus.METHOD_NOT_ALLOWED, "reports are posted")
            response.headers["Allow"] = "POST"
            return response
        target = AttemptPath(found[1], found[2], int(found[3]))
        pod = await self._authentication.find(_token(request), target, request.remote or "")
        self._throttle(pod)
        if (request.content_length or 0) > MAX_BODY_BYTES:
            raise web.HTTPRequestEntityTooLarge(MAX_BODY_BYTES, request.content_length or 0)
        report = parse_report(await request.read())
        await self._writer.take(pod, target, report)
        return web.Response(body=b"{}", content_type="application/json", headers=_HEADERS)

    def _throttle(self, pod: ReportingPod) -> None:
        if not pod.bucket.take(self._clock()):
            raise ReportRefused(HTTPStatus.TOO_MANY_REQUESTS, "one report a second is enough", 1)


def _token(request: web.Request) -> str:
    given = request.headers.getall("Authorization", ())
    scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    if scheme.lower() != "bearer":
        raise ReportRefused(HTTPStatus.UNAUTHORIZED, "the header Authorization must be: Bearer TOKEN")
    return token.strip()


def _error(status: HTTPStatus, text: str, retry_after: int | None = None) -> web.Response:
    headers = dict(_HEADERS)
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    if retry_after is not None:
        headers["Retry-After"] = str(retry_after)
    body = orjson.dumps({"code": status.value, "message": text}, option=orjson.OPT_APPEND_NEWLINE)
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)
