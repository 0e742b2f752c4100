"""The shape of an API type, from whatever it was learnt.

Built-in kinds give one from their client models, custom resources one from their structural schema. Strategic merge
patch, server-side apply, strict decoding and OpenAPI all read this one description.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Shape(Enum):
    """What a value of a type is in JSON."""

    OBJECT = "object"
    """Fields of given names."""
    MAP = "map"
    """Free keys, values of one type."""
    LIST = "list"
    SCALAR = "scalar"
    ANY = "any"
    """Free-form: nothing is known about what is inside. Its objects are taken for maps, its lists for atomic ones."""


class Ownership(Enum):
    """How server-side apply divides a list or map between managers."""

    ATOMIC = "atomic"
    """One manager owns all of it."""
    GRANULAR = "granular"
    """A map or object: each key is owned for itself."""
    SET = "set"
    """A list of scalars: each value is owned for itself."""
    KEYED = "map"
    """A list of objects: each item, found by its keys, is owned for itself."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an object type."""

    type: Type
    patch_merge: bool = False
    """Strategic merge: a list is merged item by item, not replaced."""
    patch_key: str = ""
    """Strategic merge: the item field that identifies an item (empty for a list of scalars)."""
    patch_retain_keys: bool = False
    """Strategic merge: ``$retainKeys`` is honoured (a union of which one member is set)."""
    required: bool = False
    description: str = ""


class Type:
    """One node of the graph. Fields are made when first asked for: a Pod's graph is large and, in places, endless."""

    __slots__ = (
        "_fields",
        "element",
        "format",
        "key_defaults",
        "keys",
        "kind",
        "name",
        "open",
        "ownership",
        "shape",
    )

    def __init__(
        self,
        shape: Shape,
        *,
        name: str = "",
        kind: str = "",
        format: str = "",  # noqa: A002 -- the JSON schema keyword
        fields: Callable[[], Mapping[str, Field]] | None = None,
        element: Type | None = None,
        ownership: Ownership = Ownership.ATOMIC,
        keys: tuple[str, ...] = (),
        key_defaults: Mapping[str, Any] | None = None,
        open: bool = False,  # noqa: A002 -- the opposite of a closed set of fields
    ) -> None:
        """``name`` is the Go name (``PodSpec``), ``kind`` a scalar's JSON type (``string``, ``integer``, ...).

        ``key_defaults`` are the values of keys that an item of a keyed list does not name. An ``open`` object may have
        more fields than those that are known.
        """
        self.shape = shape
        self.name = name
        self.kind = kind
        self.format = format
        self.element = element
        self.ownership = ownership
        self.keys = keys
        self.key_defaults: Mapping[str, Any] = key_defaults or {}
        self.open = open
        self._fields: Callable[[], Mapping[str, Field]] | Mapping[str, Field] = fields or {}

    @property
    def fields(self) -> Mapping[str, Field]:
        """An object type's fields by JSON name."""
        if callable(self._fields):
            self._fields = self._fields()
        return self._fields


ANY = Type(Shape.ANY)
"""A type about which nothing is known."""
