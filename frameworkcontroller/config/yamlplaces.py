"""Where things stand in YAML: from the path of a key to its line, and words on what is wrong there."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import yaml

_MOST_OF_A_VALUE: Final = 80
_NEAR: Final = 0.75

KeyPath = tuple[str | int, ...]

_NOTHING = object()


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong, and where. ``value``: what stands there, if that helps."""

    path: KeyPath
    text: str
    value: Any = _NOTHING

    def __str__(self) -> str:
        said = path_text(self.path)
        if self.value is not _NOTHING:
            said += f": {shown(self.value)}"
        return f"{said}: {self.text}" if said else self.text


def line_of(root: yaml.Node | None, path: KeyPath) -> int | None:
    """The line of the key, or of the innermost thing around it that can be found."""
    node, line = root, None
    for part in path:
        found = _child(node, part)
        if found is None:
            break
        place, node = found
        line = place.start_mark.line + 1
    return line


def suggestion(wrong: str, known: Iterable[str]) -> str:
    """What was probably meant, as the end of a sentence; empty if nothing comes near."""
    near = difflib.get_close_matches(wrong, list(known), n=1, cutoff=_NEAR)
    return f"; did you mean {near[0]}?" if near else ""


def repeated_keys(node: yaml.Node, path: KeyPath) -> Iterator[Problem]:
    """What the format allows but no mapping can hold: the same key twice."""
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                yield Problem((*path, key.value), f"is given again on line {key.start_mark.line + 1}")
            seen.add(key.value)
            yield from repeated_keys(value, (*path, key.value))
    elif isinstance(node, yaml.SequenceNode):
        for position, item in enumerate(node.value):
            yield from repeated_keys(item, (*path, position))


def syntax_error(error: Exception) -> str:
    """``:12: is not YAML: ...``, to go after the name of the file."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    return f"{'' if mark is None else f':{mark.line + 1}'}: is not YAML: {' '.join(problem.split())}"


def _child(node: yaml.Node | None, part: str | int) -> tuple[yaml.Node, yaml.Node] | None:
    """Where that part of a path begins (its key, or its item), and what is there."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value == str(part):
                return key, value
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part], node.value[part]
    return None


def path_text(path: KeyPath) -> str:
    """``spec.taskRoles[0].name``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]" if text else str(part)
            continue
        # A key may be anything; in a message it is one line.
        key = str(part) if str(part).isprintable() else repr(part)
        text += f".{key}" if text else key
    return text


def shown(value: Any) -> str:
    """The value for a message: shortened, and as it stands in YAML."""
    if isinstance(value, dict | list):
        return kind_of(value)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _MOST_OF_A_VALUE else f"{text[: _MOST_OF_A_VALUE - 1]}…"


def kind_of(value: Any) -> str:
    """``a list``, ``a mapping``, or else the value."""
    if isinstance(value, list):
        return "a list"
    return "a mapping" if isinstance(value, dict) else shown(value)
