"""A Framework as a tree: its Tasks, and why they wait or failed."""

import io
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import orjson
import pytest
from rich.console import Console

from frameworkcontroller.api.codec import encode_status
from frameworkcontroller.api.completion import (
    CONTAINER_PERMANENT_FAILED,
    DELETE_TASK_REQUESTED,
    FRAMEWORK_ATTEMPT_COMPLETION,
    POD_SUCCEEDED,
    STOP_FRAMEWORK_REQUESTED,
    Code,
    CompletionStatus,
    ContainerCompletion,
    PodCompletion,
    Trigger,
)
from frameworkcontroller.api.status import (
    Condition,
    FrameworkAttemptStatus,
    FrameworkStatus,
    Phase,
    RetryPolicyStatus,
    State,
    TaskAttemptStatus,
    TaskRoleStatus,
    TaskStatus,
)
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.views.diagnosis import read_view
from frameworkcontroller.views.looks import OF_TASKS
from frameworkcontroller.views.poddiagnosis import diagnose_pod
from frameworkcontroller.views.tree import bar, framework_tree, ranges

NOW = 1000
INVALID = "spec.suspend: 1: must be true or false"


def task(index: int, state: State, code: Code | None = None, *, attempt: int = 0, words: str = "") -> TaskStatus:
    pod = (
        PodCompletion(containers=(ContainerCompletion("main", code.code, "Error", words),)) if code and words else None
    )
    completion = None if code is None else CompletionStatus.of(code, "as it was decided", pod=pod)
    done = NOW - 10 if state is State.COMPLETED else None
    last = TaskAttemptStatus(
        attempt, NOW - 100, run_time=NOW - 60, completion_time=done, pod_ip="10.0.0.1", pod_node_name="n1",
        completion_status=completion,
    )  # fmt: skip
    made = TaskStatus(index, "uid", NOW - 100, NOW - 30, last, state)
    made.retry.total_retried_count = attempt
    made.retry.accountable_retried_count = attempt
    return made


