"""Structural schemas: defaulting, pruning and validation of custom resources.

A schema is compiled once into closures. They copy on write: an object that needs no change is returned itself, and
arguments are not modified.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from frameworkcontroller.local.apiserver import defaulting, pruning, schema_types, validation
from frameworkcontroller.local.apiserver.field_path import FieldPath, show
from frameworkcontroller.local.apiserver.status_causes import Cause
from frameworkcontroller.local.apiserver.typegraph import Type
from frameworkcontroller.local.apiserver.validation import Fault


class Structural:
    """An ``openAPIV3Schema`` (apiextensions.k8s.io/v1), compiled."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """``schema`` is one in which ``crd_validation.causes`` finds no fault."""
        self._pruner = pruning.compile_pruner(schema, resource=True)
        self._defaulter = defaulting.compile_defaulter(schema)
        self._validator = validation.compile_validator(schema, resource=True)
        self._list_sets = validation.compile_list_sets(schema)
        self.type: Type = schema_types.resource_type(schema)
        """The described type, for server-side apply."""

    def default(self, obj: Any) -> Any:
        """Set missing fields to their defaults, and drop nulls in fields that are not nullable."""
        return obj if self._defaulter is None else self._defaulter(obj)

    def prune(self, obj: Any) -> tuple[Any, list[str]]:
        """Drop fields that the schema does not declare; also return their paths (``spec.foo[0].bar``)."""
        if self._pruner is None:
            return obj, []
        unknown: list[FieldPath] = []
        pruned = self._pruner(obj, None, unknown)
        return pruned, sorted(map(show, unknown))

    def validate(self, obj: Any, old: Any = None) -> list[Cause]:
        """Validate ``obj``.

        ``old`` is the replaced object (None on create). Faults in unchanged parts are ignored, as on real servers since
        1.30 (ratcheting): a stricter schema does not lock out existing objects.
        """
        faults: list[Fault] = []
        self._validator(obj, None, faults)
        if self._list_sets is not None:
            self._list_sets(obj, None, faults)
        if old is not None:
            faults = [fault for fault in faults if not validation.unchanged(fault, obj, old)]
        return [fault.cause for fault in faults]
