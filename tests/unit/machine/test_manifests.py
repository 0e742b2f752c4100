"""The fields of Pods that docs/write-a-framework.md lists."""

import re
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameworkcontroller.api import hostlists, names
from frameworkcontroller.api.objects import Framework
from frameworkcontroller.api.spec import parse_spec
from frameworkcontroller.api.status import (
    AdmissionStatus,
    AdmittedPodSet,
    FrameworkAttemptStatus,
    State,
    TaskAttemptStatus,
    TaskStatus,
)
from frameworkcontroller.machine.kernel.manifests import configmap_body
from frameworkcontroller.machine.parts.claims.claimbodies import claim_body
from frameworkcontroller.machine.parts.service.hostservice import ServicePart
from tests.support.bench import Body
from tests.support.podtemplates import pod_template

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


def render(template: Any) -> Body:
    """The Pod of Task 12 of that template."""
    return rendered({"taskRoles": [{"name": "worker", "taskNumber": 20, "task": {"pod": template}}]}, index=12)


def rendered(spec: Body, *, role: int = 0, admission: AdmissionStatus | None = None, index: int = 0) -> Body:
    """The Pod of a Task of a Framework with that spec."""
    subject = Framework("ns", "f", "framework-uid", 1, deleting=False, spec=parse_spec(spec))
    attempt = FrameworkAttemptStatus(id=3, start_time=0, configmap_uid="configmap-uid")
    template = pod_template(subject, attempt, subject.spec.task_roles[role], "role-uid", admission)
    task = TaskStatus(index, "task-uid", 0, 0, TaskAttemptStatus(2, 0), State.CREATION_PENDING)
    body: Body = orjson.loads(template.render(task))
    return body


# --- the ConfigMap ----------------------------------------------------------------------------------------------


def test_configmap() -> None:
    assert orjson.loads(configmap_body(framework(), 3, {})) == {
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
    kinds = [
        item["terminationMessagePolicy"] for name in ("containers", "initContainers") for item in body["spec"][name]
    ]
    assert kinds == ["File", *["FallbackToLogsOnError"] * 3]


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
        "ownerReferences": [OWNER],
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
        *({"spec": spec} for spec in ("text", [1], 7, {"containers": "x"}, {"containers": {"name": "main"}})),
        {"spec": {"initContainers": 7}},
        {"metadata": "text", "spec": {}},
        {"metadata": [], "spec": {}},
    ],
)
def test_wrong_types_pass_through(template: Body) -> None:
    body = render(template)
    for key, value in template.items():
        assert body[key] == value or value == {}


@pytest.mark.parametrize(
    "theirs", [{"uid": "x"}, "x", [{"kind": "ConfigMap", "name": "mine", "uid": "u", "controller": True}], [7]]
)
def test_the_attempt_is_the_only_owner_of_a_pod(theirs: Any) -> None:
    """With another one, the garbage collector would let the Pod outlive its attempt."""
    assert render({"metadata": {"ownerReferences": theirs}, "spec": {}})["metadata"]["ownerReferences"] == [OWNER]


@pytest.mark.parametrize(("field", "value"), [("labels", []), ("labels", "x"), ("annotations", 7)])
def test_wrong_types_in_metadata_pass_through(field: str, value: Any) -> None:
    assert render({"metadata": {field: value}, "spec": {}})["metadata"][field] == value


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
    template = pod_template(subject, attempt, subject.spec.task_roles[0], "role-uid")
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


# --- host names and ranks -----------------------------------------------------------------------------------------

NEW_VALUES = {
    "FC_FRAMEWORK_ATTEMPT_ID": "3",
    "FC_FRAMEWORK_TASK_NUMBER": "27",
    "FC_TASKROLE_TASK_NUMBER": "20",
    "FC_TASK_RANK": "16",
    "FC_COORDINATOR_HOST": "f-master-1.train",
}
PLAIN = {"spec": {"containers": [{"name": "main"}]}}


