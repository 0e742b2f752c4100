"""Requests of controllers as a test sees them: a record of them, and hooks that send them late, lose or refuse them."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import orjson
import pytest

from frameworkcontroller.api import names
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.resources import Resource
from frameworkcontroller.manager import app
from tests.support.frameworks import Json

Send = Callable[[], Awaitable[bytes]]
Hook = Callable[[Send], Awaitable[bytes]]


@dataclass
class Request:
    """One request for an object: a create, get, patch or delete."""

    verb: str
    kind: str
    name: str
    body: Any
    """The parsed JSON; None if the request has none."""
    sent: float
    """Seconds of the event loop, before any hook."""
    answered: float | None = None
    """Seconds of the event loop; None while the request is in flight."""
    accepted: bool = False

    @property
    def writes_status(self) -> bool:
        """Whether this is a write of a whole status of a Framework."""
        return self.verb == "patch" and self.kind == names.KIND and any(op["path"] == "/status" for op in self.body)

    @property
    def status(self) -> Json:
        """The status that it writes."""
        status: Json = next(op["value"] for op in self.body if op["path"] == "/status")
        return status


class Requests:
    """The requests of all controllers that are made after it, in one namespace."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, namespace: str) -> None:
        self._namespace = namespace
        self._hooks: list[tuple[Callable[[Request], bool], Hook, bool]] = []
        self.all: list[Request] = []
        monkeypatch.setattr(app, "KubeClient", _client_for(self))

    @property
    def status_writes(self) -> list[Request]:
        """Those that write a status."""
        return [request for request in self.all if request.writes_status]

    def creations(self, name: str) -> list[Request]:
        """Those that create an object whose name begins so."""
        return [request for request in self.all if request.verb == "create" and request.name.startswith(name)]

    def once(self, when: Callable[[Request], bool], hook: Hook) -> None:
        """Have `hook` send the next request that is such."""
        self._hooks.append((when, hook, True))

    def always(self, when: Callable[[Request], bool], hook: Hook) -> None:
        """Have `hook` send every request that is such, unless an earlier hook does."""
        self._hooks.append((when, hook, False))

    @property
    def done(self) -> bool:
        """Whether all hooks that are there for one request have had it."""
        return not any(once for _, _, once in self._hooks)

    def _hook_for(self, request: Request) -> Hook:
        for position, (when, hook, once) in enumerate(self._hooks):
            if when(request):
                if once:
                    del self._hooks[position]
                return hook
        return _directly

    async def send(
        self, verb: str, resource: Resource, name: str, body: bytes | None, where: tuple[Any, ...], send: Send
    ) -> bytes:
        """Send it by the first hook that wants it."""
        if self._namespace not in where:
            return await send()
        clock = asyncio.get_running_loop().time
        request = Request(verb, resource.kind, name, None if body is None else orjson.loads(body), clock())
        self.all.append(request)
        hook = self._hook_for(request)
        try:
            answer = await hook(send)
            request.accepted = True
        finally:
            request.answered = clock()
        return answer


async def _directly(send: Send) -> bytes:
    return await send()


def _client_for(requests: Requests) -> type[KubeClient]:
    class Client(KubeClient):
        async def create(self, resource: Resource, body: bytes, *args: Any, **more: Any) -> bytes:
            async def send() -> bytes:
                return await super(Client, self).create(resource, body, *args, **more)

            name = orjson.loads(body)["metadata"].get("name", "")
            return await requests.send("create", resource, name, body, args, send)

        async def get(self, resource: Resource, name: str, *args: Any, **more: Any) -> bytes:
            async def send() -> bytes:
                return await super(Client, self).get(resource, name, *args, **more)

            return await requests.send("get", resource, name, None, args, send)

        async def patch(self, resource: Resource, name: str, body: bytes, *args: Any, **more: Any) -> bytes:
            async def send() -> bytes:
                return await super(Client, self).patch(resource, name, body, *args, **more)

            return await requests.send("patch", resource, name, body, args, send)

        async def delete(self, resource: Resource, name: str, *args: Any, **more: Any) -> bytes:
            async def send() -> bytes:
                return await super(Client, self).delete(resource, name, *args, **more)

            return await requests.send("delete", resource, name, None, args, send)

    return Client
