"""The findings of `lint`, by line."""

from pathlib import Path

import pytest
from pydantic import BaseModel

from frameworkcontroller.api.completion import FailureAction
from frameworkcontroller.api.spec import FrameworkSpec, TaskRoleSpec, TaskSpec
from frameworkcontroller.commands.lint import foreign
from frameworkcontroller.commands.lint.command import lint_text

ROOT = Path(__file__).resolve().parents[3]

HEAD = """\
apiVersion: frameworkcontroller.microsoft.com/v1
kind: Framework
metadata: {name: f}
spec:
"""
POD = "{spec: {restartPolicy: Never, containers: [{name: main, image: i, command: [c]}]}}"
FAILS = "frameworkAttemptCompletionPolicy: {minFailedTaskCount: 1}"
SUCCEEDS = "frameworkAttemptCompletionPolicy: {minSucceededTaskCount: 1}"


def said(text: str) -> list[str]:
    """The findings, without the name of the file."""
    return [f"{line}: {finding}" if line else f" {finding}" for line, finding in lint_text(text)]


def spec(*lines: str) -> list[str]:
    """The findings of a Framework with these lines in its spec, from line 5 on."""
    return said(HEAD + "".join(f"  {line}\n" for line in lines))


def role(*fields: str, name: str = "w", task: str = f"{{pod: {POD}}}") -> list[str]:
    """The findings of a Framework with one role; its fields begin on line 7, and its task is on the line after them."""
    return spec("taskRoles:", f"- name: {name}", *(f"  {field}" for field in fields), f"  task: {task}")


def container(text: str) -> list[str]:
    """The findings of a container on line 8."""
    pod = f"{{pod: {{spec: {{restartPolicy: Never, containers: [{text}]}}}}}}"
    return role(FAILS, task=pod)


RETRIED = f"task: {{retryPolicy: {{maxRetryCount: -2}}, pod: {POD}}}"
SERVICE = f"task: {{pod: {POD.replace('Never', 'Always')}}}"


@pytest.mark.parametrize(
    ("fields", "status", "finding"),
    [
        (f"taskNumber: 2, task: {{pod: {POD}}}", "Complete", ""),
        (f"{SUCCEEDS}, task: {{pod: {POD}}}", "Ready", ""),
        (f"{SUCCEEDS}, task: {{pod: {POD}}}", "Complete", "its minSucceededTaskCount 1 completes the attempt before"),
        (RETRIED, "Complete", "with task.retryPolicy.maxRetryCount -2 its Tasks are run again and again"),
        (SERVICE, "Complete", "its Pods never end (restartPolicy Always)"),
        (SERVICE, "Ready", ""),
    ],
)
def test_a_role_that_never_starts(fields: str, status: str, finding: str) -> None:
    roles = [f"- {{name: a, {fields}}}", "- name: b", f"  {FAILS}", f"  task: {{pod: {POD}}}"]
    found = spec("taskRoles:", *roles, f"  dependsOn: [{{name: a, status: {status}}}]")
    text = f"10: warning: spec.taskRoles[1].dependsOn[0]: b never starts, as a is never Complete: {finding}"
    assert [one for one in found if "never starts" in one] == [text] * bool(finding)


def test_a_good_framework() -> None:
    assert role("taskNumber: 2", FAILS) == []


@pytest.mark.parametrize(
    "file", sorted(path for path in (ROOT / "examples").rglob("*.yaml")), ids=lambda path: path.stem
)
def test_examples_have_no_errors(file: Path) -> None:
    assert [str(one) for _, one in lint_text(file.read_text()) if one.severity == "error"] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: [", ["1: error: is not YAML: expected the node content, but found '<stream end>'"]),
        ("a: 1\nb: c: d\n", ["2: error: is not YAML: mapping values are not allowed here"]),
        ("&a [*a]", [" error: is nested too deeply, or contains itself"]),
        ("hello", ["1: error: is not an API object: must be a mapping with apiVersion, kind, metadata and spec"]),
        ("", [" warning: contains no Framework"]),
        ("kind: Service\napiVersion: v1\n", [" warning: contains no Framework"]),
        ("apiVersion: v1\n", ["1: error: kind: is required"]),
        (HEAD.replace("Framework", "Framwork"), ["2: error: kind: 'Framwork': must be Framework"]),
        (
            "apiVersion: v1\nkind: Job\nspec: {taskRoles: []}",
            ["2: warning: kind: 'Job': is not Framework, though it has taskRoles"],
        ),
        (
            "kind: Framework\napiVersion: v1\nmetadata: {name: f}\nspec: {taskRoles: [], tasks: []}\nspce: 1",
            [
                "2: error: apiVersion: 'v1': must be frameworkcontroller.microsoft.com/v1",
                "4: error: spec.tasks: is a field of a Volcano Job; a Framework has taskRoles",
                "4: warning: spec.taskRoles: has no role: the Framework runs nothing, and never completes by itself",
                "5: error: spce: unknown field; did you mean spec?",
            ],
        ),
        (
            "kind: Framework\napiVersion: frameworkcontroller.microsoft.com/v1\nmetadata: {name: my-job}\n",
            [
                "1: error: spec: is required: without one there is nothing to run",
                "3: error: metadata.name: 'my-job': must be lower case letters and digits only, at most 63 of them (a "
                "dash separates the parts of a Pod's name)",
            ],
        ),
        (
            HEAD.replace("{name: f}", "{nmae: f, namespace: A_b, labels: {a: yes}, generateName: a-}"),
            [
                "3: error: metadata.nmae: unknown field; did you mean name?",
                "3: error: metadata.labels.a: true: must be text (put it in quotes)",
                "3: error: metadata.generateName: 'a-': and 5 characters more must be lower case letters and digits "
                "only, at most 63 of them (a dash separates the parts of a Pod's name)",
                "3: error: metadata.namespace: 'A_b': is not the name of a namespace",
                "4: error: spec: null: must be a mapping",
            ],
        ),
    ],
)
def test_objects(text: str, expected: list[str]) -> None:
    assert said(text) == expected


def test_documents_and_lists_keep_their_lines() -> None:
    items = "apiVersion: v1\nkind: List\nitems:\n- kind: Service\n- kind: Framework\n  metadata: {}\n"
    assert said("# first\n---\nkind: Service\n---\n" + items) == [
        "9: error: apiVersion: null: must be frameworkcontroller.microsoft.com/v1",
        "9: error: spec: is required: without one there is nothing to run",
        "10: error: metadata.name: is required",
    ]


