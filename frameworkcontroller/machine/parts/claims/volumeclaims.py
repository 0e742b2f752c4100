"""Volume claims: companions of single Tasks, which exist before their Pods and stay over retries.

A claim says by annotations whose it is, since it may outlive its Task and its Framework. Its name belongs to one Task
only, so an annotation that says otherwise, or none, means that another client made it: it is neither used nor changed.

Tasks ask for their claims when their Pods are to be created (``keep``). Changes of existing claims rest on the spec and
the persisted Tasks, and are made in any state of the Framework (``maintain``), after a live read of the Framework: a
claim has data, which an outdated spec must not give away.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar, Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.objects import ClaimRecord, CompanionRecord, Identity, is_claim_of
from frameworkcontroller.api.spec import ClaimRetention, ClaimTemplate, TaskRoleSpec, TaskSpec
from frameworkcontroller.api.status import State, TaskStatus
from frameworkcontroller.deadlines import Deadlines
from frameworkcontroller.machine.kernel.actions import Action, Create, Delete, Outcome, Renderer
from frameworkcontroller.machine.kernel.agenda import TaskKey
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.exchanges import Accepted, Created, Exists, Gone, NotAttempted, Result
from frameworkcontroller.machine.kernel.failure import is_quota_refusal
from frameworkcontroller.machine.kernel.holds import CREATIONS, ObjectKey, Stall, Wait
from frameworkcontroller.machine.kernel.manifests import POD_LABELS, framework_reference
from frameworkcontroller.machine.kernel.model import NotListed
from frameworkcontroller.machine.kernel.outcomes import (
    FAILURES_TO_STALL,
    Presence,
    answered,
    conflict,
    describe_failure,
    hold,
    is_dying,
    look_later,
    presence_of,
    retry_after,
    stall_by_quota,
    task_of,
    watch_end,
)
from frameworkcontroller.machine.kernel.part import Part, PartState
from frameworkcontroller.machine.kernel.reasons import EventPolicy, Reason, RequestReason, event, stall, wait
from frameworkcontroller.machine.kernel.requests import Kind, Refused, Target
from frameworkcontroller.machine.kernel.tracker import Tracker
from frameworkcontroller.machine.parts.claims.claimactions import MarkClaim
from frameworkcontroller.machine.parts.claims.claimbodies import (
    ClaimVolumes,
    claim_annotations,
    claim_body,
    claim_has_owner,
    is_large,
)

CLAIMS: Final = "PersistentVolumeClaims"
"""Key of back-offs and stalls of changes of existing claims."""

_CHANGE: Final = "change"
"""The verb of all changes of a claim, one at a time."""

_WITH_CLAIMS: Final = frozenset({State.CREATION_PENDING, State.PREPARING})
"""States of Tasks whose Pods may need a claim that does not exist."""


class ClaimReason(Reason):
    """The reasons of volume claims."""

    CREATED = "VolumeClaimCreated", "a PersistentVolumeClaim of a Task was created"
    KEPT = event(
        "VolumeClaimKept",
        "a PersistentVolumeClaim that exists was made the Framework's, or got a changed retention policy",
        event=EventPolicy.NEVER,
    )
    DELETED = (
        "VolumeClaimDeleted",
        "a PersistentVolumeClaim was deleted, as its Task had left and whenScaled is Delete",
    )
    PENDING = wait(
        "VolumeClaimPending", "a PersistentVolumeClaim of a Task is to be created again, or cannot be looked for"
    )
    NOT_GONE = stall(
        "VolumeClaimNotGone",
        "a PersistentVolumeClaim that a Task needs was deleted, and still exists long after its deletion was due",
    )
    NOT_ANSWERED = stall("VolumeClaimNotAnswered", "requests for a PersistentVolumeClaim failed several times in a row")
    NOT_LISTED = stall(
        "VolumeClaimNotListed", "PersistentVolumeClaims cannot be listed, which volumeClaimTemplates need"
    )


class ClaimAgenda(PartState):
    """The volume claims that the next plan looks at, by name."""

    __slots__ = ("_due", "_names", "paced", "policies", "scan", "unlisted")

    def __init__(self) -> None:
        self._names: dict[str, None] = {}
        self._due: dict[str, None] = {}
        self.scan = True
        """Whether to look at all claims of the Framework."""
        self.unlisted: set[TaskKey] = set()
        """Tasks that wait until the claims are listed."""
        self.paced: Deadlines[str] = Deadlines()
        """Claims to change after a pause, and its end (monotonic seconds)."""
        self.policies: dict[str, TaskRoleSpec] = {}
        """The last specs of roles by name, without Pods, of which the policies count for claims."""

    def __bool__(self) -> bool:
        return bool(self._names or self._due)

    def add(self, name: str) -> None:
        """Look at the claim in the next plan."""
        self._names[name] = None

    def retry(self, name: str) -> None:
        """Look at the claim again after the back-off."""
        self._due[name] = None

    def take(self, *, again: bool) -> list[str]:
        """Take the claims. ``again``: also those that waited for the end of the back-off."""
        taken = {**self._due, **self._names} if again else self._names
        self._names = {}
        if again:
            self._due = {}
        return list(taken)

    def on_look_at_all(self) -> None:
        self.scan = True

    def on_tasks_over(self) -> None:
        self.unlisted.clear()

    def successor(self, tracker: Tracker, before: Tracker) -> ClaimAgenda:
        """The policies are in no status."""
        new = ClaimAgenda()
        new.policies = self.policies
        return new


class ClaimPart(Part):
    """The volume claims of Tasks."""

    reasons: ClassVar[type[Reason]] = ClaimReason
    kinds: ClassVar[frozenset[Kind]] = frozenset({Kind.VOLUME_CLAIM})
    not_answered: ClassVar[Reason] = ClaimReason.NOT_ANSWERED

    def observe_generation(self, ctx: Context) -> None:
        """Remember the policies of the spec: a role may be removed before its claims show its last one."""
        if ctx.framework.spec.has_claims:
            policies = ctx.tracker.part(ClaimAgenda).policies
            for role in ctx.framework.spec.task_roles:
                policies[role.name] = role.model_copy(update={"task": TaskSpec(), "volume_claim_templates": ()})

    def before(self, ctx: Context) -> None:
        """Adopt, mark and delete claims that exist."""
        if not ctx.framework.invalid:
            maintain(ctx)

    def needs_objects(self, role: TaskRoleSpec) -> bool:
        """Whether the Tasks of the role have claims."""
        return bool(role.volume_claim_templates)

    def ensure_for(self, ctx: Context, task: TaskStatus) -> bool:
        """Create the claims of the Task that are absent. Return whether none was."""
        return keep(ctx, task)

    def task_removed(self, ctx: Context, task: TaskStatus, role: TaskRoleSpec | None) -> bool:
        """Look at the claims of the Task, of which those with whenScaled Delete go."""
        agenda = ctx.tracker.part(ClaimAgenda)
        if role is None:
            agenda.scan = True
            return False
        for template in role.volume_claim_templates:
            agenda.add(names.claim_name(template.metadata.name, ctx.framework.name, *task.key))
        return bool(role.volume_claim_templates)

    def shape(self, ctx: Context, role: TaskRoleSpec) -> ClaimVolumes | None:
        """A volume for each claim."""
        claims = tuple(one.metadata.name for one in role.volume_claim_templates)
        return ClaimVolumes(claims) if claims else None

    def keeps_hold(self, ctx: Context, key: ObjectKey) -> bool:
        """Whether the key is that of all claims, and the spec has some."""
        return key == CLAIMS and ctx.framework.spec.has_claims

    def take(self, ctx: Context, outcome: Outcome) -> None:
        """Fold the outcome of a creation or a change."""
        if isinstance(outcome.action, Create):
            _take_creation(ctx, outcome.action, outcome.result)
        else:
            _take_change(ctx, outcome.action, outcome.result)

    def on_event(self, tracker: Tracker, record: CompanionRecord) -> None:
        """Look at a claim that has changed."""
        tracker.part(ClaimAgenda).add(record.name)

    def on_dropped(self, tracker: Tracker, target: Target) -> None:
        """Look at a claim that is gone."""
        tracker.part(ClaimAgenda).add(target.name)

    def target_of(self, tracker: Tracker, record: CompanionRecord) -> Target | None:
        """The target of a claim of a Task, by its name."""
        if (parts := names.split_claim_name(record.name)) is None:
            return None
        return Target(Kind.VOLUME_CLAIM, record.name, role=parts[2], index=parts[3])

    def is_wanted(self, tracker: Tracker, target: Target) -> bool:
        """Whether the Task still waits for the claim."""
        task = tracker.task((target.role, target.index))
        waits = task is not None and task.state in (State.CREATION_PENDING, State.PREPARING)
        return waits and not tracker.is_completing


def identity(ctx: Context, target: Target) -> tuple[str, ...]:
    """Values of ``names.CLAIM_IDENTITY`` for the claim."""
    return ctx.framework.namespace, ctx.framework.name, target.role, str(target.index)


def mark(
    ctx: Context, target: Target, role: TaskRoleSpec, *, owned: bool | None = None, when_scaled: str | None = None
) -> MarkClaim:
    """The action that makes the claim the Framework's, and has the policy of the role count for it.

    ``owned``, ``when_scaled``: what differs from the policy.
    """
    marks = claim_annotations(ctx.framework, role, target.index)
    if when_scaled is not None:
        marks[names.WHEN_SCALED] = when_scaled
    has_owner = claim_has_owner(role) if owned is None else owned
    return MarkClaim(
        target,
        ctx.framework.uid,
        identity(ctx, target),
        labels=tuple((name, marks[name]) for name in POD_LABELS),
        annotations=tuple(marks.items()),
        owner=orjson.dumps(framework_reference(ctx.framework)) if has_owner else None,
    )


def _target(ctx: Context, claim: str, role: str, index: int) -> Target:
    name = names.claim_name(claim, ctx.framework.name, role, index)
    return Target(Kind.VOLUME_CLAIM, name, role=role, index=index)


# --- before the Pod of a Task ------------------------------------------------------------------------------------


def keep(ctx: Context, task: TaskStatus) -> bool:
    """Create the claims of the Task that are absent. Return whether none was, so that its Pod may be created."""
    role = ctx.framework.spec.role(task.role)
    if role is None or not role.volume_claim_templates:
        return True
    if ctx.framework.deleting:
        return False
    missing, wait = 0, None
    for template in role.volume_claim_templates:
        target = _target(ctx, template.metadata.name, *task.key)
        presence, problem = presence_of(ctx, target, partial(_is_ours, ctx, target))
        if presence is Presence.PRESENT and _is_adopted(ctx, target):
            continue
        missing += 1
        if presence is Presence.PRESENT:
            ctx.tracker.part(ClaimAgenda).add(target.name)
        elif presence is Presence.ABSENT:
            if (until := ctx.tracker.holds.until(pace_key(target))) > ctx.env.clock:
                text = f"{target.kind} {target.name} was deleted again: it is created after a pause"
                wait = Wait(ClaimReason.PENDING, text, until)
                ctx.tracker.agenda.look(task.key, until)
                continue
            ctx.create_for(task.key, partial(_creation, ctx, target, role, template))
        elif presence is Presence.ENDING:
            wait = Wait(ClaimReason.PENDING, f"{target.kind} {target.name} is being deleted, to be created again")
            watch_end(ctx, target, ClaimReason.NOT_GONE)
        else:
            ctx.tracker.part(ClaimAgenda).unlisted.add(task.key)
            ctx.tracker.part(ClaimAgenda).scan = True
            if problem:
                # The stall says why.
                wait = Wait(ClaimReason.PENDING, f"{target.kind} {target.name} cannot be looked for")
    ctx.tracker.holds.wait(task.key, wait)
    return not missing


def pace_key(target: Target) -> str:
    """The key of the pauses between creations and changes of the claim, which other clients may undo at once."""
    return f"{target.kind}/{target.name}"


def _creation(ctx: Context, target: Target, role: TaskRoleSpec, template: ClaimTemplate) -> Create:
    ctx.tracker.expectations.send(target, ctx.env.clock)
    source = Renderer(claim_body, (ctx.framework, role, template, target.index))
    return Create(target, source, ctx.framework.uid, is_large=is_large(template))


def _is_ours(ctx: Context, target: Target, found: Identity) -> bool:
    return is_claim_of(found, identity(ctx, target), ctx.framework.uid)


def _is_adopted(ctx: Context, target: Target) -> bool:
    """Whether an existing claim is known to be this Framework's, not only that of an earlier one of the same name."""
    found = ctx.observed.find_companion(target.kind, target.name)
    if not isinstance(found, ClaimRecord) or found.framework_uid == ctx.framework.uid:
        return True
    known = ctx.tracker.expectations.confirmed.get(target)
    return known is not None and known.uid == found.uid


