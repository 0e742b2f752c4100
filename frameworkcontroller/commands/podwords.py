"""What a Pod that does not run yet, or does not go away, waits for, in its own words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_ON_ITS_WAY: Final = frozenset({"ContainerCreating", "PodInitializing"})
"""What every container says before it starts: no reason to worry, or to be told twice."""


def waits_for(pod: Mapping[str, Any]) -> str:
    """Why the Pod is not running, as its status tells; empty if there is nothing to tell."""
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    if metadata.get("deletionTimestamp"):
        held = ", ".join(metadata.get("finalizers") or ())
        return f"held by the finalizers {held}" if held else "waits until its containers have ended"
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return _joined(condition.get("reason"), condition.get("message"))
    if not spec.get("nodeName"):
        return f"waits for the scheduler {spec.get('schedulerName') or 'default-scheduler'}"
    names = {"initContainerStatuses": "init container", "containerStatuses": "container"}
    on_its_way = ""
    for listed, what in names.items():
        for container in status.get(listed) or ():
            state = container.get("state") or {}
            waiting = state.get("waiting")
            if waiting and waiting.get("reason") not in _ON_ITS_WAY:
                return f"{what} {container['name']}: {_joined(waiting.get('reason'), waiting.get('message'))}"
            if "running" in state and listed == "initContainerStatuses":
                return f"init container {container['name']} is running"
            if waiting and not on_its_way:
                on_its_way = _joined(waiting.get("reason"), waiting.get("message"))
    return on_its_way or _joined(status.get("reason"), status.get("message"))


def _joined(reason: str | None, message: str | None) -> str:
    return ": ".join(part for part in (reason, message) if part)
