"""Foreign input only causes its own error: objects, specs, statuses, configuration, patterns."""

from __future__ import annotations

import base64
import gzip
import random
import time
import tracemalloc
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from frameworkcontroller.api.codec import (
    MAX_DECOMPRESSED_BYTES,
    EncodedStatus,
    StatusError,
    decode_status,
    decompress_roles,
    encode_status,
)
from frameworkcontroller.api.failurespec import compile_regex
from frameworkcontroller.api.objects import (
    Framework,
    ObjectError,
    configmap_record,
    framework_record,
    pod_record,
)
from frameworkcontroller.api.spec import MAX_TASK_COUNT, FrameworkSpec, SpecError, parse_spec
from frameworkcontroller.barrier.exits import CheckFailed
from frameworkcontroller.barrier.files import injector
from frameworkcontroller.barrier.frameworkreader import _decoded, _unpack, addresses
from frameworkcontroller.config.config import SHIPPED_CONFIG_FILE, ConfigurationError, load_config
from frameworkcontroller.controller.snapshots import SnapshotLogger
from frameworkcontroller.kube.errors import ApiError, error_from_answer
from frameworkcontroller.machine.kernel.failure import Classifier
from frameworkcontroller.machine.kernel.model import Env, InvariantError, Observed
from frameworkcontroller.machine.kernel.protocol import RequeueError, read_live
from frameworkcontroller.machine.kernel.requests import Answered
from frameworkcontroller.machine.kernel.tracker import Tracker
from frameworkcontroller.machine.plan import plan
from frameworkcontroller.machine.reconciler import Reconciler
from frameworkcontroller.machine.specreading import Ends, spec_to_end
from tests.support.bench import NOW, Bench, limits, role
from tests.support.mangled import VALUES, mangled
from tests.support.podtemplates import pod_template

METADATA: Final = {
    "name": "f-a-0",
    "namespace": "ns",
    "uid": "11111111-1111-4111-8111-111111111111",
    "resourceVersion": "7",
    "generation": 2,
    "creationTimestamp": "2026-01-01T00:00:00Z",
    "deletionTimestamp": "2026-01-01T00:00:30Z",
    "deletionGracePeriodSeconds": 30,
    "labels": {"FC_FRAMEWORK_NAME": "f", "FC_TASKROLE_NAME": "a", "FC_TASK_INDEX": "0"},
    "annotations": {
        "FC_FRAMEWORK_UID": "u",
        "FC_FRAMEWORK_ATTEMPT_INSTANCE_UID": "0_c",
        "FC_FRAMEWORK_ATTEMPT_ID": "0",
        "FC_TASKROLE_UID": "r",
        "FC_TASK_UID": "t",
        "FC_TASK_ATTEMPT_ID": "0",
    },
    "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "f-attempt", "uid": "c", "controller": True}],
}
ENDED: Final = {"exitCode": 1, "signal": 9, "reason": "Error", "message": "m", "finishedAt": "2026-01-01T00:00:00Z"}
POD: Final = {
    "metadata": METADATA,
    "spec": {"nodeName": "node-1", "containers": [{"name": "main", "image": "none"}]},
    "status": {
        "phase": "Failed",
        "reason": "Evicted",
        "message": "low on memory",
        "podIP": "10.0.0.1",
        "hostIP": "10.0.1.1",
        "initContainerStatuses": [{"name": "init", "state": {"terminated": {"exitCode": 0}}}],
        "containerStatuses": [{"name": "main", "state": {"terminated": ENDED}}],
    },
}
SPEC: Final = {
    "description": "d",
    "executionType": "Start",
    "retryPolicy": {"fancyRetryPolicy": True, "maxRetryCount": 3, "backoff": {"baseSeconds": 1, "maxSeconds": 2}},
    "taskRoles": [
        {
            "name": name,
            "taskNumber": 2,
            "frameworkAttemptCompletionPolicy": {"minFailedTaskCount": 1, "minSucceededTaskCount": -1},
            "task": {
                "retryPolicy": {"fancyRetryPolicy": False, "maxRetryCount": -1},
                "podGracefulDeletionTimeoutSec": 30,
                "pod": {
                    "metadata": {"labels": {"x": "y"}, "annotations": {"n": "{{FC_TASK_INDEX}}"}},
                    "spec": {
                        "initContainers": [{"name": "i", "env": [{"name": "A", "value": "b"}]}],
                        "containers": [{"name": "main", "image": "none", "command": ["sh", "-c", "{{FC_POD_NAME}}"]}],
                    },
                },
            },
        }
        for name in ("a", "b")
    ],
}


def _status(at: str) -> Any:
    bench = Bench(role("a", 2, failed=2), role("b", 1))
    bench.all_pods()
    if at != "prepared":
        bench.run()
        bench.show("f-a-0", phase="Failed", message="it broke")
        bench.plan()
    if at == "completed":
        bench.end(code=1)
    return orjson.loads(encode_status("f", bench.status))


def nested(levels: int) -> Any:
    """A list in a list, and so on: more levels than orjson encodes, and fewer than it decodes."""
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


