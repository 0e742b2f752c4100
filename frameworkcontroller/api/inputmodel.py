"""The base class of user input: specs of Frameworks, and sections of the configuration."""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar, Final

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic.alias_generators import to_camel

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1


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


@cache
def _aliases(model: type[InputModel]) -> frozenset[str | None]:
    return frozenset(info.alias for info in model.model_fields.values())