def braces(name: str) -> str:
    return "{{" + name + "}}"


def networked(template: Any, **spec: Any) -> Body:
    """The Pod of worker 12, after 4 masters and before 3 others, of a Framework with those fields."""
    roles = [
        {"name": "master", "taskNumber": 4},
        {"name": "worker", "taskNumber": 20, "task": {"pod": template}},
        {"name": "more", "taskNumber": 3},
        {"name": "none", "taskNumber": 0},
    ]
    return rendered({"taskRoles": roles, **spec}, role=1, index=12)


COORDINATED: Body = {"network": {"subdomain": "train"}, "coordinator": {"taskRole": "master", "taskIndex": 1}}


@pytest.mark.parametrize(("name", "value"), [*VALUES.items(), *NEW_VALUES.items()])
def test_placeholders_of_a_network(name: str, value: str) -> None:
    body = networked({"spec": {braces(name): [f"<{braces(name)}{braces(name)}>"]}}, **COORDINATED)
    assert body["spec"] == {value: [f"<{value}{value}>"], "hostname": "f-worker-12", "subdomain": "train"}


@pytest.mark.parametrize("name", [name for name in NEW_VALUES if name != "FC_COORDINATOR_HOST"])
@pytest.mark.parametrize(
    "spec", [{"network": {}}, {"coordinator": {"taskRole": "more"}}], ids=["network", "coordinator"]
)
def test_either_is_enough(name: str, spec: Body) -> None:
    assert networked({"spec": {"x": braces(name)}}, **spec)["spec"]["x"] == NEW_VALUES[name]


HOST_LISTS = {
    "{{FC_HOSTS:more}}": "f-more-0.train,f-more-1.train,f-more-2.train",
    "{{FC_HOSTS:more:2222}}": "f-more-0.train:2222,f-more-1.train:2222,f-more-2.train:2222",
    "{{FC_HOSTS_JSON:more}}": '["f-more-0.train","f-more-1.train","f-more-2.train"]',
    "{{FC_HOSTS_JSON:more:1}}": '["f-more-0.train:1","f-more-1.train:1","f-more-2.train:1"]',
    "{{FC_HOSTS:none}}": "",
    "{{FC_HOSTS_JSON:none:1}}": "[]",
}


@pytest.mark.parametrize(("placeholder", "value"), HOST_LISTS.items())
def test_host_lists(placeholder: str, value: str) -> None:
    body = networked({"spec": {placeholder: [f"<{placeholder}{placeholder}>", f"{{{placeholder}}}"]}}, **COORDINATED)
    assert body["spec"].pop(value) == [f"<{value}{value}>", f"{{{value}}}"]
    assert body["spec"] == {"hostname": "f-worker-12", "subdomain": "train"}


@pytest.mark.parametrize(
    "placeholder", [*map(braces, NEW_VALUES), *HOST_LISTS, "{{FC_HOSTS}}", "{{FC_HOSTS:nobody:x}}"]
)
def test_without_network_and_coordinator_they_stay(placeholder: str) -> None:
    assert networked({"spec": {"x": placeholder}})["spec"] == {"x": placeholder}


def test_the_cluster_of_tensorflow() -> None:
    text = (
        '{"cluster": {"ps": {{FC_HOSTS_JSON:more:2222}}, "chief": {{FC_HOSTS_JSON:none:2222}}}, '
        '"task": {"type": "{{FC_TASKROLE_NAME}}", "index": {{FC_TASK_INDEX}}}}'
    )
    found = networked({"spec": {"x": text}}, **COORDINATED)["spec"]["x"]
    assert orjson.loads(found) == {
        "cluster": {"ps": [f"f-more-{index}.train:2222" for index in range(3)], "chief": []},
        "task": {"type": "worker", "index": 12},
    }


