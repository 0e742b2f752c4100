"""Problems of values in a spec or a file: the path, the value and the broken rule."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_MAX_VALUE_CHARS: Final = 80
_MAX_PATH_CHARS: Final = 400
_SIMILARITY: Final = 0.75

KeyPath = tuple[str | int, ...]

_NO_VALUE: Final = object()

_TEXTS: Final = {
    "bool_type": "must be true or false",
    "dict_type": "must be a mapping",
    "enum": "must be {expected}",
    "finite_number": "must be a finite number",
    "float_type": "must be a number",
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "int_from_float": "must be a whole number",
    "int_parsing_size": "is too large",
    "int_type": "must be a whole number",
    "less_than_equal": "must be at most {le}",
    "list_type": "must be a list",
    "missing": "is required",
    "model_attributes_type": "must be a mapping",
    "model_type": "must be a mapping",
    "string_too_long": "must not be longer than {max_length} characters",
    "string_type": "must be text (put it in quotes)",
    "too_long": "must have at most {max_length} items",
    "too_short": "must have at least {min_length} item",
    "tuple_type": "must be a list",
    "value_error": "{error}",
}
"""By pydantic's error type. A type that is not listed keeps pydantic's message."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A broken rule and its place; ``value``: the value there, unless it does not help."""

    path: KeyPath
    text: str
    value: Any = _NO_VALUE

    def __str__(self) -> str:
        text = path_text(self.path)
        if self.value is not _NO_VALUE:
            text += f": {shown(self.value)}"
        return f"{text}: {self.text}" if text else self.text


class ProblemError(ValueError):
    """A problem, with the path below the decoded object or validated model."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem

    def below(self, *path: str | int) -> ProblemError:
        """Return the error for the object that has this one at ``path``."""
        return ProblemError(replace(self.problem, path=(*path, *self.problem.path)))


def problem_of(detail: ErrorDetails, rules: Mapping[str, str], below: KeyPath = ()) -> Problem:
    """Describe an error of pydantic. ``rules``: the model's patterns in words; ``below``: the path of the model."""
    kind, path, context = detail["type"], (*below, *detail["loc"]), detail.get("ctx", {})
    if kind == "missing":
        return Problem(path, _TEXTS[kind])
    if kind == "string_pattern_mismatch":
        return Problem(path, rules[context["pattern"]], detail["input"])
    if isinstance(context.get("error"), ProblemError):
        error: ProblemError = context["error"]
        return error.below(*path).problem
    if kind == "enum":
        # YAML reads True and False without quotes as booleans.
        given = detail["input"]
        quotes = ", in quotes" if isinstance(given, bool) and repr(str(given)) in context["expected"] else ""
        context = {"expected": context["expected"].replace("'", "") + quotes}
    text = _TEXTS[kind].format(**context) if kind in _TEXTS else detail["msg"]
    return Problem(path, text, detail["input"])


def suggestion(wrong: str, known: Iterable[str]) -> str:
    """Return "; did you mean X?" for the most similar of ``known``, "" if none is similar.

    Long words are not compared, which takes quadratic time.
    """
    if len(wrong) > _MAX_VALUE_CHARS:
        return ""
    near = difflib.get_close_matches(wrong, [one for one in known if len(one) <= _MAX_VALUE_CHARS], 1, _SIMILARITY)
    return f"; did you mean {near[0]}?" if near else ""


def path_text(path: KeyPath) -> str:
    """Return the path as ``spec.taskRoles[0].name``, shortened."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]" if text else str(part)
            continue
        # A key may contain line ends.
        key = _shortened(str(part) if str(part).isprintable() else repr(part))
        text += f".{key}" if text else key
    half = _MAX_PATH_CHARS // 2
    return text if len(text) <= _MAX_PATH_CHARS else f"{text[:half]}…{text[1 - half :]}"


def shown(value: Any) -> str:
    """Return the value in YAML, shortened; of a list or mapping, its kind."""
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return _shortened(repr(value) if isinstance(value, str) else str(value))


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_VALUE_CHARS else f"{text[: _MAX_VALUE_CHARS - 1]}…"
