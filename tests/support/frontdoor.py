"""A proxy in front of an API server that records requests, and can delay or answer them by rules of the test."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from aiohttp import web

from frameworkcontroller.kube.connection import Connection
from tests.support.reverseproxy import Request, ReverseProxy, refusal

__all__ = ["FrontDoor", "Request", "Rule", "front_door", "refusal"]

Rule = Callable[[Request], web.Response | None]
"""Returns the answer, or None to let the API server answer."""


class FrontDoor(ReverseProxy):
    """Adds the credentials of ``upstream`` to all requests."""

    def __init__(self, upstream: Connection) -> None:
        super().__init__(upstream.server, tls=upstream.tls, credentials=upstream.headers)
        self._rules: list[Rule] = []
        self._delays: list[Callable[[Request], float]] = []
        self._holds: list[tuple[Callable[[Request], bool], list[Request], asyncio.Event]] = []
        self.requests: list[Request] = []
        self.refused: list[tuple[Request, int]] = []
        """Requests that failed, with their codes."""

    @property
    def connection(self) -> Connection:
        """A connection to the proxy."""
        return Connection.to_address(self.url)

    def since(self, moment: float) -> list[Request]:
        """The requests since that moment (seconds of the event loop)."""
        return [request for request in self.requests if request.at >= moment]

    def count(self, since: float) -> Counter[tuple[str, str]]:
        """The numbers of requests by verb and resource."""
        return Counter((request.verb, request.resource) for request in self.since(since))

    @contextmanager
    def answering(self, rule: Rule) -> Iterator[None]:
        """Apply this rule before the others."""
        self._rules.insert(0, rule)
        try:
            yield
        finally:
            self._rules.remove(rule)

    def always(self, rule: Rule) -> None:
        """Apply this rule before the others, from now on."""
        self._rules.insert(0, rule)

    @contextmanager
    def delaying(self, delay: Callable[[Request], float]) -> Iterator[None]:
        """Delay requests by ``seconds`` before the rules apply."""
        self._delays.append(delay)
        try:
            yield
        finally:
            self._delays.remove(delay)

    @contextmanager
    def holding(self, which: Callable[[Request], bool]) -> Iterator[list[Request]]:
        """Keep such requests from the API server until the block ends. Yields those that came."""
        came: list[Request] = []
        over = asyncio.Event()
        self._holds.append((which, came, over))
        try:
            yield came
        finally:
            self._holds.remove((which, came, over))
            over.set()

    async def respond(self, request: Request, incoming: web.BaseRequest, body: bytes) -> web.StreamResponse:
        self.requests.append(request)
        for delay in list(self._delays):
            await asyncio.sleep(delay(request))
        for which, came, over in list(self._holds):
            if which(request):
                came.append(request)
                await over.wait()
        answers = (rule(request) for rule in list(self._rules))
        response: web.StreamResponse | None = next((answer for answer in answers if answer is not None), None)
        if response is None:
            response = await super().respond(request, incoming, body)
        if response.status >= 400:
            self.refused.append((request, response.status))
        return response


@asynccontextmanager
async def front_door(upstream: Connection) -> AsyncIterator[FrontDoor]:
    """A running proxy in front of ``upstream``."""
    async with FrontDoor(upstream) as door:
        yield door
