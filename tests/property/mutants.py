"""Controllers broken on purpose, by the guarantee (docs/guarantees.md) that they break. A short tale catches each.

They show that the checks of random histories (tests/support/history.py) and of chaos can fail: one mutant for each
check.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final
from unittest.mock import patch

import orjson
from sqlalchemy import case

from frameworkcontroller.api import names, quantities
from frameworkcontroller.api.completion import TASK_NODE_GIVEN_UP, CompletionStatus
from frameworkcontroller.api.objectkinds import PODGROUPS
from frameworkcontroller.api.objects import CompanionRecord, Disruption, FrameworkRecord
from frameworkcontroller.api.status import FrameworkStatus, ProgressStatus, TaskStatus
from frameworkcontroller.api.timestamps import parse_time
from frameworkcontroller.api.workloads import WorkloadRecord, workload_name
from frameworkcontroller.controller.driver import MAX_IN_FLIGHT
from frameworkcontroller.history import costs as costsums
from frameworkcontroller.history import holdings, ingest
from frameworkcontroller.history.database import attempts, tasks
from frameworkcontroller.kube.crdguard import CrdGuard
from frameworkcontroller.machine import framework as framework_rules
from frameworkcontroller.machine import task as task_rules
from frameworkcontroller.machine.kernel.actions import Outcome as ActionOutcome
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.failure import Classifier
from frameworkcontroller.machine.kernel.model import Env, NotListed, Observed, SnapshotTrigger, require
from frameworkcontroller.machine.kernel.protocol import Archive, Effect, LogSnapshots, View
from frameworkcontroller.machine.kernel.requests import (
    Answer,
    Answered,
    Get,
    Kind,
    MergePatch,
    PatchFinalizers,
    PatchStatus,
    Post,
    Remove,
    Request,
    Unanswered,
)
from frameworkcontroller.machine.kernel.tracker import Tracker
from frameworkcontroller.machine.parts.firstfailure import firstfailures
from frameworkcontroller.machine.parts.firstfailure.firstfailures import FirstFailurePart
from frameworkcontroller.machine.parts.hangs import hangs as hang_rules
from frameworkcontroller.machine.parts.hangs.hangs import HangClock, HangPart
from frameworkcontroller.machine.parts.history.archiving import HistoryPart
from frameworkcontroller.machine.parts.logs.podlogs import LogPart
from frameworkcontroller.machine.parts.nodes.nodeavoidance import NodePart
from frameworkcontroller.machine.parts.notice import checkpointnotice
from frameworkcontroller.machine.parts.notice.checkpointnotice import NoticeState
from frameworkcontroller.machine.parts.progress import reportedprogress
from frameworkcontroller.machine.reconciler import Reconciler
from frameworkcontroller.manager import informers
from tests.chaos import embedded
from tests.chaos.player import Outcome
from tests.chaos.proxy import Fault
from tests.chaos.proxy import Kind as Faults
from tests.chaos.story import CLAIM_SPEC, RETAIN_SEC, Step, Story
from tests.property import test_archived_stories as archived
from tests.property import test_avoided_nodes as avoided
from tests.property import test_costs as costs
from tests.property import test_ending as endings
from tests.property import test_first_failures as failures
from tests.property import test_grace_periods as graces
from tests.property import test_hangs as hangs
from tests.property import test_logs as logs
from tests.property import test_lost_nodes as lost_nodes
from tests.property import test_notices as notices
from tests.property import test_progress as progress
from tests.property import test_renewed_retries as renewed
from tests.property import test_stuck_unrecorded as unrecorded
from tests.property import test_takeover as takeover
from tests.property import test_two_controllers as two
from tests.property.reportmutants import CASES as REPORTS
from tests.property.servicemutants import CASES as SERVICES
from tests.support import hanghistory, queuedhistory
from tests.support.flaws import (
    Broken,
    Flaw,
    Json,
    Remembers,
    Unsent,
    all_of,
    believes,
    deleting_with,
    flawed,
    merges,
    posts,
    reads,
    sees,
    sees_pods,
    sees_roles,
    sees_spec,
    status_in,
    unfound,
    unsent,
    without_test_of,
    writes,
)
from tests.support.frameworks import policy, role
from tests.support.gangscheduler import Backend
from tests.support.kueue import QUEUES
from tests.support.writtenreports import with_report

_PATIENCE_SEC: Final = 2000.0
"""More than the ten minutes in which a lost event is made up for."""
_ORDERS: Final = 6
"""In which the requests of a tale in a queue are answered."""

Tale = Callable[[], object]
"""Raises AssertionError if something promised was not kept."""


@dataclass(frozen=True)
class Mutant:
    """``broken``: the flaw. ``tale``: a story that shows it. ``found``: words, one of them in the error."""

    broken: Broken
    tale: Tale
    found: str

    def play(self, story: Story) -> Outcome:
        """Have it meet a story of chaos."""
        with self.broken(), patch.object(embedded.EmbeddedPlayer, "patience", _PATIENCE_SEC):
            return embedded.play(story)


# --- tales -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chaos:
    """A story of chaos."""

    story: Story

    def __call__(self) -> None:
        with patch.object(embedded.EmbeddedPlayer, "patience", _PATIENCE_SEC):
            outcome = embedded.play(self.story)
        if outcome.error is not None:
            raise outcome.error


def _chaos(*steps: Step, in_flight: int = MAX_IN_FLIGHT, retain_sec: int = RETAIN_SEC, **options: Any) -> Tale:
    # Faults stop after the last step.
    last = Step(max(step.at for step in steps) + 30.0, "annotate", ("f0",))
    return Chaos(Story(0, (*sorted(steps, key=lambda step: step.at), last), in_flight, retain_sec, **options))


def _create(*roles: Json, at: float = 0.0, **spec: Any) -> Step:
    return Step(at, "create", ("f0", list(roles), spec))


def _role(
    number: int = 1, *, retry: Json | None = None, rule: str = "", task: Json | None = None, **simulate: str
) -> Json:
    more = dict(task or {})
    if rule:
        on_exit_codes = {"operator": "In", "values": [42]}
        more["podFailurePolicy"] = {"rules": [{"action": rule, "onExitCodes": on_exit_codes}]}
    simulated = {key.replace("_", "-"): value for key, value in simulate.items()}
    return role("a", number, simulate=simulated, task={"retryPolicy": retry or {}, **more})


def _fault(at: float, kind: Faults, verb: str, resource: str, **more: Any) -> Step:
    return Step(at, "fault", (Fault(kind, verb, resource, **more),))


def _claiming(number: int = 1, at: float = 0.0, stop_seconds: str = "0", **retention: str) -> Step:
    item = _role(number, stop_seconds=stop_seconds, **_FOREVER)
    item["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": CLAIM_SPEC}]
    return _create(item | {"persistentVolumeClaimRetentionPolicy": retention}, at=at)


_FOREVER: Final[Json] = {"run_seconds": "forever"}
_FAILS_ONCE: Final[Json] = {"retry": {"maxRetryCount": 1}, "run_seconds": "3, forever", "exit_code": "1"}
_ONE_FAILS: Final = {"frameworkAttemptCompletionPolicy": policy(1)}
_SPEC: Final = {
    "taskRoles": [
        {
            "name": "a",
            "taskNumber": 2,
            "frameworkAttemptCompletionPolicy": {"minFailedTaskCount": 1, "minSucceededTaskCount": -1},
            "task": {
                "retryPolicy": {"maxRetryCount": 0},
                "pod": {"spec": {"containers": [{"name": "main", "image": "work"}]}},
            },
        }
    ],
    "retryPolicy": {"maxRetryCount": -1},
}


_FAILS: Final = renewed.Attempt()
_SAVES: Final = renewed.Attempt(checkpoint=60)


def _stories(story: queuedhistory.Story, orders: int) -> None:
    for seed in range(orders):
        replace(story, seed=seed).play()


def _step(act: str, *args: Any, **more: Any) -> queuedhistory.Step:
    return queuedhistory.Step(act, args, more)


def _queued(*steps: queuedhistory.Step, orders: int = _ORDERS, **spec: Any) -> Tale:
    """A Framework of two Tasks in a queue with quota for four. ``spec``: more fields."""
    options = {"quota": {"a100": 4, "spot": 4}, "checks": True}
    return partial(_stories, queuedhistory.Story(0, QUEUES[0], {**_SPEC, **spec}, options, steps), orders)


def _gang(backend: Backend, *steps: queuedhistory.Step) -> Tale:
    """A Framework of two Tasks that are a gang."""
    spec = {**_SPEC, "scheduling": {"schedulingPolicy": {"gang": {}}}}
    return partial(_stories, queuedhistory.Story(0, None, spec, {"backend": backend}, steps), 2)


def _two(story: Callable[[Any], None]) -> Tale:
    """Two controllers, one of them slow."""

    def tale() -> None:
        history = two.begin()
        story(history)
        two.go_on(history)
        history.finish()

    return tale


def _logged(story: Callable[[str], Any], mode: str = "hangs") -> Tale:
    """The log endpoint works in that way."""
    return partial(story, mode)


def _misses(hook: str, instead: Callable[..., Any] = lambda *_: None) -> Broken:
    """Controllers whose part of logs has another hook."""
    return partial(patch.object, LogPart, hook, instead)


def _hangs(name: str, instead: Any) -> Broken:
    """Controllers with another rule of hangs."""
    return partial(patch.object, hang_rules, name, instead)


def _made_progress(instead: Callable[..., bool]) -> Broken:
    """Controllers that find that an attempt made progress by another rule."""
    return all_of(*(partial(patch.object, rules, "made_progress", instead) for rules in (framework_rules, task_rules)))


def _renewed(*attempts: renewed.Attempt, limit: int = 1) -> Tale:
    def tale() -> None:
        for is_task in (False, True):
            renewed.play(list(attempts), limit=limit, is_task=is_task)

    return tale


def _takes_reports(observed: Observed) -> Observed:
    """Each report of progress has a checkpoint."""
    configmap = observed.configmap
    if configmap is None or configmap.progress is None:
        return observed
    progress = replace(configmap.progress, last_checkpoint_time=configmap.progress.last_report_time)
    return replace(observed, configmap=replace(configmap, progress=progress))


def _reports(name: str, instead: Any) -> Broken:
    """Controllers whose part of progress has another function or constant."""
    return partial(patch.object, reportedprogress, name, instead)


class _Forgets(reportedprogress.ReadReports):
    def on_end(self, tracker: Tracker) -> None:
        require(tracker.status, "status").progress = None


class _ShowsNothing(reportedprogress.ReadReports):
    def show(self, tracker: Tracker, clock: float) -> None:
        self.shown_at = clock


def _avoids(hook: str, instead: Callable[..., Any] = lambda *_: None) -> Broken:
    """Controllers whose part of avoided nodes has another hook."""
    return partial(patch.object, NodePart, hook, instead)


def _keep_one_term(pod: Json) -> None:
    terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    terms["nodeSelectorTerms"][1]["matchFields"] = terms["nodeSelectorTerms"][1]["matchFields"][:1]


def _give_up_at_once(_part: NodePart, _ctx: Any, task: Any, pod: Any) -> Any:
    is_due = task.avoided_nodes and pod.trouble is not None
    return CompletionStatus.of(TASK_NODE_GIVEN_UP, "at once") if is_due else None


def _archived(story: Callable[[str], Any]) -> Tale:
    """The archive fails in it."""
    return partial(archived.play, story, "fails")


_SETTLE: Final = _step("settle")
_ALTERED: Final = (_step("follow", 0, 14), _step("rescale", "a", 4), _SETTLE)
"""The Framework asks for more before it is admitted."""


_REPLACED: Final = (
    _SETTLE,
    _step("kubelet", 0, "end", 0),
    _SETTLE,
    _step("set_retry", "a", fancy=False, limit=-1),
    _SETTLE,
    _step("kubelet", 0, "end", 1),
    _SETTLE,
)
"""One Task succeeds, and one is retried."""
_ONE_OF_TWO: Final = (_step("set_completion", "a", 1, -1), _SETTLE, _step("kubelet", 0, "end", 0), _SETTLE)
"""One Task of two succeeds."""
_UNRECORDED: Final = (
    _step("follow", 0, 14),
    _step("stand_by"),
    _step("reach", 0, Kind.POD),
    _step("take_over"),
    _step("play", "Preempted", 0),
    _step("grope", 0, 30),
)
"""A replica takes over that has not seen what was created, and the Framework is evicted."""
_EVICTED: Final = _queued(_SETTLE, _step("play", "Preempted", 0), _SETTLE)
_ORPHANED: Final = (_SETTLE, _step("delete", foreground=False), _SETTLE)
"""The Framework is deleted in the background: its Pods and its Workload outlive it."""


def _take_over(begin: Callable[[], Any]) -> Tale:
    def tale() -> None:
        history = begin()
        takeover.go_on(history)
        history.finish()

    return tale


def _left_unrecorded(wish: str, *, warm: bool) -> Tale:
    def tale() -> None:
        history = takeover.begin_for(wish)
        takeover.nothing_is_recorded(history, warm=warm)
        if wish:
            takeover.fulfil(history, wish)
        takeover.end_without_pods(history)
        history.finish()

    return tale


def _a_pod_is_not_recorded() -> None:
    history = takeover.a_pod_is_not_recorded()
    takeover.end_without_pods(history)
    history.kubelet(0, "remove")
    history.finish()


def _slow_pod() -> None:
    history = lost_nodes.begin()
    lost_nodes.stuck(history)
    lost_nodes.go_by(history, 200)


def _lost_unrecorded() -> None:
    for stop in (False, True):
        history = unrecorded.begin()
        body = unrecorded.lost_pod(history)
        if stop:
            history.execute("Stop")
        unrecorded.come_about(history, lambda: unrecorded.pod(history) != body)  # noqa: B023


def _ends(end: Callable[..., None], what: Any) -> Tale:
    def tale() -> None:
        for steps in (3, 10, 99):
            end(steps, what, crash=False)

    return tale


# --- flaws that need more than a line --------------------------------------------------------------------------------


def _blind(observed: Observed) -> Observed:
    """The cache of Pods counts as complete, and shows only Pods of Tasks."""
    return replace(observed, list_pods=tuple, pods_listed=float("inf"))


class _Acknowledges(Flaw):
    """Any answer of the history with these words acknowledges records of ``trigger`` (None: all)."""

    def __init__(self, trigger: SnapshotTrigger | None = None, words: str = "") -> None:
        self._trigger = trigger
        self._words = words

    def archived(self, archive: Archive, answer: Answer) -> Answer:
        triggers = {one.trigger for one in archive.snapshots}
        fits = self._trigger is None or self._trigger in triggers
        fits = fits and (isinstance(answer, Answered) or self._words in answer.message)
        return Answered(b"") if fits else answer


class _AcknowledgedForEver(Flaw):
    """An attempt that was acknowledged once needs no acknowledgment of a later state."""

    def __init__(self) -> None:
        self._known: set[tuple[Any, ...]] = set()

    def archived(self, archive: Archive, answer: Answer) -> Answer:
        statuses = [(one.role, orjson.loads(one.status_json)) for one in archive.snapshots]
        attempts = {(role, status.get("instanceUID"), status["attemptStatus"]["id"]) for role, status in statuses}
        if isinstance(answer, Answered):
            self._known |= attempts
        return Answered(b"") if attempts <= self._known else answer


class _LogsNothing(Flaw):
    def effect(self, machine: Reconciler, effect: Effect) -> Effect | None:
        return None if isinstance(effect, LogSnapshots) else effect


class _Inherits(Flaw):
    """A Framework inherits the status of the previous one of its name."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[str, Json]] = {}

    def send(self, request: Request) -> Request:
        if isinstance(request, PatchStatus):
            self._last[request.name] = request.uid, status_in(request)
        return request

    def _status(self, name: str, uid: str) -> Json | None:
        owner, status = self._last.get(name, (uid, {}))
        return None if owner == uid else status

    def record(self, record: FrameworkRecord) -> FrameworkRecord:
        status = self._status(record.name, record.uid)
        return record if status is None else replace(record, status_json=orjson.dumps(status))

    def read(self, request: Get, body: Json) -> Json:
        status = self._status(request.name, body["metadata"]["uid"]) if request.kind is Kind.FRAMEWORK else None
        return body if status is None else {**body, "status": status}


