"""Durations, counts and foreign text in the form in which people read them on a terminal."""

from __future__ import annotations


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
