"""Typed values for server-side apply: merging, comparing, and ownership.

An object or map is divided into its fields, a list with keys into its items, a list that is a set into its values;
everything else is atomic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from frameworkcontroller.local.apiserver.fieldsets import FIELD, KEYS, NOTHING, PLACE, VALUE, FieldSet
from frameworkcontroller.local.apiserver.typegraph import ANY, Ownership, Shape, Type


class _Absent:
    """The value of a missing part."""


ABSENT: Final = _Absent()


def divides(of: Type, value: Any) -> bool:
    """Whether the value is owned in parts."""
    if isinstance(value, Mapping):
        return of.shape is Shape.ANY or (of.shape in (Shape.OBJECT, Shape.MAP) and of.ownership is not Ownership.ATOMIC)
    return isinstance(value, list) and of.shape is Shape.LIST and of.ownership in (Ownership.SET, Ownership.KEYED)


def parts(of: Type, value: Any) -> dict[str, tuple[Any, Type]]:
    """The parts of a divisible value by path step; of equal list items, the last."""
    if isinstance(value, Mapping):
        return {FIELD + name: (member, member_type(of, name)) for name, member in value.items()}
    element = of.element or ANY
    return {step: (item, element) for step, item in _items(of, value)}


def member_type(of: Type, name: str) -> Type:
    """The type of an object's field or a map's value."""
    if of.shape is Shape.OBJECT:
        field = of.fields.get(name)
        return ANY if field is None else field.type
    return of.element or ANY


def _items(of: Type, value: list[Any]) -> Iterator[tuple[str, Any]]:
    for item in value:
        yield item_step(of, item), item


def item_step(of: Type, item: Any) -> str:
    """The path step of a list item: its value, or its keys with their defaults."""
    if of.ownership is Ownership.SET or not isinstance(item, Mapping):
        return VALUE + orjson.dumps(item, option=orjson.OPT_SORT_KEYS).decode()
    keys = {}
    for key in of.keys:
        value = item.get(key, of.key_defaults.get(key))
        if value is not None:
            keys[key] = value
    return KEYS + orjson.dumps(keys, option=orjson.OPT_SORT_KEYS).decode()


def owned(value: Any, of: Type) -> FieldSet:
    """The paths owned by the manager that applies ``value``: leaves, list items, and map keys."""
    if not divides(of, value):
        return PLACE
    children = {}
    for step, (part, part_type) in parts(of, value).items():
        child = owned(part, part_type)
        # A declared field is not owned besides its content; a key or an item exists only because it was applied.
        if not _is_declared(of, step) or part is None or part == {}:
            child = child.union(PLACE)
        if child:
            children[step] = child
    return FieldSet(children=children)


def _is_declared(of: Type, step: str) -> bool:
    return of.shape is Shape.OBJECT and step[2:] in of.fields


def everything(value: Any, of: Type) -> FieldSet:
    """Every path in a value, including its root."""
    if not divides(of, value):
        return PLACE
    found = {step: everything(part, part_type) for step, (part, part_type) in parts(of, value).items()}
    return FieldSet(member=True, children=found)


class Difference:
    """The paths added, modified and removed by a change."""

    __slots__ = ("added", "modified", "removed")

    def __init__(self, added: FieldSet, modified: FieldSet, removed: FieldSet) -> None:
        self.added = added
        self.modified = modified
        self.removed = removed

    def __bool__(self) -> bool:
        return bool(self.added or self.modified or self.removed)

    @property
    def written(self) -> FieldSet:
        """The paths with a new value."""
        return self.added.union(self.modified)


_SAME = Difference(NOTHING, NOTHING, NOTHING)


def compare(old: Any, new: Any, of: Type) -> Difference:
    """Compare two values; either may be ABSENT."""
    if old is ABSENT:
        return Difference(everything(new, of), NOTHING, NOTHING)
    if new is ABSENT:
        return Difference(NOTHING, NOTHING, everything(old, of))
    if old == new:
        return _SAME
    if not divides(of, old) or not divides(of, new) or isinstance(old, list) != isinstance(new, list):
        return Difference(NOTHING, PLACE, NOTHING)
    before, after = parts(of, old), parts(of, new)
    found: dict[str, dict[str, FieldSet]] = {"added": {}, "modified": {}, "removed": {}}
    for step in before.keys() | after.keys():
        was, part_type = before.get(step, (ABSENT, ANY))
        now, part_type = after.get(step, (ABSENT, part_type))
        difference = compare(was, now, part_type)
        if difference.added:
            found["added"][step] = difference.added
        if difference.modified:
            found["modified"][step] = difference.modified
        if difference.removed:
            found["removed"][step] = difference.removed
    return Difference(*(FieldSet(children=children) for children in found.values()))


def merge(live: Any, applied: Any, of: Type) -> Any:
    """Merge the applied value into ``live``: other parts stay, lists with keys merge by item."""
    if live is ABSENT or not divides(of, applied) or not divides(of, live) or type(live) is not type(applied):
        return applied
    if isinstance(applied, Mapping):
        result = dict(live)
        for name, member in applied.items():
            result[name] = merge(live.get(name, ABSENT), member, member_type(of, name))
        return result
    return _merge_lists(live, applied, of)


def _merge_lists(live: list[Any], applied: list[Any], of: Type) -> list[Any]:
    """The applied items in their order, and each other live item before its successor."""
    element = of.element or ANY
    ours, theirs = dict(_items(of, live)), dict(_items(of, applied))
    standing = list(ours)
    result: list[Any] = []
    done: set[str] = set()
    at = 0
    for step, item in theirs.items():
        while at < len(standing) and (standing[at] not in theirs or standing[at] in done):
            if standing[at] not in theirs:
                result.append(ours[standing[at]])
            at += 1
        result.append(merge(ours.get(step, ABSENT), item, element))
        done.add(step)
    return result + [ours[step] for step in standing[at:] if step not in theirs]


def prune(value: Any, dropped: FieldSet, kept: FieldSet, of: Type) -> Any:
    """Remove the paths in ``dropped`` except those in ``kept``, and containers that become empty.

    A list item or map key is removed as a whole: the owner of only a part cannot keep it. A declared field stays while
    part of it is kept. ABSENT if nothing is left.
    """
    if not divides(of, value):
        return value
    gone: dict[str, Any] = {}
    for step, (part, part_type) in parts(of, value).items():
        drop = dropped.children.get(step)
        if drop is None:
            continue
        keep = kept.children.get(step, NOTHING)
        if drop.member and not keep.member and not (keep and _is_declared(of, step)):
            gone[step] = ABSENT
            continue
        left = prune(part, drop, keep, part_type)
        if left in ({}, []) and part != left and not keep:
            left = ABSENT
        if left is not part:
            gone[step] = left
    if not gone:
        return value
    if isinstance(value, Mapping):
        changed = {name: gone.get(FIELD + name, member) for name, member in value.items()}
        return {name: member for name, member in changed.items() if member is not ABSENT}
    items = [gone.get(step, item) for step, item in _items(of, value)]
    return [item for item in items if item is not ABSENT]


def check(value: Any, of: Type, path: str = "") -> str:
    """Why a value is not of the type, in the words of the real server's apply; empty if it is."""
    if value is None or of.shape is Shape.ANY:
        return ""
    if of.shape is Shape.SCALAR:
        return _check_scalar(value, of, path)
    if of.shape is Shape.LIST:
        return _check_list(value, of, path)
    if not isinstance(value, Mapping):
        return f"{path}: expected map, got {_got(value)}"
    faults = []
    for name, member in value.items():
        if of.shape is Shape.OBJECT and not of.open and name not in of.fields:
            faults.append(f"{path}.{name}: field not declared in schema")
        else:
            fault = check(member, member_type(of, name), f"{path}.{name}")
            if fault:
                faults.append(fault)
    return "\n".join(faults)


