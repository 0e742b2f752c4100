"""Nodes that the Pods of a Task avoid: counted failures, the affinity of Pods, relaxation, and the next attempt."""

from __future__ import annotations

from typing import Any, Final

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameworkcontroller.api.codec import decode_status, encode_status
from frameworkcontroller.api.completion import PREDEFINED, Code, CompletionStatus
from frameworkcontroller.api.spec import AvoidNodes, FrameworkSpec, parse_spec
from frameworkcontroller.api.status import AvoidedNode, State
from frameworkcontroller.machine.kernel.actions import Create, Delete, Patch
from frameworkcontroller.machine.kernel.exchanges import Accepted
from frameworkcontroller.machine.kernel.model import Plan
from frameworkcontroller.machine.parts.nodes.nodeavoidance import OtherNodes, _rule_of, is_by_node
from tests.support.bench import Bench, role, running
from tests.support.queuedbench import QueuedBench

Json = dict[str, Any]
POD: Final = "f-a-0"
_UNSCHEDULABLE: Final = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
_GATED: Final = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "gated"}
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def avoiding(number: int = 1, *, name: str = "a", failed: int = 0, retries: int = 9, **avoid: Any) -> Json:
    """A role whose Tasks are retried, and avoid nodes."""
    return role(name, number, failed=failed, retryPolicy={"maxRetryCount": retries, "avoidNodes": avoid})


def run_on(bench: Bench, node: str, pod: str = POD) -> None:
    bench.show(pod, phase="Running", podIP="10.0.0.1", hostIP="10.0.1.1", nodeName=node)
    bench.plan()


def fail_on(bench: Bench, *nodes: str, pod: str = POD, code: int = 1) -> None:
    """The Pod, and each next one, runs on such a node and fails there."""
    for node in nodes:
        bench.all_pods()
        run_on(bench, node, pod)
        bench.end(pod, code)


def nodes(bench: Bench, index: int = 0, name: str = "a") -> list[tuple[str, int]]:
    return [(one.name, one.failures) for one in bench.task(name, index).avoided_nodes]


def terms(body: Json) -> Any:
    affinity = body["spec"].get("affinity") or {}
    required = (affinity.get("nodeAffinity") or {}).get(_REQUIRED) or {}
    return required.get("nodeSelectorTerms")


def excluded(bench: Bench, pod: str = POD) -> list[str]:
    """The nodes that the one term of the last Pod excludes, each by a requirement of its own."""
    found = terms(bench.bodies[pod])
    if found is None:
        return []
    (term,) = found
    assert [(one["key"], one["operator"]) for one in term["matchFields"]] == [("metadata.name", "NotIn")] * len(
        term["matchFields"]
    )
    return [name for one in term["matchFields"] for (name,) in [one["values"]]]


def unschedulable(bench: Bench, condition: Json = _UNSCHEDULABLE, pod: str = POD) -> Plan:
    return bench.show_then_plan(pod, conditions=[condition])


# --- failures are counted, and nodes avoided ---------------------------------------------------------------------


def test_a_failed_task_avoids_the_node() -> None:
    bench = Bench(avoiding())
    bench.all_pods()
    assert excluded(bench) == []
    fail_on(bench, "n1")
    assert nodes(bench) == [("n1", 1)]
    assert excluded(bench) == ["n1"]
    fail_on(bench, "n2")
    assert excluded(bench) == ["n1", "n2"]


def test_without_the_field_nothing_changes() -> None:
    bench = Bench(role(retryPolicy={"maxRetryCount": 9}))
    bench.all_pods()
    first = bench.bodies[POD]
    fail_on(bench, "n1")
    assert nodes(bench) == []
    assert b"avoidedNodes" not in encode_status("f", bench.status)
    assert bench.bodies[POD]["spec"].keys() == first["spec"].keys() - {"nodeName"}


def test_only_the_pods_of_the_task_avoid_it() -> None:
    bench = running(avoiding(2))
    fail_on(bench, "n1", pod="f-a-1")
    assert [nodes(bench, index) for index in (0, 1)] == [[], [("n1", 1)]]
    fail_on(bench, "n2", pod=POD)
    assert excluded(bench, POD) == ["n2"]
    assert excluded(bench, "f-a-1") == ["n1"]


