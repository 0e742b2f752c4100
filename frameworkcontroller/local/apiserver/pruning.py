"""Pruning: drops fields of a custom resource that its schema does not declare."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from frameworkcontroller.local.apiserver.field_path import FieldPath

Pruner = Callable[[Any, FieldPath, list[FieldPath]], Any]
"""Returns a value without unknown fields (unchanged if there are none), and appends their paths to a list."""

_ROOT_FIELDS = ("apiVersion", "kind", "metadata")


def compile_pruner(schema: Mapping[str, Any], *, resource: bool = False) -> Pruner | None:
    """Compile the pruner of ``schema``; None if nothing can be dropped.

    ``resource``: the schema describes a whole object (the root, or an embedded resource), whose apiVersion, kind and
    metadata need no declaration.
    """
    if schema.get("x-kubernetes-int-or-string"):
        return None
    resource = resource or bool(schema.get("x-kubernetes-embedded-resource"))
    items = schema.get("items")
    if isinstance(items, Mapping):
        item_pruner = compile_pruner(items)
        return None if item_pruner is None else _list_pruner(item_pruner)
    if schema.get("type") not in ("object", None):
        return None
    known: dict[str, Pruner | None] = {
        name: compile_pruner(child) for name, child in (schema.get("properties") or {}).items()
    }
    if resource:
        known.update(dict.fromkeys(_ROOT_FIELDS))
    additional = schema.get("additionalProperties")
    if isinstance(additional, Mapping):
        value_pruner = compile_pruner(additional)
        return None if value_pruner is None else _map_pruner(value_pruner)
    if schema.get("x-kubernetes-preserve-unknown-fields") or additional is True:
        nested = {name: pruner for name, pruner in known.items() if pruner is not None}
        return _open_pruner(nested) if nested else None
    return _closed_pruner(known)


def _closed_pruner(known: Mapping[str, Pruner | None]) -> Pruner:
    names = frozenset(known)
    nested = [(name, pruner) for name, pruner in known.items() if pruner is not None]

    def prune(value: Any, where: FieldPath, unknown: list[FieldPath]) -> Any:
        if not isinstance(value, dict):
            return value
        result = value
        if not value.keys() <= names:
            result = {}
            for key, member in value.items():
                if key in names:
                    result[key] = member
                else:
                    unknown.append((where, key))
        return _prune_members(result, value, nested, where, unknown)

    return prune


def _open_pruner(nested: Mapping[str, Pruner]) -> Pruner:
    pairs = list(nested.items())

    def prune(value: Any, where: FieldPath, unknown: list[FieldPath]) -> Any:
        return _prune_members(value, value, pairs, where, unknown) if isinstance(value, dict) else value

    return prune


def _prune_members(
    result: dict[str, Any],
    original: dict[str, Any],
    nested: list[tuple[str, Pruner]],
    where: FieldPath,
    unknown: list[FieldPath],
) -> dict[str, Any]:
    for name, pruner in nested:
        member = result.get(name)
        if member is not None:
            pruned = pruner(member, (where, name), unknown)
            if pruned is not member:
                if result is original:
                    result = dict(original)
                result[name] = pruned
    return result


def _map_pruner(pruner: Pruner) -> Pruner:
    def prune(value: Any, where: FieldPath, unknown: list[FieldPath]) -> Any:
        if not isinstance(value, dict):
            return value
        result = value
        for key, member in value.items():
            pruned = pruner(member, (where, key), unknown)
            if pruned is not member:
                if result is value:
                    result = dict(value)
                result[key] = pruned
        return result

    return prune


def _list_pruner(pruner: Pruner) -> Pruner:
    def prune(value: Any, where: FieldPath, unknown: list[FieldPath]) -> Any:
        if not isinstance(value, list):
            return value
        result = value
        for index, item in enumerate(value):
            pruned = pruner(item, (where, index), unknown)
            if pruned is not item:
                if result is value:
                    result = list(value)
                result[index] = pruned
        return result

    return prune
