"""JSON as Go writes and reads it.

The embedded API server answers with it, and the diagnostics of completions contain it. Clients depend on the escapes: a
JavaScript program that splits a watch at every Unicode line separator would otherwise lose events.
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
    """Encode the document as JSON with a trailing newline."""
    return as_go(orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE))


def as_go(encoded: bytes) -> bytes:
    """Convert the output of orjson: escape the characters that Go escapes, and write ``3`` for ``3.0``."""
    # Searches are cheap, and nearly no text needs replacements.
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
    """Replace invalid UTF-8 and lone surrogates in a JSON text with U+FFFD.

    None if the text is invalid for another reason.
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
