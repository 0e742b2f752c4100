"""Refusals have a real server's texts, captured from 1.20.2 and 1.36. tests/conformance has the common ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from frameworkcontroller.local.apiserver import api_errors, builtin_resources, status_causes
from frameworkcontroller.local.apiserver.api_errors import ApiStatusError
from frameworkcontroller.local.apiserver.status_causes import Cause

FRAMEWORKS = replace(
    builtin_resources.CONFIGMAPS,
    group="frameworkcontroller.microsoft.com",
    kind="Framework",
    plural="frameworks",
    singular="framework",
    list_kind="FrameworkList",
)


@pytest.mark.parametrize(
    ("refusal", "code", "reason", "message", "details"),
    [
        (
            api_errors.not_found(FRAMEWORKS, "x"),
            404,
            "NotFound",
            'frameworks.frameworkcontroller.microsoft.com "x" not found',
            {"name": "x", "group": "frameworkcontroller.microsoft.com", "kind": "frameworks"},
        ),
        (
            api_errors.too_large_resource_version(99999999, 216),
            504,
            "Timeout",
            "Timeout: Too large resource version: 99999999, current: 216",
            {
                "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
                "retryAfterSeconds": 1,
            },
        ),
        (api_errors.too_old(3, 7), 410, "Expired", "too old resource version: 3 (7)", None),
    ],
)
def test_a_refusal_is_a_status(
    refusal: ApiStatusError, code: int, reason: str, message: str, details: dict[str, object] | None
) -> None:
    body = refusal.body()
    assert (body["code"], body["reason"], body["message"]) == (code, reason, message)
    assert body.get("details") == details
    assert (body["kind"], body["apiVersion"], body["status"]) == ("Status", "v1", "Failure")


def test_one_cause_stands_as_it_is() -> None:
    refusal = api_errors.invalid(
        builtin_resources.CONFIGMAPS, "", [status_causes.required("metadata.name", "name or generateName is required")]
    )
    assert refusal.message == 'ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required'
    assert refusal.body()["details"] == {
        "kind": "ConfigMap",
        "causes": [
            {
                "reason": "FieldValueRequired",
                "message": "Required value: name or generateName is required",
                "field": "metadata.name",
            }
        ],
    }


def test_several_causes_stand_in_brackets_each_text_once() -> None:
    immutable = status_causes.invalid("metadata.uid", "1", "field is immutable")
    refusal = api_errors.invalid(FRAMEWORKS, "f", [immutable, immutable, status_causes.too_many("spec.l", 4, 3)])
    assert refusal.message == (
        'Framework.frameworkcontroller.microsoft.com "f" is invalid: [metadata.uid: Invalid value: "1": field is '
        "immutable, spec.l: Too many: 4: must have at most 3 items]"
    )
    assert len(refusal.causes()) == 3


def test_a_refusal_that_can_be_retried_says_when() -> None:
    assert api_errors.too_large_resource_version(9, 7).headers() == {"Retry-After": "1"}
    assert api_errors.not_found(builtin_resources.PODS, "x").headers() == {}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain", '"plain"'),
        ('a"b\\c', '"a\\"b\\\\c"'),
        ("tab\tnew\n\x01\x7f", '"tab\\tnew\\n\\x01\\x7f"'),
        ("ü 漢", '"ü 漢"'),
        ("\u200b\U000e0001", '"\\u200b\\U000e0001"'),
        (True, "true"),
        (9, "9"),
        (0.3, "0.3"),
        (None, '"null"'),
        ({"name": "a"}, '{"name":"a"}'),
        (["b"], '["b"]'),
    ],
)
def test_values_are_shown_as_go_shows_them(value: object, shown: str) -> None:
    assert status_causes.shown(value) == shown


def test_a_cause_omits_empty_fields() -> None:
    assert Cause("Reason", "message", "").body() == {"reason": "Reason", "message": "message"}
