"""Reads configuration files, and finds the lines of errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from frameworkcontroller.api.problems import Problem, shown
from frameworkcontroller.api.yamldocuments import ERRORS, Lines, Loader, compose, error_text, place, repeated_keys


class ConfigurationError(Exception):
    """The configuration is invalid. The text has one line for each error."""


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The content of a file, with the lines of its keys."""

    path: Path
    content: dict[Any, Any]
    problems: list[Problem] = field(default_factory=list)
    """Repeated keys, which YAML allows and a mapping cannot hold."""
    root: yaml.Node | None = None

    def describe(self, problems: Sequence[Problem]) -> str:
        """One line of text for each problem, in the order of the file."""
        line_of = Lines(self.root).line_of
        lines = [(line_of(problem.path), problem) for problem in problems]
        lines.sort(key=lambda found: found[0])
        return "\n".join(f"{place(self.path, line)}: {problem}" for line, problem in lines)


def read_config_file(path: Path) -> ConfigFile:
    """Read the file.

    Raises:
        FileNotFoundError: the file does not exist.
        ConfigurationError: the file cannot be read, or is not a YAML mapping.
    """
    try:
        root = compose(path.read_text(encoding="utf-8"))
        content = None if root is None else Loader.content(root)
        if root is None or content is None:
            return ConfigFile(path, {})
        repeated = list(repeated_keys(root))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from None
    except ERRORS as error:
        line, text = error_text(error)
        raise ConfigurationError(f"{place(path, line)}: {text}") from None
    if not isinstance(content, dict):
        raise ConfigurationError(f"{path}:{root.start_mark.line + 1}: must be a mapping, not {shown(content)}")
    return ConfigFile(path, content, repeated, root)
