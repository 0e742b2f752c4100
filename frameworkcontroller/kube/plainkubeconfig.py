"""Reads the kubeconfig files that most people have: one file, and a user with a token or a certificate, or neither.

That takes milliseconds, where the library that knows all others takes longer to import than a command takes to do what
it is for. Whatever is out of the ordinary, wrong above all, is left to that library, which also says what is wrong.
"""

from __future__ import annotations

import atexit
import base64
import binascii
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

_CLUSTER_TEXTS: Final = frozenset({"server", "certificate-authority", "certificate-authority-data", "tls-server-name"})
_CLUSTER_KEYS: Final = _CLUSTER_TEXTS | {"insecure-skip-tls-verify", "extensions"}
_USER_KEYS: Final = frozenset(
    {"token", "client-certificate", "client-certificate-data", "client-key", "client-key-data"}
)

_written: Final[dict[bytes, str]] = {}
"""What was in a kubeconfig as data and had to become a file, for TLS knows files only; until this process ends."""


@dataclass(frozen=True, slots=True)
class PlainAccess:
    """What is in the file; paths are absolute."""

    server: str
    token: str | None
    ca_file: str | None
    client_cert_file: str | None
    client_key_file: str | None
    verify: bool
    tls_server_name: str | None
    namespace: str | None


class _Odd(Exception):
    """Not for us."""


def read_plain_kubeconfig(paths: str, context: str | None, address: str | None) -> PlainAccess | None:
    """What the file says of its (current) context; None if it takes the library to understand it.

    ``address`` replaces the server that it names.
    """
    files = [path for path in paths.split(os.pathsep) if path]
    if len(files) != 1:
        return None
    path = Path(files[0]).expanduser()
    try:
        content = yaml.load(path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - safe
        return _read(content, path.absolute().parent, context, address)
    except (OSError, ValueError, RecursionError, yaml.YAMLError, _Odd):
        return None


def _read(content: Any, folder: Path, context: str | None, address: str | None) -> PlainAccess:
    chosen = _entry(content, "contexts", "context", context or _text(content, "current-context"))
    cluster = _entry(content, "clusters", "cluster", _text(chosen, "cluster"))
    user: Mapping[str, Any] = {}
    if chosen.get("user"):
        user = _entry(content, "users", "user", _text(chosen, "user"))
    if not cluster.keys() <= _CLUSTER_KEYS or not user.keys() <= _USER_KEYS:
        raise _Odd
    for mapping, keys in ((cluster, _CLUSTER_TEXTS), (user, _USER_KEYS)):
        if not all(isinstance(mapping[key], str) and mapping[key] for key in keys & mapping.keys()):
            raise _Odd
    verify = not cluster.get("insecure-skip-tls-verify", False)
    server = (address or _text(cluster, "server")).rstrip("/")
    secure = server.startswith("https")
    namespace = chosen.get("namespace")
    token = user.get("token")
    if token is not None and token != token.strip():
        raise _Odd
    return PlainAccess(
        server=server,
        token=token,
        ca_file=_file(cluster, "certificate-authority", folder) if secure else None,
        client_cert_file=_file(user, "client-certificate", folder) if secure else None,
        client_key_file=_file(user, "client-key", folder) if secure else None,
        verify=verify,
        tls_server_name=cluster.get("tls-server-name"),
        namespace=namespace if isinstance(namespace, str) and namespace else None,
    )


def _entry(content: Any, listed: str, kind: str, name: str) -> Mapping[str, Any]:
    entries = content.get(listed) if isinstance(content, dict) else None
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("name") == name:
            found = entry.get(kind)
            if isinstance(found, dict):
                return found
            break
    raise _Odd


def _text(mapping: Any, key: str) -> str:
    value = mapping.get(key) if isinstance(mapping, dict) else None
    if not isinstance(value, str) or not value:
        raise _Odd
    return value


def _file(mapping: Mapping[str, Any], key: str, folder: Path) -> str | None:
    """The file under the key, or one with the data that is under it with ``-data``, which goes first."""
    data = mapping.get(f"{key}-data")
    if data is not None:
        try:
            return _write(base64.b64decode(data, validate=True))
        except binascii.Error:
            raise _Odd from None
    if key not in mapping:
        return None
    path = Path(os.path.normpath(folder / mapping[key]))
    if not path.is_file():
        raise _Odd
    return str(path)


def _write(content: bytes) -> str:
    # Systems clean their temporary files, and a controller runs for longer.
    if content not in _written or not Path(_written[content]).is_file():
        if not _written:
            atexit.register(_remove)
        # Only this user may read it.
        number, name = tempfile.mkstemp(prefix="kubeconfig-")
        _written[content] = name
        with os.fdopen(number, "wb") as file:
            file.write(content)
    return _written[content]


def _remove() -> None:
    for name in _written.values():
        with suppress(OSError):
            os.unlink(name)  # noqa: PTH108 - this late, as little as possible
    _written.clear()
