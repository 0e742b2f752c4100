"""Sets of fields for server-side apply: the tree behind ``fieldsV1``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

FIELD, KEYS, VALUE = "f:", "k:", "v:"
"""Prefixes of a path step: a field or map key, the keys of a list item, the value of a list item."""


class FieldSet:
    """An immutable set of paths relative to one node; parts may be shared."""

    __slots__ = ("children", "member")

    def __init__(self, *, member: bool = False, children: Mapping[str, FieldSet] | None = None) -> None:
        """``member``: the node itself is in the set."""
        self.member = member
        self.children: Mapping[str, FieldSet] = children or {}

    def __bool__(self) -> bool:
        return self.member or bool(self.children)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FieldSet) and self.member == other.member and self.children == other.children

    __hash__ = None  # type: ignore[assignment]  # compared by content, and never a key

    @classmethod
    def parse(cls, fields_v1: Mapping[str, Any]) -> FieldSet:
        """Parse a ``fieldsV1``. Raises ValueError if it is invalid."""
        return _parse(fields_v1, root=True)

    def fields_v1(self) -> dict[str, Any]:
        """Format as ``fieldsV1``, sorted."""
        if not self.children:
            return {}
        body: dict[str, Any] = {".": {}} if self.member else {}
        for step in sorted(self.children):
            body[step] = self.children[step].fields_v1()
        return body

    def union(self, other: FieldSet) -> FieldSet:
        """The union of two sets."""
        if self is other or not other:
            return self
        if not self:
            return other
        children = dict(self.children)
        for step, child in other.children.items():
            mine = children.get(step)
            children[step] = child if mine is None else mine.union(child)
        return FieldSet(member=self.member or other.member, children=children)

    def difference(self, other: FieldSet) -> FieldSet:
        """The paths in this set but not in the other."""
        if not other or not self:
            return self
        children = {}
        for step, child in self.children.items():
            theirs = other.children.get(step)
            left = child if theirs is None else child.difference(theirs)
            if left:
                children[step] = left
        return FieldSet(member=self.member and not other.member, children=children)

    def intersection(self, other: FieldSet) -> FieldSet:
        """The paths in both sets."""
        children = {}
        for step, child in self.children.items():
            theirs = other.children.get(step)
            common = child.intersection(theirs) if theirs is not None else NOTHING
            if common:
                children[step] = common
        return FieldSet(member=self.member and other.member, children=children)

    def without(self, *path: str) -> FieldSet:
        """The set without a node and its descendants."""
        child = self.children.get(path[0])
        if child is None:
            return self
        children = dict(self.children)
        left = child.without(*path[1:]) if len(path) > 1 else NOTHING
        if left:
            children[path[0]] = left
        else:
            del children[path[0]]
        return FieldSet(member=self.member, children=children)

    def only(self, step: str) -> FieldSet:
        """The part of the set below one step."""
        child = self.children.get(step)
        return NOTHING if child is None else FieldSet(children={step: child})

    def paths(self, prefix: str = "") -> Iterator[str]:
        """Every path, as in conflict messages: ``.spec.containers[name="a"].image``."""
        if self.member:
            yield prefix or "."
        for step in sorted(self.children):
            yield from self.children[step].paths(prefix + _shown(step))


NOTHING = FieldSet()
PLACE = FieldSet(member=True)
"""The node itself, without descendants."""


def _parse(node: Any, *, root: bool) -> FieldSet:
    if not isinstance(node, Mapping):
        raise ValueError(f"not a set of fields: {node!r}")
    children = {step: _parse(child, root=False) for step, child in node.items() if step != "."}
    for step in children:
        if not step.startswith((FIELD, KEYS, VALUE, "i:")):
            raise ValueError(f"not a step of a path: {step!r}")
    return FieldSet(member=not root and (not children or "." in node), children=children)


def _shown(step: str) -> str:
    if step.startswith(KEYS):
        keys = orjson.loads(step[2:])
        return "[" + ",".join(f"{key}={orjson.dumps(keys[key]).decode()}" for key in sorted(keys)) + "]"
    if step.startswith(VALUE):
        return f"[={step[2:]}]"
    return f".{step[2:]}" if step.startswith(FIELD) else f"[{step[2:]}]"