# --- claims that exist -------------------------------------------------------------------------------------------


def maintain(ctx: Context) -> None:
    """Adopt, mark and delete the claims that the tracker says to look at."""
    tracker = ctx.tracker
    claims = tracker.part(ClaimAgenda)
    if ctx.framework.deleting or not (claims.scan or claims or claims.paced):
        return
    while (due := claims.paced.pop_due(ctx.env.clock)) is not None:
        claims.add(due)
    if claims.scan:
        _scan(ctx)
    held = tracker.holds.held(CLAIMS, ctx.env.clock)
    for name in claims.take(again=held is None):
        if (change := _change(ctx, name)) is None:
            continue
        until = tracker.holds.until(pace_key(change.target))
        if isinstance(change, MarkClaim) and until > ctx.env.clock:
            claims.paced.set(name, until)
        elif held is None:
            tracker.expectations.change(change.target, _CHANGE)
            ctx.plan.actions.append(change)
        else:
            claims.retry(name)
    if held is not None and claims:
        ctx.tracker.agenda.look(None, held.until)
    if (next_due := claims.paced.next()) is not None:
        ctx.tracker.agenda.look(None, next_due)


def _scan(ctx: Context) -> None:
    """Look at all claims of the Framework, which costs their number."""
    tracker = ctx.tracker
    found = ctx.observed.list_claims(ctx.framework.spec.has_claims)
    if isinstance(found, NotListed):
        text = f"Cannot list {Kind.VOLUME_CLAIM}s, which volumeClaimTemplates need: {found.problem}"
        stall = Stall(ClaimReason.NOT_LISTED, text)
        if found.problem and tracker.holds.stalls.get(CLAIMS) != stall:
            tracker.holds.stalls[CLAIMS] = stall
            tracker.agenda.wake(tracker.part(ClaimAgenda).unlisted)
        return
    tracker.part(ClaimAgenda).scan = False
    tracker.holds.end_stall(CLAIMS, ClaimReason.NOT_LISTED)
    for record in found:
        tracker.part(ClaimAgenda).add(record.name)
    tracker.agenda.wake(tracker.part(ClaimAgenda).unlisted)
    tracker.part(ClaimAgenda).unlisted.clear()


