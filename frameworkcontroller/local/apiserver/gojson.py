"""JSON as the real server writes and reads it, which is as Go's encoder does.

Clients rely on it: a JavaScript program that splits a watch into lines at every line separator of Unicode loses the
events that hold one unescaped.
"""

from __future__ import annotations

import codecs
import json
import re
from typing import Any, Final

import orjson

_LINE_SEPARATORS: Final = ((b"\xe2\x80\xa8", rb"\u2028"), (b"\xe2\x80\xa9", rb"\u2029"))
_HTML: Final = ((b"<", rb"\u003c"), (b">", rb"\u003e"), (b"&", rb"\u0026"))
_WHOLE: Final = (b".0,", b".0}", b".0]")
_STRING_OR_WHOLE: Final = re.compile(rb'("[^"\\]*+(?:\\.[^"\\]*+)*+")|-(0)\.0(?=[,}\]])|(?<=[0-9])\.0(?=[,}\]])')
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_REPLACEMENT: Final = "\ufffd"
_EACH_BYTE: Final = "frameworkcontroller-replace-each-byte"


def encode(document: Any) -> bytes:
    """The document as JSON."""
    return as_go(orjson.dumps(document))


def encode_line(document: Any) -> bytes:
    """The document as JSON, with a line feed after it."""
    return as_go(orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE))


def as_go(encoded: bytes) -> bytes:
    """Rewrite the output of orjson: escape the characters that Go escapes, and write ``3`` for ``3.0``."""
    # Searches cost little; nearly all texts have nothing to replace.
    for plain, escaped in _HTML:
        if plain in encoded:
            encoded = encoded.replace(plain, escaped)
    if b"\xe2" in encoded:
        for plain, escaped in _LINE_SEPARATORS:
            encoded = encoded.replace(plain, escaped)
    if any(ending in encoded for ending in _WHOLE):
        encoded = _STRING_OR_WHOLE.sub(lambda found: found[1] or found[2] or b"", encoded)
    return encoded


def repaired(text: bytes) -> bytes | None:
    """JSON with U+FFFD in place of bytes that are not UTF-8, and of halves of surrogate pairs.

    None if the text is no JSON for another reason.
    """
    try:
        document = json.loads(text.decode("utf-8", _EACH_BYTE))
        whole = _LONE_SURROGATE.sub(_REPLACEMENT, json.dumps(document, ensure_ascii=False)).encode()
        orjson.loads(whole)
    except (ValueError, RecursionError):
        return None
    return whole


def _replace_each_byte(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return _REPLACEMENT * (error.end - error.start), error.end


codecs.register_error(_EACH_BYTE, _replace_each_byte)
