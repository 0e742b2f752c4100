"""Volume claims: companions of single Tasks, which exist before their Pods and stay over retries.

A claim says by annotations whose it is, since it may outlive its Task and its Framework. Its name belongs to one Task
only, so an annotation that says otherwise, or none, means that another client made it: it is neither used nor changed.

Tasks ask for their claims when their Pods are to be created (``keep``). Changes of existing claims rest on the spec and
the persisted Tasks, and are made in any state of the Framework (``maintain``), after a live read of the Framework: a
claim has data, which an outdated spec must not give away.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.objects import ClaimRecord, Identity, is_claim_of
from frameworkcontroller.api.spec import ClaimRetention, ClaimTemplate, TaskRoleSpec, TaskSpec
from frameworkcontroller.api.status import State, TaskStatus
from frameworkcontroller.machine.kernel.actions import Create, Delete, MarkClaim, Renderer, Target
from frameworkcontroller.machine.kernel.companions import Presence, look, watch_end
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.holds import CLAIMS, Stall, Wait
from frameworkcontroller.machine.kernel.manifests import (
    POD_LABELS,
    claim_annotations,
    claim_body,
    claim_has_owner,
    framework_reference,
    is_large,
)
from frameworkcontroller.machine.kernel.model import NotListed
from frameworkcontroller.machine.kernel.reasons import Reason
from frameworkcontroller.machine.kernel.requests import Kind

_WITH_CLAIMS: Final = frozenset({State.CREATION_PENDING, State.PREPARING})
"""States of Tasks whose Pods may need a claim that does not exist."""


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
    """Create the claims of the Task that are absent. Return whether none was, so that its Pod may be created.

    To be called only if ``gates.may_create`` allows to create something for the Task.
    """
    role = ctx.framework.spec.role(task.role)
    if role is None or not role.volume_claim_templates:
        return True
    if ctx.framework.deleting:
        return False
    missing, wait = 0, None
    for template in role.volume_claim_templates:
        target = _target(ctx, template.metadata.name, *task.key)
        presence, problem = look(ctx, target, partial(_is_ours, ctx, target))
        if presence is Presence.PRESENT and _is_adopted(ctx, target):
            continue
        missing += 1
        if presence is Presence.PRESENT:
            ctx.tracker.claims.add(target.name)
        elif presence is Presence.ABSENT:
            if (until := ctx.tracker.holds.until(pace_key(target))) > ctx.env.clock:
                text = f"{target.kind} {target.name} was deleted again: it is created after a pause"
                wait = Wait(Reason.VOLUME_CLAIM_PENDING, text, until)
                ctx.plan_again(task.key, until)
                continue
            ctx.create_for(task.key, partial(_creation, ctx, target, role, template))
        elif presence is Presence.ENDING:
            wait = Wait(
                Reason.VOLUME_CLAIM_PENDING, f"{target.kind} {target.name} is being deleted, to be created again"
            )
            watch_end(ctx, target, Reason.VOLUME_CLAIM_NOT_GONE)
        else:
            ctx.tracker.claims.unlisted.add(task.key)
            ctx.tracker.claims.scan = True
            if problem:
                # The stall says why.
                wait = Wait(Reason.VOLUME_CLAIM_PENDING, f"{target.kind} {target.name} cannot be looked for")
    ctx.tracker.holds.wait(task.key, wait)
    return not missing


def pace_key(target: Target) -> str:
    """The key of the pauses between creations and changes of the claim, which other clients may undo at once."""
    return f"{target.kind}/{target.name}"


def _creation(ctx: Context, target: Target, role: TaskRoleSpec, template: ClaimTemplate) -> Create:
    ctx.tracker.companion_wanted(target, ctx.env.clock)
    source = Renderer(claim_body, (ctx.framework, role, template, target.index))
    return Create(target, source, ctx.framework.uid, is_large=is_large(template))


def _is_ours(ctx: Context, target: Target, found: Identity) -> bool:
    return is_claim_of(found, identity(ctx, target), ctx.framework.uid)


def _is_adopted(ctx: Context, target: Target) -> bool:
    """Whether an existing claim is known to be this Framework's, not only that of an earlier one of the same name."""
    found = ctx.observed.find_companion(target.kind, target.name)
    if not isinstance(found, ClaimRecord) or found.framework_uid == ctx.framework.uid:
        return True
    known = ctx.tracker.companions.get(target)
    return known is not None and known.uid == found.uid


# --- claims that exist -------------------------------------------------------------------------------------------