TEXTS = (
    st.text(st.sampled_from('{}@0-FC_TASK_RANK:\\"é') | st.characters(codec="utf-8"), max_size=20),
    st.sampled_from([*map(braces, (*VALUES, *NEW_VALUES)), *HOST_LISTS]),
)


@given(text=st.lists(st.one_of(*TEXTS), max_size=5).map("".join))
def test_no_other_text_changes(text: str) -> None:
    values = {**HOST_LISTS, **{braces(name): value for name, value in (VALUES | NEW_VALUES).items()}}
    wanted = re.sub("|".join(map(re.escape, values)), lambda found: values[found[0]], text)
    assert networked({"spec": {"x": text}}, **COORDINATED)["spec"]["x"] == wanted


def test_a_host_list_is_made_once_for_all_tasks() -> None:
    lists = ["{{FC_HOSTS:worker}}", "{{FC_HOSTS:worker}}", "{{FC_HOSTS:worker:1}}"]
    role = {"name": "worker", "taskNumber": 1000, "task": {"pod": {"spec": {"x": lists, "containers": []}}}}
    spec = parse_spec({"network": {}, "taskRoles": [role]})
    made = hostlists.list_text.cache_info().misses
    subject = Framework("ns", "f", "framework-uid", 1, deleting=False, spec=spec)
    attempt = FrameworkAttemptStatus(id=3, start_time=0, configmap_uid="configmap-uid")
    template = pod_template(subject, attempt, spec.task_roles[0], "role-uid")
    bodies = [
        orjson.loads(template.render(TaskStatus(index, "task-uid", 0, 0, TaskAttemptStatus(0, 0))))
        for index in (0, 500, 999)
    ]
    assert len(template.raw) < 3000
    assert hostlists.list_text.cache_info().misses - made == 2
    hosts = ",".join(f"f-worker-{index}.f" for index in range(1000))
    assert [body["spec"]["x"] for body in bodies] == [[hosts, hosts, hosts.replace(".f", ".f:1")]] * 3


def test_a_value_completes_no_marker() -> None:
    role = {"name": "0", "task": {"pod": {"spec": {"x": "@{{FC_TASKROLE_NAME}}-index @{{FC_TASK_INDEX}}-pod_name"}}}}
    assert rendered({"taskRoles": [role]})["spec"]["x"] == "@0-index @0-pod_name"


@pytest.mark.parametrize("text", ["@AAAAA-index", "@AAAAA-@AAAAB-hosts0.{{FC_HOSTS:worker}}"])
def test_markers_of_a_template_stay(text: str) -> None:
    hosts = ",".join(f"f-worker-{index}.f" for index in range(20))
    spec = networked({"spec": {"x": text}}, network={})["spec"]
    assert spec["x"] == text.replace("{{FC_HOSTS:worker}}", hosts)


def test_an_admission_has_no_placeholders() -> None:
    """A user may write the status: lists in an admission would not count against their bound."""
    texts = {"x": "{{FC_HOSTS:a}}", "y": "@AAAAA-index"}
    admission = AdmissionStatus("q", "w", "w-uid", "cq", [AdmittedPodSet("a", 2, annotations=texts)])
    spec = {"network": {}, "taskRoles": [{"name": "a", "taskNumber": 2, "task": {"pod": PLAIN}}]}
    assert texts.items() <= rendered(spec, admission=admission)["metadata"]["annotations"].items()


def test_a_pod_has_the_name_by_which_it_is_reached() -> None:
    spec = networked(PLAIN, network={})["spec"]
    assert (spec["hostname"], spec["subdomain"]) == ("f-worker-12", "f")


@pytest.mark.parametrize("own", [{"hostname": "mine"}, {"subdomain": "mine"}, {"hostname": "a", "subdomain": "b"}])
def test_the_host_name_of_the_template_stays(own: Body) -> None:
    spec = networked({"spec": {**own, "containers": []}}, network={})["spec"]
    assert {key: spec[key] for key in ("hostname", "subdomain") if key in spec} == own


