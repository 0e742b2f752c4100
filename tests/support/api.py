"""An API server as bare HTTP: for tests of its responses, without the interpretation of a client library."""

from __future__ import annotations

import asyncio
import io
import itertools
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import aiohttp
import orjson

from frameworkcontroller.kubeconfig.reader import Kubeconfig
from tests.support.abruptconnector import AbruptConnector
from tests.support.eventually import eventually

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL: Final = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"

Query = Mapping[str, str | int]

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Answer:
    """A response."""

    code: int
    body: Any
    """Decoded, or text where it is no JSON."""
    headers: Mapping[str, str]

    def ok(self) -> Any:
        """The body of an answer that must be a success."""
        assert self.code < 300, self.body
        return self.body

    @property
    def message(self) -> str:
        """Of a Status."""
        return str(self.body["message"])

    @property
    def reason(self) -> str:
        """Of a Status."""
        return str(self.body.get("reason", ""))

    def causes(self) -> list[tuple[str, str]]:
        """Field and message of each cause, none twice (older servers list some twice)."""
        found = (self.body.get("details") or {}).get("causes") or ()
        return list(dict.fromkeys((cause.get("field", ""), cause["message"]) for cause in found))


class Events:
    """The events of a watch, as they come."""

    def __init__(self) -> None:
        self.all: list[dict[str, Any]] = []
        self.ended = asyncio.Event()

    def seen(self) -> list[tuple[str, str]]:
        """Type and name of each event but bookmarks."""
        return [(one["type"], one["object"]["metadata"]["name"]) for one in self.all if one["type"] != "BOOKMARK"]

    async def reach(self, count: int) -> list[dict[str, Any]]:
        """Waits for this number of events; fails if they do not come."""

        async def enough() -> None:
            assert len(self.all) >= count, self.all

        await eventually(enough)
        return self.all

    def of(self, name: str) -> list[dict[str, Any]]:
        """The events about one object."""
        return [one for one in self.all if one["object"].get("metadata", {}).get("name") == name]


class Api:
    """Requests to one API server, about one namespace unless said otherwise."""

    def __init__(self, session: aiohttp.ClientSession, server: str, namespace: str) -> None:
        self._session = session
        self.server = server
        self.namespace = namespace

    def path(self, plural: str, name: str = "", *more: str, namespace: str | None = None) -> str:
        """The path of a core resource in the namespace."""
        parts = ["/api/v1/namespaces", namespace or self.namespace, plural, name, *more]
        return "/".join(part for part in parts if part)

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        accept: str | None = None,
        query: Query = MappingProxyType({}),
    ) -> Answer:
        """Any request. ``body`` is sent as JSON unless it is bytes."""
        code, headers, raw = await self._send(method, path, body, content_type, accept, query)
        try:
            decoded = orjson.loads(raw)
        except orjson.JSONDecodeError:
            decoded = raw.decode()
        return Answer(code, decoded, headers)

    async def raw(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json", **query: str | int
    ) -> bytes:
        """The bytes of an answer."""
        return (await self._send(method, path, body, content_type, None, query))[2]

    async def _send(
        self, method: str, path: str, body: Any, content_type: str, accept: str | None, query: Query
    ) -> tuple[int, Mapping[str, str], bytes]:
        headers = {"Accept": accept} if accept else {}
        data = None
        if body is not None:
            headers["Content-Type"] = content_type
            # aiohttp wants large bodies as files.
            data = io.BytesIO(body if isinstance(body, bytes) else orjson.dumps(body))
        request = self._session.request(method, self.server + path, data=data, headers=headers, params=query)
        async with request as response:
            return response.status, dict(response.headers), await response.read()

    async def get(self, path: str, **query: str | int) -> Answer:
        return await self.call("GET", path, query=query)

    async def post(self, path: str, body: Any, **query: str | int) -> Answer:
        return await self.call("POST", path, body, query=query)

    async def put(self, path: str, body: Any, **query: str | int) -> Answer:
        return await self.call("PUT", path, body, query=query)

    async def patch(self, path: str, body: Any, content_type: str = MERGE_PATCH, **query: str | int) -> Answer:
        return await self.call("PATCH", path, body, content_type=content_type, query=query)

    async def delete(self, path: str, body: Any = None, **query: str | int) -> Answer:
        return await self.call("DELETE", path, body, query=query)

    @asynccontextmanager
    async def watch(self, path: str, *, accept: str | None = None, **query: str | int) -> AsyncIterator[Events]:
        """The events of a watch, while the block runs. Returns from entering once the server has answered."""
        events = Events()
        headers = {"Accept": accept} if accept else {}
        params = {"watch": "true", "timeoutSeconds": "300", **query}
        async with self._session.get(self.server + path, params=params, headers=headers) as response:
            assert response.status == 200, await response.read()

            async def read() -> None:
                buffer = b""
                async for chunk in response.content.iter_any():
                    *lines, buffer = (buffer + chunk).split(b"\n")
                    events.all.extend(orjson.loads(line) for line in lines if line.strip())
                events.ended.set()

            reader = asyncio.create_task(read(), name=f"watch {path}")
            try:
                yield events
            finally:
                reader.cancel()
                await asyncio.gather(reader, return_exceptions=True)


