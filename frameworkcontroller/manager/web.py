"""The controller's own web server: metrics, health, and (only if asked for) a look inside.

It serves these paths, to GET and HEAD, and nothing else:

- ``/metrics``: for Prometheus, as OpenMetrics or as its text format, whichever is asked for;
- ``/healthz`` and ``/readyz``: 200 or 503, and one line for each thing looked at (see ``health``);
- ``/debug/tasks``, ``/debug/queue`` and ``/debug/frameworks/NAMESPACE/NAME``: only with webDebug, as they name what
  users run.

It does not ask who asks, so nothing that it serves is a secret: no specs, no environment, no credentials. It needs no
API server to answer.
"""

from __future__ import annotations

import asyncio
import errno
import io
import logging
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Self

import orjson
from aiohttp import web
from prometheus_client.exposition import choose_encoder

from frameworkcontroller.config.bindaddress import BindAddress
from frameworkcontroller.controller.ledger import Entry
from frameworkcontroller.machine.tracker import STATES
from frameworkcontroller.manager.app import Controller
from frameworkcontroller.manager.health import Check, Health

_log: Final = logging.getLogger(__name__)

# Anybody may send what is no HTTP: that must neither fill the log nor write into it.
_peers_log: Final = logging.getLogger(f"{__name__}.peers")
_peers_log.setLevel(logging.CRITICAL + 1)

MAX_CONNECTIONS: Final = 64
"""Beyond so many the oldest is cut, so that no number of idle ones keeps the kubelet's probe out."""

CONNECTION_SEC: Final = 10.0
"""No connection lasts longer, whatever it does or leaves undone. Each is for one request: a scrape or a probe comes too
seldom to be worth keeping one."""

_MAX_LINE_BYTES: Final = 4096
_LAG_EVERY_SEC: Final = 1.0
_MOST_KEYS: Final = 1000

_HEADERS: Final = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    # In place of the versions of Python and aiohttp.
    "Server": "frameworkcontroller",
}

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class WebError(Exception):
    """The server cannot listen where it is to; the text says where and why."""


