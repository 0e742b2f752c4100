"""The last applied fields, by the annotation of kubectl."""

from typing import Any

import orjson
import pytest

from frameworkcontroller.api.lastapplied import LAST_APPLIED, applied_fields

PATHS = ["spec.suspend", "spec.retryPolicy.backoff", "spec.taskRoles[].dependsOn", "status.attemptStatus.started"]


def found(applied: Any) -> list[str]:
    text = applied if isinstance(applied, str) else orjson.dumps(applied).decode()
    return applied_fields(orjson.dumps({"annotations": {LAST_APPLIED: text}}), PATHS)


@pytest.mark.parametrize(
    ("spec", "paths"),
    [
        ({}, []),
        ({"suspend": True}, PATHS[:1]),
        ({"suspend": False}, PATHS[:1]),
        ({"suspend": None}, []),
        ({"retryPolicy": {"backoff": {}}}, PATHS[1:2]),
        ({"retryPolicy": None}, []),
        ({"taskRoles": [{"name": "a"}, {"name": "b", "dependsOn": []}]}, PATHS[2:3]),
        ({"taskRoles": [{"name": "a"}]}, []),
        ({"taskRoles": {"dependsOn": 1}}, []),
        ({"suspend": True, "taskRoles": [{"dependsOn": [1]}]}, [PATHS[0], PATHS[2]]),
    ],
)
def test_fields_that_were_applied(spec: Any, paths: list[str]) -> None:
    assert found({"spec": spec}) == paths


@pytest.mark.parametrize("applied", ["", "{", "[]", "null", '"text"', '{"spec": 1}'])
def test_an_annotation_that_is_no_object(applied: str) -> None:
    assert found(applied) == []


def test_without_the_annotation() -> None:
    assert applied_fields(b'{"name": "f"}', PATHS) == []
    assert (
        applied_fields(b'{"annotations": {"other": "kubectl.kubernetes.io/last-applied-configuration"}}', PATHS) == []
    )
