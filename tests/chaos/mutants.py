"""Controllers broken on purpose: each lacks one thing that a guarantee rests on, and has a story in which that shows.

They show that the checks can fail. A mutant is a patch of the product that is there for the length of a ``with``; the
product itself has no such switch.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final
from unittest.mock import patch

import orjson

from frameworkcontroller.api import names, objects
from frameworkcontroller.api.codec import EncodedStatus
from frameworkcontroller.api.completion import POD_EXTERNAL_DELETED, CompletionStatus
from frameworkcontroller.api.objects import ClaimRecord, ConfigMapRecord, FrameworkRecord, PodRecord
from frameworkcontroller.api.spec import FailurePolicy, RetryPolicy
from frameworkcontroller.api.status import FrameworkAttemptStatus, State, TaskRoleStatus, TaskStatus
from frameworkcontroller.api.workloads import WorkloadRecord
from frameworkcontroller.backoff import Backoff
from frameworkcontroller.controller import httpsink
from frameworkcontroller.controller.driver import MAX_IN_FLIGHT
from frameworkcontroller.controller.historysink import HistorySink
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.crdguard import CrdGuard
from frameworkcontroller.local.queues.setup import LOCAL_QUEUE
from frameworkcontroller.machine import framework, gates, owned, reconciler, task
from frameworkcontroller.machine.kernel import actions, companions, context, holds, manifests, states
from frameworkcontroller.machine.kernel import policy as policies
from frameworkcontroller.machine.kernel.actions import Action, Delete, Target
from frameworkcontroller.machine.kernel.actions import Outcome as ActionOutcome
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.expectations import Expectations
from frameworkcontroller.machine.kernel.holds import Holds
from frameworkcontroller.machine.kernel.model import Urgency, require
from frameworkcontroller.machine.kernel.policy import RetryDecision, decide_retry
from frameworkcontroller.machine.kernel.protocol import ReadLive, View
from frameworkcontroller.machine.kernel.requests import Answer, Answered, Kind, PatchStatus, Refusal, Refused
from frameworkcontroller.machine.kernel.rules import with_rule
from frameworkcontroller.machine.kernel.tracker import Tracker
from frameworkcontroller.machine.parts.claims import volumeclaims as claims
from frameworkcontroller.machine.parts.dependencies import dependencies
from frameworkcontroller.machine.parts.gangs import gangs
from frameworkcontroller.machine.parts.history import archiving as history
from frameworkcontroller.machine.parts.kueue import kueue
from frameworkcontroller.machine.parts.kueue.workloadactions import GiveBack
from frameworkcontroller.machine.reconciler import Reconciler
from frameworkcontroller.manager import app, informers
from frameworkcontroller.manager.informers import CompanionInformer
from tests.chaos.embedded import EmbeddedPlayer, play
from tests.chaos.player import Outcome
from tests.chaos.proxy import Fault
from tests.chaos.proxy import Kind as Faults
from tests.chaos.story import CLAIM_SPEC, RETAIN_SEC, Step, Story, with_owner
from tests.support.frameworks import Json, policy, role
from tests.support.historysink import SinkFault, Trouble
from tests.support.queueguarantees import QUEUE_LABEL

_DELETE_ORPHAN: Final = task._delete_orphan
_MAINTAIN: Final = history.maintain
_PATIENCE_SEC: Final = 2000.0
"""More than the ten minutes in which a lost event is made up for."""

Patch = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True)
class Mutant:
    """``what`` it lacks; the ``story`` in which that shows; ``found``: words of what is found then."""

    what: str
    broken: Patch
    story: Story
    found: str

    def play(self, story: Story) -> Outcome:
        """Have it meet the story."""
        with self.broken(), patch.object(EmbeddedPlayer, "patience", _PATIENCE_SEC):
            return play(story)


# --- how they are broken --------------------------------------------------------------------------------------------


def _without_test_of(path: str) -> Patch:
    """Statuses are written whatever the Framework's ``path`` says by now."""

    class Careless(KubeClient):
        async def patch(self, *args: Any, **more: Any) -> bytes:
            resource, name, body, *rest = args
            guards = [item for item in orjson.loads(body) if item["path"] != path]
            return await super().patch(resource, name, orjson.dumps(guards), *rest, **more)

    return lambda: patch.object(app, "KubeClient", Careless)


def _deleting_with(**forced: Any) -> Patch:
    """All that is deleted is deleted with these arguments."""

    class Careless(KubeClient):
        async def delete(self, *args: Any, **more: Any) -> bytes:
            return await super().delete(*args, **{**more, **forced})

    return lambda: patch.object(app, "KubeClient", Careless)


def _propose_at_once(_: Reconciler, now: Any, actions: list[Action], _view: object) -> None:
    now.batch.add(actions)


def _plan_and_go_on(subject: Reconciler, now: Any, view: View) -> ReadLive | None:
    read = _PLAN_MORE(subject, now, view)
    now.batch.stopped = False
    return read


def _fold_unless_failed(subject: Reconciler, now: Any, outcomes: list[ActionOutcome], view: View) -> None:
    if now.done is None or now.done.error is None:
        _FOLD(subject, now, outcomes, view)


def _writing_at_the_newest_generation() -> AbstractContextManager[object]:
    """Writes of the status test the newest generation known, and take it for the one decided on."""

    def newest(subject: Reconciler) -> int:
        return require(subject._framework, "Framework").generation

    def patch_status(subject: Reconciler, _: int, encoded: EncodedStatus, **options: Any) -> PatchStatus:
        return _PATCH(subject, newest(subject), encoded, **options)

    def resolve(subject: Reconciler, now: Any, live: FrameworkRecord, _: int, *rest: Any) -> None:
        _RESOLVE(subject, now, live, newest(subject), *rest)

    return _all_of(patch.object(Reconciler, "_patch", patch_status), patch.object(Reconciler, "_resolve", resolve))


def _giving_outcomes_to_the_namesake() -> AbstractContextManager[object]:
    """What is answered when another Framework has the name is folded into that one's status."""
    given: dict[str, list[ActionOutcome]] = {}

    def fold(subject: Reconciler, now: Any, outcomes: list[ActionOutcome], view: View) -> None:
        record = view.record
        if record is None or record.uid == subject.uid:
            _FOLD(subject, now, outcomes, view)
        else:
            given.setdefault(subject.key, []).extend(outcomes)

    def plan_first(subject: Reconciler, now: Any, view: View) -> ReadLive | None:
        read = _PLAN_FIRST(subject, now, view)
        _FOLD(subject, now, given.pop(subject.key, []), view)
        return read

    return _all_of(patch.object(Reconciler, "_fold", fold), patch.object(Reconciler, "_plan_first", plan_first))


def _complete_while_the_pod_ends(ctx: Context, item: TaskStatus, pod: PodRecord) -> None:
    task.attempt_is_over(ctx, item, CompletionStatus.of(POD_EXTERNAL_DELETED, pod.uid))


def _delete_whoever_has_the_name(ctx: Context, item: TaskStatus, pod: PodRecord | None) -> bool:
    if pod is None or pod.uid == item.attempt.pod_uid:
        return False
    ctx.act(Delete(ctx.pod_target(item), pod.uid))
    return True