def _check_list(value: Any, of: Type, path: str) -> str:
    if not isinstance(value, list):
        return f"{path}: expected list, got {_got(value)}"
    element = of.element or ANY
    if of.ownership is Ownership.ATOMIC:
        # Atomic, so only its items' content is checked.
        return "\n".join(filter(None, (check(item, element, f"{path}[{i}]") for i, item in enumerate(value))))
    seen = set()
    faults = []
    for item in value:
        step = item_step(of, item)
        shown = "".join(FieldSet(children={step: PLACE}).paths())
        if step in seen:
            faults.append(f"{path}: duplicate entries for key {shown}")
        seen.add(step)
        fault = check(item, element, path + shown)
        if fault:
            faults.append(fault)
    return "\n".join(faults)


def _check_scalar(value: Any, of: Type, path: str) -> str:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if of.format in ("int-or-string", "quantity"):
        good, wanted = number or isinstance(value, str), "string"
    elif of.kind == "string":
        good, wanted = isinstance(value, str), "string"
    elif of.kind == "boolean":
        good, wanted = isinstance(value, bool), "boolean"
    else:
        good, wanted = number, "numeric (int or float)"
    return "" if good else f"{path}: expected {wanted}, got {_got(value)}"


def _got(value: Any) -> str:
    if isinstance(value, str):
        return "string"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "int"
    return "float" if isinstance(value, float) else "list" if isinstance(value, list) else "map"
