"""The ``kubectl get pods`` columns, with one word for the state of the containers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from frameworkcontroller.local.apiserver.ages import age
from frameworkcontroller.local.readycondition import is_ready

Json = Mapping[str, Any]


def _cells(pod: Json, now: float) -> list[Any]:
    """All cells after the name."""
    metadata, spec, state = (pod.get(part) or {} for part in ("metadata", "spec", "status"))
    statuses = state.get("containerStatuses") or ()
    inits = state.get("initContainerStatuses") or ()
    ready = sum(1 for one in statuses if one.get("ready") and (one.get("state") or {}).get("running") is not None)
    gates = [gate.get("conditionType") for gate in spec.get("readinessGates") or ()]
    conditions = {one.get("type"): one.get("status") for one in state.get("conditions") or ()}
    met = sum(1 for gate in gates if conditions.get(gate) == "True")
    addresses = state.get("podIPs") or [{"ip": state.get("podIP")}]
    initializing = _initializing(spec, inits)
    return [
        f"{ready}/{len(spec.get('containers') or ())}",
        _word(metadata, spec, state, initializing),
        _restarts(inits if initializing else statuses, now),
        age(metadata.get("creationTimestamp"), now),
        addresses[0].get("ip") or "<none>",
        spec.get("nodeName") or "<none>",
        state.get("nominatedNodeName") or "<none>",
        f"{met}/{len(gates)}" if gates else "<none>",
    ]


POD_CELLS: Final[Callable[[Json, float], list[Any]]] = _cells


def _initializing(spec: Json, inits: Any) -> str:
    """The progress of initialization, in a word; empty once it is over."""
    declared = spec.get("initContainers") or ()
    lasting = {one.get("name") for one in declared if one.get("restartPolicy") == "Always"}
    for index, one in enumerate(inits):
        if one.get("name") in lasting and one.get("started"):
            continue
        state = one.get("state") or {}
        ended, waiting = state.get("terminated"), state.get("waiting") or {}
        if ended is not None and not ended.get("exitCode"):
            continue
        if ended is not None:
            return f"Init:{ended.get('reason') or _ending(ended)}"
        if waiting.get("reason") and waiting["reason"] != "PodInitializing":
            return f"Init:{waiting['reason']}"
        return f"Init:{index}/{len(declared)}"
    return ""


def _ending(ended: Json) -> str:
    return f"Signal:{ended['signal']}" if ended.get("signal") else f"ExitCode:{ended.get('exitCode', 0)}"


def _word(metadata: Json, spec: Json, state: Json, initializing: str) -> str:
    word: str = state.get("reason") or state.get("phase") or ""
    if (spec.get("schedulingGates") or ()) and word == "Pending":
        word = "SchedulingGated"
    if initializing:
        word = initializing
    else:
        running = False
        # The first container takes precedence.
        for one in reversed(state.get("containerStatuses") or ()):
            now = one.get("state") or {}
            ended = now.get("terminated")
            if (now.get("waiting") or {}).get("reason"):
                word = now["waiting"]["reason"]
            elif ended is not None:
                word = ended.get("reason") or _ending(ended)
            elif one.get("ready") and now.get("running") is not None:
                running = True
        if word == "Completed" and running:
            word = "Running" if is_ready({"status": state}) else "NotReady"
    if metadata.get("deletionTimestamp"):
        if state.get("reason") == "NodeLost":
            return "Unknown"
        if state.get("phase") not in ("Succeeded", "Failed"):
            return "Terminating"
    return word


def _restarts(statuses: Any, now: float) -> str:
    count = sum(one.get("restartCount") or 0 for one in statuses)
    ends = [((one.get("lastState") or {}).get("terminated") or {}).get("finishedAt") for one in statuses]
    last = max((end for end in ends if end), default="")
    return f"{count} ({age(last, now)} ago)" if count and last else str(count)


def completed(pod: Json) -> list[dict[str, str]]:
    """The row's condition once the Pod has ended."""
    phase = (pod.get("status") or {}).get("phase")
    if phase not in ("Succeeded", "Failed"):
        return []
    message = "The pod has completed successfully." if phase == "Succeeded" else "The pod failed."
    return [{"type": "Completed", "status": "True", "reason": phase, "message": message}]
