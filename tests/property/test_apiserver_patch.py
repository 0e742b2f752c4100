"""Laws of the patch formats, over random documents."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameworkcontroller.local.apiserver import builtin, builtin_resources
from frameworkcontroller.local.apiserver.api_errors import ApiStatusError
from frameworkcontroller.local.apiserver.patches import json_patch, merge_patch, same
from frameworkcontroller.local.apiserver.strategic import strategic_merge_patch

Path = tuple[str | int, ...]

KEYS = st.sampled_from(["a", "b", "c/d", "e~f"])
SCALARS = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.0, 1.0]) | st.sampled_from(["", "x"])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=4)


def places(value: Any, at: Path = ()) -> list[Path]:
    found = [at] if at else []
    items: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    for step, member in items:
        found += places(member, (*at, step))
    return found


def pointer(path: Path) -> str:
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


def at(document: Any, path: Path) -> Any:
    for step in path:
        document = document[step]
    return document


@st.composite
def operations(draw: st.DrawFn, document: Any) -> dict[str, Any]:
    """Mostly sensible operations on the original document."""
    known = [*places(document), ("a",), ("a", "b"), ("a", 0), ("nowhere", "at", "all")]
    path = draw(st.sampled_from(known))
    match draw(st.sampled_from(["add", "remove", "replace", "test", "move", "copy"])):
        case "remove":
            return {"op": "remove", "path": pointer(path)}
        case "test":
            fits = path in places(document) and draw(st.booleans())
            return {"op": "test", "path": pointer(path), "value": at(document, path) if fits else draw(VALUES)}
        case "move" | "copy" as op:
            return {"op": op, "from": pointer(draw(st.sampled_from(known))), "path": pointer(path)}
        case op:
            return {"op": op, "path": pointer(path), "value": draw(VALUES)}


class Refused(Exception):
    """The oracle's: the operation does not apply."""


def oracle(document: Any, operation: dict[str, Any]) -> Any:
    """One operation by the letter of RFC 6902, on a copy of everything."""
    document = copy.deepcopy(document)

    def steps(text: str) -> list[str]:
        return [step.replace("~1", "/").replace("~0", "~") for step in text[1:].split("/")]

    def index(step: str, size: int) -> int:
        number = int(step)
        if not 0 <= number < size:
            raise Refused
        return number

    def get(path: list[str]) -> Any:
        value = document
        for step in path:
            value = value[index(step, len(value))] if isinstance(value, list) else value[step]
        return value

    def remove(path: list[str]) -> Any:
        parent = get(path[:-1])
        return parent.pop(index(path[-1], len(parent)) if isinstance(parent, list) else path[-1])

    def add(path: list[str], value: Any) -> None:
        parent = get(path[:-1])
        if isinstance(parent, list):
            parent.insert(index(path[-1], len(parent) + 1), value)
        elif isinstance(parent, dict):
            parent[path[-1]] = value
        else:
            raise Refused

    path = steps(operation["path"])
    try:
        match operation["op"]:
            case "add":
                add(path, copy.deepcopy(operation["value"]))
            case "remove":
                remove(path)
            case "replace":
                remove(path)
                add(path, copy.deepcopy(operation["value"]))
            case "test":
                parent = get(path[:-1])
                # The API's own: an absent member tests as null.
                found = parent.get(path[-1]) if isinstance(parent, dict) else get(path)
                if repr(found) != repr(operation["value"]) and not same(found, operation["value"]):
                    raise Refused
            case "move":
                add(path, remove(steps(operation["from"])))
            case _:
                add(path, copy.deepcopy(get(steps(operation["from"]))))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        raise Refused from None
    return document


