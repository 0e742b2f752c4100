"""Reads a configuration file: how it is made up, and on which line of it anything stands."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import yaml
from pydantic import BaseModel, ConfigDict, model_validator
from pydantic.alias_generators import to_camel

from frameworkcontroller.api.fields import whole
from frameworkcontroller.api.problems import Problem, kind_of
from frameworkcontroller.config.yamlplaces import line_of, repeated_keys, syntax_error


class ConfigError(Exception):
    """The configuration cannot be used. The text has one line for each thing that is wrong."""


class ConfigMissing(ConfigError):
    """There is no such file."""


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The content of a file, and the way back from a key to its line."""

    path: Path
    content: dict[Any, Any]
    problems: list[Problem] = field(default_factory=list)
    """What the format allows but no mapping can hold: the same key twice."""
    root: yaml.Node | None = None

    def describe(self, problems: Sequence[Problem]) -> str:
        """One line for each problem, in the order of the file."""
        lines = sorted(
            ((line_of(self.root, problem.path), str(problem)) for problem in problems), key=lambda found: found[0] or 0
        )
        return "\n".join(f"{self.path}:{line}: {text}" if line else f"{self.path}: {text}" for line, text in lines)


class Section(BaseModel):
    """A mapping in the file: keys as the original writes them, none unknown; null is not given."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _is_normal(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        known = {info.alias for info in cls.model_fields.values()}
        return {key: whole(item) for key, item in value.items() if item is not None or key not in known}


class _Loader(yaml.SafeLoader):
    """YAML with the numbers of the original's reader: PyYAML takes 1e3 for text."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+\Z"),
    list("-+.0123456789"),
)


def read_config_file(path: Path) -> ConfigFile:
    """The file's content.

    Raises:
        ConfigMissing: there is no such file.
        ConfigError: it cannot be read, or is not a YAML mapping.
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
    except yaml.YAMLError as error:
        # A character that YAML does not have.
        raise ConfigError(f"{path}{syntax_error(error)}") from None
    try:
        root = loader.get_single_node()
        content = None if root is None else loader.construct_document(root)
        repeated = [] if root is None else list(repeated_keys(root, ()))
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{path}{syntax_error(error)}") from None
    except RecursionError:
        raise ConfigError(f"{path}: is nested too deeply, or contains itself") from None
    finally:
        loader.dispose()
    if root is None or content is None:
        return ConfigFile(path, {})
    if not isinstance(content, dict):
        raise ConfigError(f"{path}:{root.start_mark.line + 1}: must be a mapping of keys, not {kind_of(content)}")
    return ConfigFile(path, content, repeated, root)
