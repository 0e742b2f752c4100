"""Applies a schema's defaults to custom resources, and drops nulls that mean "not set"."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

Defaulter = Callable[[Any], Any]
"""Applies defaults to a value (returns it unchanged if it lacks none)."""


def compile_defaulter(schema: Mapping[str, Any]) -> Defaulter | None:
    """Compile the defaulter of ``schema``; None if it has no defaults."""
    items = schema.get("items")
    if isinstance(items, Mapping):
        return _list_defaulter(items)
    properties: Mapping[str, Any] = schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    if properties:
        return _object_defaulter(properties)
    return _map_defaulter(additional) if isinstance(additional, Mapping) else None


def _null_is_absent(schema: Mapping[str, Any]) -> bool:
    return not schema.get("nullable")


def _default_of(schema: Mapping[str, Any], defaulter: Defaulter | None) -> Any:
    """The schema's default, with the defaults of its own fields applied."""
    default = schema["default"]
    return default if defaulter is None else defaulter(default)


def _fresh(default: Any) -> Any:
    return copy.deepcopy(default) if isinstance(default, dict | list) else default


def _object_defaulter(properties: Mapping[str, Any]) -> Defaulter:
    defaulters = {name: compile_defaulter(schema) for name, schema in properties.items()}
    defaults = [
        (name, _default_of(schema, defaulters[name]), _null_is_absent(schema))
        for name, schema in properties.items()
        if schema.get("default") is not None
    ]
    droppable = frozenset(
        name for name, schema in properties.items() if schema.get("default") is None and _null_is_absent(schema)
    )
    nested = [(name, defaulter) for name, defaulter in defaulters.items() if defaulter is not None]

    def apply(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        result = value
        if None in value.values() and any(key in droppable and value[key] is None for key in value):
            result = {key: member for key, member in value.items() if member is not None or key not in droppable}
        for name, default, null_is_absent in defaults:
            if name not in result or (result[name] is None and null_is_absent):
                if result is value:
                    result = dict(value)
                result[name] = _fresh(default)
        for name, defaulter in nested:
            member = result.get(name)
            if member is not None:
                defaulted = defaulter(member)
                if defaulted is not member:
                    if result is value:
                        result = dict(value)
                    result[name] = defaulted
        return result

    return apply


def _map_defaulter(values: Mapping[str, Any]) -> Defaulter:
    defaulter = compile_defaulter(values)
    null_is_absent = _null_is_absent(values)
    default = None if values.get("default") is None else _default_of(values, defaulter)

    def apply(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        result: dict[str, Any] = {}
        changed = False
        for key, member in value.items():
            if member is None and null_is_absent:
                changed = True
                if default is not None:
                    result[key] = _fresh(default)
                continue
            defaulted = member if defaulter is None else defaulter(member)
            changed = changed or defaulted is not member
            result[key] = defaulted
        return result if changed else value

    return apply


def _list_defaulter(items: Mapping[str, Any]) -> Defaulter | None:
    defaulter = compile_defaulter(items)
    default = None if items.get("default") is None else _default_of(items, defaulter)
    replaces_null = default is not None and _null_is_absent(items)
    if defaulter is None and not replaces_null:
        return None

    def apply(value: Any) -> Any:
        if not isinstance(value, list):
            return value
        result = value
        for index, item in enumerate(value):
            if item is None:
                defaulted = _fresh(default) if replaces_null else None
            else:
                defaulted = item if defaulter is None else defaulter(item)
            if defaulted is not item:
                if result is value:
                    result = list(value)
                result[index] = defaulted
        return result

    return apply
