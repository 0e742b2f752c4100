"""Objects of built-in kinds are read, defaulted and validated as a real server does it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from frameworkcontroller.local.apiserver import builtin, builtin_resources
from frameworkcontroller.local.apiserver.api_errors import ApiStatusError
from frameworkcontroller.local.apiserver.api_resources import ApiResource
from tests.unit.apiserver import answers

BY_PLURAL = {t.plural: t for t in builtin_resources.BUILTIN_RESOURCES}
OBJECTS = answers.load("objects")["cases"]
UNREADABLE = answers.load("unreadable")["cases"]
POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "a", "image": "i"}]},
}


def admitted(t: ApiResource, body: Any) -> dict[str, Any]:
    obj = builtin.default(t, builtin.decode(t, body).obj)
    if t.namespaced:
        obj["metadata"]["namespace"] = "default"
    return obj


def shown(case: dict[str, Any]) -> str:
    return f"{case['resource']} {case['body'].get('spec', case['body'])}"[:90]


@pytest.mark.parametrize("case", OBJECTS, ids=shown)
def test_an_object_is_stored_as_on_a_real_server(case: dict[str, Any]) -> None:
    t = BY_PLURAL[case["resource"]]
    before = copy.deepcopy(case["body"])
    obj = admitted(t, case["body"])
    found = [[cause.reason, cause.field, cause.message] for cause in builtin.causes_on_create(t, obj)]
    assert sorted(found) == sorted(case.get("causes", []))
    for part, value in case.get("becomes", {}).items():
        assert obj[part] == value
    assert case["body"] == before


@pytest.mark.parametrize("case", UNREADABLE, ids=shown)
def test_a_wrong_type_is_refused_in_the_words_of_the_real_decoder(case: dict[str, Any]) -> None:
    with pytest.raises(ApiStatusError) as refusal:
        builtin.decode(BY_PLURAL[case["resource"]], case["body"])
    assert (refusal.value.code, refusal.value.message) == (400, case["message"])


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"apiVersion": "v1", "kind": "ConfigMap"}, "converting (v1.ConfigMap) to (v1.Pod): unknown conversion"),
        (
            {"apiVersion": "v1", "kind": "Pods"},
            'no kind "Pods" is registered for version "v1" in scheme '
            '"k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30"',
        ),
    ],
)
def test_another_kind_is_refused(body: dict[str, Any], why: str) -> None:
    with pytest.raises(ApiStatusError) as refusal:
        builtin.decode(builtin_resources.PODS, body)
    assert refusal.value.message == f'{body["kind"]} in version "v1" cannot be handled as a Pod: {why}'


@pytest.mark.parametrize(
    ("raw", "body", "why"),
    [
        (
            b"[]",
            [],
            "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct { "
            'APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" } (5b5d)',
        ),
        (
            b'{"apiVersion": 1, "kind": "Pod"}',
            {"apiVersion": 1, "kind": "Pod"},
            "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field "
            '.apiVersion of type string ({"apiVersion": 1, "kind": "Pod ...)',
        ),
    ],
)
def test_a_body_that_is_no_object_is_unrecognized(raw: bytes, body: Any, why: str) -> None:
    with pytest.raises(ApiStatusError) as refusal:
        builtin.decode(builtin_resources.PODS, body, raw=raw)
    assert refusal.value.message == f"the object provided is unrecognized (must be of type Pod): {why}"


def test_a_body_without_kind_and_version_gets_them_from_the_path() -> None:
    decoded = builtin.decode(builtin_resources.CONFIGMAPS, {"metadata": {"name": "c"}})
    assert (decoded.obj["apiVersion"], decoded.obj["kind"]) == ("v1", "ConfigMap")
    assert builtin.decode(builtin_resources.CONFIGMAPS, None).obj["metadata"] == {}


def test_unknown_fields_are_dropped_wherever_they_are_and_told() -> None:
    body = copy.deepcopy(POD)
    body["metadata"] |= {"foo": 1, "ownerReferences": [{"uid": "5", "bar": 1}]}
    body["spec"]["containers"][0]["env"] = [{"name": "x", "valueFrom": {"fieldRef": {"zz": 1, "fieldPath": "f"}}}]
    body["top"] = 1
    decoded = builtin.decode(builtin_resources.PODS, body)
    assert decoded.warnings == (
        'unknown field "metadata.foo"',
        'unknown field "metadata.ownerReferences[0].bar"',
        'unknown field "spec.containers[0].env[0].valueFrom.fieldRef.zz"',
        'unknown field "top"',
    )
    assert decoded.obj["spec"]["containers"][0]["env"][0]["valueFrom"] == {"fieldRef": {"fieldPath": "f"}}


def test_scalars_come_out_in_their_canonical_form() -> None:
    body = copy.deepcopy(POD)
    body["metadata"]["creationTimestamp"] = "2026-11-21T04:00:00.5+01:00"
    body["spec"]["containers"][0]["resources"] = {"limits": {"cpu": 1, "memory": "1.5Gi"}, "requests": {"cpu": "0.5"}}
    body["spec"]["nodeSelector"] = {"a": None}
    decoded = builtin.decode(builtin_resources.PODS, body).obj
    assert decoded["metadata"]["creationTimestamp"] == "2026-11-21T03:00:00Z"
    resources = decoded["spec"]["containers"][0]["resources"]
    assert resources == {"limits": {"cpu": "1", "memory": "1536Mi"}, "requests": {"cpu": "500m"}}
    assert decoded["spec"]["nodeSelector"] == {"a": ""}
    lease = {"spec": {"renewTime": "2026-11-21T03:00:00Z"}}
    assert builtin.decode(builtin_resources.LEASES, lease).obj["spec"] == {"renewTime": "2026-11-21T03:00:00.000000Z"}


def test_a_secret_may_be_written_in_the_clear() -> None:
    secret = admitted(
        builtin_resources.SECRETS, {"metadata": {"name": "s"}, "data": {"a": "MQ=="}, "stringData": {"b": "2"}}
    )
    assert (secret["data"], secret["type"]) == ({"a": "MQ==", "b": "Mg=="}, "Opaque")
    assert "stringData" not in secret


def test_a_namespace_carries_its_name_as_a_label() -> None:
    metadata = admitted(builtin_resources.NAMESPACES, {"metadata": {"name": "n", "labels": {"a": "b"}}})["metadata"]
    assert metadata["labels"] == {"a": "b", "kubernetes.io/metadata.name": "n"}


def test_a_pod_without_defaults_to_set_keeps_its_own_values() -> None:
    once = admitted(builtin_resources.PODS, POD)
    assert builtin.default(builtin_resources.PODS, once) == once


def changed(**spec: Any) -> dict[str, Any]:
    pod = admitted(builtin_resources.PODS, POD)
    return {**pod, "spec": {**pod["spec"], **spec}}


@pytest.mark.parametrize(
    ("new", "causes"),
    [
        (changed(), []),
        (changed(activeDeadlineSeconds=5), []),
        (changed(tolerations=[*changed()["spec"]["tolerations"], {"key": "z", "operator": "Exists"}]), []),
        (changed(containers=[{**changed()["spec"]["containers"][0], "image": "new"}]), []),
        (
            changed(containers=[*changed()["spec"]["containers"], {"name": "b", "image": "i"}]),
            [("spec.containers", "Forbidden: pod updates may not add or remove containers")],
        ),
        (
            changed(tolerations=[]),
            [("spec.tolerations", "Forbidden: existing toleration can not be modified except its tolerationSeconds")],
        ),
    ],
)
def test_little_may_change_in_a_pod(new: dict[str, Any], causes: list[tuple[str, str]]) -> None:
    found = builtin.causes_on_update(builtin_resources.PODS, new, admitted(builtin_resources.PODS, POD))
    assert [(cause.field, cause.message) for cause in found] == causes


def test_a_forbidden_change_is_shown() -> None:
    (cause,) = builtin.causes_on_update(
        builtin_resources.PODS, changed(nodeName="x"), admitted(builtin_resources.PODS, POD)
    )
    assert (cause.reason, cause.field) == ("FieldValueForbidden", "spec")
    assert cause.message.startswith(
        "Forbidden: pod updates may not change fields other than `spec.containers[*].image`, "
        "`spec.initContainers[*].image`, `spec.activeDeadlineSeconds` or `spec.tolerations` (only additions to "
        "existing tolerations)\n"
    )
    assert '-  "nodeName": "x",' in cause.message


@pytest.mark.parametrize(
    ("t", "new", "old", "field", "message"),
    [
        (
            builtin_resources.CONFIGMAPS,
            {"data": {"a": "2"}, "immutable": True},
            {"data": {"a": "1"}, "immutable": True},
            "data",
            "Forbidden: field is immutable when `immutable` is set",
        ),
        (
            builtin_resources.ROLEBINDINGS,
            {"roleRef": {"kind": "Role", "name": "b"}},
            {"roleRef": {"kind": "Role", "name": "a"}},
            "roleRef",
            'Invalid value: {"kind":"Role","name":"b"}: cannot change roleRef',
        ),
        (
            builtin_resources.PODS,
            {"metadata": {"uid": "2"}},
            {"metadata": {"uid": "1"}},
            "metadata.uid",
            'Invalid value: "2": field is immutable',
        ),
        (
            builtin_resources.CONFIGMAPS,
            {"metadata": {"finalizers": ["a/b"], "deletionTimestamp": "2026-11-21T03:00:00Z"}},
            {"metadata": {"deletionTimestamp": "2026-11-21T03:00:00Z"}},
            "metadata.finalizers",
            "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers "
            '[]string{"a/b"}',
        ),
    ],
)
def test_some_things_may_not_change(
    t: ApiResource, new: dict[str, Any], old: dict[str, Any], field: str, message: str
) -> None:
    found = [(cause.field, cause.message) for cause in builtin.causes_on_update(t, new, old)]
    assert found == [(field, message)]
