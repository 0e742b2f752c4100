"""Stubs for the barrier: Frameworks, an API server, and a clock that only sleeping advances."""

from __future__ import annotations

import base64
import copy
import gzip
import http.server
import json
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

Json = dict[str, Any]

Answer = tuple[int, Mapping[str, str], bytes]
"""Code, headers and body."""

NAMESPACE = "team-a"
NAME = "train"
UID = "7a1d0a2e-7f0c-4a7e-9f57-2f0d8a9be001"
CONFIGMAP_UID = "0c2f4d1b-16b4-4be5-8a2b-4a4ad1dd1c02"

ENVIRON = {"FC_FRAMEWORK_NAMESPACE": NAMESPACE, "FC_FRAMEWORK_NAME": NAME}
"""All that the barrier is given where nobody configured it: what every container of a Framework has."""

IDENTITY = {"FC_FRAMEWORK_UID": UID, "FC_FRAMEWORK_ATTEMPT_INSTANCE_UID": f"0_{CONFIGMAP_UID}"}
"""What says to which life of the Framework a container belongs; every container has that as well."""


def framework(roles: Mapping[str, Sequence[str | None]], *, attempt: int = 0, version: int = 1) -> Json:
    """A Framework whose roles have Tasks with these IPs, as the API server gives it."""
    return {
        "apiVersion": "frameworkcontroller.microsoft.com/v1",
        "kind": "Framework",
        "metadata": {
            "namespace": NAMESPACE,
            "name": NAME,
            "uid": UID,
            "resourceVersion": str(version),
            "generation": 1,
        },
        "spec": {
            "executionType": "Start",
            "taskRoles": [{"name": role, "taskNumber": len(ips), "task": {}} for role, ips in roles.items()],
        },
        "status": {
            "state": "AttemptPreparing",
            "attemptStatus": {
                "id": attempt,
                "instanceUID": f"{attempt}_{CONFIGMAP_UID}",
                "configMapUID": CONFIGMAP_UID,
                "taskRoleStatuses": [
                    {"name": role, "taskStatuses": [task(index, ip) for index, ip in enumerate(ips)]}
                    for role, ips in roles.items()
                ],
            },
        },
    }


def task(index: int, ip: str | None, *, deletion_pending: bool = False) -> Json:
    """One of ``taskStatuses``."""
    return {
        "index": index,
        "state": "AttemptPreparing",
        "deletionPending": deletion_pending,
        "attemptStatus": {"id": 0, "podName": f"{NAME}-x-{index}", "podIP": ip},
    }


def compressed(plain: Json) -> Json:
    """The same Framework as a controller stores it that compresses."""
    packed = copy.deepcopy(plain)
    attempt = packed["status"]["attemptStatus"]
    roles = json.dumps(attempt["taskRoleStatuses"]).encode()
    attempt["taskRoleStatusesCompressed"] = base64.b64encode(gzip.compress(roles)).decode()
    attempt["taskRoleStatuses"] = None
    return packed


class Clock:
    """Time that passes only while a sleep runs; ``at`` has things happen meanwhile."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.naps: list[float] = []
        self._due: list[tuple[float, Callable[[], None]]] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0, "a wait that never ends"
        self.naps.append(seconds)
        until = self.now + seconds
        for when, happen in sorted(self._due, key=lambda event: event[0]):
            if when <= until:
                self.now = max(self.now, when)
                happen()
        self._due = [event for event in self._due if event[0] > until]
        self.now = until

    def at(self, seconds: float, happen: Callable[[], None]) -> None:
        """Have something happen that many seconds from now."""
        self._due.append((self.now + seconds, happen))


class StubApi(AbstractContextManager["StubApi"]):
    """An API server that serves one Framework: ``current``, and ``cached`` for reads from its memory.

    None: there is none. ``cached`` follows ``current`` unless ``lags``. ``answers`` are given first, in order, in place
    of the Framework.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._current: Json | None = None
        self._cached: Json | None = None
        self.lags = False
        self.answers: list[Answer] = []
        self.requests: list[str] = []
        """One word for each: ``live``, ``cached`` or ``metadata``."""
        self.headers: list[Mapping[str, str]] = []
        self.raw_headers: list[list[tuple[str, str]]] = []
        """The same, with all of those that were given more than once."""
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        scheme = "http" if tls is None else "https"
        self.port = self._server.server_address[1]
        self.address = f"{scheme}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def current(self) -> Json | None:
        """The Framework as it is."""
        return self._current

    @current.setter
    def current(self, value: Json | None) -> None:
        self._current = value
        if not self.lags:
            self._cached = value

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, path: str, headers: Mapping[str, str]) -> Answer:
        """What to say to a GET."""
        url = urlsplit(path)
        cached = parse_qs(url.query) == {"resourceVersion": ["0"]}
        only_metadata = "PartialObjectMetadata" in headers["Accept"]
        self.requests.append("metadata" if only_metadata else "cached" if cached else "live")
        self.headers.append(headers)
        if self.answers:
            return self.answers.pop(0)
        found = self._cached if cached else self._current
        wanted = f"/apis/frameworkcontroller.microsoft.com/v1/namespaces/{NAMESPACE}/frameworks/{NAME}"
        if url.path != wanted or found is None:
            return status(
                404, "NotFound", f'frameworks.frameworkcontroller.microsoft.com "{NAME}" not found', name=NAME
            )
        body = {"kind": "PartialObjectMetadata", "metadata": found["metadata"]} if only_metadata else found
        return 200, {}, json.dumps(body).encode()

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        api = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                api.raw_headers.append(self.headers.items())
                code, headers, body = api.answer(self.path, dict(self.headers))
                self.send_response(code)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler


def status(code: int, reason: str, message: str, **details: str) -> Answer:
    """An answer with a metav1.Status."""
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    return code, {}, json.dumps({**body, "details": details}).encode()


def written(directory: Path) -> Json:
    """The Framework that a barrier has left in the directory."""
    content: Json = json.loads((directory / "framework.json").read_text())
    return content
