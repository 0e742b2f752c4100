"""Companions: objects beside the ConfigMap and the Pods, which exist for a field of the spec.

Presence is learnt and never persisted: the name of a companion follows from the spec, and its owner's UID shows whether
it is ours. An object of that name with another owner is neither used nor changed. What uses no companion asks for none,
so that its kind is not even watched. owned.py folds the outcomes of the creations. Those of single Tasks are volume
claims (claims.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial

from frameworkcontroller.api.objects import CompanionRecord, Identity
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.machine.kernel.actions import Create, Target
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.holds import CLAIMS, GANGS, ObjectKey, Stall, Wait
from frameworkcontroller.machine.kernel.manifests import service_body
from frameworkcontroller.machine.kernel.model import NotListed
from frameworkcontroller.machine.kernel.reasons import Reason
from frameworkcontroller.machine.kernel.requests import PODGROUPS, Kind


@dataclass(frozen=True, slots=True)
class _Companion:
    """An object to exist. ``pending``: the reason to wait for it. ``not_gone``: the stall while an old one stays."""

    target: Target
    controller_uid: str
    body: Callable[[], bytes]
    pending: Reason
    not_gone: Reason

    def is_ours(self, found: Identity) -> bool:
        """Whether an object of the name is the companion."""
        return found.controller_uid == self.controller_uid


def _wanted(ctx: Context) -> Iterator[_Companion]:
    """The companions of the Framework: they precede the first attempt, and go with the Framework."""
    framework = ctx.framework
    if framework.spec.has_hostnames:
        target = Target(Kind.SERVICE, framework.spec.subdomain(framework.name))
        body = partial(service_body, framework)
        yield _Companion(target, framework.uid, body, Reason.SERVICE_PENDING, Reason.SERVICE_NOT_GONE)


class Presence(Enum):
    """What is known of a companion. UNLISTED: its kind is not listed yet. ENDING: it is being deleted."""

    PRESENT = auto()
    ABSENT = auto()
    ENDING = auto()
    UNLISTED = auto()


def look(ctx: Context, target: Target, is_ours: Callable[[Identity], bool]) -> tuple[Presence, str]:
    """The presence of a companion, and why its kind cannot be listed."""
    known = ctx.tracker.companions.get(target)
    found = ctx.observed.find_companion(target.kind, target.name)
    if isinstance(found, NotListed):
        return (Presence.UNLISTED, found.problem) if known is None else (Presence.PRESENT, "")
    if found is not None and is_ours(found.identity):
        if not found.identity.deleting:
            return Presence.PRESENT, ""
        if known is None or known.uid == found.uid:
            return Presence.ENDING, ""
    # An object of another owner is found again by the creation, which is refused.
    return (Presence.ABSENT if known is None else Presence.PRESENT), ""


def keep(ctx: Context) -> bool:
    """Create the companions that are absent. Return whether none was."""
    missing = 0
    for companion in _wanted(ctx):
        target, holds = companion.target, ctx.tracker.holds
        presence, problem = look(ctx, target, companion.is_ours)
        if presence is Presence.PRESENT:
            holds.release(target.key)
            continue
        missing += 1
        if problem:
            text = f"Cannot list {target.kind}s, which spec.network needs: {problem}"
            holds.stalls[target.key] = Stall(Reason.SERVICE_NOT_LISTED, text)
        else:
            holds.end_stall(target.key, Reason.SERVICE_NOT_LISTED)
        if presence is Presence.ENDING:
            watch_end(ctx, target, companion.not_gone)
            continue
        holds.end_stall(target.key, companion.not_gone)
        if presence is Presence.ABSENT:
            ctx.tracker.companion_wanted(target, ctx.env.clock)
            ctx.act(Create(target, companion.body(), companion.controller_uid))
    return not missing


def watch_end(ctx: Context, target: Target, not_gone: Reason) -> None:
    """Stall the Framework if a companion that is being deleted stays."""
    found = ctx.observed.find_companion(target.kind, target.name)
    if not isinstance(found, CompanionRecord) or found.identity.deletion_time is None:
        return
    patience = ctx.env.limits.pod_stuck_deleting_sec
    left = min(found.identity.deletion_time - ctx.env.now, 0.0) + patience
    if left > 0:
        key = target.key
        ctx.plan_again(key if isinstance(key, tuple) else None, ctx.env.clock + left)
        return
    when = format_time(found.identity.deletion_time)
    text = f"{target.kind} {target.name} was to be deleted by {when} and still exists: a finalizer holds it"
    ctx.tracker.holds.stalls[target.key] = Stall(not_gone, text, target.claim)


def pending(ctx: Context) -> Wait | None:
    """Why the attempt waits for a companion. None also if that is about to be created, which takes a moment."""
    holds = ctx.tracker.holds
    for companion in _wanted(ctx):
        target = companion.target
        presence, _ = look(ctx, target, companion.is_ours)
        if presence is Presence.PRESENT:
            continue
        if presence is Presence.ENDING:
            return Wait(companion.pending, f"{target.kind} {target.name} is being deleted, to be created again")
        if holds.until(target.key) > ctx.env.clock or holds.has_failed(target.key) or target.key in holds.stalls:
            # The stall says why, which may change with each attempt to create it.
            return Wait(companion.pending, f"its {target.kind} {target.name} does not exist yet")
    return None


def forget_unwanted(ctx: Context) -> None:
    """Forget failures to create companions that a change of the spec has made needless."""
    wanted: set[ObjectKey] = {companion.target.key for companion in _wanted(ctx)}
    if ctx.framework.spec.has_claims:
        wanted.add(CLAIMS)
    has_gangs = ctx.framework.spec.scheduling is not None
    ctx.tracker.holds.keep_companions(lambda key: key in wanted or (has_gangs and is_of_gang(key)))


def is_of_gang(key: ObjectKey) -> bool:
    """Whether it is the key of a PodGroup, or of all."""
    return isinstance(key, str) and (key == GANGS or key.partition("/")[0] in PODGROUPS)


def release(ctx: Context) -> None:
    """Forget failures to create companions, which are not needed for now."""
    for companion in _wanted(ctx):
        ctx.tracker.holds.release(companion.target.key)
