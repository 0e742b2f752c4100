"""The type of a custom resource, from its structural schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from frameworkcontroller.local.apiserver import builtin_types
from frameworkcontroller.local.apiserver.typegraph import ANY, Field, Ownership, Shape, Type

_STRING = Type(Shape.SCALAR, kind="string")


def resource_type(schema: Mapping[str, Any]) -> Type:
    """The type of a custom resource's objects: the schema, plus apiVersion, kind and metadata."""
    declared = schema_type(schema)

    def fields() -> Mapping[str, Field]:
        return {
            **declared.fields,
            "apiVersion": Field(_STRING),
            "kind": Field(_STRING),
            "metadata": Field(builtin_types.object_meta()),
        }

    return Type(Shape.OBJECT, fields=fields, ownership=Ownership.GRANULAR, open=declared.open)


def schema_type(schema: Mapping[str, Any]) -> Type:
    """The type that a schema describes."""
    if schema.get("x-kubernetes-int-or-string"):
        return Type(Shape.SCALAR, kind="string", format="int-or-string")
    if schema.get("x-kubernetes-embedded-resource"):
        return resource_type({key: value for key, value in schema.items() if key != "x-kubernetes-embedded-resource"})
    items = schema.get("items")
    if isinstance(items, Mapping):
        return _list_type(schema, items)
    kind = schema.get("type")
    if kind not in ("object", None):
        return Type(Shape.SCALAR, kind=str(kind), format=schema.get("format") or "")
    atomic = schema.get("x-kubernetes-map-type") == "atomic"
    ownership = Ownership.ATOMIC if atomic else Ownership.GRANULAR
    additional = schema.get("additionalProperties")
    if isinstance(additional, Mapping):
        return Type(Shape.MAP, element=schema_type(additional), ownership=ownership)
    properties: Mapping[str, Any] = schema.get("properties") or {}
    preserves = bool(schema.get("x-kubernetes-preserve-unknown-fields")) or additional is True
    if not properties:
        # Undescribed objects are still owned field by field, and their lists as a whole.
        return Type(Shape.MAP, element=ANY, ownership=ownership) if kind == "object" else ANY
    required = frozenset(schema.get("required") or ())

    def fields() -> Mapping[str, Field]:
        return {
            name: Field(schema_type(child), required=name in required, description=child.get("description") or "")
            for name, child in properties.items()
        }

    return Type(Shape.OBJECT, fields=fields, ownership=ownership, open=preserves)


def _list_type(schema: Mapping[str, Any], items: Mapping[str, Any]) -> Type:
    list_type = schema.get("x-kubernetes-list-type")
    ownership = {"set": Ownership.SET, "map": Ownership.KEYED}.get(list_type or "", Ownership.ATOMIC)
    keys = tuple(schema.get("x-kubernetes-list-map-keys") or ()) if ownership is Ownership.KEYED else ()
    properties = items.get("properties") or {}
    defaults = {key: properties[key].get("default") for key in keys if key in properties}
    return Type(Shape.LIST, element=schema_type(items), ownership=ownership, keys=keys, key_defaults=defaults)