def test_json_is_linted_too() -> None:
    assert said('{"kind": "Framework",\n "metadata": {"name": 5}, "spec": {}}')[1:] == [
        "2: error: metadata.name: 5: must be lower case letters and digits only, at most 63 of them (a dash separates "
        "the parts of a Pod's name)",
        "2: warning: spec.taskRoles: has no role: the Framework runs nothing, and never completes by itself",
    ]


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("executionType: Pause", "executionType: 'Pause': must be Create, Start or Stop"),
        ("executiontype: Stop", "executiontype: unknown field; did you mean executionType?"),
        ("retryPolicy: [1]", "retryPolicy: a list: must be a mapping"),
    ],
)
def test_fields_of_the_spec(field: str, expected: str) -> None:
    taskroles = f"taskRoles: [{{name: w, {FAILS}, task: {{pod: {POD}}}}}]"
    assert spec(field, taskroles) == [f"5: error: spec.{expected}"]


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("taskNumber: 10001", "error: spec.taskRoles[0].taskNumber: 10001: must be at most 10000"),
        ("size: 2", "error: spec.taskRoles[0].size: unknown field"),
        ("name: w", "error: spec.taskRoles[0].name: is repeated on line 7"),
    ],
)
def test_fields_of_roles(field: str, expected: str) -> None:
    line = 6 if "repeated" in expected else 7
    assert role(field, FAILS) == [f"{line}: {expected}"]


def test_a_role_without_task_number_has_one_task() -> None:
    fails = "frameworkAttemptCompletionPolicy: {minFailedTaskCount: 2}"
    assert [one for one in role(fails) if "has 1 Task" in one] == [
        "7: warning: spec.taskRoles[0].frameworkAttemptCompletionPolicy.minFailedTaskCount: 2: can never be reached: "
        "the role has 1 Tasks"
    ]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ("podForceDeletionPolicy: Always", []),
        ("podForceDeletionPolicy: NodeUnreachable, podGracefulDeletionTimeoutSec: 60", []),
        (
            "podForceDeletionPolicy: NodeUnreachable",
            [
                "8: warning: spec.taskRoles[0].task.podForceDeletionPolicy: 'NodeUnreachable': has no effect without "
                "podGracefulDeletionTimeoutSec: no Pod is force-deleted"
            ],
        ),
        (
            "podForceDeletionPolicy: NodeLost, podGracefulDeletionTimeoutSec: 60",
            ["8: error: spec.taskRoles[0].task.podForceDeletionPolicy: 'NodeLost': must be Always or NodeUnreachable"],
        ),
    ],
)
def test_forced_deletion(fields: str, expected: list[str]) -> None:
    assert role(FAILS, task=f"{{{fields}, pod: {POD}}}") == expected


@pytest.mark.parametrize("field", ["taskNumber: 2.0", "task: {pod: {spec: {priority: 2.0}}}"])
def test_whole_numbers_may_have_a_point(field: str) -> None:
    assert [one for one in role(field, FAILS) if "whole number" in one] == []


def test_two_roles_of_one_name() -> None:
    roles = [f"- {{name: {name}, {FAILS}, task: {{pod: {POD}}}}}" for name in ("w", "v", "w")]
    assert spec("taskRoles:", *roles) == [
        "8: error: spec.taskRoles[2].name: 'w': is already the name of taskRoles[0]",
    ]


def test_names_of_roles() -> None:
    roles = [f"- {{name: {name}, {FAILS}, task: {{pod: {POD}}}}}" for name in ("ps-1", "w", "w", "w" * 63)]
    assert spec("taskRoles:", *roles) == [
        "6: error: spec.taskRoles[0].name: 'ps-1': must be lower case letters and digits only, at most 63 of them (a "
        "dash separates the parts of a Pod's name)",
        "8: error: spec.taskRoles[2].name: 'w': is already the name of taskRoles[1]",
        f"9: warning: spec.taskRoles[3].name: makes Pod names of up to 67 characters ('f-{'w' * 63}-0'): as host names "
        "they are cut after 63, and several Pods may get the same",
    ]


def test_many_tasks_need_compression() -> None:
    assert role("taskNumber: 301", FAILS) == [
        "5: warning: spec.taskRoles: have 301 Tasks: beyond 300 or so a controller needs largeFrameworkCompression: "
        "true, or their status may not fit into an API object"
    ]
    assert role("taskNumber: 300", FAILS) == []


@pytest.mark.parametrize(
    ("policy", "retry", "expected"),
    [
        ("{minFailedTaskCount: 1, minSucceededTaskCount: 2}", "{}", []),
        ("{minFailedTaskCount: 3}", "{}", ["minFailedTaskCount: 3: can never be reached: the role has 2 Tasks"]),
        (
            "{minFailedTaskCount: 1, minSucceededTaskCount: 3}",
            "{}",
            ["minSucceededTaskCount: 3: can never be reached: the role has 2 Tasks"],
        ),
        (
            "{minFailedTaskCount: 1}",
            "{maxRetryCount: -1}",
            [
                "minFailedTaskCount: 1: can never be reached: with task.retryPolicy.maxRetryCount -1 a Task that fails "
                "is retried and never counts as failed"
            ],
        ),
        # Permanent failures are not retried.
        ("{minFailedTaskCount: 1}", "{maxRetryCount: -1, fancyRetryPolicy: true}", []),
        (
            "{minSucceededTaskCount: 1}",
            "{maxRetryCount: -2, fancyRetryPolicy: true}",
            [
                "minSucceededTaskCount: 1: can never be reached: with task.retryPolicy.maxRetryCount -2 a Task that "
                "succeeds is run again"
            ],
        ),
        ("{minFailedTaskCount: -1, minSucceededTaskCount: -1}", "{}", []),
    ],
)
def test_completion_policies_that_never_trigger(policy: str, retry: str, expected: list[str]) -> None:
    found = role(
        "taskNumber: 2",
        f"frameworkAttemptCompletionPolicy: {policy}",
        task=f"{{retryPolicy: {retry}, pod: {POD}}}",
    )
    place = "8: warning: spec.taskRoles[0].frameworkAttemptCompletionPolicy."
    assert [one for one in found if one.startswith(place)] == [place + text for text in expected]