def test_the_count_is_persisted_with_the_end_before_the_next_pod() -> None:
    bench = Bench(avoiding())
    bench.all_pods()
    run_on(bench, "n1")
    bench.stop(code=1)
    bench.plan()
    bench.fold(bench.expect(Delete), Accepted())
    bench.hide(POD)
    bench.plan(write=False)
    assert bench.task().state is State.ATTEMPT_COMPLETED
    stored = decode_status(orjson.loads(encode_status("f", bench.status)))
    assert stored is not None
    assert stored.attempt.roles[0].tasks[0].avoided_nodes == (AvoidedNode("n1"),)
    bench.write()
    bench.restart()
    bench.settle()
    assert excluded(bench) == ["n1"]


def test_after_several_failures_on_one_node() -> None:
    bench = Bench(avoiding(after=2))
    fail_on(bench, "n1", "n2")
    assert nodes(bench) == [("n1", 1), ("n2", 1)]
    assert excluded(bench) == []
    fail_on(bench, "n1")
    assert nodes(bench) == [("n2", 1), ("n1", 2)]
    assert excluded(bench) == ["n1"]


def test_at_most_limit_nodes_and_the_oldest_goes() -> None:
    bench = Bench(avoiding(limit=2))
    fail_on(bench, "n1", "n2", "n3")
    assert nodes(bench) == [("n2", 1), ("n3", 1)]
    assert excluded(bench) == ["n2", "n3"]


def test_counted_nodes_go_before_avoided_ones() -> None:
    bench = Bench(avoiding(limit=2, after=2))
    fail_on(bench, "n1", "n1", "n2", "n3")
    assert nodes(bench) == [("n1", 2), ("n3", 1)]
    fail_on(bench, "n3", "n4")
    assert nodes(bench) == [("n3", 2), ("n4", 1)]


def test_a_lower_limit_counts_at_once() -> None:
    bench = Bench(avoiding())
    fail_on(bench, "n1", "n2")
    bench.edit(avoiding(limit=1))
    bench.plan()
    run_on(bench, "n3")
    bench.show(POD, deleting=bench.now + 30)
    bench.plan()
    bench.hide(POD)
    bench.settle()
    assert excluded(bench) == ["n2"]


def test_the_field_may_come_later_and_go() -> None:
    bench = Bench(role(retryPolicy={"maxRetryCount": 9}))
    fail_on(bench, "n1")
    bench.edit(avoiding())
    fail_on(bench, "n2")
    assert excluded(bench) == ["n2"]
    bench.edit(role(retryPolicy={"maxRetryCount": 9}))
    fail_on(bench, "n3")
    assert excluded(bench) == []


@pytest.mark.parametrize(
    ("tasks", "wanted", "limit"), [(1, 16, 16), (2500, 16, 16), (5000, 16, 8), (10_000, 16, 4), (10_000, 2, 2)]
)
def test_a_large_framework_has_room_for_fewer(tasks: int, wanted: int, limit: int) -> None:
    spec = parse_spec({"taskRoles": [avoiding(tasks, limit=wanted)]})
    rule = _rule_of(spec, spec.task_roles[0])
    assert rule is not None
    assert rule.limit == limit


def test_a_task_that_leaves_does_not_count() -> None:
    bench = running(avoiding(2))
    bench.edit_then_plan(avoiding(1))
    assert nodes(bench, 1) == []


# --- codes --------------------------------------------------------------------------------------------------------

_COUNTED: Final = {200, 201, -260, -300, -310}


@pytest.mark.parametrize("code", PREDEFINED)
def test_codes_of_the_contract(code: int) -> None:
    """-310 has no node. 210 is permanent."""
    completion = CompletionStatus.of(PREDEFINED[code], "")
    assert is_by_node(completion, AvoidNodes()) is (code in _COUNTED)


@pytest.mark.parametrize(
    ("code", "attributes", "counts"),
    [
        (1, (), True),
        (137, ("Transient",), True),
        (139, ("Permanent",), False),
        (-1000, ("Transient",), True),
        (-1002, ("Transient",), True),
        (-1003, ("Transient",), False),
        (-1007, ("Transient",), False),
        *((code, ("Transient",), False) for code in range(-1012, -1007)),
        (-1013, ("Transient",), True),
    ],
)
def test_other_codes(code: int, attributes: tuple[str, ...], counts: bool) -> None:
    completion = CompletionStatus.of(Code(code, "Some", "Failed", attributes), "")
    assert is_by_node(completion, AvoidNodes()) is counts


