"""A model of the cluster around the machine: an API server with its garbage collector and kubelets.

Small enough to be read at once, because tests judge the machine by it. It has the API server's rules that matter to a
controller: names are unique, every change has a resourceVersion, spec changes have a generation, deletion is graceful
(Pods) or waits for finalizers (ConfigMaps, Frameworks deleted in the foreground, Workloads), and objects without an
owner are collected, later. ``webhooks`` has other clients' admission webhooks.

A Pod counts as running from its creation until it is removed here: that is the strictest reading of the guarantees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import Any, Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.codec import EncodedStatus
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.machine.kernel.requests import (
    Answer,
    Answered,
    Get,
    Kind,
    MergePatch,
    PatchFinalizers,
    PatchStatus,
    Post,
    Refusal,
    Refused,
    Remove,
    Request,
    Unanswered,
)

Body = dict[str, Any]

EPOCH: Final = 1_700_000_000
NAMESPACE: Final = "ns"
QUOTA_TEXT: Final = 'pods "%s" is forbidden: exceeded quota: q, requested: pods=1, used: pods=%d, limited: pods=%d'
_GRACE_SEC: Final = 30
_TERMINAL: Final = ("Succeeded", "Failed")
PODGROUPS: Final = (Kind.PODGROUP, Kind.VOLCANO_PODGROUP, Kind.COSCHEDULING_PODGROUP)
_COUNTED: Final = (Kind.FRAMEWORK, Kind.ROLE_SCALER, Kind.WORKLOAD, *PODGROUPS)
"""Kinds with a generation, and a status that only its subresource writes."""
_DEPENDENTS: Final = (
    (Kind.SERVICE, Kind.FRAMEWORK, ()),
    (Kind.ROLE_SCALER, Kind.FRAMEWORK, ()),
    (Kind.DISRUPTION_BUDGET, Kind.FRAMEWORK, ()),
    (Kind.VOLUME_CLAIM, Kind.FRAMEWORK, ()),
    (Kind.POD, Kind.CONFIGMAP, ()),
    *((kind, Kind.CONFIGMAP, ()) for kind in PODGROUPS),
    (Kind.WORKLOAD, Kind.FRAMEWORK, ()),
    (Kind.CONFIGMAP, Kind.FRAMEWORK, (Kind.POD, *PODGROUPS)),
    (Kind.FRAMEWORK, None, (Kind.CONFIGMAP, Kind.WORKLOAD)),
)
"""Each kind, the kind of its owners, and the kinds that are deleted before it in the foreground."""
_PROTECTION: Final = {
    Kind.VOLUME_CLAIM: "kubernetes.io/pvc-protection",
    Kind.PODGROUP: "scheduling.k8s.io/podgroup-protection",
}
"""Finalizers that hold an object for as long as a Pod refers to it."""
_KEPT: Final = ("uid", "creationTimestamp", "deletionTimestamp", "generation", "resourceVersion", "name", "namespace")


_KINDS: Final = {
    404: Refusal.OBJECT_NOT_FOUND,
    409: Refusal.CONFLICT,
    413: Refusal.TOO_LARGE,
    422: Refusal.INVALID,
    429: Refusal.TOO_MANY_REQUESTS,
}


class Violation(AssertionError):
    """The world is as it must never be. The text ends in the story of how that came."""


class ApiRefusal(Exception):
    """The API server's answer is no."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message

    @property
    def answer(self) -> Refused:
        """The answer, with a Status object."""
        status = {"kind": "Status", "code": self.code, "reason": self.reason, "message": self.message}
        kind = _KINDS.get(self.code, Refusal.SERVER_ERROR if self.code >= 500 else Refusal.OTHER)
        if self.reason == "AlreadyExists":
            kind = Refusal.ALREADY_EXISTS
        return Refused(self.code, self.message, orjson.dumps(status), reason=self.reason, kind=kind)


class Lost(Exception):
    """No answer came: the request may have been executed."""


