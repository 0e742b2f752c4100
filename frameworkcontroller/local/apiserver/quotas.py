"""ResourceQuotas: limits on a namespace's objects, and their usage.

Usage is updated from the store's changes instead of recounted. It is written to the quota's status shortly after, once
per turn of the event loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

from frameworkcontroller.api.quantities import format_quantity, parse_quantity
from frameworkcontroller.local.apiserver import api_errors, builtin_resources
from frameworkcontroller.local.apiserver.endpoints import Endpoint
from frameworkcontroller.local.apiserver.object_records import Change, ObjectRecord
from frameworkcontroller.local.apiserver.options import Call
from frameworkcontroller.local.apiserver.registry import Registry
from frameworkcontroller.local.apiserver.worker import ObjectController

_QUOTAS: Final = builtin_resources.RESOURCEQUOTAS.resource
_PODS: Final = builtin_resources.PODS.resource
_TERMINAL: Final = frozenset({"Succeeded", "Failed"})
_COMPUTE: Final = {
    "cpu": ("requests", "cpu"),
    "memory": ("requests", "memory"),
    "requests.cpu": ("requests", "cpu"),
    "requests.memory": ("requests", "memory"),
    "limits.cpu": ("limits", "cpu"),
    "limits.memory": ("limits", "memory"),
}
_BY_NAME: Final = frozenset({"configmaps", "persistentvolumeclaims", "resourcequotas", "secrets", "services"})
"""Resources with a plain name besides ``count/NAME``."""


class _Usage:
    """The limits and usage of one quota."""

    def __init__(self, record: ObjectRecord, hard: Mapping[str, Any], existing: Iterable[ObjectRecord]) -> None:
        self.record = record
        self.hard = {name: str(quantity) for name, quantity in hard.items()}
        self.computes = any(name in _COMPUTE for name in self.hard)
        self.used = {name: Decimal(0) for name in self.hard}
        for each in existing:
            self.add(each, 1)

    def add(self, record: ObjectRecord, sign: int) -> None:
        for name, amount in self.share(record).items():
            self.used[name] += sign * amount

    def share(self, record: ObjectRecord) -> dict[str, Decimal]:
        """The part of ``record`` that counts against the limits."""
        if record.resource != _PODS:
            return self.charge(record.resource, {})
        ended = record.fields.get("status.phase") in _TERMINAL
        return self.charge(_PODS, record.document() if self.computes and not ended else {}, ended=ended)

    def charge(self, resource: str, obj: Mapping[str, Any], *, ended: bool = False) -> dict[str, Decimal]:
        """The usage of an object of ``resource``; an ``ended`` Pod only counts as an object."""
        taken: dict[str, Decimal] = {}
        for name in self.hard:
            if name == f"count/{resource}" or (name == resource and resource in _BY_NAME):
                taken[name] = Decimal(1)
            elif resource == _PODS and not ended:
                if name == "pods":
                    taken[name] = Decimal(1)
                elif name in _COMPUTE and obj:
                    taken[name] = _pod_total(obj, *_COMPUTE[name])
        return taken


class Quotas(ObjectController[tuple[str, str]]):
    """Admission by quota, and the quotas' status."""

    def __init__(self, registry: Registry) -> None:
        super().__init__(self._publish)
        self._registry = registry
        self._usages: dict[str, dict[str, _Usage]] = {}
        """By namespace and quota."""
        for record in registry.storage.records(_QUOTAS):
            self._track(record)
        self._unobserve = registry.storage.observe(self._observe)

    def before_create(self, endpoint: Endpoint, namespace: str, obj: Mapping[str, Any]) -> None:
        """Do nothing yet: only valid objects count."""

    def before_store(self, endpoint: Endpoint, namespace: str, obj: Mapping[str, Any]) -> None:
        """Refuse the object (403) if it exceeds a quota of its namespace."""
        usages = self._usages.get(namespace)
        if not usages or not endpoint.type.namespaced:
            return
        name = obj["metadata"].get("name") or ""
        for quota in sorted(usages):
            usage = usages[quota]
            if endpoint.resource == _PODS and usage.computes:
                missing = sorted(kind for kind in usage.hard if kind in _COMPUTE and not _states(obj, *_COMPUTE[kind]))
                if missing:
                    why = f"failed quota: {quota}: must specify {','.join(missing)}"
                    raise api_errors.forbidden(endpoint.type, name, why)
            asked = usage.charge(endpoint.resource, obj)
            over = [kind for kind in asked if usage.used[kind] + asked[kind] > parse_quantity(usage.hard[kind])]
            if over:
                raise api_errors.exceeded_quota(
                    endpoint.type,
                    name,
                    quota,
                    {kind: format_quantity(asked[kind], usage.hard[kind]) for kind in over},
                    {kind: format_quantity(usage.used[kind], usage.hard[kind]) for kind in over},
                    {kind: usage.hard[kind] for kind in over},
                )

    def _observe(self, change: Change) -> None:
        record = change.record
        if record.resource == _QUOTAS:
            if change.new is None:
                self._untrack(record)
            elif change.old is None or _hard(change.old) != _hard(record):
                self._track(record)
            else:
                self._usages[record.namespace][record.name].record = record
        for name, usage in self._usages.get(record.namespace, {}).items():
            if usage.record is record:
                continue  # just counted, with all else
            before = dict(usage.used)
            if change.old is not None:
                usage.add(change.old, -1)
            if change.new is not None:
                usage.add(change.new, 1)
            if usage.used != before:
                self.add((record.namespace, name))

    def _track(self, record: ObjectRecord) -> None:
        storage, prefix = self._registry.storage, f"{record.namespace}/"
        existing = [each for resource in storage.resources() for each in storage.records(resource, prefix)]
        self._usages.setdefault(record.namespace, {})[record.name] = _Usage(record, _hard(record), existing)
        self.add((record.namespace, record.name))

    def _untrack(self, record: ObjectRecord) -> None:
        usages = self._usages.get(record.namespace, {})
        usages.pop(record.name, None)
        if not usages:
            self._usages.pop(record.namespace, None)

    def _publish(self, place: tuple[str, str]) -> None:
        usage = self._usages.get(place[0], {}).get(place[1])
        endpoint = self._registry.endpoints.of_resource(_QUOTAS)
        if usage is None or endpoint is None:
            return
        obj = endpoint.document(usage.record)
        used = {name: format_quantity(amount, usage.hard[name]) for name, amount in usage.used.items()}
        if obj.get("status") != {"hard": usage.hard, "used": used}:
            obj["status"] = {"hard": usage.hard, "used": used}
            call = Call("update", "resourcequota-controller")
            self._registry.store(endpoint, usage.record, obj, call, subresource="status")


def _hard(record: ObjectRecord) -> Mapping[str, Any]:
    hard: Mapping[str, Any] = (record.document().get("spec") or {}).get("hard") or {}
    return hard


def _quantities(container: Mapping[str, Any], side: str, name: str) -> Any:
    resources = container.get("resources") or {}
    value = (resources.get(side) or {}).get(name)
    # A limit without a request is also the request.
    return value if value is not None or side == "limits" else (resources.get("limits") or {}).get(name)


def _pod_total(pod: Mapping[str, Any], side: str, name: str) -> Decimal:
    spec = pod.get("spec") or {}
    main = sum((parse_quantity(_quantities(one, side, name) or 0) for one in spec.get("containers") or ()), Decimal(0))
    # Init containers run one by one, before the others.
    return max([main, *(parse_quantity(_quantities(one, side, name) or 0) for one in spec.get("initContainers") or ())])


def _states(pod: Mapping[str, Any], side: str, name: str) -> bool:
    spec = pod.get("spec") or {}
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    return all(_quantities(one, side, name) is not None for one in containers)
