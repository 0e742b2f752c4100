"""Cluster IPs of Services: loopback addresses. The cluster forwards connections to Pods (local/serviceproxy.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from frameworkcontroller.local.addresses import service_network
from frameworkcontroller.local.apiserver import builtin_resources
from frameworkcontroller.local.apiserver.api_resources import ApiResource
from frameworkcontroller.local.apiserver.storage import ObjectStorage
from frameworkcontroller.local.apiserver.strategy import Strategy


class ServiceStrategy(Strategy):
    """Allocates and keeps ``spec.clusterIP``."""

    field_labels = ("spec.clusterIP", "spec.type")

    def __init__(self, storage: ObjectStorage) -> None:
        self._storage = storage

    def prepare_create(self, t: ApiResource, obj: dict[str, Any]) -> None:
        """Allocate an address unless the Service is headless or an ExternalName."""
        super().prepare_create(t, obj)
        obj["status"] = {"loadBalancer": {}}
        spec = obj["spec"] = dict(obj.get("spec") or {})
        if spec.get("type") == "ExternalName":
            return
        address = spec.get("clusterIP") or self._free_address()
        spec["clusterIP"] = address
        spec["clusterIPs"] = [address]
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")

    def prepare_update(self, t: ApiResource, new: dict[str, Any], old: Mapping[str, Any], subresource: str) -> None:
        """Keep an omitted address."""
        super().prepare_update(t, new, old, subresource)
        before, spec = old.get("spec") or {}, new.get("spec") or {}
        for field in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if not spec.get(field) and before.get(field) and spec.get("type") != "ExternalName":
                spec[field] = before[field]

    def fields(self, obj: Mapping[str, Any]) -> Mapping[str, str]:
        spec = obj.get("spec") or {}
        return {"spec.clusterIP": spec.get("clusterIP") or "", "spec.type": spec.get("type") or ""}

    def _free_address(self) -> str:
        taken = {
            record.fields.get("spec.clusterIP") for record in self._storage.records(builtin_resources.SERVICES.resource)
        }
        return next(str(address) for address in service_network().hosts() if str(address) not in taken)
