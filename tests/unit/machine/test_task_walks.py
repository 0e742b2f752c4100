"""Each line of docs/lifecycle.md on a Task, walked by one Task. test_owned_objects.py has the lines on any object."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from frameworkcontroller.api.codec import encode_status, encode_task
from frameworkcontroller.api.failurespec import FailureClass, FailureType, PodPattern
from frameworkcontroller.api.objects import Disruption
from frameworkcontroller.api.status import State
from frameworkcontroller.machine.kernel.actions import Action, ConfirmGone, ConfirmNone, Create, Delete, Relabel
from frameworkcontroller.machine.kernel.exchanges import (
    Accepted,
    Created,
    Exists,
    Gone,
    NotAttempted,
    NotForced,
    Remains,
    Result,
)
from frameworkcontroller.machine.kernel.model import Plan, Urgency
from frameworkcontroller.machine.kernel.reasons import RequestReason
from frameworkcontroller.machine.kernel.requests import Kind, Target, Unanswered
from tests.support.bench import NOW, Bench, accepted, begun, limits, prepared, refused, role, running
from tests.unit.machine.shown import actions
from tests.unit.machine.test_owned_objects import POD

TASK = ("a", 0)
AT_ONCE: dict[str, Any] = {"retryPolicy": {"maxRetryCount": -2}}


def diagnostics(bench: Bench) -> str:
    """Diagnostics of the Task's completion status."""
    completion = bench.task_completion()
    return completion.diagnostics


def of_task(made: Plan) -> Action:
    """The plan's action for the Task of role ``a``."""
    return next(action for action in made.actions if action.target.role == "a")


def forced(bench: Bench, uid: str, *, name: str = "f-a-0") -> Delete:
    """The next plan deletes the Pod by force, after live reads of it and of the status."""
    force = bench.expect(Delete)
    assert force == Delete(force.target, uid, force=True, confirm=True)
    assert force.target.name == name
    return force


# --- phases -----------------------------------------------------------------------------------------------------