def test_deadlines_without_effect() -> None:
    pod = "{spec: {activeDeadlineSeconds: 90, restartPolicy: Never, containers: [{name: c, image: i, command: [c]}]}}"
    assert spec(
        "activeDeadlineSeconds: 60",
        "ttlSecondsAfterFinished: 0",
        "taskRoles:",
        "- name: w",
        "  frameworkAttemptCompletionPolicy: {minFailedTaskCount: 1}",
        f"  task: {{preRunningDeadlineSeconds: 60, pod: {pod}}}",
    ) == [
        "6: warning: spec.ttlSecondsAfterFinished: 0: deletes the Framework as soon as it completes: only the history "
        "then has its result",
        "10: warning: spec.taskRoles[0].task.preRunningDeadlineSeconds: 60: has no effect: the Framework ends before, "
        "by its activeDeadlineSeconds 60",
        "10: warning: spec.taskRoles[0].task.pod.spec.activeDeadlineSeconds: 90: has no effect: the Framework ends "
        "before, by its activeDeadlineSeconds 60",
    ]


def test_progress_of_several_roles() -> None:
    lines = ["progress: {}", "taskRoles:"]
    for name in "ab":
        policy = "{minFailedTaskCount: 1}"
        lines += [f"- name: {name}", f"  frameworkAttemptCompletionPolicy: {policy}", f"  task: {{pod: {POD}}}"]
    assert spec(*lines) == [
        "5: warning: spec.progress: needs coordinator, which names the role that reports: without one the Pods of all "
        "roles do"
    ]
    assert spec("coordinator: {taskRole: a}", *lines) == []
    assert spec(*lines[:5]) == []


def test_a_framework_that_cannot_fail() -> None:
    assert spec("retryPolicy: {maxRetryCount: 3}", "taskRoles:", "- name: w", f"  task: {{pod: {POD}}}") == [
        "5: warning: spec.retryPolicy.maxRetryCount: 3: has no effect: neither a role's minFailedTaskCount nor a "
        "failure rule can make an attempt fail",
        "6: warning: spec.taskRoles: have no completion policy: the Framework succeeds once all Tasks have ended, even "
        "if all of them failed; minFailedTaskCount: 1 lets it fail",
    ]


def test_a_framework_that_cannot_end_though_some_of_it_does() -> None:
    server = f"- {{name: ps, task: {{retryPolicy: {{maxRetryCount: -2}}, pod: {POD}}}}}"
    worker = f"- {{name: w, task: {{pod: {POD}}}}}"
    assert spec("taskRoles:", server, worker) == [
        "5: warning: spec.taskRoles: can never complete: ps is retried forever (maxRetryCount -2), and no other role "
        "has a completion policy that completes the attempt without it"
    ]
    assert spec("taskRoles:", server) == []
    assert spec("taskRoles:", server, worker.replace("task:", f"{FAILS}, task:")) == []


def test_pods_that_never_end() -> None:
    pod = POD.replace("restartPolicy: Never, ", "")
    assert role(FAILS, task=f"{{pod: {pod}}}") == [
        "8: warning: spec.taskRoles[0].task.pod.spec.restartPolicy: is missing, which is Always: containers that end "
        "are started again in place, so that no Task ever completes; retries and completion policies are for Never (or "
        "OnFailure)"
    ]
    assert role(FAILS, task=f"{{retryPolicy: {{maxRetryCount: -2}}, pod: {pod}}}")[0].startswith(
        "7: warning: spec.taskRoles[0].frameworkAttemptCompletionPolicy.minFailedTaskCount: 1: can never be reached"
    )


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("{}", ["error: spec.taskRoles[0].task.pod: is required: without a template there is nothing to run"]),
        ("{pod: {}}", ["error: spec.taskRoles[0].task.pod.spec: is required"]),
        (
            "{pod: {metadata: {name: x}, spec: {restartPolicy: Never, containers: []}}}",
            [
                "warning: spec.taskRoles[0].task.pod.metadata.name: 'x': is ignored: each Pod gets its Task's",
                "error: spec.taskRoles[0].task.pod.spec.containers: is required: a Pod has at least one",
            ],
        ),
    ],
)
def test_pods(task: str, expected: list[str]) -> None:
    assert sorted(role(FAILS, task=task)) == sorted(f"8: {text}" for text in expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{name: a, image: i, args: [x]}", []),
        ("{name: a, command: [x]}", ["error: .image: is required"]),
        ("{image: i, command: [x]}", ["error: .name: is required"]),
        (
            "{name: A, image: i, command: [x]}",
            ["error: .name: 'A': must be lower case letters, digits and dashes, at most 63 of them"],
        ),
        (
            "{name: a, image: i}",
            ["warning: .command: is missing, and so is args: the image decides the command"],
        ),
        ("{name: a, image: i, command: sleep 5}", ["error: .command: 'sleep 5': must be a list"]),
        (
            "{name: a, image: i, comand: [x], args: [x]}",
            ["warning: .comand: is not a known field of a Container; did you mean command?"],
        ),
        (
            "{name: a, image: i, args: [x], env: [{name: N, value: 5}]}",
            ["error: .env[0].value: 5: must be text (put it in quotes)"],
        ),
        ("{name: a, image: i, args: [x], resources: {limits: {cpu: 1, memory: 1Gi}}}", []),
        (
            "{name: a, image: i, args: [x], resources: {limits: [1]}}",
            ["error: .resources.limits: a list: must be a mapping"],
        ),
        ("{name: a, image: i, args: [x], tty: 'yes'}", ["error: .tty: 'yes': must be true or false"]),
        (
            "{name: a, image: i, args: [x], ports: [{containerPort: '80'}]}",
            ["error: .ports[0].containerPort: '80': must be a whole number"],
        ),
        (
            "{name: a, image: i, args: [x], ports: [{containerPort: 99999}, {containerPort: 80, hostPort: -1}]}",
            [
                "error: .ports[0].containerPort: 99999: must be a port, 1 to 65535",
                "error: .ports[1].hostPort: -1: must be a port, 0 to 65535",
            ],
        ),
        (
            "{name: a, image: i, args: [x], resources: {limits: {cpu: two, memory: '{{FC_TASK_INDEX}}Gi'}}}",
            ["error: .resources.limits.cpu: 'two': must be a quantity, such as 500m, 2 or 4Gi"],
        ),
        (
            "{name: a, image: i, args: [x], volumeMounts: [{name: data, mountPath: /d}]}",
            ["error: .volumeMounts[0].name: 'data': is no volume of the Pod"],
        ),
        ("{name: a, image: i, args: [x], livenessProbe: {httpGet: {port: http}}}", []),
        (
            "{name: a, image: i, args: [x], env: [{name: FC_TASK_INDEX, value: x}]}",
            [
                "warning: .env[0].name: 'FC_TASK_INDEX': replaces the controller's variable of this name",
            ],
        ),
        (
            "{name: a, image: i, args: [x], env: [{name: {}}]}",
            ["error: .env[0].name: a mapping: must be text (put it in quotes)"],
        ),
        ("{name: a, image: i, args: ['{{FC_TASK_INDEX}} {{FC_POD_NAME}} {{ other }}']}", []),
        (
            "{name: a, image: i, args: ['{{FC_TASK_INDX}}']}",
            [
                "warning: .args[0]: {{FC_TASK_INDX}} is not a placeholder and stays unchanged; did you mean "
                "FC_TASK_INDEX?",
            ],
        ),
        (
            "{name: a, image: i, args: ['{{ FC_TASK_INDEX }}']}",
            [
                "warning: .args[0]: {{ FC_TASK_INDEX }} is not a placeholder and stays unchanged; write "
                "{{FC_TASK_INDEX}}, without blanks",
            ],
        ),
        (
            "{name: a, image: i, args: ['{{FC_TASK_RANK}}']}",
            [
                "warning: .args[0]: {{FC_TASK_RANK}} is not a placeholder and stays unchanged; it is one only if the "
                "spec has network or coordinator",
            ],
        ),
        (
            "{name: a, image: i, args: ['{{FC_POD_UID}}']}",
            [
                "warning: .args[0]: {{FC_POD_UID}} is not a placeholder and stays unchanged; it is known only when the "
                "Pod runs: use its environment variable FC_POD_UID",
            ],
        ),
    ],
)
def test_containers(text: str, expected: list[str]) -> None:
    place = "spec.taskRoles[0].task.pod.spec.containers[0]"
    assert container(text) == [f"8: {one.replace(': .', f': {place}.', 1)}" for one in expected]


