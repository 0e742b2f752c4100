"""Kubernetes' strategic merge patch: a merge patch that merges certain lists by the key of their items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from frameworkcontroller.local.apiserver import api_errors, status_causes
from frameworkcontroller.local.apiserver.api_errors import ApiStatusError
from frameworkcontroller.local.apiserver.patches import json_type
from frameworkcontroller.local.apiserver.typegraph import ANY, Field, Shape, Type

_PATCH = "$patch"
_RETAIN_KEYS = "$retainKeys"
_DELETE_FROM = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"

_UNKNOWN_FIELD = Field(ANY)


def strategic_merge_patch(document: Mapping[str, Any], patch: Any, of: Type) -> Any:
    """Apply a strategic merge patch to ``document`` of type ``of``; arguments are not modified.

    Raises StatusError: 400 if the patch is not an object or contradicts its ``$retainKeys``, 422 if a list is patched
    with another type, 500 (as the real server) for other invalid directives.
    """
    if patch is None:
        return document
    if not isinstance(patch, Mapping):
        raise api_errors.bad_request(
            f"json: cannot unmarshal {json_type(patch)} into Go value of type map[string]interface {{}}"
        )
    _check_lists(patch, patch, of)
    return _merge_object(document, patch, of)


def _merge_object(original: Mapping[str, Any], patch: Mapping[str, Any], of: Type) -> dict[str, Any]:
    match patch.get(_PATCH):
        case None:
            pass
        case "replace":
            return _cleaned_object(patch)
        case "delete":
            return {}
        case other:
            raise _unknown_directive(other, patch)
    result = _retained(original, patch)
    for key, value in patch.items():
        if key.startswith(_DELETE_FROM):
            name = key[len(_DELETE_FROM) :]
            if isinstance(result.get(name), list) and isinstance(value, list):
                result[name] = [item for item in result[name] if item not in value]
    for key, value in patch.items():
        if _is_directive(key):
            continue
        if value is None:
            result.pop(key, None)
            continue
        field = _field(of, key)
        current = result.get(key)
        if isinstance(value, Mapping):
            result[key] = _merge_object(current if isinstance(current, Mapping) else {}, value, field.type)
        elif isinstance(value, list) and field.patch_merge:
            before = current if isinstance(current, list) else []
            merged = _merge_list(before, value, field)
            live = original.get(key)
            if not _replaces(value):
                order = patch.get(_ORDER + key)
                merged = _ordered(merged, _order(value, order), live if isinstance(live, list) else [], field)
            result[key] = merged
        else:
            result[key] = _cleaned(value)
    for key, order in patch.items():
        name = key[len(_ORDER) :]
        if key.startswith(_ORDER) and name not in patch and isinstance(result.get(name), list):
            field = _field(of, name)
            if field.patch_merge and isinstance(order, list):
                live = original.get(name)
                result[name] = _ordered(result[name], order, live if isinstance(live, list) else [], field)
    return result


def _field(of: Type, name: str) -> Field:
    if of.shape is Shape.OBJECT:
        return of.fields.get(name, _UNKNOWN_FIELD)
    if of.shape is Shape.MAP and of.element is not None:
        return Field(of.element)
    return _UNKNOWN_FIELD


def _retained(original: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Copy ``original`` with only the union members that ``$retainKeys`` keeps."""
    keys = patch.get(_RETAIN_KEYS)
    if keys is None:
        return dict(original)
    set_here = {key for key, value in patch.items() if not key.startswith("$") and value is not None}
    if not isinstance(keys, list) or not set_here <= set(keys):
        raise api_errors.bad_request("invalid patch format of retainKeys")
    return {key: value for key, value in original.items() if key in keys}


def _merge_list(original: list[Any], patch: list[Any], field: Field) -> list[Any]:
    if not field.patch_key:
        if any(isinstance(item, Mapping | list) for item in patch):
            raise _fault(f"list element types are not identical: {_go([original, patch])}")
        return list(dict.fromkeys([*original, *patch]))
    if _replaces(patch):
        return [_cleaned(item) for item in patch if _PATCH not in item]
    result = list(original)
    element = field.type.element or ANY
    for item in patch:
        if not isinstance(item, Mapping):
            raise _fault(f"list element types are not identical: {_go([original, patch])}")
        if field.patch_key not in item:
            raise _fault(f"map: {_go(item)} does not contain declared merge key: {field.patch_key}")
        at = _position(result, item[field.patch_key], field.patch_key)
        directive = item.get(_PATCH)
        if directive == "delete":
            if at is not None:
                del result[at]
        elif directive is not None:
            raise _unknown_directive(directive, item)
        elif at is None:
            result.append(_merge_object({}, item, element))
        else:
            result[at] = _merge_object(result[at], item, element)
    return result


