"""The JSON of a status: the contract, round trips, statuses of the original, and invalid ones."""

from __future__ import annotations

import base64
import gzip
import random
import re
import uuid
from dataclasses import fields, is_dataclass, replace
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameworkcontroller.api.codec import (
    COMPRESSION_THRESHOLD_BYTES,
    EncodedStatus,
    StatusError,
    decode_status,
    decompress_roles,
    encode_status,
    encode_task,
)
from frameworkcontroller.api.completion import CompletionStatus, ContainerCompletion, PodCompletion, Trigger
from frameworkcontroller.api.problems import shown
from frameworkcontroller.api.status import (
    Condition,
    FrameworkAttemptStatus,
    FrameworkStatus,
    TaskAttemptStatus,
    TaskRoleStatus,
    TaskStatus,
)

T0 = 1_700_000_000
TEXT = "2023-11-14T22:13:%02dZ"

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
# JSON has neither NaN nor infinity, and no report of progress is taken with one.
FIGURES = st.floats(allow_nan=False, allow_infinity=False)
PLAIN = {int: st.integers(-1399, 4_000_000_000), float: FIGURES, str: WORDS, Any: WORDS}


def encode(status: FrameworkStatus, *, compress: bool = False) -> Any:
    """The status as JSON values."""
    return orjson.loads(EncodedStatus("f", status, compress=compress).body)


def status_of(*tasks: TaskStatus, **fields: Any) -> FrameworkStatus:
    """A plain status with one role ``worker``."""
    attempt = FrameworkAttemptStatus(0, T0, roles=[TaskRoleStatus("worker", "role-uid", None, list(tasks))])
    return FrameworkStatus(T0, T0, attempt, **fields)


def task_of(index: int = 0, **fields: Any) -> TaskStatus:
    """A plain Task."""
    attempt = fields.pop("attempt", TaskAttemptStatus(0, T0))
    return TaskStatus(index, f"task-{index}", T0, T0, attempt, **fields)


# --- the contract ---


def test_every_field_of_a_status_that_has_just_begun() -> None:
    assert encode(status_of(task_of())) == {
        "startTime": TEXT % 20,
        "runTime": None,
        "completionTime": None,
        "transitionTime": TEXT % 20,
        "state": "AttemptCreationPending",
        "retryPolicyStatus": {"totalRetriedCount": 0, "accountableRetriedCount": 0, "retryDelaySec": None},
        "attemptStatus": {
            "id": 0,
            "startTime": TEXT % 20,
            "runTime": None,
            "completionTime": None,
            "instanceUID": None,
            "configMapName": "f-attempt",
            "configMapUID": None,
            "completionStatus": None,
            "taskRoleStatuses": [
                {
                    "name": "worker",
                    "instanceUID": "role-uid",
                    "podGracefulDeletionTimeoutSec": None,
                    "taskStatuses": [
                        {
                            "index": 0,
                            "instanceUID": "task-0",
                            "startTime": TEXT % 20,
                            "runTime": None,
                            "completionTime": None,
                            "transitionTime": TEXT % 20,
                            "state": "AttemptCreationPending",
                            "deletionPending": False,
                            "retryPolicyStatus": {
                                "totalRetriedCount": 0,
                                "accountableRetriedCount": 0,
                                "retryDelaySec": None,
                            },
                            "attemptStatus": {
                                "id": 0,
                                "startTime": TEXT % 20,
                                "runTime": None,
                                "completionTime": None,
                                "instanceUID": None,
                                "podName": "f-worker-0",
                                "podUID": None,
                                "podNodeName": None,
                                "podIP": None,
                                "podHostIP": None,
                                "completionStatus": None,
                            },
                        }
                    ],
                }
            ],
        },
    }


