"""Pauses Python's garbage collector during the parsing of large lists."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_depth = 0
_was_enabled = False


@contextmanager
def gc_paused() -> Iterator[None]:
    """Disable automatic collection. Calls may be nested, and overlap between tasks.

    Parsing creates hundreds of thousands of objects, all in use. The collections that it triggers find nothing and
    cost several times the parsing.
    """
    global _depth, _was_enabled  # noqa: PLW0603 - there is one collector per process
    if _depth == 0:
        _was_enabled = gc.isenabled()
        gc.disable()
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1
        if _depth == 0 and _was_enabled:
            gc.enable()