def _delete_an_orphan_at_once(ctx: Context, item: TaskStatus, pod: PodRecord | None) -> bool:
    with (
        patch.object(Tracker, "is_head_settled", True),
        patch.object(Tracker, "is_settled", lambda *_: True),
    ):
        return _DELETE_ORPHAN(ctx, item, pod)


def _accept_then_log(subject: Reconciler, *stored: Any) -> None:
    _ACCEPT(subject, *stored)
    _LOG_SNAPSHOTS(subject)


def _start_before_it_is_stored(tracker: Tracker, item: TaskRoleStatus) -> None:
    item.started = True
    tracker.change(None, Urgency.SOON)
    tracker.agenda.update(one.key for one in item.tasks)


def _retain_and_keep_nothing(ctx: Context) -> None:
    ctx.tracker.deletion_snapshot_taken = True
    _RETAIN(ctx)
    ctx.tracker.deletion_snapshot_taken = False


def _retry_once_more(policy: RetryPolicy, completion: CompletionStatus, used: int, delay: int) -> RetryDecision:
    return decide_retry(policy, completion, used - 1, delay)


def _count_suspensions(policy: RetryPolicy, completion: CompletionStatus, used: int, delay: int) -> RetryDecision:
    decision = decide_retry(policy, completion, used, delay)
    return replace(decision, accountable=decision.accountable or completion.code == -240)


def _adopt_nothing_that_is_suspended(ctx: Context, configmap: ConfigMapRecord | None) -> bool:
    return not ctx.framework.spec.is_suspended and _ADOPT(ctx, configmap)


def _end_with_the_deletion(ctx: Context) -> None:
    _WITH_DELETING_CONFIGMAP(ctx)
    if not ctx.framework.spec.is_suspended and (completion := ctx.attempt.completion_status) is not None:
        framework.attempt_is_over(ctx, completion)


def _look_and_believe_gateways(action: Delete) -> Any:
    exchange = _REASON_TO_SPARE(action)
    try:
        request = next(exchange)
        while True:
            answer = yield request
            if isinstance(answer, Refused) and answer.code == 404:
                answer = replace(answer, kind=Refusal.OBJECT_NOT_FOUND, by_api=True)
            request = exchange.send(answer)
    except StopIteration as end:
        return end.value


def _never_by_any_rule(policy: RetryPolicy, completion: CompletionStatus, used: int, delay: int) -> RetryDecision:
    return RetryDecision(False) if completion.policy is not None else decide_retry(policy, completion, used, delay)


def _retry_by_the_rules_of_now(ctx: Context, item: TaskStatus) -> None:
    spec = ctx.framework.spec.role(item.role)
    stored = require(item.attempt.completion_status, "completionStatus")
    now = with_rule(None if spec is None else spec.task.pod_failure_policy, replace(stored, policy=None), None)
    with patch.object(task, "_completion_of", lambda _: now):
        _DECIDE_TASK_RETRY(ctx, item)


def _believe_conditions_that_are_false(status: Mapping[str, Any], *, whole: bool) -> Any:
    believed = [{**one, "status": "True"} for one in status.get("conditions") or ()]
    return _CONDITIONS({**status, "conditions": believed}, whole=whole)


def _with_the_last_rule(rules_: FailurePolicy | None, completion: CompletionStatus, pod: PodRecord | None) -> Any:
    if rules_ is None:
        return completion
    last = len(rules_.rules) - 1
    turned = with_rule(rules_.model_copy(update={"rules": rules_.rules[::-1]}), completion, pod)
    found = turned.policy
    return turned if found is None else replace(turned, policy=replace(found, rule=last - found.rule))


def _retain_what_is_not_stored(ctx: Context) -> None:
    ctx.act(Delete(Target(Kind.FRAMEWORK, ctx.framework.name), ctx.framework.uid))


def _count_the_last_attempt_only(tracker: Tracker, state: State, now: int) -> None:
    status = require(tracker.status, "status")
    past = status.accumulated_past_execution_time_seconds
    _MOVE_FRAMEWORK(tracker, state, now)
    if state is State.ATTEMPT_COMPLETED:
        status.accumulated_past_execution_time_seconds -= past


def _keep_what_has_started(tracker: Tracker, attempt: FrameworkAttemptStatus, *args: Any, **more: Any) -> None:
    before = {role.name: role.started for role in require(tracker.status, "status").attempt.roles}
    for role_ in attempt.roles:
        role_.started = before.get(role_.name, False)
    _RETRY_FRAMEWORK(tracker, attempt, *args, **more)


def _give_quota_back_at_once(ctx: Context, record: Any) -> None:
    if isinstance(record, WorkloadRecord) and record.evicted and record.reserves:
        kueue._act(ctx, GiveBack(kueue._target(ctx), record.uid, ctx.env.second), record)
    _RUNNING(ctx, record)


def _no(*_: object) -> bool:
    return False


def _yes(*_: object) -> bool:
    return True


def _nothing(*_: object) -> Sequence[Any]:
    return ()


async def _sleep_for_ever(_: object) -> None:
    await asyncio.Event().wait()


def _none(*_: object) -> None:
    return None


def _ask_and_go_on(may_forget: Callable[..., bool]) -> Callable[..., bool]:
    """What is forgotten is sent to the archive, which nothing waits for."""

    def forget(*args: Any) -> bool:
        may_forget(*args)
        return True

    return forget


def _let_go_at_once(ctx: Context) -> None:
    """The finalizer is removed as soon as the Framework is deleted."""
    _MAINTAIN(ctx)
    if ctx.must_go:
        history._change(ctx, add=False)


async def _send_and_go_on(subject: HistorySink, records: list[Any]) -> Answer:
    for record in records:
        subject._add_unawaited(record)
    return Answered(b"")


_ADOPT: Final = framework._adopt
_WITH_DELETING_CONFIGMAP: Final = framework._with_deleting_configmap
_REASON_TO_SPARE: Final = Delete._reason_to_spare
_FOLD: Final = Reconciler._fold


def _not_waiting_for_companions() -> AbstractContextManager[object]:
    """The ConfigMap is created beside the Service."""

    def keep(*args: Any) -> bool:
        _KEEP(*args)
        return True

    return _all_of(patch.object(companions, "keep", keep), _unless(gates, "_BEGIN", companions.pending))


def _deleting_what_is_in_the_way(ctx: Context, target: Target, found: Any, *_: Any) -> None:
    ctx.tracker.follow_ups.append(Delete(target, found.uid))


async def _watching_at_once(subject: CompanionInformer[Any]) -> None:
    subject._wanted.set()
    await _RUN_COMPANIONS(subject)


def _without_host_names(template: Any, annotations: Any, _: Any, *rest: Any) -> Any:
    return _POD(template, annotations, None, *rest)


def _with_owners_of_the_template(template: Any, *args: Any) -> Any:
    pod = _POD(template, *args)
    pod["metadata"]["ownerReferences"][:0] = template["metadata"].get("ownerReferences") or ()
    return pod


def _not_waiting_for_claims(ctx: Context, of_task: TaskStatus) -> bool:
    _KEEP_CLAIMS(ctx, of_task)
    return True


