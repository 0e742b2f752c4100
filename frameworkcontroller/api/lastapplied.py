"""The fields that kubectl has applied, by its annotation, which keeps those that the API server has dropped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


def applied_fields(metadata_json: bytes, paths: Sequence[str]) -> list[str]:
    """Return the paths, such as ``spec.taskRoles[].dependsOn``, that the last applied object has.

    None if it was not applied, or with `kubectl apply --server-side`.
    """
    if LAST_APPLIED.encode() not in metadata_json:
        return []
    try:
        applied = orjson.loads(orjson.loads(metadata_json)["annotations"][LAST_APPLIED])
    except (ValueError, LookupError, TypeError):
        return []
    return [path for path in paths if _has(applied, path.split("."))]


def _has(value: Any, path: Sequence[str]) -> bool:
    if not path:
        return value is not None
    name, is_list = path[0].removesuffix("[]"), path[0].endswith("[]")
    below = value.get(name) if isinstance(value, dict) else None
    if is_list:
        return isinstance(below, list) and any(_has(item, path[1:]) for item in below)
    return _has(below, path[1:])
