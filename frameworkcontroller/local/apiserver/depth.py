"""How deeply an object may be nested.

A real server takes 10,000 levels. Here it is less, since orjson writes no more than 254 and Python calls no more than
1,000 functions from one another. What is deeper is refused where it comes in, and where it is stored, so that nothing
else has to think of it; what is left of those 254 is room for what is put around an object, such as a Table.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import orjson

from frameworkcontroller.local.apiserver import api_errors
from frameworkcontroller.local.apiserver.api_errors import StatusError

DEEPEST: Final = 200
_ROOM: Final = 254 - DEEPEST
_TOO_DEEP_TO_WRITE: Final = "Recursion limit reached"
_TOO_DEEP_TO_READ: Final = "depth limit exceeded"


def too_deep() -> StatusError:
    """400: what a request brings or makes, an object's ``managedFields`` among it, has more levels than are kept."""
    return api_errors.bad_request(f"nested more than {DEEPEST} levels deep, which is more than this API server keeps")


def encode(document: Any) -> bytes:
    """The document as JSON. Raises `too_deep` if it is."""
    for _ in range(_ROOM):
        document = [document]
    try:
        return orjson.dumps(document)[_ROOM:-_ROOM]
    except TypeError as error:
        if str(error) == _TOO_DEEP_TO_WRITE:
            raise too_deep() from None
        raise


def check(document: Any) -> None:
    """Raise `too_deep` if the document is. What else is no JSON is looked at elsewhere."""
    with suppress(TypeError):
        encode(document)


def check_json(text: bytes, document: Any) -> None:
    """`check` of what was read from ``text``, at next to no cost where that has too few brackets to be deep."""
    if text.count(b"{") + text.count(b"[") > DEEPEST:
        check(document)


def is_cause(error: orjson.JSONDecodeError) -> bool:
    """Whether a text cannot be read for its depth alone."""
    return error.msg == _TOO_DEEP_TO_READ
