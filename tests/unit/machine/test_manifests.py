"""Every row of docs/manual.md, "What is put into a Pod"."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from frameworkcontroller.api.objects import Framework
from frameworkcontroller.api.spec import parse_spec
from frameworkcontroller.api.status import FrameworkAttemptStatus, State, TaskAttemptStatus, TaskStatus
from frameworkcontroller.machine.manifests import PodTemplate, configmap_body
from tests.support.bench import Body

CONFIGMAP_MARKS = {
    "FC_FRAMEWORK_NAMESPACE": "ns",
    "FC_FRAMEWORK_NAME": "f",
    "FC_CONFIGMAP_NAME": "f-attempt",
    "FC_FRAMEWORK_UID": "framework-uid",
    "FC_FRAMEWORK_ATTEMPT_ID": "3",
}
POD_MARKS = {
    "FC_FRAMEWORK_NAMESPACE": "ns",
    "FC_FRAMEWORK_NAME": "f",
    "FC_TASKROLE_NAME": "worker",
    "FC_TASK_INDEX": "12",
    "FC_CONFIGMAP_NAME": "f-attempt",
    "FC_POD_NAME": "f-worker-12",
    "FC_FRAMEWORK_UID": "framework-uid",
    "FC_FRAMEWORK_ATTEMPT_ID": "3",
    "FC_FRAMEWORK_ATTEMPT_INSTANCE_UID": "3_configmap-uid",
    "FC_CONFIGMAP_UID": "configmap-uid",
    "FC_TASKROLE_UID": "role-uid",
    "FC_TASK_UID": "task-uid",
    "FC_TASK_ATTEMPT_ID": "2",
}
POD_LABELS = {"FC_FRAMEWORK_NAME": "f", "FC_TASKROLE_NAME": "worker", "FC_TASK_INDEX": "12"}
ENV: list[Body] = [
    *({"name": key, "value": value} for key, value in POD_MARKS.items()),
    {"name": "FC_POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
    {"name": "FC_TASK_ATTEMPT_INSTANCE_UID", "value": "2_$(FC_POD_UID)"},
]
OWNER = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "name": "f-attempt",
    "uid": "configmap-uid",
    "controller": True,
    "blockOwnerDeletion": True,
}


def framework(template: Any = None) -> Framework:
    """A Framework of one role ``worker`` with that Pod template."""
    spec = parse_spec({"taskRoles": [{"name": "worker", "taskNumber": 20, "task": {"pod": template}}]})
    return Framework("ns", "f", "framework-uid", 1, False, spec)


def render(template: Any, *, index: int = 12, attempt: int = 2) -> Body:
    """The Pod made of that template."""
    subject = framework(template)
    attempt_status = FrameworkAttemptStatus(id=3, start_time=0, configmap_uid="configmap-uid")
    task = TaskStatus(index, "task-uid", 0, 0, TaskAttemptStatus(attempt, 0), State.CREATION_PENDING)
    body: Body = orjson.loads(PodTemplate(subject, attempt_status, subject.spec.task_roles[0], "role-uid").render(task))
    return body


# --- the ConfigMap ----------------------------------------------------------------------------------------------


def test_configmap() -> None:
    assert orjson.loads(configmap_body(framework(), 3)) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "f-attempt",
            "namespace": "ns",
            "annotations": CONFIGMAP_MARKS,
            "labels": {"FC_FRAMEWORK_NAME": "f"},
            "finalizers": ["foregroundDeletion"],
            "ownerReferences": [
                {
                    "apiVersion": "frameworkcontroller.microsoft.com/v1",
                    "kind": "Framework",
                    "name": "f",
                    "uid": "framework-uid",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
    }


# --- the Pod ----------------------------------------------------------------------------------------------------


def test_pod_of_a_plain_template() -> None:
    assert render({"spec": {"containers": [{"name": "main", "image": "none"}], "restartPolicy": "Never"}}) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "f-worker-12",
            "namespace": "ns",
            "annotations": POD_MARKS,
            "labels": POD_LABELS,
            "ownerReferences": [OWNER],
        },
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "none",
                    "env": ENV,
                    "terminationMessagePolicy": "FallbackToLogsOnError",
                }
            ],
            "restartPolicy": "Never",
        },
    }


def test_the_environment_is_in_the_tables_order() -> None:
    body = render({"spec": {"containers": [{"name": "main"}]}})
    assert [item["name"] for item in body["spec"]["containers"][0]["env"]] == [
        "FC_FRAMEWORK_NAMESPACE",
        "FC_FRAMEWORK_NAME",
        "FC_TASKROLE_NAME",
        "FC_TASK_INDEX",
        "FC_CONFIGMAP_NAME",
        "FC_POD_NAME",
        "FC_FRAMEWORK_UID",
        "FC_FRAMEWORK_ATTEMPT_ID",
        "FC_FRAMEWORK_ATTEMPT_INSTANCE_UID",
        "FC_CONFIGMAP_UID",
        "FC_TASKROLE_UID",
        "FC_TASK_UID",
        "FC_TASK_ATTEMPT_ID",
        "FC_POD_UID",
        "FC_TASK_ATTEMPT_INSTANCE_UID",
    ]


def test_the_environment_goes_before_the_containers_own_in_every_container() -> None:
    own = [{"name": "MINE", "value": "$(FC_TASK_INDEX)"}, {"name": "FC_TASK_INDEX", "value": "mine"}]
    body = render(
        {
            "spec": {
                "initContainers": [{"name": "setup", "env": own}, {"name": "bare"}],
                "containers": [
                    {"name": "main", "env": own},
                    {"name": "side", "env": []},
                    {"name": "none", "env": None},
                ],
            }
        }
    )
    init, main = body["spec"]["initContainers"], body["spec"]["containers"]
    assert [item["env"] for item in init] == [ENV + own, ENV]
    assert [item["env"] for item in main] == [ENV + own, ENV, ENV]


def test_the_termination_message_policy_of_the_template_stays() -> None:
    body = render(
        {
            "spec": {
                "initContainers": [{"name": "setup"}],
                "containers": [
                    {"name": "main", "terminationMessagePolicy": "File"},
                    {"name": "side", "terminationMessagePolicy": None},
                    {"name": "more", "terminationMessagePolicy": ""},
                ],
            }
        }
    )
    assert [item["terminationMessagePolicy"] for item in body["spec"]["containers"]] == [
        "File",
        "FallbackToLogsOnError",
        "FallbackToLogsOnError",
    ]
    assert body["spec"]["initContainers"][0]["terminationMessagePolicy"] == "FallbackToLogsOnError"


def test_metadata_of_the_template_stays_and_the_controllers_own_wins() -> None:
    theirs = {"apiVersion": "v1", "kind": "ServiceAccount", "name": "s", "uid": "u"}
    body = render(
        {
            "metadata": {
                "name": "mine",
                "namespace": "elsewhere",
                "labels": {"app": "x", "FC_TASK_INDEX": "99"},
                "annotations": {"note": "y", "FC_TASK_UID": "forged"},
                "ownerReferences": [theirs],
                "finalizers": ["example.com/keep"],
            },
            "spec": {},
        }
    )
    assert body["metadata"] == {
        "name": "f-worker-12",
        "namespace": "ns",
        "labels": {"app": "x"} | POD_LABELS,
        "annotations": {"note": "y"} | POD_MARKS,
        "ownerReferences": [theirs, OWNER],
        "finalizers": ["example.com/keep"],
    }


def test_only_metadata_and_spec_of_the_template_are_taken() -> None:
    body = render({"apiVersion": "v2", "kind": "Other", "status": {"phase": "Running"}, "spec": {"x": 1}})
    assert set(body) == {"apiVersion", "kind", "metadata", "spec"}
    assert (body["apiVersion"], body["kind"], body["spec"]) == ("v1", "Pod", {"x": 1})


def test_unknown_fields_pass_through() -> None:
    spec = {
        "privileged": False,
        "containers": [{"name": "main", "newFieldOf2031": {"deep": [1, 2.5, None, True, "é\u2028&<>"]}}],
        "volumes": [{"name": "v", "azureFile": {"readonly": True}}],
        "newFieldOf2032": {"a": None},
    }
    body = render({"spec": spec})
    assert {key: value for key, value in body["spec"].items() if key != "containers"} == {
        key: value for key, value in spec.items() if key != "containers"
    }
    assert body["spec"]["containers"][0]["newFieldOf2031"] == {"deep": [1, 2.5, None, True, "é\u2028&<>"]}


@pytest.mark.parametrize(
    "template",
    [
        {"spec": "text"},
        {"spec": [1]},
        {"spec": 7},
        {"metadata": "text", "spec": {}},
        {"metadata": [], "spec": {}},
    ],
)
def test_wrong_types_pass_through(template: Body) -> None:
    body = render(template)
    for key, value in template.items():
        assert body[key] == value or value == {}


@pytest.mark.parametrize(
    ("field", "value"), [("labels", []), ("labels", "x"), ("annotations", 7), ("ownerReferences", {"uid": "x"})]
)
def test_wrong_types_in_metadata_pass_through(field: str, value: Any) -> None:
    assert render({"metadata": {field: value}, "spec": {}})["metadata"][field] == value


@pytest.mark.parametrize(
    ("field", "value"), [("containers", "x"), ("containers", {"name": "main"}), ("initContainers", 7)]
)
def test_wrong_types_in_the_spec_pass_through(field: str, value: Any) -> None:
    assert render({"spec": {field: value}})["spec"] == {field: value}


def test_wrong_types_in_containers_pass_through() -> None:
    body = render({"spec": {"containers": ["text", None, {"name": 7, "env": "text"}, {"env": {"name": "x"}}]}})
    containers = body["spec"]["containers"]
    assert containers[:2] == ["text", None]
    assert containers[2]["env"] == "text"
    assert containers[2]["name"] == 7
    assert containers[3]["env"] == {"name": "x"}


@pytest.mark.parametrize("template", [None, {}])
def test_no_template_at_all_is_left_for_the_api_server_to_refuse(template: Any) -> None:
    body = render(template)
    assert body["metadata"]["name"] == "f-worker-12"
    assert not body["spec"]


# --- placeholders -----------------------------------------------------------------------------------------------

VALUES = {
    "FC_FRAMEWORK_NAMESPACE": "ns",
    "FC_FRAMEWORK_NAME": "f",
    "FC_TASKROLE_NAME": "worker",
    "FC_TASK_INDEX": "12",
    "FC_CONFIGMAP_NAME": "f-attempt",
    "FC_POD_NAME": "f-worker-12",
}


@pytest.mark.parametrize(("name", "value"), VALUES.items())
def test_placeholders_in_any_string_keys_included(name: str, value: str) -> None:
    placeholder = "{{" + name + "}}"
    body = render(
        {
            "metadata": {"labels": {f"x{placeholder}": f"{placeholder}{placeholder}"}},
            "spec": {
                "hostname": f"<{placeholder}>",
                placeholder: [{"deep": placeholder}],
                "containers": [
                    {
                        "name": "main",
                        "command": ["sh", "-c", f'echo {placeholder} \\"\n'],
                        "env": [{"name": "A", "value": placeholder}],
                    }
                ],
            },
        }
    )
    assert body["metadata"]["labels"][f"x{value}"] == f"{value}{value}"
    assert body["spec"]["hostname"] == f"<{value}>"
    assert body["spec"][value] == [{"deep": value}]
    container = body["spec"]["containers"][0]
    assert container["command"] == ["sh", "-c", f'echo {value} \\"\n']
    assert container["env"] == [*ENV, {"name": "A", "value": value}]


@pytest.mark.parametrize(
    "text",
    [
        "{{FC_FRAMEWORK_UID}}",
        "{{FC_TASK_ATTEMPT_ID}}",
        "{{ FC_TASK_INDEX }}",
        "{{fc_task_index}}",
        "{FC_TASK_INDEX}",
        "{{FC_TASK_INDEX}",
        "$(FC_TASK_INDEX)",
        "{{}}",
        "{{OTHER}}",
        "@0-index @0-task @1-pod",
    ],
)
def test_everything_else_stays(text: str) -> None:
    body = render({"spec": {"hostname": text, "containers": []}})
    assert body["spec"]["hostname"] == text


def test_braces_around_a_placeholder_stay() -> None:
    assert render({"spec": {"x": "{{{FC_TASK_INDEX}}}"}})["spec"]["x"] == "{12}"


def test_one_template_serves_many_tasks() -> None:
    subject = framework({"spec": {"hostname": "{{FC_POD_NAME}}", "containers": [{"name": "main"}]}})
    attempt = FrameworkAttemptStatus(id=0, start_time=0, configmap_uid="configmap-uid")
    template = PodTemplate(subject, attempt, subject.spec.task_roles[0], "role-uid")
    for index, uid, number in ((0, "uid-0", 0), (1, "uid-1", 0), (1, "uid-1", 11), (9999, "uid-2", 1)):
        task = TaskStatus(index, uid, 0, 0, TaskAttemptStatus(number, 0))
        body = orjson.loads(template.render(task))
        assert body["metadata"]["name"] == body["spec"]["hostname"] == f"f-worker-{index}"
        marks = body["metadata"]["annotations"]
        assert (marks["FC_TASK_INDEX"], marks["FC_TASK_UID"], marks["FC_TASK_ATTEMPT_ID"]) == (
            str(index),
            uid,
            str(number),
        )
        env = {item["name"]: item.get("value") for item in body["spec"]["containers"][0]["env"]}
        assert env["FC_TASK_ATTEMPT_INSTANCE_UID"] == f"{number}_$(FC_POD_UID)"
