"""PodDisruptionBudgets: their status, and evictions that they refuse.

Only an integer minAvailable permits evictions. Kubernetes finds the number for the other forms in the /scale of the
Pods' controller, and no kind of this server has Pods and a /scale.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

from frameworkcontroller.local.apiserver import builtin_resources
from frameworkcontroller.local.apiserver.api_errors import ApiStatusError
from frameworkcontroller.local.apiserver.object_records import Change, Json, ObjectRecord
from frameworkcontroller.local.apiserver.options import Call
from frameworkcontroller.local.apiserver.registry import Registry
from frameworkcontroller.local.apiserver.selectors import Requirement
from frameworkcontroller.local.apiserver.strategy import Strategy
from frameworkcontroller.local.apiserver.worker import ObjectController
from frameworkcontroller.local.readycondition import is_ready

_BUDGETS: Final = builtin_resources.PODDISRUPTIONBUDGETS.resource
_PODS: Final = builtin_resources.PODS.resource
_OPERATORS: Final = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}
_UNCOUNTED: Final = frozenset({"Pending", "Succeeded", "Failed"})
"""Phases of Pods that may be evicted in any case."""


class BudgetStrategy(Strategy):
    """Budgets have a generation."""

    counts_generations = True
    initial_status: ClassVar[Mapping[str, Any] | None] = {
        "currentHealthy": 0,
        "desiredHealthy": 0,
        "disruptionsAllowed": 0,
        "expectedPods": 0,
    }


def check_eviction(registry: Registry, pod: ObjectRecord) -> None:
    """Raise ApiStatusError if a budget refuses the eviction of a Pod."""
    found = [one for one in _budgets(registry, pod.namespace) if _selects(one, pod)]
    if not found or pod.deleting or pod.fields["status.phase"] in _UNCOUNTED:
        return
    if len(found) > 1:
        text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise ApiStatusError(500, "InternalError", text)
    (budget,) = found
    status = _status(budget.document(), _selected(registry, budget))
    needed, healthy = status["desiredHealthy"], status["currentHealthy"]
    if status["disruptionsAllowed"] > 0 or (not is_ready(pod.document()) and 0 < needed <= healthy):
        return
    cause = f"The disruption budget {budget.name} needs {needed} healthy pods and has {healthy} currently"
    details = {"causes": [{"reason": "DisruptionBudget", "message": cause}]}
    text = "Cannot evict pod as it would violate the pod's disruption budget."
    raise ApiStatusError(429, "TooManyRequests", text, details)


class DisruptionController(ObjectController[str]):
    """Keeps the status of budgets."""

    def __init__(self, registry: Registry) -> None:
        super().__init__(self._sync)
        self._registry = registry
        for record in registry.storage.records(_BUDGETS):
            self.add(record.key)
        self._unobserve = registry.storage.observe(self._observe)

    def _observe(self, change: Change) -> None:
        record = change.record
        if record.resource == _BUDGETS:
            self.add(record.key)
        elif record.resource == _PODS:
            for budget in _budgets(self._registry, record.namespace):
                self.add(budget.key)

    def _sync(self, key: str) -> None:
        record = self._registry.storage.get(_BUDGETS, key)
        endpoint = self._registry.endpoints.of_resource(_BUDGETS)
        if record is None or endpoint is None or record.deleting:
            return
        budget = endpoint.document(record)
        status = _status(budget, _selected(self._registry, record))
        if budget.get("status") != status:
            budget["status"] = status
            call = Call("update", "disruption-controller", "disruption-controller")
            self._registry.store(endpoint, record, budget, call, subresource="status")


def _budgets(registry: Registry, namespace: str) -> Iterable[ObjectRecord]:
    return registry.storage.records(_BUDGETS, f"{namespace}/")


def _selected(registry: Registry, budget: ObjectRecord) -> list[ObjectRecord]:
    pods = registry.storage.records(_PODS, f"{budget.namespace}/")
    return [pod for pod in pods if pod.fields["status.phase"] not in ("Succeeded", "Failed") and _selects(budget, pod)]


def _selects(budget: ObjectRecord, pod: ObjectRecord) -> bool:
    selector = (budget.document().get("spec") or {}).get("selector")
    if selector is None:
        return False
    wanted = [Requirement(key, "in", frozenset({value})) for key, value in (selector.get("matchLabels") or {}).items()]
    wanted += [
        Requirement(one["key"], _OPERATORS[one["operator"]], frozenset(one.get("values") or ()))
        for one in selector.get("matchExpressions") or ()
    ]
    return all(one.matches(pod.labels) for one in wanted)


def _status(budget: Json, pods: list[ObjectRecord]) -> Json:
    needed = (budget.get("spec") or {}).get("minAvailable")
    healthy = sum(is_ready(pod.document()) for pod in pods if not pod.deleting)
    return {
        "currentHealthy": healthy,
        "desiredHealthy": needed if isinstance(needed, int) else 0,
        "disruptionsAllowed": max(0, healthy - needed) if isinstance(needed, int) and pods else 0,
        "expectedPods": len(pods),
        "observedGeneration": budget["metadata"].get("generation", 1),
    }
