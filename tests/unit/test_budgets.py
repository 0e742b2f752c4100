"""User input costs its size: twice the input takes at most 2.5 times as long, up to the limit of etcd.

A controller reads the objects of all users in one event loop. Quadratic time for one object stops all others, again
after a restart. The fields come from the CRD and the API models, so that new ones are covered.
"""

from __future__ import annotations

import base64
import gc
import gzip
import itertools
import random
import string
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
import yaml

from frameworkcontroller.api.codec import EncodedStatus, StatusError, decode_status, encode_status
from frameworkcontroller.api.objects import Framework, ObjectError, QueueLabels, framework_record, pod_record
from frameworkcontroller.api.podgroups import GangScheduler
from frameworkcontroller.api.spec import FrameworkSpec, SpecError, parse_spec
from frameworkcontroller.barrier.exits import CheckFailed
from frameworkcontroller.barrier.frameworkreader import _decoded, _unpack, addresses
from frameworkcontroller.commands.lint.command import lint_text
from frameworkcontroller.commands.lint.fieldtypes import fields_of
from frameworkcontroller.commands.lint.frameworks import check_framework
from frameworkcontroller.config.config import shipped_config
from frameworkcontroller.controller.snapshots import SnapshotLogger
from frameworkcontroller.kube.parsing import parse
from frameworkcontroller.machine.kernel.model import Env, InvariantError, Observed
from frameworkcontroller.machine.kernel.requests import BodyTooLargeError
from frameworkcontroller.machine.kernel.rules import with_rule
from frameworkcontroller.machine.kernel.tracker import Tracker
from frameworkcontroller.machine.parts.claims.claimbodies import claim_body
from frameworkcontroller.machine.parts.gangs.podgroupbodies import gangs_of, podgroup_body, refusal
from frameworkcontroller.machine.parts.kueue.workloadspec import workload_spec
from frameworkcontroller.machine.plan import plan
from frameworkcontroller.machine.specreading import Ends, ends_in, spec_to_end
from frameworkcontroller.views.diagnosis import diagnose_framework, diagnose_task, read_view
from frameworkcontroller.views.poddiagnosis import diagnose_pod
from frameworkcontroller.views.summary import summarize
from frameworkcontroller.views.tree import framework_tree
from tests.support.bench import NOW, Bench, Body, limits, role
from tests.support.podtemplates import template_maker

BYTES: Final = 1_400_000
"""Of an object: a little less than etcd stores."""

LINT_BYTES: Final = BYTES // 14
"""Of what is linted: it has a finding for each wrong part, and stops nobody else."""

ROLE_BYTES: Final = BYTES // 8
"""Of many roles: each has a Task, a template and a status."""

FACTOR: Final = 2.5
"""By doubling. What exceeds it over two doublings is measured over four: the processor's caches, and whoever shares
them, make one step larger."""

FLOOR_SEC: Final = 0.02
"""Shorter times are noise; so is a quarter of it for a quarter of the input."""

LONG_SEC: Final = 0.5
TRIES: Final = 4
IN_FLIGHT: Final = 50
"""Bodies of Pods exist only while they are sent."""

Path_ = tuple[str | int, ...]
Make = Callable[[int], Any]
"""Makes a value of about that many bytes."""

CRD: Final = yaml.safe_load((Path(__file__).parents[2] / "crd/frameworks.yaml").read_text())
SCHEMA: Final = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
CLASSIFIER: Final = shipped_config().plan_limits().classifier


# --- measurements ---