def test_a_malformed_name_is_no_problem_of_failure_rules() -> None:
    pod = POD.replace("name: main", "name: {}")
    (found,) = rules(ON_42.replace("operator", "containerName: main, operator"), pod=pod)[:1]
    assert found.endswith("containers[0].name: a mapping: must be text (put it in quotes)")


def test_two_containers_of_a_name() -> None:
    found = container("{name: a, image: i, args: [x]}, {name: a, image: i, args: [x]}")
    assert found[1:] == [
        "8: error: spec.taskRoles[0].task.pod.spec.containers[1].name: 'a': is already the name of another container"
    ]


@pytest.mark.parametrize(("policy", "warned"), [("Never", True), ("OnFailure", False), ("Always", False)])
def test_a_helper_that_runs_on_keeps_a_task_from_ending(policy: str, warned: bool) -> None:
    two = "{name: a, image: i, args: [x]}, {name: b, image: i, args: [x]}"
    found = role(FAILS, task=f"{{pod: {{spec: {{restartPolicy: {policy}, containers: [{two}]}}}}}}")
    place = "8: warning: spec.taskRoles[0].task.pod.spec.containers: are 2, and a Pod runs until all of them have ended"
    assert any(line.startswith(place) for line in found) is warned


def test_a_back_off_without_retries() -> None:
    nothing = "backoff: has no effect: with maxRetryCount 0 nothing is retried"
    task = f"{{retryPolicy: {{backoff: {{}}}}, pod: {POD}}}"
    assert role(FAILS, task=task) == [f"8: warning: spec.taskRoles[0].task.retryPolicy.{nothing}"]
    assert role(FAILS, task=task.replace("backoff", "fancyRetryPolicy: true, backoff")) == []
    found = spec("retryPolicy: {backoff: {}}", "taskRoles:", "- name: w", f"  {FAILS}", f"  task: {{pod: {POD}}}")
    assert found == [f"5: warning: spec.retryPolicy.{nothing}"]


def rules(*given: str, pod: str = POD, retry: str = "{}") -> list[str]:
    """The findings of a Task with these rules, from line 13 on."""
    lines = "".join(f"\n          - {one}" for one in given)
    before = f"\n        retryPolicy: {retry}\n        pod: {pod}\n        podFailurePolicy:\n"
    return role(FAILS, task=f"{before}          rules:{lines}")


PLACE = "spec.taskRoles[0].task.podFailurePolicy.rules"
ON_42 = "{action: FailTask, onExitCodes: {operator: In, values: [42]}}"


def test_good_failure_rules() -> None:
    assert (
        rules(
            "{action: Ignore, onPodConditions: [{type: DisruptionTarget}]}",
            "{action: FailFramework, onExitCodes: {containerName: main, operator: In, values: [42]}}",
            "{action: RestartFramework, onCompletionCodes: {operator: NotIn, values: [1]}}",
        )
        == []
    )


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (
            ON_42.replace("operator", "containerName: mainn, operator"),
            "warning: {}[0].onExitCodes.containerName: 'mainn': is not the name of a container of the Pod; "
            "did you mean main?",
        ),
        (
            ON_42.replace("FailTask", "FailJob"),
            "error: {}[0].action: 'FailJob': is an action of a Job; a Framework has FailFramework",
        ),
        (
            ON_42.replace("FailTask", "FailIndex"),
            "error: {}[0].action: 'FailIndex': is an action of a Job; a Framework has FailTask",
        ),
        (
            "{action: Ignore, onPodConditions: [{type: Ready}, {type: DisruptionTargets}]}",
            "warning: {}[0].onPodConditions[1].type: 'DisruptionTargets': is not a condition that Kubernetes sets; "
            "did you mean DisruptionTarget?",
        ),
        (
            ON_42.replace("onExitCodes", "onExitCode"),
            "error: {}[0].onExitCode: unknown field; did you mean onExitCodes?",
        ),
        (
            "{action: FailTask, onPodConditions: [{typ: x, type: x}]}",
            "error: {}[0].onPodConditions[0].typ: unknown field; did you mean type?",
        ),
    ],
)
def test_failure_rules(rule: str, expected: str) -> None:
    assert f"13: {expected.format(PLACE)}" in rules(rule)


