"""JSON that is kept for long."""

from __future__ import annotations

from typing import Any

import orjson


def dumps_to_keep(value: Any) -> bytes:
    """JSON in no more memory than it needs.

    What ``orjson.dumps`` returns holds on to the buffer that it was written in, 4 to 8 KiB however short it is (seen
    with orjson 3.13): soon gone, but for whoever keeps one for each Task.
    """
    return bytes(memoryview(orjson.dumps(value)))