class Watch:
    """CPU time by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._begun = time.thread_time()

    def lap(self, stage: str) -> None:
        """End a stage."""
        now = time.thread_time()
        self.seconds[stage] = now - self._begun
        self._begun = time.thread_time()


def read_framework(body: Body) -> dict[str, float]:
    """Process a Framework as controller, barrier and commands do."""
    data = orjson.dumps(body)
    watch = Watch()
    parse(data)
    watch.lap("parse")
    record = framework_record(body)
    record.pack()
    SnapshotLogger().log_deleted_framework(record)
    watch.lap("record")
    spec, refused = FrameworkSpec(), ""
    try:
        spec = parse_spec(body["spec"], framework="f")
    except SpecError as error:
        refused = str(error)
    watch.lap("spec")
    subject = Framework("ns", "f", "uid", 1, deleting=False, spec=spec, queue=record.queue)
    status = None
    with suppress(StatusError):
        status = decode_status(body.get("status"))
    watch.lap("decode")
    if refused:
        spec = spec_to_end(ends_in(body["spec"], Ends()), status)
        subject = replace(subject, spec=spec, invalid=refused)
        decide(subject, Tracker(status))
        watch.lap("end")
    else:
        act(subject, status, watch)
    view = read_view(body, {"f-a-0": "pod=f-a-0 waits" * 10})
    diagnose_framework(view, NOW)
    for one in view.status.attempt.roles if view.status else ():
        for task in one.tasks:
            diagnose_task(view, one.name, task)
    framework_tree(view, NOW, lines=40)
    with suppress(TypeError, ValueError):
        summarize(body)
    watch.lap("diagnose")
    with suppress(CheckFailed):
        decoded = _decoded(data)
        _unpack(decoded)
        addresses(decoded, "a")
    watch.lap("barrier")
    return watch.seconds


def decide(subject: Framework, tracker: Tracker) -> None:
    """Plan, and encode the status."""
    with suppress(InvariantError):
        for _ in range(3):
            plan(subject, tracker, Observed(None, lambda _: None), environment())
        assert tracker.status is not None
        EncodedStatus("f", tracker.status).complete()


def act(subject: Framework, status: Any, watch: Watch) -> None:
    """Plan, and make the bodies of all objects."""
    spec = subject.spec
    decide(subject, Tracker(status))
    watch.lap("plan")
    attempt, task = PREPARED.status.attempt, PREPARED.task()
    make = template_maker(subject, attempt, None if status is None else status.admission)
    for position, one in enumerate(spec.task_roles):
        made = make(one, "role-uid")
        if position < IN_FLIGHT:
            # One that is too large is refused before it is rendered.
            with suppress(BodyTooLargeError):
                assert made.render(task)
        for claim in one.volume_claim_templates:
            claim_body(subject, one, claim, 0)
    watch.lap("render")
    workload_spec(subject, QueueLabels("q"))
    watch.lap("queue")
    for scheduler in GangScheduler if spec.scheduling is not None else ():
        gangs = gangs_of(subject, scheduler, None)
        refusal(subject, gangs)
        for group in gangs.groups:
            podgroup_body(subject, gangs, group, 1, attempt=(0, "uid"), version="v1beta1")
    watch.lap("gangs")


def lint(body: Body) -> dict[str, float]:
    """Check a Framework as ``lint`` does."""
    watch = Watch()
    for finding in check_framework(body):
        str(finding)
    watch.lap("lint")
    return watch.seconds


def read_pod(body: Body) -> dict[str, float]:
    """Process a Pod as controller and commands do."""
    watch = Watch()
    parse(orjson.dumps(body))
    watch.lap("parse")
    with suppress(ObjectError):
        record = pod_record(body)
        watch.lap("record")
        completion = CLASSIFIER.classify(record)
        watch.lap("classify")
        with_rule(RULES, completion, record)
        watch.lap("rules")
        PREPARED.task().attempt.completion_status = completion
        encode_status("f", PREPARED.status)
        watch.lap("encode")
    view = read_view(FRAMEWORK, {"f-a-0": diagnose_pod(body, NOW)[0]})
    assert view.status is not None
    diagnose_task(view, "a", view.status.attempt.roles[0].tasks[0])
    watch.lap("diagnose")
    return watch.seconds


def environment() -> Env:
    return Env(NOW, NOW, random.Random(1), LIMITS)


LIMITS: Final = limits()
RULES: Final = (
    parse_spec(
        {
            "taskRoles": [
                {
                    "name": "a",
                    "task": {
                        "podFailurePolicy": {
                            "rules": [
                                {
                                    "action": "Ignore",
                                    "onExitCodes": {
                                        "operator": "NotIn",
                                        "values": list(range(1, 256)),
                                        "containerName": "x",
                                    },
                                },
                                {"action": "Ignore", "onPodConditions": [{"type": f"t{n}"} for n in range(20)]},
                            ]
                        }
                    },
                }
            ]
        }
    )
    .task_roles[0]
    .task.pod_failure_policy
)


def assert_linear(read: Callable[[Any], Mapping[str, float]], make: Callable[[int], Any], most: int = BYTES) -> None:
    """Compare the size with a quarter of it. If an eighth takes long, that first: quadratic time would take minutes."""
    __tracebackhide__ = True
    gc.collect()
    gc.disable()
    try:
        sizes = [most]
        if sum(read(make(most // 8)).values()) > LONG_SEC:
            sizes = [most // 8, most]
        for size in sizes:
            if slow := slower(read, make, size, 2):
                slow = {stage: pair for stage, pair in slower(read, make, size, 4).items() if stage in slow}
            if slow:
                pytest.fail(f"CPU seconds for a sixteenth of {size} bytes and for all of them: {slow}")
    finally:
        gc.enable()


def slower(
    read: Callable[[Any], Mapping[str, float]], make: Callable[[int], Any], size: int, doublings: int
) -> dict[str, tuple[float, float]]:
    """Return the stages that take too long for the size, with the times of the small input and of the large one."""
    values = make(size >> doublings), make(size)
    floor = FLOOR_SEC / 2 ** (doublings - 2)
    least: tuple[dict[str, float], dict[str, float]] = {}, {}
    slow: dict[str, tuple[float, float]] = {}
    for _ in range(TRIES):
        for found, value in zip(least, values, strict=True):
            for stage, seconds in read(value).items():
                found[stage] = min(seconds, found.get(stage, seconds))
        both = {stage: (least[0].get(stage, 0.0), seconds) for stage, seconds in least[1].items()}
        slow = {stage: pair for stage, pair in both.items() if pair[1] > FACTOR**doublings * max(floor, pair[0])}
        if not slow:
            break
    return slow


# --- contents ----------------------------------------------------------------------------------------------------


def repeated(text: str) -> Callable[[int], str]:
    return lambda size: (text * (size // len(orjson.dumps(text)) + 1))[:size]


def numbered(form: str, count_from: int = 0) -> Callable[[int], str]:
    def make(size: int) -> str:
        texts, left = [], size
        for number in itertools.count(count_from):
            texts.append(form.format(number))
            left -= len(texts[-1])
            if left <= 0:
                return "".join(texts)
        raise AssertionError

    return make


def lettered(size: int) -> str:
    salts = itertools.product(string.ascii_uppercase, repeat=5)
    return "".join(f"@{''.join(salt)}-" for salt in itertools.islice(salts, size // 7))


TEXTS: Final[dict[str, Callable[[int], str]]] = {
    **{
        text: repeated(text)
        for text in (
            "x", "a-", "1:", "{", "}}", '"', "\\", '\\"', "\n", "\u2028<", "/a.", "0", ".0,",
            "{{FC_HOSTS:", "{{FC_HOSTS:a", "{{FC_HOSTS:a}}", "{{FC_HOSTS_JSON:none:80}}",
            "{{FC_TASK_INDEX}}", "{{FC_", "{{ FC_POD_NAM }}", '"managedFields":[{', '"metadata":{',
            "f-a-0", "f-a-0_", 'pod="f-a-0_', ": OnX: ObjectSnapshot: ",
        )
    },
    "@0-@1-": numbered("@{}-"),
    "@AAAAA-@AAAAB-": lettered,
    "{{FC_HOSTS:none:1}}{{FC_HOSTS:none:2}}": numbered("{{{{FC_HOSTS:none:{}}}}}", 1),
}  # fmt: skip


def listed(item: Callable[[int], Any]) -> Make:
    def make(size: int) -> Any:
        return [item(number) for number in range(size // (len(orjson.dumps(item(1000))) + 1))]

    return make


def mapped(value: Any) -> Make:
    return lambda size: {f"k{number}": value for number in range(size // (len(orjson.dumps(value)) + 9))}


VALUES: Final[dict[str, Make]] = {
    "texts": listed(lambda number: f"t{number}"),
    "empty": listed(lambda _: {}),
    "named": listed(lambda number: {"name": f"n{number}"}),
    "keys": mapped("v"),
    "objects": mapped({}),
    "numbers": mapped(1),
    "managedFields": listed(lambda _: {"managedFields": [{}]}),
    "metadata": listed(lambda _: {"metadata": {"managedFields": [{"a": [{}]}], "x": []}}),
    "open metadata": lambda size: {"metadata": {"a": listed(lambda _: {"managedFields": [{"a": 1}]})(size)}},
}
"""Of a field of any type."""


def put(body: Any, path: Path_, value: Any) -> Any:
    """A copy of the body with the value at the path, and its missing parents."""
    if not path:
        return value
    key, *rest = path
    if isinstance(key, int):
        items = list(body) if isinstance(body, list) else []
        items += [None] * (key + 1 - len(items))
        items[key] = put(items[key], tuple(rest), value)
        return items
    fields = dict(body) if isinstance(body, dict) else {}
    fields[key] = put(fields.get(key), tuple(rest), value)
    return fields


def fields_in(schema: Body, path: Path_ = ()) -> Iterator[tuple[Path_, Body]]:
    yield path, schema
    for key, inner in schema.get("properties", {}).items():
        yield from fields_in(inner, (*path, key))
    if "items" in schema:
        yield from fields_in(schema["items"], (*path, 0))
    if isinstance(schema.get("additionalProperties"), dict):
        yield from fields_in(schema["additionalProperties"], (*path, "k"))


def example(schema: Body, number: int) -> Any:
    """A value of the schema, with the required fields."""
    match schema.get("type"):
        case "object" if "taskNumber" in schema["properties"]:
            # Without a length, there would be more than one status has room for.
            return {"name": f"n{number}", "task": {"pod": {"metadata": {"labels": {"l": "x" * 60}}}}}
        case "object":
            return {key: example(schema["properties"][key], number) for key in schema.get("required", ())}
        case "array":
            return []
        case "string":
            return schema["enum"][0] if "enum" in schema else f"n{number}"
        case "boolean":
            return True
        case _:
            return number


def leaves_of(value: Any, path: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """The texts and lists in an example."""
    if isinstance(value, str | list):
        yield path, value
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ()):
        yield from leaves_of(inner, (*path, key))


# --- the objects -------------------------------------------------------------------------------------------------

POD: Final[Path_] = ("taskRoles", 0, "task", "pod")
CONTAINER: Final[Path_] = ("spec", "containers", 0)
SPEC: Final = {
    "network": {},
    "coordinator": {"taskRole": "a"},
    "taskRoles": [role("a", 2, retryPolicy={"maxRetryCount": 1}), role("none", 0)],
}


def _bench() -> Bench:
    bench = Bench(role("a", 2), role("none", 0), checked=False)
    bench.all_pods()
    return bench


def _ended() -> Body:
    bench = _bench()
    bench.run()
    bench.end(code=1)
    body: Body = orjson.loads(encode_status("f", bench.status))
    running: Body = put(put(body, ("state",), "AttemptRunning"), ("attemptStatus", "completionStatus"), None)
    return running


PREPARED: Final = _bench()
METADATA: Final = {
    "name": "f",
    "namespace": "ns",
    "uid": "uid",
    "resourceVersion": "7",
    "generation": 1,
    "creationTimestamp": "2026-01-01T00:00:00Z",
    "labels": {"kueue.x-k8s.io/queue-name": "q"},
    "annotations": {"a": "b"},
    "finalizers": ["f"],
    "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "f-attempt", "uid": "c", "controller": True}],
}
STATUS: Final = _ended()
FRAMEWORK: Final[Body] = {
    "apiVersion": "frameworkcontroller.microsoft.com/v1",
    "kind": "Framework",
    "metadata": METADATA,
    "spec": SPEC,
    "status": STATUS,
}
TERMINATED: Final = {"exitCode": 1, "reason": "Error", "message": "m", "finishedAt": "2026-01-01T00:00:00Z"}
ENDED_POD: Final[Body] = {
    "metadata": {**METADATA, "name": "f-a-0"},
    "spec": {
        "nodeName": "n",
        "restartPolicy": "Never",
        "initContainers": [{"name": "i", "restartPolicy": "Always"}],
        "containers": [{"name": "main"}],
    },
    "status": {
        "phase": "Failed",
        "reason": "Evicted",
        "message": "low on memory",
        "podIP": "10.0.0.1",
        "hostIP": "10.0.1.1",
        "conditions": [{"type": "Ready", "status": "False", "reason": "r", "message": "m"}],
        "initContainerStatuses": [{"name": "i", "state": {"terminated": {"exitCode": 0}}}],
        "containerStatuses": [{"name": "main", "state": {"terminated": TERMINATED}}],
    },
}


def fields_of_spec() -> Iterator[Any]:
    """All texts, lists and mappings of the spec, by the CRD."""
    for path, schema in fields_in(SCHEMA["spec"]):
        name = ".".join(map(str, path))
        if schema.get("type") == "string":
            for text in ("{{FC_HOSTS:", "/a."):
                yield pytest.param(path, TEXTS[text], id=f"{name}-{text!r}")
        if schema.get("type") == "array":
            item = schema["items"]
            yield pytest.param(path, listed(partial(example, item)), id=f"{name}-valid")
            yield pytest.param(path, listed(lambda _: 0), id=f"{name}-wrong")
        if "additionalProperties" in schema or schema.get("x-kubernetes-preserve-unknown-fields"):
            for value in ("keys", "numbers"):
                yield pytest.param(path, VALUES[value], id=f"{name}-{value}")


def fields_of_template() -> Iterator[Any]:
    """All texts, lists and mappings of a Pod's metadata, spec and container, by the models of the API."""
    for part, kind in ((("metadata",), "V1ObjectMeta"), (("spec",), "V1PodSpec"), (CONTAINER, "V1Container")):
        for field, type_ in fields_of(kind).items():
            make = TEXTS["{{FC_TASK_INDEX}}"] if type_ == "str" else None
            if type_.startswith("list"):
                make = VALUES["texts" if type_ == "list[str]" else "named"]
            elif type_.startswith("dict"):
                make = VALUES["keys"]
            if type_ == "list[V1Container]":
                # Each gets the variables of the contract, a multiple of an empty one.
                make = listed(lambda number: {"name": f"n{number}", "image": "i" * 400})
            if make is not None:
                path = (*POD, *part, field)
                yield pytest.param(path, make, id=".".join(map(str, (*part, field))))