def test_derived_fields() -> None:
    attempt = TaskAttemptStatus(2, T0, pod_uid="pod-uid", pod_node_name="", pod_ip="10.0.0.1", pod_host_ip="")
    status = status_of(task_of(attempt=attempt))
    status.attempt = replace(status.attempt, id=3, configmap_uid="cm-uid")
    body = encode(status)["attemptStatus"]
    assert body["instanceUID"] == "3_cm-uid"
    pod = body["taskRoleStatuses"][0]["taskStatuses"][0]["attemptStatus"]
    assert (pod["instanceUID"], pod["podNodeName"], pod["podIP"], pod["podHostIP"]) == ("2_pod-uid", "", "10.0.0.1", "")


def test_completion_status_of_a_framework() -> None:
    status = status_of(observed_generation=4)
    trigger = Trigger("why", "worker", 2)
    status.attempt.completion_status = CompletionStatus(210, "P", "Failed", ("Permanent",), "said", trigger)
    body = encode(status)
    assert body["observedGeneration"] == 4
    assert body["attemptStatus"]["completionStatus"] == {
        "code": 210,
        "phrase": "P",
        "type": {"name": "Failed", "attributes": ["Permanent"]},
        "diagnostics": "said",
        "trigger": {"message": "why", "taskRoleName": "worker", "taskIndex": 2},
    }


@pytest.mark.parametrize(("attributes", "expected"), [((), []), (None, None), (("Transient",), ["Transient"])])
def test_no_attributes_are_empty_and_none_given_are_null(attributes: Any, expected: Any) -> None:
    completion = CompletionStatus(1, "P", "Failed", attributes, "")
    body = orjson.loads(encode_task("f", "a", task_of(attempt=TaskAttemptStatus(0, T0, completion_status=completion))))
    assert body["attemptStatus"]["completionStatus"] == {
        "code": 1,
        "phrase": "P",
        "type": {"name": "Failed", "attributes": expected},
        "diagnostics": "",
    }


def test_the_status_of_a_pod_omits_empty_fields_except_the_code() -> None:
    pod = PodCompletion("", "said", (ContainerCompletion("one", 0), ContainerCompletion("two", 137, "OOM", "m", 9)))
    completion = CompletionStatus(137, "P", "Failed", (), "d", pod=pod)
    body = orjson.loads(encode_task("f", "a", task_of(attempt=TaskAttemptStatus(0, T0, completion_status=completion))))
    assert body["attemptStatus"]["completionStatus"]["pod"] == {
        "message": "said",
        "containers": [
            {"name": "one", "code": 0},
            {"name": "two", "reason": "OOM", "message": "m", "signal": 9, "code": 137},
        ],
    }


def test_conditions() -> None:
    status = status_of(conditions=[Condition("Running", "True", "R", "m", T0 + 1, 5)])
    assert encode(status)["conditions"] == [
        {
            "type": "Running",
            "status": "True",
            "reason": "R",
            "message": "m",
            "lastTransitionTime": TEXT % 21,
            "observedGeneration": 5,
        }
    ]
    assert "conditions" not in encode(status_of())


def test_the_json_of_a_task_is_cached() -> None:
    task = task_of()
    first = encode_task("f", "a", task)
    task.is_leaving = True
    assert encode_task("f", "a", task) is first
    task.encoded = None
    assert orjson.loads(encode_task("f", "a", task))["deletionPending"] is True


# --- compression --------------------------------------------------------------------------------------------------


def big(size: int) -> FrameworkStatus:
    """A status whose roles are encoded in exactly ``size`` bytes."""

    def made(padding: int) -> FrameworkStatus:
        completion = CompletionStatus(1, "P", "Failed", (), "x" * padding)
        return status_of(task_of(attempt=TaskAttemptStatus(0, T0, completion_status=completion)))

    empty = len(EncodedStatus("f", made(0))._roles)
    return made(size - empty)


