"""A client for the Kubernetes API: one method per verb, bytes in and bytes out."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final

import orjson

from frameworkcontroller.kube.lineframer import LineFramer
from frameworkcontroller.kube.resources import PODS, Resource
from frameworkcontroller.kube.transport import ApiRequest, Transport

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"

_JSON: Final = "application/json"
_METHODS: Final = {
    "get": "GET",
    "list": "GET",
    "watch": "GET",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
}
_WATCH_SILENCE_SECONDS: Final = 3600.0  # for watches without bookmarks


class KubeClient(Transport):
    """A client for one API server, used as an async context manager or closed with `close`. Belongs to one event loop.

    Each method sends one request and returns the body of the answer, or raises an error of
    `frameworkcontroller.kube.errors`: ApiError if the server refused, TransportError if the answer is missing or
    incomplete. Only the caller knows whether a lost request may be repeated; `Transport` repeats only where that is
    certain.
    """

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
        return await self.exchange(_request("get", resource, namespace, name, metadata_only=metadata_only, flow=flow))

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
        at_most_bytes: float = math.inf,
    ) -> bytes:
        """Return a consistent list of a namespace or (None) all namespaces, or a page of at most ``limit`` objects.

        Raises AnswerTooLargeError if it has more than ``at_most_bytes``.
        """
        query = _query(
            labelSelector=label_selector, fieldSelector=field_selector, limit=limit, **{"continue": continue_token}
        )
        request = _request("list", resource, namespace, query=query, metadata_only=metadata_only)
        return await self.exchange(request._replace(at_most=at_most_bytes))

    def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        resource_version: str,
        label_selector: str | None = None,
        field_selector: str | None = None,
        timeout_seconds: int | None = None,
        silence: float = _WATCH_SILENCE_SECONDS,
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
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
        return self.stream(_request("watch", resource, namespace, query=query, silence=silence), LineFramer())

    def log(
        self, pod: str, namespace: str, container: str, **options: str | int
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Yield the log of a container in chunks. ``options`` are those of the API, such as ``follow="true"``.

        Raises the errors of `watch`.
        """
        query = _query(container=container, **options)
        request = _request("get", PODS, namespace, pod, "log", query=query, silence=_WATCH_SILENCE_SECONDS)
        return self.stream(request._replace(begins_late=True), None)

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
        return await self.exchange(
            _request(
                "create", resource, namespace, name, subresource, body=body, metadata_only=metadata_only, flow=flow
            )
        )

    async def replace(self, resource: Resource, name: str, body: bytes, namespace: str | None = None) -> bytes:
        """PUT an object; raises Conflict if it carries another resourceVersion or UID than the stored one."""
        return await self.exchange(_request("update", resource, namespace, name, body=body))

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
        return await self.exchange(
            _request(
                "patch",
                resource,
                namespace,
                name,
                subresource,
                query=_query(fieldManager=field_manager),
                body=body,
                content_type=content_type,
                metadata_only=metadata_only,
                flow=flow,
            )
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
        flow: str = "",
    ) -> bytes:
        """DELETE an object; raises Conflict if its UID is not ``uid``, or its version not ``resource_version``.

        ``propagation`` is ``Foreground``, ``Background`` or ``Orphan``. Returns the object, or a ``Status`` if it is
        already gone.
        """
        tested = {"uid": uid, "resourceVersion": resource_version}
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {name: value for name, value in tested.items() if value is not None} or None,
            "gracePeriodSeconds": grace_period_seconds,
            "propagationPolicy": propagation,
        }
        body = orjson.dumps({name: value for name, value in options.items() if value is not None})
        return await self.exchange(_request("delete", resource, namespace, name, body=body, flow=flow))

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
        merged = {**_headers(body), **(headers or {})}
        return await self.exchange(ApiRequest(method.lower(), "", method, path, merged, query, body))


def _request(
    verb: str,
    resource: Resource,
    namespace: str | None,
    name: str | None = None,
    subresource: str | None = None,
    *,
    query: Mapping[str, str] | None = None,
    body: bytes | None = None,
    content_type: str = _JSON,
    metadata_only: bool = False,
    flow: str = "",
    silence: float | None = None,
) -> ApiRequest:
    label = f"{resource.qualified}/{subresource}" if subresource else resource.qualified
    path = resource.path(namespace, name, subresource)
    headers = _headers(body, content_type)
    if metadata_only:
        kind = "PartialObjectMetadataList" if verb == "list" else "PartialObjectMetadata"
        # The fallback to plain JSON is safe: callers read only the metadata.
        headers["Accept"] = f"application/json;as={kind};g=meta.k8s.io;v=v1, application/json"
    return ApiRequest(verb, label, _METHODS[verb], path, headers, query, body, flow, silence)


def _headers(body: bytes | None, content_type: str = _JSON) -> dict[str, str]:
    accept = {"Accept": "application/json, */*"}
    return accept if body is None else {"Content-Type": content_type, **accept}


def _query(**values: str | int | None) -> dict[str, str]:
    return {name: str(value) for name, value in values.items() if value is not None}