STATUSES: Final = [_status(at) for at in ("prepared", "running", "completed")]
FRAMEWORK: Final = {"metadata": {**METADATA, "name": "f"}, "spec": SPEC, "status": STATUSES[1]}
DECODERS: Final = [(pod_record, POD), (configmap_record, {"metadata": METADATA}), (framework_record, FRAMEWORK)]


@pytest.mark.parametrize(("decode", "proper"), DECODERS)
def test_proper_objects_can_be_read(decode: Any, proper: Any) -> None:
    decode(proper)


@pytest.mark.parametrize(("decode", "proper"), DECODERS)
@settings(max_examples=200)
@given(data=st.data())
def test_an_object_can_be_read_or_is_said_to_be_none(decode: Any, proper: Any, data: st.DataObject) -> None:
    body = data.draw(mangled(proper) | VALUES)
    with suppress(ObjectError):
        record = decode(body)
        if decode is pod_record:
            Classifier().classify(record)
        if decode is framework_record:
            SnapshotLogger().log_deleted_framework(record)


@example(raw=b"<html>")
@given(raw=st.binary() | VALUES.map(orjson.dumps))
def test_an_answer_is_a_framework_or_an_error_to_retry(raw: bytes) -> None:
    with suppress(RequeueError):
        read_live(Answered(raw), "uid")


@settings(max_examples=300)
@given(body=mangled(SPEC) | VALUES)
def test_a_spec_can_be_run_or_is_said_to_be_none(body: Any) -> None:
    spec, refusal = None, ""
    try:
        spec = parse_spec(body)
    except SpecError as error:
        refusal = str(error)
    if spec is None:
        assert refusal.startswith("spec")
        return
    # Each valid spec has bodies for its Pods.
    subject = Framework("ns", "f", "uid", 1, False, spec)
    bench = Bench(role())
    bench.all_pods()
    for item in spec.task_roles:
        template = pod_template(subject, bench.status.attempt, item, "role-uid")
        orjson.loads(template.render(bench.task()))


