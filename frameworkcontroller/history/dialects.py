"""What SQLite and PostgreSQL say differently, and the values that both take as parameters."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Integer, Text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement


class Texts(FunctionElement[str]):
    """The texts of a JSON list, as rows: a list of any length is one parameter."""

    inherit_cache = True
    type = Text()


@compiles(Texts, "sqlite")
def _texts_of_sqlite(element: Texts, compiler: Any, **kw: Any) -> str:
    return f"json_each({compiler.process(element.clauses, **kw)})"


@compiles(Texts, "postgresql")
def _texts_of_postgresql(element: Texts, compiler: Any, **kw: Any) -> str:
    return f"json_array_elements_text(CAST({compiler.process(element.clauses, **kw)} AS json))"


class Contains(FunctionElement[int]):
    """Position of a text in another one, 0 if it is not in there."""

    inherit_cache = True
    type = Integer()


@compiles(Contains, "sqlite")
def _contains_of_sqlite(element: Contains, compiler: Any, **kw: Any) -> str:
    return f"instr({compiler.process(element.clauses, **kw)})"


@compiles(Contains, "postgresql")
def _contains_of_postgresql(element: Contains, compiler: Any, **kw: Any) -> str:
    return f"strpos({compiler.process(element.clauses, **kw)})"


def clean(text: str) -> str:
    """A text that can be a parameter; one that cannot is in no column."""
    return text.translate(_UNSTORABLE) if not text.isprintable() else text


_UNSTORABLE: Final = {0: "\ufffd", **dict.fromkeys(range(0xD800, 0xE000), "\ufffd")}


def bounded(number: int) -> int:
    """A number that can be a parameter; one beyond 64 bits is in no column."""
    return max(-(1 << 63), min(number, (1 << 63) - 1))
