"""Objects as an API server has stored them in its etcd, read, copied and written by etcd's JSON gateway.

A copy is the stored bytes with names and UIDs replaced by others of the same length, which keeps Kubernetes' protobuf
valid. So 100,000 Pods exist in seconds, each byte for byte like one that was created, scheduled and started.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

_MOST_PUTS: Final = 100
_MOST_BYTES: Final = 500_000
"""etcd's own limits of one transaction are 128 operations and 1.5 MiB."""

Pair = tuple[bytes, bytes]
"""Key and value."""


class Template:
    """Stored objects to copy: those that belong to one Framework, say."""

    def __init__(self, pairs: Iterable[Pair], tokens: Iterable[str]) -> None:
        """``tokens``: the texts that differ between copies."""
        self._pairs = list(pairs)
        self._tokens = [token.encode() for token in tokens]
        self._any = re.compile(b"|".join(re.escape(token) for token in sorted(self._tokens, key=len, reverse=True)))

    def copy(self, *replacements: str) -> Iterator[Pair]:
        """The objects with these texts in place of the tokens."""
        others = dict(zip(self._tokens, (text.encode() for text in replacements), strict=True))
        if any(len(token) != len(other) for token, other in others.items()):
            raise ValueError(f"not as long as what they replace: {replacements}")
        for key, value in self._pairs:
            yield self._any.sub(lambda at: others[at[0]], key), self._any.sub(lambda at: others[at[0]], value)


def read(etcd_url: str, prefix: str) -> list[Pair]:
    """The objects below a key such as ``/registry/pods/``."""
    end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
    found = _Gateway(etcd_url).ask("/v3/kv/range", {"key": _encoded(prefix), "range_end": _encoded(end)})
    return [(base64.b64decode(pair["key"]), base64.b64decode(pair["value"])) for pair in found.get("kvs", ())]


def write(etcd_url: str, pairs: Iterable[Pair]) -> int:
    """Write objects in transactions, faster than one by one; how many those were.

    The objects of a transaction have one resourceVersion, which those of an API server never do. So none may run: one
    that starts later only lists them.
    """
    gateway = _Gateway(etcd_url)
    puts: list[dict[str, Any]] = []
    size = number = 0
    for key, value in pairs:
        put = {"key": base64.b64encode(key).decode(), "value": base64.b64encode(value).decode()}
        if puts and (len(puts) == _MOST_PUTS or size + len(value) > _MOST_BYTES):
            gateway.ask("/v3/kv/txn", {"success": puts})
            puts, size = [], 0
        puts.append({"request_put": put})
        size += len(value)
        number += 1
    if puts:
        gateway.ask("/v3/kv/txn", {"success": puts})
    return number


class _Gateway:
    def __init__(self, etcd_url: str) -> None:
        parts = urlsplit(etcd_url)
        assert parts.hostname is not None
        self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=120)

    def ask(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        self._connection.request("POST", path, json.dumps(body).encode())
        response = self._connection.getresponse()
        text = response.read()
        if response.status != http.client.OK:
            raise RuntimeError(f"etcd: {path}: {response.status} {text[:300]!r}")
        answer: dict[str, Any] = json.loads(text)
        return answer


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