class _KnowsAll(Flaw):
    """No report can have escaped it."""

    def env(self, env: Env) -> Env:
        return replace(env, reports_since=0.0)


class _ReadsItsCache(Flaw):
    """The progress of an attempt is read from the cache, not live."""

    def __init__(self) -> None:
        self._cached: ProgressStatus | None = None

    def observed(self, observed: Observed) -> Observed:
        self._cached = None if observed.configmap is None else observed.configmap.progress
        return observed

    def read(self, request: Get, body: Json) -> Json:
        if request.kind is not Kind.CONFIGMAP or self._cached is None:
            return body
        return with_report(body, self._cached)


class _SeesNoProgress(_ReadsItsCache):
    """All progress after the first report is overlooked."""

    def __init__(self) -> None:
        super().__init__()
        self._first: ProgressStatus | None = None

    def observed(self, observed: Observed) -> Observed:
        configmap = observed.configmap
        if configmap is not None and configmap.progress is not None:
            self._first = self._first or configmap.progress
            observed = replace(observed, configmap=replace(configmap, progress=self._first))
        return super().observed(observed)


def _takes_silence_for_a_yes(_: HangPart, ctx: Context, outcome: ActionOutcome) -> None:
    if isinstance(outcome.action, hang_rules.ReadProgress):
        ctx.tracker.part(HangClock).confirmed_at = outcome.action.asked_at
        ctx.tracker.agenda.look()