class Fate(StrEnum):
    """The fate of a controller's next request."""

    LOST = "is lost on its way"
    ANSWER_LOST = "is executed, its answer is lost"
    LATE = "is given up and executed later"
    BAD_REQUEST = "is refused with 400"
    FORBIDDEN = "is refused with 403"
    TOO_LARGE = "is refused with 413"
    INVALID = "is refused with 422"
    QUOTA = "is refused for want of quota"
    UNRECOGNIZED = "is refused with 400, transiently"
    TOO_MANY = "is refused with 429"
    DENIED = "is refused with 403, by a webhook with a reason of its own"
    DENIED_FOR_NO_REASON = "is refused with 400, by a webhook without a reason"
    DENIED_FOR_GOOD = "is refused with 500, by a webhook that finds it invalid"
    CONFLICT = "is refused with 409, about something else"
    CLASH = "is refused with 409, as if the name were taken"


_REFUSALS: Final = {
    Fate.BAD_REQUEST: (400, "BadRequest", "the object is bad"),
    Fate.FORBIDDEN: (403, "Forbidden", "a webhook says no"),
    Fate.TOO_LARGE: (413, "RequestEntityTooLarge", "the object is too large"),
    Fate.INVALID: (422, "Invalid", "the object is invalid"),
    Fate.QUOTA: (403, "Forbidden", "forbidden: exceeded quota: q"),
    Fate.UNRECOGNIZED: (400, "BadRequest", "the object provided is unrecognized"),
    Fate.TOO_MANY: (429, "TooManyRequests", "try again later"),
    Fate.DENIED: (403, "PolicyDenied", "a webhook says no"),
    Fate.DENIED_FOR_NO_REASON: (400, "", "a webhook says no"),
    Fate.DENIED_FOR_GOOD: (500, "Invalid", "a webhook says no"),
    Fate.CONFLICT: (409, "Conflict", "the quota has been modified; please apply your changes to the latest version"),
    Fate.CLASH: (409, "AlreadyExists", 'leases "of-a-webhook" already exists'),
}


@dataclass(frozen=True, slots=True)
class Event:
    """One change of one object: its state after it (or, if it was removed, its last one), and before it."""

    name: str
    raw: bytes
    removed: bool
    before: bytes | None


