"""Frameworks as values: every field in the manifest, and faults in the controller's words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import frameworkcontroller
from frameworkcontroller import (
    Claim,
    Code,
    Completion,
    Framework,
    InvalidSpec,
    Progress,
    Resources,
    Retry,
    Role,
    command,
)

UNTYPED: Any = frameworkcontroller


def pod_of(framework: Framework, role: int = 0) -> dict[str, Any]:
    pod: dict[str, Any] = framework.to_dict()["spec"]["taskRoles"][role]["task"]["pod"]
    return pod


def main_of(framework: Framework) -> dict[str, Any]:
    found: dict[str, Any] = pod_of(framework)["spec"]["containers"][0]
    return found


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (Resources(), {}),
        (Resources(cpu=0.5), {"requests": {"cpu": "0.5"}}),
        (Resources(cpu="500m", memory="4Gi"), {"requests": {"cpu": "500m", "memory": "4Gi"}}),
        (Resources(gpus=8), {"requests": {"nvidia.com/gpu": "8"}, "limits": {"nvidia.com/gpu": "8"}}),
        (
            Resources(gpus=1, gpu_resource="amd.com/gpu"),
            {"requests": {"amd.com/gpu": "1"}, "limits": {"amd.com/gpu": "1"}},
        ),
        (Retry(), {"fancyRetryPolicy": False, "maxRetryCount": 0}),
        (Retry(-2, fancy=True), {"fancyRetryPolicy": True, "maxRetryCount": -2}),
        (Retry(3, base_seconds=0), {"fancyRetryPolicy": False, "maxRetryCount": 3, "backoff": {"baseSeconds": 0}}),
        (
            Retry(times=3, base_seconds=1, max_seconds=60),
            {"fancyRetryPolicy": False, "maxRetryCount": 3, "backoff": {"baseSeconds": 1, "maxSeconds": 60}},
        ),
        (Completion(), {"minFailedTaskCount": 1, "minSucceededTaskCount": -1}),
        (Completion(min_failed=-1, min_succeeded=2), {"minFailedTaskCount": -1, "minSucceededTaskCount": 2}),
        (
            Claim(name="data", size="1Gi", path="/data"),
            {
                "metadata": {"name": "data"},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            },
        ),
        (
            Claim(name="d", size="1Gi", path="/d", storage_class="fast", access_mode="ReadWriteMany"),
            {
                "metadata": {"name": "d"},
                "spec": {
                    "accessModes": ["ReadWriteMany"],
                    "resources": {"requests": {"storage": "1Gi"}},
                    "storageClassName": "fast",
                },
            },
        ),
    ],
)
def test_values(value: Any, written: dict[str, Any]) -> None:
    assert value.to_dict() == written
    assert value.replaced() == value


MAIN = {"name": "main", "image": "i", "command": ["c"]}


@pytest.mark.parametrize(
    ("fields", "place", "written"),
    [
        ({"name": "ps"}, "name", "ps"),
        ({"tasks": 0}, "taskNumber", 0),
        ({}, "task/pod/spec", {"restartPolicy": "Never", "containers": [MAIN]}),
        ({"image": None}, "task/pod/spec/containers", [{"name": "main", "command": ["c"]}]),
        ({"command": ("a", "b")}, "task/pod/spec/containers", [{**MAIN, "command": ["a", "b"]}]),
        ({"env": {"A": "1"}}, "task/pod/spec/containers", [{**MAIN, "env": [{"name": "A", "value": "1"}]}]),
        (
            {"resources": Resources(cpu=2)},
            "task/pod/spec/containers",
            [{**MAIN, "resources": {"requests": {"cpu": "2.0"}}}],
        ),
        ({"retry": Retry(2)}, "task/retryPolicy/maxRetryCount", 2),
        ({"completion": Completion(min_failed=3)}, "frameworkAttemptCompletionPolicy/minFailedTaskCount", 3),
        (
            {"claims": [Claim(name="d", size="1Gi", path="/d")]},
            "task/pod/spec/containers",
            [{**MAIN, "volumeMounts": [{"name": "d", "mountPath": "/d"}]}],
        ),
        (
            {"claims": [Claim(name="d", size="1Gi", path="/d")]},
            "volumeClaimTemplates",
            [Claim(name="d", size="1Gi", path="/d").to_dict()],
        ),
        ({"depends_on": {"b": "Ready"}}, "dependsOn", [{"name": "b", "status": "Ready"}]),
        ({"pod": {"metadata": {"labels": {"a": "b"}}}}, "task/pod/metadata", {"labels": {"a": "b"}}),
        (
            {"pod": {"spec": {"nodeSelector": {"a": "b"}, "containers": [{"name": "main", "tty": True}]}}},
            "task/pod/spec",
            {"restartPolicy": "Never", "containers": [{**MAIN, "tty": True}], "nodeSelector": {"a": "b"}},
        ),
        ({"pod": {"spec": {"restartPolicy": None}}}, "task/pod/spec", {"containers": [MAIN]}),
        ({"extra": {"task": {"podGracefulDeletionTimeoutSec": 9}}}, "task/podGracefulDeletionTimeoutSec", 9),
        ({"extra": {"frameworkAttemptCompletionPolicy": None}}, "frameworkAttemptCompletionPolicy", None),
    ],
)
def test_each_field_of_a_role(fields: dict[str, Any], place: str, written: Any) -> None:
    role = Role(**{"image": "i", "command": ["c"], **fields})
    found: Any = Framework(name="f", roles=[role, Role(name="b")]).to_dict()["spec"]["taskRoles"][0]
    for key in place.split("/"):
        found = found.get(key)
    assert found == written


@pytest.mark.parametrize(
    ("fields", "place", "written"),
    [
        ({"name": "f"}, "metadata", {"name": "f"}),
        ({"name": None, "generate_name": "f"}, "metadata", {"generateName": "f"}),
        ({"retry": Retry(1)}, "spec/retryPolicy/maxRetryCount", 1),
        ({"queue": "a"}, "metadata/labels", {"kueue.x-k8s.io/queue-name": "a"}),
        ({"priority": "high"}, "metadata/labels", {"kueue.x-k8s.io/priority-class": "high"}),
        ({"labels": {"x": "y"}, "queue": "a"}, "metadata/labels", {"x": "y", "kueue.x-k8s.io/queue-name": "a"}),
        ({"annotations": {"x": "y"}}, "metadata/annotations", {"x": "y"}),
        ({"gang": True}, "spec/scheduling", {"schedulingPolicy": {"gang": {}}}),
        ({"deadline": 60}, "spec/activeDeadlineSeconds", 60),
        ({"ttl": 0}, "spec/ttlSecondsAfterFinished", 0),
        ({"network": True}, "spec/network", {}),
        ({"network": True, "coordinator": "worker"}, "spec/coordinator", {"taskRole": "worker", "taskIndex": 0}),
        ({"network": True, "coordinator": "worker/1"}, "spec/coordinator", {"taskRole": "worker", "taskIndex": 1}),
        ({"extra": {"suspend": True}}, "spec/suspend", True),
    ],
)
def test_each_field_of_a_framework(fields: dict[str, Any], place: str, written: Any) -> None:
    framework = Framework(**{"name": "f", "roles": [Role(tasks=2, image="i", command=["c"])], **fields})
    found: Any = framework.to_dict()
    for key in place.split("/"):
        found = found[key]
    assert found == written


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: UNTYPED.Role(comand=["c"]), "comand: is no field of Role; did you mean command?"),
        (lambda: UNTYPED.Framework(name="f", xyz=1), "xyz: is no field of Framework"),
        (lambda: UNTYPED.Resources(gpu=1), "gpu: is no field of Resources; did you mean gpus?"),
        (lambda: Role(command="python train.py"), 'must be a list of texts, such as ["python", "train.py"]'),
        (lambda: UNTYPED.Role(env={"A": 1}), "env.A: 1: must be text (put it in quotes)"),
        (lambda: UNTYPED.Role(tasks="many"), "tasks: 'many': "),
        (lambda: UNTYPED.Role(depends_on={"b": "Gone"}), "depends_on.b: 'Gone': "),
        (lambda: Resources(gpus=-1), "gpus: -1: must be at least 0"),
        (lambda: Retry(-3), "times: -3: must be at least -2"),
        (lambda: Framework(roles=[Role()]), "must have a name or a generate_name, and not both"),
        (lambda: Framework(name="f", generate_name="g"), "must have a name or a generate_name, and not both"),
        (
            lambda: Framework(name="My-Job").to_dict(),
            "metadata.name: 'My-Job': must be lower case letters and digits only, at most 63 of them",
        ),
        (lambda: Framework(generate_name="a-").to_dict(), "metadata.generateName: 'a-': and 5 characters more must be"),
        (lambda: Framework(name="f", deadline=0).to_dict(), "activeDeadlineSeconds: 0: must be at least 1"),
        (
            lambda: Framework(name="f", roles=[Role(tasks=-1)]).to_dict(),
            "taskNumber: -1: must be at least 0",
        ),
        (lambda: Framework(name="f", roles=[Role(), Role()]).to_dict(), "is already the name of taskRoles[0]"),
        (
            lambda: Framework(name="f", roles=[Role(depends_on={"b": "Ready"})]).to_dict(),
            "'b': is not the name of a TaskRole",
        ),
        (
            lambda: Framework(name="f", roles=[Role()], network=True, coordinator="worker/²").to_dict(),
            "coordinator.taskIndex: '²': must be a whole number",
        ),
        (
            lambda: Framework(name="f", roles=[Role(retry=Retry(1, base_seconds=9, max_seconds=1))]).to_dict(),
            "taskRoles[0].task.retryPolicy.backoff.maxSeconds: 1: must not be below baseSeconds (9)",
        ),
        (
            lambda: Framework(name="f", roles=[Role(pod={"spec": 1})], code=Code.claim("c")).to_dict(),
            'code: needs a role with a container named "main"',
        ),
        (lambda: Framework.from_yaml("a: ["), "expected"),
        (lambda: Framework.from_yaml("kind: Pod"), "must have one object of kind Framework, and has 0"),
        (
            lambda: Framework.from_yaml("kind: Framework\n---\nkind: Framework"),
            "object of kind Framework, and has 2",
        ),
        (
            lambda: Framework.from_yaml("kind: Framework\napiVersion: v1"),
            "kind: must be Framework of ",
        ),
    ],
)
def test_a_fault_names_field_value_and_rule(make: Any, words: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        make()
    assert words in str(caught.value)
    assert isinstance(caught.value, ValueError)
    assert caught.value.problems


def test_a_framework_is_frozen_and_replaced_by_copies() -> None:
    framework = Framework(name="f", roles=[Role()])
    with pytest.raises(Exception, match="frozen"):
        framework.name = "g"
    assert framework.replaced(name="g").name == "g"
    assert framework.role("worker") == Role()
    with pytest.raises(LookupError, match="no role 'ps'"):
        framework.role("ps")


def test_problems_are_findings_of_lint() -> None:
    framework = Framework(
        name="f", roles=[Role(image="i", command=["c"], tasks=2, completion=Completion(min_failed=3))]
    )
    place = "spec.taskRoles[0].frameworkAttemptCompletionPolicy.minFailedTaskCount"
    assert [str(one) for one in framework.problems()] == [f"{place}: 3: can never be reached: the role has 2 Tasks"]
    assert any("must be at least" in str(one) for one in Framework(name="f", deadline=0).problems())


# --- YAML ---


@pytest.mark.parametrize(
    "text", ["1e3", "1", "0x1", "yes", "null", "~", "1:30:00", "2026-01-01", "1.5", ".5", "0b1", "ü\n\tx"]
)
def test_texts_stay_texts(text: str) -> None:
    framework = Framework(name="f", roles=[Role(image="i", command=[text], env={"A": text})])
    written = framework.to_yaml()
    assert Framework.from_yaml(written).to_dict() == framework.to_dict()
    assert list(yaml.safe_load_all(written)) == [framework.to_dict()]


def test_a_manifest_keeps_fields_without_a_name_here() -> None:
    text = """
