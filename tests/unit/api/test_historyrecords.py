"""Records of the history: ids, lines, and invalid records."""

from __future__ import annotations

import base64
import gzip
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameworkcontroller import __version__
from frameworkcontroller.api.historyrecords import (
    KINDS,
    MAX_LOG_BYTES,
    SNAPSHOT_TRIGGERS,
    UNREADABLE_ATTEMPT,
    HistoryRecord,
    HistoryRecordError,
    LogRecord,
    RecordId,
    Trigger,
    decode_record,
    encode_record,
    framework_attempt_id,
    is_log_line,
    pod_id,
    task_attempt_id,
)
from frameworkcontroller.api.timestamps import format_precise_time

FRAMEWORK_ID = RecordId(framework_uid="f-1", attempt=2)
TASK_ID = RecordId(framework_uid="f-1", attempt=2, role="worker", task_uid="t-1", task_attempt=0)
POD_ID = RecordId(framework_uid="f-1", attempt=2, role="worker", task_uid="t-1", task_attempt=0, pod_uid="p-1")

LINE: dict[str, Any] = {
    "id": "f-1/2",
    "trigger": "OnFrameworkRetry",
    "time": "2026-01-31T12:00:00.000001Z",
    "cluster": "",
    "namespace": "ns",
    "name": "f",
    "generation": 3,
    "controller": "0.1.0",
    "object": {"kind": "Framework"},
}

ANNOTATIONS = {
    "FC_FRAMEWORK_UID": "f-1",
    "FC_FRAMEWORK_ATTEMPT_ID": "2",
    "FC_TASKROLE_NAME": "worker",
    "FC_TASK_UID": "t-1",
    "FC_TASK_ATTEMPT_ID": "0",
}


@pytest.mark.parametrize(
    ("record_id", "text", "kind"),
    [
        (FRAMEWORK_ID, "f-1/2", "Framework"),
        (TASK_ID, "f-1/2/worker/t-1/0", "Task"),
        (POD_ID, "f-1/2/worker/t-1/0/p-1", "Pod"),
    ],
)
def test_ids(record_id: RecordId, text: str, kind: str) -> None:
    assert str(record_id) == text
    assert RecordId.parse(text) == record_id
    assert record_id.kind == kind


@pytest.mark.parametrize(
    "text",
    ["", "f-1", "f-1/", "/0", "f-1/x", "f-1/-1", "f-1/01", "f-1/0/w", "f-1/0/w/t", "f-1/0/w/t/x", "f-1/0/w/t/0/",
     "f /0", "f-1/0/w/t/0/p/q", "f\n/0", "f-1/99999999999"],
)  # fmt: skip
def test_invalid_ids(text: str) -> None:
    with pytest.raises(HistoryRecordError, match=r"^id: must be .*, not "):
        RecordId.parse(text)


def test_a_line() -> None:
    record = HistoryRecord(
        id=TASK_ID,
        trigger=Trigger.TASK_RETRY,
        time=format_precise_time(1_769_860_800.25),
        cluster="east",
        namespace="ns",
        name="f",
        generation=3,
        object=orjson.Fragment(b'{"kind":"Task","x":"\\n"}'),
    )
    line = encode_record(record)
    assert b"\n" not in line
    assert orjson.loads(line) == {
        "id": "f-1/2/worker/t-1/0",
        "trigger": "OnTaskRetry",
        "time": "2026-01-31T12:00:00.250000Z",
        "cluster": "east",
        "namespace": "ns",
        "name": "f",
        "generation": 3,
        "controller": __version__,
        "object": {"kind": "Task", "x": "\n"},
    }
    decoded = decode_record(line)
    assert (decoded.id, decoded.trigger, decoded.object) == (TASK_ID, Trigger.TASK_RETRY, {"kind": "Task", "x": "\n"})