@pytest.mark.parametrize("network", [None, {"enableDNSHostnames": False}])
def test_without_host_names_a_pod_is_as_before(network: Body | None) -> None:
    assert networked(PLAIN, network=network) == networked(PLAIN)


@pytest.mark.parametrize("published", [True, False])
def test_service(published: bool) -> None:
    spec = parse_spec({"network": {"subdomain": "train", "publishNotReadyAddresses": published}})
    subject = Framework("ns", "f", "framework-uid", 1, deleting=False, spec=spec)
    part = ServicePart()
    assert orjson.loads(part.body(subject, part.name(subject), part.spec(subject))) == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "train",
            "namespace": "ns",
            "labels": {"FC_FRAMEWORK_NAME": "f"},
            "annotations": {
                "FC_FRAMEWORK_NAMESPACE": "ns",
                "FC_FRAMEWORK_NAME": "f",
                "FC_FRAMEWORK_UID": "framework-uid",
            },
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
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": published,
            "selector": {"FC_FRAMEWORK_NAME": "f"},
        },
    }


# --- volume claims ------------------------------------------------------------------------------------------------


def claiming(**role: Any) -> Body:
    """The spec of a Framework whose role has two claims for each Task."""
    words = "{{FC_FRAMEWORK_NAMESPACE}}/{{FC_POD_NAME}}/{{FC_TASK_INDEX}}/{{FC_TASK_RANK}}"
    metadata = {"name": "data", "labels": {"{{FC_TASKROLE_NAME}}": "x"}, "annotations": {"words": words}}
    first = {"metadata": metadata, "spec": {"storageClassName": "zone-{{FC_TASK_INDEX}}", "future": [None]}}
    templates = [first, {"metadata": {"name": "my-log"}}]
    return {"taskRoles": [{"name": "worker", "volumeClaimTemplates": templates, **role}], "network": {}}


def test_a_claim_has_the_names_of_its_task_and_no_placeholder_of_an_attempt() -> None:
    owner = Framework("ns", "f", "uid-f", 1, False, parse_spec(claiming()))
    (role,) = owner.spec.task_roles
    body = orjson.loads(claim_body(owner, role, role.volume_claim_templates[0], 12))
    metadata = body["metadata"]
    assert metadata["name"] == "data-f-worker-12"
    assert metadata["labels"]["worker"] == "x"
    assert metadata["annotations"]["words"] == "ns/f-worker-12/12/{{FC_TASK_RANK}}"
    assert "ownerReferences" not in metadata
    assert body["spec"] == {"storageClassName": "zone-12", "future": [None]}


@pytest.mark.parametrize(
    ("volumes", "left"),
    [
        (None, []),
        ([{"name": "data", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}], [{"name": "tmp", "emptyDir": {}}]),
        ([7, {}], [7, {}]),
        ("none", None),
    ],
)
def test_claims_replace_volumes_of_their_names_except_of_a_wrong_type(volumes: Any, left: list[Any] | None) -> None:
    body = rendered(claiming(task={"pod": {"spec": {"containers": [], "volumes": volumes}}}), index=3)
    claims = [
        {"name": name, "persistentVolumeClaim": {"claimName": f"{name}-f-worker-3"}} for name in ("data", "my-log")
    ]
    assert body["spec"]["volumes"] == ("none" if left is None else [*claims, *left])


@given(claim=st.from_regex(names.LABEL_PATTERN, fullmatch=True), index=st.integers(0, 9999))
def test_the_name_of_a_claim_names_its_task(claim: str, index: int) -> None:
    name = names.claim_name(claim, "f0", "r1", index)
    assert names.split_claim_name(name) == (claim, "f0", "r1", index)


@pytest.mark.parametrize("name", ["f-r-0", "-f-r-0", "data-f-r-00", "data-f-r-x", "data", ""])
def test_other_names_are_of_no_claim(name: str) -> None:
    assert names.split_claim_name(name) is None