def _using_the_claims_of_others() -> AbstractContextManager[object]:
    """A claim of the name is as good as one of the Task."""
    return _all_of(patch.object(claims, "_is_ours", _yes), patch.object(claims, "_is_adopted", _yes))


def _changing_the_claims_of_others() -> AbstractContextManager[object]:
    """Whatever has the name of a Task's claim is made the Framework's."""
    return _all_of(*(patch.object(module, "is_claim_of", _yes) for module in (actions, claims, owned)))


def _deleting_what_is_to_be_retained(ctx: Context, target: Target, found: Any, role: Any) -> Any:
    gone = role is None or target.index >= role.task_number
    return Delete(target, found.uid) if gone else _CHANGE_TASKLESS(ctx, target, found, role)


def _deleting_too_early(ctx: Context, name: str) -> Any:
    """A claim goes when the number of Tasks does not include it any more, whatever runs."""
    claim, _, role_name, index = names.split_claim_name(name) or ("", "", "", 0)
    role, found = ctx.framework.spec.role(role_name), ctx.observed.find_companion(Kind.VOLUME_CLAIM, name)
    if claim and role is not None and index >= role.task_number and isinstance(found, ClaimRecord):
        return Delete(Target(Kind.VOLUME_CLAIM, name, role=role_name, index=index), found.uid)
    return _CHANGE_CLAIM(ctx, name)


_RUNNING: Final = kueue._running
_KEEP_CLAIMS: Final = claims.keep
_CHANGE_CLAIM: Final = claims._change
_CHANGE_TASKLESS: Final = claims._change_taskless
_KEEP: Final = companions.keep
_POD: Final = manifests._pod
_RUN_COMPANIONS: Final = CompanionInformer.run
_PATCH: Final = Reconciler._patch
_PLAN_FIRST: Final = Reconciler._plan_first
_PLAN_MORE: Final = Reconciler._plan_more
_RESOLVE: Final = Reconciler._resolve
_ACCEPT: Final = Reconciler._accept
_LOG_SNAPSHOTS: Final = Reconciler._log_snapshots
_RETAIN: Final = framework.retain
_DECIDE_TASK_RETRY: Final = task._decide_retry
_CONDITIONS: Final = objects._conditions
_MOVE_FRAMEWORK: Final = Tracker.move_framework
_RETRY_FRAMEWORK: Final = Tracker.retry_framework


def _unless(module: object, row: str, rule: object) -> AbstractContextManager[object]:
    """A row of rules lacks this one."""
    return patch.object(module, row, tuple(one for one in getattr(module, row) if one is not rule))


@contextmanager
def _all_of(*patches: AbstractContextManager[object]) -> Iterator[None]:
    if not patches:
        yield
        return
    with patches[0], _all_of(*patches[1:]):
        yield


# --- the stories that show it ---------------------------------------------------------------------------------------


def _create(*roles: Json, **spec: Any) -> Step:
    return Step(0.0, "create", ("f0", list(roles), spec))


def _role(
    number: int = 1,
    *,
    retry: Json | None = None,
    timeout: int | None = None,
    force: str | None = None,
    rule: str = "",
    **simulate: str,
) -> Json:
    more: Json = {} if timeout is None else {"podGracefulDeletionTimeoutSec": timeout}
    more |= {} if force is None else {"podForceDeletionPolicy": force}
    if rule:
        on_exit_codes = {"operator": "In", "values": [42]}
        more["podFailurePolicy"] = {"rules": [{"action": rule, "onExitCodes": on_exit_codes}]}
    return role(
        "a",
        number,
        simulate={key.replace("_", "-"): value for key, value in simulate.items()},
        task={"retryPolicy": retry or {}, **more},
    )


def _fault(at: float, kind: Faults, verb: str, resource: str, **more: Any) -> Step:
    return Step(at, "fault", (Fault(kind, verb, resource, **more),))


def _networked(number: int = 1, **role: Any) -> Step:
    return _create(_role(number, **role, **_FOREVER), network={})


def _queued(*roles: Json, **spec: Any) -> Step:
    created = _create(*roles, **spec)
    return replace(created, args=(*created.args[:2], spec | {"metadata": {"labels": {QUEUE_LABEL: LOCAL_QUEUE}}}))


def _deny(at: float, *verbs: str, seconds: float) -> Step:
    return Step(at, "deny", ("services", verbs, seconds))


def _claiming(number: int = 1, stop_seconds: str = "0", **retention: str) -> Step:
    item = _role(number, stop_seconds=stop_seconds, **_FOREVER)
    item["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": CLAIM_SPEC}]
    return _create(item | {"persistentVolumeClaimRetentionPolicy": retention})


def _taken(at: float, labels: Json) -> Step:
    """Somebody has a claim of the first Task's name for a while."""
    return Step(at, "take_claim", ("data-f0-a-0", labels, {}, 20.0))


def _story(*steps: Step, in_flight: int = MAX_IN_FLIGHT, retain_sec: int = RETAIN_SEC, seed: int = 0) -> Story:
    # Faults stop after the last step.
    last = Step(max(step.at for step in steps) + 30.0, "annotate", ("f0",))
    return Story(seed, (*sorted(steps, key=lambda step: step.at), last), in_flight, retain_sec)


def _archived(*steps: Step) -> Story:
    """A story with an archive of the history."""
    return replace(_story(*steps), history="Block")


def _slow(resource: str, before: float, after: float) -> Step:
    return Step(0.0, "slow_down", (resource, before, after))


_FOREVER: Final[Json] = {"run_seconds": "forever"}
_SUSPEND: Final[Json] = {"suspend": True}
_RESUME: Final[Json] = {"suspend": False}
_FAILS_ONCE: Final[Json] = {"retry": {"maxRetryCount": 1}, "run_seconds": "3, forever", "exit_code": "1"}

