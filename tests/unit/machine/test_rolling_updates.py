"""Rolling updates: which Tasks are old, which are replaced and when, and the status during it."""

from __future__ import annotations

from typing import Any, Final

import orjson
import pytest

from frameworkcontroller.api import names
from frameworkcontroller.api.status import State
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.machine.kernel.actions import ConfirmGone, Delete
from frameworkcontroller.machine.kernel.exchanges import Gone
from frameworkcontroller.machine.kernel.model import Urgency
from frameworkcontroller.machine.parts.rollout.availability import RoleTasks, Watched
from tests.support.bench import Bench, role

Json = dict[str, Any]
ALWAYS: Final = {"maxRetryCount": -2}


def pod(image: str = "v1", **spec: Any) -> Json:
    return {"spec": {"containers": [{"name": "main", "image": image}], **spec}}


def rolled(number: int = 4, image: str = "v1", *, seconds: int = 0, **rolling: Any) -> Json:
    """A role with RollingUpdate."""
    strategy: Json = {"type": "RollingUpdate", **({"rollingUpdate": rolling} if rolling else {})}
    made = role("a", number, pod=pod(image), retryPolicy=ALWAYS)
    return {**made, "updateStrategy": strategy, **({"minReadySeconds": seconds} if seconds else {})}


def plain(number: int = 4, image: str = "v1") -> Json:
    return role("a", number, pod=pod(image), retryPolicy=ALWAYS)


def ready(bench: Bench, *indexes: int, is_ready: bool = True, since: float | None = None) -> None:
    """The Pods of these Tasks (none: of all) run, and are ready or not."""
    condition = {
        "type": "Ready",
        "status": "True" if is_ready else "False",
        "lastTransitionTime": format_time(int(bench.now if since is None else since)),
    }
    for index in indexes or range(len(bench.status.attempt.roles[0].tasks)):
        name = f"f-a-{index}"
        if name in bench.pods:
            bench.show(name, phase="Running", podIP="10.0.0.1", nodeName="node-1", conditions=[condition])
    bench.plan()


def started(*roles: Json) -> Bench:
    """All Pods run and are ready."""
    bench = Bench(*roles)
    bench.all_pods()
    ready(bench)
    return bench


def images(bench: Bench) -> str:
    """The images of the Pods that the cache shows, by index."""
    return " ".join(bench.bodies[name]["spec"]["containers"][0]["image"] for name in sorted(bench.pods))


def attempts(bench: Bench) -> list[int]:
    return [task.attempt.id for task in bench.status.attempt.roles[0].tasks]


def condition(bench: Bench, kind: str) -> tuple[str, str]:
    """Status and message, empty without the condition."""
    found = (one for one in bench.status.conditions if one.type == kind)
    return next(((one.status, one.message) for one in found), ("", ""))


def counts(bench: Bench) -> tuple[int | None, int | None]:
    found = bench.status.attempt.roles[0]
    return found.ready_task_count, found.updated_task_count


# --- which Tasks are due: pure --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "old", "down", "young", "limit", "partition", "due"),
    [
        # Nothing is old.
        (4, "", "", "", 1, 0, []),
        # From the highest index down, one by one, or several.
        (4, "0123", "", "", 1, 0, [3]),
        (4, "0123", "", "", 2, 0, [3, 2]),
        (4, "012", "", "", 9, 0, [2, 1, 0]),
        # One is not available: the updated one, or one that is missing.
        (4, "012", "3", "", 1, 0, []),
        (4, "012", "3", "", 2, 0, [2]),
        (4, "012", "", "3", 1, 0, []),
        # An old one that is not ready costs nothing, and goes first.
        (4, "0123", "1", "", 1, 0, [1]),
        (4, "0123", "1", "", 2, 0, [1, 3]),
        (4, "0123", "0123", "", 1, 0, [3]),
        (4, "0123", "0123", "", 2, 0, [3, 2]),
        # But not while as many as may be are between two templates.
        (4, "013", "12", "", 1, 0, []),
        (4, "012", "13", "", 1, 0, []),
        (4, "012", "13", "", 2, 0, [1]),
        # One that is ready, but not long enough, is not available, and still serves.
        (4, "0123", "", "3", 1, 0, [3]),
        (4, "0123", "", "0", 1, 0, []),
        (4, "0123", "", "0123", 1, 0, []),
        (4, "0123", "0", "3", 1, 0, [0]),
        # Below the partition nothing is old, and Tasks there that are not available count.
        (4, "0123", "", "", 4, 2, [3, 2]),
        (4, "0123", "", "", 4, 9, []),
        (4, "01", "", "", 4, 2, []),
        (4, "0123", "0", "", 1, 2, []),
        (4, "0123", "0", "", 2, 2, [3]),
    ],
)
def test_due(number: int, old: str, down: str, young: str, limit: int, partition: int, due: list[int]) -> None:
    """``old``: indexes. ``down``: whose Pods are not ready. ``young``: those not long enough."""
    tasks = RoleTasks(Watched("hash", 0))
    tasks.old = set(map(int, old))
    for index in range(number):
        if str(index) not in down:
            tasks.ready[index] = None  # type: ignore[assignment]
            if str(index) not in young:
                tasks.available.add(index)
    assert tasks.due(number - len(tasks.available), limit, partition) == due