def _change(ctx: Context, name: str) -> MarkClaim | Delete | None:
    """The change of a claim that is due, None if it is as it has to be, or not ours."""
    parts = names.split_claim_name(name)
    if parts is None or parts[1] != ctx.framework.name:
        return None
    claim, _, role_name, index = parts
    target = Target(Kind.VOLUME_CLAIM, name, role=role_name, index=index)
    if ctx.tracker.expectations.awaits_change(target, _CHANGE):
        # Its outcome is an event of its own.
        return None
    task, role = ctx.tracker.task((role_name, index)), ctx.framework.spec.role(role_name)
    if task is not None and task.state in _WITH_CLAIMS:
        ctx.tracker.agenda.look(task.key)
    found = ctx.observed.find_companion(target.kind, name)
    if not isinstance(found, ClaimRecord) or found.identity.deleting or not _is_ours(ctx, target, found.identity):
        return None
    if task is None:
        return _change_taskless(ctx, target, found, role)
    if role is None or claim not in (template.metadata.name for template in role.volume_claim_templates):
        return None
    present = found.framework_uid, found.when_scaled, found.identity.controller_uid is not None
    retention = role.persistent_volume_claim_retention_policy
    wanted = ctx.framework.uid, retention.when_scaled.value, claim_has_owner(role)
    return None if present == wanted else mark(ctx, target, role)


