"""Strategies of built-in kinds with small differences from the default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from frameworkcontroller.local.apiserver import builtin_resources
from frameworkcontroller.local.apiserver.api_resources import ApiResource
from frameworkcontroller.local.apiserver.strategy import Strategy


class ReturnedStrategy(Strategy):
    """ServiceAccounts: a DELETE returns the object."""

    returns_deleted = True


class QuotaStrategy(ReturnedStrategy):
    """ResourceQuotas start with an empty status."""

    initial_status: ClassVar[Mapping[str, Any] | None] = {}


class VersionedStrategy(Strategy):
    """Leases: a PUT may create the object, and must name the replaced version."""

    create_on_update = True
    unconditional_update = False


class UpsertStrategy(Strategy):
    """RBAC kinds: a PUT may create the object."""

    create_on_update = True


class CountedStrategy(Strategy):
    """PriorityClasses have a generation."""

    counts_generations = True


class SecretStrategy(Strategy):
    """Secrets can be selected by type."""

    field_labels = ("type",)

    def fields(self, obj: Mapping[str, Any]) -> Mapping[str, str]:
        return {"type": obj.get("type") or ""}


class NodeStrategy(Strategy):
    """Nodes set their own status when they register; allocatable defaults to capacity."""

    field_labels = ("spec.unschedulable",)

    def prepare_create(self, t: ApiResource, obj: dict[str, Any]) -> None:
        """Keep the status, unlike other kinds."""
        state = obj.get("status")
        super().prepare_create(t, obj)
        if state:
            obj["status"] = state

    def fields(self, obj: Mapping[str, Any]) -> Mapping[str, str]:
        return {"spec.unschedulable": "true" if (obj.get("spec") or {}).get("unschedulable") else "false"}


_INVOLVED: Final = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")


class EventStrategy(Strategy):
    """Events can be selected by the involved object."""

    create_on_update = True
    field_labels = (
        *(f"involvedObject.{field}" for field in _INVOLVED),
        "reason",
        "reportingComponent",
        "source",
        "type",
    )

    def fields(self, obj: Mapping[str, Any]) -> Mapping[str, str]:
        about = obj.get("involvedObject") or {}
        component = obj.get("reportingComponent") or ""
        return {
            **{f"involvedObject.{field}": about.get(field) or "" for field in _INVOLVED},
            "reason": obj.get("reason") or "",
            "reportingComponent": component,
            "source": (obj.get("source") or {}).get("component") or component,
            "type": obj.get("type") or "",
        }


_BY_RESOURCE: Final[Mapping[str, type[Strategy]]] = {
    builtin_resources.SERVICEACCOUNTS.resource: ReturnedStrategy,
    builtin_resources.RESOURCEQUOTAS.resource: QuotaStrategy,
    builtin_resources.LEASES.resource: VersionedStrategy,
    builtin_resources.ROLES.resource: UpsertStrategy,
    builtin_resources.ROLEBINDINGS.resource: UpsertStrategy,
    builtin_resources.CLUSTERROLES.resource: UpsertStrategy,
    builtin_resources.CLUSTERROLEBINDINGS.resource: UpsertStrategy,
    builtin_resources.PRIORITYCLASSES.resource: CountedStrategy,
    builtin_resources.SECRETS.resource: SecretStrategy,
    builtin_resources.NODES.resource: NodeStrategy,
    builtin_resources.EVENTS.resource: EventStrategy,
}


def plain_strategy(t: ApiResource) -> Strategy:
    """The strategy of a built-in kind without its own module."""
    return _BY_RESOURCE.get(t.resource, Strategy)()