def test_an_action_of_another_kind_is_reported_once() -> None:
    expected = f"{PLACE}[0].action: 'FailJob': is an action of a Job; a Framework has FailFramework"
    assert rules(ON_42.replace("FailTask", "FailJob")) == [f"13: error: {expected}"]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (ON_42.replace("[42]", "['42']"), ["[0].onExitCodes.values[0]: '42': must be a whole number"]),
        (ON_42.replace("[42]", "[]"), ["[0].onExitCodes.values: a list: must have at least 1 item"]),
    ],
)
def test_a_refused_code_is_not_a_missing_one(rule: str, expected: list[str]) -> None:
    assert rules(rule) == [f"13: error: {PLACE}{one}" for one in expected]


@pytest.mark.parametrize(
    ("before", "rule", "is_covered"),
    [
        (ON_42, ON_42, True),
        (ON_42.replace("[42]", "[41, 42]"), ON_42, True),
        (ON_42.replace("In, values: [42]", "NotIn, values: [1]"), ON_42, True),
        (ON_42, ON_42.replace("[42]", "[42, 43]"), False),
        (ON_42.replace("In,", "NotIn,"), ON_42, False),
        (ON_42, ON_42.replace("In,", "NotIn,"), False),
        (ON_42.replace("operator", "containerName: main, operator"), ON_42, False),
        (ON_42.replace("onExitCodes", "onCompletionCodes"), ON_42, False),
    ],
)
def test_a_rule_that_another_one_precedes(before: str, rule: str, is_covered: bool) -> None:
    told = f"14: warning: {PLACE}[1]: never matches: rules[0] matches all of its exit codes before"
    assert rules(before, rule) == [told] * is_covered


def test_failure_rules_of_containers_that_are_restarted() -> None:
    (restarted, found) = rules(ON_42, pod=POD.replace("Never", "OnFailure"))
    assert ".restartPolicy: is OnFailure: the kubelet restarts a container that fails in place" in restarted
    assert found.startswith(f"13: warning: {PLACE}[0].onExitCodes: can hardly match: with restartPolicy OnFailure")


def test_a_task_that_a_rule_lets_fail() -> None:
    assert rules(ON_42, retry="{maxRetryCount: -1}") == []


@pytest.mark.parametrize("field", [*foreign.FIELDS, *foreign.PLACES])
def test_fields_of_other_kinds(field: str) -> None:
    """At each level where a Framework does not have them, and in one finding."""
    text = foreign.explain(field)
    levels: dict[str, tuple[type[BaseModel], list[str]]] = {
        "spec": (FrameworkSpec, spec(f"{field}: 3", "taskRoles:", f"- {{name: w, {FAILS}, task: {{pod: {POD}}}}}")),
        "spec.taskRoles[0]": (TaskRoleSpec, role(f"{field}: 3", FAILS)),
        "spec.taskRoles[0].task": (TaskSpec, role(FAILS, task=f"{{{field}: 3, pod: {POD}}}")),
    }
    for path, (model, found) in levels.items():
        if field not in {info.alias for info in model.model_fields.values()}:
            assert [finding.partition(": ")[2] for finding in found] == [f"error: {path}.{field}: {text}"]
    assert text.count("a Framework has" if field in foreign.FIELDS else "another place") == 1


def test_fields_of_other_kinds_do_not_hide_ours() -> None:
    ours = {info.alias for model in (FrameworkSpec, TaskRoleSpec, TaskSpec) for info in model.model_fields.values()}
    assert not ours & foreign.FIELDS.keys()
    assert {*foreign.PLACES} - {"restartPolicy"} <= ours


@pytest.mark.parametrize("action", foreign.ACTIONS)
def test_actions_of_other_kinds(action: str) -> None:
    kind, ours = foreign.ACTIONS[action]
    found = rules(ON_42.replace("FailTask", action))
    assert any(f".action: '{action}': is an action of {kind}; a Framework has {ours}" in one for one in found)
    assert ours.split()[0].rstrip(",") in set(FailureAction)


@pytest.mark.parametrize(
    ("retry", "deadline", "warned"),
    [
        ("{fancyRetryPolicy: true}", 5, True),
        ("{maxRetryCount: -2}", 29, True),
        ("{maxRetryCount: -1}", 5, True),
        ("{maxRetryCount: -1}", 30, False),
        ("{maxRetryCount: 3}", 5, False),
    ],
)
def test_a_deadline_that_makes_a_loop(retry: str, deadline: int, warned: bool) -> None:
    task = f"{{retryPolicy: {retry}, preRunningDeadlineSeconds: {deadline}, pod: {POD}}}"
    found = [one for one in role(task=task) if "preRunningDeadlineSeconds" in one]
    assert [one.endswith("they are deleted and created again without end") for one in found] == [True] * warned


@pytest.mark.parametrize(
    ("more", "retry", "warned"),
    [(FAILS, "{}", True), ("", "{maxRetryCount: 2}", True), ("", "{fancyRetryPolicy: true}", True), ("", "{}", False)],
)
def test_containers_that_are_restarted_in_place(more: str, retry: str, warned: bool) -> None:
    task = f"{{retryPolicy: {retry}, pod: {POD.replace('Never', 'OnFailure')}}}"
    found = [one for one in role(*filter(None, [more]), task=task) if "restartPolicy" in one]
    assert ["is OnFailure" in one for one in found] == [True] * warned


def test_a_framework_that_waits_twice() -> None:
    lines = ("suspend: true", "taskRoles:", f"- {{name: w, {FAILS}, task: {{pod: {POD}}}}}")
    assert spec(*lines) == []
    assert spec("executionType: Create", *lines) == [
        "6: warning: spec.suspend: true: and executionType Create: it starts only after both are changed"
    ]


def test_a_suspension_that_stop_ends() -> None:
    lines = ("suspend: true", "executionType: Stop", "taskRoles:", f"- {{name: w, {FAILS}, task: {{pod: {POD}}}}}")
    assert any(one.endswith("has no effect: executionType Stop completes the Framework") for one in spec(*lines))


def test_a_suspension_of_roles_without_order() -> None:
    roles = [f"- {{name: {name}, {FAILS}, task: {{pod: {POD}}}" for name in "ab"]
    text = "in all TaskRoles at once: dependsOn keeps their order"
    alone = ("taskRoles:", *(f"{one}}}" for one in roles))
    assert spec(*alone) == []
    assert [one.endswith(text) for one in spec("suspend: true", *alone)] == [True]
    ordered = (f"{roles[0]}}}", f"{roles[1]}, dependsOn: [{{name: a, status: Complete}}]}}")
    assert spec("suspend: true", "taskRoles:", *ordered) == []


