"""The base of a part with objects of a Framework, which precede the first attempt and go with the Framework.

Objects of roles also go when the spec no longer asks for them. So that none is forgotten, the status records each one
before it is created, until it is known to be gone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.objects import CompanionRecord, Framework
from frameworkcontroller.api.status import FrameworkStatus
from frameworkcontroller.machine.kernel.actions import Create, Delete, Outcome, PartAction, Patch
from frameworkcontroller.machine.kernel.agenda import PERSISTED
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.exchanges import Exchange, Gone, NotAttempted, Remains, Result, identify
from frameworkcontroller.machine.kernel.holds import ObjectKey, Wait
from frameworkcontroller.machine.kernel.manifests import framework_reference
from frameworkcontroller.machine.kernel.model import Limits, NotListed
from frameworkcontroller.machine.kernel.outcomes import (
    FAILURES_TO_STALL_WHILE_DELETED,
    Presence,
    back_off,
    drop,
    hold,
    presence_of,
    report_listing,
    take_object,
    watch_end,
)
from frameworkcontroller.machine.kernel.part import Part
from frameworkcontroller.machine.kernel.reasons import Reason
from frameworkcontroller.machine.kernel.requests import Kind, Target
from frameworkcontroller.machine.kernel.tracker import Tracker

MAX_OBJECTS: Final = 200
"""Most objects of roles of a kind, of a Framework: enough for two specs. Finalizers may keep earlier ones."""


@dataclass(frozen=True, slots=True, eq=False)
class RemoveCompanion(PartAction):
    """Delete the object of that name if ``controller_uid`` controls it. Done only when a live read does not find it."""

    needs_live: ClassVar[bool] = True
    controller_uid: str

    def exchange(self) -> Exchange:
        found = yield from identify(self.target)
        if found is None or found.controller_uid != self.controller_uid:
            return Gone()
        return (yield from Delete(self.target, found.uid, confirm=True).exchange())


class CompanionPart(Part):
    """Creates the objects, and creates them again when they are gone.

    The identity annotation of their kind is the Framework's UID. A subclass also sets ``kinds`` to the kind,
    ``reasons`` and ``not_answered``.
    """

    kind: ClassVar[Kind]
    needed_by: ClassVar[str]
    """The field of the spec, for people."""
    created: ClassVar[Reason]
    pending: ClassVar[Reason]
    not_gone: ClassVar[Reason]
    not_listed: ClassVar[Reason]
    rests_on_status: ClassVar[bool] = False
    """Whether the content of the objects of roles does, so that it must be persisted before it is written."""

    def name(self, framework: Framework) -> str:
        """The name of an object of the whole Framework, "" if it needs none. Such an object stays as it is."""
        return ""

    def roles(self, framework: Framework) -> Collection[str]:
        """The roles that need an object."""
        raise NotImplementedError

    def spec(self, framework: Framework) -> Mapping[str, Any]:
        """The spec of the object of the whole Framework."""
        raise NotImplementedError

    def role_spec(self, ctx: Context, role: str) -> Mapping[str, Any]:
        """The spec of the object of a role."""
        raise NotImplementedError

    def content(self, spec: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
        """The fields that are compared and changed in the object of a role, as its record has them and as a patch."""
        raise NotImplementedError

    def is_off(self, framework: Framework, tracker: Tracker, limits: Limits) -> bool:
        return not (self.name(framework) or self.roles(framework) or self._recorded(tracker.status))

    def body(self, framework: Framework, name: str, spec: Mapping[str, Any], version: str = "") -> bytes:
        """The object as JSON. ``version``: of its API, "" for the newest."""
        resource = self.kind.resource
        return orjson.dumps(
            {
                "apiVersion": replace(resource, version=version or resource.version).api_version,
                "kind": resource.kind,
                "metadata": {
                    "name": name,
                    "namespace": framework.namespace,
                    "labels": {names.FRAMEWORK_NAME: framework.name},
                    "annotations": {
                        names.FRAMEWORK_NAMESPACE: framework.namespace,
                        names.FRAMEWORK_NAME: framework.name,
                        names.FRAMEWORK_UID: framework.uid,
                    },
                    "ownerReferences": [framework_reference(framework)],
                },
                "spec": spec,
            }
        )

    # --- objects of roles ---

    def observe_generation(self, ctx: Context) -> None:
        """Record the objects that roles need. The first status of a new Framework has them."""
        self._record(ctx)

    def _record(self, ctx: Context) -> None:
        """Record the objects that roles need, and of many the first ones. The others follow as earlier ones go."""
        objects = ctx.status.role_objects
        known, room = set(objects), MAX_OBJECTS - len(self._recorded(ctx.tracker.status))
        missing = [one for target in self._role_targets(ctx.framework) if (one := target.object_key) not in known]
        if room > 0 and missing:
            ctx.tracker.record_role_objects([*objects, *missing[:room]])
            ctx.tracker.agenda.look(None, PERSISTED)

    def before(self, ctx: Context) -> None:
        """Change the objects of roles as the spec says, and delete those that it no longer asks for."""
        framework = ctx.framework
        if framework.deleting or framework.invalid:
            return
        wanted = self._role_targets(framework)
        for target, role in wanted.items():
            found = self._outdated(ctx, target, role)
            if found is not None and (not self.rests_on_status or ctx.persist_head_first()):
                _, change = self.content(self.role_spec(ctx, role))
                ctx.act(Patch(target, found.uid, orjson.dumps({"spec": change}), found.resource_version))
        for target in self._recorded(ctx.tracker.status):
            if target not in wanted:
                self._remove(ctx, target)

    def _remove(self, ctx: Context, target: Target) -> None:
        # A list shows the version of the API that is served.
        found = ctx.observed.find_companion(target.kind, target.name)
        problem = found.problem if isinstance(found, NotListed) else ""
        report_listing(ctx, target, problem, self.not_listed, self.needed_by)
        if not isinstance(found, NotListed) and ctx.persist_head_first():
            ctx.act(RemoveCompanion(target, ctx.framework.uid))

    def _outdated(self, ctx: Context, target: Target, role: str) -> CompanionRecord | None:
        """The cached object of a role that is to be changed."""
        found = ctx.observed.find_companion(target.kind, target.name)
        if not isinstance(found, CompanionRecord) or found.identity.controller_uid != ctx.framework.uid:
            return None
        is_same = found.identity.deleting or found.content == self.content(self.role_spec(ctx, role))[0]
        return None if is_same else found

    def _recorded(self, status: FrameworkStatus | None) -> list[Target]:
        if status is None or not status.role_objects:
            return []
        prefix = f"{self.kind}/"
        return [Target(self.kind, one.removeprefix(prefix)) for one in status.role_objects if one.startswith(prefix)]

    def _role_targets(self, framework: Framework) -> dict[Target, str]:
        return {Target(self.kind, names.role_object(framework.name, role)): role for role in self.roles(framework)}

    # --- all objects ---

    def ensure(self, ctx: Context) -> bool:
        """Create the objects that are absent. Return whether all are there."""
        return False not in [self._ensure(ctx, target, role) for target, role in self._targets(ctx.framework).items()]

    def _ensure(self, ctx: Context, target: Target, role: str) -> bool:
        holds = ctx.tracker.holds
        presence, problem = _presence(ctx, target)
        if presence is Presence.PRESENT:
            if not role or self._outdated(ctx, target, role) is None:
                holds.release(target.key)
            return True
        report_listing(ctx, target, problem, self.not_listed, self.needed_by)
        if presence is Presence.ENDING:
            watch_end(ctx, target, self.not_gone)
            return False
        holds.end_stall(target.key, self.not_gone)
        is_recorded = not role or target.object_key in ctx.status.role_objects
        if presence is Presence.ABSENT and is_recorded and (not role or ctx.persist_head_first()):
            spec = self.role_spec(ctx, role) if role else self.spec(ctx.framework)
            body = self.body(ctx.framework, target.name, spec, ctx.observed.served_version(self.kind))
            ctx.tracker.expectations.send(target, ctx.env.clock)
            ctx.act(Create(target, body, ctx.framework.uid))
        return False

    def after_tasks(self, ctx: Context) -> None:
        """Create them again if they are gone."""
        if not ctx.framework.deleting:
            self.ensure(ctx)

    def why_not_create_configmap(self, ctx: Context) -> Wait | None:
        """Why the attempt waits for an object. None also if that is about to be created, which takes a moment."""
        holds = ctx.tracker.holds
        unrecorded = self._role_targets(ctx.framework).keys() - set(self._recorded(ctx.tracker.status))
        for target in self._targets(ctx.framework):
            presence, _ = _presence(ctx, target)
            if presence is Presence.ENDING:
                return Wait(self.pending, f"{target.kind} {target.name} is being deleted, to be created again")
            if target in unrecorded:
                return Wait(self.pending, f"its {target.kind} {target.name} waits until earlier ones are gone")
            failing = (
                holds.until(target.key) > ctx.env.clock or holds.has_failed(target.key) or target.key in holds.stalls
            )
            if presence is not Presence.PRESENT and failing:
                # The stall says why, which may change with each attempt to create it.
                return Wait(self.pending, f"its {target.kind} {target.name} does not exist yet")
        return None

    def release(self, ctx: Context) -> None:
        for target in self._targets(ctx.framework):
            ctx.tracker.holds.release(target.key)

    def keeps_hold(self, ctx: Context, key: ObjectKey) -> bool:
        name = self.name(ctx.framework)
        return key in ctx.status.role_objects or (bool(name) and key == Target(self.kind, name).key)

    def take(self, ctx: Context, outcome: Outcome) -> None:
        if isinstance(outcome.action, RemoveCompanion):
            self._take_removal(ctx, outcome.action.target, outcome.result)
        else:
            take_object(ctx, outcome.action, outcome.result, self.created)

    def _take_removal(self, ctx: Context, target: Target, result: Result) -> None:
        tracker = ctx.tracker
        tracker.agenda.look(target.key)
        match result:
            case NotAttempted():
                pass
            case Gone():
                if (known := tracker.expectations.confirmed.get(target)) is not None:
                    drop(ctx.parts, tracker, target, known.uid)
                tracker.holds.release(target.key)
                # The spec may ask for it again.
                if target not in self._role_targets(ctx.framework):
                    kept = [one for one in ctx.status.role_objects if one != target.object_key]
                    tracker.record_role_objects(kept)
                    self._record(ctx)
            case Remains():
                patience = FAILURES_TO_STALL_WHILE_DELETED
                back_off(ctx, target, f"{result.message}: a finalizer holds it", self.not_gone, patience=patience)
            case _:
                hold(ctx, target, result, "delete")

    def _targets(self, framework: Framework) -> dict[Target, str]:
        """The objects, each with its role, "" for the one of the whole Framework."""
        name = self.name(framework)
        return {**({Target(self.kind, name): ""} if name else {}), **self._role_targets(framework)}


def _presence(ctx: Context, target: Target) -> tuple[Presence, str]:
    return presence_of(ctx, target, lambda found: found.controller_uid == ctx.framework.uid)
