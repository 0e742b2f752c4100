"""The controller's web server: metrics, health and debugging.

It answers GET and HEAD on these paths only:

- ``/metrics``: for Prometheus, in OpenMetrics or the text format, as the client accepts;
- ``/healthz`` and ``/readyz``: 200 or 503, with one line for each check (see ``health``);
- ``/debug/tasks``, ``/debug/queue`` and ``/debug/frameworks/NAMESPACE/NAME``: only with webDebug, because they show the
  names of users' objects.

Clients are not authenticated, so no response holds secrets: no specs, environments or credentials. Responses do not
depend on the API server.
"""

from __future__ import annotations

import asyncio
import io
import logging
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, Self

import orjson
from aiohttp import web
from prometheus_client.exposition import choose_encoder

from frameworkcontroller.config.bindaddress import BindAddress
from frameworkcontroller.controller.reconcilers import Machine
from frameworkcontroller.manager.app import Controller
from frameworkcontroller.manager.health import Check, Health

_log: Final = logging.getLogger(__name__)

# Any client may send bytes that are not HTTP. They must neither fill the log nor forge lines in it.
_peers_log: Final = logging.getLogger(f"{__name__}.peers")
_peers_log.setLevel(logging.CRITICAL + 1)

MAX_CONNECTIONS: Final = 64
"""With more, the oldest is closed: idle connections must not keep out the probes of the kubelet."""

CONNECTION_SEC: Final = 10.0
"""Maximum life of a connection. Each serves one request: scrapes and probes are too rare to keep one open."""

_MAX_LINE_BYTES: Final = 4096
_LAG_SAMPLE_SEC: Final = 1.0
_MAX_KEYS: Final = 1000

_HEADERS: Final = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    # The default names the versions of Python and aiohttp.
    "Server": "frameworkcontroller",
}

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class WebError(Exception):
    """The server cannot listen on its address. The text names the address and the reason."""


