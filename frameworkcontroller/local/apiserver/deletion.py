"""The effect of a DELETE: grace periods and finalizers. Pure decisions over an object's metadata.

A Pod on a node stays until its grace period is declared over (by a DELETE with period 0); any object stays while it has
a finalizer. Until then it has a deletionTimestamp, and a further DELETE can only shorten the period or change the
propagation to dependents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal

from frameworkcontroller.api.timestamps import parse_time
from frameworkcontroller.local.apiserver.metadata import bump_generation, rfc3339

Propagation = Literal["Orphan", "Background", "Foreground"]

ORPHAN: Final = "orphan"
"""Finalizer: the garbage collector first removes this owner from its dependents' references."""
FOREGROUND: Final = "foregroundDeletion"
"""Finalizer: the garbage collector first deletes the dependents that block the owner's deletion."""


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """The options of a DELETE request."""

    grace_period_seconds: int | None = None
    propagation: Propagation | None = None
    uid: str | None = None
    """Precondition: the object's uid."""
    resource_version: str | None = None
    """Precondition: the object's resourceVersion."""
    orphan_dependents: bool | None = None
    """The deprecated form of ``propagation``, which is set from it; if false, it changes the answer's code."""


class Fate(Enum):
    """The effect on the object."""

    KEPT = "kept"
    """It stays, perhaps marked."""
    REMOVED = "removed"
    """It is removed now, perhaps after being marked."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a DELETE request for one object."""

    fate: Fate
    metadata: dict[str, Any] | None
    """The metadata to write first; None: unchanged."""


def judge(
    metadata: Mapping[str, Any], options: DeleteOptions, grace: int | None, now: float, *, orphans: bool = True
) -> Verdict:
    """Decide on a DELETE of the object with this metadata at the wall time ``now``.

    ``grace`` is its type's grace period in seconds, None if the type has no graceful deletion. ``orphans``: the type
    has dependents for the garbage collector.
    """
    marked = dict(metadata)
    graceful = False
    if grace is not None:
        if not metadata.get("deletionTimestamp"):
            _mark(marked, now + grace, grace)
            graceful = True
        elif left := metadata.get("deletionGracePeriodSeconds"):
            asked = options.grace_period_seconds
            if asked is None or asked >= left:
                return Verdict(Fate.KEPT, None)
            began = parse_time(metadata["deletionTimestamp"]) - left
            marked["deletionTimestamp"] = rfc3339(began + asked)
            marked["deletionGracePeriodSeconds"] = asked
            graceful = True
    before = list(metadata.get("finalizers") or ())
    finalizers = finalizers_for(before, options.propagation) if orphans else before
    if finalizers != before:
        marked["finalizers"] = finalizers
    if not finalizers:
        marked.pop("finalizers", None)
        if not graceful:
            return Verdict(Fate.REMOVED, None)
        fate = Fate.KEPT if marked["deletionGracePeriodSeconds"] else Fate.REMOVED
        return Verdict(fate, marked)
    if not graceful:
        if not metadata.get("deletionTimestamp"):
            _mark(marked, now, 0)
        else:
            marked["deletionGracePeriodSeconds"] = 0
    return Verdict(Fate.KEPT, marked if marked != metadata else None)


def finalizers_for(finalizers: Sequence[str], propagation: Propagation | None) -> list[str]:
    """An object's finalizers for this propagation.

    Without a propagation, an existing finalizer decides; otherwise it is Background.
    """
    if propagation is None:
        wanted = next((finalizer for finalizer in finalizers if finalizer in {ORPHAN, FOREGROUND}), None)
    else:
        wanted = {"Orphan": ORPHAN, "Foreground": FOREGROUND}.get(propagation)
    kept = [finalizer for finalizer in finalizers if finalizer not in {ORPHAN, FOREGROUND} or finalizer == wanted]
    return kept if wanted is None or wanted in kept else [*kept, wanted]


def released(new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    """Whether an update to the metadata ``new`` releases an object that only finalizers held."""
    held = old.get("deletionGracePeriodSeconds")
    return bool(old.get("deletionTimestamp")) and not held and not new.get("finalizers")


def _mark(metadata: dict[str, Any], when: float, grace: int) -> None:
    metadata["deletionTimestamp"] = rfc3339(when)
    metadata["deletionGracePeriodSeconds"] = grace
    # Clients that watch the generation must notice the deletion.
    bump_generation(metadata)
