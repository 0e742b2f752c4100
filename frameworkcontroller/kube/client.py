"""A client for the Kubernetes API: one method per verb, bytes in and bytes out."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, Protocol, Self

import orjson

from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.kube.ratelimiter import RateLimiter
from frameworkcontroller.kube.resources import PODS, Resource
from frameworkcontroller.kube.transport import (
    USER_AGENT,
    WATCH_SILENCE_SECONDS,
    Exchange,
    Request,
    Transport,
)

__all__ = ["JSON_PATCH", "MERGE_PATCH", "STRATEGIC_PATCH", "Exchange", "KubeClient"]

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"

_JSON: Final = "application/json"
_ACCEPT: Final = "application/json, */*"
# The fallback to plain JSON is safe: callers read only the metadata.
_ACCEPT_METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json"
_ACCEPT_METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1, application/json"

_METHODS: Final = {
    "get": "GET",
    "list": "GET",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
}


class Fence(Protocol):
    """Decides when requests may be sent, for example only while this process is the leader."""

    async def wait_leading(self) -> None:
        """Wait until requests may be sent."""

    def check(self) -> None:
        """Raise a KubeError, with which the request then fails, unless requests may be sent now."""


class KubeClient:
    """A client for one API server, used as an async context manager or closed with `close`. Belongs to one event loop.

    Each method sends one request and returns the body of the answer, or raises an error of
    `frameworkcontroller.kube.errors`: ApiError if the server refused, TransportError if the answer is missing or
    incomplete. Requests are not retried, because only the caller knows whether a lost request may be repeated; the
    exception is a 401, after which the credentials are renewed and the request is sent once more.

    The ``limiter`` is fair between the flows of requests. ``observe`` is called after each request, successful or not,
    and must not raise. Requests wait for the ``fence``, which is checked again once they have a connection.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        limiter: RateLimiter | None = None,
        fence: Fence | None = None,
        observe: Callable[[Exchange], None] | None = None,
        user_agent: str = USER_AGENT,
        max_connections: int = 300,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """``max_connections`` must exceed the number of concurrent requests, or slow requests delay the others.

        ``wall`` returns seconds since the epoch.
        """
        self._limiter = limiter
        self._fence = fence
        self._transport = Transport(
            connection,
            observe=observe,
            user_agent=user_agent,
            max_connections=max_connections,
            wall=wall,
            check=None if fence is None else fence.check,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections. Pending and later requests fail with TransportError."""
        await self._transport.close()

    async def get(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        metadata_only: bool = False,
        flow: str = "",
    ) -> bytes:
        """Return the current object (a consistent read)."""
        accept = _ACCEPT_METADATA if metadata_only else _ACCEPT
        return await self._request("get", resource, namespace, name, flow=flow, headers={"Accept": accept})

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        limit: int | None = None,
        continue_token: str | None = None,
        metadata_only: bool = False,
    ) -> bytes:
        """Return a consistent list of a namespace or (None) all namespaces, or a page of at most ``limit`` objects."""
        query = _query(
            labelSelector=label_selector, fieldSelector=field_selector, limit=limit, **{"continue": continue_token}
        )
        accept = _ACCEPT_METADATA_LIST if metadata_only else _ACCEPT
        return await self._request("list", resource, namespace, query=query, headers={"Accept": accept})

    @asynccontextmanager
    async def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        resource_version: str,
        label_selector: str | None = None,
        field_selector: str | None = None,
        timeout_seconds: int | None = None,
        silence: float = WATCH_SILENCE_SECONDS,
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Yield the events and bookmarks after ``resource_version``, a JSON line each, until the server ends the watch.

        Entering raises ApiError if the server refuses (for example 410). Reading raises TransportError if the stream
        breaks, and its subclass SilenceError if nothing arrives for ``silence`` seconds. An error in mid-stream is an
        event of type ``ERROR``.
        """
        query = _query(
            watch="true",
            resourceVersion=resource_version,
            labelSelector=label_selector,
            fieldSelector=field_selector,
            timeoutSeconds=timeout_seconds,
            allowWatchBookmarks="true",
        )
        path = resource.path(namespace)
        await self._admit()
        request = Request("watch", resource.qualified, "GET", path, {"Accept": _ACCEPT}, query, silence=silence)
        async with self._transport.lines(request) as lines:
            yield lines

    def log(
        self, pod: str, namespace: str, container: str, **options: str | int
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Yield the log of a container in chunks. ``options`` are those of the API, such as ``follow="true"``.

        Raises the errors of `watch`.
        """
        return self._transport.chunks(
            Request(
                "get",
                _label(PODS, "log"),
                "GET",
                PODS.path(namespace, pod, "log"),
                {"Accept": _ACCEPT},
                _query(container=container, **options),
                silence=WATCH_SILENCE_SECONDS,
                begins_late=True,
            )
        )

    async def create(
        self,
        resource: Resource,
        body: bytes,
        namespace: str | None = None,
        *,
        name: str | None = None,
        subresource: str | None = None,
        metadata_only: bool = False,
        flow: str = "",
    ) -> bytes:
        """POST an object or, with ``name`` and ``subresource``, a subresource such as ``binding``."""
        headers = _write_headers(metadata_only=metadata_only)
        return await self._request(
            "create", resource, namespace, name, subresource, flow=flow, headers=headers, body=body
        )

    async def replace(self, resource: Resource, name: str, body: bytes, namespace: str | None = None) -> bytes:
        """PUT an object; raises Conflict if it carries another resourceVersion or UID than the stored one."""
        return await self._request("update", resource, namespace, name, headers=_write_headers(), body=body)

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: bytes,
        namespace: str | None = None,
        *,
        content_type: str,
        subresource: str | None = None,
        field_manager: str | None = None,
        metadata_only: bool = False,
        flow: str = "",
    ) -> bytes:
        """PATCH an object; ``content_type`` is JSON_PATCH, MERGE_PATCH or STRATEGIC_PATCH."""
        return await self._request(
            "patch",
            resource,
            namespace,
            name,
            subresource,
            flow=flow,
            query=_query(fieldManager=field_manager),
            headers=_write_headers(content_type, metadata_only=metadata_only),
            body=body,
        )

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        grace_period_seconds: int | None = None,
        propagation: str | None = None,
        flow: str = "",
    ) -> bytes:
        """DELETE an object; raises Conflict if its UID is not ``uid``.

        ``propagation`` is ``Foreground``, ``Background`` or ``Orphan``. Returns the object, or a ``Status`` if it is
        already gone.
        """
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": None if uid is None else {"uid": uid},
            "gracePeriodSeconds": grace_period_seconds,
            "propagationPolicy": propagation,
        }
        body = orjson.dumps({name: value for name, value in options.items() if value is not None})
        return await self._request("delete", resource, namespace, name, flow=flow, headers=_write_headers(), body=body)

    async def raw(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> bytes:
        """Send any request. ``path`` starts with ``/`` and is percent-encoded; ``query`` is not encoded."""
        merged = {"Accept": _ACCEPT}
        if body is not None:
            merged["Content-Type"] = _JSON
        if headers:
            merged.update(headers)
        await self._admit()
        return await self._transport.exchange(Request(method.lower(), "", method, path, merged, query, body))

    async def _request(
        self,
        verb: str,
        resource: Resource,
        namespace: str | None,
        name: str | None = None,
        subresource: str | None = None,
        *,
        flow: str = "",
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str],
        body: bytes | None = None,
    ) -> bytes:
        path = resource.path(namespace, name, subresource)
        request = Request(verb, _label(resource, subresource), _METHODS[verb], path, headers, query, body)
        await self._admit(flow)
        return await self._transport.exchange(request)

    async def _admit(self, flow: str = "") -> None:
        if self._limiter is not None:
            await self._limiter.acquire(flow)
        if self._fence is not None:
            await self._fence.wait_leading()


def _label(resource: Resource, subresource: str | None) -> str:
    return f"{resource.qualified}/{subresource}" if subresource else resource.qualified


def _query(**values: str | int | None) -> dict[str, str]:
    return {name: str(value) for name, value in values.items() if value is not None}


def _write_headers(content_type: str = _JSON, *, metadata_only: bool = False) -> dict[str, str]:
    return {"Content-Type": content_type, "Accept": _ACCEPT_METADATA if metadata_only else _ACCEPT}
