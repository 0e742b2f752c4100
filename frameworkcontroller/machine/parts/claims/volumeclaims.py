"""Volume claims of single Tasks, which exist before their Pods and stay over retries.

Annotations name the owner of a claim, since it may outlive its Task and its Framework. Its name belongs to one Task
only: a claim with other annotations, or none, is another client's, and is neither used nor changed.

A Task's claims are created before its Pod. Changes of existing claims rest on the spec and the persisted Tasks, and
are made in any state of the Framework, after a live read of the Framework: a claim has data, which an outdated spec
must not lose.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.objects import ClaimRecord, CompanionRecord, Identity, is_claim_of
from frameworkcontroller.api.spec import ClaimRetention, ClaimTemplate, TaskRoleSpec, TaskSpec
from frameworkcontroller.api.status import State, TaskStatus
from frameworkcontroller.machine.kernel.actions import Action, Create, Delete, Outcome, PartAction, Renderer
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.exchanges import (
    Accepted,
    Created,
    Exchange,
    Exists,
    Gone,
    NotAttempted,
    Patched,
    Remains,
    Result,
    find_metadata,
    identity_in,
    patched,
)
from frameworkcontroller.machine.kernel.holds import CREATIONS, ObjectKey, Stall, Wait
from frameworkcontroller.machine.kernel.manifests import POD_LABELS, framework_reference
from frameworkcontroller.machine.kernel.model import NotListed
from frameworkcontroller.machine.kernel.outcomes import (
    FAILURES_TO_STALL,
    Presence,
    back_off_quietly,
    describe_failure,
    hold,
    is_terminating,
    presence_of,
    record_answer,
    retry_after,
    take_object,
    task_of,
    watch_end,
)
from frameworkcontroller.machine.kernel.part import Part
from frameworkcontroller.machine.kernel.reasons import Reason, RequestReason
from frameworkcontroller.machine.kernel.requests import Answer, Kind, Refused, Request, Target, Unanswered
from frameworkcontroller.machine.kernel.tracker import Tracker
from frameworkcontroller.machine.parts.claims.claimagenda import CLAIMS, ClaimAgenda, ClaimReason
from frameworkcontroller.machine.parts.claims.claimbodies import (
    ClaimVolumes,
    claim_annotations,
    claim_body,
    claim_has_owner,
    is_large,
)

_CHANGE: Final = "change"
"""The verb of all changes of a claim, one at a time."""

_WITH_CLAIMS: Final = frozenset({State.CREATION_PENDING, State.PREPARING})
"""States of Tasks whose Pods may need a claim that does not exist."""


class ClaimPart(Part):
    """The volume claims of Tasks."""

    reasons: ClassVar[type[Reason]] = ClaimReason
    kinds: ClassVar[frozenset[Kind]] = frozenset({Kind.VOLUME_CLAIM})
    not_answered: ClassVar[Reason] = ClaimReason.NOT_ANSWERED

    def observe_generation(self, ctx: Context) -> None:
        """Remember the policies of the spec: a role may be removed before its claims have its last one."""
        if ctx.framework.spec.has_claims:
            policies = ctx.tracker.part(ClaimAgenda).policies
            for role in ctx.framework.spec.task_roles:
                policies[role.name] = role.model_copy(update={"task": TaskSpec(), "volume_claim_templates": ()})

    def before(self, ctx: Context) -> None:
        """Adopt, mark and delete claims that exist."""
        tracker = ctx.tracker
        claims = tracker.part(ClaimAgenda)
        if ctx.framework.invalid or ctx.framework.deleting or not (claims.scan or claims or claims.paced):
            return
        while (due := claims.paced.pop_due(ctx.env.clock)) is not None:
            claims.add(due)
        if claims.scan:
            _scan(ctx)
        held = tracker.holds.held(CLAIMS, ctx.env.clock)
        for name in claims.take(again=held is None):
            if (change := _change(ctx, name)) is None:
                continue
            until = tracker.holds.until(change.target.object_key)
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

    def needs_objects(self, role: TaskRoleSpec) -> bool:
        return bool(role.volume_claim_templates)

    def ensure_for(self, ctx: Context, task: TaskStatus) -> bool:
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
                if (until := ctx.tracker.holds.until(target.object_key)) > ctx.env.clock:
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

    def task_removed(self, ctx: Context, task: TaskStatus, role: TaskRoleSpec | None) -> bool:
        """Look at the claims of the Task. Some may have whenScaled Delete."""
        agenda = ctx.tracker.part(ClaimAgenda)
        if role is None:
            agenda.scan = True
            return False
        for template in role.volume_claim_templates:
            agenda.add(names.claim_name(template.metadata.name, ctx.framework.name, *task.key))
        return bool(role.volume_claim_templates)

    def shape(self, ctx: Context, role: TaskRoleSpec) -> ClaimVolumes | None:
        claims = tuple(one.metadata.name for one in role.volume_claim_templates)
        return ClaimVolumes(claims) if claims else None

    def keeps_hold(self, ctx: Context, key: ObjectKey) -> bool:
        return key == CLAIMS and ctx.framework.spec.has_claims

    def take(self, ctx: Context, outcome: Outcome) -> None:
        if isinstance(outcome.action, Create):
            _take_creation(ctx, outcome.action, outcome.result)
        else:
            _take_change(ctx, outcome.action, outcome.result)

    def on_event(self, tracker: Tracker, record: CompanionRecord) -> None:
        tracker.part(ClaimAgenda).add(record.name)

    def on_dropped(self, tracker: Tracker, target: Target) -> None:
        tracker.part(ClaimAgenda).add(target.name)

    def target_of(self, tracker: Tracker, record: CompanionRecord) -> Target | None:
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

    ``owned``, ``when_scaled``: differences from the policy.
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


def _creation(ctx: Context, target: Target, role: TaskRoleSpec, template: ClaimTemplate) -> Create:
    ctx.tracker.expectations.send(target, ctx.env.clock)
    source = Renderer(claim_body, (ctx.framework, role, template, target.index))
    return Create(target, source, ctx.framework.uid, is_large=is_large(template))


def _is_ours(ctx: Context, target: Target, found: Identity) -> bool:
    return is_claim_of(found, identity(ctx, target), ctx.framework.uid)


def _is_adopted(ctx: Context, target: Target) -> bool:
    """Whether an existing claim is known to be of this Framework, not only of an earlier one with its name."""
    found = ctx.observed.find_companion(target.kind, target.name)
    if not isinstance(found, ClaimRecord) or found.framework_uid == ctx.framework.uid:
        return True
    known = ctx.tracker.expectations.confirmed.get(target)
    return known is not None and known.uid == found.uid


# --- claims that exist -------------------------------------------------------------------------------------------


def _scan(ctx: Context) -> None:
    """Look at all claims of the Framework, which costs their number."""
    tracker, claims = ctx.tracker, ctx.tracker.part(ClaimAgenda)
    found = ctx.observed.list_claims(ctx.framework.spec.has_claims)
    if isinstance(found, NotListed):
        text = f"Cannot list {Kind.VOLUME_CLAIM}s, which volumeClaimTemplates need: {found.problem}"
        stall = Stall(ClaimReason.NOT_LISTED, text)
        if found.problem and tracker.holds.stalls.get(CLAIMS) != stall:
            tracker.holds.stalls[CLAIMS] = stall
            tracker.agenda.wake(claims.unlisted)
        return
    claims.scan = False
    tracker.holds.end_stall(CLAIMS, ClaimReason.NOT_LISTED)
    for record in found:
        claims.add(record.name)
    tracker.agenda.wake(claims.unlisted)
    claims.unlisted.clear()


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
    when_scaled = role.persistent_volume_claim_retention_policy.when_scaled.value
    wanted = ctx.framework.uid, when_scaled, claim_has_owner(role)
    return None if present == wanted else mark(ctx, target, role)


def _change_taskless(
    ctx: Context, target: Target, found: ClaimRecord, role: TaskRoleSpec | None
) -> MarkClaim | Delete | None:
    """The change of a claim whose Task has left, or is yet to come.

    A later change of the policy can only keep it: a retained claim is never deleted.
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
            return Delete(target, found.uid, unrecorded=True, resource_version=found.resource_version)
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