def _change_taskless(
    ctx: Context, target: Target, found: ClaimRecord, role: TaskRoleSpec | None
) -> MarkClaim | Delete | None:
    """The change of a claim whose Task has left, or is yet to come.

    A later change of the policy can only keep it: what was retained is not deleted afterwards.
    """
    if found.framework_uid != ctx.framework.uid:
        return None
    when_scaled = found.when_scaled
    last = role or ctx.tracker.part(ClaimAgenda).policies.get(target.role)
    if last is not None and last.persistent_volume_claim_retention_policy.when_scaled is ClaimRetention.RETAIN:
        when_scaled = ClaimRetention.RETAIN.value
    if when_scaled == ClaimRetention.DELETE and (role is None or target.index >= role.task_number):
        pod = names.pod_name(ctx.framework.name, target.role, target.index)
        if ctx.tracker.is_head_settled and ctx.observed.find_pod(pod) is None:
            # The cache may be older than the spec: by now the claim may be another Framework's, or one to retain.
            return Delete(target, found.uid, orphan=True, resource_version=found.resource_version)
        # Its Task has left once that is persisted.
        ctx.tracker.part(ClaimAgenda).add(target.name)
        return None
    if last is None:
        return None
    has_owner = found.identity.controller_uid is not None
    owned = has_owner and claim_has_owner(last)
    if (owned, when_scaled) == (has_owner, found.when_scaled):
        return None
    return mark(ctx, target, last, owned=owned, when_scaled=when_scaled)


