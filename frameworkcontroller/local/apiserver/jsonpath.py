r"""The JSONPath of printer columns and scale paths.

Fields (``.spec.list[0].name``, ``.metadata.labels['a\.b/c']``), ``[*]``, slices, filters (``[?(@.type=="Ready")]``) and
recursive descent (``..name``).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson

Step = Callable[[Any], Iterator[Any]]

_TOKEN = re.compile(
    r"""
    \.\.(?P<deep>[^.\[\]]+) |
    \.(?P<field>(?:\\.|[^.\[\]\\])+) |
    \[(?P<quoted>'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")\] |
    \[\?\((?P<filter>(?:'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|[^)])*)\)\] |
    \[(?P<slice>-?\d*(?::-?\d*){0,2}|\*)\]
    """,
    re.VERBOSE,
)
_FILTER = re.compile(r"\s*@(?P<path>[^\s=!<>]*)\s*(?:(?P<operator>==|!=|<=|>=|<|>)\s*(?P<value>.+?))?\s*")
_OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class JsonPath:
    """A compiled path."""

    def __init__(self, text: str) -> None:
        """Raises ValueError for an invalid path."""
        self.text = text
        self._steps = _compile(text)

    def find(self, document: Any) -> Iterator[Any]:
        """All values at the path, in document order; none if a part of the path is missing."""
        return _follow(self._steps, document)

    def first(self, document: Any, default: Any = None) -> Any:
        """The first value at the path."""
        return next(self.find(document), default)


def _follow(steps: list[Step], value: Any) -> Iterator[Any]:
    values: Iterator[Any] = iter((value,))
    for step in steps:
        values = _expand(step, values)
    return values


def _expand(step: Step, values: Iterator[Any]) -> Iterator[Any]:
    for value in values:
        yield from step(value)


def _compile(text: str) -> list[Step]:
    path = text.strip()
    if path.startswith("{") and path.endswith("}"):
        path = path[1:-1]
    path = path.removeprefix("$")
    if path and path[0] not in ".[":
        path = f".{path}"
    steps: list[Step] = []
    at = 0
    while at < len(path):
        found = _TOKEN.match(path, at)
        if found is None:
            raise ValueError(f"not a JSON path: {text!r}")
        steps.append(_step(found))
        at = found.end()
    return steps


def _step(found: re.Match[str]) -> Step:
    if found["deep"] is not None:
        return _deep(_unescaped(found["deep"]))
    if found["field"] is not None:
        return _every if found["field"] == "*" else _field(_unescaped(found["field"]))
    if found["quoted"] is not None:
        return _field(_unescaped(found["quoted"][1:-1]))
    if found["filter"] is not None:
        return _filter(found["filter"])
    return _slice(found["slice"])


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _field(name: str) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, Mapping) and name in value:
            yield value[name]

    return step


def _every(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _deep(name: str) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, Mapping) and name in value:
            yield value[name]
        for member in _every(value):
            yield from step(member)

    return step


def _slice(text: str) -> Step:
    if text == "*":
        return _every
    if ":" not in text:
        index = int(text)

        def item(value: Any) -> Iterator[Any]:
            if isinstance(value, list) and -len(value) <= index < len(value):
                yield value[index]

        return item
    bounds = slice(*(int(part) if part else None for part in text.split(":")))

    def items(value: Any) -> Iterator[Any]:
        if isinstance(value, list):
            yield from value[bounds]

    return items


def _filter(text: str) -> Step:
    found = _FILTER.fullmatch(text)
    if found is None:
        raise ValueError(f"not a JSON path filter: {text!r}")
    steps = _compile(found["path"])
    compare = _OPERATORS.get(found["operator"] or "")
    wanted = _literal(found["value"]) if compare is not None else None

    def step(value: Any) -> Iterator[Any]:
        for item in _every(value):
            given = next(_follow(steps, item), None)
            if compare is None:
                if given is not None:
                    yield item
            elif _holds(compare, given, wanted):
                yield item

    return step


def _holds(compare: Callable[[Any, Any], bool], left: Any, right: Any) -> bool:
    try:
        return compare(left, right)
    except TypeError:
        return False


def _literal(text: str) -> Any:
    if text[:1] in ("'", '"') and text[-1:] == text[:1] and len(text) > 1:
        return _unescaped(text[1:-1])
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        raise ValueError(f"not a literal: {text!r}") from None
