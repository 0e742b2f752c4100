"""The presence of objects that no status records: those of parts, beside the ConfigMap and the Pods.

Presence is learnt from the cache and from answers, and never persisted: the name of an object follows from the spec,
and its owner's UID shows whether it is ours. An object of that name with another owner is neither used nor changed. A
Framework without such objects asks for none, so that their kind is not even watched.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

from frameworkcontroller.api.objects import CompanionRecord, Identity
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.holds import Stall
from frameworkcontroller.machine.kernel.model import NotListed
from frameworkcontroller.machine.kernel.reasons import Reason
from frameworkcontroller.machine.kernel.target import Target


class Presence(Enum):
    """What is known of a companion. UNLISTED: its kind is not listed yet. ENDING: it is being deleted."""

    PRESENT = auto()
    ABSENT = auto()
    ENDING = auto()
    UNLISTED = auto()


def presence_of(ctx: Context, target: Target, is_ours: Callable[[Identity], bool]) -> tuple[Presence, str]:
    """The presence of a companion, and why its kind cannot be listed."""
    known = ctx.tracker.objects.confirmed.get(target)
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


def report_listing(ctx: Context, target: Target, problem: str, not_listed: Reason, needed_by: str) -> None:
    """Stall the Framework while the kind of a companion cannot be listed. ``problem``: why, "" if it can."""
    if problem:
        text = f"Cannot list {target.kind}s, which {needed_by} needs: {problem}"
        ctx.tracker.holds.stalls[target.key] = Stall(not_listed, text)
    else:
        ctx.tracker.holds.end_stall(target.key, not_listed)


def watch_end(ctx: Context, target: Target, not_gone: Reason) -> None:
    """Stall the Framework if a companion that is being deleted stays."""
    found = ctx.observed.find_companion(target.kind, target.name)
    if not isinstance(found, CompanionRecord) or found.identity.deletion_time is None:
        return
    patience = ctx.env.limits.pod_stuck_deleting_sec
    left = min(found.identity.deletion_time - ctx.env.now, 0.0) + patience
    if left > 0:
        ctx.tracker.agenda.look(target.key, ctx.env.clock + left)
        return
    when = format_time(found.identity.deletion_time)
    text = f"{target.kind} {target.name} was to be deleted by {when} and still exists: a finalizer holds it"
    ctx.tracker.holds.stalls[target.key] = Stall(not_gone, text, target.claim)
