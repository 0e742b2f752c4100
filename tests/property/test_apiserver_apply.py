"""Laws of server-side apply, over random histories of several managers."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from frameworkcontroller.local.apiserver import apply, managed_fields, schema_types, typed
from frameworkcontroller.local.apiserver.api_errors import ApiStatusError
from frameworkcontroller.local.apiserver.fieldsets import FieldSet

Json = dict[str, Any]

SCHEMA: Json = {
    "type": "object",
    "properties": {
        "n": {"type": "integer"},
        "o": {"type": "object", "properties": {"x": {"type": "string"}, "y": {"type": "string"}}},
        "m": {"type": "object", "additionalProperties": {"type": "string"}},
        "l": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"],
            "items": {
                "type": "object",
                "required": ["k"],
                "properties": {"k": {"type": "string"}, "v": {"type": "string"}},
            },
        },
        "s": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "whole": {"type": "array", "items": {"type": "string"}},
        "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
OF = schema_types.resource_type({"type": "object", "properties": {"spec": SCHEMA}})
TEXT = st.sampled_from(["1", "2"])
NAME = st.sampled_from(["a", "b", "c"])
SPEC = st.fixed_dictionaries(
    {},
    optional={
        "n": st.integers(0, 1),
        "o": st.fixed_dictionaries({}, optional={"x": TEXT, "y": TEXT}),
        "m": st.dictionaries(NAME, TEXT, max_size=3),
        "l": st.lists(
            st.fixed_dictionaries({"k": NAME}, optional={"v": TEXT}), max_size=3, unique_by=lambda item: item["k"]
        ),
        "s": st.lists(NAME, max_size=3, unique=True),
        "whole": st.lists(TEXT, max_size=2),
        "any": st.dictionaries(NAME, TEXT | st.dictionaries(NAME, TEXT, max_size=2), max_size=2),
    },
)


def configuration(spec: Json) -> Json:
    return {"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "n"}, "spec": spec}


def applied(live: Json | None, spec: Json, manager: str, *, force: bool = False, now: str = "t") -> Json:
    return apply.apply(live, configuration(spec), of=OF, manager=manager, now=now, force=force)


def written(live: Json, spec: Json, manager: str) -> Json:
    new = {**live, "spec": spec}
    return apply.update_managers(live, new, of=OF, manager=manager, now="t", explicit=True)


@st.composite
def histories(draw: st.DrawFn) -> Json:
    """An object after some managers had their way with it."""
    live = applied(None, draw(SPEC), "m0", now="t0")
    for _ in range(draw(st.integers(0, 4))):
        spec, manager = draw(SPEC), draw(st.sampled_from(["m0", "m1", "m2"]))
        live = applied(live, spec, manager, force=True) if draw(st.booleans()) else written(live, spec, manager)
    return live


def owned(obj: Json, manager: str, operation: str = "Apply") -> FieldSet:
    for owner, share in managed_fields.read(obj["metadata"].get("managedFields") or ()).items():
        if (owner.manager, owner.operation) == (manager, operation):
            return share.fields
    return FieldSet()


def spec_of(obj: Json) -> Json:
    found: Json = obj.get("spec") or {}
    return found


def leaves(value: Any, of: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    """Every part of a value that is one piece, by path."""
    if not typed.divides(of, value) or not value:
        yield at, value
        return
    for step, (part, part_type) in typed.parts(of, value).items():
        yield from leaves(part, part_type, f"{at}/{step}")


@settings(max_examples=60)
@given(live=histories(), spec=SPEC)
def test_applying_twice_is_applying_once(live: Json, spec: Json) -> None:
    once = applied(live, spec, "m1", force=True, now="t1")
    assert applied(once, spec, "m1", now="t2") == once


@settings(max_examples=60)
@given(live=histories(), spec=SPEC)
def test_applied_fields_have_their_values_and_owner(live: Json, spec: Json) -> None:
    before, given_spec = copy.deepcopy(live), copy.deepcopy(spec)
    after = applied(live, spec, "m1", force=True)
    standing = dict(leaves(after, OF))
    for path, value in leaves(configuration(spec), OF):
        if value not in ({}, []):
            assert standing[path] == value
    mine = managed_fields.ownable(typed.owned(configuration(spec), OF))
    assert owned(after, "m1") == mine
    assert (live, spec) == (before, given_spec)


@settings(max_examples=60)
@given(live=histories(), spec=SPEC)
def test_an_apply_conflicts_exactly_where_it_changes_fields_of_another_manager(live: Json, spec: Json) -> None:
    assume(live["metadata"].get("managedFields"))
    forced = applied(live, spec, "m1", force=True)
    changed = managed_fields.ownable(typed.compare(without_ledger(live), without_ledger(forced), OF).written)
    others = [
        share.fields.intersection(changed)
        for owner, share in managed_fields.read(live["metadata"]["managedFields"]).items()
        if (owner.manager, owner.operation) != ("m1", "Apply")
    ]
    paths = sorted(path for fields in others for path in fields.paths())
    if not paths:
        assert applied(live, spec, "m1") == forced
        return
    with pytest.raises(ApiStatusError) as refusal:
        applied(live, spec, "m1")
    assert refusal.value.code == 409
    assert sorted(cause["field"] for cause in refusal.value.causes()) == paths


@settings(max_examples=60)
@given(live=histories(), spec=SPEC)
def test_force_takes_changed_fields_from_all_others(live: Json, spec: Json) -> None:
    after = applied(live, spec, "m1", force=True)
    changed = managed_fields.ownable(typed.compare(without_ledger(live), without_ledger(after), OF).written)
    for owner, share in managed_fields.read(after["metadata"].get("managedFields") or ()).items():
        if (owner.manager, owner.operation) != ("m1", "Apply"):
            assert not share.fields.intersection(changed)


@settings(max_examples=60)
@given(live=histories(), spec=SPEC)
def test_fields_that_only_their_manager_applied_go_when_it_drops_them(live: Json, spec: Json) -> None:
    with_it = applied(live, spec, "m1", force=True)
    held = managed_fields.read(with_it["metadata"].get("managedFields") or ())
    elsewhere = FieldSet()
    for owner, share in held.items():
        if (owner.manager, owner.operation) != ("m1", "Apply"):
            elsewhere = elsewhere.union(share.fields)
    without = applied(with_it, {}, "m1")
    gone = owned(with_it, "m1").difference(elsewhere).difference(owned(without, "m1"))
    left = typed.everything(without_ledger(without), OF)
    for path in gone.intersection(left).paths():
        # The remaining fields hold some that another manager owns.
        assert any(other.startswith(path) for other in elsewhere.paths())
    # No other field goes, except inside of them.
    before, after = (set(typed.everything(without_ledger(obj), OF).paths()) for obj in (with_it, without))
    for path in before - after:
        assert any(path.startswith(place) or place.startswith(path) for place in gone.paths())


@settings(max_examples=60)
@given(live=histories(), spec=SPEC)
def test_a_plain_write_owns_the_fields_that_it_changes(live: Json, spec: Json) -> None:
    # A manager that applies nothing owns nothing, and an object without owned fields has no ledger.
    assume(live["metadata"].get("managedFields"))
    after = written(live, spec, "w")
    assert spec_of(after) == spec
    difference = typed.compare(without_ledger(live), without_ledger(after), OF)
    changed = managed_fields.ownable(difference.written)
    assert not changed.difference(owned(after, "w", "Update"))
    for owner, share in managed_fields.read(after["metadata"].get("managedFields") or ()).items():
        if owner.manager != "w":
            assert not share.fields.intersection(changed.union(managed_fields.ownable(difference.removed)))


@settings(max_examples=60)
@given(live=histories())
def test_a_ledger_reads_back_as_it_was_written(live: Json) -> None:
    entries = live["metadata"].get("managedFields") or []
    assert managed_fields.write(managed_fields.read(entries)) == entries


def without_ledger(obj: Json) -> Json:
    return {**obj, "metadata": {key: value for key, value in obj["metadata"].items() if key != "managedFields"}}
