"""Suggested commands, quoted for a POSIX shell."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from frameworkcontroller.api.names import CRD_NAME, scaler_name
from frameworkcontroller.api.spec import ExecutionType
from frameworkcontroller.api.status import State
from frameworkcontroller.dashboard.views import Command
from frameworkcontroller.views.apiobjects import is_suspended, queue_of, roles_of, state_of, task_numbers


def framework_commands(framework: Mapping[str, Any], *, live: bool, past: bool) -> tuple[Command, ...]:
    """Return the commands for a Framework. ``live``: it exists; ``past``: there is an archive."""
    namespace, name = framework["metadata"]["namespace"], framework["metadata"]["name"]
    found = []
    if live:
        found += _to_look(namespace, name, completed=state_of(framework) == State.COMPLETED)
    if past:
        # Another Framework may have had its name since.
        uid = [] if live else ["--uid", framework["metadata"]["uid"]]
        found.append(_plugin("Show its earlier attempts from the archive", "history", namespace, name, *uid))
        if not live:
            found.append(_plugin("Print the logs of its last attempt from the archive", "logs", namespace, name, *uid))
    if live:
        found += _to_change(framework, namespace, name)
    return tuple(found)


def _to_look(namespace: str, name: str, *, completed: bool) -> list[Command]:
    follow = [] if completed else ["-f"]
    watch = [] if completed else ["--watch"]
    return [
        _plugin("Show its state in a terminal", "status", namespace, name, *watch),
        _plugin("Print the logs of all its Tasks", "logs", namespace, name, *follow),
        _plugin("Print its Events and its Pods' Events", "events", namespace, name),
        _plugin("Draw its attempts over time", "timeline", namespace, name, "-o", f"{name}.html"),
        _kubectl("Describe the object", "describe", CRD_NAME, name, "-n", namespace),
        _plugin("Print the object, its status decompressed", "status", namespace, name, "-o", "yaml"),
    ]


def _to_change(framework: Mapping[str, Any], namespace: str, name: str) -> list[Command]:
    found: list[Command] = []
    execution = (framework.get("spec") or {}).get("executionType") or ExecutionType.START
    if state_of(framework) != State.COMPLETED and not framework["metadata"].get("deletionTimestamp"):
        for role in roles_of(framework)[:1]:
            purpose, more = f"Add a Task to {role['name']}", task_numbers(framework)[role["name"]] + 1
            if role.get("autoscaling"):
                scaler = f"frameworkrolescaler/{scaler_name(name, role['name'])}"
                found.append(_kubectl(purpose, "scale", scaler, f"--replicas={more}", "-n", namespace, changes=True))
            else:
                found.append(_plugin(purpose, "scale", namespace, name, f"{role['name']}={more}", changes=True))
        if is_suspended(framework):
            found.append(_plugin("Resume it", "resume", namespace, name, changes=True))
        elif execution != ExecutionType.STOP:
            found.append(_plugin("Suspend it until it is resumed", "suspend", namespace, name, changes=True))
        if execution == ExecutionType.CREATE:
            found.append(_plugin("Start it", "start", namespace, name, changes=True))
        if execution != ExecutionType.STOP:
            found.append(_plugin("Stop it permanently", "stop", namespace, name, changes=True))
    if queue := queue_of(framework):
        found.insert(0, _kubectl("Show its queue", "describe", "localqueue.kueue.x-k8s.io", queue, "-n", namespace))
    found.append(_kubectl("Delete it", "delete", CRD_NAME, name, "-n", namespace, changes=True))
    return found


def task_commands(
    namespace: str, framework: str, role: str, index: int, pod: str, *, live: bool, past: bool
) -> tuple[Command, ...]:
    """Return the commands for a Task. ``pod``: the name of its Pod, "" if it has none now."""
    found: list[Command] = []
    task = f"{role}/{index}"
    if live:
        found.append(_plugin("Follow the logs of this Task", "logs", namespace, framework, task, "-f"))
    if pod:
        found.append(_kubectl("Describe its Pod", "describe", "pod", pod, "-n", namespace))
        found.append(_kubectl("Open a shell in its Pod", "exec", "-it", pod, "-n", namespace, "--", "sh"))
    if past:
        found.append(_plugin("Show its attempts from the archive", "history", namespace, framework, "--task", task))
    if pod:
        text = "Delete its Pod: the attempt ends, and is retried"
        found.append(_kubectl(text, "delete", "pod", pod, "-n", namespace, changes=True))
    return tuple(found)


def _plugin(purpose: str, command: str, namespace: str, name: str, *more: str, changes: bool = False) -> Command:
    return _kubectl(purpose, "framework", command, name, *more, "-n", namespace, changes=changes)


def _kubectl(purpose: str, *words: str, changes: bool = False) -> Command:
    return Command(purpose, shlex.join(["kubectl", *words]), changes)