# --- outcomes -----------------------------------------------------------------------------------------------------


def _take_creation(ctx: Context, action: Create, result: Result) -> None:
    """Fold the outcome of the creation of a Task's volume claim. Refusals hold up all creations, as those of Pods."""
    tracker, target = ctx.tracker, action.target
    tracker.agenda.look((target.role, target.index))
    uid = None
    match result:
        case NotAttempted():
            pass
        case Created():
            uid = result.uid
            tracker.holds.release(CREATIONS)
            tracker.holds.made(pace_key(target), ctx.env)
            text = f"{target.kind} {target.name} ({uid}) was created"
            ctx.record(ClaimReason.CREATED, text, task_of(ctx, target))
        case Exists(found=Identity() as found) if is_claim_of(found, identity(ctx, target), ctx.framework.uid):
            role = ctx.framework.spec.role(target.role)
            if found.deleting or role is None:
                hold(ctx, target, result, "create")
            else:
                # It is retained, and has lost the label by which it is watched; or the answer to its creation was lost.
                tracker.follow_ups.append(mark(ctx, target, role))
                look_later(ctx, target, f"{target.kind} {target.name} exists")
        case Exists(found=Identity() as found):
            conflict(ctx, target, found)
        case _:
            if isinstance(result, Refused) and is_quota_refusal(result):
                stall_by_quota(ctx, target, result)
            why = f"Cannot create {target.kind} {target.name}: {describe_failure(result)}"
            tracker.holds.hold(CREATIONS, ctx.env, why, retry_after(result))
            hold(ctx, target, result, "create")
    answered(tracker, target, uid)


def _take_change(ctx: Context, action: Action, result: Result) -> None:
    """Fold the outcome of a change or deletion of a volume claim. Failures hold up all of them."""
    tracker, target = ctx.tracker, action.target
    agenda = tracker.part(ClaimAgenda)
    key, name = (target.role, target.index), f"{target.kind} {target.name}"
    tracker.expectations.end_change(target, _CHANGE)
    match result:
        case NotAttempted():
            agenda.add(target.name)
            tracker.agenda.look()
            return
        case Created(uid=uid):
            answered(tracker, target, uid)
            tracker.holds.made(pace_key(target), ctx.env)
            ctx.record(ClaimReason.KEPT, f"{name} ({uid}) is kept as the spec says", task_of(ctx, target))
        case Accepted():
            ctx.record(ClaimReason.DELETED, f"{name} was deleted, as its Task has left")
        case Gone():
            pass
        case _:
            agenda.retry(target.name)
            foreign = isinstance(result, Exists) and not is_dying(result)
            why = "it is not this Framework's" if foreign else describe_failure(result)
            text = f"Cannot {'delete' if isinstance(action, Delete) else 'change'} {name}: {why}"
            if (failures := tracker.holds.hold(CLAIMS, ctx.env, text, retry_after(result))) == 1:
                ctx.record(RequestReason.WAITING, text, warning=True)
            elif failures >= FAILURES_TO_STALL:
                tracker.holds.stalls[CLAIMS] = Stall(ClaimReason.NOT_ANSWERED, text)
            ctx.tracker.agenda.look(None, tracker.holds.until(CLAIMS))
            return
    tracker.holds.release(CLAIMS)
    if agenda:
        tracker.agenda.look()
    if tracker.task(key) is not None:
        tracker.agenda.look(key)