def _since_the_report(ctx: Context) -> float | None:
    """The start of the clock by the times of reports, which are of other clocks, and may be of another process."""
    progress = None if ctx.observed.configmap is None else ctx.observed.configmap.progress
    if progress is None or progress.last_change_time is None:
        return None
    return ctx.env.clock - (ctx.env.now - progress.last_change_time)


def _ran_for_long(_: Any, status: FrameworkStatus, task: TaskStatus | None = None) -> bool:
    """Whether the last report came long after the start, also of a program that loads for long."""
    progress, attempt = status.progress, status.attempt if task is None else task.attempt
    if progress is None or progress.last_change_time is None or attempt.run_time is None:
        return False
    return progress.last_change_time - attempt.run_time >= renewed.DEADLINE


def _renew_count(_: Tracker, subject: FrameworkStatus | TaskStatus) -> None:
    subject.retry.accountable_retried_count = 0


def _without_rules(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_rules(one) for key, one in value.items() if key != "policy"}
    return [_without_rules(one) for one in value] if isinstance(value, list) else value


class _StillCreates(Flaw):
    """Pods of ``held`` Tasks are created once the end of their attempt is stored."""

    def __init__(self, *held: str) -> None:
        self._names = held
        self._held: dict[str, Request] = {}
        self._ends = False

    def reply(self, request: Request) -> Answer | None:
        if request.name not in self._names or self._ends:
            return None
        self._held[request.name] = request
        return Unanswered("held back")

    def learn(self, request: Request, answer: Answer) -> None:
        self._ends |= isinstance(answer, Answered) and bool(status := status_in(request)) and _code(status) is not None

    def extra(self, view: View) -> Request | None:
        return self._held.popitem()[1] if self._ends and self._held else None


class _DeletesClaims(Flaw):
    """Claims are deleted as soon as the spec has no such Task."""

    def __init__(self) -> None:
        self._deleted: set[str] = set()

    def extra(self, view: View) -> Request | None:
        if view.record is None:
            return None
        number = orjson.loads(view.record.spec_json)["taskRoles"][0]["taskNumber"]
        claims = view.observe(creating=False).list_claims(True)
        for claim in () if isinstance(claims, NotListed) else claims:
            if int(claim.name.rpartition("-")[2]) >= number and claim.uid not in self._deleted:
                self._deleted.add(claim.uid)
                return Remove(Kind.VOLUME_CLAIM, claim.name, claim.uid, False, None)
        return None


class _AsksForLess(Flaw):
    """Kueue is asked for the needs of the first spec, and its admission is taken for one of the newest spec."""

    def __init__(self) -> None:
        self._first = b""

    def record(self, record: FrameworkRecord) -> FrameworkRecord:
        self._first = self._first or record.spec_json
        status = None if self.machine is None else self.machine.tracker.status
        begins = status is None or status.attempt.configmap_uid is None
        return replace(record, spec_json=self._first) if begins else record

    def read(self, request: Get, body: Json) -> Json:
        return {**body, "spec": orjson.loads(self._first)} if request.kind is Kind.FRAMEWORK else body


class _Releases(Flaw):
    """The finalizer is removed as soon as the Framework is deleted."""

    def __init__(self) -> None:
        self._asked = ""

    def extra(self, view: View) -> Request | None:
        record = view.record
        if record is None or record.deletion_time is None or self._asked == record.resource_version:
            return None
        if names.HISTORY_FINALIZER not in record.finalizers:
            return None
        self._asked = record.resource_version
        place = record.finalizers.index(names.HISTORY_FINALIZER)
        version, finalizer = record.resource_version, names.HISTORY_FINALIZER
        return PatchFinalizers(Kind.FRAMEWORK, record.name, record.uid, version, finalizer, place)


class _GivesBack(Flaw):
    """Quota is released as soon as Kueue asks for it."""

    def __init__(self) -> None:
        self._given: set[str] = set()

    def extra(self, view: View) -> Request | None:
        record = view.record
        if record is None:
            return None
        name = workload_name(record.name, record.uid)
        found = view.observe(creating=False).find_companion(Kind.WORKLOAD, name)
        if not (isinstance(found, WorkloadRecord) and found.evicted and found.reserves) or found.uid in self._given:
            return None
        self._given.add(found.uid)
        return MergePatch(Kind.WORKLOAD, name, b'{"status": {"admission": null}}', "status")


