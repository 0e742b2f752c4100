"""kubectl's protobuf bodies are read as the equal JSON."""

from __future__ import annotations

import base64

import pytest

from frameworkcontroller.local.apiserver import builtin, builtin_resources, builtin_types, protobuf
from frameworkcontroller.local.apiserver.api_errors import ApiStatusError
from frameworkcontroller.local.apiserver.protobuf_numbers import _TYPES, fields_of

# Bodies as kubectl 1.33 sends them.
CONFIG_MAP = base64.b64decode(
    "azhzAAoPCgJ2MRIJQ29uZmlnTWFwEiUKEwoDY20xEgAaACIAKgAyADgAQgASBgoBYRIBMRIGCgFiEgEyGgAiAA=="
)
ACCESS_REVIEW = base64.b64decode(
    "azhzAAoyChdhdXRob3JpemF0aW9uLms4cy5pby92MRIXU2VsZlN1YmplY3RBY2Nlc3NSZXZpZXcSPwoQCgASABoAIgAqADIAOABCABIhCh8KB2Rl"
    "ZmF1bHQSBmNyZWF0ZRoAIgAqBHBvZHMyADoAGggIABIAGgAgABoAIgA="
)


def field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


def enveloped(version: str, kind: str, message: bytes) -> bytes:
    about = field(1, version.encode()) + field(2, kind.encode())
    return b"k8s\x00" + field(1, about) + field(2, message)


def test_a_config_map_from_kubectl() -> None:
    assert protobuf.decode(CONFIG_MAP) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "cm1"},
        "data": {"a": "1", "b": "2"},
    }


def test_a_question_of_kubectl_auth() -> None:
    question = protobuf.decode(ACCESS_REVIEW)
    assert question["spec"] == {"resourceAttributes": {"namespace": "default", "verb": "create", "resource": "pods"}}


def test_numbers_times_quantities_and_bytes() -> None:
    options = bytes([1 << 3, 0]) + field(2, field(1, b"uid"))
    assert protobuf.decode(enveloped("v1", "DeleteOptions", options)) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "uid"},
    }
    hard = field(1, field(1, b"pods") + field(2, field(1, b"3")))
    quota = protobuf.decode(enveloped("v1", "ResourceQuota", field(2, hard)))
    assert quota["spec"] == {"hard": {"pods": "3"}}
    secret = protobuf.decode(enveloped("v1", "Secret", field(2, field(1, b"k") + field(2, b"\x00\x01"))))
    assert secret["data"] == {"k": "AAE="}
    negative = bytes([2 << 3]) + b"\xf9\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    assert protobuf.decode(enveloped("scheduling.k8s.io/v1", "PriorityClass", negative))["value"] == -7
    port = field(1, field(4, bytes([1 << 3, 1]) + field(3, b"http")) + bytes([3 << 3, 80]))
    service = protobuf.decode(enveloped("v1", "Service", field(2, port)))
    assert service["spec"]["ports"] == [{"targetPort": "http", "port": 80}]
    seconds = bytes([1 << 3]) + b"\x80\x92\xb8\xc3\x98\xfe\xff\xff\xff\x01"
    created = protobuf.decode(enveloped("v1", "ConfigMap", field(1, field(8, seconds))))
    assert created["metadata"]["creationTimestamp"] == "0001-01-01T00:00:00Z"


def test_unknown_fields_are_newer_ones() -> None:
    message = field(1, field(1, b"c")) + field(15, b"later")
    assert protobuf.decode(enveloped("v1", "ConfigMap", message))["metadata"] == {"name": "c"}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{}", 400),
        (b"k8s\x00\x0a", 400),
        (b"k8s\x00\x0a\x7fabc", 400),
        (b"k8s\x00\x0b", 400),
        (enveloped("v1", "ConfigMap", b"\x08\x01"), 400),
        (enveloped("v1", "ConfigMap", field(1, field(1, b"\xff"))), 400),
        (enveloped("v1", "Pod", b""), 415),
        (enveloped("apps/v1", "Deployment", b""), 415),
    ],
)
def test_an_unreadable_body_is_refused(body: bytes, code: int) -> None:
    with pytest.raises(ApiStatusError) as refusal:
        protobuf.decode(body)
    assert refusal.value.code == code


def test_every_field_that_is_numbered_exists() -> None:
    """Walks all types that can be reached from kinds, so that no name in the table is misspelt."""
    left = dict.fromkeys(_TYPES)
    waiting = [builtin.type_of(t) for t in builtin_resources.BUILTIN_RESOURCES]
    waiting += [builtin_types.named_type(name) for name in ("Binding", "DeleteOptions", "Eviction")]
    seen = set()
    while waiting:
        of = waiting.pop()
        if of.element is not None:
            waiting.append(of.element)
        if not of.name or of.name in seen:
            continue
        seen.add(of.name)
        waiting += [member.type for member in of.fields.values()]
        numbered = fields_of(of.name)
        if numbered is not None:
            left.pop(of.name)
            assert {name for name, _ in numbered.values()} <= set(of.fields), of.name
    assert not left
