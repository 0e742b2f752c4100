"""The part of ``spec.network``: the headless Service that gives the Pods their host names.

It precedes the first attempt, and goes with the Framework.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.objects import Framework
from frameworkcontroller.api.spec import TaskRoleSpec
from frameworkcontroller.machine.kernel.actions import Create, Outcome
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.holds import ObjectKey, Wait
from frameworkcontroller.machine.kernel.manifests import framework_reference
from frameworkcontroller.machine.kernel.model import Limits
from frameworkcontroller.machine.kernel.outcomes import Presence, presence_of, report_listing, take_object, watch_end
from frameworkcontroller.machine.kernel.part import Part
from frameworkcontroller.machine.kernel.reasons import Reason, stall, wait
from frameworkcontroller.machine.kernel.requests import Kind, Target
from frameworkcontroller.machine.kernel.tracker import Tracker


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


class ServicePart(Part):
    """The Service of a Framework with host names."""

    reasons: ClassVar[type[Reason]] = ServiceReason
    kinds: ClassVar[frozenset[Kind]] = frozenset({Kind.SERVICE})
    not_answered: ClassVar[Reason] = ServiceReason.NOT_ANSWERED

    def is_off(self, framework: Framework, tracker: Tracker, limits: Limits) -> bool:
        return not framework.spec.has_hostnames

    def ensure(self, ctx: Context) -> bool:
        """Create the Service if it is absent. Return whether it is there."""
        if (target := _target(ctx)) is None:
            return True
        holds = ctx.tracker.holds
        presence, problem = _presence(ctx, target)
        if presence is Presence.PRESENT:
            holds.release(target.key)
            return True
        report_listing(ctx, target, problem, ServiceReason.NOT_LISTED, "spec.network")
        if presence is Presence.ENDING:
            watch_end(ctx, target, ServiceReason.NOT_GONE)
            return False
        holds.end_stall(target.key, ServiceReason.NOT_GONE)
        if presence is Presence.ABSENT:
            ctx.tracker.expectations.send(target, ctx.env.clock)
            ctx.act(Create(target, service_body(ctx.framework), ctx.framework.uid))
        return False

    def after_tasks(self, ctx: Context) -> None:
        """Create it again if it is gone. It rests on the spec alone, so nothing is to be persisted before."""
        if not ctx.framework.deleting:
            self.ensure(ctx)

    def why_not_create_configmap(self, ctx: Context) -> Wait | None:
        """Why the attempt waits for the Service. None also if that is about to be created, which takes a moment."""
        if (target := _target(ctx)) is None:
            return None
        holds = ctx.tracker.holds
        presence, _ = _presence(ctx, target)
        if presence is Presence.PRESENT:
            return None
        if presence is Presence.ENDING:
            return Wait(ServiceReason.PENDING, f"{target.kind} {target.name} is being deleted, to be created again")
        if holds.until(target.key) > ctx.env.clock or holds.has_failed(target.key) or target.key in holds.stalls:
            # The stall says why, which may change with each attempt to create it.
            return Wait(ServiceReason.PENDING, f"its {target.kind} {target.name} does not exist yet")
        return None

    def release(self, ctx: Context) -> None:
        if (target := _target(ctx)) is not None:
            ctx.tracker.holds.release(target.key)

    def keeps_hold(self, ctx: Context, key: ObjectKey) -> bool:
        target = _target(ctx)
        return target is not None and target.key == key

    def shape(self, ctx: Context, role: TaskRoleSpec) -> HostNames | None:
        spec = ctx.framework.spec
        return HostNames(spec.subdomain(ctx.framework.name)) if spec.has_hostnames else None

    def take(self, ctx: Context, outcome: Outcome) -> None:
        take_object(ctx, outcome.action, outcome.result, ServiceReason.CREATED)


def _target(ctx: Context) -> Target | None:
    spec = ctx.framework.spec
    return Target(Kind.SERVICE, spec.subdomain(ctx.framework.name)) if spec.has_hostnames else None


def _presence(ctx: Context, target: Target) -> tuple[Presence, str]:
    return presence_of(ctx, target, lambda found: found.controller_uid == ctx.framework.uid)


def service_body(framework: Framework) -> bytes:
    """The headless Service that gives the Framework's Pods their host names. It needs no ports for that."""
    spec = framework.spec
    return orjson.dumps(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": spec.subdomain(framework.name),
                "namespace": framework.namespace,
                "labels": {names.FRAMEWORK_NAME: framework.name},
                "annotations": {
                    names.FRAMEWORK_NAMESPACE: framework.namespace,
                    names.FRAMEWORK_NAME: framework.name,
                    names.FRAMEWORK_UID: framework.uid,
                },
                "ownerReferences": [framework_reference(framework)],
            },
            "spec": {
                "clusterIP": "None",
                "publishNotReadyAddresses": spec.network is None or spec.network.publish_not_ready_addresses,
                "selector": {names.FRAMEWORK_NAME: framework.name},
            },
        }
    )
