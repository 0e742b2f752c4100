"""podFailureSpec of the configuration: completion codes, and patterns of the failed Pods that get them.

Source: docs/failure-codes.md and docs/configuration.md, "podFailureSpec". Regular expressions are RE2's, whose run time
is linear for all patterns. As in the original, empty text and a range without bounds match anything.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import Annotated, Any, Protocol

from pydantic import Field, GetPydanticSchema, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError, core_schema

from frameworkcontroller.api.completion import FAILED, RESERVED, Code
from frameworkcontroller.api.inputmodel import INT32_MAX, Section, not_below

Int32 = Annotated[int, Field(ge=-INT32_MAX - 1, le=INT32_MAX)]


class Regex(Protocol):
    """A compiled pattern."""

    @property
    def pattern(self) -> Any:
        """Its text."""

    def search(self, text: str, /) -> Any:
        """The first match anywhere in ``text``, or None."""


@lru_cache(maxsize=1024)
def compile_regex(pattern: str) -> Regex | None:
    """Compile a pattern of RE2; None for the empty one.

    Raises:
        ValueError: the syntax is not RE2's, which has no look-around and no back-references.
    """
    if not pattern:
        return None
    # Commands that classify nothing start without it.
    import re2

    options = re2.Options()
    # Otherwise the library writes to stderr, past the log format.
    options.log_errors = False
    try:
        compiled: Regex = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0]
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise ValueError(f"is not a valid RE2 expression: {text}") from None
    return compiled


def _regex_schema(*_: Any) -> core_schema.CoreSchema:
    return core_schema.no_info_after_validator_function(compile_regex, core_schema.str_schema(strict=True))


OptionalRegex = Annotated[Regex | None, GetPydanticSchema(_regex_schema)]
"""Written as text; None for the empty one."""


class IntRange(Section):
    """Whole numbers from ``min`` to ``max``, inclusive; None: no bound."""

    min: Int32 | None = None
    max: Annotated[Int32 | None, not_below("min")] = None

    def __bool__(self) -> bool:
        """Whether it has a bound."""
        return self.min is not None or self.max is not None

    def __contains__(self, value: int) -> bool:
        return (self.min is None or self.min <= value) and (self.max is None or value <= self.max)


class _TextPatterns(Section):
    name_regex: OptionalRegex = None
    reason_regex: OptionalRegex = None
    message_regex: OptionalRegex = None


class ContainerPattern(_TextPatterns):
    """Matches a container if all given fields match. Fields other than the name match only terminated containers."""

    signal_range: IntRange = IntRange()
    code_range: IntRange = IntRange()


class PodPattern(_TextPatterns):
    """Matches a Pod if all given fields match, and each container pattern matches *some* container."""

    containers: tuple[ContainerPattern, ...] = Field(default=(), strict=False)


class FailureType(Section):
    """The type of a completion code, for retry policies. ``attributes`` None is exposed as null."""

    name: str = FAILED
    attributes: list[str] | None = None

    @field_validator("name")
    @classmethod
    def _is_failed(cls, value: str) -> str:
        # As in the original, empty means the default.
        if value not in ("", FAILED):
            raise ValueError(f"must be {FAILED}: only failed Pods are classified")
        return FAILED


class FailureClass(Section):
    """An entry of podFailureSpec: a completion code, and the patterns of the Pods that get it. One must match.

    ``cascade``: containers that match fail as a consequence of another failure. Such an entry needs no code; without
    one, it gives none.
    """

    cascade: bool = False
    code: Annotated[Int32 | None, Field(validate_default=True)] = None
    phrase: str = ""
    type: FailureType = FailureType()
    pod_patterns: Annotated[list[PodPattern], Field(min_length=1)]

    @field_validator("code")
    @classmethod
    def _not_reserved(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is None and not info.data.get("cascade"):
            raise PydanticCustomError("missing", "Field required")
        for reserved in RESERVED:
            if value is not None and value in reserved:
                raise ValueError(f"is within the reserved codes {reserved.start} to {reserved.stop - 1}")
        return value

    @cached_property
    def completion_code(self) -> Code:
        """The code with its phrase and type, of an entry that has one."""
        if self.code is None:
            raise ValueError("an entry with cascade, without a code")
        attributes = self.type.attributes
        return Code(self.code, self.phrase, self.type.name, None if attributes is None else tuple(attributes))
