"""JSON patch and merge patch, compared with answers of a real 1.36."""

from __future__ import annotations

import copy
from typing import Any

import orjson
import pytest

from frameworkcontroller.local.apiserver import patches
from frameworkcontroller.local.apiserver.api_errors import ApiStatusError

DOCUMENT = {"spec": {"a": [1, 2, 3], "m": {"x": 1}, "n": None}}
NOT_APPLICABLE = "the server rejected our request due to an error in our request"


@pytest.mark.parametrize(
    ("operation", "spec"),
    [
        ({"op": "add", "path": "/spec/a/1", "value": 9}, {"a": [1, 9, 2, 3], "m": {"x": 1}, "n": None}),
        ({"op": "add", "path": "/spec/a/-", "value": 9}, {"a": [1, 2, 3, 9], "m": {"x": 1}, "n": None}),
        ({"op": "add", "path": "/spec/a/-1", "value": 8}, {"a": [1, 2, 3, 8], "m": {"x": 1}, "n": None}),
        ({"op": "add", "path": "/spec/a/01", "value": 8}, {"a": [1, 8, 2, 3], "m": {"x": 1}, "n": None}),
        ({"op": "remove", "path": "/spec/a/-1"}, {"a": [1, 2], "m": {"x": 1}, "n": None}),
        ({"op": "remove", "path": "/spec/n"}, {"a": [1, 2, 3], "m": {"x": 1}}),
        ({"op": "replace", "path": "/spec/a/-1", "value": 77}, {"a": [1, 2, 77], "m": {"x": 1}, "n": None}),
        ({"op": "test", "path": "/spec/zz", "value": None}, DOCUMENT["spec"]),
        ({"op": "test", "path": "/spec/zz"}, DOCUMENT["spec"]),
        ({"op": "test", "path": "/spec/m/x", "value": 1}, DOCUMENT["spec"]),
        ({"op": "move", "from": "/spec/m/x", "path": "/spec/k"}, {"a": [1, 2, 3], "k": 1, "m": {}, "n": None}),
        (
            {"op": "copy", "from": "/spec/a", "path": "/spec/a2"},
            {"a": [1, 2, 3], "a2": [1, 2, 3], "m": {"x": 1}, "n": None},
        ),
        ({"op": "add", "path": "/spec/a~1b~0c", "value": 1}, {**DOCUMENT["spec"], "a/b~c": 1}),
        ({"op": "add", "path": "/spec/b", "value": 1, "extra": 2}, {**DOCUMENT["spec"], "b": 1}),
    ],
)
def test_an_operation_does(operation: dict[str, Any], spec: dict[str, Any]) -> None:
    before = copy.deepcopy(DOCUMENT)
    assert patches.json_patch(DOCUMENT, [operation]) == {"spec": spec}
    assert before == DOCUMENT


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "add", "path": "", "value": 1},
        {"op": "add", "path": "/spec/a/7", "value": 9},
        {"op": "add", "path": "/spec/a/-9", "value": 8},
        {"op": "add", "path": "/spec/a/x", "value": 8},
        {"op": "add", "path": "/spec/zz/y", "value": 1},
        {"op": "add", "path": "/spec/m/x/y", "value": 1},
        {"op": "remove", "path": "/spec/a/7"},
        {"op": "remove", "path": "/spec/zz"},
        {"op": "remove", "path": "/spec/zz/y"},
        {"op": "replace", "path": "/spec/zz", "value": 1},
        {"op": "test", "path": "/spec/zz/y", "value": None},
        {"op": "test", "path": "/spec/m", "value": {"x": 1.0}},
        {"op": "test", "path": "/spec/m/x", "value": True},
        {"op": "test", "path": "/spec/a/99", "value": None},
        {"op": "copy", "from": "/spec/zz", "path": "/spec/q"},
        {"op": "move", "from": "/spec/m", "path": "/spec/m/y"},
    ],
)
def test_an_operation_that_does_not_apply_is_unprocessable(operation: dict[str, Any]) -> None:
    with pytest.raises(ApiStatusError) as refusal:
        patches.json_patch(DOCUMENT, [operation])
    assert (refusal.value.code, refusal.value.message) == (422, NOT_APPLICABLE)


