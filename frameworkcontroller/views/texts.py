"""Texts as people read them: objects as JSON or YAML, durations, counts, and foreign text made safe for a terminal."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import orjson

from frameworkcontroller.depths import TooDeepError


def encode(value: Any, output: str) -> str:
    """Encode an object as ``json`` or ``yaml``, with characters escaped on which a terminal may act.

    Raises:
        TooDeepError: it is nested too deeply.
    """
    try:
        return _as_json(value) if output == "json" else _as_yaml(value)
    except RecursionError:
        raise TooDeepError(f"an object is nested too deeply for -o {output}") from None


def _as_json(value: Any) -> str:
    try:
        text = orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    except orjson.JSONEncodeError:
        # orjson reads deeper nesting than it writes.
        text = json.dumps(value, indent=2, ensure_ascii=False)
    if printable(text) != text:
        # All such characters are inside strings.
        text = "".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text)
    return text + "\n"


def _as_yaml(value: Any) -> str:
    import yaml

    dump = partial(yaml.dump, value, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), sort_keys=False, width=120)
    text: str = dump(allow_unicode=True)  # type: ignore[assignment] # without a stream it is text
    return text if printable(text) == text else str(dump(allow_unicode=False))


def duration(seconds: float) -> str:
    """Format a duration in its two greatest units: ``45s``, ``3m12s``, ``2h5m``, ``4d3h``."""
    whole = max(0, int(seconds))
    for size, unit, smaller_size, smaller in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller_size
            return f"{whole // size}{unit}{f'{rest}{smaller}' if rest else ''}"
    return f"{whole}s"


def counted(number: int, one: str, many: str | None = None) -> str:
    """Format a count: ``1 Task``, ``2 Tasks``, ``10,000 Tasks``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def printable(text: str) -> str:
    """Replace the characters on which a terminal may act with blanks, except ends of lines."""
    if all(map(str.isprintable, text.split("\n"))):
        return text
    return "".join(char if char.isprintable() or char == "\n" else " " for char in text)


def clean_line(text: str, most: int = 300) -> str:
    """Make a foreign text printable, put it on one line and shorten it."""
    cleaned = printable(" ".join(text.split()))
    return cleaned if len(cleaned) <= most else f"{cleaned[: most - 1]}…"
