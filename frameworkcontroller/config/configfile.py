"""Reads configuration files: the base class of their sections, and the lines of errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import yaml
from pydantic import AfterValidator, ConfigDict, ValidationInfo
from pydantic.alias_generators import to_camel

from frameworkcontroller.api.inputmodel import InputModel
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


class Section(InputModel):
    """A mapping in the file. Unknown keys are errors."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")


def not_below(minimum: str) -> AfterValidator:
    """Validate that a field is not below the field ``minimum`` of its section, which stands before it."""
    return _compared(minimum, lambda value, limit: value >= limit, f"must not be below {to_camel(minimum)} ({{}})")


def below(limit: str, factor: float = 1.0) -> AfterValidator:
    """Validate that a field times the factor is below the field ``limit`` of its section, which stands before it."""
    divided = "" if factor == 1.0 else f" divided by {factor:g}"
    return _compared(
        limit, lambda value, most: value * factor < most, f"must be below {to_camel(limit)} ({{}}){divided}"
    )


def _compared(other: str, holds: Callable[[float, float], bool], rule: str) -> AfterValidator:
    def validated(value: int | None, info: ValidationInfo) -> int | None:
        limit = info.data.get(other)
        if value is not None and limit is not None and not holds(value, limit):
            raise ValueError(rule.format(limit))
        return value

    return AfterValidator(validated)


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