def test_from_the_threshold_on_roles_are_stored_compressed() -> None:
    assert COMPRESSION_THRESHOLD_BYTES == 700 * 1024
    status = big(COMPRESSION_THRESHOLD_BYTES)
    raw = EncodedStatus("f", status)._roles
    assert len(raw) == COMPRESSION_THRESHOLD_BYTES
    attempt = encode(status, compress=True)["attemptStatus"]
    assert attempt["taskRoleStatuses"] is None
    assert gzip.decompress(base64.b64decode(attempt["taskRoleStatusesCompressed"])) == raw
    assert decode_status(encode(status, compress=True)) is not None
    assert encode(decode_status(encode(status, compress=True)) or status) == encode(status)


def test_below_the_threshold_and_without_the_option_roles_are_stored_raw() -> None:
    for status, compress in (
        (big(COMPRESSION_THRESHOLD_BYTES - 1), True),
        (big(COMPRESSION_THRESHOLD_BYTES + 1), False),
    ):
        attempt = encode(status, compress=compress)["attemptStatus"]
        assert "taskRoleStatusesCompressed" not in attempt
        assert attempt["taskRoleStatuses"]


def test_ten_thousand_tasks_leave_room_in_an_api_object() -> None:
    """Their UIDs alone, which nothing compresses, fill a good part of it."""
    rng = random.Random(1)

    def uid() -> str:
        return str(uuid.UUID(int=rng.getrandbits(128)))

    def made(index: int) -> TaskStatus:
        address = f"10.{rng.randrange(256)}.{rng.randrange(256)}.{rng.randrange(256)}"
        attempt = TaskAttemptStatus(
            0,
            T0,
            T0 + index // 40,
            pod_uid=uid(),
            pod_node_name=f"node{index % 97}",
            pod_ip=address,
            pod_host_ip=address,
        )
        return replace(task_of(index, attempt=attempt), instance_uid=uid())

    stored = EncodedStatus("f", status_of(*map(made, range(10_000))), compress=True).body
    assert len(stored) < 1_572_864 * 0.7


def test_the_raw_field_is_read_if_it_is_not_null() -> None:
    body = encode(status_of(task_of()))
    body["attemptStatus"]["taskRoleStatusesCompressed"] = "not even base64"
    decoded = decode_status(body)
    assert decoded is not None
    assert decoded.attempt.roles[0].name == "worker"
    body["attemptStatus"]["taskRoleStatuses"] = []
    decoded = decode_status(body)
    assert decoded is not None
    assert decoded.attempt.roles == []


@pytest.mark.parametrize(
    "text",
    [
        "not base64!",
        base64.b64encode(b"not gzip").decode(),
        base64.b64encode(gzip.compress(b"not json", mtime=0)).decode(),
        base64.b64encode(gzip.compress(b"[]", mtime=0)[:-4]).decode(),
    ],
)
def test_invalid_compressed_roles(text: str) -> None:
    body = encode(status_of())
    body["attemptStatus"] |= {"taskRoleStatuses": None, "taskRoleStatusesCompressed": text}
    with pytest.raises(StatusError, match="taskRoleStatusesCompressed"):
        decode_status(body)


def test_a_gzip_bomb_is_refused() -> None:
    bomb = base64.b64encode(gzip.compress(b" " * (65 << 20) + b"[]", compresslevel=9)).decode()
    with pytest.raises(StatusError, match="over"):
        decompress_roles(bomb)


# --- round trips --------------------------------------------------------------------------------------------------


def any_of(hint: Any) -> st.SearchStrategy[Any]:
    """Any value of the type."""
    inner = [any_of(arg) for arg in get_args(hint) if arg not in (NoneType, Ellipsis)]
    origin = get_origin(hint) or hint
    if isinstance(hint, type) and is_dataclass(hint):
        hints = get_type_hints(hint)
        return st.builds(hint, **{field.name: any_of(hints[field.name]) for field in fields(hint) if field.init})
    if origin in (Union, UnionType):
        return st.none() | inner[0]
    if origin in (list, tuple):
        return st.lists(inner[0], max_size=2).map(origin)
    if origin is dict:
        return st.dictionaries(*inner, max_size=2)
    return PLAIN[hint] if hint in PLAIN else st.from_type(hint)


