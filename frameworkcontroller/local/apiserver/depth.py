"""The maximum nesting of an object.

A real server takes 10,000 levels. Here the limit is lower, because orjson writes at most 254 and Python's recursion
limit is 1,000. Deeper objects are refused on input and when stored, so no other code has to check. The rest of the 254
levels is for wrappers such as a Table.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import orjson

from frameworkcontroller.local.apiserver import api_errors
from frameworkcontroller.local.apiserver.api_errors import ApiStatusError

DEEPEST: Final = 200
_ROOM: Final = 254 - DEEPEST
_TOO_DEEP_TO_WRITE: Final = "Recursion limit reached"
_TOO_DEEP_TO_READ: Final = "depth limit exceeded"


def too_deep() -> ApiStatusError:
    """400: an object, including its ``managedFields``, is nested too deeply."""
    return api_errors.bad_request(f"nested more than {DEEPEST} levels deep, which is more than this API server keeps")


def encode(document: Any) -> bytes:
    """Encode the document as JSON. Raises `too_deep`."""
    for _ in range(_ROOM):
        document = [document]
    try:
        return orjson.dumps(document)[_ROOM:-_ROOM]
    except TypeError as error:
        if str(error) == _TOO_DEEP_TO_WRITE:
            raise too_deep() from None
        raise


def check(document: Any) -> None:
    """Raise `too_deep` if the document is. Other invalid JSON passes."""
    with suppress(TypeError):
        encode(document)


def check_json(text: bytes, document: Any) -> None:
    """Check a document that was read from ``text``, cheaply if that has too few brackets to be deep."""
    if text.count(b"{") + text.count(b"[") > DEEPEST:
        check(document)


def is_cause(error: orjson.JSONDecodeError) -> bool:
    """Whether a text cannot be read because of its depth."""
    return error.msg == _TOO_DEEP_TO_READ