class WebServer:
    """Serves one controller, for as long as ``async with`` is within; independent of whether that one runs."""

    def __init__(self, controller: Controller, address: BindAddress, *, debug: bool = False) -> None:
        """``debug``: serve the paths below ``/debug`` too."""
        self._controller = controller
        self._address = address
        self._loop = asyncio.get_running_loop()
        self._health = Health(
            controller.informers,
            controller.queue.core,
            clock=self._loop.time,
            required=controller.required_informers,
            may_act=lambda: controller.leading,
        )
        app = web.Application(client_max_size=_MAX_LINE_BYTES, middlewares=[_plainly])
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        if debug:
            app.router.add_get("/debug/tasks", self._tasks)
            app.router.add_get("/debug/queue", self._queue)
            app.router.add_get("/debug/frameworks/{namespace}/{name}", self._framework)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=_peers_log,
            max_line_size=_MAX_LINE_BYTES,
            max_field_size=_MAX_LINE_BYTES,
            shutdown_timeout=1.0,
        )
        self._server: asyncio.Server | None = None
        self._sampling: asyncio.Task[None] | None = None
        self._connections: OrderedDict[web.RequestHandler, asyncio.TimerHandle] = OrderedDict()

    @property
    def port(self) -> int:
        """The port it listens on, once it does."""
        if self._server is None:
            raise RuntimeError("the web server does not run")
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """Where it can be asked on this machine, without a path."""
        return f"http://{BindAddress(self._address.host or '127.0.0.1', self.port)}"

    async def __aenter__(self) -> Self:
        """Begin to serve.

        Raises:
            WebError: another program has that port, or the address is not one of this machine.
        """
        await self._runner.setup()
        try:
            self._server = await self._loop.create_server(
                self._connection, self._address.host or None, self._address.port, reuse_address=True
            )
        except OSError as error:
            await self._runner.cleanup()
            raise WebError(f"{self._address}: {_reason(error)}") from None
        self._sampling = asyncio.create_task(self._sample_lag(), name="event loop lag")
        _log.info("Serving metrics and health on %s", BindAddress(self._address.host or "*", self.port))
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop serving; what is being answered may be for a second more."""
        if self._sampling is not None:
            self._sampling.cancel()
        if self._server is not None:
            self._server.close()
        await self._runner.cleanup()
        for handler in list(self._connections):
            self._cut(handler)

    # --- connections ---

    def _connection(self) -> web.RequestHandler:
        server = self._runner.server
        if server is None:
            raise RuntimeError("the web server does not run")
        handler = server()
        for closed in [other for other in self._connections if other.transport is None]:
            self._cut(closed)
        self._connections[handler] = self._loop.call_later(CONNECTION_SEC, self._cut, handler)
        while len(self._connections) > MAX_CONNECTIONS:
            self._cut(next(iter(self._connections)))
        return handler

    def _cut(self, handler: web.RequestHandler) -> None:
        self._connections.pop(handler).cancel()
        if handler.transport is not None:
            handler.transport.abort()

    async def _sample_lag(self) -> None:
        while True:
            due = self._loop.time() + _LAG_EVERY_SEC
            await asyncio.sleep(_LAG_EVERY_SEC)
            self._controller.metrics.loop_lagged(max(0.0, self._loop.time() - due))

    # --- what it serves ---

    async def _metrics(self, request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(self._controller.metrics.registry), headers={"Content-Type": content_type})

    async def _healthz(self, _request: web.Request) -> web.Response:
        return _verdict(self._health.live())

    async def _readyz(self, _request: web.Request) -> web.Response:
        return _verdict(self._health.ready())

    async def _tasks(self, _request: web.Request) -> web.Response:
        said = io.StringIO()
        for task in sorted(asyncio.all_tasks(self._loop), key=lambda one: one.get_name()):
            task.print_stack(file=said)
            said.write("\n")
        return web.Response(text=said.getvalue())

    async def _queue(self, _request: web.Request) -> web.Response:
        return _json(self._controller.queue.core.snapshot(_MOST_KEYS))

    async def _framework(self, request: web.Request) -> web.Response:
        key = f"{request.match_info['namespace']}/{request.match_info['name']}"
        entry = self._controller.ledger.get(key)
        if entry is None:
            raise web.HTTPNotFound(text=f"no Framework {key} is known here\n")
        return _json({"key": key, **_told(entry, self._loop.time())})


def _told(entry: Entry, now: float) -> dict[str, Any]:
    """What the ledger says of a Framework beyond its status, which its users can read anyway."""
    tracker = entry.tracker
    status = tracker.status
    alarm = tracker.next_alarm()
    return {
        "uid": entry.uid,
        "resourceVersion": entry.resource_version,
        "generation": None if entry.framework is None else entry.framework.generation,
        "state": None if status is None else status.state,
        "attempt": None if status is None else status.attempt.id,
        "tasks": {state: number for state, number in zip(STATES, tracker.task_states, strict=True) if number},
        "persisted": tracker.is_clean,
        "persistFirst": entry.persist_first,
        "urgency": tracker.urgency.name,
        "agenda": sorted(tracker.agenda)[:_MOST_KEYS],
        "stalls": [
            {"task": task, "reason": stall.reason, "message": stall.message} for task, stall in tracker.stalls.items()
        ][:_MOST_KEYS],
        "nextAlarmInSeconds": None if alarm is None else max(0.0, alarm - now),
        "nextWriteInSeconds": max(0.0, entry.next_write - now),
        "guardsFailed": entry.guards_failed,
        "specError": entry.spec_error,
        "quarantine": entry.quarantine,
    }


def _verdict(checks: Sequence[Check]) -> web.Response:
    """In the manner of Kubernetes' own components, so that people know how to read it."""
    lines = [f"[+]{name} ok" if problem is None else f"[-]{name} {problem}" for name, problem in checks]
    failed = any(problem is not None for _, problem in checks)
    text = "\n".join([*lines, "failed" if failed else "ok", ""])
    return web.Response(text=text, status=503 if failed else 200)


def _json(value: dict[str, Any]) -> web.Response:
    body = orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE)
    return web.Response(body=body, content_type="application/json")


def _reason(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "another program listens there already"
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.strerror or error)


@web.middleware
async def _plainly(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Every answer with our headers, and as the last one of its connection; refusals as short plain text."""
    try:
        response = await handler(request)
    except web.HTTPException as refusal:
        response = web.Response(text=refusal.text, status=refusal.status)
        if isinstance(refusal, web.HTTPMethodNotAllowed):
            response.headers["Allow"] = ", ".join(sorted(refusal.allowed_methods))
    except Exception:  # noqa: BLE001 - whatever it is, it is this one request's trouble
        _log.exception("Cannot answer %s", request.path)
        response = web.Response(text="internal error\n", status=500)
    response.headers.update(_HEADERS)
    response.force_close()
    return response