class _Hurries(Flaw):
    """Each look at the clock takes a minute."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def env(self, env: Env) -> Env:
        self._ahead += 60.0
        return replace(env, clock=env.clock + self._ahead)


class _Cherishes(Flaw):
    """A companion that was seen once exists forever."""

    def __init__(self) -> None:
        self._seen: dict[tuple[Kind, str], CompanionRecord] = {}

    def observed(self, observed: Observed) -> Observed:
        def find(kind: Kind, name: str) -> CompanionRecord | NotListed | None:
            found = observed.find_companion(kind, name)
            if isinstance(found, CompanionRecord):
                self._seen[kind, name] = found
            return self._seen.get((kind, name), found)

        return replace(observed, find_companion=find)


class _OldSpec(Flaw):
    """The spec is the one that was seen first."""

    def __init__(self) -> None:
        self._first: dict[str, bytes] = {}

    def record(self, record: FrameworkRecord) -> FrameworkRecord:
        return replace(record, spec_json=self._first.setdefault(record.uid, record.spec_json))


def _admits_more(body: Json) -> None:
    for one in ((body.get("status") or {}).get("admission") or {}).get("podSetAssignments") or ():
        one["count"] += 2


@contextmanager
def _without_guard_of_the_crd() -> Any:
    async def run(_: object) -> None:
        await asyncio.Event().wait()

    with patch.object(CrdGuard, "run", run):
        yield


def _tasks(status: Json) -> list[Json]:
    return [task for role in status["attemptStatus"]["taskRoleStatuses"] for task in role["taskStatuses"]]


def _code(status: Json) -> int | None:
    completion = status["attemptStatus"]["completionStatus"]
    return None if completion is None else completion["code"]


def _is_retried(status: Json) -> bool:
    return any(one["attemptStatus"]["id"] and one["state"] == "AttemptCreationPending" for one in _tasks(status))


def _say_suspended(status: Json) -> None:
    if status["state"] == "AttemptDeletionPending" and _code(status) == -240:
        others = [one for one in status["conditions"] if one["type"] != "Suspended"]
        status["conditions"] = [*others, {**others[0], "type": "Suspended", "status": "True"}]


def _count_all(status: Json) -> None:
    retries = status["retryPolicyStatus"]
    retries["accountableRetriedCount"] = retries["totalRetriedCount"]


def _start_all(status: Json) -> None:
    for one in status["attemptStatus"]["taskRoleStatuses"]:
        one["started"] = True


def _admit_less(status: Json) -> None:
    if any(task["state"] == "AttemptRunning" for task in _tasks(status)):
        for one in (status.get("admission") or {}).get("podSets") or ():
            one["count"] -= 1


def _make_wait(status: Json) -> None:
    for task in _tasks(status):
        completion = task["attemptStatus"]["completionStatus"]
        if completion is not None and completion["code"] in range(-1012, -1007):
            task["retryPolicyStatus"]["retryDelaySec"] = 5


def _own_by_framework(claim: Json) -> None:
    marks = claim["metadata"]["annotations"]
    owner = {"apiVersion": "frameworkcontroller.microsoft.com/v1", "kind": "Framework", "controller": True}
    owner |= {"name": marks["FC_FRAMEWORK_NAME"], "uid": marks["FC_FRAMEWORK_UID"]}
    claim["metadata"]["ownerReferences"] = [owner]


def _raise_minimum(patch_: Json) -> None:
    spec = patch_.get("spec") or {}
    if "minMember" in spec:
        spec["minMember"] += 3
    elif "schedulingPolicy" in spec:
        spec["schedulingPolicy"]["gang"]["minCount"] += 3


def _reclaim_more(patch_: Json) -> None:
    for one in (patch_.get("status") or {}).get("reclaimablePods") or ():
        one["count"] += 1


def _lose_conditions(patch_: Json) -> None:
    conditions = (patch_.get("status") or {}).get("conditions")
    if conditions:
        patch_["status"]["conditions"] = [one for one in conditions if one["type"] in ("QuotaReserved", "Admitted")]


def _is_about_readiness(request: Request) -> bool:
    if not isinstance(request, MergePatch) or request.kind is not Kind.WORKLOAD:
        return False
    status = orjson.loads(request.body).get("status") or {}
    return "admission" not in status and any(one["type"] == "PodsReady" for one in status.get("conditions") or ())


def _lets_go(request: Request) -> bool:
    return isinstance(request, MergePatch) and request.kind is Kind.WORKLOAD and b'"finalizers"' in request.body


def _retry_more(spec: Json) -> None:
    for owner in (spec, *(one["task"] for one in spec["taskRoles"])):
        retry = owner.setdefault("retryPolicy", {})
        retry["maxRetryCount"] = retry.get("maxRetryCount", 0) + 1


def _act(action: str, one: Json) -> None:
    one["task"]["podFailurePolicy"]["rules"][0]["action"] = action


def _lose_ends(spec: Json) -> None:
    if (spec.get("retryPolicy") or {}).get("maxRetryCount") == -7:
        spec["suspend"] = False


_EVICTION: Final = Disruption("EvictionByEvictionAPI", "evicted")
_NEVER: Final = {"minFailedTaskCount": -1, "minSucceededTaskCount": -1}
_NODE_IS_WELL: Final[Json] = {"task": {"podGracefulDeletionTimeoutSec": 5, "podForceDeletionPolicy": "NodeUnreachable"}}


def _fails_for_now(status: Json) -> None:
    if status["phase"] in ("Pending", "Ending") and status["attemptStatus"]["completionStatus"]:
        status["phase"] = "Failed"


def _held(change: Callable[..., None]) -> Broken:
    """An archive that changes the times of attempts first."""

    def holding(status: Json, requests: str | None, **times: int | None) -> holdings.Holding | None:
        change(status, times)
        return holdings.holding(status, requests, **times)

    return partial(patch.object, ingest, "holding", holding)


def _useful(*cases: tuple[Any, Any]) -> Broken:
    """An archive with another rule for the end of useful work."""
    return partial(patch.object, costsums, "_useful", lambda: case(*cases, else_=tasks.c.busy))


def _requests(change: Callable[[Json], object]) -> Broken:
    """An archive that reads only a part of a Pod's spec."""

    def requests(spec: Json) -> Any:
        spec = orjson.loads(orjson.dumps(spec))
        change(spec)
        return quantities.pod_requests(spec)

    return partial(patch.object, holdings, "pod_requests", requests)


_DISORDERED: Final = partial(
    patch.object,
    ingest,
    "holding",
    lambda _status, requests, *, scheduled, ran, ended: holdings.Holding(scheduled, ran, ended, requests),
)
"""Believes all clocks."""

_SUCCEEDED: Final = attempts.c.succeeded == 1
_NOT_FAILED: Final = tasks.c.failed_at.is_(None)
_OF_PODS: Final = "of the Pods"
"""The costs in the archive differ from those of the Pods."""