def maintain(ctx: Context) -> None:
    """Adopt, mark and delete the claims that the tracker says to look at."""
    tracker = ctx.tracker
    claims = tracker.claims
    if ctx.framework.deleting or not (claims.scan or claims or claims.paced):
        return
    while (due := claims.paced.pop_due(ctx.env.clock)) is not None:
        claims.add(due)
    if claims.scan:
        _scan(ctx)
    held = tracker.holds.held(CLAIMS, ctx.env.clock)
    for name in claims.take(again=held is None):
        change = None if name in claims.changing else _change(ctx, name)
        if change is None:
            continue
        until = tracker.holds.until(pace_key(change.target))
        if isinstance(change, MarkClaim) and until > ctx.env.clock:
            claims.paced.set(name, until)
        elif held is None:
            claims.changing.add(name)
            ctx.plan.actions.append(change)
        else:
            claims.retry(name)
    if held is not None and claims:
        ctx.requeue_at(held.until)
    if (next_due := claims.paced.next()) is not None:
        ctx.requeue_at(next_due)


def _scan(ctx: Context) -> None:
    """Look at all claims of the Framework, which costs their number."""
    tracker = ctx.tracker
    found = ctx.observed.list_claims(ctx.framework.spec.has_claims)
    if isinstance(found, NotListed):
        text = f"Cannot list {Kind.VOLUME_CLAIM}s, which volumeClaimTemplates need: {found.problem}"
        stall = Stall(Reason.VOLUME_CLAIM_NOT_LISTED, text)
        if found.problem and tracker.holds.stalls.get(CLAIMS) != stall:
            tracker.holds.stalls[CLAIMS] = stall
            tracker.agenda.update(tracker.claims.unlisted)
        return
    tracker.claims.scan = False
    tracker.holds.end_stall(CLAIMS, Reason.VOLUME_CLAIM_NOT_LISTED)
    for record in found:
        tracker.claims.add(record.name)
    tracker.agenda.update(tracker.claims.unlisted)
    tracker.claims.unlisted.clear()


def _change(ctx: Context, name: str) -> MarkClaim | Delete | None:
    """The change of a claim that is due, None if it is as it has to be, or not ours."""
    parts = names.split_claim_name(name)
    if parts is None or parts[1] != ctx.framework.name:
        return None
    claim, _, role_name, index = parts
    target = Target(Kind.VOLUME_CLAIM, name, role=role_name, index=index)
    task, role = ctx.tracker.task((role_name, index)), ctx.framework.spec.role(role_name)
    if task is not None and task.state in _WITH_CLAIMS:
        ctx.tracker.agenda.add(task.key)
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


def remember(ctx: Context) -> None:
    """Remember the policies of the spec: a role may be removed before its claims show its last one."""
    if ctx.framework.spec.has_claims:
        for role in ctx.framework.spec.task_roles:
            small = role.model_copy(update={"task": TaskSpec(), "volume_claim_templates": ()})
            ctx.tracker.claims.policies[role.name] = small


def _change_taskless(
    ctx: Context, target: Target, found: ClaimRecord, role: TaskRoleSpec | None
) -> MarkClaim | Delete | None:
    """The change of a claim whose Task has left, or is yet to come.

    A later change of the policy can only keep it: what was retained is not deleted afterwards.
    """
    if found.framework_uid != ctx.framework.uid:
        return None
    when_scaled = found.when_scaled
    last = role or ctx.tracker.claims.policies.get(target.role)
    if last is not None and last.persistent_volume_claim_retention_policy.when_scaled is ClaimRetention.RETAIN:
        when_scaled = ClaimRetention.RETAIN.value
    if when_scaled == ClaimRetention.DELETE and (role is None or target.index >= role.task_number):
        pod = names.pod_name(ctx.framework.name, target.role, target.index)
        if ctx.tracker.is_head_settled and ctx.observed.find_pod(pod) is None:
            # The cache may be older than the spec: by now the claim may be another Framework's, or one to retain.
            return Delete(target, found.uid, orphan=True, resource_version=found.resource_version)
        # Its Task has left once that is persisted.
        ctx.tracker.claims.add(target.name)
        return None
    if last is None:
        return None
    has_owner = found.identity.controller_uid is not None
    owned = has_owner and claim_has_owner(last)
    if (owned, when_scaled) == (has_owner, found.when_scaled):
        return None
    return mark(ctx, target, last, owned=owned, when_scaled=when_scaled)
