"""The description of an API type, from any source.

Built-in kinds derive it from their client models, custom resources from their structural schema. Strategic merge patch,
server-side apply, strict decoding and OpenAPI all use it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Shape(Enum):
    """The JSON form of a type's values."""

    OBJECT = "object"
    """An object with declared fields."""
    MAP = "map"
    """A map of free keys to values of one type."""
    LIST = "list"
    SCALAR = "scalar"
    ANY = "any"
    """Free-form, with unknown content. Its objects are treated as maps, its lists as atomic."""


class Ownership(Enum):
    """How managers share a list or map in server-side apply."""

    ATOMIC = "atomic"
    """One manager owns all of it."""
    GRANULAR = "granular"
    """A map or object: each key has its own owners."""
    SET = "set"
    """A list of scalars: each value has its own owners."""
    KEYED = "map"
    """A list of objects: each item, identified by its keys, has its own owners."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an object type."""

    type: Type
    patch_merge: bool = False
    """Strategic merge: a list is merged by item instead of replaced."""
    patch_key: str = ""
    """Strategic merge: the field that identifies an item (empty for a list of scalars)."""
    patch_retain_keys: bool = False
    """Strategic merge: ``$retainKeys`` applies (a union with one member set)."""
    required: bool = False
    description: str = ""


class Type:
    """One node of the graph. Fields are created on demand: a Pod's graph is large and partly recursive."""

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

        ``key_defaults`` are defaults for the keys of a keyed list's items. An ``open`` object may have undeclared
        fields.
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
"""An unknown type."""
