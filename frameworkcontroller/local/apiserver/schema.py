"""Structural schemas: defaulting, pruning and validation of custom resources.

A schema is compiled once into closures. They copy on write: the object itself comes back when there was nothing to do,
and what was given is never changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from frameworkcontroller.local.apiserver.causes import Cause
from frameworkcontroller.local.apiserver.typegraph import Type


class Structural:
    """An ``openAPIV3Schema`` (apiextensions.k8s.io/v1), compiled."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """``schema`` is one that ``crd.causes`` found no fault with."""
        raise NotImplementedError

    @property
    def type(self) -> Type:
        """The type it describes, for server-side apply and OpenAPI."""
        raise NotImplementedError

    def default(self, obj: Any) -> Any:
        """``obj`` with absent fields set to their defaults (and a null dropped where a default stands in for it)."""
        raise NotImplementedError

    def prune(self, obj: Any) -> tuple[Any, list[str]]:
        """``obj`` without the fields that the schema does not know, and the paths of those (``spec.foo[0].bar``)."""
        raise NotImplementedError

    def validate(self, obj: Any, old: Any = None) -> list[Cause]:
        """What is wrong with ``obj``; ``old`` is what it replaces (None on create), for transition rules."""
        raise NotImplementedError
