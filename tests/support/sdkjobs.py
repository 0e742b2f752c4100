"""Frameworks of the SDK for tests on simulated nodes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

from frameworkcontroller import Framework, Role
from frameworkcontroller.local.kubelet.simulation import PREFIX

Behavior: TypeAlias = Mapping[str, object]


def sdk_role(name: str = "worker", tasks: int = 1, *, simulate: Behavior | None = None, **fields: Any) -> Role:
    """A role whose Pods behave as ``simulate`` says (see local.kubelet.simulation)."""
    annotations = {PREFIX + key: str(value) for key, value in (simulate or {}).items()}
    pod = {"metadata": {"annotations": annotations}} if annotations else {}
    return Role(name=name, tasks=tasks, image="none", command=["work"], pod=pod, **fields)


def sdk_job(name: str = "f", tasks: int = 1, *, simulate: Behavior | None = None, **fields: Any) -> Framework:
    """A Framework of one such role."""
    return Framework(name=name, roles=[sdk_role(tasks=tasks, simulate=simulate)], **fields)


def returned(value: object) -> Behavior:
    """The behavior of a function that returns."""
    return {"run-seconds": 1, "message": json.dumps({"value": value})}


def raised(kind: str, message: str, traceback: str = "") -> Behavior:
    """The behavior of a function that raises."""
    error = {"type": kind, "message": message, "traceback": traceback}
    text = json.dumps({"error": error}) + f"\n{kind}: {message}"
    return {"run-seconds": 1, "exit-code": 1, "message": text}
