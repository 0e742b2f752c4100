"""Taints of nodes, and tolerations of Pods. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

Taint = Mapping[str, Any]
Toleration = Mapping[str, Any]

NO_SCHEDULE: Final = "NoSchedule"
NO_EXECUTE: Final = "NoExecute"

NOT_READY: Final = "node.kubernetes.io/not-ready"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"


def seconds_tolerated(tolerations: Sequence[Toleration], taints: Iterable[Taint]) -> float:
    """How long a Pod stays on a node with these NoExecute taints: 0 or ``math.inf`` for not at all and forever."""
    shortest = math.inf
    for taint in taints:
        used = next((one for one in tolerations if _tolerates(one, taint)), None)
        if used is None:
            return 0.0
        seconds = used.get("tolerationSeconds")
        if seconds is not None:
            shortest = min(shortest, max(0.0, seconds))
    return shortest


def first_untolerated(tolerations: Sequence[Toleration], taints: Iterable[Taint]) -> Taint | None:
    """The first taint that keeps a Pod from being bound to the node."""
    for taint in taints:
        hard = taint.get("effect") in {NO_SCHEDULE, NO_EXECUTE}
        if hard and not any(_tolerates(one, taint) for one in tolerations):
            return taint
    return None


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    effect, key = toleration.get("effect"), toleration.get("key")
    if effect and effect != taint.get("effect"):
        return False
    if key and key != taint.get("key"):
        return False
    if toleration.get("operator") == "Exists":
        return True
    return (toleration.get("value") or "") == (taint.get("value") or "")