def put_in_order(status: FrameworkStatus) -> FrameworkStatus:
    """Give the Tasks their roles and indexes."""
    for role in status.attempt.roles:
        role.pod_force_deletion_policy = role.pod_force_deletion_policy or None
        for index, task in enumerate(role.tasks):
            task.index, task.role = index, role.name
    return status


@given(any_of(FrameworkStatus).map(put_in_order))
def test_round_trip(status: FrameworkStatus) -> None:
    encoded = encode_status("f", status)
    decoded = decode_status(orjson.loads(encoded))
    assert decoded is not None
    assert encode_status("f", decoded) == encoded
    # Field by field; Tasks and roles are compared by identity otherwise.
    assert replace(decoded, attempt=replace(decoded.attempt, roles=[])) == replace(
        status, attempt=replace(status.attempt, roles=[])
    )
    for role, again in zip(status.attempt.roles, decoded.attempt.roles, strict=True):
        assert_equal(role, again, "tasks")
        for task, task_again in zip(role.tasks, again.tasks, strict=True):
            assert_equal(task, task_again, "encoded")


def test_a_time_of_zero_is_kept() -> None:
    status = FrameworkStatus(0, 0, FrameworkAttemptStatus(0, 0, execution_start_time=0))
    decoded = decode_status(orjson.loads(encode_status("f", status)))
    assert decoded is not None
    assert decoded.attempt.execution_start_time == 0


def assert_equal(one: Any, other: Any, ignored: str) -> None:
    """Compare the fields except one."""
    for field in fields(one):
        if field.name != ignored:
            assert getattr(one, field.name) == getattr(other, field.name), field.name


# --- other writers ---


@pytest.mark.parametrize("body", [None, {}])
def test_no_status_yet(body: Any) -> None:
    assert decode_status(body) is None


def test_a_status_of_the_original_is_read() -> None:
    """Without this project's own fields, and with keys that it does not know."""
    body = encode(status_of(task_of()))
    body["novel"] = {"x": 1}
    body["attemptStatus"]["taskRoleStatuses"][0]["taskStatuses"][0]["novel"] = []
    del body["attemptStatus"]["taskRoleStatuses"][0]["instanceUID"]
    del body["attemptStatus"]["taskRoleStatuses"][0]["podGracefulDeletionTimeoutSec"]
    del body["attemptStatus"]["taskRoleStatuses"][0]["taskStatuses"][0]["instanceUID"]
    del body["attemptStatus"]["taskRoleStatuses"][0]["taskStatuses"][0]["deletionPending"]
    decoded = decode_status(body)
    assert decoded is not None
    assert decoded.observed_generation is None
    assert decoded.conditions == []
    assert decoded.attempt.roles[0].tasks[0].is_leaving is False


def test_times_with_fractions_and_zones_are_read() -> None:
    body = encode(status_of())
    body["startTime"] = "2023-11-14T23:13:20.5+01:00"
    decoded = decode_status(body)
    assert decoded is not None
    assert decoded.start_time == T0


def broken(path: str, value: Any) -> Any:
    """An encoded status with that value at that dotted path; ``...`` takes the field out."""
    completion = CompletionStatus(1, "P", "Failed", (), "d")
    body = encode(status_of(task_of(attempt=TaskAttemptStatus(0, T0, completion_status=completion))))
    *parents, last = path.split(".")
    target = body
    for part in parents:
        target = target[int(part) if part.isdigit() else part]
    if value is ...:
        del target[last]
    else:
        target[int(last) if last.isdigit() else last] = value
    return body


ROLE = "attemptStatus.taskRoleStatuses.0"
TASK = f"{ROLE}.taskStatuses.0"
NAMED = "attemptStatus.taskRoleStatuses[0]"