@pytest.mark.parametrize(
    ("operations", "message"),
    [
        (
            {},
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        ),
        ("x", "error decoding patch: json: cannot unmarshal string into Go value of type []handlers.jsonPatchOp"),
        ([1], "error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp"),
        (
            [{"op": 1, "path": "/b"}],
            "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string",
        ),
        ([{}], "invalid operation {}: unsupported operation"),
        (
            [{"op": "add", "path": "/spec/b"}],
            'invalid operation {"op":"add","path":"/spec/b"}: failed to decode \'value\': operation, missing value '
            "field: missing value",
        ),
        (
            [{"op": "copy", "path": "/spec/q"}],
            'invalid operation {"op":"copy","path":"/spec/q"}: failed to decode \'from\': operation, missing from '
            "field: missing value",
        ),
        (
            [{"op": "ADD", "path": "/b", "value": 1}],
            'invalid operation {"op":"ADD","path":"/b","value":1}: unsupported operation',
        ),
    ],
)
def test_an_invalid_patch_is_a_bad_request(operations: Any, message: str) -> None:
    with pytest.raises(ApiStatusError) as refusal:
        patches.json_patch(DOCUMENT, operations)
    assert (refusal.value.code, refusal.value.message) == (400, message)


def test_a_patch_is_done_whole_or_not_at_all() -> None:
    before = copy.deepcopy(DOCUMENT)
    with pytest.raises(ApiStatusError):
        patches.json_patch(
            DOCUMENT, [{"op": "add", "path": "/spec/b", "value": 1}, {"op": "remove", "path": "/spec/zz"}]
        )
    assert before == DOCUMENT


def test_a_patch_of_nothing_is_the_document_itself() -> None:
    assert patches.json_patch(DOCUMENT, None) is DOCUMENT
    assert patches.json_patch(DOCUMENT, []) is DOCUMENT


def test_a_patch_shares_unchanged_values() -> None:
    document = {"big": {"list": [1]}, "small": {}}
    patched = patches.json_patch(document, [{"op": "add", "path": "/small/x", "value": 1}])
    assert patched["big"] is document["big"]


def test_a_value_of_the_patch_may_be_edited_by_a_later_operation_without_changing_the_patch() -> None:
    value: dict[str, Any] = {}
    operations = [{"op": "add", "path": "/v", "value": value}, {"op": "add", "path": "/v/x", "value": 1}]
    assert patches.json_patch({}, operations) == {"v": {"x": 1}}
    assert value == {}


def test_a_copy_is_apart_from_its_origin() -> None:
    operations = [
        {"op": "add", "path": "/a/x", "value": 1},
        {"op": "copy", "from": "/a", "path": "/b"},
        {"op": "add", "path": "/b/y", "value": 2},
    ]
    assert patches.json_patch({"a": {}}, operations) == {"a": {"x": 1}, "b": {"x": 1, "y": 2}}


def test_a_patch_has_a_length_limit() -> None:
    operations = [{"op": "add", "path": "/b", "value": 1}] * (patches.MAX_OPERATIONS + 1)
    with pytest.raises(ApiStatusError) as refusal:
        patches.json_patch({}, operations)
    assert refusal.value.message == (
        "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
    )
    assert refusal.value.code == 413


@pytest.mark.parametrize(
    ("given", "spec"),
    [
        ({}, DOCUMENT["spec"]),
        ({"spec": {"a": None, "m": {"x": None, "q": {"w": None, "r": 1}}}}, {"m": {"q": {"r": 1}}, "n": None}),
        ({"spec": {"n": {"x": None}}}, {"a": [1, 2, 3], "m": {"x": 1}, "n": {}}),
        ({"spec": {"l": [None, {"a": None}]}}, {"a": [1, 2, 3], "l": [None, {}], "m": {"x": 1}, "n": None}),
    ],
)
def test_a_merge_patch_folds_in(given: Any, spec: Any) -> None:
    before = copy.deepcopy(DOCUMENT)
    assert patches.merge_patch(DOCUMENT, given) == {"spec": spec}
    assert before == DOCUMENT


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"),
        (1, "error decoding patch: json: cannot unmarshal number into Go value of type map[string]interface {}"),
        (None, "Invalid JSON Patch"),
    ],
)
def test_a_merge_patch_is_an_object(given: Any, message: str) -> None:
    with pytest.raises(ApiStatusError) as refusal:
        patches.merge_patch(DOCUMENT, given)
    assert (refusal.value.code, refusal.value.message) == (400, message)


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        (b"{", "unexpected end of JSON input"),
        (b"", "unexpected end of JSON input"),
        (b'{"a": x}', "invalid character 'x' looking for beginning of value"),
    ],
)
def test_invalid_json_is_reported_as_by_go(raw: bytes, fault: str) -> None:
    with pytest.raises(orjson.JSONDecodeError) as error:
        orjson.loads(raw)
    assert patches.json_fault(raw, error.value) == fault
