"""Custom resources are pruned, defaulted and validated as a real server does it."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from frameworkcontroller.local.apiserver import builtin, builtin_resources
from frameworkcontroller.local.apiserver.api_errors import ApiStatusError
from frameworkcontroller.local.apiserver.schema import Structural
from tests.unit.apiserver import answers

ANSWERS = answers.load("custom_resources")
SCHEMA: dict[str, Any] = ANSWERS["schema"]
WIDGETS = replace(
    builtin_resources.CONFIGMAPS,
    group="test.example.com",
    kind="Wid",
    plural="wids",
    singular="wid",
    schema=SCHEMA,
    verbs=(),
)


def widget(spec: Any, **more: Any) -> dict[str, Any]:
    return {"apiVersion": "test.example.com/v1", "kind": "Wid", "metadata": {"name": "w"}, "spec": spec, **more}


@pytest.mark.parametrize("case", ANSWERS["cases"], ids=lambda case: str(case["spec"])[:60])
def test_a_custom_resource_is_stored_as_on_a_real_server(case: dict[str, Any]) -> None:
    structural = Structural(SCHEMA)
    given = widget(case["spec"])
    before = copy.deepcopy(given)
    pruned, unknown = structural.prune(given)
    obj = structural.default(pruned)
    causes = sorted([cause.reason, cause.field, cause.message] for cause in structural.validate(obj))
    assert causes == case.get("causes", [])
    if "becomes" in case:
        assert obj["spec"] == case["becomes"]
        assert unknown == case["unknown"]
    assert given == before


def test_an_object_with_nothing_to_do_comes_back_itself() -> None:
    structural = Structural(SCHEMA)
    given = widget({"n": 1, "nd": {"q": 1, "r": None}, "l": [{"name": "a"}]})
    assert structural.prune(given)[0] is given
    assert structural.default(given) is given


def test_unchanged_values_are_shared() -> None:
    structural = Structural(SCHEMA)
    given = widget({"any": {"deep": [1]}, "unknown": 1})
    pruned, _ = structural.prune(given)
    assert structural.default(pruned)["spec"]["any"] is given["spec"]["any"]


def test_a_default_is_never_shared_between_objects() -> None:
    structural = Structural(SCHEMA)
    first, second = (structural.default(widget({})) for _ in range(2))
    assert first["spec"]["nd"] == {"q": 7, "r": 8}
    assert first["spec"]["nd"] is not second["spec"]["nd"]


@pytest.mark.parametrize(
    ("old", "new", "fields"),
    [
        # Not touched: an older, looser schema may have let it in.
        ({"s": "old", "n": 1}, {"s": "old", "n": 2}, []),
        ({"s": "old"}, {"s": "new"}, ["spec.s", "spec.s"]),
        ({"req": {"a": "1"}}, {"req": {"a": "1"}, "n": 1}, []),
        ({"req": {"a": "1"}}, {"req": {"a": "2"}}, ["spec.req.b"]),
        ({"l": [{"name": "A"}]}, {"l": [{"name": "A"}, {"name": "B"}]}, ["spec.l[1].name"]),
        ({}, {"s": "new"}, ["spec.s", "spec.s"]),
    ],
)
def test_an_update_may_keep_invalid_fields_that_it_does_not_change(
    old: dict[str, Any], new: dict[str, Any], fields: list[str]
) -> None:
    schema = copy.deepcopy(SCHEMA)
    schema["properties"]["spec"]["properties"]["s"] = {"type": "string", "enum": ["A"], "pattern": "^[A-Z]$"}
    found = Structural(schema).validate(widget(new), widget(old))
    assert [cause.field for cause in found] == fields


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (
            {"kind": "Foo", "apiVersion": "test.example.com/v1", "metadata": {"name": "w"}},
            422,
            'Foo.test.example.com "w" is invalid: kind: Invalid value: "Foo": must be Wid',
        ),
        (
            {"kind": "Wid", "apiVersion": "test.example.com/v2"},
            400,
            "the API version in the data (test.example.com/v2) does not match the expected API version "
            "(test.example.com/v1)",
        ),
        (
            {"metadata": {"name": "w"}, "spec": {}},
            400,
            "the object provided is unrecognized (must be of type Wid): Object 'Kind' is missing in "
            '\'{"metadata":{"name":"w"},"spec":{}}\' ({"metadata":{"name":"w"},"spec ...)',
        ),
        (
            {"kind": "Wid", "apiVersion": "test.example.com/v1", "metadata": "x"},
            400,
            'Wid in version "v1" cannot be handled as a Wid: json: cannot unmarshal string into Go value of type '
            "v1.ObjectMeta",
        ),
        (
            {"kind": "Wid", "apiVersion": "test.example.com/v1", "metadata": {"labels": {"a": 1}}},
            400,
            'Wid in version "v1" cannot be handled as a Wid: json: cannot unmarshal number into Go struct field '
            "ObjectMeta.labels of type string",
        ),
        (
            None,
            400,
            "the object provided is unrecognized (must be of type Wid): Object 'Kind' is missing in 'null' (6e756c6c)",
        ),
    ],
)
def test_a_body_that_is_no_such_resource_is_refused(body: Any, code: int, message: str) -> None:
    with pytest.raises(ApiStatusError) as refusal:
        builtin.decode(WIDGETS, body)
    assert (refusal.value.code, refusal.value.message) == (code, message)


def test_unknown_fields_are_warned_of_refused_or_ignored() -> None:
    body = widget({"l": [{"name": "q", "zz": 1}], "unk": 1}, top=1, status={"x": 1, "y": 2})
    body["metadata"]["foo"] = 1
    unknown = ["metadata.foo", "spec.l[0].zz", "spec.unk", "status.y", "top"]
    warnings = tuple(f'unknown field "{path}"' for path in unknown)
    warned = builtin.decode(WIDGETS, body, validation="Warn")
    assert warned.warnings == warnings
    assert warned.obj == {**widget({"l": [{"name": "q"}]}), "status": {"x": 1}}
    assert builtin.decode(WIDGETS, body, validation="Ignore").warnings == ()
    with pytest.raises(ApiStatusError) as refusal:
        builtin.decode(WIDGETS, body, validation="Strict")
    assert refusal.value.message == (
        f'Wid in version "v1" cannot be handled as a Wid: strict decoding error: {", ".join(warnings)}'
    )


def test_fields_that_stand_twice_are_found_in_the_text() -> None:
    raw = b'{"kind":"Wid","metadata":{"name":"w","name":"x"},"spec":{"n":1,"n":2,"any":{"a":1,"a":2}}}'
    assert builtin.duplicate_fields(raw) == ["metadata.name", "spec.n", "spec.any.a"]
    assert builtin.duplicate_fields(b'{"a": [{"b": 1}, {"b": 2}], "c": {"b": 3}}') == []
    assert builtin.duplicate_fields(b"not json") == []
