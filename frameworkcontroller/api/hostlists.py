"""Placeholders of Pod templates for the host names of all Tasks of a role.

``{{FC_HOSTS:ROLE}}`` is a list with commas, ``{{FC_HOSTS:ROLE:PORT}}`` has the port after each name, and with
``FC_HOSTS_JSON`` it is a JSON list. They count only if the spec has network or coordinator.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.problems import KeyPath, shown

NAMES: Final = ("FC_HOSTS", "FC_HOSTS_JSON")
"""The words of these placeholders, before their arguments."""

MARK: Final = b"{{FC_HOSTS"
"""The beginning of each of them."""

MAX_BYTES: Final = 128_000
"""Of all lists in one template. Linux starts no program with an argument or variable of 131,072 bytes or more, and each
Pod has the lists: their sum over all Pods grows with the square of the Tasks."""

_MAX_PORT: Final = 65535
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}")
_LIKE_ONE: Final = re.compile(r"\{\{FC_HOSTS(_JSON)?(?::([^}]*))?(\}\})?")
"""Matches a beginning without an end, too: to search the end of each one again takes quadratic time."""

_VALID: Final = re.compile(rb"\{\{FC_HOSTS(_JSON)?:([a-z0-9]+)(?::([0-9]+))?\}\}")


@dataclass(frozen=True, slots=True)
class HostList:
    """The arguments of a placeholder. ``port`` "": none."""

    role: str
    port: str
    is_json: bool

    def size(self, framework: str, subdomain: str, task_number: int) -> int:
        """Return the length of the list without escapes, in constant time."""
        digits = sum(max(0, task_number - first) for first in (0, 10, 100, 1000))
        port = len(self.port) + 1 if self.port else 0
        each = len(f"{names.pod_name(framework, self.role, 0)}.{subdomain}") - 1 + port
        quotes = 2 if self.is_json else 0
        return quotes + digits + task_number * (each + quotes) + max(0, task_number - 1)

    def escaped_size(self, framework: str, subdomain: str, task_number: int) -> int:
        """Return the length of ``list_text``, in constant time."""
        return self.size(framework, subdomain, task_number) + (2 * task_number if self.is_json else 0)


@lru_cache(maxsize=64)
def list_text(wanted: HostList, framework: str, subdomain: str, task_number: int) -> bytes:
    """Return the names of the Tasks, in order of index, as a part of a JSON string."""
    after = f".{subdomain}:{wanted.port}" if wanted.port else f".{subdomain}"
    hosts = [names.pod_name(framework, wanted.role, index) + after for index in range(task_number)]
    # Only the quotes need an escape in a string.
    return orjson.dumps(hosts).replace(b'"', b'\\"') if wanted.is_json else ",".join(hosts).encode()


@dataclass(frozen=True, slots=True)
class HostListPlace:
    """A placeholder in a template. ``text``: the whole of it."""

    path: KeyPath
    text: str
    hosts: HostList

    def problem(self) -> str:
        """Return the problem of the port, "" if there is none."""
        port = self.hosts.port
        if not port and not self.text.endswith(":}}"):
            return ""
        # "0080" is a port to some programs, and an octal number to others.
        if _PORT.fullmatch(port) is not None and int(port) <= _MAX_PORT:
            return ""
        return f"{shown(port)} is no number from 1 to {_MAX_PORT}"


def find(value: Any, path: KeyPath = ()) -> Iterator[HostListPlace]:
    """Yield the placeholders in all strings of a template, keys and unknown roles included."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from find(key, (*path, key))
            yield from find(inner, (*path, key))
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            yield from find(inner, (*path, position))
    elif isinstance(value, str):
        for found in _LIKE_ONE.finditer(value):
            if found[3] is None:
                continue
            role, _, port = (found[2] or "").partition(":")
            yield HostListPlace(path, found[0], HostList(role, port, is_json=found[1] is not None))


@dataclass(frozen=True, slots=True)
class Words:
    """The host lists of a template, by the words that stand for them.

    The texts are made when a Pod is sent: each may have ``MAX_BYTES``, and a spec has thousands of roles.
    """

    lists: Mapping[bytes, HostList]
    pattern: re.Pattern[bytes]
    text_of: Callable[[HostList], bytes]
    size_of: Callable[[HostList], int]

    def growth(self, body: bytes) -> int:
        """Return the bytes by which ``filled`` extends the body, without making the lists."""
        found = (one[0] for one in self.pattern.finditer(body))
        return sum(self.size_of(self.lists[word]) - len(word) for word in found)

    def filled(self, body: bytes) -> bytes:
        """Replace the words by the lists."""
        return self.pattern.sub(lambda found: self.text_of(self.lists[found[0]]), body)


def mark(
    template: bytes, marker: bytes, text_of: Callable[[HostList], bytes], size_of: Callable[[HostList], int]
) -> tuple[bytes, Words | None]:
    """Replace the placeholders in a JSON document by words that begin with ``marker``, which it does not contain.

    ``text_of``: returns the list as a part of a JSON string. ``size_of``: returns the length of that.
    """
    words: dict[HostList, bytes] = {}

    def word(found: re.Match[bytes]) -> bytes:
        wanted = HostList(found[2].decode(), (found[3] or b"").decode(), is_json=found[1] is not None)
        return words.setdefault(wanted, b"%shosts%d." % (marker, len(words)))

    template = _VALID.sub(word, template)
    if not words:
        return template, None
    pattern = re.compile(re.escape(marker) + rb"hosts[0-9]+\.")
    return template, Words({name: wanted for wanted, name in words.items()}, pattern, text_of, size_of)
