"""The part of ``spec.network``: Services, which precede the first attempt and go with the Framework.

The headless one gives the Pods their host names. Each entry of ``services`` has an address, for ready Pods of a role.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from frameworkcontroller.api import names
from frameworkcontroller.api.objects import Framework, service_content
from frameworkcontroller.api.servingspec import ServicePort
from frameworkcontroller.api.spec import TaskRoleSpec
from frameworkcontroller.machine.kernel.companionpart import CompanionPart
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.reasons import Reason, stall, wait
from frameworkcontroller.machine.kernel.requests import Kind


class ServiceReason(Reason):
    """The reasons of the Services of ``spec.network``."""

    CREATED = "ServiceCreated", "a Service of spec.network was created"
    PENDING = wait("ServicePending", "a Service of spec.network does not exist yet, so no attempt starts")
    NOT_GONE = stall(
        "ServiceNotGone", "a Service of spec.network was deleted, and still exists long after its deletion was due"
    )
    NOT_ANSWERED = stall("ServiceNotAnswered", "requests for a Service of spec.network failed several times")
    NOT_LISTED = stall("ServiceNotListed", "Services cannot be listed, which spec.network needs")


@dataclass(frozen=True, slots=True)
class HostNames:
    """Hostname and subdomain of the Pods whose template has neither."""

    subdomain: str

    def apply(self, metadata: dict[str, Any], spec: dict[str, Any], pod_name: str) -> None:
        if not spec.get("hostname") and not spec.get("subdomain"):
            spec |= {"hostname": pod_name, "subdomain": self.subdomain}


class ServicePart(CompanionPart):
    """The Services of a Framework."""

    kind: ClassVar[Kind] = Kind.SERVICE
    needed_by: ClassVar[str] = "spec.network"
    reasons: ClassVar[type[Reason]] = ServiceReason
    kinds: ClassVar[frozenset[Kind]] = frozenset({Kind.SERVICE})
    created: ClassVar[Reason] = ServiceReason.CREATED
    pending: ClassVar[Reason] = ServiceReason.PENDING
    not_gone: ClassVar[Reason] = ServiceReason.NOT_GONE
    not_answered: ClassVar[Reason] = ServiceReason.NOT_ANSWERED
    not_listed: ClassVar[Reason] = ServiceReason.NOT_LISTED

    def name(self, framework: Framework) -> str:
        return framework.spec.subdomain(framework.name) if framework.spec.has_hostnames else ""

    def roles(self, framework: Framework) -> Collection[str]:
        return framework.spec.service_ports

    def spec(self, framework: Framework) -> Mapping[str, Any]:
        """The spec of the headless Service. It needs no ports to give Pods their host names."""
        network = framework.spec.network
        return {
            "clusterIP": "None",
            "publishNotReadyAddresses": network is None or network.publish_not_ready_addresses,
            "selector": {names.FRAMEWORK_NAME: framework.name},
        }

    def role_spec(self, ctx: Context, role: str) -> Mapping[str, Any]:
        """The spec of the Service of a role. No two attempts have Pods at the same time, so the labels suffice."""
        return {
            "ports": [_port(one) for one in ctx.framework.spec.service_ports[role]],
            "selector": {names.FRAMEWORK_NAME: ctx.framework.name, names.TASKROLE_NAME: role},
        }

    def content(self, spec: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
        return service_content(spec), {"ports": spec["ports"]}

    def shape(self, ctx: Context, role: TaskRoleSpec) -> HostNames | None:
        spec = ctx.framework.spec
        return HostNames(spec.subdomain(ctx.framework.name)) if spec.has_hostnames else None


def _port(port: ServicePort) -> dict[str, Any]:
    found = {"name": port.name, "targetPort": port.target_port, "appProtocol": port.app_protocol}
    given = {field: value for field, value in found.items() if value is not None}
    return {"port": port.port, "protocol": port.protocol, **given}
