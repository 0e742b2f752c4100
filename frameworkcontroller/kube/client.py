"""Requests to an API server: every verb of the Kubernetes API, as bytes in and bytes out."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Protocol, Self

import orjson

from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.kube.ratelimiter import RateLimiter
from frameworkcontroller.kube.resources import PODS, Resource
from frameworkcontroller.kube.transport import (
    READ_TIMEOUT_SECONDS,
    USER_AGENT,
    WATCH_SILENCE_SECONDS,
    Exchange,
    Transport,
)

__all__ = ["APPLY", "JSON_PATCH", "MERGE_PATCH", "STRATEGIC_PATCH", "Exchange", "KubeClient"]

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"

_JSON: Final = "application/json"
_ACCEPT: Final = "application/json, */*"
# A server that does not know the short form (there is none any more) may answer in full: callers read only metadata.
_ACCEPT_METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json"
_ACCEPT_METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1, application/json"


class Fence(Protocol):
    """Says when requests may be sent, such as while this process leads."""

    async def wait_leading(self) -> None:
        """Wait until they may."""

    def check(self) -> None:
        """Raise a KubeError, which the request then fails with, unless they may at this moment."""


class KubeClient:
    """Talks to one API server. Use it as an async context manager, or call `close`. Belongs to one event loop.

    Every method sends one request and returns the answer's body, or raises one of `frameworkcontroller.kube.errors`:
    ApiError if the server refused, TransportError if no whole answer came. Nothing is retried, so that the caller
    decides what a request that may have been executed means; a 401 alone is answered with renewed credentials, once.

    ``flow`` is on whose behalf a request is sent; the ``limiter`` is fair between flows. ``observe`` is called after
    each request, successful or not, and must not raise. Requests wait at a ``fence``, and are held up to it once more
    when they have a connection to be written to.
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
        read_timeout: float = READ_TIMEOUT_SECONDS,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """``max_connections``: more than there are requests at once, or those that wait long would hold up the others.

        ``read_timeout``: for how many seconds a server may leave a request without an answer."""
        self._limiter = limiter
        self._fence = fence
        self._transport = Transport(
            connection,
            observe=observe,
            user_agent=user_agent,
            max_connections=max_connections,
            read_timeout=read_timeout,
            wall=wall,
            check=None if fence is None else fence.check,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections. Requests under way fail with TransportError, and so does every later one."""
        await self._transport.close()

    async def get(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        metadata_only: bool = False,
        flow: str = "",
    ) -> bytes:
        """One object, as it is now (a consistent read)."""
        return await self._send(
            "GET",
            resource.path(namespace, name, subresource),
            "get",
            _label(resource, subresource),
            flow,
            headers={"Accept": _ACCEPT_METADATA if metadata_only else _ACCEPT},
        )

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        limit: int | None = None,
        continue_token: str | None = None,
        resource_version: str | None = None,
        resource_version_match: str | None = None,
        metadata_only: bool = False,
        flow: str = "",
    ) -> bytes:
        """A list, or a page of at most ``limit`` objects of it. ``namespace=None`` is all namespaces.

        Without ``resource_version`` it is a consistent read; with ``"0"`` it may be arbitrarily old.
        """
        return await self._send(
            "GET",
            resource.path(namespace),
            "list",
            _label(resource, None),
            flow,
            query=_query(
                labelSelector=label_selector,
                fieldSelector=field_selector,
                limit=limit,
                **{"continue": continue_token},
                resourceVersion=resource_version,
                resourceVersionMatch=resource_version_match,
            ),
            headers={"Accept": _ACCEPT_METADATA_LIST if metadata_only else _ACCEPT},
        )

    def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        resource_version: str,
        label_selector: str | None = None,
        field_selector: str | None = None,
        timeout_seconds: int | None = None,
        bookmarks: bool = True,
        metadata_only: bool = False,
        silence: float = WATCH_SILENCE_SECONDS,
        flow: str = "",
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """What happens after ``resource_version``: a JSON line for each event, of any length, until the server ends it.

        Entering raises ApiError if the server refuses (410 among others); reading raises TransportError if the stream
        breaks, and SilenceError, one of those, if nothing came for ``silence`` seconds. An error in mid-stream is an
        event of type ``ERROR``.
        """
        return self._watch(
            resource,
            resource.path(namespace),
            _query(
                watch="true",
                resourceVersion=resource_version,
                labelSelector=label_selector,
                fieldSelector=field_selector,
                timeoutSeconds=timeout_seconds,
                allowWatchBookmarks="true" if bookmarks else None,
            ),
            _ACCEPT_METADATA if metadata_only else _ACCEPT,
            silence,
            flow,
        )

    @asynccontextmanager
    async def _watch(
        self, resource: Resource, path: str, query: Mapping[str, str], accept: str, silence: float, flow: str
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        await self._admit(flow)
        async with self._transport.stream(
            path, resource=_label(resource, None), query=query, headers={"Accept": accept}, silence=silence
        ) as lines:
            yield lines

    def log(
        self, pod: str, namespace: str, container: str, **options: str | int
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """What a container has written, in chunks as they come. ``options`` are the API's: ``follow="true"`` etc.

        Raises as `watch` does.
        """
        return self._transport.chunks(
            PODS.path(namespace, pod, "log"),
            resource=_label(PODS, "log"),
            query=_query(container=container, **options),
            headers={"Accept": _ACCEPT},
            silence=WATCH_SILENCE_SECONDS,
        )

    async def create(
        self,
        resource: Resource,
        body: bytes,
        namespace: str | None = None,
        *,
        name: str | None = None,
        subresource: str | None = None,
        dry_run: bool = False,
        field_manager: str | None = None,
        metadata_only: bool = False,
        flow: str = "",
    ) -> bytes:
        """POST an object, or (with ``name`` and ``subresource``, such as ``binding``) something to an object."""
        return await self._send(
            "POST",
            resource.path(namespace, name, subresource),
            "create",
            _label(resource, subresource),
            flow,
            query=_write_query(dry_run, field_manager),
            headers=_write_headers(_JSON, metadata_only),
            body=body,
        )

    async def replace(
        self,
        resource: Resource,
        name: str,
        body: bytes,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        dry_run: bool = False,
        field_manager: str | None = None,
        metadata_only: bool = False,
        flow: str = "",
    ) -> bytes:
        """PUT a whole object. A ``metadata.resourceVersion`` or ``metadata.uid`` in it is a precondition (409)."""
        return await self._send(
            "PUT",
            resource.path(namespace, name, subresource),
            "update",
            _label(resource, subresource),
            flow,
            query=_write_query(dry_run, field_manager),
            headers=_write_headers(_JSON, metadata_only),
            body=body,
        )

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: bytes,
        namespace: str | None = None,
        *,
        content_type: str,
        subresource: str | None = None,
        dry_run: bool = False,
        field_manager: str | None = None,
        force: bool | None = None,
        metadata_only: bool = False,
        flow: str = "",
    ) -> bytes:
        """PATCH an object; ``content_type`` is one of JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH and APPLY.

        APPLY needs a ``field_manager``, and takes fields over from other managers only with ``force``.
        """
        query = _write_query(dry_run, field_manager)
        if force is not None:
            query["force"] = "true" if force else "false"
        return await self._send(
            "PATCH",
            resource.path(namespace, name, subresource),
            "patch",
            _label(resource, subresource),
            flow,
            query=query,
            headers=_write_headers(content_type, metadata_only),
            body=body,
        )

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_period_seconds: int | None = None,
        propagation: str | None = None,
        dry_run: bool = False,
        flow: str = "",
    ) -> bytes:
        """DELETE an object, only if it still has this ``uid`` and ``resource_version`` (else Conflict), if given.

        ``propagation`` is ``Foreground``, ``Background`` or ``Orphan``. The answer is the object as it was left, or a
        ``Status`` if it is gone already.
        """
        preconditions = _query(uid=uid, resourceVersion=resource_version)
        return await self._send(
            "DELETE",
            resource.path(namespace, name),
            "delete",
            _label(resource, None),
            flow,
            headers=_write_headers(_JSON, metadata_only=False),
            body=_delete_options(preconditions, grace_period_seconds, propagation, dry_run=dry_run),
        )

    async def delete_collection(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        grace_period_seconds: int | None = None,
        propagation: str | None = None,
        dry_run: bool = False,
        flow: str = "",
    ) -> bytes:
        """DELETE all objects that the selectors select."""
        return await self._send(
            "DELETE",
            resource.path(namespace),
            "deletecollection",
            _label(resource, None),
            flow,
            query=_query(labelSelector=label_selector, fieldSelector=field_selector),
            headers=_write_headers(_JSON, metadata_only=False),
            body=_delete_options({}, grace_period_seconds, propagation, dry_run=dry_run),
        )

    async def raw(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        flow: str = "",
    ) -> bytes:
        """Any request. ``path`` starts with ``/`` and is percent-encoded already; ``query`` is not."""
        merged = {"Accept": _ACCEPT}
        if body is not None:
            merged["Content-Type"] = _JSON
        if headers:
            merged.update(headers)
        return await self._send(method, path, method.lower(), "", flow, query=query, headers=merged, body=body)

    async def _send(
        self,
        method: str,
        path: str,
        verb: str,
        resource: str,
        flow: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str],
        body: bytes | None = None,
    ) -> bytes:
        await self._admit(flow)
        return await self._transport.exchange(
            method, path, verb=verb, resource=resource, query=query, headers=headers, body=body
        )

    async def _admit(self, flow: str) -> None:
        if self._limiter is not None:
            await self._limiter.acquire(flow)
        if self._fence is not None:
            await self._fence.wait_leading()


def _label(resource: Resource, subresource: str | None) -> str:
    return f"{resource.qualified}/{subresource}" if subresource else resource.qualified


def _query(**values: str | int | None) -> dict[str, str]:
    return {name: str(value) for name, value in values.items() if value is not None}


def _write_query(dry_run: bool, field_manager: str | None) -> dict[str, str]:
    return _query(dryRun="All" if dry_run else None, fieldManager=field_manager)


def _write_headers(content_type: str, metadata_only: bool) -> dict[str, str]:
    return {"Content-Type": content_type, "Accept": _ACCEPT_METADATA if metadata_only else _ACCEPT}


def _delete_options(
    preconditions: Mapping[str, str], grace_period_seconds: int | None, propagation: str | None, *, dry_run: bool
) -> bytes:
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if preconditions:
        options["preconditions"] = preconditions
    if grace_period_seconds is not None:
        options["gracePeriodSeconds"] = grace_period_seconds
    if propagation is not None:
        options["propagationPolicy"] = propagation
    if dry_run:
        options["dryRun"] = ["All"]
    return orjson.dumps(options)
