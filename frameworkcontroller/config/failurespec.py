"""podFailureSpec of the configuration: completion codes, and patterns of the failed Pods that get them.

Source: docs/failure-codes.md and docs/configuration.md, "podFailureSpec". Regular expressions are RE2's, whose run time
is linear for all patterns. As in the original, empty text and a range without bounds match anything.
"""

from __future__ import annotations

from typing import Annotated

import re2
from pydantic import AfterValidator, Field, field_validator

from frameworkcontroller.api.completion import FAILED, RESERVED, Code
from frameworkcontroller.api.inputmodel import INT32_MAX
from frameworkcontroller.config.configfile import Section, not_below
from frameworkcontroller.machine.kernel.failure import ContainerPattern, FailureClass, PodPattern, Range, Regex

Int32 = Annotated[int, Field(ge=-INT32_MAX - 1, le=INT32_MAX)]


def compile_regex(pattern: str) -> Regex | None:
    """Compile a pattern of RE2; None for the empty one.

    Raises:
        ValueError: the syntax is not RE2's, which has no look-around and no back-references.
    """
    if not pattern:
        return None
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


def _compilable(pattern: str) -> str:
    compile_regex(pattern)
    return pattern


RegexText = Annotated[str, AfterValidator(_compilable)]


class IntRange(Section):
    """Whole numbers from ``min`` to ``max``, inclusive; None: no bound."""

    min: Int32 | None = None
    max: Annotated[Int32 | None, not_below("min")] = None

    def compiled(self) -> Range | None:
        """The range; None if it has no bound."""
        return None if self.min is None and self.max is None else Range(self.min, self.max)


class _TextPatterns(Section):
    name_regex: RegexText = ""
    reason_regex: RegexText = ""
    message_regex: RegexText = ""

    def _texts(self) -> tuple[Regex | None, Regex | None, Regex | None]:
        return compile_regex(self.name_regex), compile_regex(self.reason_regex), compile_regex(self.message_regex)


class ContainerPatternConfig(_TextPatterns):
    """Pattern of one of the Pod's containers."""

    signal_range: IntRange = IntRange()
    code_range: IntRange = IntRange()

    def compiled(self) -> ContainerPattern:
        """The pattern for the machine."""
        return ContainerPattern(*self._texts(), signal=self.signal_range.compiled(), code=self.code_range.compiled())


class PodPatternConfig(_TextPatterns):
    """Pattern of a failed Pod."""

    containers: list[ContainerPatternConfig] = Field(default_factory=list)

    def compiled(self) -> PodPattern:
        """The pattern for the machine."""
        return PodPattern(*self._texts(), containers=tuple(container.compiled() for container in self.containers))


class FailureTypeConfig(Section):
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


class FailureConfig(Section):
    """One entry of podFailureSpec: a completion code, and the patterns of the Pods that get it."""

    code: Int32
    phrase: str = ""
    type: FailureTypeConfig = FailureTypeConfig()
    pod_patterns: Annotated[list[PodPatternConfig], Field(min_length=1)]

    @field_validator("code")
    @classmethod
    def _not_reserved(cls, value: int) -> int:
        for reserved in RESERVED:
            if value in reserved:
                raise ValueError(f"is within the reserved codes {reserved.start} to {reserved.stop - 1}")
        return value

    def compiled(self) -> FailureClass:
        """The entry for the machine."""
        attributes = self.type.attributes
        code = Code(self.code, self.phrase, self.type.name, None if attributes is None else tuple(attributes))
        return FailureClass(code, tuple(pattern.compiled() for pattern in self.pod_patterns))
