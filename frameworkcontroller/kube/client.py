"""Requests to an API server: every verb of the Kubernetes API as bytes in, bytes out.

(Signatures are final; the bodies follow.)
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final, NamedTuple, Self

from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.kube.limiter import Limiter
from frameworkcontroller.kube.resources import Resource

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"


class Exchange(NamedTuple):
    """One finished request, for metrics. ``code`` is 0 if no answer came."""

    verb: str
    resource: str
    code: int
    seconds: float
    sent_bytes: int
    received_bytes: int


class KubeClient:
    """Talks to one API server. Use it as an async context manager, or call ``close()``."""

    def __init__(
        self,
        connection: Connection,
        *,
        limiter: Limiter | None = None,
        observe: Callable[[Exchange], None] | None = None,
        user_agent: str | None = None,
        max_connections: int = 100,
    ) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        raise NotImplementedError

    async def __aexit__(self, *exc: object) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError

    async def get(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        metadata_only: bool = False,
        owner: str = "",
    ) -> bytes:
        raise NotImplementedError

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
        owner: str = "",
    ) -> bytes:
        raise NotImplementedError

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
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        raise NotImplementedError

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
        owner: str = "",
    ) -> bytes:
        raise NotImplementedError

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
        owner: str = "",
    ) -> bytes:
        raise NotImplementedError

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
        owner: str = "",
    ) -> bytes:
        raise NotImplementedError

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
        owner: str = "",
    ) -> bytes:
        raise NotImplementedError

    async def raw(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        owner: str = "",
    ) -> bytes:
        raise NotImplementedError
