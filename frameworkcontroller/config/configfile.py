"""Reads configuration files: YAML, the base class of their sections, and the lines of errors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import yaml
from pydantic import AfterValidator, ConfigDict, ValidationInfo
from pydantic.alias_generators import to_camel

from frameworkcontroller.api.inputmodel import InputModel
from frameworkcontroller.api.problems import Problem, kind_of
from frameworkcontroller.config.yamlplaces import line_of, repeated_keys, syntax_error


class ConfigError(Exception):
    """The configuration is invalid. The text has one line for each error."""


class ConfigMissing(ConfigError):
    """The file does not exist."""


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
        lines = sorted(
            ((line_of(self.root, problem.path), str(problem)) for problem in problems), key=lambda found: found[0] or 0
        )
        return "\n".join(f"{self.path}:{line}: {text}" if line else f"{self.path}: {text}" for line, text in lines)


class Section(InputModel):
    """A mapping in the file. Unknown keys are errors."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")


def not_below(minimum: str) -> AfterValidator:
    """Validate that a field is not below the field ``minimum`` of its section, which stands before it."""

    def validated(value: int | None, info: ValidationInfo) -> int | None:
        lowest = info.data.get(minimum)
        if value is not None and lowest is not None and value < lowest:
            raise ValueError(f"must not be below {to_camel(minimum)} ({lowest})")
        return value

    return AfterValidator(validated)


class _Loader(yaml.SafeLoader):
    """Reads numbers as the original does: for PyYAML, 1e3 is text."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+\Z"),
    list("-+.0123456789"),
)


def read_config_file(path: Path) -> ConfigFile:
    """Read the file.

    Raises:
        ConfigMissing: the file does not exist.
        ConfigError: the file cannot be read, or is not a YAML mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigMissing(f"{path}: no such file") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text (byte {error.start})") from None
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        content = None if root is None else loader.construct_document(root)
        repeated = [] if root is None else list(repeated_keys(root, ()))
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{path}{syntax_error(error)}") from None
    except RecursionError:
        raise ConfigError(f"{path}: is nested too deeply, or contains itself") from None
    if root is None or content is None:
        return ConfigFile(path, {})
    if not isinstance(content, dict):
        raise ConfigError(f"{path}:{root.start_mark.line + 1}: must be a mapping, not {kind_of(content)}")
    return ConfigFile(path, content, repeated, root)