def test_fields_of_later_versions_are_ignored() -> None:
    assert decode_record(orjson.dumps({**LINE, "later": 1})).id == FRAMEWORK_ID


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"id": None}, "id: must be a text, not null"),
        ({"id": "f-1"}, 'id: must be UID/attempt[/role/UID/attempt[/UID]] of a Framework, Task or Pod, not "f-1"'),
        ({"trigger": "OnTuesday"}, 'trigger: must be one of OnFrameworkCompletion, OnFrameworkRetry'),
        ({"trigger": 1}, "trigger: must be a text, not 1"),
        ({"time": "2026-01-31T12:00:00Z"}, '2026-01-31T12:00:00.000000Z, not "2026-01-31T12:00:00Z"'),
        ({"time": "2026-02-31T12:00:00.000000Z"}, "time: must be like"),
        ({"cluster": None}, "cluster: must be a text, not null"),
        ({"namespace": ""}, 'namespace: must be a text that is not empty, not ""'),
        ({"name": 1}, "name: must be a text that is not empty, not 1"),
        ({"generation": True}, "generation: must be a number from 0, not true"),
        ({"generation": -1}, "generation: must be a number from 0, not -1"),
        ({"controller": []}, "controller: must be a text, not []"),
        ({"object": [1]}, "object: must be a Framework for OnFrameworkRetry"),
        ({"object": {"kind": "Pod"}}, 'kind is "Pod", id "f-1/2"'),
        ({"trigger": "OnTaskRetry", "object": {"kind": "Task"}}, "object: must be a Task for OnTaskRetry"),
    ],
)  # fmt: skip
def test_invalid_records(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(HistoryRecordError) as caught:
        decode_record(orjson.dumps({**LINE, **change}))
    assert problem in str(caught.value)


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b"1", b"\xff", b'{"id":"\\ud800/0"}', b"null"])
def test_lines_without_a_json_object(line: bytes) -> None:
    with pytest.raises(HistoryRecordError, match="JSON"):
        decode_record(line)


def test_a_long_value_is_shown_in_part() -> None:
    with pytest.raises(HistoryRecordError) as caught:
        decode_record(orjson.dumps({**LINE, "trigger": "x" * 100_000}))
    assert len(str(caught.value)) < 400


JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(list(LINE)) | st.text(), inner),
)


@given(st.binary() | JSON.map(orjson.dumps))
def test_any_line_is_read_or_refused(line: bytes) -> None:
    try:
        decode_record(line)
    except HistoryRecordError as error:
        assert str(error)  # noqa: PT017 - any other exception fails the test


def test_ids_of_objects() -> None:
    framework = {"metadata": {"uid": "f-1"}, "status": {"attemptStatus": {"id": 2}}}
    assert framework_attempt_id(framework) == FRAMEWORK_ID
    task = {"metadata": {"uid": "t-1", "annotations": ANNOTATIONS}, "status": {"attemptStatus": {"id": 0}}}
    assert task_attempt_id(task) == TASK_ID
    assert pod_id({"metadata": {"uid": "p-1", "annotations": ANNOTATIONS}}) == POD_ID


@pytest.mark.parametrize("status", [None, {}, {"attemptStatus": None}])
def test_a_framework_that_has_not_started_has_the_id_of_its_first_attempt(status: Any) -> None:
    assert str(framework_attempt_id({"metadata": {"uid": "f-1"}, "status": status})) == "f-1/0"


@pytest.mark.parametrize(
    ("status", "attempt"),
    [
        ({"attemptStatus": {"id": "x"}, "retryPolicyStatus": {"totalRetriedCount": 4}}, 4),
        ({"attemptStatus": [], "retryPolicyStatus": {"totalRetriedCount": 4}}, 4),
        ({"attemptStatus": {"id": -1}, "retryPolicyStatus": {"totalRetriedCount": None}}, UNREADABLE_ATTEMPT),
        ({"attemptStatus": "x"}, UNREADABLE_ATTEMPT),
        ({"state": "none"}, UNREADABLE_ATTEMPT),
        ("x", UNREADABLE_ATTEMPT),
    ],
)
def test_a_status_that_cannot_be_read_takes_no_other_attempts_place(status: Any, attempt: int) -> None:
    """The history has a record of each of those, and the last one of an id counts."""
    found = framework_attempt_id({"metadata": {"uid": "f-1"}, "status": status})
    assert RecordId.parse(str(found)) == RecordId(framework_uid="f-1", attempt=attempt)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [("FC_FRAMEWORK_UID", None), ("FC_FRAMEWORK_UID", "a/b"), ("FC_TASK_ATTEMPT_ID", "-1"), ("FC_TASK_UID", "")],
)
def test_a_pod_whose_annotations_were_changed_has_no_id(annotation: str, value: str | None) -> None:
    with pytest.raises(HistoryRecordError, match=rf"metadata\.annotations\.{annotation}: must be "):
        pod_id({"metadata": {"uid": "p-1", "annotations": {**ANNOTATIONS, annotation: value}}})


def test_every_trigger_has_a_kind() -> None:
    assert set(KINDS) == set(Trigger)


LOG = LogRecord(index=3, pod_name="f-worker-3", node="node-1", container="main")


def gzipped(data: bytes) -> str:
    return base64.b64encode(gzip.compress(data)).decode()


def test_a_log_is_no_snapshot() -> None:
    assert set(Trigger) - SNAPSHOT_TRIGGERS == {Trigger.POD_LOG}


