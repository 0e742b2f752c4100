"""The fields updateStrategy and minReadySeconds of a role: values, bounds and errors."""

from __future__ import annotations

from typing import Any

import pytest

from frameworkcontroller.api.spec import SpecError, parse_spec

Json = dict[str, Any]


def spec(*, scheduling: Any = None, **fields: Any) -> Json:
    return {"taskRoles": [{"name": "a", **fields}], "scheduling": scheduling}


def rolled(**rolling: Any) -> Json:
    return spec(updateStrategy={"type": "RollingUpdate", "rollingUpdate": rolling})


@pytest.mark.parametrize("strategy", [None, {}, {"type": None}, {"type": "OnDelete"}, {"rollingUpdate": None}])
def test_the_default_is_on_delete(strategy: Any) -> None:
    parsed = parse_spec(spec(updateStrategy=strategy, minReadySeconds=None))
    assert parsed.task_roles[0].rolling_update is None
    assert parsed.ready_roles == ()


@pytest.mark.parametrize("rolling", [None, {}, {"maxUnavailable": None, "partition": None}])
def test_defaults_of_a_rolling_update(rolling: Any) -> None:
    (role,) = parse_spec(spec(updateStrategy={"type": "RollingUpdate", "rollingUpdate": rolling})).ready_roles
    assert role.rolling_update is not None
    assert (role.rolling_update.max_unavailable, role.rolling_update.partition) == (1, 0)


@pytest.mark.parametrize("value", [1, 2**31 - 1, 3.0, "1%", "42%", "100%"])
def test_max_unavailable(value: Any) -> None:
    parse_spec(rolled(maxUnavailable=value))


def test_min_ready_seconds() -> None:
    assert parse_spec(spec(minReadySeconds=0)).ready_roles == ()
    assert [role.name for role in parse_spec(spec(minReadySeconds=1)).ready_roles] == ["a"]


_AT = "spec.taskRoles[0].updateStrategy"


@pytest.mark.parametrize("value", [0, -1, 2**31, 1.5, True, "0%", "101%", "07%", "1", " 1%", "1%\n", [], "9" * 5000])
def test_other_values_of_max_unavailable(value: Any) -> None:
    with pytest.raises(SpecError) as refused:
        parse_spec(rolled(maxUnavailable=value))
    text = str(refused.value)
    assert text.startswith(f"{_AT}.rollingUpdate.maxUnavailable: ")
    assert text.endswith(": must be a number from 1 on, or a percentage from 1% to 100%")
    assert len(text) < 250


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (rolled(partition=-1), f"{_AT}.rollingUpdate.partition: -1: must be at least 0"),
        (spec(minReadySeconds=-1), "spec.taskRoles[0].minReadySeconds: -1: must be at least 0"),
        (spec(updateStrategy={"type": "x"}), f"{_AT}.type: 'x': must be OnDelete or RollingUpdate"),
        (
            spec(updateStrategy={"type": "OnDelete", "rollingUpdate": {}}),
            f"{_AT}.rollingUpdate: must only be set with type RollingUpdate",
        ),
        (spec(updateStrategy={"rollingUpdate": {}}), f"{_AT}.rollingUpdate: must only be set with type RollingUpdate"),
        (
            spec(updateStrategy={"type": "RollingUpdate"}, scheduling={"schedulingPolicy": {"gang": {}}}),
            f"{_AT}.type: 'RollingUpdate': must not be set with spec.scheduling.schedulingPolicy.gang: a gang is",
        ),
    ],
)
def test_errors_name_field_and_value(fields: Json, text: str) -> None:
    with pytest.raises(SpecError) as refused:
        parse_spec(fields)
    assert str(refused.value).startswith(text)


def test_groups_that_are_no_gangs_may_be_rolled() -> None:
    parse_spec(spec(updateStrategy={"type": "RollingUpdate"}, scheduling={"schedulingPolicy": {"basic": {}}}))


def test_the_hash_of_a_template() -> None:
    def hashed(pod: Json) -> str:
        return parse_spec(spec(task={"pod": pod})).task_roles[0].task.template_hash

    assert hashed({"a": 1, "b": {"c": 2, "d": 3}}) == hashed({"b": {"d": 3, "c": 2}, "a": 1})
    assert len({hashed(pod) for pod in ({}, {"a": 1}, {"a": 2}, {"a": "1"}, {"a": [1, 2]}, {"a": [2, 1]})}) == 6
