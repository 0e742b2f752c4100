"""Parses the JSON of lists and watch events quickly, and any object that an API server accepts.

``metadata.managedFields`` are cut out before. They are a third to a half of a Pod, and unused. Cutting them takes a
fifth of the time to parse them.

Values that are nested too deeply for the parser are cut off. An API server accepts custom resources with ten thousand
levels; orjson parses 1,024. Without this, one such object would make every list and watch of its resource unreadable.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import orjson

from frameworkcontroller.depths import DEEPEST, without_depths

_MANAGED_FIELDS: Final = b'"managedFields":[{'
_METADATA: Final = b'"metadata":{'
_COMMA: Final = ord(",")
_CLOSE: Final = ord("}")


class NestedTooDeeply(ValueError):
    """An object is nested too deeply to be decoded."""

    def __init__(self) -> None:
        super().__init__(f"nested more than {DEEPEST} levels deep")


@contextmanager
def gc_paused() -> Iterator[None]:
    """Disable automatic garbage collection. Of calls that overlap, the first one enables it again.

    Parsing creates hundreds of thousands of objects, all in use. The collections that it triggers find nothing and
    cost several times the parsing.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def parse(data: bytes) -> tuple[Any, bool]:
    """Return the parsed JSON and whether it is whole; if not, `was_cut` finds the values that were cut.

    Raises ValueError if it is not JSON.
    """
    try:
        return loads_without_managed_fields(data), True
    except ValueError:
        shallow = without_depths(data)
        if shallow is data:
            raise
    return loads_without_managed_fields(shallow), False


def loads_without_managed_fields(data: bytes) -> Any:
    """Parse JSON without the ``managedFields`` of any ``metadata``. Raises ValueError if ``data`` is not JSON.

    This is an optimization: it may keep some, but is otherwise correct; see `without_managed_fields`.
    """
    shorter = without_managed_fields(data)
    if shorter is not data:
        with suppress(ValueError):
            return orjson.loads(shorter)
    return orjson.loads(data)


def without_managed_fields(data: bytes) -> bytes:
    """Return the text without ``managedFields``; the same object if none were found.

    The end of the list is searched, not parsed: its entries are objects without lists of objects, so the first ``}]``
    before ``}`` or ``,"`` ends it, unless that is within a string. Then the remainder is no JSON, because the cut ends
    inside a string or between unequal brackets: it cannot pass for another object, and the caller parses the original.
    """
    kept: list[bytes] = []
    # Of the last metadata before ``seen``: the place after its bracket, and the brackets that are open since.
    done = seen = opened = depth = 0
    start = data.find(_MANAGED_FIELDS)
    while start >= 0:
        # Each byte is read once: user data may have any number of such fields. All this is as fast as memchr.
        last = data.rfind(_METADATA, seen, start)
        if last >= 0:
            seen = opened = last + len(_METADATA)
            depth = 0
        depth += data.count(b"{", seen, start) - data.count(b"}", seen, start)
        seen = start
        # A field of that name elsewhere (in a custom resource) is user data. Brackets within strings may make the
        # counts differ, in which case nothing is cut.
        if not opened or depth:
            start = data.find(_MANAGED_FIELDS, start + len(_MANAGED_FIELDS))
            continue
        end = _end_of_list(data, start + len(_MANAGED_FIELDS))
        if end < 0:
            break
        if data[end] == _COMMA:
            end += 1
        elif data[start - 1] == _COMMA:
            start -= 1
        kept.append(data[done:start])
        done = seen = end
        opened = depth = 0
        start = data.find(_MANAGED_FIELDS, done)
    return b"".join((*kept, data[done:])) if kept else data


def _end_of_list(data: bytes, inside: int) -> int:
    """Return the index after the closing bracket of the list, or -1."""
    bracket = data.find(b"}]", inside)
    while bracket >= 0:
        after = data[bracket + 2 : bracket + 4]
        if after and (after[0] == _CLOSE or after == b',"'):
            return bracket + 2
        bracket = data.find(b"}]", bracket + 1)
    return -1
