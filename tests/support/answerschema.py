"""Checks JSON values by the schemas of an OpenAPI document, as far as the archive's document uses them."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_KNOWN: Final = {
    "$ref", "type", "properties", "required", "additionalProperties", "items", "enum", "format", "minimum", "maximum",
    "minLength", "maxLength", "description", "default",
}  # fmt: skip


def faults(value: Any, schema: Mapping[str, Any], document: Mapping[str, Any], place: str = "$") -> Iterator[str]:
    """The parts of ``value`` that violate ``schema``. A keyword that is not checked here is an error of the test."""
    assert set(schema) <= _KNOWN, f"not checked: {set(schema) - _KNOWN}"
    if "$ref" in schema:
        target: Any = document
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        yield from faults(value, target, document, place)
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{place}: {value!r} is none of {schema['enum']}"
    if "type" in schema:
        allowed = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        fits = any(isinstance(value, _TYPES[one]) for one in allowed)
        if not fits or (isinstance(value, bool) and "boolean" not in allowed):
            yield f"{place}: {value!r} is no {' or '.join(allowed)}"
            return
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        for name in schema.get("required", ()):
            if name not in value:
                yield f"{place}: has no {name}"
        for name, member in value.items():
            if name in properties:
                yield from faults(member, properties[name], document, f"{place}.{name}")
            elif (others := schema.get("additionalProperties", {})) is False:
                yield f"{place}: has {name}, which is not described"
            elif isinstance(others, Mapping):
                yield from faults(member, others, document, f"{place}.{name}")
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from faults(member, schema.get("items", {}), document, f"{place}[{index}]")
    elif isinstance(value, str):
        if schema.get("format") == "date-time":
            moment = datetime.fromisoformat(value)
            if moment.tzinfo is None:
                yield f"{place}: {value!r} has no zone"
        if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
            yield f"{place}: {value!r} has a bad length"
    elif isinstance(value, int | float) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield f"{place}: {value} is out of range"