class World:
    """The cluster, and its record.

    ``now`` is the wall clock of all, in seconds since the epoch; ``clock`` counts seconds and is never put back.
    """

    def __init__(self) -> None:
        self.now: float = EPOCH
        self.clock: float = 0.0
        self.objects: dict[Kind, dict[str, Body]] = {kind: {} for kind in Kind}
        self.events: dict[Kind, list[Event]] = {kind: [] for kind in Kind}
        self.specs: dict[tuple[str, int], Body] = {}
        """Every spec that a Framework (by UID) ever had, by generation."""
        self.pod_quota: int | None = None
        self.fates: list[tuple[str | None, Fate]] = []
        """What becomes of the next request of that verb (create, delete, get, write), or of any."""
        self.refused_kinds: dict[Kind, tuple[int, str, str]] = {}
        """The answer to reads of objects of a kind that may not be read, or is not served."""
        self.served: dict[Kind, str] = {}
        """The version of kinds whose API has several."""
        self.drops_groups = False
        """Whether the API server drops ``schedulingGroup`` from Pods, as one whose feature gate is off does."""
        self.protects_groups = True
        """Whether the controller that lets go of native PodGroups is at work."""
        self.late: list[tuple[str, Callable[[], object]]] = []
        self.gone: set[str] = set()
        """UIDs of all objects that were removed."""
        self.grace_ends: dict[str, float] = {}
        """Until when the containers of Pods (by UID) may run that have ended."""
        self.story: list[str] = []
        self.violated = False
        self.watchers: list[Callable[[], None]] = []
        """Called after every change of any object."""
        self.webhooks: dict[Kind, Callable[[Body, Body], None]] = {}
        """Refuse a change of an object of a kind, given its state before and after it."""
        self._last: dict[str, bytes] = {}
        self._version = 0
        self._count = 0

    # --- time ---

    @property
    def latest(self) -> float:
        """The latest time of the wall clock, as if it had never been set back."""
        return max(self.now, EPOCH + self.clock)

    def go_by(self, seconds: float) -> None:
        """Time passes; with less than 0 seconds, the wall clock is put back."""
        self.now += seconds
        self.clock += max(0.0, seconds)

    def go_until(self, clock: float) -> None:
        """Time passes until that time of ``clock``, if it is yet to come."""
        self.go_by(max(0.0, clock - self.clock))

    # --- the story ---

    def tell(self, text: str) -> None:
        """Add a line to the story."""
        self.story.append(f"{self.now - EPOCH:7.1f}s  {text}")

    def violation(self, text: str) -> Violation:
        """What to raise when ``text`` is so."""
        self.violated = True
        told: list[str] = []
        for line, repeats in groupby(self.story):
            times = sum(1 for _ in repeats)
            told.append(line if times == 1 else f"{line} ({times} times)")
        return Violation("\n".join([text, "The story:", *told]))

    # --- reading ---

    def get(self, kind: Kind, name: str) -> Body:
        """The live object of that name.

        Raises:
            ApiRefusal: 404.
        """
        if kind in self.refused_kinds:
            raise ApiRefusal(*self.refused_kinds[kind])
        found = self.objects[kind].get(name)
        if found is None:
            raise ApiRefusal(404, "NotFound", f'{kind} "{name}" not found')
        return found

    def find(self, kind: Kind, uid: str) -> Body | None:
        """The live object of that UID."""
        return next((body for body in self.objects[kind].values() if uid_of(body) == uid), None)

    def owned(self, kind: Kind, owner_uid: str) -> Iterator[Body]:
        """The live objects that the object of ``owner_uid`` controls."""
        return (body for body in list(self.objects[kind].values()) if controller_of(body) == owner_uid)

    # --- requests ---

    def answer(self, request: Request, execute: Callable[[], Body] | None = None) -> Answer:
        """Execute a request (None: by ``perform``), and answer it."""
        try:
            return Answered(orjson.dumps(self.perform(request) if execute is None else execute()))
        except Lost as lost:
            return Unanswered(str(lost))
        except ApiRefusal as refusal:
            return refusal.answer

    def perform(
        self,
        request: Request,
        *,
        before: Callable[[Body | None], None] = lambda _: None,
        made: Callable[[Body], None] | None = None,
        patched: Callable[[Body, Body], None] = lambda *_: None,
        held: Callable[[PatchFinalizers, Body], None] = lambda *_: None,
    ) -> Body:
        """Execute a request, and return the body of the answer.

        Observers: ``before`` gets each request's body, right before it; ``made`` a new object, ``patched`` the object
        before and after a patch, and ``held`` the one whose finalizers change, each before it is stored.

        Raises:
            ApiRefusal: the answer is no.
        """
        match request:
            case Get(kind, name):
                before(None)
                return self.get(kind, name)
            case Post(kind, _, raw):
                body = orjson.loads(raw)
                before(body)
                return self.create(kind, body, made=made)
            case Remove(kind, name, uid, force, propagation, version):
                if version and version != self.get(kind, name)["metadata"]["resourceVersion"]:
                    raise ApiRefusal(409, "Conflict", "the ResourceVersion in the precondition does not match")
                before(None)
                grace = 0 if force else None
                self.delete(kind, name, uid=uid, grace=grace, foreground=propagation == "Foreground")
                return {"metadata": {}}
            case MergePatch(kind, name, raw, subresource):
                return self.merge(kind, name, orjson.loads(raw), subresource, seen=patched)
            case PatchFinalizers():
                return self.patch_finalizers(request, seen=held)
            case PatchStatus(name, path, value, uid, generation, version):
                assert path == "/status"
                status = value.body if isinstance(value, EncodedStatus) else value
                written = self.write_status(name, uid, generation, version, status)
                return self.get(Kind.FRAMEWORK, name) if request.whole else {"metadata": {"resourceVersion": written}}

    def request(self, sender: str, verb: str, target: str, execute: Callable[[], Any]) -> Any:
        """Execute a controller's request as fate has it.

        Raises:
            Lost: there is no answer.
            ApiRefusal: the answer is no.
        """
        position = next((at for at, (wanted, _) in enumerate(self.fates) if wanted in (None, verb)), None)
        if position is None:
            return execute()
        _, fate = self.fates.pop(position)
        what = f"[{sender}] {verb} {target}"
        self.tell(f"{what} {fate}")
        if fate in _REFUSALS:
            raise ApiRefusal(*_REFUSALS[fate])
        if fate is Fate.ANSWER_LOST:
            with suppress(ApiRefusal):
                execute()
        elif fate is Fate.LATE:
            self.late.append((what, execute))
        raise Lost(what)

    def execute_late(self) -> bool:
        """The first request that its sender has given up, and that can be executed now, is; False if there is none."""
        for position, (what, execute) in enumerate(self.late):
            try:
                execute()
            except ApiRefusal:
                continue
            del self.late[position]
            self.tell(f"(late) {what}")
            return True
        return False

    def create(self, kind: Kind, body: Body, *, made: Callable[[Body], None] | None = None) -> Body:
        """Create an object; ``made`` gets it first.

        Raises:
            ApiRefusal: the name is taken, or there is no quota for it.
        """
        name = body["metadata"]["name"]
        if name in self.objects[kind]:
            raise ApiRefusal(409, "AlreadyExists", f'{kind} "{name}" already exists')
        pods = len(self.objects[Kind.POD])
        if kind is Kind.POD and self.pod_quota is not None and pods >= self.pod_quota:
            raise ApiRefusal(403, "Forbidden", QUOTA_TEXT % (name, pods, self.pod_quota))
        self._count += 1
        body = orjson.loads(orjson.dumps(body))
        body["metadata"] |= {
            "uid": f"{kind.lower()}-{self._count}",
            "creationTimestamp": format_time(int(self.now)),
            "namespace": NAMESPACE,
        }
        if kind is Kind.POD:
            body["spec"] = body.get("spec") or {}
            body["status"] = {"phase": "Pending"}
            if self.drops_groups:
                body["spec"].pop("schedulingGroup", None)
        if kind in _PROTECTION:
            body["metadata"]["finalizers"] = [_PROTECTION[kind]]
        if kind in _COUNTED:
            body["metadata"]["generation"] = 1
            body.pop("status", None)
        if made is not None:
            made(body)
        self.objects[kind][name] = body
        self._changed(kind, body)
        return body

    def edit(self, kind: Kind, name: str, change: Callable[[Body], None]) -> None:
        """Change an object; its generation follows its spec. A terminating object without finalizers goes."""
        body = self.objects[kind][name]
        spec = orjson.dumps(body.get("spec"))
        change(body)
        if kind in _COUNTED and orjson.dumps(body.get("spec")) != spec:
            body["metadata"]["generation"] += 1
        if kind is not Kind.POD and is_deleting(body) and not body["metadata"].get("finalizers"):
            self.remove(kind, name)
        else:
            self._changed(kind, body)

    def merge(
        self,
        kind: Kind,
        name: str,
        patch: Body,
        subresource: str = "",
        *,
        seen: Callable[[Body, Body], None] = lambda *_: None,
    ) -> Body:
        """Merge a patch into an object, or into its status alone, if UID and resourceVersion are those in the patch.

        ``seen`` gets the object before and after it, right before the change.

        Raises:
            ApiRefusal: it is not there, a precondition failed, or a webhook says no.
        """
        body = self.get(kind, name)
        for field, tested in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
            if (patch.get("metadata") or {}).get(field) not in (None, body["metadata"][field]):
                raise ApiRefusal(409, "Conflict", f"the {tested} in the precondition does not match")
        wanted = {key: value for key, value in patch.items() if not subresource or key == "status"}
        changed = merged(body, wanted)
        changed["metadata"] |= {key: body["metadata"][key] for key in _KEPT if key in body["metadata"]}
        if kind in _COUNTED and not subresource and "status" in body:
            changed["status"] = body["status"]
        after: Body = orjson.loads(orjson.dumps(changed))
        if after == body:
            return body
        if kind in self.webhooks:
            self.webhooks[kind](body, after)
        seen(body, after)

        def change(found: Body) -> None:
            found.clear()
            found.update(after)

        self.edit(kind, name, change)
        return body

    def patch_finalizers(self, patch: PatchFinalizers, *, seen: Callable[[PatchFinalizers, Body], None]) -> Body:
        """Add or remove a finalizer, if UID, resourceVersion and its place are those in the patch.

        Raises:
            ApiRefusal: it is not there, or a test failed; or one is added to an object that is being deleted.
        """
        body = self.get(patch.kind, patch.name)
        metadata = body["metadata"]
        found: list[str] = metadata.get("finalizers") or []
        place = patch.index
        is_there = place is None or found[place : place + 1] == [patch.finalizer]
        if (metadata["uid"], metadata["resourceVersion"]) != (patch.uid, patch.resource_version) or not is_there:
            raise ApiRefusal(422, "Invalid", "the server rejected our request due to an error in our request")
        if place is None and (is_deleting(body) or patch.finalizer in found or bool(found) != patch.has_others):
            raise ApiRefusal(422, "Invalid", "no new finalizers can be added if the object is being deleted")
        seen(patch, body)
        kept = [*found, patch.finalizer] if place is None else [*found[:place], *found[place + 1 :]]
        self.edit(patch.kind, patch.name, lambda one: one["metadata"].update(finalizers=kept))
        return body

    def write_status(self, name: str, uid: str, generation: int, version: str, status: bytes) -> str:
        """Write a Framework's status if it is still as the writer knows it; the new resourceVersion.

        Raises:
            ApiRefusal: it is not there, or a precondition failed.
        """
        body = self.get(Kind.FRAMEWORK, name)
        metadata = body["metadata"]
        if (metadata["uid"], metadata["generation"], metadata["resourceVersion"]) != (uid, generation, version):
            raise ApiRefusal(422, "Invalid", "the server rejected our request due to an error in our request")
        body["status"] = orjson.loads(status)
        self._changed(Kind.FRAMEWORK, body)
        return str(metadata["resourceVersion"])

    def delete(
        self,
        kind: Kind,
        name: str,
        *,
        uid: str | None = None,
        grace: int | None = None,
        foreground: bool = False,
        propagation: str = "",
    ) -> None:
        """Delete an object. ``propagation``: Background and Orphan take the finalizer away that waits for dependents.

        Raises:
            ApiRefusal: it is not there, or has another UID.
        """
        body = self.get(kind, name)
        metadata = body["metadata"]
        if uid is not None and metadata["uid"] != uid:
            raise ApiRefusal(409, "Conflict", f"the UID in the precondition ({uid}) does not match {metadata['uid']}")
        if kind is Kind.POD:
            self._delete_pod(body, grace)
            return
        if propagation == "Orphan":
            for dependent in self.owned(Kind.POD, metadata["uid"]):
                dependent["metadata"]["ownerReferences"] = []
                self._changed(Kind.POD, dependent)
        if propagation in ("Background", "Orphan"):
            self.remove(kind, name)
            return
        finalizers = metadata.setdefault("finalizers", [])
        if foreground and names.FOREGROUND_FINALIZER not in finalizers:
            finalizers.append(names.FOREGROUND_FINALIZER)
        if not finalizers:
            self.remove(kind, name)
        elif "deletionTimestamp" not in metadata:
            metadata["deletionTimestamp"] = format_time(int(self.now))
            metadata["deletionGracePeriodSeconds"] = 0
            if kind in _COUNTED:
                metadata["generation"] += 1
            self._changed(kind, body)

    def _delete_pod(self, body: Body, grace: int | None) -> None:
        metadata = body["metadata"]
        if grace is None:
            grace = body["spec"].get("terminationGracePeriodSeconds", _GRACE_SEC)
        if not body["spec"].get("nodeName") or body["status"]["phase"] in _TERMINAL:
            grace = 0
        if grace == 0:
            self.remove(Kind.POD, metadata["name"])
        elif "deletionTimestamp" not in metadata or grace < metadata["deletionGracePeriodSeconds"]:
            metadata["deletionTimestamp"] = format_time(int(self.now) + grace)
            metadata["deletionGracePeriodSeconds"] = grace
            self._changed(Kind.POD, body)

    def remove(self, kind: Kind, name: str) -> None:
        """Remove an object from storage. The last state of a Pod has no grace period left."""
        body = self.objects[kind].pop(name)
        if kind is Kind.POD:
            body["metadata"] |= {"deletionTimestamp": format_time(int(self.now)), "deletionGracePeriodSeconds": 0}
        self.gone.add(uid_of(body))
        self._changed(kind, body, removed=True)

    def _changed(self, kind: Kind, body: Body, *, removed: bool = False) -> None:
        self._version += 1
        metadata = body["metadata"]
        metadata["resourceVersion"] = str(self._version)
        if kind is Kind.FRAMEWORK and not removed:
            self.specs.setdefault((metadata["uid"], metadata["generation"]), orjson.loads(orjson.dumps(body["spec"])))
        uid, raw = uid_of(body), orjson.dumps(body)
        self.events[kind].append(Event(metadata["name"], raw, removed, self._last.get(uid)))
        self._last[uid] = raw
        self._notify()

    def _notify(self) -> None:
        for watcher in self.watchers:
            watcher()

    def check_each(self, kind: Kind, check: Callable[[Body], None]) -> None:
        """Have each stored state of each object of the kind checked, from the first one on."""
        position = 0

        def look() -> None:
            nonlocal position
            fresh = self.events[kind][position:]
            position += len(fresh)
            for event in fresh:
                if not event.removed:
                    check(orjson.loads(event.raw))

        self.watchers.append(look)

    # --- the garbage collector ---

    def collect(self) -> bool:
        """One step of the garbage collector; False if it has nothing to do."""
        for body in list(self.objects[Kind.VOLUME_CLAIM].values()):
            pod = name_of(body).partition("-")[2]
            if is_deleting(body) and pod not in self.objects[Kind.POD]:
                self.tell(f"{name_of(body)}, which no Pod uses, is let go")
                self.remove(Kind.VOLUME_CLAIM, name_of(body))
                return True
        for body in list(self.objects[Kind.PODGROUP].values()):
            if self.protects_groups and is_deleting(body) and not any(map(_refers_to(body), self._pods())):
                self.tell(f"{name_of(body)}, to which no Pod refers, is let go")
                self.edit(Kind.PODGROUP, name_of(body), lambda found: found["metadata"].update(finalizers=[]))
                return True
        for kind, owners, dependents in _DEPENDENTS:
            for body in list(self.objects[kind].values()):
                owner = controller_of(body)
                if owners and owner in self.gone and self._untie(kind, body, owner):
                    return True
                if owners and owner in self.gone and not is_deleting(body):
                    self.tell(f"GC deletes {kind} {name_of(body)}, whose owner is gone")
                    self.delete(kind, name_of(body), uid=uid_of(body))
                    return True
                if dependents and is_deleting(body) and self._collect_dependents(kind, body, dependents):
                    return True
        return False

    def _untie(self, kind: Kind, body: Body, owner: str) -> bool:
        """Drop the reference to an owner that goes, if another one stays. Return whether there is one."""
        references = body["metadata"].get("ownerReferences") or []
        others = [one for one in references if one.get("uid") != owner]
        if not others:
            return False
        self.tell(f"GC unties {kind} {name_of(body)}")
        self.edit(kind, name_of(body), lambda found: found["metadata"].update(ownerReferences=others))
        return True

    def _pods(self) -> Iterator[Body]:
        return iter(self.objects[Kind.POD].values())

    def _collect_dependents(self, kind: Kind, body: Body, dependents: tuple[Kind, ...]) -> bool:
        if names.FOREGROUND_FINALIZER not in body["metadata"].get("finalizers", ()):
            return False
        left = [(one, dependent) for one in dependents for dependent in self.owned(one, uid_of(body))]
        for one, dependent in left:
            if self._untie(one, dependent, uid_of(body)):
                return True
            if not is_deleting(dependent):
                self.tell(f"GC deletes {one} {name_of(dependent)}, as {kind} {name_of(body)} is being deleted")
                self.delete(one, name_of(dependent), uid=uid_of(dependent), foreground=one is Kind.CONFIGMAP)
                return True
        if any(one in (Kind.POD, Kind.CONFIGMAP) or _blocks_its_owner(dependent) for one, dependent in left):
            return False
        self.tell(f"GC lets {kind} {name_of(body)} go")
        others = [one for one in body["metadata"]["finalizers"] if one != names.FOREGROUND_FINALIZER]
        self.edit(kind, name_of(body), lambda found: found["metadata"].update(finalizers=others))
        return True

    # --- the kubelets ---

    def pod(
        self,
        name: str,
        *,
        node: str = "",
        phase: str = "",
        exit_code: int = 0,
        runs_on: bool = False,
        ready: bool | None = None,
    ) -> None:
        """A Pod's node and kubelet say how it fares: bound to ``node``, in ``phase``, ``ready`` or not.

        ``runs_on``: it has ended, and its grace period begins only now.
        """
        body = self.get(Kind.POD, name)
        status = body["status"]
        if node and not body["spec"].get("nodeName"):
            body["spec"]["nodeName"] = node
            bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": format_time(int(self.now))}
            status["conditions"] = [*status.get("conditions", ()), bound]
        if phase:
            status["phase"] = phase
        if phase == "Running":
            status |= {"podIP": f"10.0.0.{int(uid_of(body).split('-')[1])}", "hostIP": "192.168.0.1"}
            status["containerStatuses"] = [{"name": "main", "state": {"running": {}}}]
        if phase in _TERMINAL:
            ready = False
        if ready is not None:
            before = next((one for one in status.get("conditions", ()) if one["type"] == "Ready"), None)
            others = [one for one in status.get("conditions", ()) if one["type"] != "Ready"]
            if before is None or before["status"] != str(ready):
                before = {"type": "Ready", "status": str(ready), "lastTransitionTime": format_time(int(self.now))}
            status["conditions"] = [*others, before]
        if phase in _TERMINAL:
            ended = {"exitCode": exit_code, "reason": "Error" if exit_code else "Completed"}
            ended["finishedAt"] = format_time(int(self.now))
            state = {"running": {}} if runs_on else {"terminated": ended}
            status["containerStatuses"] = [{"name": "main", "state": state}]
            if runs_on:
                self.grace_ends[uid_of(body)] = self.clock + _GRACE_SEC
            else:
                self.grace_ends.pop(uid_of(body), None)
        self._changed(Kind.POD, body)