# --- host names ---------------------------------------------------------------------------------------------------

RANKED = "{spec: {restartPolicy: Never, containers: [{name: a, image: i, args: ['%s']}]}}"


def hosts(*fields: str, word: str = "{{FC_TASK_RANK}}", name: str = "w") -> list[str]:
    """The findings of a Framework with these fields before its role, whose container has that word."""
    return spec(*fields, "taskRoles:", f"- {{name: {name}, {FAILS}, task: {{pod: {RANKED % word}}}}}")


@pytest.mark.parametrize("field", ["network: {}", "coordinator: {taskRole: w}"])
def test_placeholders_of_a_network(field: str) -> None:
    assert hosts(field) == hosts(field, word="{{FC_FRAMEWORK_ATTEMPT_ID}}") == []
    assert len(hosts(word="{{FC_FRAMEWORK_ATTEMPT_ID}}")) == 1


@pytest.mark.parametrize("word", ["{{FC_HOSTS:w}}", "{{FC_HOSTS_JSON:w:80}}"])
def test_host_lists(word: str) -> None:
    assert hosts("network: {}", word=word) == []
    (found,) = hosts(word=word)
    assert found.endswith(
        f"{word} is not a placeholder and stays unchanged; it is one only if the spec has network or coordinator"
    )


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("{{FC_HOST:w}}", "did you mean FC_HOSTS?"),
        ("{{FC_HOSTS_JSN:w:80}}", "did you mean FC_HOSTS_JSON?"),
        ("{{ FC_HOSTS:w }}", "write {{FC_HOSTS:w}}, without blanks"),
        ("{{FC_TASK_NUMBER}}", "did you mean FC_TASKROLE_TASK_NUMBER?"),
        ("{{FC_TASK_RANG}}", "did you mean FC_TASK_RANK?"),
    ],
)
def test_placeholders_with_mistakes(word: str, hint: str) -> None:
    (found,) = hosts("network: {}", word=word)
    assert "warning: spec.taskRoles[0].task.pod.spec.containers[0].args[0]: " in found
    assert found.endswith(f"{word} is not a placeholder and stays unchanged; {hint}")


@pytest.mark.parametrize("name", ["a" * 64, "My-Framework"])
def test_a_wrong_name_is_reported_once(name: str) -> None:
    head = HEAD.replace("{name: f}", f"{{name: {name}}}")
    (found,) = said(f"{head}  network: {{}}\n  taskRoles:\n  - {{name: w, {FAILS}, task: {{pod: {POD}}}}}\n")
    assert found.startswith(f"3: error: metadata.name: '{name}': must be lower case letters and digits only")


def test_host_lists_that_make_much_of_pods() -> None:
    def of(number: int) -> list[str]:
        task = f"task: {{pod: {RANKED % '{{FC_HOSTS:w}}'}}}"
        found = spec("network: {}", "taskRoles:", f"- {{name: w, taskNumber: {number}, {FAILS}, {task}}}")
        return [one for one in found if "FC_HOSTS" in one]

    assert of(3000) == []
    size = len(",".join(f"f-w-{index}.f" for index in range(4000)))
    assert size * 4000 // 10**6 == 171
    assert of(4000) == [
        "7: warning: spec.taskRoles[0].task.pod.spec.containers[0].args[0]: '{{FC_HOSTS:w}}': each of 4,000 Pods has a "
        f"list of {size:,} bytes, 171 MB in all: the barrier writes the addresses of all Tasks into files"
    ]


NAMED = "{spec: {restartPolicy: Never, hostname: a, %s containers: [{name: main, image: i, command: [c]}]}}"


def beside(
    *fields: str, subdomain: str = "", metadata: str = "name: f", selector: str = "FC_FRAMEWORK_NAME: f"
) -> list[str]:
    """The findings of a Framework after a Service; its template has a hostname, and that subdomain."""
    service = f"{{apiVersion: v1, kind: Service, metadata: {{{metadata}}}, spec: {{selector: {{{selector}}}}}}}\n---\n"
    pod = NAMED % (subdomain and f"subdomain: '{subdomain}',")
    lines = (*fields, "taskRoles:", f"- {{name: w, {FAILS}, task: {{pod: {pod}}}}}")
    return said(service + HEAD + "".join(f"  {line}\n" for line in lines))


@pytest.mark.parametrize("subdomain", ["f", "{{FC_FRAMEWORK_NAME}}"])
def test_host_names_by_hand(subdomain: str) -> None:
    assert beside(subdomain=subdomain) == [
        f"8: warning: spec.taskRoles[0].task.pod.spec.subdomain: '{subdomain}': with Service f of this file: "
        "spec.network sets it and hostname, and makes the Service"
    ]


def test_a_service_of_the_name_of_a_role() -> None:
    entry = "{taskRole: w, ports: [{port: 80}]}"
    network = f"network: {{enableDNSHostnames: false, services: [{entry}]}}"
    assert beside(network) == []
    assert beside(network, metadata="name: f-w") == [
        "7: error: spec.network.services[0]: makes Service f-w, which this file makes, too: the Framework will not "
        "start (Stalled, NamingConflict); remove the Service"
    ]


def test_host_names_by_hand_that_network_cannot_make() -> None:
    assert beside() == []
    assert beside(subdomain="other") == []
    assert beside(subdomain="f", metadata="name: f, namespace: b") == []
    assert beside(subdomain="f", selector="FC_FRAMEWORK_NAME: f, FC_TASKROLE_NAME: w") == []


def test_a_service_of_the_name_of_the_networks() -> None:
    text = "of this file makes, too: the Framework will not start (Stalled, NamingConflict); remove the Service"
    first, second = beside("network: {}", subdomain="x")
    assert first == f"7: error: spec.network: makes Service f, which {text}".replace(
        "of this file makes", "this file makes"
    )
    assert second == (
        "9: warning: spec.taskRoles[0].task.pod.spec.subdomain: 'x': replaces the name that spec.network sets: no "
        "placeholder knows the host names of these Pods"
    )
    assert "spec.hostname: 'a': replaces the name" in beside("network: {subdomain: other}")[0]
    assert "makes Service other" in beside("network: {subdomain: other}", metadata="name: other")[0]
    assert beside("network: {enableDNSHostnames: false}", subdomain="f") == []
    assert beside("network: []")[0].startswith("7: error: spec.network: ")