def _replaces(patch: list[Any]) -> bool:
    """Whether a list in a patch replaces instead of merging."""
    return any(isinstance(item, Mapping) and item.get(_PATCH) == "replace" for item in patch)


def _order(patch: list[Any], order: Any) -> Sequence[Any]:
    """The patch's order: its list's, or ``$setElementOrder``, which must be consistent with it."""
    kept = [item for item in patch if not (isinstance(item, Mapping) and item.get(_PATCH) == "delete")]
    if not isinstance(order, list):
        return kept
    rest = iter(order)
    if not all(any(_agrees(item, wanted) for wanted in rest) for item in kept):
        raise _fault(
            f"The order in patch list:\n{_go(patch)}\n doesn't match {_ORDER.rstrip('/')} list:\n{_go(order)}\n"
        )
    return order


def _agrees(item: Any, wanted: Any) -> bool:
    """Whether an entry of ``$setElementOrder`` (an object with only the merge key) refers to ``item``."""
    if isinstance(item, Mapping) and isinstance(wanted, Mapping):
        return all(item.get(key) == value for key, value in wanted.items())
    return bool(item == wanted)


def _ordered(items: list[Any], wanted: Sequence[Any], live: list[Any], field: Field) -> list[Any]:
    """Sort ``items``: those in the patch in its order, the others before their successors in ``live``."""
    key = field.patch_key
    ranks = {_identity(item, key): rank for rank, item in reversed(list(enumerate(wanted)))}
    places = {_identity(item, key): place for place, item in reversed(list(enumerate(live)))}
    named = sorted((i for i in items if _identity(i, key) in ranks), key=lambda i: ranks[_identity(i, key)])
    others = [item for item in items if _identity(item, key) not in ranks]
    result: list[Any] = []
    waiting = iter(named)
    ahead = next(waiting, None)
    for other in others:
        place = places.get(_identity(other, key), -1)
        while ahead is not None and not place < places.get(_identity(ahead, key), -1):
            result.append(ahead)
            ahead = next(waiting, None)
        result.append(other)
    if ahead is not None:
        result.extend([ahead, *waiting])
    return result


def _identity(item: Any, key: str) -> Any:
    value = item.get(key) if key and isinstance(item, Mapping) else item
    return _go(value) if isinstance(value, Mapping | list) else value


def _position(items: list[Any], value: Any, key: str) -> int | None:
    for index, item in enumerate(items):
        if isinstance(item, Mapping) and key in item and item[key] == value:
            return index
    return None


def _cleaned(value: Any) -> Any:
    """Remove directives and nulls, which have no meaning in a new value."""
    if isinstance(value, Mapping):
        if value.get(_PATCH) == "delete":
            return {}
        return {
            key: _cleaned(member)
            for key, member in value.items()
            if member is not None and key not in (_PATCH, _RETAIN_KEYS) and not key.startswith((_DELETE_FROM, _ORDER))
        }
    if isinstance(value, list):
        return [
            _cleaned(item)
            for item in value
            if not (isinstance(item, Mapping) and item.get(_PATCH) in ("delete", "replace"))
        ]
    return value


def _cleaned_object(value: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _cleaned(member) for key, member in value.items() if member is not None and not _is_directive(key)}


def _is_directive(key: str) -> bool:
    return key.startswith("$") and (key in (_PATCH, _RETAIN_KEYS) or key.startswith((_DELETE_FROM, _ORDER)))


def _check_lists(whole: Mapping[str, Any], patch: Mapping[str, Any], of: Type) -> None:
    """Check that lists are patched with lists; the real server finds this when it decodes the patch."""
    if of.shape is not Shape.OBJECT:
        return
    for key, value in patch.items():
        field = of.fields.get(key)
        if field is None or value is None:
            continue
        if field.type.shape is Shape.LIST:
            if not isinstance(value, list):
                kind = "map" if isinstance(value, Mapping) else json_type(value)
                raise api_errors.invalid_patch(
                    [status_causes.invalid("patch", _go(whole), f"cannot restore slice from {kind}")]
                )
            element = field.type.element or ANY
            for item in value:
                if isinstance(item, Mapping):
                    _check_lists(whole, item, element)
        elif isinstance(value, Mapping):
            _check_lists(whole, value, field.type)


def _unknown_directive(directive: Any, patch: Mapping[str, Any]) -> ApiStatusError:
    return _fault(f"unknown patch type: {_go(directive)} in map: {_go(patch)}")


def _fault(message: str) -> ApiStatusError:
    # The real server passes these on as a 500 without a reason.
    return ApiStatusError(500, "", message)


def _go(value: Any) -> str:
    """Format a value as Go's ``%v``."""
    if isinstance(value, Mapping):
        return "map[" + " ".join(f"{key}:{_go(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(map(_go, value)) + "]"
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