MUTANTS: Final = {
    # The answer to a deletion is lost, the cache lags, and before it is asked for again somebody else has the name.
    "no-uid-precondition": Mutant(
        "deletes whoever has the name",
        _deleting_with(uid=None),
        _story(
            _create(_role(2, **_FOREVER)),
            _fault(9.0, Faults.HELD, "", "pods", seconds=10.0),
            _fault(9.0, Faults.LOST, "delete", "pods"),
            Step(9.0, "take_name", (1, False, 30.0)),
            Step(9.5, "rescale", ("f0", "a", 1)),
        ),
        "it is not ours",
    ),
    # A Pod is created and not recorded; before another controller sees it, its Framework is deleted, which must wait
    # for the history.
    "orphans-before-decisions": Mutant(
        "deletes an unrecorded Pod by a decision that is not persisted",
        lambda: patch.object(task, "_delete_orphan", _delete_an_orphan_at_once),
        _archived(
            _create(_role(**_FOREVER)),
            _fault(4.9, Faults.SLOW, "create", "pods", times=2, seconds=20.0),
            _fault(4.9, Faults.HELD, "", "pods", seconds=20.0),
            Step(5.0, "rescale", ("f0", "a", 3)),
            Step(6.0, "kill_controller", (5.0,)),
            Step(7.0, "delete", ("f0", "Background")),
        ),
        "no status that was ever stored gives cause",
    ),
    # A deletion that was given up is executed when the Task has its next Pod, under the same name.
    "no-uid-precondition-and-late": Mutant(
        "deletes whoever has the name, by then",
        _deleting_with(uid=None),
        _story(
            _create(_role(**_FAILS_ONCE)),
            _fault(2.0, Faults.LATE, "delete", "pods", seconds=20.0),
        ),
        "no status that was ever stored gives cause",
    ),
    # A write of the status that was given up comes when others have followed.
    "no-version-test": Mutant(
        "writes a status over whichever is stored",
        _without_test_of("/metadata/resourceVersion"),
        _story(
            _create(_role(**_FAILS_ONCE)),
            _fault(2.0, Faults.LATE, "patch", "frameworks", seconds=20.0),
        ),
        "went back",
    ),
    # The answer to a write is lost; it is found to have landed, and the user's edit since then is not in the cache yet.
    "no-generation-test": Mutant(
        "writes what it decided by an older spec",
        _without_test_of("/metadata/generation"),
        _story(
            _create(_role(run_seconds="6")),
            _fault(3.0, Faults.HELD, "", "frameworks", seconds=20.0),
            _fault(3.0, Faults.LOST, "patch", "frameworks", times=4),
            Step(3.0, "fail_pod", (0, 1)),
            Step(3.1, "rescale", ("f0", "a", 3)),
        ),
        "was decided",
    ),
    # The write that shows what was decided is lost, and meanwhile the user's edit is read.
    "no-memory-of-the-generation": Mutant(
        "tests the newest generation when it writes what it decided by an older one",
        _writing_at_the_newest_generation,
        _story(
            _create(_role(run_seconds="60")),
            _fault(3.0, Faults.FAILED, "patch", "frameworks", times=5),
            Step(3.0, "fail_pod", (0, 1)),
            Step(3.2, "rescale", ("f0", "a", 3)),
        ),
        "was decided",
    ),
    # Its ConfigMap is created slowly, and by then another Framework has its name.
    "no-difference-between-namesakes": Mutant(
        "takes what it did for a Framework for what it did for the next one of its name",
        _giving_outcomes_to_the_namesake,
        _story(
            _fault(0.5, Faults.SLOW, "create", "configmaps", seconds=6.0),
            replace(_create(_role(**_FOREVER)), at=1.0),
            Step(3.0, "delete", ("f0", "Background")),
            replace(_create(_role(**_FOREVER)), at=4.0),
        ),
        "the first status stored says",
    ),
    "no-persist-before-act": Mutant(
        "creates Pods for what is not persisted",
        lambda: patch.object(Tracker, "is_settled", _yes),
        _story(_create(_role(**_FAILS_ONCE))),
        "creation of f0-a-0",
    ),
    # The Pod is there, and the controller that made it does not know.
    "no-adoption": Mutant(
        "forgets what it created when the answer is lost",
        lambda: _all_of(patch.object(task, "_adopt", _no), patch.object(framework, "_adopt", _no)),
        _story(_create(_role(**_FOREVER)), _fault(0.0, Faults.LOST, "create", "pods")),
        "no status that was ever stored gives cause",
    ),
    # The Pod of a Task fails by a rule that ends the whole; the other Task would run for ever.
    "no-end-by-a-rule": Mutant(
        "does not end the attempt if a rule says so",
        lambda: patch.object(gates, "end_by_rule", _none),
        _story(_create(_role(2, rule="FailFramework", **_FOREVER)), Step(5.0, "fail_pod", (0, 42))),
        "failed by a rule that ends the attempt",
    ),
    # The rule is RestartFramework: the Task is not retried, and the Framework is.
    "no-difference-between-levels": Mutant(
        "lets the rule of a Task decide about the retry of the Framework, too",
        lambda: patch.object(framework, "decide_retry", _never_by_any_rule),
        _story(
            _create(_role(2, rule="RestartFramework", **_FOREVER), retryPolicy={"maxRetryCount": 1}),
            Step(5.0, "fail_pod", (0, 42)),
        ),
        "retried: False, but",
    ),
    "no-waiting-for-the-old-pod": Mutant(
        "retries a Task while its old Pod still ends",
        lambda: patch.object(task, "_with_deleting_pod", _complete_while_the_pod_ends),
        _story(_create(_role(stop_seconds="2", **_FAILS_ONCE))),
        "C2: ",
    ),
    # The list says that the Task's first Pod is still to be created; by now its second one runs.
    "no-confirming-read": Mutant(
        "acts at once on what its first list says",
        lambda: _all_of(patch.object(Reconciler, "_propose", _propose_at_once), patch.object(context, "is_newer", _no)),
        _story(
            _fault(0.0, Faults.FAILED, "create", "pods", times=5),
            _create(_role(retry={"maxRetryCount": 1}, run_seconds="1, forever", exit_code="1")),
            Step(4.0, "kill_controller", (0.2,)),
            _fault(20.0, Faults.STALE, "list", "frameworks"),
            _fault(20.0, Faults.DELAY, "watch", "frameworks", seconds=10.0),
            Step(21.0, "kill_controller", (1.0,)),
            Step(40.0, "annotate", ("f0",)),
        ),
        "no status that was ever stored gives cause",
    ),
    # The list of Pods is from before the Pod was there.
    "no-confirmed-absence": Mutant(
        "takes a Pod for gone that its cache has never shown",
        lambda: patch.object(Expectations, "has_seen", _yes),
        _story(
            Step(0.0, "kill_controller", (1.0,)),
            _create(_role(**_FOREVER)),
            _fault(20.0, Faults.STALE, "list", "pods"),
            _fault(20.0, Faults.DELAY, "watch", "pods", seconds=10.0),
            Step(21.0, "kill_controller", (1.0,)),
        ),
        "C2: ",
    ),
    # Its label is taken off while it ends, which its watch tells as it tells of its end.
    "no-doubt-of-ends": Mutant(
        "takes a terminating Pod for gone that is not watched any more",
        lambda: patch.object(PodRecord, "is_removed", property(lambda pod: pod.identity.deleting)),
        _story(
            _create(_role(stop_seconds="20", **_FOREVER)),
            Step(9.0, "delete_pod", (0,)),
            Step(12.0, "unlabel", (0,)),
        ),
        "C2: ",
    ),
    "no-foreground-deletion": Mutant(
        "deletes an attempt's ConfigMap without waiting for its Pods",
        lambda: _all_of(
            patch.object(framework, "_has_pods", _no),
            patch.dict(actions.PROPAGATION, {Kind.CONFIGMAP: "Background"}),
        ),
        _story(_create(_role(stop_seconds="5", **_FOREVER)), Step(9.0, "execute", ("f0", "Stop"))),
        "C4: ",
    ),
    "no-wait-for-orphans": Mutant(
        "takes an attempt for over as soon as its ConfigMap is gone",
        lambda: patch.object(framework, "_has_pods", _no),
        _story(
            _create(_role(stop_seconds="5", **_FOREVER)),
            Step(9.0, "delete_configmap", ("f0", "Background")),
        ),
        "C4: ",
    ),
    "no-grace": Mutant(
        "deletes Pods by force at once",
        _deleting_with(grace_period_seconds=0),
        _story(_create(_role(stop_seconds="5", timeout=60, **_FAILS_ONCE))),
        "by force",
    ),
    # The node is well, and the Pod writes its last checkpoint.
    "no-look-at-the-node": Mutant(
        "deletes Pods by force whatever becomes of their nodes",
        lambda: patch.object(Delete, "_reason_to_spare", _nothing),
        _story(
            _create(_role(timeout=5, force="NodeUnreachable", stop_seconds="20", **_FOREVER)),
            Step(9.0, "delete_pod", (0,)),
        ),
        "its Node was healthy",
    ),
    # And a gateway answers for the API server.
    "no-doubt-of-gateways": Mutant(
        "takes a Node for gone because a gateway does not find it",
        lambda: patch.object(Delete, "_reason_to_spare", _look_and_believe_gateways),
        _story(
            _create(_role(timeout=5, force="NodeUnreachable", stop_seconds="20", **_FOREVER)),
            _fault(9.0, Faults.NO_BACKEND, "get", "nodes", times=100),
            Step(9.0, "delete_pod", (0,)),
        ),
        "its Node was healthy",
    ),
    "no-respect-for-others": Mutant(
        "deletes the Pod of somebody else that has its Task's name",
        lambda: patch.object(task, "_delete_orphan", _delete_whoever_has_the_name),
        _story(
            _create(_role(**_FAILS_ONCE)),
            Step(2.0, "take_name", (0, True, 30.0)),
            Step(2.0, "kill_controller", (5.0,)),
            Step(2.5, "delete_pod", (0,)),
        ),
        "it is not ours",
    ),
    # A creation that was given up is executed when its Task is gone.
    "no-search-for-orphans": Mutant(
        "lets Pods be that no Task has",
        lambda: _all_of(patch.object(task, "taskless_pods", _nothing), patch.object(task, "delete_taskless", _no)),
        _story(
            _create(_role(2, **_FOREVER)),
            _fault(0.0, Faults.LATE, "create", "pods", times=2, seconds=30.0),
            Step(0.5, "rescale", ("f0", "a", 0)),
            Step(15.0, "rescale", ("f0", "a", 0)),
        ),
        "no Task of its has it",
    ),
    "no-second-list": Mutant(
        "believes its watches for ever",
        lambda: patch.object(informers, "comparison_sec", None),
        _story(_create(_role(run_seconds="2")), _fault(0.5, Faults.SKIPPED, "", "pods", times=3)),
        "f0: a[0] is AttemptRunning",
    ),
    "no-retry-limit": Mutant(
        "retries once more than it was told",
        lambda: _all_of(*(patch.object(module, "decide_retry", _retry_once_more) for module in (framework, policies))),
        _story(_create(_role(run_seconds="2", exit_code="1"))),
        "retried: True, but",
    ),
    # One Task fails while others are still being created.
    "no-end-of-creations": Mutant(
        "writes that an attempt is over while it still creates Pods",
        lambda: patch.object(Reconciler, "_plan_more", _plan_and_go_on),
        _story(
            _slow("pods", 3.0, 0.0),
            _create(_role(20, run_seconds="1", exit_code="1") | {"frameworkAttemptCompletionPolicy": policy(1)}),
            in_flight=2,
        ),
        "the attempt is completing",
    ),
    # The last creation fails while a status is written, and then that write is lost.
    "no-news-of-what-ended-meanwhile": Mutant(
        "forgets what became of actions while a write of the status was lost",
        lambda: patch.object(Reconciler, "_fold", _fold_unless_failed),
        _story(
            _slow("pods", 2.0, 0.0),
            _create(_role(8, **_FOREVER)),
            _fault(5.0, Faults.DELAY, "patch", "frameworks", seconds=70.0),
            _fault(9.0, Faults.FAILED, "create", "pods"),
            in_flight=2,
        ),
        "is AttemptCreationPending",
    ),
    # The controller starts anew while Pods cannot be created, and its first look at the Framework fails.
    "no-second-try": Mutant(
        "forgets what it was to do when it could not be sure of the status",
        lambda: patch.object(Reconciler, "_leave", _none),
        _story(
            _fault(0.0, Faults.FAILED, "create", "pods", times=3),
            _create(_role(3, **_FOREVER)),
            _fault(1.0, Faults.FAILED, "get", "frameworks"),
            Step(1.0, "kill_controller", (0.2,)),
        ),
        "is AttemptCreationPending",
    ),
    # The Pod of a lost creation comes, and is deleted, while the next try waits for its turn.
    "no-second-thoughts": Mutant(
        "creates what it was to create some time ago",
        lambda: patch.object(Reconciler, "_is_wanted", _yes),
        _story(
            _slow("pods", 2.0, 0.0),
            _create(_role(12, **_FOREVER)),
            _fault(0.0, Faults.LOST, "create", "pods"),
            _fault(1.0, Faults.HELD, "", "pods", seconds=5.0),
            Step(9.0, "delete_pod", (0,)),
            in_flight=2,
            # One with which the lost creation is held back for longer than the others.
            seed=5,
        ),
        "the stored state is",
    ),
    # The write that begins a Task's next attempt is accepted, and the controller dies before it is answered.
    "no-history-before-the-write": Mutant(
        "logs an attempt once the status has lost it",
        lambda: _all_of(
            patch.object(Reconciler, "_accept", _accept_then_log), patch.object(Reconciler, "_log_snapshots", _none)
        ),
        _story(
            _create(_role(**_FAILS_ONCE)),
            _fault(3.0, Faults.SLOW, "patch", "frameworks", times=20, seconds=5.0),
            Step(20.0, "kill_controller", (2.0,)),
        ),
        "is in no snapshot",
    ),
    # The Framework goes at the end of its retention, and no controller is there to see it.
    "no-history-before-the-deletion": Mutant(
        "logs a Framework once it is gone",
        lambda: patch.object(framework, "retain", _retain_and_keep_nothing),
        _story(
            _create(_role(run_seconds="1")),
            _fault(4.0, Faults.SLOW, "delete", "frameworks", seconds=5.0),
            _fault(4.0, Faults.HELD, "", "frameworks", seconds=20.0),
            Step(12.0, "kill_controller", (5.0,)),
            retain_sec=10,
        ),
        "is in no snapshot",
    ),
    # What a slow controller creates is there already: of an attempt that the other one has begun since.
    "no-live-status-after-409": Mutant(
        "deletes what it finds in place of what it was to create",
        lambda: _all_of(
            patch.object(reconciler, "needs_live_status", _no),
            patch.object(context, "is_newer", _no),
        ),
        _story(
            _fault(0.0, Faults.FAILED, "create", "pods", times=3),
            _create(_role(1, retry={"maxRetryCount": 1}, run_seconds="2, forever", exit_code="1")),
            _fault(1.8, Faults.DELAY, "create", "pods", seconds=10.0),
            _fault(1.8, Faults.HELD, "", "pods", seconds=20.0),
            Step(1.8, "second_controller", (20.0,)),
        ),
        "no status that was ever stored gives cause",
    ),
    # Of another instance of the Task.
    "no-live-status-after-409-of-a-new-task": Mutant(
        "deletes what it finds in place of what it was to create, by then for another Task",
        lambda: patch.object(reconciler, "needs_live_status", _no),
        _story(
            _fault(0.0, Faults.FAILED, "create", "pods"),
            _create(_role(1, **_FOREVER)),
            _fault(0.1, Faults.DELAY, "create", "pods", seconds=20.0),
            _fault(1.0, Faults.HELD, "", "frameworks", seconds=30.0),
            Step(0.2, "second_controller", (40.0,)),
            Step(6.0, "rescale", ("f0", "a", 0)),
            Step(10.0, "rescale", ("f0", "a", 1)),
        ),
        "no status that was ever stored gives cause",
    ),
    # Of another attempt of the Framework.
    "no-live-status-after-409-of-a-configmap": Mutant(
        "deletes the ConfigMap that it finds in place of the one that it was to create",
        lambda: _all_of(
            patch.object(reconciler, "needs_live_status", _no),
            patch.object(context, "is_newer", _no),
        ),
        _story(
            _fault(0.0, Faults.DELAY, "create", "configmaps", seconds=20.0),
            _create(
                _role(1, run_seconds="12", exit_code="1") | {"frameworkAttemptCompletionPolicy": policy(1)},
                retryPolicy={"maxRetryCount": 1},
            ),
            _fault(0.1, Faults.HELD, "", "configmaps", seconds=30.0),
            Step(0.2, "second_controller", (40.0,)),
        ),
        "no status that was ever stored gives cause",
    ),
    # Somebody applies the original's CRD over ours, and the Framework is stopped.
    "no-guard-of-the-crd": Mutant(
        "never looks at the CRD again",
        lambda: patch.object(CrdGuard, "run", _sleep_for_ever),
        _story(
            _create(_role(2, **_FOREVER)),
            Step(9.0, "replace_crd"),
            Step(9.5, "execute", ("f0", "Stop")),
        ),
        "the newest spec is not observed",
    ),
    "no-stored-start": Mutant(
        "starts a role that waited before that is stored",
        lambda: patch.object(Tracker, "start_role", _start_before_it_is_stored),
        _story(_create(_role(run_seconds="3"), {**role("b", 2), "dependsOn": [{"name": "a", "status": "Ready"}]})),
        "D: ",
    ),
    "no-order": Mutant(
        "lets no role wait",
        lambda: _unless(gates, "_CREATE", dependencies.dependency_wait),
        _story(_create(_role(**_FOREVER), {**role("b", 2), "dependsOn": [{"name": "a", "status": "Complete"}]})),
        "D: ",
    ),
    # The other role fails without a retry, and no policy ends the attempt.
    "no-end-of-a-vain-wait": Mutant(
        "waits for a role that can never be complete",
        lambda: _unless(gates, "_END_BY_TASKS", dependencies.unmet_dependency),
        _story(
            _create(
                _role(run_seconds="3", exit_code="1"),
                {**role("b", 2), "dependsOn": [{"name": "a", "status": "Complete"}]},
            )
        ),
        "which has failed",
    ),
    "no-completion-policy": Mutant(
        "never completes an attempt by its Tasks",
        lambda: patch.object(gates, "evaluate_completion", _none),
        _story(_create(_role(run_seconds="2"))),
        "all Tasks are completed",
    ),
    "no-deadline": Mutant(
        "lets a Framework be active for longer than its activeDeadlineSeconds",
        lambda: patch.object(gates, "_END_LAST", ()),
        _story(_create(_role(**_FOREVER), activeDeadlineSeconds=10)),
        "it was to end by its deadline",
    ),
    "no-sum-of-active-times": Mutant(
        "counts the active time of the last attempt only",
        lambda: patch.object(Tracker, "move_framework", _count_the_last_attempt_only),
        _story(
            _create(
                _role(run_seconds="6", exit_code="1") | {"frameworkAttemptCompletionPolicy": policy(1)},
                retryPolicy={"maxRetryCount": 9},
                activeDeadlineSeconds=15,
            )
        ),
        "the active time of all attempts",
    ),
    # The API server takes long for each status.
    "no-stored-end-before-the-deletion": Mutant(
        "deletes a Framework before its completion is stored",
        lambda: _all_of(
            patch.object(framework, "retain", _retain_what_is_not_stored),
            # Otherwise the end is written at once, before any action.
            patch.dict(states.FRAMEWORK_URGENCY, dict.fromkeys(states.ENDED, Urgency.LATER)),
        ),
        _story(
            _slow("frameworks", 0.0, 4.0),
            _create(_role(run_seconds="20"), ttlSecondsAfterFinished=0),
        ),
        "the stored state is",
    ),
    "no-back-off": Mutant(
        "retries at once, whatever the back-off",
        lambda: patch.object(policies, "exponential", lambda *_: 0),
        _story(
            _create(_role(retry={"maxRetryCount": 2, "backoff": {"baseSeconds": 5}}, run_seconds="2", exit_code="1"))
        ),
        "its back-off is 5s",
    ),
    "no-exemption-of-disruptions": Mutant(
        "lets a Task wait after an eviction",
        lambda: patch.object(policies, "_DISRUPTED", frozenset()),
        _story(
            _create(_role(retry={"fancyRetryPolicy": True, "backoff": {"baseSeconds": 5}}, **_FOREVER)),
            Step(40.0, "evict", (0,)),
        ),
        "a disruption waits or counts",
    ),
    # The rule is taken away while the retry that it has allowed waits for its back-off.
    "no-memory-of-the-rule": Mutant(
        "decides about a retry by the rules of that moment",
        lambda: patch.object(task, "_decide_retry", _retry_by_the_rules_of_now),
        _story(
            _create(
                _role(
                    retry={"maxRetryCount": 1, "backoff": {"baseSeconds": 20, "maxSeconds": 60}},
                    rule="Ignore",
                    **_FOREVER,
                )
            ),
            Step(5.0, "fail_pod", (0, 42)),
            Step(10.0, "set_task", ("f0", "a", {"podFailurePolicy": None})),
        ),
        "accountable retries went up by 1",
    ),
    "no-order-of-rules": Mutant(
        "lets the last rule that matches decide",
        lambda: patch.object(task, "with_rule", _with_the_last_rule),
        _story(
            _create(
                role(
                    "a",
                    1,
                    simulate={"run-seconds": "2", "exit-code": "42, 0"},
                    task={
                        "podFailurePolicy": {
                            "rules": [
                                {"action": action, "onCompletionCodes": {"operator": "In", "values": [42]}}
                                for action in ("Ignore", "FailTask")
                            ]
                        }
                    },
                )
            )
        ),
        "was never the first to match",
    ),
    # A disruption was announced and called off, and then somebody deletes the Pod.
    "no-look-at-the-status-of-a-condition": Mutant(
        "takes a condition for met whatever its status",
        lambda: patch.object(objects, "_conditions", _believe_conditions_that_are_false),
        _story(
            _create(_role(**_FOREVER)),
            Step(5.0, "call_disruption_off", (0,)),
            Step(6.0, "delete_pod", (0,)),
        ),
        "completed with -1010",
    ),
    "no-new-start-of-roles": Mutant(
        "starts the roles of a new attempt that had started in the last one",
        lambda: patch.object(Tracker, "retry_framework", _keep_what_has_started),
        _story(
            _create(
                _role(run_seconds="3"),
                {
                    **role("b", 1, simulate={"run-seconds": "3", "exit-code": "1, 0"}),
                    "dependsOn": [{"name": "a", "status": "Complete"}],
                    "frameworkAttemptCompletionPolicy": policy(1),
                },
                retryPolicy={"maxRetryCount": 1},
            )
        ),
        "has started before its attempt",
    ),
    "no-deadline-of-pods": Mutant(
        "waits for a Pod to run for longer than its preRunningDeadlineSeconds",
        lambda: patch.object(task, "_exceeds_deadline", _none),
        _story(
            _create(
                role(
                    "a",
                    1,
                    simulate={"prepare-seconds": "forever"},
                    task={"preRunningDeadlineSeconds": 10},
                )
            )
        ),
        "a[0] is AttemptPreparing",
    ),
    "counted-suspension": Mutant(
        "counts the retry after a suspension",
        lambda: patch.object(framework, "decide_retry", _count_suspensions),
        _story(
            _create(_role(2, **_FOREVER)),
            Step(5.0, "set_spec", ("f0", _SUSPEND)),
            Step(15.0, "set_spec", ("f0", _RESUME)),
        ),
        "accountable retries went up",
    ),
    "no-retry-after-suspension": Mutant(
        "lets the retry policy decide after a suspension",
        lambda: patch.object(policies, "ALWAYS_RETRIED", frozenset()),
        _story(
            _create(_role(2, **_FOREVER)),
            Step(5.0, "set_spec", ("f0", _SUSPEND)),
            Step(15.0, "set_spec", ("f0", _RESUME)),
        ),
        "retried: False",
    ),
    "suspended-too-early": Mutant(
        "says Suspended when the next attempt waits, whatever was created and not recorded",
        lambda: patch.object(Tracker, "nothing_runs", True),
        _story(_create(_role(2, **_FOREVER)), Step(5.0, "set_spec", ("f0", _SUSPEND))),
        "Suspended is True",
    ),
    "resumed-too-early": Mutant(
        "starts a resumed Framework when its ConfigMap is being deleted",
        lambda: patch.object(framework, "_with_deleting_configmap", _end_with_the_deletion),
        _story(
            _create(_role(2, stop_seconds="20", **_FOREVER)),
            Step(5.0, "set_spec", ("f0", _SUSPEND)),
            Step(5.5, "set_spec", ("f0", _RESUME)),
        ),
        "C4: ",
    ),
    # A controller dies between the creation of the Pods and the write that records them.
    "no-adoption-while-suspended": Mutant(
        "deletes what ran unrecorded, and uses its attempt id again",
        lambda: patch.object(framework, "_adopt", _adopt_nothing_that_is_suspended),
        _story(
            _create(_role(2, **_FOREVER)),
            Step(0.0, "kill_at_write", (5, False, 8.0)),
            Step(4.0, "set_spec", ("f0", _SUSPEND)),
            Step(20.0, "set_spec", ("f0", _RESUME)),
        ),
        "no status that was ever stored gives cause",
    ),
    "no-wait-for-the-service": Mutant(
        "starts an attempt beside the creation of its Service",
        _not_waiting_for_companions,
        _story(_deny(0.0, "create", seconds=10.0), _networked()),
        "there was never a Service",
    ),
    "no-look-at-the-owner-of-a-service": Mutant(
        "uses whichever Service it sees",
        lambda: patch.object(companions._Companion, "is_ours", _yes),
        _story(Step(0.0, "take_service", ("f0", True, 20.0)), replace(_networked(), at=1.0)),
        "there was never a Service",
    ),
    "no-look-at-the-owner-of-what-is-in-the-way": Mutant(
        "uses whichever Service has the name",
        lambda: patch.object(owned, "_controls", _yes),
        _story(Step(0.0, "take_service", ("f0", False, 20.0)), replace(_networked(), at=1.0)),
        "there was never a Service",
    ),
    "no-respect-for-services-of-others": Mutant(
        "deletes a Service that is in the way",
        lambda: _all_of(
            patch.object(owned, "conflict", _deleting_what_is_in_the_way),
            patch.dict(actions.PROPAGATION, {Kind.SERVICE: None}),
        ),
        _story(Step(0.0, "take_service", ("f0", False, 20.0)), replace(_networked(), at=1.0)),
        "a controller never deletes one",
    ),
    "no-new-service": Mutant(
        "does not create a Service again",
        lambda: patch.object(Tracker, "companion_dropped", _none),
        _story(_networked(), Step(5.0, "delete_service", ("f0",))),
        "its Service is not there",
    ),
    # It is gone before the creation is answered.
    "no-memory-of-the-end-of-a-service": Mutant(
        "believes in a Service whose end it has seen before the answer to its creation",
        lambda: patch.object(Tracker, "companion_wanted", _none),
        _story(
            _fault(0.0, Faults.SLOW, "create", "services", seconds=5.0),
            replace(_networked(), at=1.0),
            Step(3.0, "delete_service", ("f0",)),
        ),
        "its Service is not there",
    ),
    "no-end-of-what-was-learnt": Mutant(
        "learns again of a Service that has ended since",
        lambda: patch.object(reconciler, "COMPANIONS", frozenset()),
        _story(
            _networked(2, retry={"maxRetryCount": 3}),
            Step(5.0, "delete_service", ("f0",)),
            _deny(6.0, "create", seconds=20.0),
            Step(7.0, "delete_service", ("f0",)),
            _fault(7.5, Faults.HELD, "", "frameworks", seconds=10.0),
            Step(8.0, "rescale", ("f0", "a", 3)),
            Step(8.5, "fail_pod", (0, 1)),
        ),
        "its Service is not there",
    ),
    # It is gone before an event of it, and the next list lacks it.
    "no-end-by-a-list": Mutant(
        "believes in a Service that a list after its creation lacks",
        lambda: patch.object(Tracker, "companions_listed", _none),
        _story(
            _networked(),
            _fault(5.0, Faults.MUTED, "", "services"),
            replace(_networked(), at=6.0, args=("f1", *_networked().args[1:])),
            Step(8.0, "delete_service", ("f1",)),
            _fault(9.0, Faults.EXPIRED, "", "services"),
            _deny(9.0, "watch", seconds=1.0),
        ),
        "its Service is not there",
    ),
    "no-back-off-of-services": Mutant(
        "creates a Service again and again while it is forbidden",
        lambda: patch.object(holds, "HOLD_BACKOFF", Backoff(base=0.002, maximum=0.002, jitter=0.0)),
        _story(_deny(0.0, "create", seconds=3.0), _networked()),
        "it is in a circle",
    ),
    "no-pauses-between-new-services": Mutant(
        "creates a Service as often as somebody deletes it",
        lambda: patch.object(Holds, "made", _none),
        _story(_networked(), Step(5.0, "delete_service_always", ("f0", 0.002, 3.0))),
        "it is in a circle",
    ),
    "no-thrift-with-watches": Mutant(
        "watches Services that no Framework needs",
        lambda: patch.object(CompanionInformer, "run", _watching_at_once),
        _story(_create(_role(**_FOREVER))),
        "asks for Services",
    ),
    "no-wait-for-claims": Mutant(
        "creates a Pod beside its claim",
        lambda: patch.object(claims, "keep", _not_waiting_for_claims),
        _story(_slow("persistentvolumeclaims", 2.0, 0.0), _claiming(2)),
        "its claim data never existed",
    ),
    "no-look-at-whose-a-claim-is": Mutant(
        "uses whichever claim it sees",
        _using_the_claims_of_others,
        _story(_taken(0.0, {"FC_FRAMEWORK_NAME": "f0"}), replace(_claiming(), at=1.0)),
        "its claim data never existed",
    ),
    "no-respect-for-claims-of-others": Mutant(
        "makes whichever claim has the name its own",
        _changing_the_claims_of_others,
        _story(_taken(0.0, {"FC_FRAMEWORK_NAME": "f0"}), replace(_claiming(), at=1.0)),
        "which is of somebody else, was changed",
    ),
    "no-retention-of-claims": Mutant(
        "deletes the claims of Tasks that have left, whatever whenScaled says",
        lambda: patch.object(claims, "_change_taskless", _deleting_what_is_to_be_retained),
        _story(_claiming(2), Step(5.0, "rescale", ("f0", "a", 1))),
        "it is to be retained",
    ),
    "no-end-of-claims": Mutant(
        "deletes no claim when its Task has left",
        lambda: patch.object(claims, "_change_taskless", _none),
        _story(_claiming(2, whenScaled="Delete"), Step(5.0, "rescale", ("f0", "a", 1))),
        "was to be deleted",
    ),
    "no-wait-for-the-end-of-the-pod-of-a-claim": Mutant(
        "deletes a claim while its Task is leaving",
        lambda: patch.object(claims, "_change", _deleting_too_early),
        _story(_claiming(2, whenScaled="Delete", stop_seconds="10"), Step(5.0, "rescale", ("f0", "a", 1))),
        "its Pod exists",
    ),
    "no-difference-between-owned-claims-and-others": Mutant(
        "has all claims deleted with the Framework",
        lambda: _all_of(*(patch.object(module, "claim_has_owner", _yes) for module in (claims, manifests))),
        _story(_claiming()),
        "has an owner",
    ),
    "no-new-policy-for-claims": Mutant(
        "leaves the policy of claims as it was when they were made",
        lambda: patch.object(claims, "_change", _none),
        _story(_claiming(), Step(5.0, "set_retention", ("f0", "a", {"whenDeleted": "Delete", "whenScaled": "Delete"}))),
        "its claim data-f0-a-0 has no owner",
    ),
    "no-host-names": Mutant(
        "creates Pods without host names",
        lambda: patch.object(manifests, "_pod", _without_host_names),
        _story(_networked()),
        "has the host name",
    ),
    "owners-of-the-template": Mutant(
        "keeps the owners in a template",
        lambda: patch.object(manifests, "_pod", _with_owners_of_the_template),
        _story(_create(with_owner(_role(2, **_FOREVER))), Step(8.0, "delete", ("f0", "Foreground"))),
        "C2/C4: ",
    ),
    "no-wait-before-quota-goes-back": Mutant(
        "gives quota back at once",
        lambda: patch.object(kueue, "_running", _give_quota_back_at_once),
        replace(
            _story(_queued(_role(2, stop_seconds="10", **_FOREVER)), Step(8.0, "deactivate_workload", (0, 20.0))),
            quota=4,
        ),
        "K2: ",
    ),
    "no-wait-for-the-admission": Mutant(
        "starts in a queue before it is admitted",
        lambda: patch.object(kueue, "_wait", _none),
        replace(_story(_queued(_role(2, **_FOREVER))), quota=1),
        "K1: ",
    ),
    "no-count-of-what-was-admitted": Mutant(
        "creates Pods for Tasks that were added since the admission",
        lambda: _unless(gates, "_CREATE", kueue.count_wait),
        replace(_story(_queued(_role(2, **_FOREVER)), Step(8.0, "rescale", ("f0", "a", 4))), quota=8),
        "K3: ",
    ),
    "no-wait-for-the-group": Mutant(
        "creates a Pod beside its PodGroup",
        lambda: _unless(gates, "_CREATE", gangs.group_wait),
        replace(
            _story(
                _slow("podgroups", 2.0, 0.0),
                _create(_role(2, **_FOREVER), scheduling={"schedulingPolicy": {"gang": {}}}),
            ),
            gangs=True,
        ),
        "G1: ",
    ),
    # The archive is down while a Task fails.
    "no-archive-before-a-retry": Mutant(
        "retries a Task before the archive has its attempt",
        lambda: patch.object(history, "may_forget_task", _ask_and_go_on(history.may_forget_task)),
        _archived(_create(_role(2, **_FAILS_ONCE)), Step(0.5, "stop_sink", (60.0,))),
        " is forgotten",
    ),
    "no-archive-before-a-new-attempt": Mutant(
        "retries a Framework before the archive has its attempt",
        lambda: patch.object(history, "may_forget_attempt", _ask_and_go_on(history.may_forget_attempt)),
        _archived(
            _create(
                _role(run_seconds="2, forever", exit_code="1") | {"frameworkAttemptCompletionPolicy": policy(1)},
                retryPolicy={"maxRetryCount": 1},
            ),
            Step(0.5, "stop_sink", (60.0,)),
        ),
        " is forgotten",
    ),
    "no-archive-before-the-end": Mutant(
        "lets a Framework go before the archive has it",
        lambda: patch.object(history, "may_forget_attempt", _ask_and_go_on(history.may_forget_attempt)),
        _archived(
            _create(_role(2, **_FOREVER)),
            Step(8.0, "stop_sink", (60.0,)),
            Step(9.0, "delete", ("f0", "Background")),
        ),
        " goes",
    ),
    "no-wait-before-the-finalizer-goes": Mutant(
        "lets a Framework go while it runs",
        lambda: patch.object(history, "maintain", _let_go_at_once),
        _archived(_create(_role(2, stop_seconds="10", **_FOREVER)), Step(9.0, "delete", ("f0", "Background"))),
        "C4: the finalizer of f0 is removed",
    ),
    "no-finalizer": Mutant(
        "begins before anything keeps the Framework",
        lambda: patch.object(history, "is_held", _yes),
        _archived(_create(_role(**_FOREVER))),
        "H1: f0 begins without the finalizer",
    ),
    "no-wait-for-the-acknowledgement": Mutant(
        "takes records for stored as soon as they are sent",
        lambda: patch.object(HistorySink, "_store", _send_and_go_on),
        _archived(_create(_role(2, **_FAILS_ONCE)), Step(0.5, "stop_sink", (60.0,))),
        "H1: ",
    ),
    "no-look-at-the-answer": Mutant(
        "takes a page with the code 200 for an acknowledgement",
        lambda: patch.object(httpsink, "_acknowledges", _yes),
        _archived(
            _create(_role(2, **_FAILS_ONCE)),
            Step(0.5, "trouble_sink", (Trouble(SinkFault.LOGIN, 100),)),
        ),
        "H1: ",
    ),
}
"""By name: what is missing."""