class WebServer:
    """Serves one controller within ``async with``, whether or not the controller runs."""

    def __init__(self, controller: Controller, address: BindAddress, *, debug: bool = False) -> None:
        """``debug``: also serve the paths below ``/debug``."""
        self._controller = controller
        self._address = address
        self.port = address.port
        """The port; once it listens, the one that it listens on."""
        self._loop = asyncio.get_running_loop()
        health = Health(
            controller.informers.all,
            controller.queue,
            clock=self._loop.time,
            required=controller.informers,
            may_act=lambda: controller.leading,
        )
        app = web.Application(client_max_size=_MAX_LINE_BYTES, middlewares=[_plain_responses])
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/healthz", partial(_verdict, health.live))
        app.router.add_get("/readyz", partial(_verdict, health.ready))
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
        self._server: asyncio.Server
        self._sampling: asyncio.Task[None]
        self._connections: OrderedDict[web.RequestHandler, asyncio.TimerHandle] = OrderedDict()

    @property
    def url(self) -> str:
        """Its URL on this machine, without a path."""
        return f"http://{BindAddress(self._address.host or '127.0.0.1', self.port)}"

    async def __aenter__(self) -> Self:
        """Start serving.

        Raises:
            WebError: the port is in use, or the address does not belong to this machine.
        """
        await self._runner.setup()
        try:
            self._server = await self._loop.create_server(
                self._connection, self._address.host or None, self._address.port, reuse_address=True
            )
        except OSError as error:
            await self._runner.cleanup()
            raise WebError(f"{self._address}: {_reason(error)}") from None
        self.port = self._server.sockets[0].getsockname()[1]
        self._sampling = asyncio.create_task(self._sample_lag(), name="event loop lag")
        _log.info("Serving metrics and health on %s", BindAddress(self._address.host or "*", self.port))
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop serving. Requests in progress have one more second."""
        self._sampling.cancel()
        self._server.close()
        await self._runner.cleanup()
        for handler in list(self._connections):
            self._abort(handler)

    # --- connections ---

    def _connection(self) -> web.RequestHandler:
        server = self._runner.server
        if server is None:
            raise RuntimeError("the web server does not run")
        handler = server()
        for closed in [other for other in self._connections if other.transport is None]:
            self._abort(closed)
        self._connections[handler] = self._loop.call_later(CONNECTION_SEC, self._abort, handler)
        while len(self._connections) > MAX_CONNECTIONS:
            self._abort(next(iter(self._connections)))
        return handler

    def _abort(self, handler: web.RequestHandler) -> None:
        self._connections.pop(handler).cancel()
        if handler.transport is not None:
            handler.transport.abort()

    async def _sample_lag(self) -> None:
        while True:
            due = self._loop.time() + _LAG_SAMPLE_SEC
            await asyncio.sleep(_LAG_SAMPLE_SEC)
            self._controller.metrics.loop_lagged(max(0.0, self._loop.time() - due))

    # --- paths ---

    async def _metrics(self, request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(self._controller.metrics.registry), headers={"Content-Type": content_type})

    async def _tasks(self, _request: web.Request) -> web.Response:
        text = io.StringIO()
        for task in sorted(asyncio.all_tasks(self._loop), key=lambda task: task.get_name()):
            task.print_stack(file=text)
            text.write("\n")
        return web.Response(text=text.getvalue())

    async def _queue(self, _request: web.Request) -> web.Response:
        return _json(self._controller.queue.snapshot(_MAX_KEYS))

    async def _framework(self, request: web.Request) -> web.Response:
        key = f"{request.match_info['namespace']}/{request.match_info['name']}"
        machine = self._controller.reconcilers.get(key)
        if machine is None:
            raise web.HTTPNotFound(text=f"Framework {key} not found\n")
        return _json({"key": key, **_debug_view(machine, self._loop.time())})


def _debug_view(machine: Machine, now: float) -> dict[str, Any]:
    """What is known of a Framework, without the status, which users can read from the API server."""
    tracker = machine.tracker
    status = tracker.status
    alarm = tracker.agenda.next_alarm()
    return {
        "uid": machine.uid,
        "state": None if status is None else status.state,
        "attempt": None if status is None else status.attempt.id,
        "tasks": {state: number for state, number in tracker.task_states.items() if number},
        "persisted": tracker.is_clean,
        "urgency": tracker.urgency.name,
        "agenda": sorted(tracker.agenda)[:_MAX_KEYS],
        "stalls": [
            {"task": task, "reason": stall.reason, "message": stall.message}
            for task, stall in tracker.holds.stalls.items()
        ][:_MAX_KEYS],
        "nextAlarmInSeconds": None if alarm is None else max(0.0, alarm - now),
        **machine.describe(now),
    }


async def _verdict(run_checks: Callable[[], Sequence[Check]], _request: web.Request) -> web.Response:
    """The format is that of Kubernetes' own components."""
    checks = run_checks()
    lines = [f"[+]{name} ok" if problem is None else f"[-]{name} {problem}" for name, problem in checks]
    failed = any(problem is not None for _, problem in checks)
    text = "\n".join([*lines, "failed" if failed else "ok", ""])
    return web.Response(text=text, status=503 if failed else 200)


def _json(value: dict[str, Any]) -> web.Response:
    body = orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE)
    return web.Response(body=body, content_type="application/json")


def _reason(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.strerror or error)


@web.middleware
async def _plain_responses(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Add the headers, close the connection after the response, and send errors as short plain text."""
    try:
        response = await handler(request)
    except web.HTTPException as error:
        response = web.Response(text=error.text, status=error.status)
        if isinstance(error, web.HTTPMethodNotAllowed):
            response.headers["Allow"] = ", ".join(sorted(error.allowed_methods))
    except Exception:  # noqa: BLE001 - an error concerns this request only
        _log.exception("Cannot serve %s", request.path)
        response = web.Response(text="internal error\n", status=500)
    response.headers.update(_HEADERS)
    response.force_close()
    return response
