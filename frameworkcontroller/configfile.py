"""Reads a configuration file: how it is made up, and on which line of it anything stands."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

import yaml
from pydantic import BaseModel, ConfigDict, model_validator
from pydantic.alias_generators import to_camel

_MOST_OF_A_VALUE: Final = 80
_NEAR: Final = 0.75

KeyPath = tuple[str | int, ...]


class ConfigError(Exception):
    """The configuration cannot be used. The text has one line for each thing that is wrong."""


class ConfigMissing(ConfigError):
    """There is no such file."""


_NOTHING = object()


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong, and where. ``value``: what stands there, if that helps."""

    path: KeyPath
    text: str
    value: Any = _NOTHING

    def __str__(self) -> str:
        said = _path_text(self.path)
        if self.value is not _NOTHING:
            said += f": {_shown(self.value)}"
        return f"{said}: {self.text}" if said else self.text


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
            ((self._line(problem.path), str(problem)) for problem in problems), key=lambda found: found[0] or 0
        )
        return "\n".join(f"{self.path}:{line}: {text}" if line else f"{self.path}: {text}" for line, text in lines)

    def _line(self, path: KeyPath) -> int | None:
        """The line of the key, or of the innermost thing around it that can be found."""
        node, line = self.root, None
        for part in path:
            found = _child(node, part)
            if found is None:
                break
            place, node = found
            line = place.start_mark.line + 1
        return line


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
    def _null_is_not_given(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        known = {info.alias for info in cls.model_fields.values()}
        return {key: item for key, item in value.items() if item is not None or key not in known}


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
    loader = yaml.SafeLoader(text)
    try:
        root = loader.get_single_node()
        content = None if root is None else loader.construct_document(root)
        repeated = [] if root is None else list(_repeated_keys(root, ()))
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(_syntax_error(path, error)) from None
    except RecursionError:
        raise ConfigError(f"{path}: is nested too deeply, or contains itself") from None
    finally:
        loader.dispose()
    if root is None or content is None:
        return ConfigFile(path, {})
    if not isinstance(content, dict):
        raise ConfigError(f"{path}:{root.start_mark.line + 1}: must be a mapping of keys, not {_kind(content)}")
    return ConfigFile(path, content, repeated, root)


def suggestion(wrong: str, known: Iterable[str]) -> str:
    """What was probably meant, as the end of a sentence; empty if nothing comes near."""
    near = difflib.get_close_matches(wrong, list(known), n=1, cutoff=_NEAR)
    return f"; did you mean {near[0]}?" if near else ""


def _child(node: yaml.Node | None, part: str | int) -> tuple[yaml.Node, yaml.Node] | None:
    """Where that part of a path begins (its key, or its item), and what is there."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value == str(part):
                return key, value
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part], node.value[part]
    return None


def _repeated_keys(node: yaml.Node, path: KeyPath) -> Iterator[Problem]:
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                yield Problem((*path, key.value), f"is given again on line {key.start_mark.line + 1}")
            seen.add(key.value)
            yield from _repeated_keys(value, (*path, key.value))
    elif isinstance(node, yaml.SequenceNode):
        for position, item in enumerate(node.value):
            yield from _repeated_keys(item, (*path, position))


def _syntax_error(path: Path, error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    where = f"{path}:{mark.line + 1}" if mark is not None else str(path)
    return f"{where}: is not YAML: {' '.join(problem.split())}"


def _path_text(path: KeyPath) -> str:
    text = ""
    for part in path:
        text += str(part) if not text else f"[{part}]" if isinstance(part, int) else f".{part}"
    return text


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return _kind(value)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _MOST_OF_A_VALUE else f"{text[: _MOST_OF_A_VALUE - 1]}…"


def _kind(value: Any) -> str:
    if isinstance(value, list):
        return "a list"
    return "a mapping" if isinstance(value, dict) else _shown(value)
