"""The records of watched objects."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from frameworkcontroller.api.names import POD_IDENTITY
from frameworkcontroller.api.objects import (
    ObjectError,
    Parsed,
    compressed_json,
    configmap_record,
    decoded_json,
    decompressed_json,
    encoded_json,
    framework_record,
    identity_of,
    pod_record,
)
from tests.support.bench import NOW, Bench, Body, role

DELETION = {"deletionTimestamp": "2023-11-14T22:13:50Z", "deletionGracePeriodSeconds": 30}


def pod(**fields: Any) -> Body:
    """A Pod as the API server sends it; ``fields`` are merged into it."""
    body: Body = {
        "metadata": {"name": "f-a-0", "namespace": "ns", "uid": "u", "resourceVersion": "7", "labels": {}},
        "spec": {},
        "status": {"phase": "Pending"},
    }
    for key, value in fields.items():
        body[key] = {**body[key], **value}
    return body


def test_a_pod_that_was_just_created() -> None:
    record = pod_record(pod())
    assert (record.key, record.namespace, record.name, record.uid, record.resource_version) == (
        "ns/f-a-0",
        "ns",
        "f-a-0",
        "u",
        "7",
    )
    assert (record.phase, record.node_name, record.pod_ip, record.host_ip) == ("Pending", "", "", "")
    assert (record.identity.deletion_time, record.identity.deletion_grace_sec, record.containers) == (None, 0, ())


def test_a_pod_that_runs() -> None:
    record = pod_record(
        pod(
            spec={"nodeName": "n"},
            status={"phase": "Running", "podIP": "10.0.0.1", "hostIP": "10.0.1.1"},
        )
    )
    assert (record.phase, record.node_name, record.pod_ip, record.host_ip) == ("Running", "n", "10.0.0.1", "10.0.1.1")


def test_a_pod_that_is_being_deleted() -> None:
    record = pod_record(pod(metadata=DELETION))
    assert record.identity.deleting
    assert (record.identity.deletion_time, record.identity.deletion_grace_sec) == (NOW + 30, 30)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_containers_are_kept_only_of_a_pod_that_has_ended_and_init_containers_come_first(phase: str) -> None:
    statuses = {
        "containerStatuses": [{"name": "main", "state": {"terminated": {"exitCode": 3, "signal": 9, "reason": "R"}}}],
        "initContainerStatuses": [{"name": "setup", "state": {"waiting": {}}}],
    }
    assert pod_record(pod(status={"phase": "Running", **statuses})).containers == ()
    record = pod_record(pod(status={"phase": phase, **statuses}))
    setup, main = record.containers
    assert (setup.completion.name, setup.completion.code, setup.terminated) == ("setup", 0, False)
    assert (main.completion.code, main.completion.signal, main.completion.reason) == (3, 9, "R")


@pytest.mark.parametrize("phase", ["Failed", "Succeeded", "Running"])
@pytest.mark.parametrize("listed", ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"])
@pytest.mark.parametrize(("spec", "expected"), [({}, 30), ({"terminationGracePeriodSeconds": 0}, 0)])
def test_the_grace_period_is_kept_only_of_an_ended_pod_with_a_running_container(
    phase: str, listed: str, spec: Body, expected: int
) -> None:
    def grace(state: Body) -> int | None:
        return pod_record(
            pod(spec=spec, status={"phase": phase, listed: [{"name": "main", "state": state}]})
        ).running_grace_sec

    assert grace({"running": {}}) == (None if phase == "Running" else expected)
    assert grace({"terminated": {"exitCode": 1}}) is None


@pytest.mark.parametrize(
    ("conditions", "ready"),
    [
        (None, False),
        ([{"type": "Ready", "status": "False"}, {"type": "ContainersReady", "status": "True"}], False),
        ([{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}], True),
    ],
)
def test_a_pod_is_ready_by_its_condition(conditions: list[Body] | None, *, ready: bool) -> None:
    assert pod_record(pod(status={"phase": "Running", "conditions": conditions})).ready is ready


@pytest.mark.parametrize(
    ("gates", "queued"),
    [
        (None, False),
        ([], False),
        ([{"name": "kueue.x-k8s.io/topology"}], False),
        ([{"name": "kueue.x-k8s.io/topology"}, {"name": "kueue.x-k8s.io/admission"}], True),
    ],
)
def test_whether_kueue_queues_a_pod_by_itself_is_an_event(gates: list[Body] | None, *, queued: bool) -> None:
    before = pod_record(pod(status={"phase": "Pending"}))
    record = pod_record(pod(spec={"schedulingGates": gates}, status={"phase": "Pending"}))
    assert (record.queued, record.inputs != before.inputs) == (queued, queued)


def test_who_an_object_is() -> None:
    bench = Bench(role())
    bench.pod()
    identity = bench.pods["f-a-0"].identity
    status, task = bench.status.attempt, bench.task()
    assert identity.controller_uid == status.configmap_uid
    assert identity.annotations == (
        "framework-uid",
        f"0_{status.configmap_uid}",
        status.roles[0].instance_uid,
        task.instance_uid,
        "0",
    )
    assert bench.configmap is not None
    assert bench.configmap.identity.annotations == ("framework-uid", "0")
    assert bench.configmap.identity.controller_uid == "framework-uid"


def test_pods_of_an_attempt_share_equal_values() -> None:
    owners = [{"uid": "5c9a9b2c", "controller": True}]
    body = orjson.dumps(pod(metadata={"annotations": dict.fromkeys(POD_IDENTITY, "6b1c"), "ownerReferences": owners}))
    first, second = (pod_record(orjson.loads(body)).identity for _ in range(2))
    assert first.controller_uid is second.controller_uid
    assert first.annotations is not None
    assert second.annotations is not None
    assert all(one is other for one, other in zip(first.annotations, second.annotations, strict=True))


@pytest.mark.parametrize(
    ("owners", "expected"),
    [
        (None, None),
        ([], None),
        ([{"uid": "x"}], None),
        ([{"uid": "x", "controller": False}], None),
        ([{"uid": "x"}, {"uid": "y", "controller": True}], "y"),
    ],
)
def test_the_owner_that_counts_is_the_controller(owners: Any, expected: str | None) -> None:
    metadata = {"uid": "u", "ownerReferences": owners}
    assert identity_of(metadata, POD_IDENTITY).controller_uid == expected


def test_marks_count_only_if_all_are_there() -> None:
    annotations = dict.fromkeys(POD_IDENTITY, "x")
    assert identity_of({"uid": "u", "annotations": annotations}, POD_IDENTITY).annotations == ("x",) * len(POD_IDENTITY)
    for missing in POD_IDENTITY:
        some = {key: value for key, value in annotations.items() if key != missing}
        assert identity_of({"uid": "u", "annotations": some}, POD_IDENTITY).annotations is None
    assert identity_of({"uid": "u"}, POD_IDENTITY).annotations is None


def test_a_framework() -> None:
    record = framework_record(
        {
            "metadata": {
                "name": "f",
                "namespace": "ns",
                "uid": "u",
                "resourceVersion": "7",
                "generation": 3,
                "annotations": {"requestGeneration": "1"},
            },
            "spec": {"taskRoles": [{"name": "a"}]},
            "status": {"state": "Completed"},
        }
    )
    assert (record.key, record.uid, record.generation, record.deletion_time) == ("ns/f", "u", 3, None)
    assert orjson.loads(record.spec_json) == {"taskRoles": [{"name": "a"}]}
    assert orjson.loads(record.metadata_json)["annotations"] == {"requestGeneration": "1"}
    assert record.status == {"state": "Completed"}


def test_a_compressed_status_is_read_as_it_was() -> None:
    status = {"state": "AttemptRunning", "attemptStatus": {"taskRoleStatuses": [{"name": "a"}] * 100}}
    encoded = encoded_json(status)
    compressed = compressed_json(encoded)
    assert isinstance(encoded, bytes)
    assert isinstance(compressed, bytes)
    assert len(compressed) < len(encoded) / 5
    assert decompressed_json(compressed) == encoded
    assert decoded_json(decompressed_json(compressed)) == status
    for other in (None, Parsed(status)):
        assert decompressed_json(compressed_json(other)) is other


def test_a_framework_without_a_spec_or_a_status() -> None:
    metadata = {"name": "f", "namespace": "ns", "uid": "u", "resourceVersion": "7"}
    record = framework_record({"metadata": metadata | DELETION})
    assert (record.generation, record.deletion_time, record.spec_json, record.status) == (0, NOW + 30, b"null", None)


@pytest.mark.parametrize("field", ["name", "namespace", "uid", "resourceVersion"])
@pytest.mark.parametrize("decode", [pod_record, configmap_record, framework_record])
def test_required_fields(decode: Any, field: str) -> None:
    body = pod()
    del body["metadata"][field]
    with pytest.raises(ObjectError, match=f"field '{field}' is missing"):
        decode(body)


@pytest.mark.parametrize("body", [{}, {"metadata": None}, {"metadata": []}, [], 7, {"metadata": {"name": 7}}])
@pytest.mark.parametrize("decode", [pod_record, configmap_record, framework_record])
def test_invalid_objects(decode: Any, body: Any) -> None:
    with pytest.raises(ObjectError):
        decode(body)


@pytest.mark.parametrize(
    "body",
    [
        pod(status={"phase": 7}),
        pod(spec={"nodeName": ["n"]}),
        pod(metadata={"deletionTimestamp": "soon"}),
        pod(status={"phase": "Failed", "containerStatuses": 7}),
        pod(status={"phase": "Failed", "containerStatuses": ["x"]}),
    ],
)
def test_a_pod_that_cannot_be_used(body: Body) -> None:
    with pytest.raises(ObjectError):
        pod_record(body)


META = {"namespace": "ns", "name": "f", "uid": "u", "resourceVersion": "1", "generation": 2}


def nested(levels: int) -> Any:
    """A value of this number of levels."""
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize("levels", [255, 900])
def test_a_spec_that_is_too_deep_can_still_end_its_framework(levels: int) -> None:
    metadata = {**META, "generation": 2, "managedFields": [nested(levels)], "finalizers": ["a/b"]}
    spec = {"suspend": True, "executionType": nested(levels), "taskRoles": [nested(levels)], "activeDeadlineSeconds": 5}
    record = framework_record({"metadata": metadata, "spec": spec, "status": {"state": "Completed"}})
    assert "254 levels" in record.spec_problem
    assert orjson.loads(record.spec_json) == {"suspend": True, "executionType": [], "activeDeadlineSeconds": 5}
    assert (record.state, record.finalizers) == ("Completed", ("a/b",))
    assert orjson.loads(record.metadata_json)["generation"] == 2
    record = framework_record({"metadata": metadata, "spec": [nested(levels)], "status": None})
    assert (record.spec_json, bool(record.spec_problem)) == (b"[]", True)


def test_a_spec_of_as_many_levels_as_there_may_be_is_whole() -> None:
    spec = {"a": nested(200)}
    record = framework_record({"metadata": META, "spec": spec})
    assert (orjson.loads(record.spec_json), record.spec_problem) == (spec, "")