@given(document=OBJECTS, data=st.data())
def test_a_json_patch_follows_the_rfc(document: dict[str, Any], data: st.DataObject) -> None:
    patch = data.draw(st.lists(operations(document), max_size=4))
    before, patch_before = copy.deepcopy(document), copy.deepcopy(patch)
    expected: Any = document
    refused = False
    try:
        for operation in patch:
            expected = oracle(expected, operation)
    except Refused:
        refused = True
    if refused:
        with pytest.raises(ApiStatusError) as refusal:
            json_patch(document, patch)
        assert refusal.value.code == 422
    else:
        assert same(json_patch(document, patch), expected)
    assert same(document, before)
    assert same(patch, patch_before)


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(member) for key, member in value.items() if member is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


@given(document=OBJECTS, patch=OBJECTS)
def test_merging_a_patch_again_changes_nothing_more(document: dict[str, Any], patch: dict[str, Any]) -> None:
    once = merge_patch(document, patch)
    assert same(merge_patch(once, patch), once)


@given(document=OBJECTS, patch=OBJECTS)
def test_a_merge_patch_sets_and_deletes_only_the_named_fields(document: dict[str, Any], patch: dict[str, Any]) -> None:
    before = copy.deepcopy(document)
    merged = merge_patch(document, patch)
    for key in document.keys() | patch.keys():
        if key not in patch:
            assert merged[key] is document[key]
        elif patch[key] is None:
            assert key not in merged
        elif not isinstance(patch[key], dict):
            assert same(merged[key], without_nulls(patch[key]))
    assert same(document, before)


@given(document=OBJECTS)
def test_an_empty_merge_patch_changes_nothing(document: dict[str, Any]) -> None:
    assert same(merge_patch(document, {}), document)


@given(old=OBJECTS.map(without_nulls), new=OBJECTS.map(without_nulls))
def test_a_merge_patch_can_make_any_object_of_any_other(old: dict[str, Any], new: dict[str, Any]) -> None:
    def difference(before: Any, after: Any) -> Any:
        if not isinstance(before, dict) or not isinstance(after, dict):
            return after
        gone = dict.fromkeys(before.keys() - after.keys())
        return gone | {key: difference(before.get(key), after[key]) for key in after}

    assert same(merge_patch(old, difference(old, new)), new)


POD_TYPE = builtin.type_of(builtin_resources.PODS)
CONTAINERS = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from("abcd"), "image": st.sampled_from("xyz")}),
    max_size=4,
    unique_by=lambda container: container["name"],
)


@given(live=CONTAINERS, wanted=CONTAINERS, order=st.permutations("abcd"))
def test_a_strategic_merge_keeps_every_item_once_and_the_order_asked_for(
    live: list[dict[str, str]], wanted: list[dict[str, str]], order: list[str]
) -> None:
    wanted = sorted(wanted, key=lambda container: order.index(container["name"]))
    document = {"spec": {"containers": live}}
    before = copy.deepcopy(document)
    patch = {"spec": {"containers": wanted, "$setElementOrder/containers": [{"name": name} for name in order]}}
    result = strategic_merge_patch(document, patch, POD_TYPE)["spec"]["containers"]
    names = [container["name"] for container in result]
    images = {container["name"]: container["image"] for container in [*live, *wanted]}
    assert {container["name"]: container["image"] for container in result} == images
    assert len(names) == len(set(names))
    assert names == [name for name in order if name in names]
    assert document == before


@given(live=CONTAINERS, wanted=CONTAINERS)
def test_a_strategic_merge_leaves_others_in_their_order_and_is_idempotent(
    live: list[dict[str, str]], wanted: list[dict[str, str]]
) -> None:
    patch = {"spec": {"containers": wanted}}
    once = strategic_merge_patch({"spec": {"containers": live}}, patch, POD_TYPE)
    names = [container["name"] for container in once["spec"]["containers"]]
    asked = [container["name"] for container in wanted]
    others = [container["name"] for container in live if container["name"] not in asked]
    assert [name for name in names if name in asked] == asked
    assert [name for name in names if name not in asked] == others
    assert strategic_merge_patch(once, patch, POD_TYPE) == once
