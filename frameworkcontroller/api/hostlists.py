"""Placeholders of Pod templates for the host names of all Tasks of a role.

``{{FC_HOSTS:ROLE}}`` is a list with commas, ``{{FC_HOSTS:ROLE:PORT}}`` has the port after each name, and with
``FC_HOSTS_JSON`` it is a JSON list. They count only if the spec has network or coordinator.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.problems import KeyPath

NAMES: Final = ("FC_HOSTS", "FC_HOSTS_JSON")
"""The words of these placeholders, before their arguments."""

MAX_BYTES: Final = 128_000
"""Of all lists in one template. Linux starts no program with an argument or variable of 131,072 bytes or more, and each
Pod has the lists: their sum over all Pods grows with the square of the Tasks."""

_MAX_PORT: Final = 65535
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}")
_LIKE_ONE: Final = re.compile(r"\{\{FC_HOSTS(_JSON)?(?::([^}]*))?\}\}")
_VALID: Final = re.compile(rb"\{\{FC_HOSTS(_JSON)?:([a-z0-9]+)(?::([0-9]+))?\}\}")


@dataclass(frozen=True, slots=True)
class HostList:
    """What a placeholder asks for. ``port`` "": none."""

    role: str
    port: str
    is_json: bool

    def text(self, framework: str, subdomain: str, task_number: int) -> str:
        """Return the names of the Tasks, in order of index."""
        after = f".{subdomain}:{self.port}" if self.port else f".{subdomain}"
        hosts = [names.pod_name(framework, self.role, index) + after for index in range(task_number)]
        return orjson.dumps(hosts).decode() if self.is_json else ",".join(hosts)


@dataclass(frozen=True, slots=True)
class Place:
    """A placeholder in a template. ``text``: the whole of it."""

    path: KeyPath
    text: str
    hosts: HostList

    def problem(self) -> str:
        """Return what is wrong with the port, "" if nothing is."""
        port = self.hosts.port
        if not port and not self.text.endswith(":}}"):
            return ""
        # "0080" is a port to some programs, and an octal number to others.
        if _PORT.fullmatch(port) is not None and int(port) <= _MAX_PORT:
            return ""
        return f"{port!r} is no number from 1 to {_MAX_PORT}"


def find(value: Any, path: KeyPath = ()) -> Iterator[Place]:
    """Yield the placeholders in all strings of a template, keys included, also those of unknown roles."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from find(key, (*path, key))
            yield from find(inner, (*path, key))
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            yield from find(inner, (*path, position))
    elif isinstance(value, str):
        for found in _LIKE_ONE.finditer(value):
            role, _, port = (found[2] or "").partition(":")
            yield Place(path, found[0], HostList(role, port, is_json=found[1] is not None))


def replace(template: bytes, text_of: Callable[[HostList], str], mark: bytes) -> tuple[bytes, dict[bytes, bytes]]:
    """Replace the placeholders in a JSON document by words that begin with ``mark``.

    Return the values of the words, too, which may be part of a JSON string. They are long, so that other replacements
    are to precede theirs.
    """
    words: dict[HostList, bytes] = {}

    def word(found: re.Match[bytes]) -> bytes:
        wanted = HostList(found[2].decode(), (found[3] or b"").decode(), is_json=found[1] is not None)
        # The last byte keeps a word from being the beginning of another.
        return words.setdefault(wanted, b"%shosts%d." % (mark, len(words)))

    template = _VALID.sub(word, template)
    # Nothing but quotes is escaped in a string.
    return template, {name: text_of(wanted).replace('"', '\\"').encode() for wanted, name in words.items()}