apiVersion: frameworkcontroller.microsoft.com/v1
kind: Framework
metadata: {name: f, labels: {kueue.x-k8s.io/queue-name: q, x: y}}
spec:
  description: old
  activeDeadlineSeconds: 5
  retryPolicy: {maxRetryCount: 2}
  taskRoles:
  - name: a
    task:
      podGracefulDeletionTimeoutSec: 3
      retryPolicy: null
      pod: {spec: {containers: [{name: x, image: i}]}}
  - name: b
    taskNumber: 3
    frameworkAttemptCompletionPolicy: {minFailedTaskCount: 1, minSucceededTaskCount: 2}
    dependsOn: [{name: a, status: Ready}]
    volumeClaimTemplates: [{metadata: {name: d}, spec: {}}]
    task: {retryPolicy: {}, pod: {spec: {containers: [{name: main, image: i}]}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}
"""
    framework = Framework.from_yaml(text)
    body, other = yaml.safe_load_all(text)
    assert framework.queue == "q"
    assert (framework.deadline, dict(framework.labels)) == (5, {"x": "y"})
    assert framework.role("b").depends_on == {"a": "Ready"}
    assert framework.all_objects() == [other]
    made = framework.to_dict()
    first, second = made["spec"]["taskRoles"]
    assert "retryPolicy" not in first["task"]
    assert "frameworkAttemptCompletionPolicy" not in first
    assert second["task"]["retryPolicy"] == {}
    del body["spec"]["taskRoles"][0]["task"]["retryPolicy"]
    body["spec"]["taskRoles"][0]["taskNumber"] = 1
    assert made == body
    assert Framework.from_yaml(framework.to_yaml()).to_dict() == made


# --- code ---


@pytest.fixture
def code(tmp_path: Path) -> Code:
    (tmp_path / "train.py").write_text("print(1)\n")
    return Code.files(tmp_path / "train.py")


def test_code_reaches_a_container_that_only_the_pod_has(code: Code) -> None:
    pod = {"spec": {"containers": [{"name": "main", "image": "i"}, {"name": "sidecar"}]}}
    both = Framework(name="f", roles=[Role(pod=pod), Role(name="b", image="i", command=["c"])], code=code)
    mount = {"name": "code", "mountPath": "/mnt/code", "readOnly": True}
    for number in (0, 1):
        spec = pod_of(both, number)["spec"]
        main = spec["containers"][0]
        assert main["volumeMounts"] == [mount]
        assert main["env"] == [{"name": "PYTHONPATH", "value": "/mnt/code"}]
        assert main["workingDir"] == "/mnt/code"
        assert spec["volumes"] == [{"name": "code", "configMap": {"name": code.configmap}}]
    assert pod_of(both)["spec"]["containers"][1] == {"name": "sidecar"}
    read = Framework.from_yaml(Framework(name="f", roles=[Role(image="i", command=["c"])]).to_yaml()).replaced(
        code=code
    )
    assert main_of(read)["volumeMounts"] == [mount]


def own(container: dict[str, Any]) -> dict[str, Any]:
    return {"pod": {"spec": {"containers": [{"name": "main", **container}]}}}


@pytest.mark.parametrize(
    ("fields", "key", "written"),
    [
        ({"env": {"PYTHONPATH": "/a"}}, "env", [{"name": "PYTHONPATH", "value": "/mnt/code:/a"}]),
        (
            {
                "pod": {
                    "spec": {"containers": [{"name": "main", "env": [{"name": "PYTHONPATH", "value": "/mnt/code:/b"}]}]}
                }
            },
            "env",
            [{"name": "PYTHONPATH", "value": "/mnt/code:/b"}],
        ),
        (
            {"pod": {"spec": {"containers": [{"name": "main", "env": [{"name": "PYTHONPATH", "valueFrom": {}}]}]}}},
            "env",
            [{"name": "PYTHONPATH", "valueFrom": {}}],
        ),
        ({"pod": {"spec": {"containers": [{"name": "main", "workingDir": "/w"}]}}}, "workingDir", "/w"),
    ],
)
def test_the_users_fields_win_over_the_codes(code: Code, fields: dict[str, Any], key: str, written: Any) -> None:
    framework = Framework(name="f", roles=[Role(image="i", command=["c"], **fields)], code=code)
    assert main_of(framework)[key] == written


def test_code_that_is_unpacked_uses_the_image_of_the_pod(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "a.py").write_text("")
    pod = {
        "spec": {"containers": [{"name": "main", "image": "other"}], "initContainers": [{"name": "code", "tty": True}]}
    }
    framework = Framework(
        name="f", roles=[Role(image="i", command=["c"], pod=pod)], code=Code.files(tmp_path / "package")
    )
    (first,) = pod_of(framework)["spec"]["initContainers"]
    assert (first["name"], first["image"], first["tty"], first["workingDir"]) == ("code", "other", True, "/mnt/code")


def test_progress_goes_to_the_spec_and_back() -> None:
    made = command(["a"], name="f", progress=Progress(deadline=1800, start_deadline=900, interval=30))
    wanted = {"deadlineSeconds": 1800, "startDeadlineSeconds": 900, "intervalSeconds": 30}
    assert made.to_dict()["spec"]["progress"] == wanted
    assert Framework.from_dict(made.to_dict()).progress == made.progress
    assert Framework(name="f", progress=Progress()).to_dict()["spec"]["progress"] == {}
    assert Framework.from_dict(Framework(name="f", progress=Progress()).to_dict()).progress == Progress()
    assert Framework.from_dict(Framework(name="f").to_dict()).progress is None
    body = Framework(name="f").to_dict()
    body["spec"]["progress"] = {"deadlineSeconds": None}
    assert Framework.from_dict(body).progress == Progress()


def test_a_wrong_progress_is_refused() -> None:
    with pytest.raises(InvalidSpec, match=r"deadlineSeconds: 60: must be at least twice intervalSeconds \(60\)"):
        Framework(name="f", progress=Progress(deadline=60)).to_dict()
    with pytest.raises(InvalidSpec, match="interval: 0: must be at least 1"):
        Progress(interval=0)
