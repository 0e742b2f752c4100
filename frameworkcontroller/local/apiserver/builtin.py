"""Decoding objects: what a request body may and may not say, for built-in kinds and for custom resources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from frameworkcontroller.local.apiserver.causes import Cause
from frameworkcontroller.local.apiserver.schema import Structural
from frameworkcontroller.local.apiserver.served import ServedType
from frameworkcontroller.local.apiserver.typegraph import Type

FieldValidation = Literal["Ignore", "Warn", "Strict"]
"""The ``fieldValidation`` of a request (a request without one means Warn)."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """A request's object as it goes on: of the right types, without fields that nobody knows."""

    obj: dict[str, Any]
    warnings: tuple[str, ...] = ()
    """For ``Warning: 299 - "..."`` headers."""


def type_of(t: ServedType) -> Type:
    """The shape of a built-in kind, or of a custom resource by its schema."""
    raise NotImplementedError


def decode(
    t: ServedType,
    obj: Any,
    *,
    validation: FieldValidation = "Warn",
    structural: Structural | None = None,
    raw: bytes | None = None,
) -> Decoded:
    """A parsed body as an object of ``t``: kind and apiVersion filled in, unknown fields dropped.

    ``structural`` is a custom resource's compiled schema. ``raw``, the JSON text, is searched for duplicate fields.
    Raises StatusError 400 for wrong types and, under Strict, for unknown and duplicate fields.
    """
    raise NotImplementedError


def default(t: ServedType, obj: Mapping[str, Any]) -> dict[str, Any]:
    """``obj`` with the defaults of a built-in kind (of custom resources: see ``Structural.default``)."""
    raise NotImplementedError


def causes_on_create(t: ServedType, obj: Mapping[str, Any]) -> list[Cause]:
    """What is wrong with a new, defaulted object of a built-in kind or with the metadata of a custom resource."""
    raise NotImplementedError


def causes_on_update(t: ServedType, new: Mapping[str, Any], old: Mapping[str, Any]) -> list[Cause]:
    """What is wrong with ``new`` in place of ``old``: as on create, and what may not change."""
    raise NotImplementedError
