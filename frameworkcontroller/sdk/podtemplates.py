"""Pod templates of the SDK: one container "main", and the user's own fields merged into it last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, Final, TypeAlias

Json: TypeAlias = dict[str, Any]

CONTAINER: Final = "main"
"""The name of the container that an SDK's role has."""

_KEYS: Final = ("name", "mountPath")
"""Kubernetes identifies the items of its lists by one of these; volumeMounts have no unique name."""


def merged(base: Any, change: Any) -> Any:
    """Return ``base`` with the fields of ``change``: mappings by key, lists of named items by name, all else replaced.

    A value None removes the field.
    """
    if isinstance(base, Mapping) and isinstance(change, Mapping):
        found = dict(base)
        for key, value in change.items():
            if value is None:
                found.pop(key, None)
            else:
                found[key] = merged(found.get(key), value)
        return found
    key = _key_of(base, change)
    if key:
        listed = {item[key]: item for item in base}
        for item in change:
            listed[item[key]] = merged(listed.get(item[key], {}), item)
        return list(listed.values())
    return _without_removals(change)


def _without_removals(value: Any) -> Any:
    """Return a copy without the fields that would remove one."""
    if isinstance(value, Mapping):
        return {key: _without_removals(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list | tuple):
        return [_without_removals(item) for item in value]
    return deepcopy(value)


def _key_of(*lists: Any) -> str:
    """Return the key that identifies the items of both lists; "" if the list is replaced as a whole."""
    if not all(isinstance(one, Sequence) and not isinstance(one, str | bytes) for one in lists):
        return ""
    items = [item for one in lists for item in one]
    if not all(isinstance(item, Mapping) for item in items):
        return ""
    # Mounts of one volume at several places have the same name.
    keys = reversed(_KEYS) if any("mountPath" in item for item in items) else _KEYS
    return next((key for key in keys if items and all(isinstance(item.get(key), str) for item in items)), "")


def has_main(pod: Any) -> bool:
    """Return whether the Pod template has the container "main"."""
    spec = pod.get("spec") if isinstance(pod, Mapping) else None
    containers = spec.get("containers") if isinstance(spec, Mapping) else None
    items = containers if isinstance(containers, Sequence) else ()
    return any(isinstance(one, Mapping) and one.get("name") == CONTAINER for one in items)


def env_list(env: Mapping[str, str]) -> list[Json]:
    return [{"name": name, "value": value} for name, value in env.items()]


def with_volume(spec: Json, volume: Json, mount: Json) -> Json:
    """Return the Pod's spec with the volume, mounted in the container "main"."""
    return dict(
        merged(spec, {"volumes": [volume], "containers": [{"name": CONTAINER, "volumeMounts": [mount]}]}),
    )
