"""Validates changes of a Pod's spec: images, an earlier deadline, additional tolerations, fewer scheduling gates."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

import orjson

from frameworkcontroller.local.apiserver.status_causes import Cause, forbidden, invalid, required

_FIXED = (
    "pod updates may not change fields other than `spec.containers[*].image`, `spec.initContainers[*].image`, "
    "`spec.activeDeadlineSeconds` or `spec.tolerations` (only additions to existing tolerations)"
)
_CONTAINER_LISTS = ("containers", "initContainers")


def causes_on_update(new: Mapping[str, Any], old: Mapping[str, Any]) -> list[Cause]:
    """Validate the change of a Pod's spec from ``old`` to ``new``, beyond the rules for new Pods."""
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    if spec == before:
        return []
    found: list[Cause] = []
    comparable = dict(spec)
    for field in _CONTAINER_LISTS:
        now, then = spec.get(field) or [], before.get(field) or []
        if len(now) != len(then):
            noun = "containers" if field == "containers" else "init containers"
            return [forbidden(f"spec.{field}", f"pod updates may not add or remove {noun}")]
        found += [
            required(f"spec.{field}[{index}].image")
            for index, container in enumerate(now)
            if not container.get("image")
        ]
        if now:
            comparable[field] = [{**mine, "image": theirs.get("image")} for mine, theirs in zip(now, then, strict=True)]
    found += _deadline(spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds"))
    found += _tolerations(spec.get("tolerations") or [], before.get("tolerations") or [])
    found += _gates(spec.get("schedulingGates") or [], before.get("schedulingGates") or [])
    for field in ("activeDeadlineSeconds", "schedulingGates", "tolerations"):
        comparable.pop(field, None)
        if field in before:
            comparable[field] = before[field]
    if comparable != before:
        found.append(forbidden("spec", f"{_FIXED}\n{_difference(comparable, before)}"))
    return found


def _deadline(now: int | None, then: int | None) -> list[Cause]:
    path = "spec.activeDeadlineSeconds"
    if then is None or now == then:
        return []
    if now is None:
        return [invalid(path, None, "must not update from a positive integer to nil value")]
    return [] if now < then else [invalid(path, now, "must be less than or equal to previous value")]


def _tolerations(now: list[Any], then: list[Any]) -> list[Cause]:
    def essence(toleration: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in toleration.items() if key != "tolerationSeconds"}

    kept = [essence(one) for one in now]
    if all(essence(one) in kept for one in then):
        return []
    return [forbidden("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")]


def _gates(now: list[Any], then: list[Any]) -> list[Cause]:
    known = [gate.get("name") for gate in then]
    text = "only deletion is allowed, but found new scheduling gate '{}'"
    added = [gate.get("name") for gate in now if gate.get("name") not in known]
    return [forbidden("spec.schedulingGates", text.format(name)) for name in added]


def _difference(now: Mapping[str, Any], then: Mapping[str, Any]) -> str:
    """The attempted change as a diff; as on the real server, "-" marks the new value."""
    asked, kept = (
        orjson.dumps(spec, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS).decode().splitlines()
        for spec in (now, then)
    )
    lines = list(difflib.unified_diff(asked, kept, lineterm="", n=2))
    return "\n".join(lines[2:]) + "\n"
