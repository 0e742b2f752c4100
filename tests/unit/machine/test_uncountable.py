"""Frameworks that Kueue cannot count: placeholders in fields that count for an admission, and no TaskRoles."""

from typing import Any

import pytest

from frameworkcontroller.machine.kernel.actions import Create
from frameworkcontroller.machine.kernel.requests import Kind
from tests.support.bench import Body, prepared, role
from tests.support.queuedbench import QueuedBench, entered, live, running, told

INDEX = "{{FC_TASK_INDEX}}"
NETWORK: Body = {"network": {}, "coordinator": {"taskRole": "a"}}
POD = "spec.taskRoles[1].task.pod"


def container(**fields: Any) -> Body:
    """A template whose container has these fields."""
    return {"spec": {"containers": [{"name": "main", "image": "none", **fields}]}}


def pod(**fields: Any) -> Body:
    """A template whose Pod has these fields."""
    return {"spec": {"containers": [{"name": "main", "image": "none"}], **fields}}


def annotated(**annotations: str) -> Body:
    """A template with these annotations of Kueue."""
    return {
        "metadata": {"annotations": {f"kueue.x-k8s.io/{name}": text for name, text in annotations.items()}},
        **pod(),
    }


def requests(value: str, field: str = "requests") -> Body:
    """A template whose container asks for GPUs."""
    return container(resources={field: {"nvidia.com/gpu": value}})


REFUSED: dict[str, tuple[Body, str, str]] = {
    "requests": (requests(INDEX), f"{POD}.spec.containers[0].resources.requests.nvidia.com/gpu", INDEX),
    "limits": (requests(f"{INDEX}6", "limits"), f"{POD}.spec.containers[0].resources.limits", f"{INDEX}6"),
    "role": (requests("{{FC_TASKROLE_NAME}}"), f"{POD}.spec.containers[0].resources", "{{FC_TASKROLE_NAME}}"),
    "key": (container(resources={"requests": {f"x/{INDEX}": "1"}}), f"{POD}.spec.containers[0].resources", INDEX),
    "init": ({"spec": {"initContainers": [requests(INDEX)["spec"]["containers"][0]]}}, "initContainers[0]", INDEX),
    "sidecar": ({"spec": {"initContainers": [{"restartPolicy": INDEX}]}}, "initContainers[0].restartPolicy", INDEX),
    "pod": (pod(resources={"requests": {"cpu": INDEX}}), f"{POD}.spec.resources.requests.cpu", INDEX),
    "overhead": (pod(overhead={"cpu": INDEX}), f"{POD}.spec.overhead.cpu", INDEX),
    "selector": (pod(nodeSelector={"zone": INDEX}), f"{POD}.spec.nodeSelector.zone", INDEX),
    "toleration": (pod(tolerations=[{"key": INDEX}]), f"{POD}.spec.tolerations[0].key", INDEX),
    "affinity": (pod(affinity={"podAffinity": {"x": [INDEX]}}), f"{POD}.spec.affinity.podAffinity.x[0]", INDEX),
    "spread": (pod(topologySpreadConstraints=[{"topologyKey": INDEX}]), "topologySpreadConstraints[0]", INDEX),
    "priority": (pod(priorityClassName="{{FC_POD_NAME}}"), f"{POD}.spec.priorityClassName", "{{FC_POD_NAME}}"),
    "scheduler": (pod(schedulerName=INDEX), f"{POD}.spec.schedulerName", INDEX),
    "runtime": (pod(runtimeClassName=INDEX), f"{POD}.spec.runtimeClassName", INDEX),
    "claim": (pod(resourceClaims=[{"name": "g", "resourceClaimName": INDEX}]), "resourceClaims[0]", INDEX),
    "topology": (annotated(**{"podset-required-topology": INDEX}), "podset-required-topology", INDEX),
    "slice": (annotated(**{"podset-slice-size": INDEX}), "podset-slice-size", INDEX),
    # They may become the name of a field that counts.
    "field": (container(**{f"{INDEX}resources": {"requests": {"cpu": "9"}}}), f"{POD}.spec.containers[0]", INDEX),
    "part": ({INDEX: {}, **pod()}, POD, INDEX),
}
IN_NETWORKS: dict[str, str] = {
    "rank": "{{FC_TASK_RANK}}",
    "number": "{{FC_TASKROLE_TASK_NUMBER}}",
    "total": "{{FC_FRAMEWORK_TASK_NUMBER}}",
    "attempt": "{{FC_FRAMEWORK_ATTEMPT_ID}}",
    "coordinator": "{{FC_COORDINATOR_HOST}}",
    "hosts": "{{FC_HOSTS:a}}",
    "ports": "{{FC_HOSTS_JSON:a:80}}",
}


def check_refused(bench: QueuedBench, *words: str) -> None:
    """It enters no queue, nothing starts, and the condition has these words."""
    for _ in range(4):
        assert not any(isinstance(action, Create) for action in bench.plan().actions)
        assert bench.act() == []
    assert bench.live is None
    stalled = told(bench, "Stalled")
    assert stalled is not None
    assert stalled[:2] == ("True", "QueueInvalid")
    for word in words:
        assert word in stalled[2]


