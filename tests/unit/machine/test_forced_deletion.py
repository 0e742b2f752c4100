"""The exchange of a forced deletion that depends on the Pod's Node: its requests and results."""

from typing import Any, Final

import orjson
import pytest

from frameworkcontroller.machine.kernel.actions import Delete, carry_out
from frameworkcontroller.machine.kernel.exchanges import Accepted, Gone, NotForced, Result
from frameworkcontroller.machine.kernel.requests import (
    Answer,
    Answered,
    Get,
    Kind,
    Refusal,
    Refused,
    Remove,
    Request,
    Target,
    Unanswered,
)

POD: Final = Target(Kind.POD, "f-a-0", 0, "a", 0, "t")
NODE: Final = Get(Kind.NODE, "n")
REMOVE: Final = Remove(Kind.POD, "f-a-0", "u", force=True, propagation=None)
SPARED: Final = "Pod f-a-0 is not force-deleted (podForceDeletionPolicy NodeUnreachable)"
ACCEPTED: Final = Answered(orjson.dumps({"metadata": {}}))
UNREACHABLE: Final = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
OUT_OF_SERVICE: Final = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}


def node(spec: Any) -> Answered:
    return Answered(orjson.dumps({"metadata": {"name": "n", "uid": "n-uid"}, "spec": spec}))


def pod(uid: str = "u", **spec: Any) -> Answered:
    return Answered(orjson.dumps({"metadata": {"name": "f-a-0", "uid": uid}, "spec": spec}))


def refused(code: int, kind: Refusal = Refusal.OTHER, *, by_api: bool = True) -> Refused:
    return Refused(code, f"message of {code}", b"{}", kind=kind, by_api=by_api)


def play(answers: list[Answer], *, known: str | None = "n", if_node_lost: bool = True) -> tuple[list[Request], Result]:
    """The requests, and the result."""
    action = Delete(POD, "u", force=True, if_node_lost=if_node_lost, node=known)
    exchange, requests = carry_out(action), []
    left = iter(answers)
    try:
        requests.append(next(exchange))
        while True:
            requests.append(exchange.send(next(left)))
    except StopIteration as end:
        assert list(left) == []
        return requests, end.value


@pytest.mark.parametrize(
    "taints",
    [[UNREACHABLE], [OUT_OF_SERVICE], [{"key": "other"}, UNREACHABLE], [{**UNREACHABLE, "effect": "NoSchedule"}]],
)
def test_a_lost_node(taints: list[Any]) -> None:
    assert play([node({"taints": taints}), ACCEPTED]) == ([NODE, REMOVE], Accepted())


def test_a_node_that_is_gone() -> None:
    assert play([refused(404, Refusal.OBJECT_NOT_FOUND), ACCEPTED]) == ([NODE, REMOVE], Accepted())


@pytest.mark.parametrize(
    "spec",
    [
        {},
        None,
        {"taints": None},
        {"taints": []},
        {"taints": [{"key": "node.kubernetes.io/not-ready"}]},
        {"taints": [{"key": "node.kubernetes.io/unschedulable"}], "unschedulable": True},
        {"taints": ["node.kubernetes.io/unreachable"]},
        {"taints": "node.kubernetes.io/unreachable"},
        "taints",
    ],
)
def test_a_node_that_may_run_the_pod(spec: Any) -> None:
    requests, result = play([node(spec)])
    assert requests == [NODE]
    assert result == NotForced(f"{SPARED}: its Node n is neither unreachable nor out of service")


@pytest.mark.parametrize(
    "refusal",
    [refused(403), refused(404, Refusal.NOT_FOUND), refused(405)],
    ids=["forbidden", "not served", "not allowed"],
)
def test_nodes_that_cannot_be_read(refusal: Refused) -> None:
    requests, result = play([refusal])
    assert requests == [NODE]
    text = f"its Node n cannot be read: {refusal.code}: message of {refusal.code}"
    assert result == NotForced(f"{SPARED}: {text}", True)


@pytest.mark.parametrize(
    "answer",
    [
        Unanswered("reset"),
        refused(500, Refusal.SERVER_ERROR),
        refused(403, by_api=False),
        refused(404, Refusal.OBJECT_NOT_FOUND, by_api=False),
        refused(404, Refusal.NOT_FOUND, by_api=False),
        Answered(b"<html>"),
        Answered(b"{}"),
    ],
)
def test_no_answer_of_an_api_server(answer: Answer) -> None:
    requests, result = play([answer])
    assert requests == [NODE]
    assert isinstance(result, Unanswered)


def test_too_many_requests() -> None:
    requests, result = play([refused(429, Refusal.TOO_MANY_REQUESTS)])
    assert requests == [NODE]
    assert isinstance(result, Refused)
    assert result.message == "its Node n cannot be read: message of 429"


@pytest.mark.parametrize(
    ("answers", "requests", "result"),
    [
        ([pod(nodeName="n"), node({"taints": [UNREACHABLE]}), ACCEPTED], [NODE, REMOVE], Accepted()),
        ([pod(nodeName="n"), refused(404, Refusal.OBJECT_NOT_FOUND), ACCEPTED], [NODE, REMOVE], Accepted()),
        ([pod(), ACCEPTED], [REMOVE], Accepted()),
        ([pod("another", nodeName="n")], [], Gone()),
        ([refused(404, Refusal.OBJECT_NOT_FOUND)], [], Gone()),
        ([Unanswered("reset")], [], Unanswered("reset")),
    ],
    ids=["on a lost node", "on one that is gone", "never bound", "another of its name", "gone", "unanswered"],
)
def test_a_pod_whose_node_is_not_known(answers: list[Answer], requests: list[Request], result: Result) -> None:
    asked = Get(Kind.POD, "f-a-0", whole=True)
    assert play(answers, known=None) == ([asked, *requests], result)


def test_without_the_policy_no_node_is_read() -> None:
    assert play([ACCEPTED], if_node_lost=False) == ([REMOVE], Accepted())