@pytest.mark.parametrize(
    ("path", "value", "story"),
    [
        ("state", "Nonsense", "status.state: 'Nonsense': must be one of AttemptCreationPending, "),
        ("state", ["Completed"], "status.state: a list: must be one of "),
        ("state", ..., "status.state: is required"),
        ("startTime", ..., "status.startTime: is required"),
        ("startTime", "yesterday", "status.startTime: 'yesterday': must be a time of RFC 3339 from year 1 to 9999"),
        ("startTime", "9999-12-31T23:59:59-23:59", "status.startTime: '9999-12-31T23:59:59-23:59': must be a time"),
        ("runTime", 7, "status.runTime: 7: must be a time"),
        ("completionTime", [], "status.completionTime: a list: must be a time"),
        ("transitionTime", None, "status.transitionTime: is required"),
        ("attemptStatus", ..., "status.attemptStatus: is required"),
        ("attemptStatus", [], "status.attemptStatus: a list: must be an object"),
        ("attemptStatus.id", "0", "status.attemptStatus.id: '0': must be a whole number"),
        ("attemptStatus.id", True, "status.attemptStatus.id: true: must be a whole number"),
        ("attemptStatus.taskRoleStatuses", 7, "status.attemptStatus.taskRoleStatuses: 7: must be a list"),
        (ROLE, None, f"status.{NAMED}: null: must be an object"),
        (f"{ROLE}.name", ..., f"status.{NAMED}.name: is required"),
        (f"{ROLE}.name", 7, f"status.{NAMED}.name: 7: must be text"),
        (f"{TASK}.index", 1, f"status.{NAMED}.taskStatuses[0].index: 1: must be 0"),
        (f"{TASK}.index", "0", f"status.{NAMED}.taskStatuses[0].index: '0': must be a whole number"),
        (f"{TASK}.state", "Running", f"status.{NAMED}.taskStatuses[0].state: 'Running': must be one of "),
        (f"{TASK}.deletionPending", "false", f"{NAMED}.taskStatuses[0].deletionPending: 'false': must be true or f"),
        (f"{TASK}.attemptStatus", ..., f"status.{NAMED}.taskStatuses[0].attemptStatus: is required"),
        (f"{TASK}.attemptStatus.podIP", ["x" * 100], "podIP: a list: must be text"),
        (f"{TASK}.attemptStatus.completionStatus", "x", "attemptStatus.completionStatus: 'x': must be an object"),
        (f"{TASK}.attemptStatus.completionStatus.code", ..., "attemptStatus.completionStatus.code: is required"),
        (f"{TASK}.attemptStatus.completionStatus.code", 1.5, "completionStatus.code: 1.5: must be a whole number"),
        (f"{TASK}.attemptStatus.completionStatus.type.attributes", "x", "type.attributes: 'x': must be a list"),
        (f"{TASK}.attemptStatus.completionStatus.type.attributes", [1], "type.attributes[0]: 1: must be text"),
        ("retryPolicyStatus", "x", "status.retryPolicyStatus: 'x': must be an object"),
        (
            "retryPolicyStatus.totalRetriedCount",
            {},
            "status.retryPolicyStatus.totalRetriedCount: a mapping: must be a",
        ),
    ],
)
def test_errors_of_a_status_have_path_and_value(path: str, value: Any, story: str) -> None:
    with pytest.raises(StatusError, match=re.escape(story)):
        decode_status(broken(path, value))


def test_a_condition_needs_no_more_than_the_crd_asks_for() -> None:
    status = decode_status(broken("conditions", [{"type": "Seen", "status": "True"}]))
    assert status is not None
    assert [(one.type, one.status, one.last_transition_time) for one in status.conditions] == [("Seen", "True", 0)]


@pytest.mark.parametrize("body", [7, "text", [1]])
def test_a_status_that_is_no_object(body: Any) -> None:
    with pytest.raises(StatusError, match=re.escape(f"status: {shown(body)}: must be an object")):
        decode_status(body)