@pytest.mark.parametrize(
    ("unavailable", "number", "limit"),
    [(1, 4, 1), (3, 2, 3), ("25%", 8, 2), ("25%", 3, 1), ("1%", 4, 1), ("100%", 4, 4)],
)
def test_limit(unavailable: int | str, number: int, limit: int) -> None:
    found = Bench(rolled(number, maxUnavailable=unavailable)).framework.spec.task_roles[0].rolling_update
    assert found is not None
    assert found.limit(number) == limit


# --- a rollout ------------------------------------------------------------------------------------------------------


def test_a_changed_template_reaches_one_task_after_the_other() -> None:
    bench = started(rolled())
    assert counts(bench) == (4, 4)
    assert (condition(bench, "Available")[0], condition(bench, "Updated")[0]) == ("True", "True")
    bench.edit_then_settle(rolled(image="v2"))
    assert images(bench) == "v1 v1 v1 v2"
    assert condition(bench, "Updated") == ("False", "TaskRole a: 1 of 4 Tasks are updated; a[3] is not ready")
    assert condition(bench, "Available")[0] == "True"
    for number in (2, 1, 0):
        ready(bench, number + 1)
        bench.settle()
        assert images(bench) == " ".join(["v1"] * number + ["v2"] * (4 - number))
    assert condition(bench, "Updated") == ("False", "TaskRole a: 4 of 4 Tasks are updated; a[0] is not ready")
    ready(bench, 0)
    bench.settle()
    assert condition(bench, "Updated") == ("True", "")
    assert attempts(bench) == [1, 1, 1, 1]
    assert counts(bench) == (4, 4)
    assert [task.retry.accountable_retried_count for task in bench.status.attempt.roles[0].tasks] == [0] * 4


def test_the_decision_is_persisted_before_the_pod_is_deleted() -> None:
    bench = started(rolled())
    bench.edit(rolled(image="v2"))
    made = bench.plan(write=False)
    assert made.actions == []
    assert bench.task_codes() == [None, None, None, -242]
    assert bench.plan(write=False).actions == []
    bench.write()
    action = bench.only(bench.plan())
    assert isinstance(action, Delete)
    assert action.target.name == "f-a-3"


def test_a_retry_at_once_that_no_policy_counts() -> None:
    never = {**rolled(), "task": {**rolled()["task"], "retryPolicy": {"maxRetryCount": 0}}}
    bench = started(never)
    task = {**never["task"], "pod": pod("v2")}
    bench.edit_then_settle({**never, "task": task})
    assert attempts(bench) == [0, 0, 0, 1]
    assert bench.task("a", 3).state is State.PREPARING


def test_a_task_that_fails_meanwhile_is_updated() -> None:
    bench = started(rolled())
    bench.edit_then_settle(rolled(image="v2"))
    bench.end("f-a-0", 1)
    assert images(bench) == "v2 v1 v1 v2"
    ready(bench, 3)
    bench.settle()
    # The one that has failed is not ready yet.
    assert images(bench) == "v2 v1 v1 v2"
    ready(bench, 0)
    bench.settle()
    assert images(bench) == "v2 v1 v2 v2"