def test_an_exit_code_of_windows_is_none_of_the_controllers() -> None:
    code = Code(-210, "ContainerUnrecognizedFailed", "Failed", ())
    assert is_by_node(CompletionStatus.of(code, ""), AvoidNodes())


@pytest.mark.parametrize(
    ("operator", "values", "code", "counts"),
    [
        ("In", [7], 7, True),
        ("In", [7], 8, False),
        ("NotIn", [7], 7, False),
        ("NotIn", [7], -101, True),
        ("In", [-1008], -1008, True),
        ("In", [210], 210, True),
        ("NotIn", [7], -220, False),
        ("NotIn", [7], -261, False),
        ("NotIn", [7], 0, False),
    ],
)
def test_chosen_codes(operator: str, values: list[int], code: int, counts: bool) -> None:
    policy = parse_spec({"taskRoles": [avoiding(onCodes={"operator": operator, "values": values})]})
    avoid = policy.task_roles[0].task.retry_policy.avoid_nodes
    assert avoid is not None
    found = PREDEFINED.get(code, Code(code, "Some", "Failed", ("Permanent",)))
    assert is_by_node(CompletionStatus.of(found, ""), avoid) is counts


def test_a_pod_that_was_deleted_does_not_blame_its_node() -> None:
    bench = running(avoiding())
    bench.show(POD, deleting=bench.now + 30)
    bench.plan()
    bench.hide(POD)
    bench.settle()
    assert nodes(bench) == []


def test_a_pod_that_does_not_start_blames_its_node() -> None:
    bench = Bench(
        {**avoiding(), "task": {**avoiding()["task"], "preRunningDeadlineSeconds": 60}},
    )
    bench.all_pods()
    bench.show_then_plan(POD, nodeName="n1")
    bench.now += 60
    bench.touch(POD)
    bench.settle()
    assert nodes(bench) == [("n1", 1)]
    assert excluded(bench) == ["n1"]


# --- the Pod ------------------------------------------------------------------------------------------------------

_ZONE: Final = {"key": "zone", "operator": "In", "values": ["z"]}
_OWN: Final = {"key": "metadata.name", "operator": "NotIn", "values": ["own"]}
_N1: Final = {"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}
_N2: Final = {"key": "metadata.name", "operator": "NotIn", "values": ["n2"]}


def _with(required: Any) -> Json:
    return {"affinity": {"nodeAffinity": {_REQUIRED: required}}}


@pytest.mark.parametrize(
    "before", [{}, {"affinity": None}, {"affinity": {}}, {"affinity": {"nodeAffinity": None}}, _with(None)]
)
def test_a_template_without_terms_gets_one(before: Json) -> None:
    spec = orjson.loads(orjson.dumps(before))
    OtherNodes(("n1", "n2")).apply({}, spec, POD)
    assert spec == {"affinity": {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [{"matchFields": [_N1, _N2]}]}}}}


