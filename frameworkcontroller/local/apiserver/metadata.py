"""The fields of ObjectMeta that the server sets, on creation and on every later write."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from frameworkcontroller.api.timestamps import format_time

# Without vowels and look-alikes: generated names spell no words and are easy to tell apart.
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH: Final = 5
_MAX_GENERATED: Final = 63


def rfc3339(seconds: float) -> str:
    """Format a time (epoch seconds) as the API does: UTC, whole seconds."""
    return format_time(int(seconds))


class Identities:
    """Generates uids and names; a seeded source makes runs reproducible."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def uid(self) -> str:
        """A new uid."""
        return str(uuid.UUID(int=self._rng.getrandbits(128), version=4))

    def name(self, prefix: str) -> str:
        """Generate a name from a ``generateName`` prefix, truncated to the length of a label."""
        kept = prefix[: _MAX_GENERATED - _SUFFIX_LENGTH]
        return kept + "".join(self._rng.choices(_ALPHABET, k=_SUFFIX_LENGTH))


def begin(obj: dict[str, Any], namespace: str, uid: str, now: float, name: Callable[[str], str]) -> None:
    """Make ``obj`` a new object: reset and set the server's own fields."""
    metadata = obj.setdefault("metadata", {})
    for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion"):
        metadata.pop(field, None)
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = name(metadata["generateName"])
    if namespace:
        metadata["namespace"] = namespace
    else:
        metadata.pop("namespace", None)
    metadata["uid"] = uid
    metadata["creationTimestamp"] = rfc3339(now)
    _drop_empty(metadata)


def carry_over(new: dict[str, Any], old: Mapping[str, Any]) -> None:
    """Keep in ``new`` the fields that a write cannot remove or set."""
    metadata, before = new.setdefault("metadata", {}), old["metadata"]
    metadata.pop("selfLink", None)
    metadata["creationTimestamp"] = before["creationTimestamp"]
    for field in ("uid", "namespace", "deletionTimestamp", "deletionGracePeriodSeconds"):
        if not metadata.get(field) and field in before:
            metadata[field] = before[field]
    _drop_empty(metadata)
    if "generation" in before:
        metadata["generation"] = before["generation"]
    else:
        metadata.pop("generation", None)


def _drop_empty(metadata: dict[str, Any]) -> None:
    # Like the real server: empty lists and maps are omitted.
    for field in ("labels", "annotations", "finalizers", "ownerReferences", "managedFields"):
        if field in metadata and not metadata[field]:
            del metadata[field]


def bump_generation(metadata: dict[str, Any]) -> None:
    """Increment the generation, for types that have one."""
    if metadata.get("generation"):
        metadata["generation"] += 1
