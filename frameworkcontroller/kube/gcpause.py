"""Keeps Python's garbage collector from walking what a large list is just being parsed into."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_depth = 0
_was_enabled = False


@contextmanager
def gc_paused() -> Iterator[None]:
    """No automatic collection within; nests, and overlaps between tasks.

    Parsing makes objects by the hundred thousand, all in use: collections triggered by their number find nothing and
    cost several times the parsing itself.
    """
    global _depth, _was_enabled  # noqa: PLW0603 - the collector is one for the whole process, and so is this count
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
