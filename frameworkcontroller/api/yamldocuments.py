"""Documents of YAML files: their content as JSON's types, the lines of their keys, and their errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import Any, Final

import yaml

from frameworkcontroller.api.problems import KeyPath, Problem

ERRORS: Final = (yaml.YAMLError, ValueError, RecursionError)
"""The errors of a file that is no YAML, also if its content is only read or walked; see ``error_text``."""


class Loader(yaml.SafeLoader):
    """Reads JSON's types as Kubernetes does: a date is text, and 1e3 is a number."""

    @classmethod
    def content(cls, root: yaml.Node) -> Any:
        """The content of a document."""
        return cls("").construct_document(root)


_REPLACED: Final = {f"tag:yaml.org,2002:{kind}" for kind in ("timestamp", "float", "int")}
Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _REPLACED]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
# Without 1:30:00, a number in base 60 to PyYAML, which takes quadratic time for many digits.
Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"([-+]?[0-9][0-9_]*\.[0-9_]*([eE][-+][0-9]+)?|\.[0-9][0-9_]*([eE][-+][0-9]+)?|[-+]?\.(inf|Inf|INF)"
        r"|\.(nan|NaN|NAN)|[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+)\Z"
    ),
    list("-+.0123456789"),
)
Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int",
    re.compile(r"[-+]?(0b[01_]+|0[0-7_]*|[1-9][0-9_]*|0x[0-9a-fA-F_]+)\Z"),
    list("-+0123456789"),
)


_QuickLoader: Final[type[yaml.CSafeLoader] | None] = (
    type("_QuickLoader", (yaml.CSafeLoader,), {"yaml_implicit_resolvers": Loader.yaml_implicit_resolvers})
    if hasattr(yaml, "CSafeLoader")
    else None
)


@cache
def dumper() -> type[yaml.SafeDumper]:
    """Return a dumper that quotes each text that Kubernetes, or another reader of YAML 1.1, takes for no text."""
    firsts = {*Loader.yaml_implicit_resolvers, *yaml.SafeDumper.yaml_implicit_resolvers}
    resolvers = {
        first: [
            *yaml.SafeDumper.yaml_implicit_resolvers.get(first, ()),
            *Loader.yaml_implicit_resolvers.get(first, ()),
        ]
        for first in firsts
    }
    return type("_Dumper", (yaml.SafeDumper,), {"yaml_implicit_resolvers": resolvers})


_MOST_LEVELS: Final = 2000
"""Of nesting, well below those at which the parser in C overflows its stack, at some 20,000."""


def compose(text: str) -> yaml.Node | None:
    """Return the node of the only document, None without one. Raises ERRORS.

    The parser in C takes a tenth of the time. The one in Python finds the words for errors.
    """
    if _QuickLoader is not None and _levels(text) <= _MOST_LEVELS:
        with suppress(*ERRORS):
            return yaml.compose(text, _QuickLoader)
    return yaml.compose(text, Loader)


def _levels(text: str) -> int:
    """A bound on the levels of nesting: each has a bracket, or begins further right, or is a list below its key."""
    return text.count("[") + text.count("{") + 2 * max(map(len, text.splitlines()), default=0)


def documents(text: str) -> Iterator[tuple[Any, yaml.Node]]:
    """Yield the content and the node of each document; separators at either end leave empty ones. Raises ERRORS."""
    for root in yaml.compose_all(text, Loader):
        yield Loader.content(root), root


def error_text(error: Exception) -> tuple[int, str]:
    """The line of an error of ``ERRORS``, 0 if unknown, and its text."""
    if isinstance(error, RecursionError):
        return 0, "is nested too deeply, or contains itself"
    if isinstance(error, UnicodeDecodeError):
        return 0, f"is not UTF-8 text (byte {error.start})"
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    return 0 if mark is None else mark.line + 1, f"is not YAML: {' '.join(problem.split())}"


def place(file: object, line: int) -> str:
    """``file:12``, to precede a message; without a line if it is 0."""
    return f"{file}:{line}" if line else str(file)


class Lines:
    """The lines of the keys of a document. Costs the document once, not for each key."""

    def __init__(self, root: yaml.Node | None) -> None:
        self._root = root
        self._children: dict[yaml.Node, dict[str, tuple[yaml.Node, yaml.Node]]] = {}

    def line_of(self, path: KeyPath) -> int:
        """The line of the key at ``path``, or else of the innermost existing key around it; 0 without any."""
        node, line = self._root, 0
        for part in path:
            found = self._child(node, part)
            if found is None:
                break
            key, node = found
            line = key.start_mark.line + 1
        return line

    def _child(self, node: yaml.Node | None, part: str | int) -> tuple[yaml.Node, yaml.Node] | None:
        """The node at which that part of a path begins (its key or item), and the node of its value."""
        if isinstance(node, yaml.MappingNode):
            if node not in self._children:
                keys = ((key.value, (key, value)) for key, value in reversed(node.value))
                self._children[node] = {name: found for name, found in keys if isinstance(found[0], yaml.ScalarNode)}
            return self._children[node].get(str(part))
        if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            return node.value[part], node.value[part]
        return None


def repeated_keys(node: yaml.Node, path: KeyPath = ()) -> Iterator[Problem]:
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