def test_a_record_of_a_log() -> None:
    log = LogRecord(
        index=3, pod_name="f-worker-3", node="node-1", container="main", run=2, cut_start=True, cut_end=True, why="slow"
    ).with_data(b"said\n")
    body = log.encode()
    assert {**body, "data": ""} == {
        "kind": "Log",
        "index": 3,
        "podName": "f-worker-3",
        "node": "node-1",
        "container": "main",
        "run": 2,
        "data": "",
        "size": 5,
        "cutStart": True,
        "cutEnd": True,
        "why": "slow",
    }
    assert gzip.decompress(base64.b64decode(body["data"])) == b"said\n"
    line = orjson.dumps({**LINE, "id": str(POD_ID), "trigger": "OnPodLog", "object": body})
    decoded = decode_record(line)
    assert (decoded.id, decoded.trigger) == (POD_ID, Trigger.POD_LOG)
    assert LogRecord.decode(decoded.object) == log
    assert LogRecord.decode(decoded.object).data() == b"said\n"


def test_lines_of_logs_are_known_without_parsing() -> None:
    def line(trigger: Trigger, name: str, body: dict[str, Any]) -> bytes:
        time = format_precise_time(1_769_860_800.25)
        return encode_record(
            HistoryRecord(
                id=POD_ID, trigger=trigger, time=time, cluster="", namespace="n", name=name, generation=1, object=body
            )
        )

    assert is_log_line(line(Trigger.POD_LOG, "f", LOG.encode()))
    assert not is_log_line(line(Trigger.POD_DELETION, '"trigger":"OnPodLog"', {"kind": "Pod"}))
    # Else users could hide their Frameworks from readers that leave out logs.
    assert not is_log_line(line(Trigger.POD_DELETION, "f", {"kind": "Pod", "spec": {"trigger": "OnPodLog"}}))


@pytest.mark.parametrize("change", [{"id": "f-1/2"}, {"id": str(TASK_ID)}, {"object": {"kind": "Pod"}}])
def test_a_log_belongs_to_a_pod(change: dict[str, Any]) -> None:
    line = {**LINE, "id": str(POD_ID), "trigger": "OnPodLog", "object": LOG.encode(), **change}
    with pytest.raises(HistoryRecordError, match="object: must be a Log for OnPodLog"):
        decode_record(orjson.dumps(line))


@pytest.mark.parametrize("size", [0, MAX_LOG_BYTES, MAX_LOG_BYTES + 1])
def test_a_log_has_a_bounded_end(size: int) -> None:
    data = bytes(range(256)) * 4096 + b"!"
    log = LOG.with_data(data[-size:] if size else b"")
    assert LogRecord.decode(log.encode()).data() == (data[-min(size, MAX_LOG_BYTES) :] if size else b"")
    assert log.cut_start == (size > MAX_LOG_BYTES)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"index": -1}, "object.index: must be a number from 0, not -1"),
        ({"run": True}, "object.run: must be a number from 0, not true"),
        ({"size": None}, "object.size: must be a number from 0, not null"),
        ({"cutEnd": 1}, "object.cutEnd: must be true or false, not 1"),
        ({"podName": ""}, 'object.podName: must have 1 to 253 characters, not ""'),
        ({"container": "c" * 254}, "object.container: must have 1 to 253 characters"),
        ({"node": None}, "object.node: must be a text, not null"),
        ({"data": "?"}, "object.data: must be base64"),
        ({"data": "AAAA", "size": 3}, "object.data: not gzip"),
        ({"data": gzipped(b"1234"), "size": 3}, "object.data: must be gzip with 3 bytes"),
        ({"data": gzipped(b"1234"), "size": 5}, "object.data: must be gzip with 5 bytes"),
        ({"data": gzipped(b"1234")[:-8], "size": 4}, "object.data: must be gzip with 4 bytes"),
        ({"data": gzipped(b"") + gzipped(b"x" * 9), "size": 0}, "object.data: must be "),
        ({"data": gzipped(bytes(50 * 2**20)), "size": 2**20}, "object.data: must be gzip with 1048576 bytes"),
        ({"data": gzipped(bytes(2**20 + 1)), "size": 2**20 + 1}, "object.size: must be at most 1048576, not 1048577"),
    ],
)  # fmt: skip
def test_invalid_logs(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(HistoryRecordError) as caught:
        LogRecord.decode({**LOG.encode(), **change})
    assert str(caught.value).startswith(problem)


def test_a_long_reason_is_cut() -> None:
    assert len(LogRecord.decode({**LOG.encode(), "why": "w" * 10_000}).why) == 512