def test_the_whole_life_of_a_task_that_succeeds() -> None:
    bench = Bench(role())
    action = POD.begin(bench)
    uid = bench.created(action, show=False)
    assert (bench.state(), bench.task().attempt.pod_uid) == (State.CREATION_REQUESTED, uid)
    bench.now += 5
    bench.show("f-a-0")
    bench.idle()
    task = bench.task()
    assert (bench.state(), task.run_time) == (State.PREPARING, None)
    assert (task.attempt.pod_node_name, task.attempt.pod_ip, task.attempt.pod_host_ip) == ("", "", "")
    bench.now += 5
    bench.run()
    placed = ("node-1", "10.0.0.1", "10.0.1.1")
    assert bench.state() is State.RUNNING
    assert (task.attempt.pod_node_name, task.attempt.pod_ip, task.attempt.pod_host_ip) == placed
    assert bench.task().run_time == task.attempt.run_time == task.transition_time == NOW + 10
    bench.now += 5
    ended = [
        {"name": "setup", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
        {"name": "main", "state": {"terminated": {"exitCode": 0, "reason": "Completed", "message": "loss 0.1"}}},
    ]
    bench.show("f-a-0", phase="Succeeded", initContainerStatuses=ended[:1], containerStatuses=ended[1:])
    made = bench.plan(write=False)
    # Decided and not persisted: nothing is deleted.
    assert (bench.state(), bench.task_code(), diagnostics(bench)) == (State.DELETION_PENDING, 0, "Pod succeeded")
    assert orjson.loads(encode_task("f", "a", task))["attemptStatus"]["completionStatus"]["pod"] == {
        "containers": [
            {"name": "setup", "reason": "Completed", "code": 0},
            {"name": "main", "reason": "Completed", "message": "loss 0.1", "code": 0},
        ]
    }
    assert (made.actions, bench.tracker.urgency) == ([], Urgency.SOON)
    bench.touch("f-a-0")
    assert not bench.plan(write=False).actions
    bench.write()
    deletion = bench.expect(Delete)
    assert deletion == Delete(action.target, uid)
    bench.fold(deletion, Accepted())
    assert (bench.state(), bench.task().completion_time) == (State.DELETION_REQUESTED, None)
    # The cache is behind: a deleted object never comes back, so nothing is to do.
    bench.touch("f-a-0")
    bench.idle()
    bench.show("f-a-0", deleting=bench.now + 30)
    bench.idle()
    assert (bench.state(), bench.task_code()) == (State.DELETING, 0)
    bench.now += 5
    bench.hide("f-a-0")
    for state in (State.ATTEMPT_COMPLETED, State.COMPLETED):
        bench.plan()
        assert bench.state() is state
    assert task.attempt.completion_time == task.completion_time == NOW + 20


def test_phases_may_be_skipped() -> None:
    bench = Bench(role())
    bench.created(POD.begin(bench), show=False)
    bench.show("f-a-0", phase="Failed", reason="Evicted")
    bench.plan(write=False)
    assert (bench.state(), bench.task().run_time) == (State.DELETION_PENDING, None)
    assert diagnostics(bench) == 'Pod failed: PodPattern unmatched: {"reason":"Evicted"}'
    completion = bench.task_completion()
    assert completion.pod is not None
    assert completion.pod.reason == "Evicted"


@pytest.mark.parametrize("before", ["Pending", "Running"])
def test_phase_unknown_waits(before: str) -> None:
    bench = Bench(role())
    bench.pod()
    bench.show_then_plan("f-a-0", phase=before, podIP="10.0.0.1", nodeName="node-1")
    state = bench.state()
    bench.show("f-a-0", phase="Unknown", podIP="")
    bench.idle()
    assert (bench.state(), bench.task().attempt.pod_ip) == (state, "10.0.0.1")
    bench.show_then_plan("f-a-0", phase="Running", podIP="10.0.0.1")
    assert bench.state() is State.RUNNING


def test_addresses_of_a_pod_are_never_removed() -> None:
    bench = running()
    bench.show_then_plan("f-a-0", phase="Running", podIP="", hostIP="")
    attempt = bench.task().attempt
    assert (attempt.pod_ip, attempt.pod_host_ip) == ("10.0.0.1", "10.0.1.1")


def test_the_first_run_time_stays_after_a_retry() -> None:
    bench = running(role(**AT_ONCE))
    bench.end(after=50)
    bench.run()
    task = bench.task()
    assert (task.attempt.id, task.start_time, task.run_time) == (1, NOW, NOW)
    assert (task.attempt.start_time, task.attempt.run_time) == (NOW + 50, NOW + 50)


# --- creation ---------------------------------------------------------------------------------------------------


def test_nothing_is_created_before_creation_pending_is_persisted() -> None:
    bench = Bench(role())
    for _ in range(2):
        assert not bench.plan(write=False).actions
        assert bench.tracker.urgency is Urgency.NOW
    bench.write()
    assert actions(bench.plan()) == ["Create f-attempt"]


def failed_and_gone() -> Bench:
    """A Task that may be retried, whose Pod has failed and is gone. No plan has seen that yet."""
    bench = Bench(role(retryPolicy={"maxRetryCount": 1}))
    bench.pod()
    bench.show_then_plan("f-a-0", phase="Failed")
    bench.fold(bench.expect(Delete), Accepted())
    bench.hide("f-a-0")
    return bench


def test_a_retry_creates_nothing_before_it_is_persisted() -> None:
    bench = failed_and_gone()
    # The end of an attempt is shown before the next one begins.
    for _ in range(2):
        bench.plan(write=False)
        assert bench.state() is State.ATTEMPT_COMPLETED
    bench.write()
    for _ in range(2):
        assert not bench.plan(write=False).actions
        assert (bench.state(), bench.task().attempt.id) == (State.CREATION_PENDING, 1)
    bench.write()
    assert actions(bench.plan()) == ["Create f-a-0"]


@pytest.mark.parametrize(
    ("result", "expected", "text"),
    [
        (refused(400, "bad"), -310, '"message":"bad","reason":"BadRequest","code":400'),
        (refused(403, "hook"), -310, '"message":"hook","reason":"Forbidden","code":403'),
        (refused(422, "inv"), -200, '"message":"inv","reason":"Invalid","code":422'),
        (refused(413, "big"), -200, '"message":"big","reason":"RequestEntityTooLarge","code":413'),
        (refused(500, "hook", "Forbidden"), -310, '"message":"hook","reason":"Forbidden","code":500'),
    ],
)
def test_a_refused_creation_completes_the_attempt(result: Result, expected: int, text: str) -> None:
    bench = begun(role(), role("b"))
    bench.fold(of_task(bench.plan()), result)
    quoted = f'Failed to create Pod: {{"ErrStatus":{{"metadata":{{}},{text}}}}}'
    assert (bench.state(), bench.task().attempt.pod_uid) == (State.ATTEMPT_COMPLETED, None)
    assert (bench.task_code(), diagnostics(bench)) == (expected, quoted)
    bench.plan()
    assert (bench.state(), bench.task("b").state) == (State.COMPLETED, State.CREATION_PENDING)


def test_retry_after_is_respected() -> None:
    bench = Bench(role())
    bench.fold(POD.begin(bench), replace(refused(429), retry_after_sec=40.0))
    assert (bench.plan().requeue_after or 0) >= 40


def test_one_refusal_holds_back_all_creations_and_one_success_releases_them() -> None:
    bench = begun(role(number=3))
    first, *others = bench.plan().actions
    bench.fold(first, refused(403, "exceeded quota: q"))
    for other in others:
        bench.fold(other, NotAttempted())
    bench.idle()
    released = 0
    while released < 3:
        for action in bench.wait(60).actions:
            bench.created(action)
            released += 1
    bench.plan()
    assert bench.states() == ["Preparing"] * 3


def test_an_action_that_was_not_attempted_is_repeated() -> None:
    bench = Bench(role())
    action = POD.begin(bench)
    bench.fold(action, NotAttempted())
    assert bench.tracker.is_busy
    assert bench.expect(Create) == action


def test_nothing_is_created_while_the_attempt_is_completing() -> None:
    bench = Bench(role())
    POD.begin(bench)
    bench.edit_then_plan(executionType="Stop")
    bench.touch("f-a-0")
    assert actions(bench.plan()) == ["Delete f-attempt"]
    assert bench.state() is State.CREATION_PENDING


# --- controlled but not recorded --------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["stop", "scale down"])
def test_a_pod_that_is_not_adopted_because_of_a_decision_is_deleted_once_that_is_persisted(how: str) -> None:
    bench = prepared(role(number=2))
    bench.forget(pod=True)
    bench.edit(**{"executionType": "Stop"} if how == "stop" else {"taskRoles": [role(number=0)]})

    def deletions(*, write: bool) -> list[str]:
        found = bench.plan(write=write).actions
        return [action.target.name for action in found if isinstance(action, Delete) and action.unrecorded]

    for _ in range(3):
        assert deletions(write=False) == []
    assert bench.state() is State.CREATION_PENDING
    bench.write()
    assert deletions(write=True) == ["f-a-0"]


def test_a_pod_of_the_pending_attempt_that_terminates_is_not_adopted() -> None:
    bench = Bench(role())
    bench.fold(POD.begin(bench), Exists(replace(POD.ours(bench), deleting=True)))
    assert bench.idle().requeue_after is not None
    assert bench.task().attempt.pod_uid is None


def unrecorded(*, timeout: int | None) -> Bench:
    """A Pod that no status records is being deleted, and its node is lost."""
    bench = prepared(role(podGracefulDeletionTimeoutSec=timeout), role("b"))
    bench.forget(pod=True)
    task = bench.task()
    task.attempt.id = task.retry.total_retried_count = 1
    bench.show("f-a-0", deleting=bench.now + 30, grace=30, nodeName="lost")
    return bench


@pytest.mark.parametrize("index", [0, 1], ids=["of a completed Task", "of no Task"])
def test_a_late_pod_that_does_not_go_stalls_and_is_deleted_by_force(index: int) -> None:
    bench = prepared(role(number=1 + index, podGracefulDeletionTimeoutSec=60), role("b"))
    name = f"f-a-{index}"
    late = replace(bench.pods[name], identity=replace(bench.pods[name].identity, uid="late"))
    if index:
        bench.edit_then_settle(role(podGracefulDeletionTimeoutSec=60), role("b"))
        assert len(bench.states()) == 1
    else:
        bench.end()
        assert bench.state() is State.COMPLETED
    bench.bodies[name]["metadata"]["uid"] = "late"
    bench.pods[name] = late
    bench.show(name, deleting=bench.now + 30, grace=30)
    bench.idle()
    bench.now += 60
    force = forced(bench, "late", name=name)
    assert force.unrecorded
    bench.fold(force, Remains("still there"))
    bench.pass_time(90)
    assert bench.stalls() == [("True", "PodNotGone")]
    bench.hide_then_plan(name)
    assert bench.stalls() == [("False", "Progressing")]


@pytest.mark.parametrize("verb", ["create", "clean up"])
def test_an_unrecorded_pod_that_only_an_answer_shows_stalls_and_is_deleted_by_force(verb: str) -> None:
    bench = begun(role(podGracefulDeletionTimeoutSec=600), role("b"))
    action, other = bench.plan().actions
    bench.created(other)
    if verb == "clean up":
        bench.fold(action, Unanswered("reset"))
        bench.edit_then_plan(role(number=0, podGracefulDeletionTimeoutSec=600), role("b"))
        action = bench.expect(ConfirmNone, 60)
    gone_by = int(bench.now) + 30
    found = replace(POD.ours(bench), annotations=None, deleting=True, deletion_time=gone_by, deletion_grace_sec=30)
    bench.refuse(action, Exists(found), times=8)
    assert bench.stalls() == [("True", "PodNotGone")]
    bench.now += 600
    assert bench.only(bench.plan()) == action
    bench.fold(action, Exists(found))
    force = forced(bench, "lost")
    assert force.unrecorded
    bench.fold(force, Gone())
    assert bench.only(bench.wait(60)) == action


# --- recorded but absent ----------------------------------------------------------------------------------------


def test_the_wait_for_the_cache_outlives_the_process() -> None:
    bench = Bench(role())
    bench.created(POD.begin(bench), show=False)
    bench.now += 250
    bench.restart()
    assert bench.plan().requeue_after == 50


@pytest.mark.parametrize("planned", [True, False])
def test_a_pod_whose_last_state_shows_its_end_is_gone_without_a_live_read(planned: bool) -> None:
    bench = Bench(role())
    bench.created(POD.begin(bench))
    if planned:
        bench.run()
    bench.drop("f-a-0", removed=True)
    bench.idle()
    assert (bench.task_code(), diagnostics(bench)) == (-101, "Pod was deleted by others")


def test_a_terminating_pod_that_the_cache_drops_is_gone_only_after_a_live_read() -> None:
    bench = running()
    bench.show_then_plan("f-a-0", deleting=bench.now + 30)
    uid = bench.pods["f-a-0"].uid
    bench.drop("f-a-0")
    action = bench.expect(ConfirmGone)
    assert (action, bench.state()) == (ConfirmGone(action.target, uid), State.DELETING)
    bench.fold(action, Gone())
    bench.plan()
    assert bench.state() is State.ATTEMPT_COMPLETED


def test_a_client_that_removes_labels_again_and_again_gets_few_requests() -> None:
    bench = running()
    bench.drop("f-a-0")
    restored = 0
    while (made := bench.wait(NOW + 600 - bench.now)).actions:
        action = bench.only(made)
        if isinstance(action, Relabel):
            restored += 1
            bench.fold(action, Accepted())
            # The label is restored, and removed at once.
            bench.show_then_plan("f-a-0")
            bench.drop("f-a-0")
        else:
            bench.fold(action, Remains("it is there", unlabelled=True))
    assert 30 < restored < 70


@pytest.mark.parametrize("phase", ["", "Pending", "Running"])
def test_a_pod_that_is_gone_was_deleted_by_others(phase: str) -> None:
    bench = Bench(role())
    bench.created(POD.begin(bench))
    if phase:
        bench.show("f-a-0", phase=phase)
    bench.plan()
    bench.hide("f-a-0")
    bench.plan(write=False)
    assert bench.state() is State.ATTEMPT_COMPLETED
    assert (bench.task_code(), diagnostics(bench)) == (-101, "Pod was deleted by others")


@pytest.mark.parametrize(
    ("phase", "listed_ago", "relist"),
    [("Pending", 6, {Kind.CONFIGMAP}), ("Pending", 4, set()), ("Running", 6, set()), ("Failed", 6, set())],
)
def test_a_pod_deleted_before_it_ran_leads_to_a_list_of_configmaps(
    phase: str, listed_ago: int, relist: set[Kind]
) -> None:
    """The garbage collector deletes it if its ConfigMap is gone, and the watch may have missed that.

    A list takes time: until then, creations wait. They also wait after a list that may be older than the deletion.
    """
    bench = Bench(role(**AT_ONCE))
    bench.pod()
    bench.show_then_plan("f-a-0", phase=phase)
    bench.listed = bench.env.clock - listed_ago
    bench.hide("f-a-0")
    assert bench.plan().relist == relist
    bench.plan()
    made = bench.plan()
    if phase == "Pending":
        assert not made.actions
        bench.now += 1
        made = bench.plan()
    assert isinstance(bench.only(made), Create)


# --- being deleted ----------------------------------------------------------------------------------------------


def test_a_pod_that_others_delete() -> None:
    bench = running()
    bench.show("f-a-0", deleting=bench.now + 30)
    bench.idle()
    assert bench.state() is State.DELETING
    assert (bench.task_code(), diagnostics(bench)) == (-101, "Pod is being deleted by others")
    # Its last phase changes nothing: the completion is decided.
    bench.show_then_plan("f-a-0", phase="Failed")
    assert bench.task_code() == -101
    bench.hide("f-a-0")
    bench.plan(write=False)
    assert (bench.state(), bench.task_code()) == (State.ATTEMPT_COMPLETED, -101)


@pytest.mark.parametrize(
    ("state", "code"), [("created", -101), ("preparing", -101), ("pending deletion", 0), ("requested deletion", 0)]
)
def test_a_pod_may_be_deleted_by_others_at_any_time(state: str, code: int) -> None:
    bench = Bench(role())
    bench.created(POD.begin(bench), show=state != "created")
    if state != "created":
        bench.plan()
    if "deletion" in state:
        bench.show_then_plan("f-a-0", phase="Succeeded")
    if state == "requested deletion":
        bench.fold(bench.expect(Delete), Accepted())
    bench.show_then_plan("f-a-0", deleting=bench.now + 30)
    assert (bench.state(), bench.task_code()) == (State.DELETING, code)


# --- an ended Pod whose containers run --------------------------------------------------------------------------

LEFT_RUNNING = [{"name": "main", "state": {"running": {}}}]


def left_running(phase: str = "Failed", grace: int | None = 20) -> Bench:
    """A Task whose Pod has ended before its containers have."""
    bench = running(role(retryPolicy={"maxRetryCount": 1}))
    if grace is not None:
        bench.bodies["f-a-0"]["spec"]["terminationGracePeriodSeconds"] = grace
    bench.show("f-a-0", phase=phase, reason="DeadlineExceeded", containerStatuses=LEFT_RUNNING)
    return bench


def deleted_after(bench: Bench, seconds: int) -> Delete:
    """The Pod is deleted in that number of seconds, and not before."""
    bench.idle()
    bench.idle(after=seconds - 1)
    action = bench.expect(Delete, after=1)
    assert not action.force
    return action


@pytest.mark.parametrize(("phase", "decided"), [("Failed", -300), ("Succeeded", 0)])
@pytest.mark.parametrize(("grace", "waits"), [(20, 50), (0, 30), (3600, 3630), (None, 60)])
def test_a_pod_that_ended_has_its_grace_period(phase: str, decided: int, grace: int | None, waits: int) -> None:
    bench = left_running(phase, grace)
    bench.plan()
    assert (bench.state(), bench.task_code()) == (State.DELETION_PENDING, decided)
    bench.fold(deleted_after(bench, waits), Accepted())
    assert bench.stall() == ("", "")


def test_a_pod_that_ended_is_deleted_once_its_containers_have_ended() -> None:
    bench = left_running()
    bench.plan()
    bench.idle(after=3)
    bench.stop(code=143)
    bench.expect(Delete)
    assert bench.task_code() == -300


def test_a_running_sidecar_counts() -> None:
    bench = left_running()
    bench.show_then_plan("f-a-0", containerStatuses=[], initContainerStatuses=LEFT_RUNNING)
    bench.idle()


@pytest.mark.parametrize("then", ["ended", "deleted by others"])
def test_containers_that_run_after_the_end_of_their_pod_stall_it(then: str) -> None:
    bench = left_running(grace=100)
    bench.plan()
    bench.plan()
    assert bench.stall() == ("", "")
    bench.wait(30)
    text = "Pod f-a-0 has failed, and its containers still run (node node-1): "
    assert bench.stall() == ("PodStillRuns", text + "it is deleted when they end, or at 2023-11-14T22:15:30Z")
    if then == "ended":
        bench.stop(code=143)
    else:
        bench.show("f-a-0", deleting=bench.now + 100, grace=100)
    bench.plan()
    assert bench.stalls() == [("False", "Progressing")]


def test_another_process_waits_from_its_own_start() -> None:
    bench = left_running()
    bench.plan()
    bench.now += 40
    bench.restart()
    deleted_after(bench, 50)


def test_the_pod_of_a_scaled_down_task_has_its_grace_period() -> None:
    bench = left_running()
    bench.edit_then_plan(role(number=0))
    bench.plan()
    assert bench.task_code() == -230
    bench.idle()
    bench.now += 50
    bench.touch("f-a-0")
    bench.expect(Delete)


def test_an_unrecorded_pod_has_its_grace_period() -> None:
    bench = left_running()
    POD.cache(bench, replace(bench.pods["f-a-0"].identity, uid="unrecorded", annotations=None))
    bench.plan()
    bench.plan()
    assert bench.state() is State.CREATION_PENDING
    bench.idle()
    action = bench.expect(Delete, 50)
    assert (action.uid, bench.now) == ("unrecorded", NOW + 50)
    bench.hide_then_plan("f-a-0")
    assert bench.stall() == ("", "")


def test_the_completion_of_the_framework_does_not_wait_for_a_running_pod() -> None:
    bench = running()
    bench.edit_then_plan(executionType="Stop")
    assert actions(bench.plan()) == ["Delete f-attempt"]


def disrupted(reason: str, status: str = "True") -> list[dict[str, str]]:
    """Conditions of a Pod that is to be disrupted for that reason."""
    return [
        {"type": "Ready", "status": "True"},
        {"type": "DisruptionTarget", "status": status, "reason": reason, "message": "said why"},
    ]


@pytest.mark.parametrize(
    ("reason", "expected", "phrase"),
    [
        ("PreemptionByScheduler", -1008, "PodPreemptedByScheduler"),
        ("PreemptionByKubeScheduler", -1008, "PodPreemptedByScheduler"),
        ("DeletionByTaintManager", -1009, "PodEvictedByTaint"),
        ("EvictionByEvictionAPI", -1010, "PodEvictedByApi"),
        ("DeletionByPodGC", -1011, "PodDeletedByPodGC"),
        ("TerminationByKubelet", -1012, "PodTerminatedByKubelet"),
    ],
)
def test_a_pod_that_kubernetes_deletes(reason: str, expected: int, phrase: str) -> None:
    bench = running()
    bench.show_then_plan("f-a-0", conditions=disrupted(reason))
    # The condition alone ends nothing.
    assert bench.state() is State.RUNNING
    bench.show_then_plan("f-a-0", deleting=bench.now + 30)
    completion = bench.task().attempt.completion_status
    assert bench.state() is State.DELETING
    assert completion is not None
    assert (completion.code, completion.phrase, completion.attributes) == (expected, phrase, ("Transient",))
    assert completion.diagnostics == f"Pod is being deleted by others: {reason}: said why"
    bench.show_then_plan("f-a-0", phase="Failed")
    assert bench.task_code() == expected


@pytest.mark.parametrize("conditions", [disrupted("EvictionByEvictionAPI", "False"), disrupted("OfMyOwn")])
def test_a_pod_that_is_deleted_for_no_disruption_that_has_a_code(conditions: list[dict[str, str]]) -> None:
    bench = Bench(role())
    bench.pod()
    bench.show_then_plan("f-a-0", deleting=bench.now + 30, conditions=conditions)
    assert (bench.task_code(), diagnostics(bench)) == (-101, "Pod is being deleted by others")


def test_configured_failure_classes_do_not_apply_to_a_pod_that_is_being_deleted() -> None:
    kind = FailureType(attributes=["Permanent"])
    anything = FailureClass(code=300, phrase="Mine", type=kind, pod_patterns=[PodPattern()])
    bench = Bench(role(), limit=limits(anything))
    bench.pod()
    bench.show_then_plan(
        "f-a-0", phase="Failed", deleting=bench.now + 30, conditions=disrupted("EvictionByEvictionAPI")
    )
    assert bench.task_code() == -1010


@pytest.mark.parametrize("uid", ["", "other"])
def test_a_pod_that_kubernetes_deleted_before_a_plan_saw_its_end(uid: str) -> None:
    """Its last state counts, and the last state of another Pod of the name does not."""
    bench = running()
    pod = bench.pods["f-a-0"]
    gone = replace(pod, disruption=Disruption("DeletionByPodGC", "PodGC: node no longer exists"))
    if uid:
        bench.tracker.pod_dropped(TASK, replace(gone, identity=replace(pod.identity, uid=uid)), removed=True)
    else:
        bench.pods["f-a-0"] = gone
    bench.drop("f-a-0", removed=True)
    bench.plan()
    text = "" if uid else ": DeletionByPodGC: PodGC: node no longer exists"
    assert (bench.task_code(), diagnostics(bench)) == (-101 if uid else -1011, "Pod was deleted by others" + text)


def being_deleted(*, node: str = "", after: float = 50, **fields: Any) -> Bench:
    """Others delete the Pod of a Task with those fields, and time passes."""
    bench = prepared(role(**fields), role("b"))
    bench.show_then_plan("f-a-0", deleting=bench.now + 30, nodeName=node)
    bench.now += after
    return bench


def test_without_a_timeout_a_pod_is_never_deleted_by_force() -> None:
    bench = being_deleted(after=1_000_000)
    bench.touch("f-a-0")
    bench.idle()
    assert bench.state() is State.DELETING


@pytest.mark.parametrize(("timeout", "grace"), [(0, 30), (10, 30), (60, 30), (60, 0), (600, 30)])
def test_the_timeout_before_a_deletion_by_force_begins_with_the_deletion(timeout: int, grace: int) -> None:
    bench = running(role(podGracefulDeletionTimeoutSec=timeout))
    began, uid = bench.now, bench.pods["f-a-0"].uid
    bench.show("f-a-0", deleting=began + grace, grace=grace)
    # The state is persisted before an action rests on it.
    for _ in range(2):
        assert not bench.plan(write=False).actions
    bench.write()
    while bench.now < began + timeout:
        due = bench.idle().requeue_after
        assert due is not None
        assert 0 < due <= began + timeout - bench.now
        bench.now += due
    force = forced(bench, uid)
    bench.fold(force, Remains("still there"))
    assert bench.state() is State.DELETING
    assert bench.expect(Delete, after=60) == force
    bench.fold(force, Gone())
    # Confirmed by a live read, without a wait for the cache.
    assert bench.state() is State.ATTEMPT_COMPLETED


def test_a_changed_timeout_is_copied_and_persisted_before_it_counts() -> None:
    bench = being_deleted(after=100)
    bench.edit(role(podGracefulDeletionTimeoutSec=50), role("b"))
    assert not bench.plan(write=False).actions
    assert bench.status.attempt.roles[0].pod_graceful_deletion_timeout_sec == 50
    assert bench.tracker.urgency is Urgency.NOW
    assert not bench.plan(write=False).actions
    bench.write()
    assert bench.expect(Delete).force


def test_a_changed_policy_is_copied_and_persisted_before_it_counts() -> None:
    fields: dict[str, Any] = {"podGracefulDeletionTimeoutSec": 50}
    bench = being_deleted(node="n", after=0, **fields)
    assert b"podForceDeletionPolicy" not in encode_status("f", bench.status)
    bench.edit(role(podForceDeletionPolicy="NodeUnreachable", **fields), role("b"))
    bench.now += 100
    assert not bench.plan(write=False).actions
    assert [one.pod_force_deletion_policy for one in bench.status.attempt.roles] == ["NodeUnreachable", None]
    assert bench.tracker.urgency is Urgency.NOW
    bench.write()
    action = bench.expect(Delete)
    assert (action.force, action.if_node_lost, action.node) == (True, True, "n")
    bench.edit_then_plan(role(podForceDeletionPolicy="Always", **fields), role("b"))
    assert b"podForceDeletionPolicy" not in encode_status("f", bench.status)
    action = bench.expect(Delete)
    assert (action.force, action.if_node_lost) == (True, False)


def test_a_policy_of_a_later_version_spares_pods_on_healthy_nodes() -> None:
    bench = prepared(role(podGracefulDeletionTimeoutSec=50), role("b"))
    bench.edit_then_plan(role("b"))
    bench.status.attempt.roles[0].pod_force_deletion_policy = "SomethingNew"
    bench.show_then_plan("f-a-0", deleting=bench.now + 30, nodeName="n")
    assert bench.expect(Delete, after=50).if_node_lost


UNREACHABLE: dict[str, Any] = {"podGracefulDeletionTimeoutSec": 50, "podForceDeletionPolicy": "NodeUnreachable"}


def test_the_node_of_a_pod_that_is_not_forced_is_read_every_half_minute() -> None:
    bench = being_deleted(node="n", **UNREACHABLE)
    action = bench.expect(Delete)
    first = bench.fold(action, NotForced("why"))
    assert [(item.reason, item.message) for item in first.records] == [(RequestReason.WAITING, "why")]
    assert bench.idle().requeue_after == pytest.approx(30)
    # It is slow, and no stall yet.
    assert bench.stall() == ("", "")
    assert bench.expect(Delete, after=30) == action
    assert bench.fold(action, NotForced("why")).records == []
    bench.pass_time(90)
    reason, message = bench.stall()
    assert (reason, message.endswith("still exists (node n): why")) == ("PodNotGone", True)
    bench.fold(action, Gone())
    assert (bench.state(), bench.stall()) == (State.ATTEMPT_COMPLETED, ("", ""))


def test_a_timeout_that_is_removed_forces_nothing() -> None:
    bench = being_deleted(after=0, podGracefulDeletionTimeoutSec=50)
    bench.edit_then_plan(role(podGracefulDeletionTimeoutSec=None), role("b"))
    bench.idle(after=500)


# --- deletion by the controller ---------------------------------------------------------------------------------


def succeeded() -> tuple[Bench, Delete]:
    """A Task whose Pod has succeeded, and the deletion of the Pod."""
    bench = Bench(role())
    bench.pod()
    bench.show_then_plan("f-a-0", phase="Succeeded")
    return bench, bench.expect(Delete)


@pytest.mark.parametrize("result", [Unanswered("reset"), refused(500), refused(403), refused(429)])
def test_a_failed_deletion_is_retried_with_back_off(result: Result) -> None:
    bench, action = succeeded()
    bench.fold(action, result)
    assert bench.state() is State.DELETION_PENDING
    bench.idle()
    assert bench.expect(Delete, 60) == action


def test_a_deletion_that_finds_nothing_counts_as_accepted() -> None:
    bench, action = succeeded()
    bench.fold(action, Gone())
    assert bench.state() is State.DELETION_REQUESTED
    bench.hide("f-a-0")
    bench.plan(write=False)
    assert (bench.state(), bench.task_code()) == (State.ATTEMPT_COMPLETED, 0)


@pytest.mark.parametrize("state", [State.PREPARING, State.CREATION_PENDING])
def test_an_outcome_of_an_earlier_attempt_or_of_another_instance_changes_nothing(state: State) -> None:
    bench = Bench(role(retryPolicy={"maxRetryCount": 5}))
    first = POD.begin(bench)
    if state is State.PREPARING:
        bench.created(first)
        bench.end(code=1)
        bench.plan()
    else:
        bench.fold(first, refused(422))
        bench.plan()
        bench.plan()
    before = (state, 1, None, bench.task().attempt.pod_uid)
    for result in (Created("late"), Exists(POD.ours(bench)), refused(422)):
        bench.fold(first, result)
        task = bench.task()
        assert (task.state, task.attempt.id, bench.task_code(), task.attempt.pod_uid) == before
    for target in (replace(first.target, index=7), replace(first.target, role="z")):
        bench.fold(replace(first, target=target), Created("late"))


def test_a_late_answer_does_not_count_for_another_instance_of_the_task() -> None:
    bench = begun(role(number=1), role("b"))
    first = of_task(bench.plan())
    bench.edit_then_settle(role(number=0), role("b"))
    bench.edit_then_plan(role(number=1), role("b"))
    assert bench.state() is State.CREATION_PENDING
    bench.fold(first, Created("late"))
    assert bench.state() is State.CREATION_PENDING


# --- retry ------------------------------------------------------------------------------------------------------


def test_a_task_is_retried_without_delay_even_after_a_conflict() -> None:
    bench = Bench(role(retryPolicy={"fancyRetryPolicy": True}))
    bench.pod()
    bench.end(code=201)
    task = bench.task()
    assert task.attempt.id == task.retry.total_retried_count == 1
    assert (task.retry.accountable_retried_count, task.retry.retry_delay_sec) == (0, None)
    assert task.state in (State.CREATION_REQUESTED, State.PREPARING)


def test_a_clock_that_is_set_back_does_not_delay_an_immediate_retry() -> None:
    bench = failed_and_gone()
    bench.plan()
    assert bench.state() is State.ATTEMPT_COMPLETED
    bench.now -= 3600
    bench.plan()
    assert (bench.state(), bench.task().attempt.id) == (State.CREATION_PENDING, 1)


@pytest.mark.parametrize("changed", [False, True])
def test_accountable_retries_count_until_the_last_one_by_the_current_policy(changed: bool) -> None:
    bench = prepared(role(retryPolicy={"maxRetryCount": 5 if changed else 2}), role("b"))
    for used in (1,) if changed else (1, 2):
        bench.end(code=1)
        assert bench.task().retry.accountable_retried_count == bench.task().attempt.id == used
    if changed:
        bench.edit(role(retryPolicy={"maxRetryCount": 1}), role("b"))
    bench.end(code=1)
    assert (bench.state(), bench.task().attempt.id) == (State.COMPLETED, 1 if changed else 2)


# --- leaving ----------------------------------------------------------------------------------------------------


def leaving() -> tuple[Bench, Action]:
    """A Task that leaves after its creation has failed, and the live read that confirms its absence."""
    bench = begun(role(), role("b"))
    bench.fold(of_task(bench.plan()), Unanswered("reset"))
    bench.edit_then_plan(role(number=0), role("b"))
    bench.now += 60
    confirmation = of_task(bench.plan())
    assert isinstance(confirmation, ConfirmNone)
    assert confirmation.controller_uid == bench.status.attempt.configmap_uid
    return bench, confirmation


def test_the_absence_of_a_leaving_task_without_a_pod_is_confirmed_by_a_live_read() -> None:
    bench, confirmation = leaving()
    bench.fold(confirmation, Remains("it is there"))
    assert bench.state() is State.CREATION_PENDING
    bench.now += 60
    assert confirmation in bench.plan().actions
    bench.fold(confirmation, Gone())
    assert (bench.state(), bench.task_code()) == (State.ATTEMPT_COMPLETED, -230)


def test_a_live_read_of_another_configmaps_pods_does_not_confirm_the_absence() -> None:
    """The status of another controller, without the ConfigMap, is taken over."""
    bench = accepted(role(), role("b"))
    bench.edit_then_plan(role(number=0), role("b"))
    assert bench.task().is_leaving
    bench.fold(ConfirmNone(Target(Kind.POD, "f-a-0", role="a", index=0), "configmap-uid"), Gone())
    assert bench.state() is State.CREATION_PENDING


def test_a_pod_under_the_name_of_a_leaving_task_is_deleted_once_the_status_is_confirmed() -> None:
    bench, confirmation = leaving()
    found = replace(POD.ours(bench), annotations=None)
    bench.fold(confirmation, Exists(found))
    deletion = of_task(bench.plan())
    assert deletion == Delete(confirmation.target, "lost")
    assert isinstance(deletion, Delete)
    assert deletion.unrecorded
    bench.fold(deletion, Accepted())
    for result in (Exists(replace(found, deleting=True)), Gone()):
        assert bench.state() is State.CREATION_PENDING
        bench.now += 60
        assert confirmation in bench.plan().actions
        bench.fold(confirmation, result)
    assert bench.task_code() == -230


def test_a_leaving_task_that_runs_is_stopped_gracefully_once_that_is_persisted() -> None:
    bench = running(role(), role("b"))
    bench.edit(role(number=0), role("b"))
    for _ in range(2):
        assert not bench.plan(write=False).actions
        assert bench.task().is_leaving
        text = "User has requested to delete the Task by Framework ScaleDown"
        assert (bench.task_code(), diagnostics(bench)) == (-230, text)
    bench.write()
    assert not bench.expect(Delete).force
    assert bench.state() is State.DELETION_PENDING


@pytest.mark.parametrize("state", [State.RUNNING, State.CREATION_PENDING])
def test_a_leaving_task_that_another_controller_marked_without_a_completion_is_stopped(state: State) -> None:
    bench = Bench(role(), role("b"), checked=False)
    bench.attempt()
    if state is State.RUNNING:
        bench.run_all()
    task = bench.task()
    assert task.state is state
    task.is_leaving = True
    task.encoded = None
    bench.restart()
    bench.edit(role(number=0), role("b"))
    assert not [action for action in bench.plan().actions if action.target.role == "a"]
    assert bench.task_code() == -230
    bench.settle()
    assert [len(item.tasks) for item in bench.status.attempt.roles] == [0, 1]


def test_a_leaving_task_that_has_ended_keeps_its_completion_and_is_not_retried() -> None:
    bench = prepared(role(**AT_ONCE), role("b"))
    bench.show_then_plan("f-a-0", phase="Failed")
    before = bench.task().attempt.completion_status
    bench.edit_then_plan(role(number=0, **AT_ONCE), role("b"))
    assert bench.task().is_leaving
    assert bench.task().attempt.completion_status == before
    bench.settle()
    assert all(item.name != "a" or not item.tasks for item in bench.status.attempt.roles)