@pytest.mark.parametrize("name", REFUSED)
def test_a_placeholder_where_kueue_needs_a_value_is_refused(name: str) -> None:
    template, path, value = REFUSED[name]
    check_refused(QueuedBench(role("a"), role("b", 9, pod=template)), path, value, "remove the label")


@pytest.mark.parametrize("name", IN_NETWORKS)
def test_placeholders_of_networks_are_refused_too(name: str) -> None:
    value = IN_NETWORKS[name]
    selector = pod(nodeSelector={"zone": value})
    check_refused(QueuedBench(role("a"), role("b", pod=selector), **NETWORK), f"{POD}.spec.nodeSelector.zone", value)


def test_an_empty_list_of_hosts_makes_no_field_that_counts() -> None:
    template = container(**{"reso{{FC_HOSTS:z}}urces": {"requests": {"nvidia.com/gpu": "9"}}})
    check_refused(QueuedBench(role("a"), role("b", pod=template), role("z", 0), **NETWORK), POD, "reso{{FC_HOSTS:z}}")


@pytest.mark.parametrize(
    "template",
    [
        container(env=[{"name": "INDEX", "value": INDEX}], command=["{{FC_POD_NAME}}"], name=f"main-{INDEX}"),
        pod(affinity={"podAffinity": {"matchLabels": {"FC_FRAMEWORK_NAME": "{{FC_FRAMEWORK_NAME}}"}}}),
        pod(nodeSelector={"of": "{{FC_TASKROLE_NAME}}", "in": "{{FC_FRAMEWORK_NAMESPACE}}"}),
        pod(nodeSelector={"x": "{{FC_TASK_RANK}} {{other}}"}),
        {"metadata": {"labels": {"index": INDEX}, "annotations": {"pod": "{{FC_POD_NAME}}"}}, **pod()},
    ],
)
def test_others_are_not(template: Body) -> None:
    bench = entered(role(pod=template))
    assert told(bench, "Stalled") is None
    spec = live(bench)["spec"]["podSets"][0]["template"]["spec"]
    assert "{{FC_FRAMEWORK" not in str(spec)


def test_without_a_queue_none_is() -> None:
    bench = prepared(role(pod=requests(INDEX)))
    requested = bench.bodies["f-a-0"]["spec"]["containers"][0]["resources"]["requests"]
    assert requested == {"nvidia.com/gpu": "0"}


def test_one_that_is_written_while_pods_run_ends_the_attempt() -> None:
    """As the admission says "0" for them, too."""
    bench = running(role("a", 2, pod=requests("0"), retryPolicy={"maxRetryCount": 3}))
    bench.edit_then_plan(role("a", 2, pod=requests(INDEX), retryPolicy={"maxRetryCount": 3}))
    assert bench.code() == -241
    bench.vanish()
    bench.settle()
    assert bench.live is None
    stalled = told(bench, "Stalled")
    assert stalled is not None
    assert stalled[:2] == ("True", "QueueInvalid")
    bench.edit(role("a", 2, pod=requests("1")))
    bench.enter()
    bench.plan()
    assert told(bench, "Stalled") == ("False", "Progressing", "")


def test_one_that_is_written_while_it_waits_takes_it_out_of_the_queue() -> None:
    bench = entered(role("a"))
    bench.admit(see=False)
    bench.edit(role("a", pod=requests(INDEX)))
    bench.see()
    bench.settle()
    assert bench.live is None
    assert bench.pods == {}
    bench.edit_then_settle(role("a", pod=requests(INDEX)), suspend=True)
    assert told(bench, "Stalled") == ("False", "Progressing", "")


# --- no TaskRoles ----------------------------------------------------------------------------------------------------


def empty() -> QueuedBench:
    """A queued Framework without roles."""
    bench = QueuedBench()
    bench.spec["taskRoles"] = []
    return bench


def test_a_framework_without_roles_does_not_start() -> None:
    bench = empty()
    check_refused(bench, "TaskRole", "remove the label")
    bench.edit(role("a", 2))
    bench.begin()
    bench.settle()
    assert list(bench.pods) == ["f-a-0", "f-a-1"]


def test_roles_that_are_added_to_an_attempt_without_any_wait_for_an_admission() -> None:
    bench = running(role("a"), role("b"))
    bench.spec["taskRoles"] = []
    bench.edit_then_settle()
    bench.edit(role("a", 1), role("c", 2))
    for _ in range(5):
        assert not [one for one in bench.plan().actions if isinstance(one, Create) and one.target.kind is Kind.POD]
    assert bench.code() == -241


def test_a_retry_without_roles_starts_with_its_admission_or_not_at_all() -> None:
    bench = running(role("a"), retryPolicy={"maxRetryCount": -2})
    bench.spec["taskRoles"] = []
    bench.edit_then_settle()
    bench.edit_then_settle(suspend=True)
    assert bench.live is None
    bench.edit(suspend=False)
    check_refused(bench, "TaskRole")
