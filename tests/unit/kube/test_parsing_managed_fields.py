from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameworkcontroller.kube.parsing import loads_without_managed_fields, without_managed_fields

FIELDS = [
    {
        "manager": "kubelet]},",
        "operation": "Update",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {'k:{"containerPort":80}': {".": {}}, 'v:["a"]': {}, 'v:{"x":[{"y":1}]}': {}}},
        "subresource": "status",
    },
    {"manager": 'a"}],"b', "fieldsV1": {"f:metadata": {'v:[{"a":"}]}"}]': {}}}},
]


def pod(name: str, **metadata: Any) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"name": name, "labels": {"a": "}{"}, **metadata}, "spec": {"x": [{"y": 1}]}}


def stripped(value: Any) -> Any:
    """The value without the managedFields of any metadata, by a plain parser."""
    if isinstance(value, dict):
        return {
            key: (
                {k: stripped(v) for k, v in inner.items() if k != "managedFields"}
                if key == "metadata" and isinstance(inner, dict)
                else stripped(inner)
            )
            for key, inner in value.items()
        }
    return [stripped(item) for item in value] if isinstance(value, list) else value


def test_gone_from_a_go_servers_order_and_from_sorted_keys() -> None:
    last = {"type": "MODIFIED", "object": pod("a", managedFields=[{"manager": "m", "fieldsV1": {"f:x": {}}}])}
    middle = {"object": {"metadata": {"managedFields": [{"manager": "m", "fieldsV1": {}}], "name": "a"}}}
    only: dict[str, Any] = {"metadata": {"managedFields": [{}]}}
    for value in (last, middle, only):
        text = orjson.dumps(value)
        assert b"managedFields" not in without_managed_fields(text)
        assert loads_without_managed_fields(text) == stripped(value)


def test_gone_from_every_item_of_a_list() -> None:
    page = {"items": [pod(str(i), managedFields=[{"manager": "m", "fieldsV1": {"f:x": {}}}]) for i in range(20)]}
    assert b"managedFields" not in without_managed_fields(orjson.dumps(page))
    assert loads_without_managed_fields(orjson.dumps(page)) == stripped(page)


def test_strings_that_look_like_the_end_leave_the_object_whole() -> None:
    value = {"object": pod("a", managedFields=FIELDS, ownerReferences=[{"name": "o"}], uid="u")}
    parsed = loads_without_managed_fields(orjson.dumps(value))
    assert stripped(parsed) == stripped(value)


@pytest.mark.parametrize(
    "value",
    [
        {"metadata": {"managedFields": [], "ownerReferences": [{"a": 1}], "name": "x"}},
        {"metadata": {"managedFields": None, "finalizers": ["f"]}},
        {"metadata": {"annotations": {"x": '{"metadata":{"managedFields":[{"a":1}],"b":2}}'}}},
        {"spec": {"managedFields": [{"a": 1}], "other": [{"b": 2}]}},
        {"metadata": {"labels": {"managedFields": "x"}, "name": "n"}},
    ],
)
def test_lookalikes_stay(value: Any) -> None:
    assert loads_without_managed_fields(orjson.dumps(value)) == value


def test_without_any_nothing_is_copied() -> None:
    text = orjson.dumps(pod("a"))
    assert without_managed_fields(text) is text


def test_invalid_json_is_refused() -> None:
    with pytest.raises(orjson.JSONDecodeError):
        loads_without_managed_fields(b'{"metadata":{"managedFields":[{}]},')


text = st.text(alphabet='ab"\\{}[],:\u00e9', max_size=8)
json = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text | st.just("managedFields"), inner, max_size=3),
    max_leaves=8,
)
entry = st.dictionaries(st.sampled_from(["manager", "fieldsV1"]), json, max_size=2)
metadata = st.fixed_dictionaries({}, optional={"managedFields": st.lists(entry, max_size=3), "name": text, "z": json})
objects = st.fixed_dictionaries({}, optional={"metadata": metadata, "spec": json, "status": json})


@given(st.lists(objects, max_size=3))
def test_nothing_else_is_ever_changed(items: list[Any]) -> None:
    value = {"items": items}
    assert stripped(loads_without_managed_fields(orjson.dumps(value))) == stripped(value)