def test_a_bad_template_stops_and_can_be_taken_back() -> None:
    bench = started(rolled(maxUnavailable=2))
    bench.edit_then_settle(rolled(image="bad", maxUnavailable=2))
    ready(bench, 2, 3, is_ready=False)
    bench.settle()
    assert images(bench) == "v1 v1 bad bad"
    assert condition(bench, "Updated") == ("False", "TaskRole a: 2 of 4 Tasks are updated; a[3] is not ready")
    bench.edit_then_settle(rolled(maxUnavailable=2))
    assert images(bench) == "v1 v1 v1 v1"
    assert attempts(bench) == [0, 0, 2, 2]
    ready(bench)
    bench.settle()
    assert condition(bench, "Updated")[0] == "True"


def test_a_task_that_fails_or_is_new_is_no_rollout() -> None:
    bench = started(rolled(3))
    bench.edit(rolled(4))
    bench.end("f-a-1", 1)
    assert counts(bench)[0] == 2
    assert (condition(bench, "Available")[0], condition(bench, "Updated")[0]) == ("False", "True")
    bench.restart()
    bench.plan()
    assert condition(bench, "Updated")[0] == "True"
    bench.edit(rolled(4, "v2"))
    bench.plan()
    assert condition(bench, "Updated")[0] == "False"


def test_a_template_that_fails_without_a_retry_stops() -> None:
    bench = started({**rolled(), "task": {"pod": pod(), "retryPolicy": {"maxRetryCount": 0}}})
    bench.edit_then_settle({**rolled(), "task": {"pod": pod("bad"), "retryPolicy": {"maxRetryCount": 0}}})
    bench.end("f-a-3", 1)
    ready(bench)
    bench.settle()
    assert images(bench) == "v1 v1 v1"
    assert condition(bench, "Updated")[1].endswith("; a[3] has failed, and is not retried")


def test_tasks_that_have_succeeded_are_not_missed() -> None:
    bench = started({**rolled(), "task": {"pod": pod(), "retryPolicy": {"maxRetryCount": 0}}})
    bench.end("f-a-1")
    bench.edit_then_settle({**rolled(), "task": {"pod": pod("v2"), "retryPolicy": {"maxRetryCount": 0}}})
    for _ in range(4):
        ready(bench)
        bench.settle()
    assert images(bench) == "v2 v2 v2"
    assert bench.task("a", 1).attempt.id == 0
    assert condition(bench, "Updated")[0] == "True"


def test_partition() -> None:
    bench = started(rolled(partition=2))
    bench.edit_then_settle(rolled(image="v2", partition=2))
    for _ in range(3):
        ready(bench)
        bench.settle()
    assert images(bench) == "v1 v1 v2 v2"
    assert counts(bench) == (4, 2)
    assert condition(bench, "Updated")[0] == "True"
    bench.edit_then_settle(rolled(image="v2", partition=1))
    assert images(bench) == "v1 v2 v2 v2"


def test_rescales_during_a_rollout() -> None:
    bench = started(rolled())
    bench.edit_then_settle(rolled(image="v2"))
    bench.edit_then_settle(rolled(5, image="v2"))
    assert images(bench) == "v1 v1 v1 v2 v2"
    ready(bench, 3)
    bench.settle()
    # The new one is not ready.
    assert images(bench) == "v1 v1 v1 v2 v2"
    bench.edit_then_settle(rolled(3, image="v2"))
    assert images(bench) == "v1 v1 v2"


def test_a_template_that_counts_tasks_is_not_changed_by_a_rescale() -> None:
    counting = pod("{{FC_TASKROLE_TASK_NUMBER}}")
    bench = started({**rolled(2), "task": {"pod": counting, "retryPolicy": ALWAYS}})
    bench.spec["network"] = {}
    bench.edit_then_settle({**rolled(3), "task": {"pod": counting, "retryPolicy": ALWAYS}})
    ready(bench)
    bench.settle()
    assert attempts(bench) == [0, 0, 0]


def test_the_order_of_keys_is_no_change() -> None:
    bench = started(rolled(2))
    body = rolled(2)
    body["task"]["pod"]["spec"]["containers"] = [{"image": "v1", "name": "main"}]
    bench.edit_then_settle(body)
    assert attempts(bench) == [0, 0]


