"""Laws of defaulting, pruning and validation, over random schemas and random objects."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from frameworkcontroller.local.apiserver import crd_schema
from frameworkcontroller.local.apiserver.schema import Structural

NAMES = st.sampled_from(["a", "b", "c", "d"])
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "string": st.sampled_from(["", "x", "yy"]),
    "integer": st.integers(-3, 3),
    "boolean": st.booleans(),
}


@st.composite
def schemas(draw: st.DrawFn, depth: int = 3) -> dict[str, Any]:
    kind = draw(
        st.sampled_from(["string", "integer", "boolean"] + (["object", "object", "array", "map"] if depth else []))
    )
    schema: dict[str, Any] = {"type": "object" if kind == "map" else kind}
    if kind in SCALARS:
        if draw(st.booleans()):
            schema["default"] = draw(SCALARS[kind])
    elif kind == "array":
        schema["items"] = draw(schemas(depth - 1))
    elif kind == "map":
        schema["additionalProperties"] = draw(schemas(depth - 1))
    else:
        schema["properties"] = draw(st.dictionaries(NAMES, schemas(depth - 1), max_size=3))
        if draw(st.booleans()):
            schema["x-kubernetes-preserve-unknown-fields"] = True
        if draw(st.booleans()):
            schema["default"] = {}
        if schema["properties"] and draw(st.booleans()):
            schema["required"] = draw(st.lists(st.sampled_from(sorted(schema["properties"])), max_size=1))
    if draw(st.booleans()):
        schema["nullable"] = True
    return schema


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "x"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def objects(draw: st.DrawFn, schema: dict[str, Any]) -> Any:
    """Mostly valid objects."""
    if draw(st.integers(0, 7)) == 0:
        return draw(ANYTHING)
    if schema["type"] in SCALARS:
        return draw(SCALARS[schema["type"]])
    if schema["type"] == "array":
        return draw(st.lists(objects(schema["items"]), max_size=3))
    if "additionalProperties" in schema:
        return draw(st.dictionaries(NAMES, objects(schema["additionalProperties"]), max_size=3))
    known = {name: objects(child) for name, child in schema.get("properties", {}).items()}
    return draw(st.fixed_dictionaries({}, optional=known)) | draw(st.dictionaries(NAMES, ANYTHING, max_size=1))


@st.composite
def cases(draw: st.DrawFn) -> tuple[Structural, dict[str, Any], dict[str, Any]]:
    spec = draw(schemas())
    schema = {"type": "object", "properties": {"spec": spec}}
    obj = {"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "n"}, "spec": draw(objects(spec))}
    return Structural(schema), schema, obj


@settings(max_examples=100)
@given(case=cases())
def test_pruning_and_defaulting_settle_at_once(case: tuple[Structural, dict[str, Any], dict[str, Any]]) -> None:
    structural, _, obj = case
    before = copy.deepcopy(obj)
    pruned, unknown = structural.prune(obj)
    again, left = structural.prune(pruned)
    assert left == []
    assert again is pruned
    assert (pruned is obj) == (unknown == [])
    defaulted = structural.default(pruned)
    assert structural.default(defaulted) is defaulted
    # Defaults hold nothing that pruning would take out again.
    assert structural.prune(defaulted)[0] is defaulted
    assert obj == before


@settings(max_examples=100)
@given(case=cases())
def test_a_valid_object_may_be_written_again(case: tuple[Structural, dict[str, Any], dict[str, Any]]) -> None:
    structural, _, obj = case
    settled = structural.default(structural.prune(obj)[0])
    faults = structural.validate(settled)
    # The same object in its own place has nothing that it could be blamed for.
    assert structural.validate(settled, copy.deepcopy(settled)) == []
    assert structural.validate(settled) == faults


@settings(max_examples=100)
@given(case=cases())
def test_pruning_keeps_all_that_the_schema_knows(case: tuple[Structural, dict[str, Any], dict[str, Any]]) -> None:
    structural, schema, obj = case
    pruned, unknown = structural.prune(obj)

    def known(part: dict[str, Any], value: Any, kept: Any) -> None:
        if isinstance(value, dict) and isinstance(part.get("additionalProperties"), dict):
            assert value.keys() == kept.keys()
            for name in value:
                known(part["additionalProperties"], value[name], kept[name])
        elif isinstance(value, dict) and part.get("type") == "object":
            properties = part.get("properties", {})
            everything = part.get("x-kubernetes-preserve-unknown-fields")
            assert kept.keys() == {name for name in value if everything or name in properties}
            for name in value.keys() & properties.keys():
                known(properties[name], value[name], kept[name])
        elif isinstance(value, list) and part.get("type") == "array":
            assert len(value) == len(kept)
            for one, other in zip(value, kept, strict=True):
                known(part["items"], one, other)
        else:
            assert value == kept

    known(schema["properties"]["spec"], obj["spec"], pruned["spec"])
    assert len(unknown) == len(set(unknown))


@settings(max_examples=100)
@given(spec=schemas())
def test_a_schema_that_is_found_good_has_defaults_that_it_lets_pass(spec: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {"spec": spec}}
    if crd_schema.schema_causes(schema, "schema"):
        return
    structural = Structural(schema)
    empty = structural.default({"apiVersion": "g/v1", "kind": "K", "metadata": {}})
    assert structural.validate(empty) == []