def test_each_term_is_restricted() -> None:
    """Terms are alternatives: a node that one of them matches suffices."""
    preferred = [{"weight": 1, "preference": {"matchExpressions": [_ZONE]}}]
    spec = _with({"nodeSelectorTerms": [{"matchExpressions": [_ZONE]}, {"matchFields": [_OWN]}]})
    spec["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] = preferred
    spec["affinity"]["podAffinity"] = {}
    before = orjson.loads(orjson.dumps(spec))
    OtherNodes(("n1",)).apply({}, spec, POD)
    assert terms({"spec": spec}) == [
        {"matchExpressions": [_ZONE], "matchFields": [_N1]},
        {"matchFields": [_OWN, _N1]},
    ]
    before["affinity"]["nodeAffinity"][_REQUIRED] = spec["affinity"]["nodeAffinity"][_REQUIRED]
    assert spec == before


@pytest.mark.parametrize("term", [{}, None, {"matchExpressions": None}, {"matchExpressions": [], "matchFields": []}])
def test_an_empty_term_matches_nothing_and_stays(term: Any) -> None:
    spec = _with({"nodeSelectorTerms": [term, {"matchExpressions": [_ZONE]}]})
    OtherNodes(("n1",)).apply({}, spec, POD)
    assert terms({"spec": spec}) == [term, {"matchExpressions": [_ZONE], "matchFields": [_N1]}]


@pytest.mark.parametrize(
    "before",
    [
        {"nodeName": "n1"},
        _with({}),
        _with({"nodeSelectorTerms": None}),
        _with({"nodeSelectorTerms": []}),
        _with({"nodeSelectorTerms": "x"}),
        _with({"nodeSelectorTerms": ["x", {"matchFields": "x"}]}),
        _with([]),
        {"affinity": []},
        {"affinity": {"nodeAffinity": 3}},
    ],
)
def test_a_pod_that_stays_as_it_is(before: Json) -> None:
    """A Pod with its own nodeName is not scheduled, and the API server refuses the others."""
    spec = orjson.loads(orjson.dumps(before))
    OtherNodes(("n1",)).apply({}, spec, POD)
    assert spec == before


def test_the_template_is_never_written() -> None:
    template = avoiding()
    template["task"]["pod"]["spec"] |= _with({"nodeSelectorTerms": [{"matchExpressions": [_ZONE]}]})
    before = orjson.dumps(template)
    bench = Bench(template, role("b"))
    fail_on(bench, "n1", "n2")
    assert terms(bench.bodies[POD]) == [{"matchExpressions": [_ZONE], "matchFields": [_N1, _N2]}]
    assert orjson.dumps(template) == before
    # Another Task of the role has the template as it is.
    bench.edit({**template, "taskNumber": 2}, role("b"))
    bench.all_pods()
    assert terms(bench.bodies["f-a-1"]) == [{"matchExpressions": [_ZONE]}]


def test_a_body_that_is_rendered_again_is_the_same() -> None:
    bench = Bench(avoiding())
    fail_on(bench, "n1")
    run_on(bench, "n2")
    bench.stop(code=1)
    bench.plan()
    bench.fold(bench.expect(Delete), Accepted())
    bench.hide(POD)
    for _ in range(2):
        # The end, and then the next attempt, are persisted.
        bench.idle()
    action = bench.expect(Create)
    assert action.body == action.body
    assert [one["values"] for one in terms(orjson.loads(action.body))[0]["matchFields"]] == [["n1"], ["n2"]]


# --- relaxation ---------------------------------------------------------------------------------------------------


def _waiting(*failed_on: str, number: int = 1, **avoid: Any) -> Bench:
    """A Task that has failed on these nodes, and whose next Pod fits nowhere."""
    bench = Bench(avoiding(number, retries=len(failed_on), **avoid))
    fail_on(bench, *failed_on)
    unschedulable(bench)
    return bench


def test_the_oldest_node_is_given_up() -> None:
    bench = _waiting("n1", "n2", relaxAfterSeconds=100)
    retries = bench.task().retry.accountable_retried_count
    bench.idle(after=99)
    bench.now += 1
    bench.touch(POD)
    bench.plan(write=False)
    # Persisted before the Pod is deleted.
    assert bench.task_code() == -261
    assert bench.task().state is State.DELETION_PENDING
    assert bench.plan(write=False).actions == []
    bench.write()
    bench.fold(bench.expect(Delete), Accepted())
    bench.hide(POD)
    bench.settle()
    assert nodes(bench) == [("n2", 1)]
    assert excluded(bench) == ["n2"]
    assert (bench.task().attempt.id, bench.task().retry.accountable_retried_count) == (3, retries)
    # maxRetryCount is used up, and the Task still runs.
    unschedulable(bench)
    bench.now += 100
    bench.touch(POD)
    bench.settle()
    assert nodes(bench) == []
    assert excluded(bench) == []
    unschedulable(bench)
    bench.idle(after=10_000)
    run_on(bench, "n1")
    assert bench.task().state is State.RUNNING


def test_the_alarm_rings_by_itself() -> None:
    bench = _waiting("n1")
    due = bench.idle().requeue_after
    assert due is not None
    assert due <= 600
    while bench.task_code() is None:
        bench.pass_time(bench.plan().requeue_after or 0)
    assert bench.now - bench.task().transition_time < 1


def test_a_scheduling_gate_is_not_waited_out() -> None:
    bench = Bench(avoiding(relaxAfterSeconds=100))
    fail_on(bench, "n1")
    unschedulable(bench, _GATED)
    bench.idle(after=1000)
    bench.touch(POD)
    bench.idle()
    unschedulable(bench)
    bench.idle(after=99)
    assert bench.task_code() is None
    bench.touch(POD)
    bench.pass_time(1)
    assert bench.task_code() == -261


def test_a_restart_does_not_restart_the_time() -> None:
    """Else a controller that restarts often would never give a node up."""
    bench = _waiting("n1", relaxAfterSeconds=100)
    bench.idle(after=60)
    bench.restart()
    bench.plan()
    assert bench.task_code() is None
    bench.touch(POD)
    bench.pass_time(40)
    assert bench.task_code() == -261


def test_a_deadline_gives_a_node_up_too() -> None:
    """Else each attempt would end by it, and no node be given up."""
    body = avoiding(relaxAfterSeconds=600)
    bench = Bench({**body, "task": {**body["task"], "preRunningDeadlineSeconds": 60}})
    fail_on(bench, "n1")
    bench.all_pods()
    unschedulable(bench)
    bench.now += 60
    bench.touch(POD)
    bench.settle()
    bench.wait(600)
    bench.settle()
    assert (nodes(bench), excluded(bench)) == ([], [])


def test_a_pod_that_avoids_nothing_waits() -> None:
    bench = Bench(avoiding(relaxAfterSeconds=1))
    bench.all_pods()
    unschedulable(bench)
    bench.idle(after=10_000)
    bench.touch(POD)
    bench.idle()
    assert bench.task_code() is None


def test_a_pod_with_a_node_is_not_given_up() -> None:
    bench = _waiting("n1", relaxAfterSeconds=100)
    bench.show_then_plan(POD, nodeName="n2", conditions=[{"type": "PodScheduled", "status": "True"}])
    bench.idle(after=10_000)
    bench.touch(POD)
    bench.idle()
    assert bench.task_code() is None


def test_no_failure_rule_matches() -> None:
    bench = Bench(
        {
            **avoiding(relaxAfterSeconds=1),
            "task": {
                **avoiding(relaxAfterSeconds=1)["task"],
                "podFailurePolicy": {
                    "rules": [
                        {"action": "Count", "onExitCodes": {"operator": "In", "values": [1]}},
                        {"action": "FailFramework", "onCompletionCodes": {"operator": "NotIn", "values": [0]}},
                    ]
                },
            },
        }
    )
    fail_on(bench, "n1")
    unschedulable(bench)
    bench.now += 1
    bench.touch(POD)
    bench.settle()
    assert excluded(bench) == []
    assert bench.code() is None


def test_an_end_of_the_attempt_comes_first() -> None:
    bench = _waiting("n1", relaxAfterSeconds=100)
    bench.now += 100
    bench.edit(avoiding(relaxAfterSeconds=100), suspend=True)
    bench.plan()
    assert (bench.code(), bench.task_code()) == (-240, -220)


def test_a_gang_keeps_its_minimum_while_a_pod_is_replaced() -> None:
    bench = Bench(
        avoiding(3, relaxAfterSeconds=100),
        scheduling={"schedulingPolicy": {"gang": {}}},
        retryPolicy={"maxRetryCount": 1},
    )
    bench.all_pods()
    bench.task().avoided_nodes = (AvoidedNode("n1"),)
    for name in list(bench.pods):
        unschedulable(bench, pod=name)
    bench.now += 100
    bench.touch(POD)
    for _ in range(20):
        for action in bench.plan().actions:
            assert not isinstance(action, Patch), action
            if isinstance(action, Delete):
                bench.fold(action, Accepted())
                bench.hide(action.target.name)
            elif isinstance(action, Create):
                bench.created(action)
    assert (bench.task().attempt.id, bench.task().avoided_nodes) == (1, ())


def test_a_queued_framework_keeps_the_selectors_of_its_admission() -> None:
    """The avoided nodes are no part of its request, so its admission holds, and they survive an eviction."""
    bench = QueuedBench(avoiding())
    bench.begin()
    fail_on(bench, "n1")
    assert (excluded(bench), bench.bodies[POD]["spec"]["nodeSelector"]) == (["n1"], {"flavor": "gold"})
    assert bench.status.admission is not None
    bench.evict_then_settle()
    assert nodes(bench) == [("n1", 1)]
    bench.admit_then_settle()
    assert (excluded(bench), bench.bodies[POD]["spec"]["nodeSelector"]) == (["n1"], {"flavor": "gold"})


# --- the next attempt of the Framework ----------------------------------------------------------------------------


def test_the_nodes_survive_a_suspension() -> None:
    bench = Bench(avoiding())
    fail_on(bench, "n1")
    bench.edit_then_settle(avoiding(), suspend=True)
    bench.edit_then_settle(avoiding(), suspend=False)
    assert bench.status.attempt.id == 1
    assert nodes(bench) == [("n1", 1)]
    assert excluded(bench) == ["n1"]


def test_a_retry_of_the_framework_shares_the_nodes_of_the_task_that_ended_it() -> None:
    spec: Json = {"retryPolicy": {"maxRetryCount": 5}}
    bench = Bench(avoiding(3, failed=1, retries=0), avoiding(1, name="b"), **spec)
    bench.run_all()
    fail_on(bench, "n1", pod="f-a-1")
    assert bench.status.attempt.id == 1
    assert [nodes(bench, index) for index in range(3)] == [[("n1", 1)]] * 3
    assert nodes(bench, 0, "b") == []
    bench.all_pods()
    assert [excluded(bench, f"f-a-{index}") for index in range(3)] == [["n1"]] * 3
    assert excluded(bench, "f-b-0") == []
    fail_on(bench, "n2", pod="f-a-2")
    assert [nodes(bench, index) for index in range(3)] == [[("n1", 1), ("n2", 1)]] * 3


def test_failures_of_several_tasks_on_a_node_add_up_over_attempts_of_the_framework() -> None:
    bench = Bench(avoiding(2, failed=1, retries=0, after=2), retryPolicy={"maxRetryCount": 5})
    bench.run_all()
    fail_on(bench, "n1", pod="f-a-0")
    assert excluded(bench, "f-a-0") == []
    bench.run_all()
    fail_on(bench, "n1", pod="f-a-1")
    assert [nodes(bench, index) for index in range(2)] == [[("n1", 2)]] * 2
    bench.all_pods()
    assert excluded(bench, "f-a-0") == excluded(bench, "f-a-1") == ["n1"]


def test_a_success_shares_nothing() -> None:
    bench = Bench(avoiding(2), retryPolicy={"maxRetryCount": -2})
    fail_on(bench, "n1", pod="f-a-0")
    bench.run_all()
    bench.end("f-a-0")
    bench.end("f-a-1")
    assert bench.status.attempt.id == 1
    assert [nodes(bench, index) for index in range(2)] == [[("n1", 1)], []]


def test_new_tasks_avoid_nothing() -> None:
    bench = Bench(avoiding())
    fail_on(bench, "n1")
    bench.edit_then_settle(avoiding(2))
    assert [nodes(bench, index) for index in range(2)] == [[("n1", 1)], []]


# --- bounds -------------------------------------------------------------------------------------------------------

_ENTRIES: Final = st.lists(
    st.builds(AvoidedNode, st.sampled_from([f"n{number}" for number in range(20)]), st.integers(1, 4)),
    unique_by=lambda one: one.name,
    max_size=16,
).map(tuple)


@given(own=_ENTRIES, shared=_ENTRIES, after=st.integers(1, 3), limit=st.integers(1, 16))
def test_lists_stay_within_their_limit(
    own: tuple[AvoidedNode, ...], shared: tuple[AvoidedNode, ...], after: int, limit: int
) -> None:
    rule = _rule_of(spec := _spec(after, limit), spec.task_roles[0])
    assert rule is not None
    for found in (rule.merged(own, shared), rule.with_failure(own, "n7")):
        names = [one.name for one in found]
        assert len(names) == len(set(names)) <= limit
    assert rule.with_failure(own, "n7")[-1].name == "n7"
    assert len(rule.avoided(own)) <= limit
    assert {one.name for one in rule.merged(own, ())} <= {one.name for one in own}


def _spec(after: int, limit: int) -> FrameworkSpec:
    return parse_spec({"taskRoles": [avoiding(after=after, limit=limit)]})
