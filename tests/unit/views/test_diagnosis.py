"""Causes of ends, for people."""

import orjson
import pytest

from frameworkcontroller.api.codec import encode_status
from frameworkcontroller.api.completion import (
    CONTAINER_PERMANENT_FAILED,
    POD_CREATION_PERMANENT_ERROR,
    POD_SUCCEEDED,
    CompletionStatus,
    ContainerCompletion,
    PodCompletion,
    Trigger,
)
from frameworkcontroller.api.spec import FrameworkSpec
from frameworkcontroller.api.status import AdmissionStatus, Condition, FrameworkAttemptStatus, FrameworkStatus, State
from frameworkcontroller.views.diagnosis import (
    FrameworkView,
    cause,
    diagnose_framework,
    diagnose_task,
    read_view,
    trigger,
)
from tests.support.bench import Bench, role


def test_why_a_pod_failed_is_said_in_its_own_words() -> None:
    pod = PodCompletion(
        "Evicted",
        "low on memory",
        (
            ContainerCompletion("a", 0),
            ContainerCompletion("b", 137, "OOMKilled", "killed", 9),
            ContainerCompletion("c", 7),
        ),
    )
    completion = CompletionStatus.of(CONTAINER_PERMANENT_FAILED, "Pod failed: PodPattern unmatched: {}", pod=pod)
    assert cause(completion) == (
        "Evicted: low on memory; container b: signal 9: OOMKilled: killed; container c: exit code 7"
    )
    assert cause(CompletionStatus.of(CONTAINER_PERMANENT_FAILED, "said\nso")) == "said so"
    bare = CompletionStatus.of(CONTAINER_PERMANENT_FAILED, "Pod failed: x", pod=PodCompletion())
    assert cause(bare) == "Pod failed: x"


def test_code_0_of_a_container_that_never_ran_is_not_told_as_an_end() -> None:
    containers = (ContainerCompletion("main", 0), ContainerCompletion("done", 0, "Completed"))
    text = 'Pod failed: PodPattern unmatched: {"containers":[{"name":"main","code":0}]}'
    ended = CompletionStatus.of(CONTAINER_PERMANENT_FAILED, text, pod=PodCompletion(containers=containers))
    assert cause(ended) == "container main did not end by itself"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ('{"ErrStatus":{"message":"Pod \\"a\\" is invalid: \\u003cno\\u003e"}}', 'Pod "a" is invalid: <no>'),
        ('{"ErrStatus":{"code":422}}', '{"ErrStatus":{"code":422}}'),
        ('{"ErrStatus":null}', '{"ErrStatus":null}'),
        ('{"code":422}', '{"code":422}'),
        ('"text"', '"text"'),
        ("{", "{"),
    ],
)  # fmt: skip
def test_why_a_pod_was_refused_is_said_in_the_api_servers_words(answer: str, said: str) -> None:
    completion = CompletionStatus.of(POD_CREATION_PERMANENT_ERROR, f"Failed to create Pod: {answer}")
    assert cause(completion) == f"Failed to create Pod: {said}"


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
                "42 ContainerUnrecognizedFailed, by a[0]: podFailurePolicy.rules[0] is FailFramework",
                "not retried: podFailurePolicy.rules[0] is FailFramework",
            ],
        ),
        (
            "RestartFramework",
            "not retried: podFailurePolicy.rules[0] is RestartFramework",
            [
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
    assert diagnose_framework(view, 0) == ["waits: something is missing"]


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
    waits = "waits: the Framework waits in Kueue's LocalQueue a"
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
