"""The archive for the SDK: the one that the environment or the kubeconfig names, as for the commands."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from frameworkcontroller.history.archiveaccess import (
    TOKEN_FILE_VARIABLE,
    URL_VARIABLE,
    archive_in,
    bearer_token,
    may_have_clusters_token,
    token_of,
)
from frameworkcontroller.history.archiveclient import ArchiveClient, ArchiveURLError
from frameworkcontroller.history.archiveerrors import ArchiveError
from frameworkcontroller.history.reads import ArchiveReader
from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.sdk.exceptions import Forbidden, RequestRefused
from frameworkcontroller.webaccess.viewers import LogAccessError


@asynccontextmanager
async def archive_of(connection: Connection) -> AsyncIterator[ArchiveReader | None]:
    """Yield a reader of the archive, None if none is named.

    Raises:
        Forbidden: it does not let this user read logs.
        RequestRefused: its URL or its token cannot be used, or it does not answer.
    """
    url, token_file = os.environ.get(URL_VARIABLE), None
    if not url:
        url, token_file = archive_in(connection.access.extension)
    if not url:
        yield None
        return
    if token_file is None and (named := os.environ.get(TOKEN_FILE_VARIABLE)):
        token_file = Path(named)
    try:
        async with ArchiveClient(url) as client:
            yield client.reader(await _token(connection, client.url, token_file))
    except LogAccessError as error:
        raise Forbidden(str(error), verb="get", resource="pods/log") from None
    except (ArchiveURLError, ArchiveError) as error:
        raise RequestRefused(f"archive {url}: {error}") from None


async def _token(connection: Connection, url: str, path: Path | None) -> str | None:
    if path is None:
        return await bearer_token(connection) if may_have_clusters_token(url) else None
    try:
        token = token_of(path.read_bytes())
    except OSError as error:
        raise RequestRefused(f"{path}: cannot be read: {error.strerror}") from None
    if token is None:
        raise RequestRefused(f"{path}: has no token for the archive")
    return token
