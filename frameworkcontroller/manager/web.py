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
import re
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from http import HTTPStatus
from typing import Any, Final, Self

import orjson

from frameworkcontroller.config.bindaddress import BindAddress
from frameworkcontroller.controller.reconcilers import Machine
from frameworkcontroller.manager.app import Controller
from frameworkcontroller.manager.health import Check, Health
from frameworkcontroller.manager.httpserver import HttpRequest, HttpServer, Response

_log: Final = logging.getLogger(__name__)

_LAG_SAMPLE_SEC: Final = 1.0
_MAX_KEYS: Final = 1000

_FRAMEWORK_PATH: Final = re.compile(r"/debug/frameworks/([^/]+/[^/]+)")


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
            more=partial(_checks_of_reports, controller),
        )
        self._debug = debug
        self._paths: dict[str, Callable[[HttpRequest], Response]] = {
            "/metrics": self._metrics,
            "/healthz": lambda _: _verdict(health.live()),
            "/readyz": lambda _: _verdict(health.ready()),
        }
        if debug:
            self._paths |= {"/debug/tasks": self._tasks, "/debug/queue": self._queue}
        self._server = HttpServer(self._respond)
        self._sampling: asyncio.Task[None]

    @property
    def url(self) -> str:
        """Its URL on this machine, without a path."""
        return f"http://{BindAddress(self._address.host or '127.0.0.1', self.port)}"

    async def __aenter__(self) -> Self:
        """Start serving.

        Raises:
            WebError: the port is in use, or the address does not belong to this machine.
        """
        try:
            self.port = await self._server.start(self._address.host or None, self._address.port)
        except OSError as error:
            raise WebError(f"{self._address}: {_reason(error)}") from None
        self._sampling = asyncio.create_task(self._sample_lag(), name="event loop lag")
        _log.info("Serving metrics and health on %s", BindAddress(self._address.host or "*", self.port))
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._sampling.cancel()
        self._server.close()

    async def _sample_lag(self) -> None:
        while True:
            due = self._loop.time() + _LAG_SAMPLE_SEC
            await asyncio.sleep(_LAG_SAMPLE_SEC)
            self._controller.metrics.loop_lagged(max(0.0, self._loop.time() - due))

    # --- paths ---

    def _respond(self, request: HttpRequest) -> Response | None:
        if (serve := self._paths.get(request.path)) is not None:
            return serve(request)
        if self._debug and (found := _FRAMEWORK_PATH.fullmatch(request.path)) is not None:
            return self._framework(found[1])
        return None

    @cached_property
    def _expose(self) -> Callable[[str], tuple[bytes, str]]:
        # Here, because a controller that is not scraped does without prometheus-client's memory.
        from frameworkcontroller.manager.exposition import expose, registry_of

        return partial(expose, registry_of(self._controller))

    def _metrics(self, request: HttpRequest) -> Response:
        return Response(*self._expose(request.accept))

    def _tasks(self, _request: HttpRequest) -> Response:
        text = io.StringIO()
        for task in sorted(asyncio.all_tasks(self._loop), key=lambda task: task.get_name()):
            task.print_stack(file=text)
            text.write("\n")
        return Response(text.getvalue().encode())

    def _queue(self, _request: HttpRequest) -> Response:
        return _json(self._controller.queue.snapshot(_MAX_KEYS))

    def _framework(self, key: str) -> Response:
        machine = self._controller.reconcilers.get(key)
        if machine is None:
            return Response(f"Framework {key} not found\n".encode(), status=HTTPStatus.NOT_FOUND)
        return _json({"key": key, **_debug_view(machine, self._loop.time())})


def _checks_of_reports(controller: Controller) -> list[Check]:
    """A replica that cannot write reports is not ready: the Service sends them to another one."""
    return [] if (service := controller.report_service) is None else [Check("reports", service.problem)]


def _debug_view(machine: Machine, now: float) -> dict[str, Any]:
    """In-memory state of a Framework, without the status, which users can read from the API server."""
    tracker = machine.tracker
    status = tracker.status
    alarm = tracker.agenda.next_time()
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


def _verdict(checks: Sequence[Check]) -> Response:
    """The format of Kubernetes' own components."""
    lines = [f"[+]{name} ok" if problem is None else f"[-]{name} {problem}" for name, problem in checks]
    failed = any(problem is not None for _, problem in checks)
    text = "\n".join([*lines, "failed" if failed else "ok", ""])
    return Response(text.encode(), status=HTTPStatus.SERVICE_UNAVAILABLE if failed else HTTPStatus.OK)


def _json(value: dict[str, Any]) -> Response:
    body = orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE)
    return Response(body, "application/json")


def _reason(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.strerror or error)
