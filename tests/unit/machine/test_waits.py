"""Every reason to wait has a sentence in each place where people look for it."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from io import StringIO
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from frameworkcontroller.api.codec import encode_status
from frameworkcontroller.api.status import State
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.commands.output import console
from frameworkcontroller.controller.statecounts import WAITS, StateCounts
from frameworkcontroller.machine.headline import set_headline
from frameworkcontroller.machine.kernel.actions import Action, Create
from frameworkcontroller.machine.kernel.exchanges import Result
from frameworkcontroller.machine.kernel.model import NotListed, Plan, Record, SnapshotTrigger
from frameworkcontroller.machine.kernel.reasons import EventPolicy, Reason, RequestReason
from frameworkcontroller.machine.lifereasons import LifeReason
from frameworkcontroller.machine.parts.budgets.disruptionbudgets import BudgetReason
from frameworkcontroller.machine.parts.claims.claimagenda import ClaimReason
from frameworkcontroller.machine.parts.dependencies.dependencies import DependencyReason
from frameworkcontroller.machine.parts.gangs.gangstate import GangReason
from frameworkcontroller.machine.parts.history.archiving import HistoryReason
from frameworkcontroller.machine.parts.kueue.queueing import QueueReason
from frameworkcontroller.machine.parts.notice.checkpointnotice import NoticeReason
from frameworkcontroller.machine.parts.service.hostservice import ServiceReason
from frameworkcontroller.views.diagnosis import read_view
from frameworkcontroller.views.summary import Summary, summarize
from frameworkcontroller.views.tree import framework_tree
from tests.support.bench import Bench, limits, refused, role
from tests.support.queuedbench import QueuedBench


@dataclass
class Watched(Bench):
    """A bench that keeps all records."""

    records: list[Record] = field(default_factory=list)

    def __init__(self, *roles: dict[str, Any], **spec: Any) -> None:
        super().__init__(*roles, **spec)
        self.records = []

    def plan(self, *, write: bool = True) -> Plan:
        made = super().plan(write=write)
        self.records += made.records
        return made

    def fold(self, action: Action, result: Result, *, write: bool = True) -> Plan:
        made = super().fold(action, result, write=write)
        self.records += made.records
        return made

    def body(self) -> dict[str, Any]:
        """The Framework as clients read it."""
        metadata: dict[str, Any] = {"name": "f", "namespace": "ns", "creationTimestamp": format_time(int(self.now))}
        if self.deleting:
            metadata["deletionTimestamp"] = format_time(int(self.now))
        set_headline(self.tracker, self.status, self.framework)
        status = orjson.loads(encode_status("f", self.status))
        return {"metadata": metadata, "spec": self.spec, "status": status}


def deleted() -> Watched:
    bench = Watched(role(), executionType="Create")
    bench.deleting = True
    bench.plan()
    bench.plan()
    return bench


def not_started() -> Watched:
    bench = Watched(role(), executionType="Create")
    bench.plan()
    return bench


def held() -> Watched:
    bench = Watched(role(), executionType="Create", suspend=True)
    bench.plan()
    return bench


def suspended() -> Watched:
    bench = Watched(role(), suspend=True)
    bench.plan()
    return bench


def stopped() -> Watched:
    bench = Watched(role())
    bench.attempt()
    bench.edit_then_plan(executionType="Stop")
    return bench


def refused_pod() -> Watched:
    bench = Watched(role())
    bench.attempt()
    bench.refuse(bench.only(bench.plan()), refused(500, "the webhook is down"))
    bench.plan()
    return bench


def refused_configmap() -> Watched:
    bench = Watched(role())
    bench.plan()
    bench.refuse(bench.only(bench.plan()), refused(500, "the webhook is down"))
    bench.plan()
    return bench


def refused_service() -> Watched:
    bench = Watched(role(), network={})
    bench.plan()
    bench.refuse(bench.only(bench.plan()), refused(403, "may not create services"))
    bench.plan()
    return bench


def refused_budget() -> Watched:
    bench = Watched({**role(), "disruptionBudget": {"maxUnavailable": 1}})
    bench.plan()
    bench.refuse(bench.only(bench.plan()), refused(403, "no permission"))
    bench.plan()
    return bench


def unplaced() -> Watched:
    bench = Watched(role(), scheduling={"schedulingPolicy": {"gang": {}}})
    bench.all_pods()
    unschedulable = {"type": "PodGroupInitiallyScheduled", "status": "False", "message": "0/3 nodes are available"}
    bench.show_then_plan("f", conditions=[unschedulable])
    return bench


def unlisted_claims() -> Watched:
    template = {"metadata": {"name": "data"}}
    bench = Watched({**role(), "volumeClaimTemplates": [template]})
    bench.attempt()
    bench.not_listed = NotListed("403: may not list claims")
    for _ in range(2):
        bench.plan()
    return bench


def doubted() -> Watched:
    bench = Watched(role(number=2, retryPolicy={"maxRetryCount": 3}))
    bench.all_pods()
    bench.now += 60
    bench.show_then_plan("f-a-0", deleting=bench.now)
    bench.hide("f-a-0")
    while not (made := bench.plan()).requeue_after or bench.tracker.is_busy:
        assert not any(isinstance(action, Create) for action in made.actions)
    return bench


class Queued(QueuedBench, Watched):
    """A bench of a Framework in a queue."""

    def __init__(self, *roles: dict[str, Any]) -> None:
        super().__init__(*roles)
        self.records = []


def queued() -> Watched:
    bench = Queued(role())
    bench.enter()
    bench.plan()
    return bench


def added() -> Watched:
    bench = Queued(role())
    bench.begin()
    bench.settle()
    bench.edit_then_settle(role(number=2))
    return bench


def dependent() -> Watched:
    bench = Watched(role("a"), {**role("b"), "dependsOn": [{"name": "a", "status": "Ready"}]})
    bench.attempt()
    for _ in range(2):
        bench.plan()
    return bench


def task_retried() -> Watched:
    bench = Watched(role(retryPolicy={"maxRetryCount": 9, "backoff": {"baseSeconds": 40, "maxSeconds": 360}}))
    bench.all_pods()
    bench.run()
    bench.end(code=1, after=5)
    return bench


def framework_retried() -> Watched:
    bench = Watched(role(failed=1), retryPolicy={"maxRetryCount": 9, "backoff": {"baseSeconds": 70, "maxSeconds": 360}})
    bench.all_pods()
    bench.run()
    bench.end(code=1, after=5)
    return bench


def unarchived() -> Watched:
    limit = replace(limits(), history=frozenset(SnapshotTrigger), history_blocks=True)
    bench = Watched(role(failed=1), retryPolicy={"maxRetryCount": 9}, limit=limit)
    bench.held = True
    bench.all_pods()
    bench.run()
    bench.end(code=1)
    bench.plan()
    bench.pass_time(3)
    return bench


def notified() -> Watched:
    bench = Watched(role(), checkpointGraceSeconds=300)
    bench.run_all()
    bench.edit_then_settle(suspend=True)
    return bench


@dataclass(frozen=True)
class Row:
    """A reason to wait. ``condition``, ``event``, ``status``, ``list``: the text in each place; "" for nothing."""

    reason: Reason
    make: Callable[[], Watched]
    condition: str
    event: str
    status: str
    list: str


CREATE = "spec.executionType is Create"
HELD = "spec.executionType is Create, and spec.suspend is true"
WEBHOOK = "Cannot create Pod f-a-0: 500: the webhook is down"
TASK = "TaskAttempt 1 of a[0] starts at {at}, 40s after the end with 1 ContainerUnrecognizedFailed"
FRAMEWORK = "FrameworkAttempt 1 starts at {at}, 70s after the end with 1 ContainerUnrecognizedFailed"

NO_SERVICE = "its Service f does not exist yet"
NO_CLAIM = "PersistentVolumeClaim data-f-a-0 cannot be looked for"
UNPLACED = "PodGroup f is not placed: 0/3 nodes are available"
NO_CLAIMS = "Cannot list PersistentVolumeClaims, which volumeClaimTemplates need: 403: may not list claims"
NO_BUDGET = "its PodDisruptionBudget f-a does not exist yet"
NO_PERMISSION = "Cannot create PodDisruptionBudget f-a: 403: no permission"
FORBIDDEN = "Cannot create Service f: 403: may not create services"

QUEUE = "the Framework waits in Kueue's LocalQueue team-a"
COUNT = "TaskRole a has quota for 1 of its Tasks at once"

EXITED = "a[0] on node-1: main exited with 1"

NOT_AT_ONCE = (
    RequestReason.WAITING,
    LifeReason.RELISTING,
    ServiceReason.PENDING,
    BudgetReason.PENDING,
    HistoryReason.PENDING,
)
"""Another process has to find out first."""

UNARCHIVED = "the history has not yet stored the attempts to be forgotten"

ROWS = (
    # The object itself says it, and no status is written for it.
    Row(LifeReason.DELETING, deleted, "", "", "is being deleted", "being deleted"),
    Row(LifeReason.NOT_STARTED, not_started, *[CREATE] * 4),
    Row(LifeReason.NOT_STARTED, held, *[HELD] * 4),
    Row(LifeReason.SUSPENDED, suspended, *["spec.suspend is true"] * 4),
    Row(RequestReason.WAITING, refused_pod, *[WEBHOOK] * 4),
    Row(RequestReason.WAITING, refused_configmap, *["the webhook is down"] * 4),
    Row(ServiceReason.PENDING, refused_service, NO_SERVICE, NO_SERVICE, FORBIDDEN, FORBIDDEN),
    Row(BudgetReason.PENDING, refused_budget, NO_BUDGET, NO_BUDGET, NO_PERMISSION, NO_PERMISSION),
    Row(GangReason.PENDING, unplaced, *[UNPLACED] * 4),
    Row(ClaimReason.PENDING, unlisted_claims, NO_CLAIM, NO_CLAIM, NO_CLAIMS, NO_CLAIMS),
    Row(HistoryReason.PENDING, unarchived, UNARCHIVED, UNARCHIVED, UNARCHIVED, EXITED),
    Row(QueueReason.QUOTA_PENDING, queued, QUEUE, QUEUE, *["Kueue has not looked at the Workload yet"] * 2),
    Row(QueueReason.QUOTA_COUNT, added, *[COUNT] * 4),
    # Over after half a second.
    Row(LifeReason.RELISTING, doubted, "", "", "Pending", ""),
    Row(DependencyReason.PENDING, dependent, *["TaskRole b waits until TaskRole a is Ready"] * 4),
    Row(
        LifeReason.FRAMEWORK_RETRY_SCHEDULED, framework_retried,
        FRAMEWORK, "starts in 70s, at {at}", "is retried in 1m10s", f"retry 1 of 9 in 70 s after {EXITED}",
    ),
    # Its Task runs.
    Row(NoticeReason.PENDING, notified, "", *["waits before the suspension, until 2023-11-14T22:18:20Z"] * 3),
    Row(LifeReason.TASK_RETRY_SCHEDULED, task_retried, TASK, "TaskAttempt 1 follows 40s later",
        *[f"retry 1 in 40 s after {EXITED}"] * 2,
    ),
)  # fmt: skip


def test_no_reason_to_wait_is_forgotten() -> None:
    # The end of an attempt is a wait for the rest of a plan.
    assert {row.reason for row in ROWS} == {*WAITS} - {LifeReason.ATTEMPT_ENDS}


def summary(bench: Watched) -> Summary:
    return summarize(bench.body())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.reason}-{row.make.__name__}")
def test_why_nothing_runs(row: Row) -> None:
    bench = row.make()
    delay = bench.status.retry.retry_delay_sec or bench.task().retry.retry_delay_sec or 0
    at = format_time(int(bench.now) + delay)
    conditions = {one.type: one for one in bench.status.conditions}
    shown = " ".join(
        one.message.partition("waits: ")[2] if one.type == "Running" else one.message
        for one in (conditions["Running"], conditions.get("Stalled"))
        if one is not None
    )
    assert row.condition.format(at=at) in shown
    assert bool(shown.strip()) == bool(row.condition)
    events = [one.message for one in bench.records if one.reason.event is not EventPolicy.NEVER]
    assert any(row.event.format(at=at) in text for text in events) or not row.event
    assert len(events) == len(set(events))
    (out := console(text := StringIO())).width = 300
    out.print(framework_tree(read_view(bench.body(), {}), bench.now))
    assert row.status.format(at=at) in text.getvalue()
    one = summary(bench)
    assert row.list.format(at=at) in f"{one.word}; {one.message}"
    assert not one.phase.is_final
    counts = StateCounts()
    counts.update("ns/f", cast("Any", SimpleNamespace(tracker=bench.tracker, quarantined=False)))
    assert {reason for reason, number in counts.waiting.items() if number} == {row.reason}


@pytest.mark.parametrize(
    "row",
    [row for row in ROWS if row.reason not in NOT_AT_ONCE],
    ids=lambda row: row.reason,
)
def test_another_process_says_the_same_and_writes_nothing(row: Row) -> None:
    bench = row.make()
    bench.settle() if row.reason is not DependencyReason.PENDING else bench.plan()
    before, writes = [*bench.status.conditions], bench.writes
    bench.records.clear()
    bench.restart()
    bench.listed = bench.now
    for _ in range(3):
        bench.plan()
    assert (bench.status.conditions, bench.writes) == (before, writes)
    assert row.reason in bench.tracker.holds.waits()
    assert [one.reason for one in bench.records if one.reason in WAITS] == []


def test_the_end_of_an_attempt_ends_all_waits() -> None:
    bench = stopped()
    assert bench.tracker.is_completing
    assert not bench.tracker.holds.waits()
    waiting = dependent()
    waiting.edit(executionType="Stop")
    waiting.plan()
    assert not waiting.tracker.holds.waits()
    assert waiting.status.conditions[0].message == "FrameworkAttempt 0"


def test_while_a_task_runs_the_back_off_of_another_is_not_shown() -> None:
    backoff = {"baseSeconds": 40, "maxSeconds": 360}
    bench = Watched(role(number=2, retryPolicy={"maxRetryCount": 9, "backoff": backoff}))
    bench.all_pods()
    bench.run("f-a-0")
    bench.run("f-a-1")
    bench.end("f-a-0", code=1)
    assert bench.tracker.holds.waits().keys() == {LifeReason.TASK_RETRY_SCHEDULED}
    assert "waits" not in bench.status.conditions[0].message
    assert summary(bench).message.startswith("retry 1 in 40 s after a[0] ")
    bench.end("f-a-1", code=1)
    assert summary(bench).message.startswith("2 Tasks wait for a retry; first: retry 1 in 40 s after a[0] ")
    assert bench.status.state is State.RUNNING
    bench.wait(40)
    assert summary(bench).message.startswith("retry 1 in ") or not bench.tracker.holds.waits()