def contents() -> Iterator[Any]:
    """All contents, in a field whose type is unknown, and in a text that only the copies of the object have."""
    for name, make in (*TEXTS.items(), *VALUES.items()):
        yield pytest.param((*POD, "spec", "unknown"), make, id=f"spec.unknown-{name!r}")
    for name in ("{{FC_TASK_INDEX}}", "{{FC_HOSTS:a}}", "@0-@1-"):
        yield pytest.param(("taskRoles", 0, "volumeClaimTemplates", 0, "spec", "x"), TEXTS[name], id=f"claim-{name!r}")


FIELDS: Final = [*fields_of_spec(), *fields_of_template(), *contents()]


@pytest.mark.parametrize(("path", "make"), FIELDS)
def test_a_field_of_the_spec(path: Path_, make: Make) -> None:
    assert_linear(read_framework, lambda size: {**FRAMEWORK, "spec": put(SPEC, path, make(size))})


@pytest.mark.parametrize(("path", "make"), FIELDS)
def test_lint_of_a_field_of_the_spec(path: Path_, make: Make) -> None:
    assert_linear(lint, lambda size: {**FRAMEWORK, "spec": put(SPEC, path, make(size))}, LINT_BYTES)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        pytest.param(*leaf, id=".".join(map(str, leaf[0])))
        for leaf in leaves_of(FRAMEWORK)
        if leaf[0][0] in ("metadata", "status")
    ],
)
def test_a_field_of_the_metadata_or_the_status(path: Path_, value: Any) -> None:
    """A user who may write the status writes anything."""
    if isinstance(value, str):
        make: Make = TEXTS["f-a-0"]
    elif value and path[-1] == "taskStatuses":
        make = listed(lambda number: {**value[0], "index": number})
    elif value and isinstance(value[0], dict):
        make = listed(
            lambda number: {key: f"n{number}" if key in ("name", "type") else item for key, item in value[0].items()}
        )
    else:
        make = VALUES["texts"]
    assert_linear(read_framework, lambda size: put(FRAMEWORK, path, make(size)))