def framework(
    state: State, *roles: tuple[str, list[TaskStatus]], spec: Mapping[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    attempt = FrameworkAttemptStatus(
        more.pop("attempt", 0),
        NOW - 200,
        run_time=more.pop("run_time", None),
        completion_time=more.pop("attempt_completion_time", None),
        completion_status=more.pop("completion", None),
        roles=[TaskRoleStatus(name, "u", None, tasks) for name, tasks in roles],
    )
    status = FrameworkStatus(NOW - 300, NOW - 50, attempt, state, **more)
    return {
        "metadata": {"name": "f", "namespace": "default"},
        "spec": spec or {},
        "status": orjson.loads(encode_status("f", status)),
    }


def shown(body: Mapping[str, Any], lines: float = 40, words: Mapping[str, str] | None = None) -> list[str]:
    console = Console(file=io.StringIO(), width=150)
    console.print(framework_tree(read_view(body, words or {}), NOW, lines))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_tasks_and_why_they_wait_and_failed() -> None:
    policy = {"maxRetryCount": 2}
    body = framework(
        State.RUNNING,
        ("ps", [task(0, State.RUNNING)]),
        (
            "worker",
            [
                task(0, State.COMPLETED, POD_SUCCEEDED),
                task(1, State.COMPLETED, Code(7, "ContainerUnrecognizedFailed"), attempt=2, words="no such file"),
                task(2, State.PREPARING),
                task(3, State.DELETING, DELETE_TASK_REQUESTED),
            ],
        ),
        run_time=NOW - 90,
        spec={"taskRoles": [{"name": "worker", "task": {"retryPolicy": policy}}]},
    )
    words = {"f-worker-2": 'main: ImagePullBackOff: cannot pull for "f-worker-2"', "f-worker-3": "hangs"}
    assert shown(body, words=words) == [
        "f  Running  attempt 0  running for 1m30s",
        "├── ps      ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓  1 Task: 1 running",
        "│   └── [0]  Running  attempt 0  30s  10.0.0.1 on n1",
        "└── worker  █████xxxxx▒▒▒▒▒░░░░░  4 Tasks: 1 failed, 1 pending, 1 ending, 1 succeeded; 2 retries",
        "    ├── [0]  Succeeded  attempt 0  took 50s  10.0.0.1 on n1",
        "    ├── [1]  Failed     attempt 2  took 50s  10.0.0.1 on n1",
        "    │   main exited with 7: no such file (7 ContainerUnrecognizedFailed); "
        "not retried: all of its 2 retries were used",
        "    ├── [2]  Pending    attempt 0  30s  10.0.0.1 on n1",
        '    │   main: ImagePullBackOff: cannot pull for "f-worker-2"',
        "    └── [3]  Ending     attempt 0  30s  10.0.0.1 on n1",
        "        as it was decided (-230 DeleteTaskRequested); its Pod hangs",
    ]


def test_roles_that_tasks_wait_for() -> None:
    dependencies = [{"name": "init", "status": "Complete"}, {"name": "ps", "status": "Ready"}]
    tasks = [task(index, State.CREATION_PENDING) for index in range(2)]
    roles = [{"name": "init"}, {"name": "ps"}, {"name": "w", "dependsOn": dependencies}]
    body = framework(State.RUNNING, ("w", tasks), spec={"taskRoles": roles})
    text = "waits until init is Complete and ps is Ready"
    assert [line.strip("│ ") for line in shown(body) if "waits" in line] == [text]
    body["status"]["attemptStatus"]["taskRoleStatuses"][0]["started"] = True
    assert not [line for line in shown(body) if "waits" in line]


def test_when_tasks_that_back_off_have_their_next_attempt() -> None:
    def waits(index: int, ended: int) -> TaskStatus:
        made = task(index, State.ATTEMPT_COMPLETED, Code(200, "ContainerTransientFailed"), attempt=4)
        made.attempt.completion_time = ended
        made.retry.retry_delay_sec = 80
        return made

    one = framework(State.RUNNING, ("a", [waits(0, NOW - 10)]))
    assert shown(one)[1:] == [
        "└── a  ░░░░░░░░░░░░░░░░░░░░  1 Task: 1 pending; 4 retries",
        "    └── [0]  Pending  attempt 4  took 50s  10.0.0.1 on n1  next attempt in 1m10s",
        "        as it was decided (200 ContainerTransientFailed)",
    ]
    several = framework(State.RUNNING, ("a", [waits(0, NOW - 10), waits(1, NOW - 20), waits(2, NOW - 15)]))
    assert shown(several)[2].endswith("[0-2]  Pending  3 Tasks  next attempt in 1m")


def test_tasks_with_the_same_text_are_one_entry() -> None:
    tasks = [task(index, State.PREPARING) for index in range(9)]
    words = {f"f-a-{index}": f"Unschedulable: f-a-{index} is too big" for index in range(9) if index != 4}
    assert shown(framework(State.PREPARING, ("a", tasks)), words=words)[2:] == [
        "    ├── [0-3,5-8]  Pending  8 Tasks",
        "    │   Unschedulable: f-a-0 is too big",
        "    └── [4]        Pending  attempt 0  30s  10.0.0.1 on n1",
    ]
    assert len(shown(framework(State.PREPARING, ("a", tasks)), lines=math.inf, words=words)) == 2 + 9 + 8


def test_large_frameworks_are_summarised_the_most_interesting_first() -> None:
    tasks = [task(index, State.RUNNING) for index in range(9000)]
    tasks += [task(index, State.PREPARING) for index in range(9000, 9500)]
    tasks += [task(9499 + n, State.COMPLETED, Code(n, "X"), words="w") for n in range(1, 31)]
    found = shown(framework(State.RUNNING, ("a", tasks)), lines=10)
    assert found[1] == ("└── a  x▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓░  9,530 Tasks: 30 failed, 500 pending, 9,000 running")
    assert found[2].endswith("[9500]       Failed   attempt 0  took 50s  10.0.0.1 on n1")
    assert found[-1] == "    └── … and 26 failed, 500 pending, 9,000 running more"
    assert len(found) == 11


def test_roles_share_the_lines() -> None:
    roles = [(f"r{number}", [task(index, State.RUNNING) for index in range(50)]) for number in range(4)]
    assert len(shown(framework(State.RUNNING, *roles), lines=20)) == 1 + 4 * 2


TRIGGER = Trigger("FailedTaskCount 1 has reached MinFailedTaskCount 1 in the TaskRole", "a", 0)
FAILED = CompletionStatus.of(CONTAINER_PERMANENT_FAILED, "Pod failed: {}", trigger=TRIGGER)


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        (
            {"metadata": {"name": "f", "namespace": "other"}},
            ["other/f  not seen by a controller yet: is one running?"],
        ),
        (
            framework(State.CREATION_PENDING, spec={"executionType": "Create"}),
            [
                "f  Pending  attempt 0  waiting for 3m20s",
                "└── waits to be started: its executionType is Create",
            ],
        ),
        (
            framework(
                State.PREPARING,
                conditions=[Condition("Stalled", "True", "QuotaExceeded", "exceeded quota: q", NOW - 70, 1)],
            ),
            [
                "f  Pending  attempt 0  waiting for 3m20s",
                "├── exceeded quota: q",
                "└── stalled for 1m10s: QuotaExceeded",
            ],
        ),
        (
            framework(
                State.PREPARING,
                spec={"suspend": 1},
                conditions=[Condition("Stalled", "True", "InvalidSpec", INVALID, NOW - 70, 1)],
            ),
            ["f  Pending  attempt 0  waiting for 3m20s", f"├── {INVALID}", "└── stalled for 1m10s: InvalidSpec"],
        ),
        (
            framework(
                State.PREPARING,
                spec={"suspend": 1},
                conditions=[Condition("Stalled", "True", "QuotaExceeded", "exceeded quota: q", NOW - 70, 1)],
            ),
            [
                "f  Pending  attempt 0  waiting for 3m20s",
                "├── exceeded quota: q",
                f"├── {INVALID}",
                "└── stalled for 1m10s: QuotaExceeded",
            ],
        ),
        (
            framework(
                State.ATTEMPT_COMPLETED,
                attempt=3,
                attempt_completion_time=NOW - 20,
                completion=FAILED,
                retry=RetryPolicyStatus(3, 3, 80),
            ),
            [
                "f  Pending  attempt 3 (3 retries)  ended 20s ago",
                "├── Pod failed: {}",
                f"├── 210 ContainerPermanentFailed, by a[0]: {TRIGGER.message}",
                "└── is retried in 1m",
            ],
        ),
        (
            framework(State.DELETION_REQUESTED, completion=FAILED, run_time=NOW - 100),
            [
                "f  Ending  attempt 0  running for 1m40s",
                "├── Pod failed: {}",
                f"├── 210 ContainerPermanentFailed, by a[0]: {TRIGGER.message}",
                "└── waits until the Pods of this attempt are gone",
            ],
        ),
        (
            framework(
                State.COMPLETED,
                completion=FAILED,
                completion_time=NOW - 100,
                spec={"retryPolicy": {"fancyRetryPolicy": True, "maxRetryCount": 3}},
            ),
            [
                "f  Failed  attempt 0  took 3m20s",
                "├── Pod failed: {}",
                f"├── 210 ContainerPermanentFailed, by a[0]: {TRIGGER.message}",
                "└── not retried: the failure is permanent",
            ],
        ),
        (
            framework(
                State.COMPLETED,
                ("a", [task(0, State.COMPLETED, FRAMEWORK_ATTEMPT_COMPLETION)]),
                completion=CompletionStatus.of(STOP_FRAMEWORK_REQUESTED, "User has requested to stop the Framework"),
                completion_time=NOW - 100,
            ),
            [
                "f  Stopped  attempt 0  took 3m20s",
                "├── User has requested to stop the Framework",
                "├── -210 StopFrameworkRequested",
                "├── not retried: its end was requested",
                "└── a  --------------------  1 Task: 1 stopped",
                "    └── [0]  Stopped  attempt 0  took 50s  10.0.0.1 on n1",
                "        -220 FrameworkAttemptCompletion",
            ],
        ),
        (
            {"metadata": {"name": "f", "namespace": "default"}, "status": {"state": "Odd"}},
            ["f", "└── status.startTime: is required"],
        ),
    ],
)
def test_why_a_framework_is_where_it_is(body: Mapping[str, Any], lines: list[str]) -> None:
    assert shown(body) == lines


