"""Positions in YAML files: the lines of keys, repeated keys and syntax errors."""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from frameworkcontroller.api.problems import KeyPath, Problem


def line_of(root: yaml.Node | None, path: KeyPath) -> int | None:
    """The line of the key at ``path``; if it does not exist, of the innermost existing key around it."""
    node, line = root, None
    for part in path:
        found = _child(node, part)
        if found is None:
            break
        place, node = found
        line = place.start_mark.line + 1
    return line


def repeated_keys(node: yaml.Node, path: KeyPath) -> Iterator[Problem]:
    """The keys that occur twice in a mapping, which YAML allows."""
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                yield Problem((*path, key.value), f"is repeated on line {key.start_mark.line + 1}")
            seen.add(key.value)
            yield from repeated_keys(value, (*path, key.value))
    elif isinstance(node, yaml.SequenceNode):
        for position, item in enumerate(node.value):
            yield from repeated_keys(item, (*path, position))


def syntax_error(error: Exception) -> str:
    """``:12: is not YAML: ...``, to follow the name of the file."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    return f"{'' if mark is None else f':{mark.line + 1}'}: is not YAML: {' '.join(problem.split())}"


def _child(node: yaml.Node | None, part: str | int) -> tuple[yaml.Node, yaml.Node] | None:
    """The node at which that part of a path begins (its key or item), and the node of its value."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value == str(part):
                return key, value
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part], node.value[part]
    return None
