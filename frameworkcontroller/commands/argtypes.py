"""The kinds of arguments that commands take, and a parser that says in a line which of them is wrong."""

from __future__ import annotations

import argparse
import math
import re
from typing import Final, NoReturn

from frameworkcontroller.api import names
from frameworkcontroller.commands.program import EXIT_USAGE

_KINDS: Final = frozenset({names.KIND.lower(), names.PLURAL, "fw"})
_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


class Parser(argparse.ArgumentParser):
    """argparse's, with errors in a line."""

    def error(self, message: str) -> NoReturn:
        """End with the exit code for what was asked for wrongly."""
        # The usage that argparse prints before it hides the one line that matters.
        self.exit(EXIT_USAGE, f"{self.prog}: {message}\nTry '{self.prog} --help'.\n")


class PluginParser(Parser):
    """A plugin's of kubectl, which speaks as that does."""

    def error(self, message: str) -> NoReturn:
        """End with the exit code for what was asked for wrongly."""
        self.exit(EXIT_USAGE, f"error: {message}\nSee '{self.prog} --help' for usage.\n")


def seconds(text: str) -> float:
    """A number of seconds, above 0."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"not a number of seconds: {text!r}")
    return number


def span(text: str) -> float:
    """A span of time: ``90``, ``90s``, ``5m``, ``1h30m``; in seconds."""
    if not re.fullmatch(r"(\d+[smhd])+|\d+", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"not a span of time such as 90s, 5m or 1h30m: {text!r}")
    total = sum(int(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+)([smhd]?)", text))
    if total == 0:
        raise argparse.ArgumentTypeError(f"must be above 0: {text!r}")
    return float(total)


def count(text: str) -> int:
    """A number, 0 or more."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"not a number: {text!r}")
    return int(text)


def framework(text: str) -> str:
    """The name of a Framework; also as kubectl prints it, with its kind in front: ``framework/train``."""
    kind, slash, name = text.partition("/")
    plain = kind.lower().removesuffix(f".{names.GROUP}")
    return name if slash and plain in _KINDS else text


def role_and_number(text: str) -> tuple[str, int]:
    """``worker=4``."""
    role, equals, number = text.partition("=")
    # How many it may be, the API server says.
    if not role or not equals or not re.fullmatch(r"\d{1,9}", number, re.ASCII):
        raise argparse.ArgumentTypeError(f"not ROLE=NUMBER: {text!r}")
    return role, int(number)


def target(text: str) -> tuple[str, int | None]:
    """A role, or one Task of it: ``worker``, ``worker/3`` or ``worker[3]``."""
    found = re.fullmatch(r"([a-z0-9]{1,63})(?:/(\d{1,9})|\[(\d{1,9})\])?", text, re.ASCII)
    if found is None:
        raise argparse.ArgumentTypeError(f"not ROLE or ROLE/INDEX: {text!r}")
    index = found[2] or found[3]
    return found[1], None if index is None else int(index)
