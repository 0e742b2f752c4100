"""podFailureSpec of the configuration: completion codes, and the failed Pods that they are for.

Source: docs/failure-codes.md and docs/configuration.md, "podFailureSpec". Regular expressions are RE2's, which no
pattern can make slow. Empty text and a range open on both sides are no criteria, as in the original.
"""

from __future__ import annotations

from typing import Annotated, Final

import re2
from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from frameworkcontroller.api.completion import FAILED, RESERVED, Code
from frameworkcontroller.config.configfile import Section
from frameworkcontroller.machine.failure import ContainerPattern, FailureClass, PodPattern, Range, Regex

_INT32_MAX: Final = 2**31 - 1

Int32 = Annotated[int, Field(ge=-_INT32_MAX - 1, le=_INT32_MAX)]


def _compilable(pattern: str) -> str:
    if pattern:
        compile_regex(pattern)
    return pattern


def compile_regex(pattern: str) -> Regex:
    """The compiled RE2 pattern; flags go in front, as in ``(?i)``.

    Raises:
        ValueError: RE2 does not know such a pattern (look-around and back-references are what it leaves out).
    """
    options = re2.Options()
    # Else the library writes to stderr itself, in a shape of its own.
    options.log_errors = False
    try:
        compiled: Regex = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0]
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise ValueError(f"is not a regular expression of RE2: {text}") from None
    return compiled


RegexText = Annotated[str, AfterValidator(_compilable)]
"""Empty is not given, as in the original."""


class IntRange(Section):
    """Whole numbers from ``min`` to ``max``, both included; what is not given is open."""

    min: Int32 | None = None
    max: Int32 | None = None

    @field_validator("max")
    @classmethod
    def _not_below_min(cls, value: int | None, info: ValidationInfo) -> int | None:
        lowest = info.data.get("min")
        if value is not None and lowest is not None and value < lowest:
            raise ValueError(f"must not be below min ({lowest})")
        return value

    def compiled(self) -> Range | None:
        """The range, None if it is open on both sides: that is no criterion."""
        return None if self.min is None and self.max is None else Range(self.min, self.max)


class ContainerPatternConfig(Section):
    """What one of the Pod's containers must be like."""

    name_regex: RegexText = ""
    reason_regex: RegexText = ""
    message_regex: RegexText = ""
    signal_range: IntRange = IntRange()
    code_range: IntRange = IntRange()

    def compiled(self) -> ContainerPattern:
        """The pattern as the machine takes it."""
        return ContainerPattern(
            name=_regex(self.name_regex),
            reason=_regex(self.reason_regex),
            message=_regex(self.message_regex),
            signal=self.signal_range.compiled(),
            code=self.code_range.compiled(),
        )


class PodPatternConfig(Section):
    """What a failed Pod must be like."""

    name_regex: RegexText = ""
    reason_regex: RegexText = ""
    message_regex: RegexText = ""
    containers: list[ContainerPatternConfig] = Field(default_factory=list)

    def compiled(self) -> PodPattern:
        """The pattern as the machine takes it."""
        return PodPattern(
            name=_regex(self.name_regex),
            reason=_regex(self.reason_regex),
            message=_regex(self.message_regex),
            containers=tuple(container.compiled() for container in self.containers),
        )


class FailureTypeConfig(Section):
    """What a completion code says to the retry policy. ``attributes`` None is exposed as null."""

    name: str = FAILED
    attributes: list[str] | None = None

    @field_validator("name")
    @classmethod
    def _is_failed(cls, value: str) -> str:
        # Empty is not given, as in the original.
        if value not in ("", FAILED):
            raise ValueError(f"must be {FAILED}: only failed Pods are classified")
        return FAILED


class FailureConfig(Section):
    """One entry of podFailureSpec: a completion code, and the Pods that it is for."""

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
        """The entry as the machine takes it."""
        attributes = self.type.attributes
        code = Code(self.code, self.phrase, self.type.name, None if attributes is None else tuple(attributes))
        return FailureClass(code, tuple(pattern.compiled() for pattern in self.pod_patterns))


def _regex(text: str) -> Regex | None:
    return compile_regex(text) if text else None
