"""JSON that is kept for long."""

from __future__ import annotations

from typing import Any

import orjson


def dumps_to_keep(value: Any) -> bytes:
    """JSON in no more memory than it needs.

    The result of ``orjson.dumps`` keeps its whole output buffer, 4 to 8 KiB even for a short text (with orjson 3.13),
    which adds up over the Tasks.
    """
    return bytes(memoryview(orjson.dumps(value)))
