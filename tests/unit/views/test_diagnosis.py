"""Why Tasks and Frameworks wait or ended, for people."""

import orjson
import pytest

from frameworkcontroller.api.codec import encode_status
from frameworkcontroller.api.completion import (
    CONTAINER_PERMANENT_FAILED,
    POD_SUCCEEDED,
    STOP_FRAMEWORK_REQUESTED,
    CompletionStatus,
    Trigger,
)
from frameworkcontroller.api.spec import FrameworkSpec
from frameworkcontroller.api.status import AdmissionStatus, Condition, FrameworkAttemptStatus, FrameworkStatus, State
from frameworkcontroller.views.diagnosis import (
    FrameworkView,
    diagnose_framework,
    diagnose_task,
    read_view,
    trigger,
)
from tests.support.bench import Bench, role


def test_the_task_that_met_a_policy_is_named_and_not_the_last_of_all() -> None:
    met = CompletionStatus.of(CONTAINER_PERMANENT_FAILED, "said", trigger=Trigger("1 has reached 1", "a", 2))
    assert trigger(met) == ", by a[2]: 1 has reached 1"
    last = CompletionStatus.of(POD_SUCCEEDED, "3 have reached 3", trigger=Trigger("3 have reached 3", "a", 2))
    assert trigger(last) == ""
    assert trigger(CompletionStatus.of(POD_SUCCEEDED, "said")) == ""


@pytest.mark.parametrize(
    ("action", "of_task", "of_framework"),
    [
        ("FailTask", "not retried: podFailurePolicy.rules[0] is FailTask", None),
        (
            "FailFramework",
            "not retried: podFailurePolicy.rules[0] is FailFramework",
            [
                "a[0] on node-1: main exited with 42",
                "42 ContainerUnrecognizedFailed, by a[0]: podFailurePolicy.rules[0] is FailFramework",
                "not retried: podFailurePolicy.rules[0] is FailFramework",
            ],
        ),
        (
            "RestartFramework",
            "not retried: podFailurePolicy.rules[0] is RestartFramework",
            [
                "a[0] on node-1: main exited with 42",
                "42 ContainerUnrecognizedFailed, by a[0]: podFailurePolicy.rules[0] is RestartFramework",
                "not retried: maxRetryCount is 0",
            ],
        ),
    ],
)
def test_the_decision_of_a_failure_rule_is_shown(action: str, of_task: str, of_framework: list[str] | None) -> None:
    rule = {"action": action, "onExitCodes": {"operator": "In", "values": [42]}}
    retry = {"maxRetryCount": -1}
    bench = Bench(role(number=2, retryPolicy=retry, podFailurePolicy={"rules": [rule]}))
    bench.all_pods()
    bench.run()
    bench.end(code=42)
    assert bench.state() is State.COMPLETED
    status = orjson.loads(encode_status("f", bench.status))
    view = read_view({"metadata": {"namespace": "ns", "name": "f"}, "spec": bench.spec, "status": status}, {})
    assert diagnose_task(view, "a", bench.task()).endswith(f"; {of_task}")
    assert diagnose_framework(view, bench.now) == (of_framework or [])


def test_a_waiting_framework_is_shown_with_its_reason() -> None:
    status = FrameworkStatus(0, 0, FrameworkAttemptStatus(0, 0))
    view = FrameworkView("default", "f", status, FrameworkSpec(), deleting=False, problem="", pods={})
    status.conditions = [Condition("Running", "False", message="FrameworkAttempt 0")]
    assert diagnose_framework(view, 0) == []
    status.conditions = [Condition("Running", "False", message="FrameworkAttempt 0 waits: something is missing")]
    assert diagnose_framework(view, 0) == ["something is missing"]


def test_the_message_of_the_status_comes_first_and_the_policy_second() -> None:
    message = "a[0] on node-1: main exited with 42: CUDA out of memory"
    end = CompletionStatus.of(CONTAINER_PERMANENT_FAILED, "said", trigger=Trigger("1 has reached 1", "a", 0))
    status = FrameworkStatus(0, 0, FrameworkAttemptStatus(0, 0, completion_status=end), State.COMPLETED)
    status.phase, status.message = "Failed", message
    view = FrameworkView("default", "f", status, FrameworkSpec(), deleting=False, problem="", pods={})
    assert diagnose_framework(view, 0) == [
        message,
        "210 ContainerPermanentFailed, by a[0]: 1 has reached 1",
        "not retried: maxRetryCount is 0",
    ]
    status.attempt.completion_status = CompletionStatus.of(STOP_FRAMEWORK_REQUESTED, "User has requested to stop it")
    status.message = "User has requested to stop it"
    assert diagnose_framework(view, 0)[:2] == [status.message, "-210 StopFrameworkRequested"]


def queued(reserved: str, admitted: str, message: str = "") -> list[str]:
    """The diagnosis of a Framework in a queue, with conditions of these statuses."""
    bench = Bench(role())
    bench.plan()
    bench.status.conditions = [
        Condition("Running", "False", message="FrameworkAttempt 0 waits: the Framework waits in Kueue's LocalQueue a"),
        Condition("QuotaReserved", reserved, "Pending", message or "no room\nfor gpu: 8 more needed"),
        Condition("Admitted", admitted, "AdmissionCheck", "Admitted by Workload w; only 2 of the 3 Tasks"),
    ]
    view = FrameworkView("ns", "f", bench.status, FrameworkSpec(), deleting=False, problem="", pods={}, queue="a")
    return diagnose_framework(view, 0)


def test_the_message_of_a_queue_is_shown() -> None:
    waits = "the Framework waits in Kueue's LocalQueue a"
    assert queued("False", "False") == [waits, "queue a: Pending: no room for gpu: 8 more needed"]
    assert queued("True", "False") == [waits, "queue a: AdmissionCheck: Admitted by Workload w; only 2 of the 3 Tasks"]
    assert queued("True", "True")[1] == "queue a: Admitted by Workload w; only 2 of the 3 Tasks"


@pytest.mark.parametrize(
    ("label", "told"),
    [
        ("a", []),
        ("b", ["queue b from the next FrameworkAttempt"]),
        ("", ["no queue from the next FrameworkAttempt"]),
    ],
)
def test_a_label_that_counts_from_the_next_attempt_is_shown(label: str, told: list[str]) -> None:
    bench = Bench(role())
    bench.plan()
    bench.status.admission = AdmissionStatus("a", "w", "u", "c", [])
    bench.status.conditions = [Condition("QuotaReserved", "True"), Condition("Admitted", "True", "", "Admitted")]
    status = orjson.loads(encode_status("f", bench.status))
    labels = {"kueue.x-k8s.io/queue-name": label} if label else {}
    view = read_view({"metadata": {"name": "f", "namespace": "ns", "labels": labels}, "status": status}, {})
    assert diagnose_framework(view, 0)[-1 - len(told) :] == ["queue a: Admitted", *told]


def test_without_a_queue_no_queue_is_shown() -> None:
    bench = Bench(role())
    bench.plan()
    framework = {"metadata": {"name": "f", "namespace": "ns"}, "status": orjson.loads(encode_status("f", bench.status))}
    assert read_view(framework, {}).queue == ""
    assert not [line for line in diagnose_framework(read_view(framework, {}), 0) if "queue" in line]
    framework["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "a"}
    assert read_view(framework, {}).queue == "a"
    framework["status"]["admission"] = {"queueName": "b", "workloadName": "w", "workloadUID": "u"}
    assert read_view(framework, {}).queue == "b"
