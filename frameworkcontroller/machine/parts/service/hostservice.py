"""The part of ``spec.network``: the headless Service that gives the Pods their host names.

It precedes the first attempt, and goes with the Framework.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from frameworkcontroller.api import names
from frameworkcontroller.api.objects import Framework
from frameworkcontroller.api.spec import TaskRoleSpec
from frameworkcontroller.machine.kernel.companionpart import CompanionPart
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.reasons import Reason, stall, wait
from frameworkcontroller.machine.kernel.requests import Kind


class ServiceReason(Reason):
    """The reasons of the Service of ``spec.network``."""

    CREATED = "ServiceCreated", "the Service was created by which Pods have host names"
    PENDING = wait("ServicePending", "the Service of spec.network does not exist yet, so no attempt starts")
    NOT_GONE = stall(
        "ServiceNotGone", "the Service of spec.network was deleted, and still exists long after its deletion was due"
    )
    NOT_ANSWERED = stall("ServiceNotAnswered", "requests for the Service of spec.network failed several times")
    NOT_LISTED = stall("ServiceNotListed", "Services cannot be listed, which spec.network needs")


@dataclass(frozen=True, slots=True)
class HostNames:
    """Hostname and subdomain of the Pods whose template has neither."""

    subdomain: str

    def apply(self, metadata: dict[str, Any], spec: dict[str, Any], pod_name: str) -> None:
        if not spec.get("hostname") and not spec.get("subdomain"):
            spec |= {"hostname": pod_name, "subdomain": self.subdomain}


class ServicePart(CompanionPart):
    """The Service of a Framework with host names."""

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

    def spec(self, framework: Framework) -> Mapping[str, Any]:
        """The spec of the headless Service. It needs no ports to give Pods their host names."""
        network = framework.spec.network
        return {
            "clusterIP": "None",
            "publishNotReadyAddresses": network is None or network.publish_not_ready_addresses,
            "selector": {names.FRAMEWORK_NAME: framework.name},
        }

    def shape(self, ctx: Context, role: TaskRoleSpec) -> HostNames | None:
        spec = ctx.framework.spec
        return HostNames(spec.subdomain(ctx.framework.name)) if spec.has_hostnames else None