@pytest.mark.parametrize(
    ("path", "value"), [pytest.param(*leaf, id=".".join(map(str, leaf[0]))) for leaf in leaves_of(ENDED_POD)]
)
def test_a_field_of_a_pod(path: Path_, value: Any) -> None:
    if isinstance(value, str):
        make: Make = TEXTS["f-a-0"]
    elif value and isinstance(value[0], dict):
        make = listed(lambda number: {**value[0], "name": f"n{number}", "type": f"t{number}"})
    else:
        make = VALUES["texts"]
    assert_linear(read_pod, lambda size: put(ENDED_POD, path, make(size)))


def roles(item: Callable[[int], Body], **spec: Any) -> Make:
    """A Framework of ``all``, which has many Tasks, and many other roles."""

    def make(size: int) -> Any:
        many = listed(lambda number: {**item(number), "name": f"r{number}"})(size)
        return {
            **FRAMEWORK,
            "status": None,
            "spec": {**spec, "taskRoles": [{"name": "all", "taskNumber": size // 20}, *many]},
        }

    return make


def pod(**fields: Any) -> Body:
    return {"task": {"pod": {"spec": {"containers": [{"name": "c"}], **fields}}}}


GANG: Final[Body] = {"scheduling": {"schedulingPolicy": {"gang": {}}}}
ROLES: Final[dict[str, Make]] = {
    "empty": roles(lambda _: {"taskNumber": 0}),
    "templates": roles(lambda _: pod(x="y" * 100)),
    "host lists": roles(lambda _: pod(x="{{FC_HOSTS:all}}" + "y" * 100), network={}),
    "host lists of all ports": roles(lambda n: pod(x=f"{{{{FC_HOSTS:all:{n + 1}}}}}" + "y" * 100), network={}),
    "hosts of none": roles(lambda _: pod(x="{{FC_COORDINATOR_HOST}}"), network={}),
    "ranks": roles(lambda _: pod(x="{{FC_TASK_RANK}}" + "y" * 100), network={}, coordinator={"taskRole": "all"}),
    "chain": roles(lambda n: pod() | {"dependsOn": [{"name": f"r{n - 1}" if n else "all", "status": "Ready"}]}),
    "star": roles(lambda _: pod() | {"dependsOn": [{"name": "all", "status": "Complete"}]}),
    "cycle": roles(lambda n: {"dependsOn": [{"name": f"r{n ^ 1}", "status": "Ready"}]}),
    "gang": roles(lambda _: pod(schedulerName="s"), **GANG),
    "gangs": roles(lambda _: pod() | {"dependsOn": [{"name": "all", "status": "Ready"}]}, **GANG),
    "wrong": roles(lambda _: {"taskNumber": -1}),
    "wrong templates": roles(lambda _: {"task": {"pod": 7}}),
    "unknown fields": roles(lambda _: {"tasknumber": 1}),
}


@pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in ROLES.items()])
def test_many_roles(make: Make) -> None:
    assert_linear(read_framework, make, ROLE_BYTES)
    assert_linear(lint, make, LINT_BYTES)


def test_many_roles_in_the_status() -> None:
    def make(size: int) -> Any:
        number = size // 700
        named = [f"r{one}" for one in range(number)]
        listed_ = [put(STATUS["attemptStatus"]["taskRoleStatuses"][0], ("name",), one) for one in named]
        spec = [{"name": one, "dependsOn": [{"name": "a", "status": "Complete"}]} for one in named]
        admitted = {"podSets": [{"name": one, "count": 1} for one in named], "queueName": "q", "workloadName": "w"}
        status = put(STATUS, ("attemptStatus", "taskRoleStatuses"), listed_)
        status = put(status, ("admission",), {**admitted, "workloadUID": "u"})
        return {**FRAMEWORK, "status": status, "spec": {"taskRoles": [role("a", 1), *spec]}}

    assert_linear(read_framework, make)


def test_additions_of_an_admission() -> None:
    def make(size: int) -> Any:
        tolerations = listed(lambda number: {"key": f"k{number}", "operator": "Exists"})(size // 2)
        added = {"name": "a", "count": 2, "tolerations": [*reversed(tolerations)]}
        admission = {"queueName": "q", "workloadName": "w", "workloadUID": "u", "podSets": [added]}
        spec = put(SPEC, (*POD, "spec", "tolerations"), tolerations)
        return {**FRAMEWORK, "spec": spec, "status": put(STATUS, ("admission",), admission)}

    assert_linear(read_framework, make)


def test_the_requests_of_many_containers() -> None:
    def make(size: int) -> Any:
        sidecar = {"name": "s", "restartPolicy": "Always", "resources": {"requests": mapped(1)(size // 2)}}
        many = [{"name": f"i{number}", "resources": {"requests": {"cpu": "1m"}}} for number in range(size // 120)]
        spec = put(SPEC, (*POD, "spec", "initContainers"), [sidecar, *many])
        return {**FRAMEWORK, "spec": {**spec, **GANG}}

    assert_linear(read_framework, make)


def test_claims_and_volumes() -> None:
    def make(size: int) -> Any:
        many = [{"name": f"n{number}"} for number in range(size // 40)]
        spec = put(SPEC, (*POD, "spec", "volumes"), many)
        return {
            **FRAMEWORK,
            "spec": put(spec, ("taskRoles", 0, "volumeClaimTemplates"), [{"metadata": one} for one in many]),
        }

    assert_linear(read_framework, make)
    assert_linear(lint, make, LINT_BYTES)


def test_a_long_name_of_a_container_that_is_like_another() -> None:
    def make(size: int) -> Any:
        text = "".join(chr(0x4E00 + number % 10_000) for number in range(size // 6))
        rule = {"action": "Count", "onExitCodes": {"operator": "In", "values": [1], "containerName": text}}
        spec = put(SPEC, ("taskRoles", 0, "task", "podFailurePolicy"), {"rules": [rule]})
        return {**FRAMEWORK, "spec": put(spec, (*POD, "spec", "containers", 0, "name"), text[1:])}

    assert_linear(read_framework, make)
    assert_linear(lint, make, LINT_BYTES)


def test_compressed_roles_that_are_no_json() -> None:
    def make(size: int) -> Any:
        raw = b"," * 2_000_001 + b'\\"' * (size // 10)
        packed = base64.b64encode(gzip.compress(raw, 1, mtime=0)).decode()
        path = ("attemptStatus", "taskRoleStatusesCompressed")
        return {**FRAMEWORK, "status": put(put(STATUS, ("attemptStatus", "taskRoleStatuses"), None), path, packed)}

    assert_linear(read_framework, make)


def test_an_answer_that_is_cut_off() -> None:
    def read(data: bytes) -> dict[str, float]:
        watch = Watch()
        with pytest.raises(orjson.JSONDecodeError):
            parse(data)
        watch.lap("parse")
        return watch.seconds

    assert_linear(read, lambda size: b'{"a":"' + b'\\"' * (size // 2))


def test_a_file_with_many_problems() -> None:
    def read(text: str) -> dict[str, float]:
        watch = Watch()
        lint_text(text)
        watch.lap("lint")
        return watch.seconds

    head = "apiVersion: frameworkcontroller.microsoft.com/v1\nkind: Framework\nmetadata: {name: f}\nspec:\n"
    assert_linear(read, lambda size: head + "".join(f"  u{number}: 1\n" for number in range(size // 10)), LINT_BYTES)
    assert_linear(read, lambda size: f"{head}  description: 1{':1' * (size // 2)}\n", LINT_BYTES)