@dataclass(frozen=True, slots=True)
class MarkClaim(PartAction):
    """Set the labels, the annotations and the owner of a volume claim, if its Task's identity is in it.

    ``identity``: values of ``names.CLAIM_IDENTITY``. ``owner``: the reference to the Framework as JSON, None for none.
    """

    framework_uid: str
    identity: tuple[str, ...]
    labels: tuple[tuple[str, str], ...]
    annotations: tuple[tuple[str, str], ...]
    owner: bytes | None
    needs_live: ClassVar[bool] = True

    def exchange(self) -> Exchange:
        target = self.target
        metadata = yield from find_metadata(target)
        if metadata is None:
            return Gone()
        found = identity_in(target, metadata)
        if found.deleting or not is_claim_of(found, self.identity, self.framework_uid):
            return Exists(found)
        change = self._change(metadata, owned=found.controller_uid is not None)
        if not change:
            return Created(found.uid)
        if names.FRAMEWORK_UID in change.get("annotations", ()) and not (yield from self._framework_exists()):
            return Remains("its Framework is gone")
        # The version is a precondition: nothing that another client has changed since is undone.
        version = metadata.get("resourceVersion") or ""
        result = yield from patched(target, found.uid, {"metadata": change}, version)
        return Created(found.uid) if isinstance(result, Patched) else result

    def _framework_exists(self) -> Generator[Request, Answer, bool]:
        """Whether the Framework still exists, now that the claim was read.

        If so, no later Framework of its name had adopted the claim, which would be lost with an owner that is gone.
        """
        metadata = yield from find_metadata(Target(Kind.FRAMEWORK, self.identity[1]))
        return metadata is not None and metadata["uid"] == self.framework_uid

    def _change(self, metadata: Mapping[str, Any], *, owned: bool) -> dict[str, Any]:
        """The changes of the metadata, empty if they are as wanted."""
        change: dict[str, Any] = {}
        for field_name, wanted in (("labels", self.labels), ("annotations", self.annotations)):
            present = metadata.get(field_name) or {}
            if missing := {key: value for key, value in wanted if present.get(key) != value}:
                change[field_name] = missing
        if owned != (self.owner is not None):
            others = [one for one in metadata.get("ownerReferences") or () if one.get("uid") != self.framework_uid]
            change["ownerReferences"] = others if self.owner is None else [*others, orjson.loads(self.owner)]
        return change


