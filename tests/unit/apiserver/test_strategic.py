"""Strategic merge patch of a Pod, compared with results of a real 1.20.2 and 1.36."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from frameworkcontroller.local.apiserver import builtin, builtin_resources
from frameworkcontroller.local.apiserver.api_errors import ApiStatusError
from frameworkcontroller.local.apiserver.strategic import strategic_merge_patch

POD_TYPE = builtin.type_of(builtin_resources.PODS)
POD: dict[str, Any] = {
    "metadata": {"name": "s", "labels": {"a": "1"}, "finalizers": ["x.io/a", "x.io/b"]},
    "spec": {
        "containers": [
            {"name": "a", "image": "i", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
            {"name": "b", "image": "j"},
        ],
        "volumes": [{"name": "v", "emptyDir": {}}],
        "tolerations": [{"key": "k", "operator": "Exists"}],
    },
}


def patched(patch: dict[str, Any]) -> Any:
    before = copy.deepcopy(POD)
    result = strategic_merge_patch(POD, patch, POD_TYPE)
    assert before == POD
    return result


@pytest.mark.parametrize(
    ("patch", "containers"),
    [
        ([{"name": "b", "image": "k"}], [("a", "i"), ("b", "k")]),
        ([{"name": "c", "image": "k"}], [("c", "k"), ("a", "i"), ("b", "j")]),
        ([{"name": "zz", "$patch": "delete"}], [("a", "i"), ("b", "j")]),
        ([{"name": "a", "$patch": "delete"}], [("b", "j")]),
        ([{"name": "b", "image": "z"}, {"$patch": "replace"}], [("b", "z")]),
        (None, None),
    ],
)
def test_a_list_with_a_key_is_merged_item_by_item(patch: Any, containers: Any) -> None:
    spec = patched({"spec": {"containers": patch}})["spec"]
    found = spec.get("containers")
    assert (found and [(one["name"], one["image"]) for one in found]) == containers


def test_an_order_may_be_asked_for() -> None:
    order = [{"name": "b"}, {"name": "a"}]
    spec = patched({"spec": {"$setElementOrder/containers": order}})["spec"]
    assert [one["name"] for one in spec["containers"]] == ["b", "a"]


def test_an_order_must_agree_with_its_list() -> None:
    patch = {"spec": {"$setElementOrder/containers": [{"name": "b"}], "containers": [{"name": "c", "image": "k"}]}}
    with pytest.raises(ApiStatusError) as refusal:
        patched(patch)
    assert refusal.value.message == (
        "The order in patch list:\n[map[image:k name:c]]\n doesn't match $setElementOrder list:\n[map[name:b]]\n"
    )


@pytest.mark.parametrize(
    ("patch", "finalizers"),
    [
        ({"finalizers": ["x.io/c"]}, ["x.io/c", "x.io/a", "x.io/b"]),
        ({"finalizers": ["x.io/a"]}, ["x.io/a", "x.io/b"]),
        ({"finalizers": None}, None),
        ({"$deleteFromPrimitiveList/finalizers": ["x.io/a"]}, ["x.io/b"]),
        ({"$deleteFromPrimitiveList/finalizers": ["x.io/zz"]}, ["x.io/a", "x.io/b"]),
        (
            {"$deleteFromPrimitiveList/finalizers": ["x.io/a"], "finalizers": ["x.io/a", "x.io/d"]},
            ["x.io/a", "x.io/d", "x.io/b"],
        ),
        ({"$setElementOrder/finalizers": ["x.io/b", "x.io/a"], "finalizers": ["x.io/b"]}, ["x.io/b", "x.io/a"]),
        (
            {"$setElementOrder/finalizers": ["x.io/b", "x.io/c"], "finalizers": ["x.io/c"]},
            ["x.io/a", "x.io/b", "x.io/c"],
        ),
    ],
)
def test_a_list_of_scalars_that_merges_is_a_set(patch: dict[str, Any], finalizers: Any) -> None:
    assert patched({"metadata": patch})["metadata"].get("finalizers") == finalizers


@pytest.mark.parametrize(
    ("labels", "result"),
    [
        ({"b": "2"}, {"a": "1", "b": "2"}),
        ({"$patch": "replace", "b": "2"}, {"b": "2"}),
        ({"$patch": "delete", "b": "2"}, {}),
        ({"a": None}, {}),
        (None, None),
    ],
)
def test_a_map_is_merged_replaced_or_deleted(labels: Any, result: Any) -> None:
    assert patched({"metadata": {"labels": labels}})["metadata"].get("labels") == result


def test_a_list_without_a_key_is_replaced() -> None:
    spec = patched({"spec": {"tolerations": [{"key": "q", "operator": "Exists"}]}})["spec"]
    assert spec["tolerations"] == [{"key": "q", "operator": "Exists"}]


def test_a_union_keeps_the_members_that_the_patch_names() -> None:
    volume = {"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}
    assert patched({"spec": {"volumes": [volume]}})["spec"]["volumes"] == [{"name": "v", "hostPath": {"path": "/x"}}]


def test_nested_lists_merge_too() -> None:
    patch = [{"name": "a", "env": [{"name": "B", "value": None}, {"name": "C", "value": "3"}]}]
    env = patched({"spec": {"containers": patch}})["spec"]["containers"][0]["env"]
    assert env == [{"name": "A", "value": "1"}, {"name": "B"}, {"name": "C", "value": "3"}]


def test_directives_do_not_stay_in_new_values() -> None:
    item = {"name": "n", "$retainKeys": ["name", "emptyDir"], "emptyDir": {"medium": None, "$patch": "replace"}}
    volumes = patched({"spec": {"volumes": [item]}})["spec"]["volumes"]
    assert volumes == [{"name": "n", "emptyDir": {}}, {"name": "v", "emptyDir": {}}]


def test_a_field_of_no_type_is_merged_as_json() -> None:
    assert patched({"spec": {"foo": {"a": 1}}})["spec"]["foo"] == {"a": 1}


@pytest.mark.parametrize(
    ("patch", "code", "message"),
    [
        (
            {"spec": {"containers": [{"image": "k"}]}},
            500,
            "map: map[image:k] does not contain declared merge key: name",
        ),
        (
            {"spec": {"containers": [{"name": "b", "$patch": "bogus"}]}},
            500,
            "unknown patch type: bogus in map: map[$patch:bogus name:b]",
        ),
        ({"metadata": {"labels": {"$patch": "x", "b": "2"}}}, 500, "unknown patch type: x in map: map[$patch:x b:2]"),
        (
            {"metadata": {"finalizers": [{"x": 1}]}},
            500,
            "list element types are not identical: [[x.io/a x.io/b] [map[x:1]]]",
        ),
        (
            {"spec": {"containers": {"name": "b"}}},
            422,
            ' "" is invalid: patch: Invalid value: "map[spec:map[containers:map[name:b]]]": cannot restore slice from '
            "map",
        ),
        (
            {"spec": {"containers": "x"}},
            422,
            ' "" is invalid: patch: Invalid value: "map[spec:map[containers:x]]": cannot restore slice from string',
        ),
        (
            {"spec": {"volumes": [{"name": "v", "$retainKeys": ["name"], "hostPath": {"path": "/x"}}]}},
            400,
            "invalid patch format of retainKeys",
        ),
        ([], 400, "json: cannot unmarshal array into Go value of type map[string]interface {}"),
        (1, 400, "json: cannot unmarshal number into Go value of type map[string]interface {}"),
    ],
)
def test_a_patch_that_makes_no_sense_is_refused(patch: Any, code: int, message: str) -> None:
    with pytest.raises(ApiStatusError) as refusal:
        patched(patch)
    assert (refusal.value.code, refusal.value.message) == (code, message)


def test_a_patch_of_null_changes_nothing() -> None:
    assert strategic_merge_patch(POD, None, POD_TYPE) is POD
