"""What a DELETE means for an object: graceful periods and finalizers. Pure decisions over its metadata.

An object leaves the store only when nobody holds it any more. A Pod on a node is held until its grace period has been
declared over (by a DELETE with period 0); any object is held as long as it has a finalizer. Until then it is marked
with a deletionTimestamp, and what a further DELETE may do is only to shorten the period or change how dependents go.
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
"""Finalizer: the garbage collector first takes this owner out of its dependents' references."""
FOREGROUND: Final = "foregroundDeletion"
"""Finalizer: the garbage collector first deletes the dependents that block the owner's deletion."""


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """What a DELETE request says besides the object's name."""

    grace_period_seconds: int | None = None
    propagation: Propagation | None = None
    uid: str | None = None
    """Precondition: the object's uid."""
    resource_version: str | None = None
    """Precondition: the object's resourceVersion."""
    orphan_dependents: bool | None = None
    """The older spelling of ``propagation``, which is set from it; a false one changes the answer's code."""


class Fate(Enum):
    """What becomes of the object."""

    KEPT = "kept"
    """It stays, perhaps marked."""
    REMOVED = "removed"
    """It goes now, perhaps after having been marked."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a DELETE request for one object."""

    fate: Fate
    metadata: dict[str, Any] | None
    """The metadata to be written first; None: it does not change."""


def judge(
    metadata: Mapping[str, Any], options: DeleteOptions, grace: int | None, now: float, *, orphans: bool = True
) -> Verdict:
    """Decides on a DELETE of the object with this metadata at the wall time ``now``.

    ``grace`` is the period that its type grants it, in seconds; None if the type knows no graceful deletion.
    ``orphans`` says whether the type has dependents that the garbage collector cares for.
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
    """An object's finalizers once its deletion is to propagate like this.

    A request that says nothing leaves it to a finalizer that the object already has, and else means Background.
    """
    if propagation is None:
        wanted = next((finalizer for finalizer in finalizers if finalizer in {ORPHAN, FOREGROUND}), None)
    else:
        wanted = {"Orphan": ORPHAN, "Foreground": FOREGROUND}.get(propagation)
    kept = [finalizer for finalizer in finalizers if finalizer not in {ORPHAN, FOREGROUND} or finalizer == wanted]
    return kept if wanted is None or wanted in kept else [*kept, wanted]


def released(new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    """Whether an update to the metadata ``new`` lets go of an object that only finalizers still held."""
    held = old.get("deletionGracePeriodSeconds")
    return bool(old.get("deletionTimestamp")) and not held and not new.get("finalizers")


def _mark(metadata: dict[str, Any], when: float, grace: int) -> None:
    metadata["deletionTimestamp"] = rfc3339(when)
    metadata["deletionGracePeriodSeconds"] = grace
    # Whoever acts on the object must notice that it is no longer wanted.
    bump_generation(metadata)