def test_nothing_is_replaced_while_the_framework_is_to_stop() -> None:
    bench = started(rolled())
    bench.edit_then_plan(rolled(image="v2"), suspend=True)
    assert set(bench.task_codes()) == {-220}


# --- a restart, and the time of readiness ---------------------------------------------------------------------------


def test_a_restart_at_each_step_changes_nothing() -> None:
    bench = started(rolled())
    bench.edit(rolled(image="v2"))
    for number in (3, 2, 1, 0):
        for _ in range(12):
            bench.restart()
            made = bench.plan()
            names_of = [action.target.name for action in made.actions]
            assert set(names_of) <= {f"f-a-{number}"}
            for action in made.actions:
                if isinstance(action, Delete):
                    bench.hide(action.target.name)
                elif isinstance(action, ConfirmGone):
                    bench.fold(action, Gone())
                    bench.idle()
                else:
                    bench.created(action)
        assert bench.bodies[f"f-a-{number}"]["spec"]["containers"][0]["image"] == "v2"
        ready(bench, number)
    assert attempts(bench) == [1, 1, 1, 1]


def test_ready_for_long_enough() -> None:
    bench = started(rolled(seconds=60))
    assert counts(bench) == (0, 4)
    assert condition(bench, "Available") == ("False", "TaskRole a: 0 of 4 Tasks are ready, 3 are needed")
    made = bench.pass_time(59)
    assert counts(bench)[0] == 0
    assert made.requeue_after is not None
    bench.pass_time(made.requeue_after)
    assert counts(bench)[0] == 4
    assert condition(bench, "Available")[0] == "True"
    bench.edit_then_settle(rolled(image="v2", seconds=60))
    ready(bench, 3)
    bench.pass_time(50)
    # A break, which one event may show together with its end.
    ready(bench, 3, since=bench.now)
    bench.pass_time(50)
    bench.settle()
    assert images(bench) == "v1 v1 v1 v2"
    bench.pass_time(10)
    bench.settle()
    assert images(bench) == "v1 v1 v2 v2"


def test_a_restart_keeps_the_time() -> None:
    bench = started(rolled(seconds=60))
    bench.pass_time(40)
    bench.restart()
    bench.plan()
    assert counts(bench)[0] == 0
    bench.pass_time(20)
    assert counts(bench)[0] == 4


def test_a_kubelet_whose_clock_is_behind() -> None:
    bench = Bench(rolled(1, seconds=60))
    bench.all_pods()
    ready(bench, is_ready=False)
    bench.pass_time(30)
    ready(bench, since=bench.now - 3600)
    assert counts(bench)[0] == 0
    bench.pass_time(59)
    assert counts(bench)[0] == 0
    bench.pass_time(1)
    assert counts(bench)[0] == 1


def test_a_kubelet_whose_clock_is_ahead() -> None:
    bench = Bench(rolled(1, seconds=60))
    bench.all_pods()
    ready(bench, since=bench.now + 3600)
    bench.pass_time(60)
    assert counts(bench)[0] == 1


# --- RollingUpdate is switched on and off ---------------------------------------------------------------------------


def test_without_it_nothing_is_added() -> None:
    bench = started(plain())
    body = orjson.loads(orjson.dumps(bench.bodies["f-a-0"]))
    assert names.TEMPLATE_HASH not in body["metadata"]["labels"]
    assert bench.task().attempt.template_hash == ""
    assert counts(bench) == (None, None)
    assert {one.type for one in bench.status.conditions} == {"Running", "Completed"}
    bench.edit_then_settle(plain(image="v2"))
    assert attempts(bench) == [0, 0, 0, 0]


def test_min_ready_seconds_alone() -> None:
    bench = started({**plain(), "minReadySeconds": 10})
    bench.pass_time(10)
    assert counts(bench) == (4, None)
    assert condition(bench, "Available")[0] == "True"
    assert condition(bench, "Updated") == ("", "")
    ready(bench, 1, is_ready=False)
    # Without a rolling update, none is spared.
    assert condition(bench, "Available")[0] == "False"
    assert bench.task().attempt.template_hash == ""