def test_a_malformed_service_is_no_problem() -> None:
    for service in (
        "{kind: Service}",
        "{kind: Service, metadata: [], spec: 1}",
        "{kind: Service, metadata: {name: []}}",
    ):
        assert (
            said(f"{service}\n---\n{HEAD}  network: {{}}\n  taskRoles: [{{name: w, {FAILS}, task: {{pod: {POD}}}}}]\n")
            == []
        )


def test_host_names_that_are_too_long_are_an_error() -> None:
    (found,) = hosts("network: {}", name="w" * 63)
    assert "error: spec.taskRoles[0].name: " in found
    assert f"{'w' * 63}-0 would have " in found
    (found,) = hosts(name="w" * 63, word="x")
    assert "warning: spec.taskRoles[0].name: " in found


CLAIM = "{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}"
MOUNTING = (
    "{pod: {spec: {restartPolicy: Never, containers: [{name: main, image: i, command: [c], "
    "volumeMounts: [{name: data, mountPath: /d}]}]%s}}}"
)


@pytest.mark.parametrize(
    ("claim", "task", "expected"),
    [
        (CLAIM, MOUNTING % "", []),
        (
            CLAIM.replace("{metadata", "{apiVersion: v1, kind: PersistentVolumeClaim, metadata"),
            MOUNTING % "",
            [],
        ),
        (
            CLAIM,
            f"{{pod: {POD}}}",
            ["8: warning: spec.taskRoles[0].volumeClaimTemplates[0]: 'data': no container mounts the volume data"],
        ),
        (
            CLAIM,
            MOUNTING % ", volumes: [{name: data, emptyDir: {}}]",
            [
                "9: warning: spec.taskRoles[0].task.pod.spec.volumes[0]: 'data': is replaced by the claim of this name "
                "in volumeClaimTemplates"
            ],
        ),
        (
            CLAIM.replace("ReadWriteOnce", "ReadWriteOne").replace("1Gi", "1Gib"),
            MOUNTING % "",
            [
                "8: error: spec.taskRoles[0].volumeClaimTemplates[0].spec.accessModes[0]: 'ReadWriteOne': must be one "
                "of ReadWriteOnce, ReadOnlyMany, ReadWriteMany, ReadWriteOncePod",
                "8: error: spec.taskRoles[0].volumeClaimTemplates[0].spec.resources.requests.storage: '1Gib': must be "
                "a size, such as 10Gi",
            ],
        ),
        (
            CLAIM.replace("ReadWriteOnce", "ReadOnlyMany, '{{FC_TASKROLE_NAME}}'").replace(
                "1Gi", "'{{FC_TASK_INDEX}}Gi'"
            ),
            MOUNTING % "",
            [],
        ),
        *(
            (CLAIM.replace("1Gi", size), MOUNTING % "", [])
            for size in ("100", "1.5Ti", "500M", "'.5Gi'", "1e9", "'1e9'")
        ),
        (
            "{metadata: {name: data}, spec: {storageClass: '{{FC_TASK_RANK}}'}}",
            MOUNTING % "",
            [
                "8: warning: spec.taskRoles[0].volumeClaimTemplates[0].spec.storageClass: is not a known field of a "
                "PersistentVolumeClaimSpec; did you mean storageClassName?",
                "8: error: spec.taskRoles[0].volumeClaimTemplates[0].spec.accessModes: is required, such as "
                "[ReadWriteOnce]",
                "8: error: spec.taskRoles[0].volumeClaimTemplates[0].spec.resources.requests.storage: is required: the "
                "size of the volume",
                "8: warning: spec.taskRoles[0].volumeClaimTemplates[0].spec.storageClass: {{FC_TASK_RANK}} is not a "
                "placeholder and stays unchanged; a claim outlives attempts, and has none of them",
            ],
        ),
    ],
)
def test_claims_of_a_role(claim: str, task: str, expected: list[str]) -> None:
    assert sorted(role(FAILS, f"volumeClaimTemplates: [{claim}]", task=task)) == sorted(expected)


def test_a_retention_policy_without_claims() -> None:
    path = "spec.taskRoles[0].persistentVolumeClaimRetentionPolicy"
    assert role(FAILS, "persistentVolumeClaimRetentionPolicy: {whenScaled: Delete}") == [
        f"8: warning: {path}: has no effect without volumeClaimTemplates"
    ]


QUEUE = "kueue.x-k8s.io/queue-name"
PRIORITY = "kueue.x-k8s.io/priority-class"
SECONDS = "kueue.x-k8s.io/max-exec-time-seconds"


def queued(labels: str, *fields: str, annotations: str = "{}", other: str = "") -> list[str]:
    """The findings of a Framework with labels on line 3, fields of its spec from line 5 on, and annotations of Pods.

    ``other``: another role, as YAML.
    """
    pod = POD.replace("{spec", f"{{metadata: {{annotations: {annotations}}}, spec", 1)
    head = HEAD.replace("{name: f}", f"{{name: f, labels: {{{labels}}}}}")
    lines = (*fields, "taskRoles:", f"- {{name: w, {FAILS}, task: {{pod: {pod}}}}}", *([f"- {other}"] if other else []))
    return said(head + "".join(f"  {line}\n" for line in lines))


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (f"{QUEUE}: team-a, {PRIORITY}: high.v1, {SECONDS}: '86400'", []),
        (
            f"{QUEUE}: team_a, {PRIORITY}: High",
            [
                f"{QUEUE}: 'team_a': must be the name of a LocalQueue: at most 63 lower case letters, digits, dashes "
                "and dots, none of these two at an end",
                f"{PRIORITY}: 'High': must be the name of a WorkloadPriorityClass: at most 63 lower case letters, "
                "digits, dashes and dots, none of these two at an end",
            ],
        ),
        (f"{QUEUE}: {'a' * 64}", [f"{QUEUE}: '{'a' * 64}': must be the name of a LocalQueue: at most 63 "]),
        (f"{QUEUE}: a, {SECONDS}: 1h", [f"{SECONDS}: '1h': must be a number of seconds, from 1 to 999999999"]),
        (f"{QUEUE}: a, {SECONDS}: '0'", [f"{SECONDS}: '0': must be a number of seconds, from 1 to 999999999"]),
        (f"{QUEUE}: a, {SECONDS}: '1000000000'", [f"{SECONDS}: '1000000000': must be a number of seconds, from 1"]),
        (f"{QUEUE}: a, {SECONDS}: 60", [f"{SECONDS}: 60: must be text (put it in quotes)"]),
    ],
)
def test_labels_of_a_queue(labels: str, expected: list[str]) -> None:
    found = queued(labels)
    assert len(found) == len(expected)
    assert all(
        one.startswith(f"3: error: metadata.labels.{start}") for one, start in zip(found, expected, strict=True)
    ), found