def test_more_tasks_than_a_status_has_room_for_are_not_made() -> None:
    roles = [{"name": f"r{number}", "taskNumber": 10_000} for number in range(1000)]
    with pytest.raises(SpecError, match=f"spec.taskRoles: 10000000 Tasks in all, .* {MAX_TASK_COUNT}"):
        parse_spec({"taskRoles": roles})
    assert parse_spec({"taskRoles": roles[: MAX_TASK_COUNT // 10_000]}).task_count == MAX_TASK_COUNT


@settings(max_examples=300)
@example(body={"state": "Running", "deep": nested(400)})
@example(body=nested(400))
@given(body=st.sampled_from(STATUSES).flatmap(mangled) | st.sampled_from(STATUSES) | VALUES)
def test_a_status_in_the_cache_is_decoded_late_as_it_would_be_at_once(body: Any) -> None:
    def outcome(value: Any) -> str:
        try:
            return repr(decode_status(value))
        except StatusError as error:
            return str(error)

    record = framework_record({**FRAMEWORK, "status": body})
    record.pack()
    assert repr(record.status) == repr(body)
    assert outcome(record.status) == outcome(body)
    with suppress(StatusError):
        status = decode_status(body)
        digest = b"" if status is None else EncodedStatus("f", status).digest
        # Decisions change the decoded status, not the memory of the stored one.
        reconciler = Reconciler(record)
        if reconciler.tracker.status is not None:
            reconciler.tracker.status.transition_time += 1
        assert reconciler.known.stored.digest == digest


@settings(max_examples=300)
@given(data=st.data())
def test_a_status_is_usable_or_refused(data: st.DataObject) -> None:
    body = data.draw(st.sampled_from(STATUSES).flatmap(mangled) | VALUES)
    status = None
    with suppress(StatusError):
        status = decode_status(body)
    if status is None:
        return
    tracker = Tracker(status)
    subject = Framework("ns", "f", "uid", 1, False, parse_spec(SPEC))
    env = Env(NOW, NOW, random.Random(1), limits())
    with suppress(InvariantError):
        for _ in range(3):
            plan(subject, tracker, Observed(None, lambda _: None), env)
        invalid = replace(subject, spec=spec_to_end(Ends(), tracker.status), generation=2, invalid="because")
        for _ in range(3):
            plan(invalid, tracker, Observed(None, lambda _: None), env)
        assert tracker.status is not None
        # A usable status can be written and read again.
        assert decode_status(orjson.loads(encode_status("f", tracker.status))) is not None


def packed(raw: bytes) -> str:
    return base64.b64encode(gzip.compress(raw, 9)).decode()


BOMBS: Final = {
    "zeros": packed(bytes(MAX_DECOMPRESSED_BYTES + 1)),
    "one long text": packed(b'["' + b"x" * (MAX_DECOMPRESSED_BYTES - 4) + b'"]'),
    "empty lists": packed(b"[" + b"[]," * 20_000_000 + b"[]]"),
    "empty mappings": packed(b"[" + b"{}," * 20_000_000 + b"{}]"),
    "numbers": packed(b"[" + b"1.5," * 15_000_000 + b"1]"),
    "texts": packed(b"[" + b'"ab",' * 12_000_000 + b'""]'),
    "depth": packed(b"[" * 1_000_000 + b"]" * 1_000_000),
    "keys": packed(b'{"a":' * 1_000_000 + b"1" + b"}" * 1_000_000),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_gzip_bomb_takes_neither_memory_nor_time(name: str) -> None:
    tracemalloc.start()
    began = time.process_time()
    try:
        if name == "one long text":
            assert decompress_roles(BOMBS[name])
        else:
            with pytest.raises(StatusError, match="taskRoleStatusesCompressed: "):
                decompress_roles(BOMBS[name])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * MAX_DECOMPRESSED_BYTES
    assert time.process_time() - began < 10


def read_at_the_barrier(framework: Any) -> None:
    _unpack(framework)
    addresses(framework)


@pytest.mark.parametrize("name", BOMBS)
def test_a_gzip_bomb_does_not_hurt_the_barrier(name: str) -> None:
    framework = {"metadata": {}, "status": {"attemptStatus": {"taskRoleStatusesCompressed": BOMBS[name]}}}
    tracemalloc.start()
    began = time.process_time()
    try:
        with pytest.raises(CheckFailed):
            read_at_the_barrier(framework)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 5 * MAX_DECOMPRESSED_BYTES
    assert time.process_time() - began < 10


@given(text=st.text() | st.binary().map(lambda raw: base64.b64encode(raw).decode()) | VALUES)
def test_text_that_is_not_packed_is_refused(text: Any) -> None:
    with suppress(StatusError):
        decompress_roles(text)


@settings(max_examples=300)
@given(body=mangled(FRAMEWORK) | VALUES)
def test_the_barrier_reads_a_framework_or_says_that_it_is_none(body: Any) -> None:
    with suppress(CheckFailed):
        framework = _decoded(orjson.dumps(body))
        _unpack(framework)
        found = addresses(framework)
        script = injector({name: [ip or "" for ip in ips] for name, ips in found.items()})
        assert script.isascii()


@given(raw=st.binary())
def test_the_barrier_says_of_bytes_that_are_no_framework_that_they_are_none(raw: bytes) -> None:
    with pytest.raises(CheckFailed):
        _decoded(raw)


CONFIG: Final = {
    "kubeClientQps": 80,
    "kubeApiServerAddress": "http://localhost:8080",
    "logObjectSnapshot": {"framework": {"onFrameworkRetry": True}},
    "podFailureSpec": yaml.safe_load(SHIPPED_CONFIG_FILE.read_text())["podFailureSpec"][:2],
}


@settings(max_examples=40)
@given(body=mangled(CONFIG) | VALUES)
def test_a_configuration_is_usable_or_each_wrong_line_is_reported(
    tmp_path_factory: pytest.TempPathFactory, body: Any
) -> None:
    path = tmp_path_factory.getbasetemp() / "mangled.yaml"
    path.write_text(yaml.safe_dump(body))
    check_config(path)


@given(raw=st.binary() | st.text("{}[]:-&*!|>'\"#%@` \n\tab1", max_size=60).map(str.encode))
def test_a_file_is_a_configuration_or_said_to_be_none(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "raw.yaml"
    path.write_bytes(raw)
    check_config(path)


def check_config(path: Path) -> None:
    """It is read, or refused with the path in front of each line."""
    refusal = ""
    try:
        load_config(path, required=True).plan_limits()
    except ConfigurationError as error:
        refusal = str(error)
    assert all(line.startswith(str(path)) for line in refusal.splitlines())


@settings(max_examples=300)
@given(pattern=st.text("ab.*+?{}[]()|\\^$0123456789,:<>=!PpLsimU-ä\u2028\n") | st.text(), text=st.text())
def test_a_pattern_is_compiled_or_refused_and_is_quick_either_way(pattern: str, text: str) -> None:
    try:
        regex = compile_regex(pattern)
    except ValueError:
        return
    if regex is None:
        assert pattern == ""
        return
    found = regex.search(text)
    assert found is None or found.group() in text


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|aa)+$", "(a|a?)+b", "(.*)*" * 20 + "x", "((a{1,100}){1,10})"])
def test_no_pattern_is_slow(pattern: str) -> None:
    began = time.process_time()
    regex = compile_regex(pattern)
    assert regex is not None
    regex.search("a" * 100_000 + "!")
    assert time.process_time() - began < 5


@pytest.mark.parametrize("pattern", ["(((a{1000}){1000}){1000})", "a{1001}", "[" * 5000])
def test_a_pattern_that_would_take_all_memory_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="is not a valid RE2 expression"):
        compile_regex(pattern)


@given(body=VALUES.map(orjson.dumps) | st.binary(), code=st.integers(300, 599))
def test_any_answer_of_a_server_is_an_error_with_one_line(body: bytes, code: int) -> None:
    error = error_from_answer(code, body, {}, request="GET x", now=0.0)
    assert isinstance(error, ApiError)
    assert error.code == code
    assert isinstance(error.message, str)
    orjson.dumps(error.status)


def test_the_spec_of_all_this_is_a_proper_one() -> None:
    assert isinstance(parse_spec(SPEC), FrameworkSpec)