def test_switching_it_on_replaces_nothing() -> None:
    bench = started(plain())
    bench.edit_then_settle(rolled())
    assert attempts(bench) == [0, 0, 0, 0]
    assert counts(bench) == (4, 4)
    assert condition(bench, "Updated")[0] == "True"
    bench.edit_then_settle(rolled(image="v2"))
    assert attempts(bench) == [0, 0, 0, 1]


def test_switching_it_on_together_with_another_template() -> None:
    bench = started(plain())
    bench.edit_then_settle(rolled(image="v2"))
    assert attempts(bench) == [0, 0, 0, 1]
    assert images(bench) == "v1 v1 v1 v2"
    bench.restart()
    ready(bench)
    bench.settle()
    assert images(bench) == "v1 v1 v2 v2"


def test_switching_it_on_while_no_controller_runs() -> None:
    bench = started(plain())
    bench.edit(rolled(image="v2"))
    bench.restart()
    bench.settle()
    # It does not know whether they differ.
    assert attempts(bench) == [0, 0, 0, 0]
    bench.edit_then_settle(rolled(image="v3"))
    assert attempts(bench) == [0, 0, 0, 1]


def test_a_pod_that_was_created_before_and_is_seen_later() -> None:
    bench = Bench(plain(1))
    bench.pod(show=False)
    bench.edit_then_plan(rolled(1, image="v2"))
    bench.show("f-a-0")
    bench.settle()
    assert images(bench) == "v2"


def test_a_label_that_a_webhook_removes_causes_one_restart_at_most() -> None:
    bench = Bench(plain(1))
    bench.all_pods()
    bench.edit(rolled(1, image="v2"))
    for _ in range(5):
        bench.settle()
        for body in bench.bodies.values():
            body["metadata"]["labels"].pop(names.TEMPLATE_HASH, None)
        ready(bench)
    assert attempts(bench) == [1]


def test_switching_it_off_stops_the_rollout() -> None:
    bench = started(rolled())
    bench.edit_then_settle(rolled(image="v2"))
    bench.edit_then_settle(plain(image="v2"))
    ready(bench)
    bench.settle()
    assert images(bench) == "v1 v1 v1 v2"
    assert counts(bench) == (None, None)
    assert condition(bench, "Updated") == condition(bench, "Available") == ("", "")
    bench.edit_then_settle(rolled(image="v2"))
    assert images(bench) == "v1 v1 v2 v2"


def test_switching_it_off_while_no_controller_runs() -> None:
    bench = started(rolled())
    bench.edit(plain())
    bench.restart()
    bench.settle()
    assert counts(bench) == (None, None)


# --- the status -----------------------------------------------------------------------------------------------------


def test_counts_are_written_with_others_or_later() -> None:
    bench = started(rolled())
    ready(bench, 0, is_ready=False)
    bench.write()
    bench.show("f-a-1", conditions=[{"type": "Ready", "status": "True"}])
    before = bench.writes
    ready(bench, 0)
    assert bench.writes == before + 1
    bench.show("f-a-0", conditions=[{"type": "Ready", "status": "False"}])
    bench.plan(write=False)
    assert bench.tracker.urgency is Urgency.LATER
    # No action waits for it.
    assert bench.tracker.is_clean


def test_an_invalid_spec_keeps_the_conditions() -> None:
    bench = started(rolled())
    before = condition(bench, "Available"), condition(bench, "Updated"), counts(bench)
    bench.spoil()
    for _ in range(2):
        bench.settle()
        assert (condition(bench, "Available"), condition(bench, "Updated"), counts(bench)) == before
        bench.restart()


def test_the_next_attempt_of_the_framework() -> None:
    bench = started(rolled())
    bench.edit_then_settle(suspend=True)
    for name in list(bench.pods):
        bench.hide(name)
    bench.settle()
    assert counts(bench) == (0, 0)
    assert (condition(bench, "Available")[0], condition(bench, "Updated")[0]) == ("False", "False")
    bench.edit(rolled(image="v2"), suspend=False)
    bench.settle()
    assert images(bench) == "v2 v2 v2 v2"
    ready(bench)
    assert (condition(bench, "Available")[0], condition(bench, "Updated")[0]) == ("True", "True")