# --- fields of objects ------------------------------------------------------------------------------------------


def uid_of(body: Body) -> str:
    """The object's UID."""
    return str(body["metadata"]["uid"])


def name_of(body: Body) -> str:
    """The object's name."""
    return str(body["metadata"]["name"])


def is_deleting(body: Body) -> bool:
    """Whether the object is being deleted."""
    return "deletionTimestamp" in body["metadata"]


def controller_of(body: Body) -> str | None:
    """UID of the object that controls this one."""
    for reference in body["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            return str(reference["uid"])
    return None


def mark_of(body: Body, annotation: str) -> str:
    """An FC_ annotation of the object, "" if it has none."""
    return str((body["metadata"].get("annotations") or {}).get(annotation, ""))


def group_of(pod: Body) -> str:
    """The name of the native PodGroup that a Pod refers to, "" if none."""
    return str(((pod.get("spec") or {}).get("schedulingGroup") or {}).get("podGroupName") or "")


def _refers_to(group: Body) -> Callable[[Body], bool]:
    return lambda pod: group_of(pod) == name_of(group)


def _blocks_its_owner(body: Body) -> bool:
    return any(one.get("blockOwnerDeletion") for one in body["metadata"].get("ownerReferences") or ())


def merged(target: Any, patch: Any) -> Any:
    """The value with a JSON merge patch (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    found = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merged(found.get(key), value)
    return found
