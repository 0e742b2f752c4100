"""The place of an archive and the token for it, as the environment or the kubeconfig of its cluster names them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from frameworkcontroller.kube.connection import Connection

URL_VARIABLE: Final = "FRAMEWORK_HISTORY_URL"
TOKEN_FILE_VARIABLE: Final = "FRAMEWORK_HISTORY_TOKEN_FILE"  # noqa: S105 - a name

_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


def archive_in(extension: Mapping[str, Any]) -> tuple[str | None, Path | None]:
    """Return the URL and the token file in the kubeconfig's extension; None for a missing one."""
    url, token_file = (extension.get(key) for key in ("archive", "tokenFile"))
    path = Path(token_file) if isinstance(token_file, str) and token_file else None
    return url if isinstance(url, str) and url else None, path


def token_of(content: bytes) -> str | None:
    """Return the token in the content of a file; None if it has none."""
    token = content.decode("ascii", "replace").strip()
    return token if token and token.isascii() and token.isprintable() else None


def may_have_clusters_token(url: str) -> bool:
    """Return whether a token of the cluster may be sent there: it must not cross a network in plain text."""
    parts = urlsplit(url)
    return parts.scheme == "https" or parts.hostname in _LOOPBACK


async def bearer_token(connection: Connection) -> str | None:
    """Return the bearer token of a connection to the cluster; None if its credentials are of another kind."""
    scheme, _, token = dict(await connection.headers()).get("Authorization", "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None
