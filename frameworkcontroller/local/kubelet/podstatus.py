"""The `status` that a kubelet reports for a Pod."""

from __future__ import annotations

from typing import Any, Final

from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.local.kubelet.container import Container, ContainerTime, Stage, Termination
from frameworkcontroller.local.kubelet.lifecycle import PodFailure, PodLife
from frameworkcontroller.local.kubelet.pod import FAILED, SUCCEEDED, TERMINAL, ContainerKind

Json = dict[str, Any]

HOST_IP: Final = "127.0.0.1"


class PodStatusView:
    """Renders the status of one Pod, and tracks the transition times of its conditions."""

    def __init__(self, life: PodLife, runtime_name: str) -> None:
        self._life = life
        self._runtime_name = runtime_name
        self._conditions: dict[str, tuple[tuple[str, str, str], str]] = {}
        self._said: set[tuple[str, str]] = set()

    def render(self, now: ContainerTime) -> Json:
        """The status as a strategic merge patch, without fields that others own (qosClass, their conditions)."""
        life = self._life
        phase, failure = life.phase, life.failure
        shown = phase
        if life.override is not None:
            shown, failure = life.override
        status: Json = {
            "phase": shown,
            "conditions": self._render_conditions(phase, now),
            "hostIP": HOST_IP,
            "startTime": format_time(int(life.start_time)),
        }
        if failure is None or (life.override is None and phase != FAILED):
            failure = PodFailure("", "")
        self._set_words(status, "", reason=failure.reason, message=failure.message)
        if life.address:
            status["podIP"] = life.address
            status["podIPs"] = [{"ip": life.address}]
        inits = [self._container(item) for item in life.containers if item.spec.kind is not ContainerKind.MAIN]
        if inits:
            status["initContainerStatuses"] = inits
        status["containerStatuses"] = [
            self._container(item) for item in life.containers if item.spec.kind is ContainerKind.MAIN
        ]
        return status

    def _render_conditions(self, phase: str, now: ContainerTime) -> list[Json]:
        life = self._life
        mains = [item for item in life.containers if item.spec.kind is ContainerKind.MAIN]
        unready = [item.spec.name for item in mains if not item.ready]
        pending = [
            item.spec.name for item in life.containers if item.spec.kind is not ContainerKind.MAIN and not _ready(item)
        ]
        initialized = (
            ("True", "PodCompleted" if phase == SUCCEEDED else "", "")
            if life.initialized
            else (
                "False",
                "ContainersNotInitialized",
                f"containers with incomplete status: [{' '.join(pending)}]",
            )
        )
        if phase in TERMINAL:
            ready = ("False", "PodCompleted" if phase == SUCCEEDED else "PodFailed", "")
        elif unready:
            ready = ("False", "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]")
        else:
            ready = ("True", "", "")
        values = {"Initialized": initialized, "Ready": ready, "ContainersReady": ready}
        if not life.record.scheduled:
            # The API server sets it when a Pod is bound; a Pod created with a nodeName never was.
            values["PodScheduled"] = ("True", "", "")
        return [self._condition(kind, value, now) for kind, value in values.items()]

    def _condition(self, kind: str, value: tuple[str, str, str], now: ContainerTime) -> Json:
        known = self._conditions.get(kind)
        if known is None or known[0][0] != value[0]:
            since = format_time(int(now.wall))
        else:
            since = known[1]
        self._conditions[kind] = (value, since)
        status, reason, message = value
        condition: Json = {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": since}
        self._set_words(condition, kind, reason=reason, message=message)
        return condition

    def _set_words(self, body: Json, where: str, **words: str) -> None:
        """Set the non-empty words; clear those set before, which a merge would keep."""
        for key, word in words.items():
            if word:
                body[key] = word
                self._said.add((where, key))
            elif (where, key) in self._said:
                body[key] = None

    def _container(self, item: Container) -> Json:
        waiting = self._life.waiting(item)
        last = item.previous
        state: Json
        if waiting is not None:
            state = {"waiting": {"reason": waiting.reason}}
            if waiting.message:
                state["waiting"]["message"] = waiting.message
            if item.stage is Stage.EXITED:
                last = item.termination
        elif item.stage is Stage.RUNNING or item.termination is None:
            state = {"running": {"startedAt": format_time(int(item.started_at))}}
        else:
            state = {"terminated": self._terminated(item, item.termination, item.instance)}
        last_instance = item.instance if last is item.termination else item.instance - 1
        status: Json = {
            "name": item.spec.name,
            "state": state,
            "lastState": {} if last is None else {"terminated": self._terminated(item, last, last_instance)},
            "ready": _ready(item),
            "restartCount": item.instance,
            "image": item.spec.image,
            "imageID": "",
            "started": item.stage is Stage.RUNNING,
        }
        if item.begun:
            instance = item.instance - 1 if item.stage is Stage.STARTING else item.instance
            status["containerID"] = self._container_id(item, instance)
        return status

    def _terminated(self, item: Container, termination: Termination, instance: int) -> Json:
        finished = format_time(int(termination.finished_at))
        body: Json = {"exitCode": termination.exit_code}
        if termination.signal:
            body["signal"] = termination.signal
        if termination.reason:
            body["reason"] = termination.reason
        if termination.message:
            body["message"] = termination.message
        body["startedAt"] = finished if termination.started_at is None else format_time(int(termination.started_at))
        body["finishedAt"] = finished
        body["containerID"] = self._container_id(item, instance)
        return body

    def _container_id(self, item: Container, instance: int) -> str:
        return f"{self._runtime_name}://{self._life.record.uid}/{item.spec.name}/{instance}"


def _ready(item: Container) -> bool:
    if item.spec.kind is ContainerKind.INIT:
        return item.succeeded
    return item.ready
