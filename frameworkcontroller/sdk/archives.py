"""The archive for the SDK: the one that the environment or the kubeconfig names, as for the commands."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from frameworkcontroller.history.archiveclient import ArchiveClient, ArchiveURLError
from frameworkcontroller.history.archiveerrors import ArchiveError
from frameworkcontroller.history.reads import ArchiveReader
from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.sdk.exceptions import Forbidden, LogUnavailable, RequestRefused
from frameworkcontroller.webaccess.viewers import LogAccessError

URL_VARIABLE: Final = "FRAMEWORK_HISTORY_URL"
TOKEN_FILE_VARIABLE: Final = "FRAMEWORK_HISTORY_TOKEN_FILE"  # noqa: S105 - a name

_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


@asynccontextmanager
async def archive_of(connection: Connection) -> AsyncIterator[ArchiveReader | None]:
    """Yield a reader of the archive, None if none is named.

    Raises:
        Forbidden: it does not let this user read logs.
        RequestRefused: its URL or its token cannot be used, or it does not answer.
    """
    extension = connection.access.extension
    url, token_file = os.environ.get(URL_VARIABLE), os.environ.get(TOKEN_FILE_VARIABLE)
    if not url and isinstance(extension.get("archive"), str):
        url, token_file = extension["archive"], token_file or extension.get("tokenFile")
    if not url:
        yield None
        return
    try:
        async with ArchiveClient(url) as client:
            yield client.reader(await _token(connection, client.url, token_file))
    except LogAccessError as error:
        raise Forbidden(str(error), verb="get", resource="pods/log") from None
    except (ArchiveURLError, ArchiveError) as error:
        raise RequestRefused(f"archive {url}: {error}") from None


async def _token(connection: Connection, url: str, token_file: str | None) -> str | None:
    if token_file:
        try:
            return Path(token_file).read_text(encoding="ascii").strip()
        except (OSError, ValueError) as error:
            raise LogUnavailable(f"{token_file}: has no token for the archive: {error}") from None
    parts = urlsplit(url)
    # A token of the cluster must not cross a network in plain text.
    if parts.scheme != "https" and parts.hostname not in _LOOPBACK:
        return None
    scheme, _, token = dict(await connection.headers()).get("Authorization", "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None
