"""Validates the schema in a CustomResourceDefinition: it must be structural and complete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import re2

from frameworkcontroller.local.apiserver import validation
from frameworkcontroller.local.apiserver.defaulting import compile_defaulter
from frameworkcontroller.local.apiserver.field_path import FieldPath
from frameworkcontroller.local.apiserver.pruning import compile_pruner
from frameworkcontroller.local.apiserver.status_causes import Cause, forbidden, invalid, not_supported, required
from frameworkcontroller.local.apiserver.validation import Fault

Json = Mapping[str, Any]

_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_UNSUPPORTED = ("definitions", "dependencies", "id", "patternProperties", "additionalItems")
# Keywords not allowed in parts of anyOf, allOf, oneOf or not, which constrain values without describing them.
_ONLY_STRUCTURAL = (
    "type",
    "additionalProperties",
    "default",
    "description",
    "nullable",
    "title",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-preserve-unknown-fields",
)
_INT_OR_STRING = ([{"type": "integer"}, {"type": "string"}], [{"type": "string"}, {"type": "integer"}])


def schema_causes(schema: Json, path: str) -> list[Cause]:
    """Validate the ``openAPIV3Schema`` of a version at ``path``."""
    kind = schema.get("type")
    if not kind:
        return [required(f"{path}.type", "must not be empty at the root")]
    if kind != "object":
        return [invalid(f"{path}.type", kind, "must be object at the root")]
    found = _root_fields(schema.get("properties") or {}, path)
    return found + _node(schema, path)


def _root_fields(properties: Json, path: str) -> list[Cause]:
    found: list[Cause] = []
    for name in ("apiVersion", "kind"):
        declared = (properties.get(name) or {}).get("type")
        if declared not in (None, "string"):
            found.append(invalid(f"{path}.properties[{name}].type", declared, "must be string"))
    metadata = properties.get("metadata")
    if metadata is not None:
        if metadata.get("type") not in (None, "object"):
            found.append(invalid(f"{path}.properties[metadata].type", metadata["type"], "must be object"))
        said = {key for key, value in metadata.items() if value and key not in ("type", "properties")}
        if said or not set(metadata.get("properties") or ()) <= {"name", "generateName"}:
            detail = "must not specify anything other than name and generateName, but metadata is implicitly specified"
            found.append(forbidden(f"{path}.properties[metadata]", detail))
    return found


def _node(schema: Json, path: str) -> list[Cause]:
    """Validate a part of the schema that describes values."""
    found = _keywords(schema, path)
    kind = schema.get("type")
    int_or_string = bool(schema.get("x-kubernetes-int-or-string"))
    preserves = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    if kind is not None and kind not in _TYPES:
        found.append(not_supported(f"{path}.type", kind, _TYPES))
    if kind == "array" and schema.get("items") is None:
        found.append(required(f"{path}.items", "must be specified"))
    if schema.get("x-kubernetes-embedded-resource"):
        found += _embedded(schema, path, preserves)
    found += _lists_and_maps(schema, path)
    properties, additional, items = (
        schema.get("properties") or {},
        schema.get("additionalProperties"),
        schema.get("items"),
    )
    if properties and isinstance(additional, Mapping):
        detail = "additionalProperties and properties are mutual exclusive"
        found.append(forbidden(f"{path}.additionalProperties", detail))
    for name, child in properties.items():
        found += _child(child, f"{path}.properties[{name}]", "must not be empty for specified object fields")
    if isinstance(additional, Mapping):
        found += _child(additional, f"{path}.additionalProperties", "must not be empty for specified object fields")
    if isinstance(items, Mapping):
        found += _child(items, f"{path}.items", "must not be empty for specified array items")
    elif isinstance(items, list):
        found.append(forbidden(f"{path}.items", "items must be a schema object and not an array"))
    for keyword in ("allOf", "anyOf", "oneOf"):
        parts = schema.get(keyword) or ()
        if int_or_string and (list(parts) in _INT_OR_STRING or (keyword == "allOf" and _is_wrapped(parts))):
            continue
        for index, part in enumerate(parts):
            found += _constraint(part, f"{path}.{keyword}[{index}]")
    if schema.get("not") is not None:
        found += _constraint(schema["not"], f"{path}.not")
    if schema.get("default") is not None and not found:
        found += _default(schema, f"{path}.default")
    return found


def _is_wrapped(parts: Any) -> bool:
    """``allOf: [{anyOf: [integer, string]}, ...]``: the form with a further constraint."""
    return bool(parts) and list(parts[0].get("anyOf") or ()) in _INT_OR_STRING


def _child(schema: Json, path: str, why: str) -> list[Cause]:
    typed = schema.get("type") or schema.get("x-kubernetes-int-or-string")
    if not typed and not schema.get("x-kubernetes-preserve-unknown-fields") and not schema.get("$ref"):
        return [required(f"{path}.type", why)]
    return _node(schema, path)


def _keywords(schema: Json, path: str) -> list[Cause]:
    found = [forbidden(f"{path}.{name}", f"{name} is not supported") for name in _UNSUPPORTED if schema.get(name)]
    if schema.get("$ref"):
        found.append(forbidden(f"{path}.$ref", "$ref is not supported"))
    if schema.get("uniqueItems"):
        detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        found.append(forbidden(f"{path}.uniqueItems", detail))
    if schema.get("type") == "null":
        found.append(forbidden(f"{path}.type", "type cannot be set to null, use nullable as an alternative"))
    pattern = schema.get("pattern")
    if pattern:
        try:
            validation.compile_pattern(pattern)
        except re2.error as error:
            detail = f"must be a valid regular expression, but isn't: error parsing regexp: {_text(error)}"
            found.append(invalid(f"{path}.pattern", pattern, detail))
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        found.append(invalid(f"{path}.x-kubernetes-preserve-unknown-fields", False, "must be true or undefined"))
    for index, rule in enumerate(schema.get("x-kubernetes-validations") or ()):
        if not (rule.get("rule") or "").strip():
            found.append(required(f"{path}.x-kubernetes-validations[{index}].rule", "rule is not specified"))
    return found


def _text(error: Exception) -> str:
    text = error.args[0] if error.args else ""
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)


def _embedded(schema: Json, path: str, preserves: bool) -> list[Cause]:
    found: list[Cause] = []
    if not schema.get("properties") and not preserves:
        detail = (
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"
        )
        found.append(required(f"{path}.properties", detail))
    if schema.get("type") != "object":
        detail = "must be object if x-kubernetes-embedded-resource is true"
        found.append(invalid(f"{path}.type", schema.get("type") or "", detail))
    return found


def _lists_and_maps(schema: Json, path: str) -> list[Cause]:
    found: list[Cause] = []
    kind, list_type, map_type = (schema.get(key) for key in ("type", "x-kubernetes-list-type", "x-kubernetes-map-type"))
    if list_type is not None:
        if kind != "array":
            found.append(invalid(f"{path}.type", kind, "must be array if x-kubernetes-list-type is specified"))
        if list_type not in ("atomic", "set", "map"):
            found.append(not_supported(f"{path}.x-kubernetes-list-type", list_type, ("atomic", "set", "map")))
    if map_type is not None:
        if kind != "object":
            found.append(invalid(f"{path}.type", kind, "must be object if x-kubernetes-map-type is specified"))
        if map_type not in ("atomic", "granular"):
            found.append(not_supported(f"{path}.x-kubernetes-map-type", map_type, ("atomic", "granular")))
    items = schema.get("items") if isinstance(schema.get("items"), Mapping) else {}
    if list_type == "set" and items and not _is_atomic(items):
        keyword = "x-kubernetes-map-type" if items.get("type") == "object" else "x-kubernetes-list-type"
        detail = "must be atomic as item of a list with x-kubernetes-list-type=set"
        found.append(invalid(f"{path}.items.{keyword}", items.get(keyword), detail))
    keys = schema.get("x-kubernetes-list-map-keys") or []
    if list_type == "map":
        found += _map_list(items or {}, keys, path)
    elif keys:
        detail = "must be map if x-kubernetes-list-map-keys is non-empty"
        found.append(invalid(f"{path}.x-kubernetes-list-type", list_type, detail))
    return found


def _is_atomic(items: Json) -> bool:
    if items.get("type") == "object":
        return items.get("x-kubernetes-map-type") == "atomic"
    return items.get("type") != "array" or items.get("x-kubernetes-list-type") in (None, "atomic")


def _map_list(items: Json, keys: list[str], path: str) -> list[Cause]:
    keys_path = f"{path}.x-kubernetes-list-map-keys"
    if not keys:
        return [required(keys_path, "must not be empty if x-kubernetes-list-type is map")]
    if items.get("type") != "object":
        detail = "must be object if parent array's x-kubernetes-list-type is map"
        return [invalid(f"{path}.items.type", items.get("type") or "", detail)]
    properties = items.get("properties") or {}
    found: list[Cause] = []
    if not set(keys) <= set(properties):
        found.append(invalid(keys_path, list(keys), "entries must all be names of item properties"))
    if len(set(keys)) != len(keys):
        found.append(invalid(keys_path, list(keys), "must not contain duplicate entries"))
    for key in keys:
        schema = properties.get(key) or {}
        place = f"{path}.items.properties[{key}]"
        if schema.get("type") in ("object", "array"):
            detail = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            found.append(invalid(f"{place}.type", schema["type"], detail))
        if key in properties and schema.get("default") is None and key not in (items.get("required") or ()):
            detail = (
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
            )
            found.append(required(f"{place}.default", detail))
        if schema.get("nullable"):
            detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable"
            found.append(forbidden(f"{place}.nullable", detail))
    return found


def _constraint(schema: Json, path: str) -> list[Cause]:
    """Validate a part of anyOf, allOf, oneOf or not."""
    found = _keywords(schema, path)
    for keyword in _ONLY_STRUCTURAL:
        if schema.get(keyword):
            must = "undefined" if keyword in ("default", "additionalProperties") else "empty"
            if keyword.startswith("x-kubernetes") or keyword == "nullable":
                must = "false" if isinstance(schema[keyword], bool) else "empty"
            found.append(forbidden(f"{path}.{keyword}", f"must be {must} to be structural"))
    for name, child in (schema.get("properties") or {}).items():
        found += _constraint(child, f"{path}.properties[{name}]")
    if isinstance(schema.get("items"), Mapping):
        found += _constraint(schema["items"], f"{path}.items")
    for keyword in ("allOf", "anyOf", "oneOf"):
        for index, part in enumerate(schema.get(keyword) or ()):
            found += _constraint(part, f"{path}.{keyword}[{index}]")
    return found + (_constraint(schema["not"], f"{path}.not") if schema.get("not") is not None else [])


def _default(schema: Json, path: str) -> list[Cause]:
    """A default must itself be valid."""
    default = schema["default"]
    unknown: list[FieldPath] = []
    pruner = compile_pruner(schema)
    if pruner is not None:
        pruner(default, None, unknown)
    if unknown:
        return [invalid(path, default, "must not have unknown fields")]
    defaulter = compile_defaulter(schema)
    faults: list[Fault] = []
    validate = validation.compile_validator({key: value for key, value in schema.items() if key != "default"})
    validate(default if defaulter is None else defaulter(default), None, faults)
    return [Cause(fault.cause.reason, fault.cause.message, _under(path, fault.cause.field)) for fault in faults]


def _under(path: str, field: str) -> str:
    if field.startswith("<"):
        return field
    return f"{path}.{field}" if field else path