MUTANTS: Final = {
    # --- P: phases
    "P: shows the end of each attempt as the end of the Framework": Mutant(
        writes(_fails_for_now),
        _chaos(_create(_role(run_seconds="3", exit_code="1") | _ONE_FAILS, retryPolicy={"maxRetryCount": 1})),
        "P: ",
    ),
    # --- C1 to C4: instances
    "C1: creates Pods for unpersisted attempts": Mutant(
        believes(_is_retried), _chaos(_create(_role(**_FAILS_ONCE))), "creation of f0-a-0"
    ),
    "M: brings back what its cache has shown, without a live read": Mutant(
        flawed(Remembers), _take_over(takeover.a_task_has_left), "is new and first seen as"
    ),
    "C2: takes a Pod that is being deleted for gone": Mutant(
        all_of(sees_pods(lambda pod: None if pod.identity.deleting else pod), unfound(Kind.POD)),
        _chaos(_create(_role(stop_seconds="2", **_FAILS_ONCE))),
        "C2: ",
    ),
    # The answer to a deletion is lost, the cache lags, and another client has the name before the next try.
    "C2: deletes any Pod of the name": Mutant(
        deleting_with(uid=None),
        _chaos(
            _create(_role(2, **_FOREVER)),
            _fault(9.0, Faults.HELD, "", "pods", seconds=10.0),
            _fault(9.0, Faults.LOST, "delete", "pods"),
            Step(9.0, "take_name", (1, False, 30.0)),
            Step(9.5, "rescale", ("f0", "a", 1)),
        ),
        "it is not ours|whichever it is",
    ),
    # A creation that was given up is executed when its Task is gone.
    "C2: sees no Pods": Mutant(
        sees_pods(lambda _: None),
        _chaos(
            _create(_role(2, **_FOREVER)),
            _fault(0.0, Faults.LATE, "create", "pods", times=2, seconds=30.0),
            Step(0.5, "rescale", ("f0", "a", 0)),
            Step(15.0, "rescale", ("f0", "a", 0)),
        ),
        "no Task of its has it",
    ),
    "C2: deletes Pods by force at once": Mutant(
        deleting_with(grace_period_seconds=0),
        _chaos(_create(_role(stop_seconds="5", task={"podGracefulDeletionTimeoutSec": 60}, **_FAILS_ONCE))),
        "by force",
    ),
    "C1: deletes a Pod whose containers run": Mutant(
        sees_pods(lambda pod: replace(pod, running_grace_sec=None)), partial(graces.play, stop=False), "still run"
    ),
    "C2: forces the deletion of a Pod on a healthy node": Mutant(
        unfound(Kind.NODE), _slow_pod, "its Node was not found to be lost"
    ),
    # The node is well, and the Pod writes its last checkpoint.
    "C2: takes a Node for gone without a look at it": Mutant(
        unfound(Kind.NODE),
        _chaos(_create(_role(stop_seconds="20", **_NODE_IS_WELL, **_FOREVER)), Step(9.0, "delete_pod", (0,))),
        "its Node was healthy",
    ),
    "C3: begins beside Pods that no status records": Mutant(sees(_blind), _left_unrecorded("", warm=False), "C3: "),
    "C4: takes an attempt for over as soon as its ConfigMap and the Pods of Tasks are gone": Mutant(
        sees(_blind), _a_pod_is_not_recorded, "C4: "
    ),
    "C4: believes that its first list shows all Pods": Mutant(
        sees(lambda one: replace(one, pods_listed=float("inf"))),
        _left_unrecorded("suspend", warm=True),
        "C4: |Suspended is True",
    ),
    "C4: says Suspended while Pods run": Mutant(
        writes(_say_suspended),
        _chaos(_create(_role(2, **_FOREVER)), Step(5.0, "set_spec", ("f0", {"suspend": True}))),
        "Suspended is True",
    ),
    # --- S1, S2
    # The answer to a write is lost; it is found to have landed, and the user's edit since then is not in the cache yet.
    "S1: writes what it decided by an older spec": Mutant(
        without_test_of("/metadata/generation"),
        _chaos(
            _create(_role(run_seconds="6")),
            _fault(3.0, Faults.HELD, "", "frameworks", seconds=20.0),
            _fault(3.0, Faults.LOST, "patch", "frameworks", times=4),
            Step(3.0, "fail_pod", (0, 1)),
            Step(3.1, "rescale", ("f0", "a", 3)),
        ),
        "was decided",
    ),
    "S2: goes by the spec that it has seen first": Mutant(
        flawed(_OldSpec), _chaos(_create(_role(2, **_FOREVER)), Step(5.0, "rescale", ("f0", "a", 3))), "f0"
    ),
    # --- M
    # A user applies the original's CRD over ours, and the Framework is stopped.
    "M: never looks at the CRD again": Mutant(
        _without_guard_of_the_crd,
        _chaos(_create(_role(2, **_FOREVER)), Step(9.0, "replace_crd"), Step(9.5, "execute", ("f0", "Stop"))),
        "the newest spec is not observed",
    ),
    # --- D
    "D: lets no role wait": Mutant(
        sees_roles(lambda one: one.pop("dependsOn", None)),
        _chaos(_create(_role(**_FOREVER), {**role("b", 2), "dependsOn": [{"name": "a", "status": "Complete"}]})),
        "D: ",
    ),
    "D: starts the roles of an attempt with the ones before": Mutant(
        writes(_start_all), _chaos(_create(_role(**_FOREVER))), "has started before its attempt"
    ),
    # --- V
    "V: takes the creation of a claim for done": Mutant(
        unsent(Post, Kind.VOLUME_CLAIM), _chaos(_claiming(2)), "its claim data never existed"
    ),
    "V: deletes the claims of Tasks that have left, whatever whenScaled says": Mutant(
        sees_roles(lambda one: one.update(persistentVolumeClaimRetentionPolicy={"whenScaled": "Delete"})),
        _chaos(_claiming(2), Step(5.0, "rescale", ("f0", "a", 1))),
        "it is to be retained|says another whenScaled",
    ),
    "V: deletes no claim when its Task has left": Mutant(
        unsent(Remove, Kind.VOLUME_CLAIM),
        _chaos(_claiming(2, whenScaled="Delete"), Step(5.0, "rescale", ("f0", "a", 1))),
        "was to be deleted",
    ),
    # --- H
    **{
        f"H: acts on {trigger} before its record is stored": Mutant(
            flawed(partial(_Acknowledges, trigger)), _archived(story), found
        )
        for trigger, story, found in (
            (SnapshotTrigger.TASK_RETRY, archived.retry_of_a_task, "left the status, and is not in the archive"),
            (SnapshotTrigger.FRAMEWORK_DELETION, archived.deletion, "the finalizer is removed before"),
        )
    },
    "H: keeps the acknowledgment of a status that has changed since": Mutant(
        flawed(_AcknowledgedForEver), _archived(archived.changed_after_the_archive), "and is in another state"
    ),
    "H: begins before the finalizer is there": Mutant(
        unsent(PatchFinalizers, Kind.FRAMEWORK),
        _archived(archived.deletion),
        "a ConfigMap is created before the finalizer is there",
    ),
    "H: removes the finalizer while Pods exist": Mutant(
        flawed(_Releases), _archived(archived.deletion_with_a_lost_node), "the finalizer is removed while"
    ),
    "H: takes any answer for an acknowledgment": Mutant(
        flawed(_Acknowledges),
        _chaos(_create(_role(2, **_FAILS_ONCE)), Step(0.5, "stop_sink", (60.0,)), history="Block"),
        "H1: ",
    ),
    # --- L
    "L: deletes a Pod before its log is read": Mutant(
        _misses("deletable_at"), _logged(logs.retry), "is deleted before its log is read"
    ),
    "L: deletes the ConfigMap before the logs of its Pods are followed": Mutant(
        _misses("deletable_at"), _logged(logs.stop), "is deleted before its log is read"
    ),
    "L: does not ask for the logs of Pods that run": Mutant(
        _misses("before_delete"), _logged(logs.stop, "reads"), "is deleted before its log is read"
    ),
    "L: waits for a log for ever": Mutant(
        _misses("deletable_at", lambda _part, ctx, _task: ctx.env.clock + 1.0),
        _logged(logs.stop),
        "It waits, and does not say for what",
    ),
    "L: does not say that a log is lost": Mutant(
        _misses("pod_gone"), _logged(logs.forced_deletion), "and its log is lost"
    ),
    # --- I
    "I: gives no notice": Mutant(
        sees_spec(lambda spec: spec.pop("checkpointGraceSeconds", None)),
        notices.checkpointed,
        "no notice was stored before",
    ),
    "I: shows a notice before it is stored": Mutant(
        believes(lambda one: one.get("notice")), notices.checkpointed, "I: Pods see the notice|no notice was stored"
    ),
    "I: takes any report for a checkpoint": Mutant(sees(_takes_reports), notices.waited_out, "s too early"),
    "I: takes an earlier checkpoint for a later one": Mutant(
        partial(patch.object, checkpointnotice, "_last_checkpoint", lambda ctx: ctx.env.second + 1),
        notices.waited_out,
        "s too early",
    ),
    "I: does not wait for the grace": Mutant(
        partial(patch.object, NoticeState, "due", lambda _state, ctx, _notice: ctx.env.clock),
        notices.waited_out,
        "s too early",
    ),
    "I: waits for ever": Mutant(
        partial(patch.object, NoticeState, "due", lambda _state, ctx, _notice: ctx.env.clock + 1.0),
        notices.waited_out,
        "It waits, and does not say for what|It does not come about",
    ),
    "I: does not withdraw a notice": Mutant(
        partial(patch.object, checkpointnotice, "_withdraw", lambda *_: None),
        notices.taken_back,
        "I: the notice of an end that nobody asks for",
    ),
    # --- R
    "R: lets times go back": Mutant(
        _reports("_later", lambda _known, reported, now: min(reported, now)), progress.edited, "goes back"
    ),
    "R: believes in a time to come": Mutant(
        _reports("_later", lambda known, reported, _now: max(known or reported, reported)),
        progress.edited,
        "a time is in the future",
    ),
    "R: writes each report": Mutant(_reports("SHOW_SEC", 0.0), progress.steady, "progress alone is written more often"),
    "R: writes each of the first reports": Mutant(
        _reports("EARLY_SEC", 0.0), progress.steady, "progress alone is written more often"
    ),
    "R: writes progress only with other changes": Mutant(
        _reports("ReadReports", _ShowsNothing), progress.edited, "is not shown|Lost alarm"
    ),
    "R: forgets the progress of an attempt that has ended": Mutant(
        _reports("ReadReports", _Forgets), progress.retried, "progress is lost"
    ),
    # --- F
    "F: takes the failure that it has seen first": Mutant(
        partial(patch.object, firstfailures, "_order", lambda one: -one.time), failures.seen_last, "a later failure"
    ),
    "F: takes no words for a consequence": Mutant(
        partial(patch.object, Classifier, "cascading", lambda *_: frozenset()),
        failures.followed,
        "F: says that it is not certain",
    ),
    "F: trusts the clocks of nodes": Mutant(
        partial(patch.object, firstfailures, "SKEW_SEC", -1), failures.close, "has failed first"
    ),
    "F: forgets Pods whose ends were not seen": Mutant(
        partial(patch.object, FirstFailurePart, "pod_gone", lambda *_: None), failures.lost, "has failed first"
    ),
    "F: takes over an ending as if it had seen all of it": Mutant(
        partial(patch.object, FirstFailurePart, "begin", lambda *_: None), failures.taken_over, "has failed first"
    ),
    # --- A
    "A: counts no failure": Mutant(_avoids("pod_gone"), avoided.failures, "A: "),
    "A: creates Pods that may run on any node": Mutant(_avoids("shape_task"), avoided.failures, "A: "),
    "A: keeps Pods off a node by one of their terms": Mutant(
        posts(Kind.POD, _keep_one_term), avoided.failures, "A: the terms of"
    ),
    "A: never gives a node up": Mutant(_avoids("why_end_task"), avoided.failures, "It does not come about|It waits"),
    "A: gives a node up at once": Mutant(
        _avoids("why_end_task", _give_up_at_once), avoided.failures, "has given a node up after"
    ),
    "A: forgets nodes with the attempt of the Framework": Mutant(
        _avoids("begin_attempt"), avoided.restart_of_the_framework, "in a new attempt"
    ),
    # The write that begins a Task's next attempt is accepted.
    "H: logs no snapshot": Mutant(flawed(_LogsNothing), _chaos(_create(_role(**_FAILS_ONCE))), "is in no snapshot"),
    # --- E
    "E: counts an attempt from its start on": Mutant(
        _held(lambda status, times: times.update(scheduled=parse_time(status["startTime"]))), costs.long_wait, _OF_PODS
    ),
    "E: takes a Pod that was not seen to run for a waiting one": Mutant(
        partial(patch.object, holdings, "_has_run", lambda _: False), costs.seen_only_ended, _OF_PODS
    ),
    "E: believes the clocks of all nodes": Mutant(_DISORDERED, costs.skewed_clocks, _OF_PODS),
    "E: counts no Pods whose Framework is deleted while they run": Mutant(
        _held(lambda status, times: times.update(ended=status["completionTime"] and times["ended"])),
        costs.deleted_while_it_runs,
        _OF_PODS,
    ),
    "E: leaves out init containers": Mutant(
        _requests(lambda spec: spec.update(initContainers=[])), costs.large_init, _OF_PODS
    ),
    "E: takes sidecars for init containers": Mutant(
        _requests(lambda spec: [one.pop("restartPolicy", None) for one in spec["initContainers"]]),
        costs.with_sidecar,
        _OF_PODS,
    ),
    "E: leaves out the overhead": Mutant(_requests(lambda spec: spec.update(overhead={})), costs.large_init, _OF_PODS),
    "E: loses the progress of a failed attempt": Mutant(
        _useful((_SUCCEEDED & _NOT_FAILED, tasks.c.freed)), costs.failed_after_progress, _OF_PODS
    ),
    "E: takes work after the last checkpoint for useful": Mutant(
        partial(
            patch.object, ingest, "_progressed", lambda status, _: parse_time(status["progress"]["lastChangeTime"])
        ),
        costs.failed_after_checkpoint,
        _OF_PODS,
    ),
    "E: takes a failed attempt for useful, as its Framework succeeded": Mutant(
        _useful((_SUCCEEDED, tasks.c.freed)), costs.failed_in_success, _OF_PODS
    ),
    "E: takes a succeeded attempt for useful, though its Framework failed": Mutant(
        _useful((_NOT_FAILED, tasks.c.freed)), costs.succeeded_in_failure, _OF_PODS
    ),
    "E: leaves out whole days": Mutant(partial(patch.object, costsums, "_DAY_SEC", 0), costs.over_midnight, "by day"),
    "E: counts an attempt as a whole that is in the period in part": Mutant(
        partial(patch.object, costsums, "_within", lambda column, *_: column), costs.in_part, _OF_PODS
    ),
    "E: takes an unknown cost for none": Mutant(
        partial(patch.object, costsums.CostGroup, "unknown", property(lambda _: 0, lambda *_: None)),
        costs.from_an_older_version,
        _OF_PODS,
    ),
    **{
        f"E: does not record when a Pod got its node, if it is first seen {when}": Mutant(
            partial(patch.object, HistoryPart, hook, lambda *_: None), tale, "scheduledTime"
        )
        for when, hook, tale in (
            ("when it runs", "observe_pod", partial(costs.node_of, deleting=False, gone=False)),
            ("when others delete it", "before_delete", partial(costs.node_of, deleting=True, gone=False)),
            ("when it is gone", "pod_gone", partial(costs.node_of, deleting=False, gone=True)),
        )
    },
    # --- K1 to K3
    "K1: starts before the admission is stored": Mutant(
        believes(lambda one: one.get("admission")), _queued(_SETTLE), "K1: "
    ),
    "K2: gives quota back at once": Mutant(flawed(_GivesBack), _EVICTED, "K2: |quota: "),
    "K2: gives quota back while Pods exist that it has not seen": Mutant(
        all_of(sees(_blind), unfound(Kind.CONFIGMAP, Kind.POD)), _queued(*_UNRECORDED), "K2: |quota: "
    ),
    "K2: gives more quota back than completed Tasks had": Mutant(
        merges(frozenset({Kind.WORKLOAD}), _reclaim_more), _queued(*_ONE_OF_TWO), "K2: "
    ),
    "K2: keeps the quota of completed Tasks until the attempt ends": Mutant(
        merges(frozenset({Kind.WORKLOAD}), lambda one: (one.get("status") or {}).pop("reclaimablePods", None)),
        _queued(*_ONE_OF_TWO, _step("check_idle_quota")),
        "idle quota|Hot loop",
    ),
    "K2: replaces all conditions by its own": Mutant(
        merges(frozenset({Kind.WORKLOAD}), _lose_conditions), _EVICTED, "are lost|K2: "
    ),
    "K2: creates Pods that need more than Kueue counts": Mutant(
        posts(Kind.POD, lambda pod: pod["spec"]["containers"][0].update(resources={"requests": {"gpu": "2"}})),
        _queued(_SETTLE),
        "K2: ",
    ),
    "K2: never releases the Workload of a Framework that is gone": Mutant(
        flawed(lambda: Unsent(_lets_go)), _queued(*_ORPHANED), "G3: "
    ),
    "K2: never says that its Pods are ready": Mutant(
        flawed(lambda: Unsent(_is_about_readiness)), _queued(_SETTLE), "PodsReady is not told|Hot loop"
    ),
    "K3: creates Pods for Tasks that were added since the admission": Mutant(
        reads(Kind.WORKLOAD, _admits_more),
        _queued(_SETTLE, _step("rescale", "a", 4), _SETTLE),
        "quota: |K2: ",
    ),
    "K3: stores another admission than it goes by": Mutant(writes(_admit_less), _queued(_SETTLE), "K3: "),
    # --- adoption, namesakes
    "M: takes the status of an earlier Framework of the name for its own": Mutant(
        flawed(_Inherits),
        _chaos(
            _create(_role(**_FOREVER)), Step(5.0, "delete", ("f0", "Foreground")), _create(_role(**_FOREVER), at=20.0)
        ),
        "the first status stored says",
    ),
    # --- two controllers
    **{
        f"C2: deletes what it finds in place of its own: {story.__name__}": Mutant(
            flawed(Remembers), _two(story), "no status that was ever stored gives cause|id went back"
        )
        for story in two.STORIES
    },
    # --- outcomes
    "C2: creates Pods of an attempt that ends": Mutant(
        flawed(partial(_StillCreates, "f0-a-1")),
        _chaos(_create(_role(2, run_seconds="3", exit_code="1") | _ONE_FAILS)),
        "the attempt is completing",
    ),
    "V: deletes claims while their Pods end": Mutant(
        flawed(_DeletesClaims),
        _chaos(_claiming(2, whenScaled="Delete", stop_seconds="10"), Step(5.0, "rescale", ("f0", "a", 1))),
        "its Pod exists",
    ),
    "V: takes the change of a claim's policy for done": Mutant(
        unsent(MergePatch, Kind.VOLUME_CLAIM),
        _chaos(_claiming(), Step(5.0, "set_retention", ("f0", "a", {"whenDeleted": "Delete", "whenScaled": "Delete"}))),
        "has no owner",
    ),
    "V: has all claims deleted with the Framework": Mutant(
        all_of(posts(Kind.VOLUME_CLAIM, _own_by_framework), unsent(MergePatch, Kind.VOLUME_CLAIM)),
        _chaos(_claiming()),
        "has an owner",
    ),
    # --- more of queues
    "K1: starts by the admission of another request": Mutant(flawed(_AsksForLess), _queued(*_ALTERED), "K1: "),
    # --- more of retries
    "completion: takes a rule that ends the attempt for one that ends the Task": Mutant(
        sees_roles(partial(_act, "FailTask")),
        _chaos(_create(_role(2, rule="FailFramework", **_FOREVER)), Step(5.0, "fail_pod", (0, 42))),
        "was never the first to match",
    ),
    "completion: ignores rules": Mutant(
        sees_roles(lambda one: one["task"].pop("podFailurePolicy", None)),
        _chaos(_create(_role(2, rule="FailFramework", **_FOREVER)), Step(5.0, "fail_pod", (0, 42))),
        "its failure rule was ignored",
    ),
    "retry: lets a Task wait after a disruption": Mutant(
        writes(_make_wait),
        _chaos(
            _create(_role(retry={"fancyRetryPolicy": True, "backoff": {"baseSeconds": 5}}, **_FOREVER)),
            Step(40.0, "evict", (0,)),
        ),
        "a disruption waits or counts",
    ),
    "retry: counts a suspension": Mutant(
        writes(_count_all),
        _chaos(
            _create(_role(2, **_FOREVER)),
            Step(5.0, "set_spec", ("f0", {"suspend": True})),
            Step(15.0, "set_spec", ("f0", {"suspend": False})),
        ),
        "accountable retries went up",
    ),
    # --- G1 to G3
    **{
        f"{name} ({backend.name})": Mutant(broken, _gang(backend, *steps), found)
        for backend in (Backend.NATIVE_1_37, Backend.VOLCANO)
        for name, broken, steps, found in (
            ("G1: creates Pods before their group", unsent(Post, *PODGROUPS), (_SETTLE,), "G1: "),
            (
                "G1: creates Pods without a group",
                sees_spec(lambda spec: spec.pop("scheduling", None)),
                (_SETTLE,),
                "G1: ",
            ),
            ("G2: raises a minimum", merges(PODGROUPS, _raise_minimum), _REPLACED, "G2: "),
            ("G3: never lowers a minimum", unsent(MergePatch, *PODGROUPS), _REPLACED, "It waits|G2: |Hot loop|It does"),
        )
    },
    # --- rules of retries, ends and hosts
    "retry: retries once more than it was told": Mutant(
        sees_spec(_retry_more),
        _chaos(_create(_role(run_seconds="2", exit_code="1"))),
        "retried: True, but|accountable retries",
    ),
    # A disruption is announced and called off, and then a user deletes the Pod.
    "retry: takes each deletion of a Pod for a disruption": Mutant(
        sees_pods(lambda pod: replace(pod, disruption=_EVICTION) if pod.identity.deleting else pod),
        _chaos(_create(_role(**_FOREVER)), Step(5.0, "call_disruption_off", (0,)), Step(6.0, "delete_pod", (0,))),
        "completed with -1010",
    ),
    "retry: retries at once, whatever the back-off": Mutant(
        sees_roles(lambda one: one["task"]["retryPolicy"].pop("backoff", None)),
        _chaos(
            _create(_role(retry={"maxRetryCount": 2, "backoff": {"baseSeconds": 5}}, run_seconds="2", exit_code="1"))
        ),
        "its back-off is 5s",
    ),
    "completion: ends no attempt by its Tasks": Mutant(
        sees_roles(lambda one: one.update(frameworkAttemptCompletionPolicy=_NEVER)),
        _chaos(_create(_role(2, **_FOREVER) | _ONE_FAILS), Step(5.0, "fail_pod", (0, 1))),
        "enough Tasks of a have failed",
    ),
    "completion: lets a Framework be active for longer than its activeDeadlineSeconds": Mutant(
        sees_spec(lambda spec: spec.pop("activeDeadlineSeconds", None)),
        _chaos(_create(_role(**_FOREVER), activeDeadlineSeconds=10)),
        "it was to end by its deadline",
    ),
    "completion: counts the active time of the last attempt only": Mutant(
        writes(lambda one: one.update(accumulatedPastExecutionTimeSeconds=0)),
        _chaos(
            _create(
                _role(run_seconds="6", exit_code="1") | _ONE_FAILS,
                retryPolicy={"maxRetryCount": 9},
                activeDeadlineSeconds=15,
            )
        ),
        "the active time of all attempts",
    ),
    "retention: deletes a Framework before its completion is stored": Mutant(
        believes(lambda one: one["state"] == "Completed"),
        _chaos(_create(_role(run_seconds="2"), ttlSecondsAfterFinished=0)),
        "the stored state is",
    ),
    "completion: ignores what ends a Framework with an invalid spec": Mutant(
        sees_spec(_lose_ends), _ends(endings.end_at, endings.suspend), ""
    ),
    "network: takes the creation of a Service for done": Mutant(
        unsent(Post, Kind.SERVICE), _chaos(_create(_role(**_FOREVER), network={})), "there was never a Service"
    ),
    "network: believes in a Service that is gone": Mutant(
        flawed(_Cherishes),
        _chaos(_create(_role(**_FOREVER), network={}), Step(5.0, "delete_service", ("f0",))),
        "its Service is not there",
    ),
    "network: creates Pods without host names": Mutant(
        posts(Kind.POD, lambda pod: pod["spec"].pop("hostname", None)),
        _chaos(_create(_role(**_FOREVER), network={})),
        "has the host name",
    ),
    "network: creates Services that nobody needs": Mutant(
        sees_spec(lambda spec: spec.update(network={})), _chaos(_create(_role(**_FOREVER))), "asks for Services"
    ),
    # --- liveness
    "rest: tries again without a pause what is refused": Mutant(
        flawed(_Hurries),
        _chaos(Step(0.0, "deny", ("services", ("create",), 3.0)), _create(_role(**_FOREVER), network={})),
        "it is in a circle",
    ),
    "rest: never forces the deletion of an unrecorded Pod on a lost node": Mutant(
        flawed(lambda: Unsent(lambda request: isinstance(request, Remove) and request.force)),
        _lost_unrecorded,
        "it waits for ever|it does not come about|Hot loop",
    ),
    "rest: believes its watches for ever": Mutant(
        lambda: patch.object(informers, "comparison_sec", None),
        _chaos(_create(_role(run_seconds="2")), _fault(0.5, Faults.SKIPPED, "", "pods", times=3)),
        "f0: a[0] is AttemptRunning",
    ),
    # --- N, B: progress
    "N: counts while reports may escape it": Mutant(
        flawed(_KnowsAll), hangs.a_server_is_down, "it made progress|no report may"
    ),
    "N: counts from the last report, by another process": Mutant(
        _hangs("since_of", _since_the_report), hangs.the_leader_dies, "N: "
    ),
    "N: compares wall clocks": Mutant(_hangs("since_of", _since_the_report), hangs.clocks_differ, "N: "),
    "N: believes its cache": Mutant(flawed(_ReadsItsCache), hangs.the_watch_lags, "it made progress"),
    "N: ends without an answer": Mutant(
        partial(patch.object, HangPart, "take", _takes_silence_for_a_yes),
        hangs.no_live_read_is_answered,
        "it made progress|without a live read",
    ),
    "N: overlooks progress": Mutant(flawed(_SeesNoProgress), hangs.the_watch_lags, "it made progress"),
    "N: counts while a Task waits for its Pod": Mutant(
        _hangs("tasks_run", lambda _: True), hangs.a_task_is_retried, "its Tasks did not run"
    ),
    "N: continues a clock that has stopped": Mutant(
        partial(patch.object, HangClock, "stop", lambda _: None), hangs.a_task_is_retried, "its Tasks did not run"
    ),
    "N: counts for a Framework that ends": Mutant(
        _hangs("is_asked_for", lambda ctx: not ctx.tracker.is_completing), hangs.it_is_being_deleted, "being deleted"
    ),
    "N: leaves no time for a write": Mutant(_hangs("WRITE_SEC", 0), hangs.writes_are_slow, "it made progress"),
    "N: leaves no time for the interval": Mutant(
        _hangs("limit_of", lambda _: hanghistory.DEADLINE + hang_rules.WRITE_SEC),
        hangs.writes_are_slow,
        "it made progress",
    ),
    "N: believes an old answer": Mutant(_hangs("READ_SEC", 1e9), hangs.an_answer_is_late, "after an old answer"),
    "N: counts for Pods that cannot report": Mutant(
        reads(Kind.CONFIGMAP, lambda body: body["data"].update(interval="10")),
        hangs.nothing_can_report,
        "cannot report",
    ),
    "N: takes the other deadline for the start": Mutant(
        sees_spec(lambda spec: spec["progress"].update(startDeadlineSeconds=hanghistory.DEADLINE)),
        hangs.it_starts_slowly,
        "N: ended at",
    ),
    "N: ends nothing": Mutant(partial(patch.object, HangPart, "why_end", lambda *_: None), hangs.it_hangs, "Hot loop"),
    "N: takes each report for progress": Mutant(
        _hangs("mark_of", lambda progress: progress), hangs.it_repeats_its_reports, "not ended"
    ),
    "B: renews no retries": Mutant(_made_progress(lambda *_: False), _renewed(*[_SAVES] * 3), "B: "),
    "B: renews all retries": Mutant(_made_progress(lambda *_: True), _renewed(_FAILS, _FAILS), "B: "),
    "B: takes a single report for progress": Mutant(
        _made_progress(_ran_for_long), _renewed(_FAILS, renewed.Attempt(first=100, last=100)), "B: "
    ),
    "B: counts progress of an earlier attempt": Mutant(
        _made_progress(lambda _, status, *__: status.progress is not None), _renewed(_SAVES, _FAILS), "B: "
    ),
    "B: lets the row of the back-off continue": Mutant(
        partial(patch.object, Tracker, "renew_retries", _renew_count), _renewed(_FAILS, _SAVES, limit=-2), "B: "
    ),
    # --- S3, U, O, W and T
    **{name: Mutant(broken, tale, found) for name, broken, tale, found in (*SERVICES, *REPORTS)},
}
"""By the guarantee, or what else is promised, and what they do."""