def test_a_role_of_no_tasks_has_no_bar() -> None:
    body = framework(State.RUNNING, ("server", [task(0, State.RUNNING)]), ("worker", []), run_time=NOW - 5)
    assert shown(body)[-1] == "└── worker                        0 Tasks"


def test_bars() -> None:
    assert bar(Counter({Phase.PENDING: 3})).plain == "░" * 20
    assert bar(Counter({Phase.SUCCEEDED: 9999, Phase.FAILED: 1})).plain == "█" * 19 + "x"
    assert bar(Counter()).plain == " " * 20
    every = bar(Counter(dict.fromkeys(OF_TASKS, 1))).plain
    assert {cell: every.count(cell) for cell in every} == {"█": 3, "x": 5, "-": 3, "▒": 3, "▓": 3, "░": 3}


def test_ranges() -> None:
    assert ranges([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8"
    assert ranges([0, 2, 4, 6], most=3) == "0,2,4,…"


def ready(yes: bool) -> dict[str, str]:
    return {"type": "Ready", "status": str(yes)}


def containers_ready(yes: bool) -> dict[str, str]:
    return {"type": "ContainersReady", "status": str(yes)}


LOST = [ready(False), containers_ready(True)]


def pod(deleted_at: int | None = None, spec: Mapping[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    metadata = {"name": "p"} if deleted_at is None else {"name": "p", "deletionTimestamp": format_time(deleted_at)}
    return {"metadata": metadata, "spec": {"nodeName": "n", **(spec or {})}, "status": status}


def container(name: str, **state: Any) -> dict[str, Any]:
    return {"name": name, "state": state}


def beside(policy: str, code: int, *, default: str = "a", **end: str) -> dict[str, Any]:
    """A Pod whose container a has ended, while b and c run."""
    body = pod(
        spec={"restartPolicy": policy, "containers": [{"name": name} for name in "abc"]},
        phase="Running",
        containerStatuses=[
            container("a", terminated={"exitCode": code, **end}),
            container("b", running={}),
            container("c", running={}),
        ],
    )
    body["metadata"]["annotations"] = {"kubectl.kubernetes.io/default-container": default}
    return body


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"metadata": {}, "spec": {"schedulerName": "hived"}}, "waits for the scheduler hived"),
        ({"metadata": {"deletionTimestamp": "x", "finalizers": ["a", "b"]}}, "held by the finalizers a, b"),
        (pod(deleted_at=NOW + 5), "waits until its containers have ended"),
        (pod(deleted_at=NOW - 59), "waits until its containers have ended"),
        (pod(deleted_at=NOW - 180), "its grace period ended 3m ago: check its node n"),
        (pod(deleted_at=NOW + 5, conditions=LOST), "waits for its node n, which does not report"),
        (pod(deleted_at=NOW + 5, reason="NodeLost"), "waits for its node n, which does not report"),
        (pod(conditions=LOST), "its node n does not report"),
        (pod(conditions=[ready(False), containers_ready(False)]), ""),
        (pod(conditions=[ready(False)]), ""),
        (
            pod(
                spec={"nodeName": ""},
                conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3"}],
            ),
            "Unschedulable: 0/3",
        ),
        (
            pod(
                initContainerStatuses=[container("barrier", running={})],
                containerStatuses=[container("a", waiting={"reason": "PodInitializing"})],
            ),
            "init container barrier is running",
        ),
        (
            pod(
                containerStatuses=[
                    container("a", waiting={"reason": "ContainerCreating"}),
                    container("b", waiting={"reason": "ErrImagePull", "message": "no such image"}),
                ]
            ),
            "b: ErrImagePull: no such image",
        ),
        (pod(containerStatuses=[container("a", waiting={"reason": "ContainerCreating"})]), "ContainerCreating"),
        (pod(containerStatuses=[container("a", running={})]), ""),
        (
            pod(
                spec={"initContainers": [{"name": "proxy", "restartPolicy": "Always"}]},
                initContainerStatuses=[container("proxy", running={})],
                containerStatuses=[container("a", running={})],
            ),
            "",
        ),
        (
            beside("Never", 7, reason="Error", message="disk is full\n"),
            "container a has ended with exit code 7 (Error: disk is full); its Pod runs until b, c have ended, too",
        ),
        (
            beside("Never", 0, reason="Completed"),
            "container a has ended with exit code 0 (Completed); its Pod runs until b, c have ended, too",
        ),
        (beside("OnFailure", 7), ""),
        (
            beside("Never", 7, default="b"),
            "container a has ended with exit code 7; its Pod runs until b, c have ended, too",
        ),
        (beside("Never", 0, default="b"), ""),
    ],
)
def test_diagnoses_of_pods(body: Mapping[str, Any], words: str) -> None:
    assert diagnose_pod(body, NOW)[0] == words


@pytest.mark.parametrize(
    ("body", "needed"),
    [
        (pod(phase="Pending", containerStatuses=[container("a", waiting={"reason": "ContainerCreating"})]), True),
        (pod(phase="Pending"), True),
        ({"metadata": {}, "spec": {}}, True),
        (pod(phase="Pending", containerStatuses=[container("a", waiting={"reason": "ErrImagePull"})]), False),
        (
            pod(
                spec={"nodeName": ""},
                phase="Pending",
                conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
            ),
            False,
        ),
        (pod(phase="Running", containerStatuses=[container("a", running={})]), False),
        (pod(deleted_at=NOW, phase="Pending"), False),
    ],
)
def test_events_are_asked_for_where_the_status_does_not_tell(body: Mapping[str, Any], needed: bool) -> None:
    assert diagnose_pod(body, NOW)[1] is needed
