"""The base classes of user input: specs of Frameworks, and sections of the configuration."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationInfo, model_validator
from pydantic.alias_generators import to_camel

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
MAX_TASK_NUMBER: Final = 10000
"""For each role of a Framework."""


def whole(value: Any) -> Any:
    """300 for 300.0, which is a whole number in YAML and JSON; any other value unchanged."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


class InputModel(BaseModel):
    """A mapping with keys in camelCase. Null means the default."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
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
        known = _aliases(cls)
        return {key: whole(item) for key, item in value.items() if item is not None or key not in known}


class SpecModel(InputModel):
    """A mapping in the spec of a Framework."""

    # Clients send keys of their own, and the API server has already pruned or kept them.
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore")


class Section(InputModel):
    """A mapping in the configuration. Unknown keys are errors."""

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


@cache
def _aliases(model: type[InputModel]) -> frozenset[str | None]:
    return frozenset(info.alias for info in model.model_fields.values())
