"""JSON that is nested too deeply for the parser.

An API server accepts custom resources with ten thousand levels; orjson parses 1,024. Deeper values are cut off.
"""

from __future__ import annotations

import re
from typing import Any, Final

import orjson

DEEPEST: Final = 1000
_CUT_OFF: Final = "\ufdd0 nested too deeply"  # begins with a Unicode noncharacter, which no text contains
_CUT_OFF_JSON: Final = orjson.dumps(_CUT_OFF)
_BRACKET_OR_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)


class TooDeepError(ValueError):
    """An object is nested too deeply to be written."""


def loads(data: bytes) -> Any:
    """Parse JSON, without values that are too deep. Raises ValueError if it is not JSON."""
    try:
        return orjson.loads(data)
    except ValueError:
        shallow = without_depths(data)
        if shallow is data:
            raise
    return orjson.loads(shallow)


def without_depths(data: bytes) -> bytes:
    """Return the text with a mark in place of values below `DEEPEST` levels; the same object if there are none."""
    kept: list[bytes] = []
    done = depth = cut_from = 0
    for token in _BRACKET_OR_STRING.finditer(data):
        first = data[token.start()]
        if first in b"[{":
            depth += 1
            if depth == DEEPEST + 1:
                cut_from = token.start()
        elif first in b"]}":
            if depth == DEEPEST + 1:
                kept += (data[done:cut_from], _CUT_OFF_JSON)
                done = token.end()
            depth -= 1
    return b"".join((*kept, data[done:])) if kept else data


def was_cut(value: Any) -> bool:
    """Return whether a parsed value has a mark in it."""
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, dict):
            pending.extend(one.values())
        elif isinstance(one, list):
            pending.extend(one)
        elif one == _CUT_OFF:
            return True
    return False
