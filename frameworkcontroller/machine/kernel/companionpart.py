"""The base of a part with one object per Framework, which precedes the first attempt and goes with the Framework."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.objects import Framework
from frameworkcontroller.machine.kernel.actions import Create, Outcome
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.holds import ObjectKey, Wait
from frameworkcontroller.machine.kernel.manifests import framework_reference
from frameworkcontroller.machine.kernel.model import Limits
from frameworkcontroller.machine.kernel.outcomes import Presence, presence_of, report_listing, take_object, watch_end
from frameworkcontroller.machine.kernel.part import Part
from frameworkcontroller.machine.kernel.reasons import Reason
from frameworkcontroller.machine.kernel.requests import Kind, Target
from frameworkcontroller.machine.kernel.tracker import Tracker


class CompanionPart(Part):
    """Creates the object, and creates it again when it is gone.

    The identity annotation of its kind is the Framework's UID. A subclass also sets ``kinds`` to the kind, ``reasons``
    and ``not_answered``.
    """

    kind: ClassVar[Kind]
    needed_by: ClassVar[str]
    """The field of the spec, for people."""
    created: ClassVar[Reason]
    pending: ClassVar[Reason]
    not_gone: ClassVar[Reason]
    not_listed: ClassVar[Reason]

    def name(self, framework: Framework) -> str:
        """The name of the Framework's object, "" if it needs none."""
        raise NotImplementedError

    def spec(self, framework: Framework) -> Mapping[str, Any]:
        """The spec of the object."""
        raise NotImplementedError

    def is_off(self, framework: Framework, tracker: Tracker, limits: Limits) -> bool:
        return not self.name(framework)

    def body(self, framework: Framework) -> bytes:
        """The object as JSON."""
        return orjson.dumps(
            {
                "apiVersion": self.kind.resource.api_version,
                "kind": self.kind.resource.kind,
                "metadata": {
                    "name": self.name(framework),
                    "namespace": framework.namespace,
                    "labels": {names.FRAMEWORK_NAME: framework.name},
                    "annotations": {
                        names.FRAMEWORK_NAMESPACE: framework.namespace,
                        names.FRAMEWORK_NAME: framework.name,
                        names.FRAMEWORK_UID: framework.uid,
                    },
                    "ownerReferences": [framework_reference(framework)],
                },
                "spec": self.spec(framework),
            }
        )

    def ensure(self, ctx: Context) -> bool:
        """Create the object if it is absent. Return whether it is there."""
        if (target := self._target(ctx)) is None:
            return True
        holds = ctx.tracker.holds
        presence, problem = _presence(ctx, target)
        if presence is Presence.PRESENT:
            holds.release(target.key)
            return True
        report_listing(ctx, target, problem, self.not_listed, self.needed_by)
        if presence is Presence.ENDING:
            watch_end(ctx, target, self.not_gone)
            return False
        holds.end_stall(target.key, self.not_gone)
        if presence is Presence.ABSENT:
            ctx.tracker.expectations.send(target, ctx.env.clock)
            ctx.act(Create(target, self.body(ctx.framework), ctx.framework.uid))
        return False

    def after_tasks(self, ctx: Context) -> None:
        """Create it again if it is gone. It rests on the spec alone, so nothing is to be persisted before."""
        if not ctx.framework.deleting:
            self.ensure(ctx)

    def why_not_create_configmap(self, ctx: Context) -> Wait | None:
        """Why the attempt waits for the object. None also if that is about to be created, which takes a moment."""
        if (target := self._target(ctx)) is None:
            return None
        holds = ctx.tracker.holds
        presence, _ = _presence(ctx, target)
        if presence is Presence.PRESENT:
            return None
        if presence is Presence.ENDING:
            return Wait(self.pending, f"{target.kind} {target.name} is being deleted, to be created again")
        if holds.until(target.key) > ctx.env.clock or holds.has_failed(target.key) or target.key in holds.stalls:
            # The stall says why, which may change with each attempt to create it.
            return Wait(self.pending, f"its {target.kind} {target.name} does not exist yet")
        return None

    def release(self, ctx: Context) -> None:
        if (target := self._target(ctx)) is not None:
            ctx.tracker.holds.release(target.key)

    def keeps_hold(self, ctx: Context, key: ObjectKey) -> bool:
        target = self._target(ctx)
        return target is not None and target.key == key

    def take(self, ctx: Context, outcome: Outcome) -> None:
        take_object(ctx, outcome.action, outcome.result, self.created)

    def _target(self, ctx: Context) -> Target | None:
        name = self.name(ctx.framework)
        return Target(self.kind, name) if name else None


def _presence(ctx: Context, target: Target) -> tuple[Presence, str]:
    return presence_of(ctx, target, lambda found: found.controller_uid == ctx.framework.uid)