# --- outcomes -----------------------------------------------------------------------------------------------------


def _take_creation(ctx: Context, action: Create, result: Result) -> None:
    """Fold the outcome of the creation of a Task's volume claim. As with Pods, a refusal delays all creations."""
    tracker, target = ctx.tracker, action.target
    role = ctx.framework.spec.role(target.role)
    match result:
        case Created():
            tracker.holds.release(CREATIONS)
        case Exists(found=Identity() as found) if _is_ours(ctx, target, found) and not found.deleting:
            tracker.agenda.look((target.role, target.index))
            if role is None:
                hold(ctx, target, result, "create")
            else:
                # It is retained and has lost its label, or the answer to its creation was lost.
                tracker.follow_ups.append(mark(ctx, target, role))
                back_off_quietly(ctx, target, f"{target.kind} {target.name} exists")
            record_answer(tracker, target, None)
            return
        case Refused() | Unanswered() | Exists(found=None):
            why = f"Cannot create {target.kind} {target.name}: {describe_failure(result)}"
            tracker.holds.hold(CREATIONS, ctx.env, why, retry_after(result))
    take_object(ctx, action, result, ClaimReason.CREATED, partial(_is_ours, ctx, target))


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
            record_answer(tracker, target, uid)
            tracker.holds.hold_repetition(target.object_key, ctx.env)
            ctx.record(ClaimReason.KEPT, f"{name} ({uid}) is kept as the spec says", task_of(ctx, target))
        case Accepted():
            ctx.record(ClaimReason.DELETED, f"{name} was deleted, as its Task has left")
        case Gone():
            pass
        case _:
            agenda.retry(target.name)
            foreign = isinstance(result, Exists) and not is_terminating(result)
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