@asynccontextmanager
async def open_api(kubeconfig: Path, namespace: str) -> AsyncIterator[Api]:
    """Requests as the only user of a kubeconfig."""
    config = Kubeconfig.read(str(kubeconfig))
    authorization = config.authorization()
    headers = {"Authorization": authorization} if authorization else {}
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(
        connector=AbruptConnector(ssl=config.tls().context()), headers=headers, timeout=timeout
    ) as session:
        yield Api(session, config.server(), namespace)


def config_map(name: str, **metadata: Any) -> dict[str, Any]:
    """A ConfigMap."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": {"a": "b"}}


def pod(name: str, **metadata: Any) -> dict[str, Any]:
    """A Pod of one container."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    }


def owner(obj: Mapping[str, Any], *, block: bool = True, controller: bool = False) -> dict[str, Any]:
    """A reference to ``obj`` for a dependent's ``ownerReferences``."""
    return {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "name": obj["metadata"]["name"],
        "uid": obj["metadata"]["uid"],
        "blockOwnerDeletion": block,
        "controller": controller,
    }


def definition(schema: Mapping[str, Any], *, scope: str = "Namespaced", **version: Any) -> dict[str, Any]:
    """A CustomResourceDefinition of a group of its own: kind Thing, plural things."""
    group = f"test{next(_numbers)}-{id(schema) % 100_000}.example.com"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"things.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"plural": "things", "kind": "Thing", "shortNames": ["th"]},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **version}
            ],
        },
    }


CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


async def replace_spec(api: Api, path: str, spec: Mapping[str, Any]) -> None:
    """Replace the spec of an object, whose status others may write meanwhile."""

    async def replaced() -> None:
        (await api.put(path, {**(await api.get(path)).ok(), "spec": spec})).ok()

    await eventually(replaced)


@asynccontextmanager
async def defined(api: Api, crd: dict[str, Any]) -> AsyncIterator[str]:
    """Creates a definition, waits until it is served, and deletes it in the end; the path of its objects."""
    (await api.post(CRDS, crd)).ok()
    path = f"{CRDS}/{crd['metadata']['name']}"
    things = f"/apis/{crd['spec']['group']}/v1/namespaces/{api.namespace}/things"

    async def served() -> None:
        conditions = (await api.get(path)).ok()["status"].get("conditions") or ()
        assert {"Established": "True"}.items() <= {one["type"]: one["status"] for one in conditions}.items()
        assert (await api.get(things)).code == 200

    try:
        await eventually(served)
        yield things
    finally:
        await api.delete(path)


async def bind(api: Api, name: str, node: str = "n1") -> None:
    """Assigns a Pod to a node that need not exist."""
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": {"kind": "Node", "name": node},
    }
    (await api.post(api.path("pods", name, "binding"), binding)).ok()


async def gone(api: Api, path: str) -> None:
    """Waits until there is nothing at ``path``."""

    async def absent() -> None:
        answer = await api.get(path)
        assert answer.code == 404, answer.body

    await eventually(absent)
