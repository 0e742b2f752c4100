"""One collection of objects served as an API server does: consistent lists, pages, watches with bookmarks, 410."""

import asyncio
from typing import Any

import orjson
from aiohttp import web

from tests.support.faulty_server import FaultyServer, event, status

TOO_DEEP = "(very deep)"


def _deepened(text: bytes) -> bytes:
    # No encoder of Python writes as many levels as an API server does.
    return text.replace(orjson.dumps(TOO_DEEP), b"[" * 5000 + b"]" * 5000)


class CollectionServer:
    """Serves lists and watches through a FaultyServer, whose ``answers`` come first: that is where faults go in."""

    def __init__(self, faulty: FaultyServer) -> None:
        self.faulty = faulty
        faulty.otherwise = self.answer
        self.version = 100
        self.objects: dict[str, dict[str, Any]] = {}
        self.history: list[tuple[int, bytes]] = []
        self.oldest = 0
        self.lists = 0
        self.watches = 0
        self.bookmark_seconds: float | None = 60.0
        self._tokens: dict[str, tuple[int, list[dict[str, Any]]]] = {}
        self._changed = asyncio.Event()
        self._cut_at = 0

    def put(self, name: str, **fields: Any) -> None:
        """Create or change an object. A field that is ``TOO_DEEP`` is sent as very many levels of lists."""
        self.version += 1
        kind = "MODIFIED" if name in self.objects else "ADDED"
        uid = self.objects[name]["metadata"]["uid"] if name in self.objects else f"uid-{self.version}"
        metadata = {"name": name, "namespace": "ns", "uid": uid, "resourceVersion": str(self.version)}
        self.objects[name] = {"kind": "Thing", "metadata": metadata, **fields}
        self._happened(kind, self.objects[name])

    def delete(self, name: str) -> None:
        self.version += 1
        gone = self.objects.pop(name)
        self._happened("DELETED", {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(self.version)}})

    def compact(self) -> None:
        """Forget all history: watches from before, and tokens, have expired."""
        self.oldest = self.version
        self.history.clear()

    def close_watches(self) -> None:
        """End every watch that is open now, as a server does that goes down."""
        self._cut_at += 1
        self._wake()

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.query.get("watch") == "true":
            return await self._watch(request)
        return await self._list(request)

    async def _list(self, request: web.BaseRequest) -> web.StreamResponse:
        token = request.query.get("continue")
        if token is None:
            self.lists += 1
            version, rest = self.version, [self.objects[name] for name in sorted(self.objects)]
        else:
            version, rest = self._tokens.get(token, (-1, []))
            if version < self.oldest:
                return await status(410, "Expired", "The provided continue parameter is too old")(request)
        limit = int(request.query.get("limit", 0)) or len(rest)
        page, rest = rest[:limit], rest[limit:]
        metadata: dict[str, Any] = {"resourceVersion": str(version)}
        if rest:
            metadata["continue"] = f"{version}-{len(rest)}"
            self._tokens[metadata["continue"]] = (version, rest)
        return web.Response(body=_deepened(orjson.dumps({"kind": "ThingList", "metadata": metadata, "items": page})))

    async def _watch(self, request: web.BaseRequest) -> web.StreamResponse:
        at = int(request.query["resourceVersion"])
        if at < self.oldest:
            return await status(410, "Expired", f"too old resource version: {at}")(request)
        self.watches += 1
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        cut_at = self._cut_at
        loop = asyncio.get_running_loop()
        ends = loop.time() + int(request.query.get("timeoutSeconds", 1800))
        bookmark_at = loop.time() + (self.bookmark_seconds or 10**9)
        while loop.time() < ends and cut_at == self._cut_at:
            if at < self.oldest:
                expired = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
                await response.write(event("ERROR", expired))
                return response
            news = [(version, line) for version, line in self.history if version > at]
            for version, line in news:
                await response.write(line)
                at = version
            if not news and loop.time() >= bookmark_at:
                await response.write(event("BOOKMARK", {"metadata": {"resourceVersion": str(self.version)}}))
                at = self.version
                bookmark_at = loop.time() + (self.bookmark_seconds or 10**9)
            changed = self._changed
            try:
                async with asyncio.timeout_at(min(ends, bookmark_at)):
                    await changed.wait()
            except TimeoutError:
                continue
        return response

    def _happened(self, kind: str, obj: dict[str, Any]) -> None:
        self.history.append((self.version, _deepened(event(kind, obj))))
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
