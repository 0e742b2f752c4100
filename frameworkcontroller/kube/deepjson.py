"""JSON that is nested deeper than the parser goes.

An API server stores a custom resource with ten thousand levels if somebody sends one; orjson stops at 1,024, and with
it would stop whoever reads a list or a watch in which there is such an object. So what is too deep is cut off, and the
objects that it was cut off from can be told from the others.
"""

from __future__ import annotations

import re
from typing import Any, Final

import orjson

DEEPEST: Final = 1000
_CUT_OFF: Final = "\ufdd0 nested too deeply"  # begins with a code point that no text contains, by Unicode's own rule
_CUT_OFF_JSON: Final = orjson.dumps(_CUT_OFF)
_BRACKET_OR_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)


class NestedTooDeeply(ValueError):
    """An object has more levels than can be read."""

    def __init__(self) -> None:
        super().__init__(f"nested more than {DEEPEST} levels deep")


def without_depths(data: bytes) -> bytes:
    """The text with what lies deeper than `DEEPEST` levels replaced by a mark; the same object if nothing does."""
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
    if not kept:
        return data
    kept.append(data[done:])
    return b"".join(kept)


def was_cut(value: Any) -> bool:
    """Whether something was cut off from this part of a parsed text."""
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