def test_labels_of_a_queue_that_have_no_effect() -> None:
    assert queued(f"{PRIORITY}: high, {SECONDS}: '9'") == [
        f"3: warning: metadata.labels.{PRIORITY}: 'high': has no effect without the label {QUEUE}",
        f"3: warning: metadata.labels.{SECONDS}: '9': has no effect without the label {QUEUE}",
    ]
    for empty in ("''", "null"):
        assert queued(f"{QUEUE}: {empty}") == [
            f"3: warning: metadata.labels.{QUEUE}: '': is empty, and means no queue: the Framework starts at once"
        ]
    head = HEAD.replace("{name: f}", f"{{name: f, annotations: {{{QUEUE}: team-a}}}}")
    text = f"3: warning: metadata.annotations.{QUEUE}: has no effect as an annotation: it is a label"
    assert said(head + f"  taskRoles:\n  - {{name: w, {FAILS}, task: {{pod: {POD}}}}}\n") == [text]


def test_a_label_of_a_queue_on_pods() -> None:
    pod = POD.replace("{spec", f"{{metadata: {{labels: {{{QUEUE}: team-a}}}}, spec", 1)
    place = f"spec.taskRoles[0].task.pod.metadata.labels.{QUEUE}"
    assert role(FAILS, task=f"{{pod: {pod}}}") == [
        f"8: warning: {place}: 'team-a': belongs on the Framework: as a label of Pods, it lets Kueue queue each Pod by "
        "itself"
    ]


@pytest.mark.parametrize(("number", "refused"), [(18, False), (19, True)])
def test_more_roles_than_a_workload_has_pod_sets(number: int, refused: bool) -> None:
    head = HEAD.replace("{name: f}", f"{{name: f, labels: {{{QUEUE}: team-a}}}}") + "  taskRoles:\n"
    after = "dependsOn: [{name: w0, status: Complete}]"
    roles = [f"  - {{name: w0, {FAILS}, task: {{pod: {POD}}}}}\n"]
    roles += [f"  - {{name: w{one}, {FAILS}, {after}, task: {{pod: {POD}}}}}\n" for one in range(1, number)]
    text = (
        "5: error: spec.taskRoles: are 19: a Workload of Kueue has at most 18 podSets, one for each role, so the "
        "Framework will not start (Stalled, TooManyRolesForQueue)"
    )
    assert said(head + "".join(roles)) == [text] * refused
    assert said(HEAD + "  taskRoles:\n" + "".join(roles)) == []


def test_a_suspension_that_kueue_does_not_end() -> None:
    assert queued(f"{QUEUE}: team-a", "suspend: true") == [
        "5: warning: spec.suspend: true: with a queue: Kueue does not resume a Framework, which enters the queue "
        "once suspend is false"
    ]


def test_an_eviction_of_roles_without_order() -> None:
    other = f"{{name: other, {FAILS}, task: {{pod: {POD}}}%s}}"
    text = "Tasks that had completed run again after an eviction, in all TaskRoles at once: dependsOn keeps their order"
    expected = [f"3: warning: metadata.labels.{QUEUE}: {text}"]
    assert queued(f"{QUEUE}: team-a", other=other % "") == expected
    empty = f"{{name: other, taskNumber: 0, task: {{pod: {POD}}}}}"
    assert not any(text in one for one in queued(f"{QUEUE}: team-a", other=empty))
    assert queued(f"{QUEUE}: team-a", other=other % ", dependsOn: [{name: w, status: Complete}]") == []
    assert queued("a: b", other=other % "") == []


def test_topology_of_kueue() -> None:
    required, preferred = (f"kueue.x-k8s.io/podset-{kind}-topology" for kind in ("required", "preferred"))
    place = "6: {}: spec.taskRoles[0].task.pod.metadata.annotations."
    assert queued(f"{QUEUE}: team-a", annotations=f"{{{required}: rack}}") == []
    assert queued("a: b", annotations=f"{{{required}: rack}}") == [
        f"{place.format('warning')}{required}: 'rack': has no effect without the label {QUEUE} of the Framework"
    ]
    assert queued(f"{QUEUE}: team-a", annotations=f"{{{required}: rack, {preferred}: rack}}") == [
        f"{place.format('warning')}{preferred}: 'rack': is set with {required}: Kueue takes only one of them"
    ]
    assert queued(f"{QUEUE}: team-a", annotations=f"{{{required}: example.com/{'r' * 60}}}") == [
        f"{place.format('error')}{required}: 'example.com/{'r' * 60}': must be at most 63 characters, as in a Workload "
        "of Kueue"
    ]


@pytest.mark.parametrize("value", ["1", "[a]", "{a: b}", "null", "true"])
def test_malformed_labels_are_no_problem_of_queues(value: str) -> None:
    for text in (f"labels: {value}", f"labels: {{{QUEUE}: {value}}}", f"annotations: {value}"):
        body = f"  taskRoles:\n  - {{name: w, {FAILS}, task: {{pod: {{metadata: {{{text}}}, spec: {{}}}}}}}}\n"
        said(HEAD.replace("{name: f}", f"{{name: f, {text}}}") + body)


@pytest.mark.parametrize(
    ("minimum", "waiting", "more"),
    [
        (4, "", ""),
        (5, "", "4"),
        (3, ", dependsOn: [{name: w0, status: Ready}]", ""),
        (4, ", dependsOn: [{name: w0, status: Ready}]", "3"),
    ],
)
def test_a_gang_of_more_than_there_are(minimum: int, waiting: str, more: str) -> None:
    roles = [f"- {{name: w0, taskNumber: 1, {FAILS}, task: {{pod: {POD}}}}}"]
    roles += [f"- {{name: w1, taskNumber: 3, {FAILS}, task: {{pod: {POD}}}{waiting}}}"]
    found = spec(f"scheduling: {{schedulingPolicy: {{gang: {{minCount: {minimum}}}}}}}", "taskRoles:", *roles)
    text = f"is more than the {more} Tasks that start together, and means all of them"
    assert found == [f"5: warning: spec.scheduling.schedulingPolicy.gang.minCount: {minimum}: {text}"] * bool(more)
