"""Functions that SQLite and PostgreSQL name differently, and values that both take as parameters."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Integer, Text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement


class Texts(FunctionElement[str]):
    """The texts of a JSON list, as rows: a list of any length is one parameter."""

    inherit_cache = True
    type = Text()


class Contains(FunctionElement[int]):
    """Position of a text in another one, 0 if it is not in there."""

    inherit_cache = True
    type = Integer()


def _compile(element: type[FunctionElement[Any]], dialect: str, sql: str) -> None:
    @compiles(element, dialect)
    def compile_function(element: Any, compiler: Any, **kw: Any) -> str:
        return sql.format(compiler.process(element.clauses, **kw))


_compile(Texts, "sqlite", "json_each({})")
_compile(Texts, "postgresql", "json_array_elements_text(CAST({} AS json))")
_compile(Contains, "sqlite", "instr({})")
_compile(Contains, "postgresql", "strpos({})")


def clean(text: str) -> str:
    """A text without characters that PostgreSQL does not take, for a column or to be compared with one."""
    return text.translate(_UNSTORABLE) if not text.isprintable() else text


_UNSTORABLE: Final = {0: "\ufffd", **dict.fromkeys(range(0xD800, 0xE000), "\ufffd")}


def bounded(number: int) -> int:
    """A number that can be a parameter; one beyond 64 bits is in no column."""
    return max(-(1 << 63), min(number, (1 << 63) - 1))
