"""The guarantees, checked along the record that the API server's own storage keeps of every write.

Neither the controller's word nor its view through the proxy counts: the writes come from the storage of an embedded
API server (`Storage.observe`), or from the history of a real one's etcd. Each is replayed into a `World`, which
`tests.support.guarantees` checks as it does the model's. The deletions that controllers sent come from the proxies.
"""

import math
import re
from dataclasses import dataclass, field
from typing import Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.codec import decode_status
from frameworkcontroller.api.completion import DISRUPTIONS
from frameworkcontroller.api.status import FrameworkStatus, State, TaskStatus
from frameworkcontroller.api.timestamps import parse_time
from frameworkcontroller.machine.kernel.actions import Delete
from frameworkcontroller.machine.kernel.model import Limits
from frameworkcontroller.machine.kernel.requests import Kind, Target
from tests.chaos.history import ArchiveJudge
from tests.chaos.proxy import Change, Deletion
from tests.support.guarantees import Guarantees, summary
from tests.support.historysink import ArchiveStandIn
from tests.support.kueue import FINALIZER, admission_of, reclaimed_of
from tests.support.queueguarantees import owner_of
from tests.support.world import Body, Event, Violation, World, controller_of, is_deleting, mark_of, name_of, uid_of

KINDS: Final = {
    "frameworks": Kind.FRAMEWORK,
    "configmaps": Kind.CONFIGMAP,
    "pods": Kind.POD,
    "services": Kind.SERVICE,
    "persistentvolumeclaims": Kind.VOLUME_CLAIM,
    "workloads": Kind.WORKLOAD,
    "podgroups": Kind.PODGROUP,
}
_COMPANIONS: Final = (Kind.SERVICE, Kind.VOLUME_CLAIM)
_QUEUED: Final = (Kind.WORKLOAD, Kind.PODGROUP)
_TOLD: Final = 60
"""Lines of a story that are worth reading."""
_TERMINAL: Final = ("Succeeded", "Failed")
_PLACEHOLDER: Final = re.compile(rb"\{\{FC_[A-Z_]+\}\}")


@dataclass(frozen=True)
class Write:
    """One write that was stored: the object after it, None if it was removed. ``at``: seconds since the epoch."""

    revision: int
    kind: Kind
    name: str
    body: Body | None
    at: float = math.inf


@dataclass
class Circumstances:
    """The facts about a history that judging its record needs."""

    deleted_by_others: dict[str, float] = field(default_factory=dict)
    """UIDs of the objects that a user, or anybody else, has deleted, and when (seconds since the epoch)."""
    abandoned: set[str] = field(default_factory=set)
    """UIDs of the Frameworks that were deleted without foreground propagation."""
    loose: bool = False
    """Two controllers worked at once, or a request was executed after its sender had given it up."""
    clock_stepped: bool = False
    stopped_unseen: bool = False
    """The controller may be stopped before its watch tells it of the last deletion."""
    nodes: list[tuple[float, bool]] = field(default_factory=list)
    """From when on (seconds since the epoch) the only Node was lost, or was not."""
    released: set[str] = field(default_factory=set)
    """UIDs of the Frameworks whose history a user has given up."""
    orphaned: set[str] = field(default_factory=set)
    """UIDs of those that were deleted without their dependents."""
    settled_at: int | None = None
    """From this revision on nothing is loose any more: all faults have stopped, and everything has come to rest."""


class Replay(World):
    """The world as the record tells it, write by write."""

    def __init__(self, circumstances: Circumstances, limits: Limits, sink: ArchiveStandIn | None = None) -> None:
        """``sink``: where the history goes, if it goes anywhere."""
        super().__init__()
        self.circumstances = circumstances
        self.history = ArchiveJudge(self, sink, blocks=sink is not None and limits.history_blocks)
        self.history.released |= circumstances.released
        self.history.orphaned |= circumstances.orphaned
        self.guarantees = Guarantees(self, limits)
        self.guarantees.hasty = True
        self.guarantees.loose = circumstances.loose
        self.guarantees.abandoned |= circumstances.abandoned
        self._had: set[tuple[Kind, str, str]] = set()
        """Kind, name and controller (UID) of every companion that there ever was."""
        self._last_pods: dict[str, Body] = {}
        """The last state of every Pod there ever was, by UID."""
        self._judged: set[tuple[str, str]] = set()
        self._statuses: dict[str, FrameworkStatus] = {}
        """The status stored last, by UID of the Framework."""
        self._bearers: dict[tuple[Kind, str], set[str]] = {}
        """UIDs of the objects that ever had a name."""
        self._going_since: dict[str, float] = {}
        """When which Pod was asked to end."""
        self._timeouts: dict[tuple[str, str], list[tuple[float, str | None]]] = {}
        """Every podGracefulDeletionTimeoutSec, and the podForceDeletionPolicy, that a Framework (by UID) has ever
        stored for a role."""

    def tell(self, text: str) -> None:
        """Add a line to the story."""
        self.story.append(text)

    def violation(self, text: str) -> Violation:
        """Return the error to raise, with the writes right before."""
        self.story = self.story[-_TOLD:]
        return super().violation(text)

    def take(self, write: Write) -> None:
        """Check one write.

        Raises:
            Violation: with the story so far.
        """
        self.now = math.inf if self.circumstances.clock_stepped else write.at
        settled_at = self.circumstances.settled_at
        if self.guarantees.loose and settled_at is not None and write.revision > settled_at:
            self.guarantees.loose = False
            self._notify()
        known = self.objects[write.kind].get(write.name)
        self.tell(f"{write.revision}: {write.kind} {write.name} {_said(known, write.body)}")
        self.history.take(write.revision, write.kind, known, write.body, loose=self.guarantees.loose)
        if write.kind is Kind.WORKLOAD and known is not None:
            self._judge_release(known, write.body)
        if write.body is None:
            if known is not None:
                if not is_deleting(known):
                    self._deletion_begins(write.kind, known, write.at)
                del self.objects[write.kind][write.name]
                self.gone.add(uid_of(known))
                if write.kind is Kind.POD:
                    known["metadata"].setdefault("deletionTimestamp", "")
        else:
            self._put(write, known, write.body)
        self._notify()
        if write.kind is Kind.FRAMEWORK and write.body is not None:
            status = decode_status(write.body.get("status"))
            if status is not None:
                self._judge_status(write.body, status)

    def judge_deletion(self, deletion: Deletion) -> None:
        """Check a deletion that a controller has sent, after all writes.

        Raises:
            Violation: with the end of the story.
        """
        kind = KINDS.get(deletion.resource)
        if kind is None:
            return
        what = f"DELETE of {kind} {deletion.name}"
        if deletion.uid is None:
            raise self.violation(f"{what}, whichever it is: no UID was given")
        if deletion.uid not in self._bearers.get((kind, deletion.name), ()):
            raise self.violation(f"{what}: none of that name ever had the UID {deletion.uid}")
        if deletion.forced:
            pod = self._last_pods.get(deletion.uid)
            began = self._going_since.get(deletion.uid)
            if pod is None or began is None:
                raise self.violation(f"{what} by force: it was not being deleted")
            timeouts = self._timeouts.get((mark_of(pod, names.FRAMEWORK_UID), mark_of(pod, names.TASKROLE_NAME)), [])
            in_time = [
                policy
                for timeout, policy in timeouts
                if self.circumstances.clock_stepped or deletion.at >= began + timeout
            ]
            if in_time and None not in in_time and not self._was_lost(began, deletion.at):
                raise self.violation(f"{what} by force, and its Node was healthy")
            if not in_time:
                raise self.violation(
                    f"{what} by force {deletion.at - began:g} s after it was asked to end, allowed are {timeouts}"
                )

    def judge_change(self, change: Change) -> None:
        """Check a change of a Workload that a controller has sent, at the moment of its request.

        Raises:
            Violation: K2: it gives quota back, or lets the Workload go, and a Pod of the Framework exists.
        """
        clears = "admission" in (change.body.get("status") or {}) and change.body["status"]["admission"] is None
        finalizers = (change.body.get("metadata") or {}).get("finalizers")
        lets_go = finalizers is not None and FINALIZER not in finalizers
        known = self.objects[Kind.WORKLOAD].get(change.name)
        deletes = change.verb == "delete"
        if self.guarantees.loose or known is None or not (clears or lets_go or deletes):
            return
        owner = controller_of(known)
        left = [name for name, pod in self.objects[Kind.POD].items() if mark_of(pod, names.FRAMEWORK_UID) == owner]
        if left:
            what = "its end" if deletes else "to give its quota back" if clears else "to take its finalizer away"
            raise self.violation(f"K2: {change.name}: {what} was asked for, and {left[0]} exists")

    def _judge_release(self, known: Body, body: Body | None) -> None:
        """Only controllers release quota and the finalizer in these stories."""
        if self.guarantees.loose:
            return
        after = {**known, "metadata": {**known["metadata"], "finalizers": []}} if body is None else body
        let_go = FINALIZER in (known["metadata"].get("finalizers") or ()) and FINALIZER not in (
            after["metadata"].get("finalizers") or ()
        )
        given_back = admission_of(known) is not None and admission_of(after) is None
        if let_go or given_back or reclaimed_of(known) != reclaimed_of(after):
            self.guarantees.queues.patching_workload(owner_of(known) or "", known, after, loose=False)

    def _was_lost(self, begin: float, end: float) -> bool:
        """Whether the Node was lost at some moment of that time."""
        nodes = self.circumstances.nodes
        ends = [at for at, _ in nodes[1:]] + [math.inf]
        return any(lost and at <= end and until >= begin for (at, lost), until in zip(nodes, ends, strict=True))

    def _put(self, write: Write, known: Body | None, body: Body) -> None:
        kind, name = write.kind, write.name
        if kind is Kind.FRAMEWORK:
            metadata = body["metadata"]
            self.specs.setdefault((metadata["uid"], metadata["generation"]), body["spec"])
        elif known is None and mark_of(body, names.FRAMEWORK_UID):
            self.guarantees.creating(mark_of(body, names.FRAMEWORK_UID), _target(kind, body), body)
            self.guarantees.created(body)
        if kind in _COMPANIONS:
            self._judge_companion(kind, known, body)
        elif kind is Kind.POD and known is None:
            self._judge_names(body)
        elif kind in _QUEUED:
            self.events[kind].append(Event(name, orjson.dumps(body), removed=False, before=None))
        if known is not None and is_deleting(body) and not is_deleting(known):
            self._deletion_begins(kind, known, write.at)
        self.objects[kind][name] = body
        self._bearers.setdefault((kind, name), set()).add(uid_of(body))
        if kind is Kind.POD:
            self._last_pods[uid_of(body)] = body
            if is_deleting(body):
                metadata = body["metadata"]
                began = parse_time(metadata["deletionTimestamp"]) - metadata["deletionGracePeriodSeconds"]
                self._going_since.setdefault(uid_of(body), began)

    def _judge_companion(self, kind: Kind, known: Body | None, body: Body) -> None:
        """No one changes a foreign object: in these stories other clients only create and delete them."""
        self._had.add((kind, name_of(body), controller_of(body) or ""))
        self.events[kind].append(Event(name_of(body), orjson.dumps(body), removed=False, before=None))
        same = known is not None and uid_of(known) == uid_of(body)
        if known is not None and same and not self.guarantees.is_ours(known) and _belongs(known) != _belongs(body):
            raise self.violation(f"{kind} {name_of(body)}, which is of somebody else, was changed")

    def _judge_names(self, pod: Body) -> None:
        """A Pod of a Framework with a network has its host name, and is not created before there was a Service."""
        uid = mark_of(pod, names.FRAMEWORK_UID)
        spec = self._only_spec(uid)
        network = None if spec is None else spec.get("network")
        if network is None or not network.get("enableDNSHostnames", True):
            return
        name, subdomain = name_of(pod), network.get("subdomain") or mark_of(pod, names.FRAMEWORK_NAME)
        found = pod["spec"].get("hostname"), pod["spec"].get("subdomain")
        if found != (name, subdomain):
            raise self.violation(f"Pod {name} has the host name {found}")
        if _PLACEHOLDER.search(orjson.dumps(pod)) is not None:
            raise self.violation(f"Pod {name} has a placeholder that was not replaced")
        if (Kind.SERVICE, subdomain, uid) not in self._had:
            raise self.violation(f"Pod {name} is there, and there was never a Service {subdomain} of its Framework")

    def _only_spec(self, uid: str) -> Body | None:
        """A spec of the Framework, to read its immutable fields; None if it is unknown."""
        return next((spec for (known, _), spec in self.specs.items() if known == uid), None)

    def _deletion_begins(self, kind: Kind, body: Body, at: float) -> None:
        """It must be justified, unless a user or the garbage collector did it."""
        uid = uid_of(body)
        if at >= self.circumstances.deleted_by_others.get(uid, math.inf) or self._is_collected(body):
            return
        framework = uid if kind is Kind.FRAMEWORK else mark_of(body, names.FRAMEWORK_UID)
        if kind is Kind.WORKLOAD:
            framework = controller_of(body) or ""
        self.guarantees.deleting(framework, Delete(_target(kind, body), uid), uid)

    def _is_collected(self, body: Body) -> bool:
        owner = controller_of(body)
        if owner is None:
            return False
        found = self.find(Kind.CONFIGMAP, owner) or self.find(Kind.FRAMEWORK, owner)
        return found is None or is_deleting(found)

    # --- statuses ---------------------------------------------------------------------------------------------------

    def _judge_status(self, framework: Body, status: FrameworkStatus) -> None:
        uid = uid_of(framework)
        before = self._statuses.get(uid)
        self._statuses[uid] = status
        for role in status.attempt.roles:
            if role.pod_graceful_deletion_timeout_sec is not None:
                stored = role.pod_graceful_deletion_timeout_sec, role.pod_force_deletion_policy
                self._timeouts.setdefault((uid, role.name), []).append(stored)
        for condition in status.conditions or ():
            if condition.reason == "Quarantined":
                raise self.violation(f"{name_of(framework)} is in quarantine: {condition.message}")
        if before is not None and status.observed_generation != framework["metadata"]["generation"]:
            self._judge_learnt(framework, before, status)
        self._judge_ends(framework, status)

    def _judge_learnt(self, framework: Body, before: FrameworkStatus, after: FrameworkStatus) -> None:
        """A status of an older spec than the Framework's has no new decision, only observations."""
        was, now = _decisions(before), _decisions(after)
        if was != now:
            told = ", ".join(
                f"{what}: {was.get(what)} -> {now.get(what)}"
                for what in sorted(was.keys() | now.keys())
                if was.get(what) != now.get(what)
            )
            known, real = after.observed_generation, framework["metadata"]["generation"]
            raise self.violation(f"{name_of(framework)} is at generation {real}, and by {known} was decided: {told}")

    def _judge_ends(self, framework: Body, status: FrameworkStatus) -> None:
        """The outcome of each decided TaskAttempt must match the record of its Pod."""
        for role in status.attempt.roles:
            for task in role.tasks:
                completion, uid = task.attempt.completion_status, task.attempt.pod_uid
                if completion is None or uid is None or (uid, task.instance_uid) in self._judged:
                    continue
                self._judged.add((uid, task.instance_uid))
                pod = self._last_pods.get(uid)
                if pod is None:
                    raise self.violation(f"{task.attempt.pod_uid} of {role.name}[{task.index}] was never there")
                if completion.code not in self._possible_codes(pod):
                    raise self.violation(
                        f"{role.name}[{task.index}] of {name_of(framework)} completed with {completion.code} "
                        f"({completion.diagnostics}), and its Pod is {_said(None, pod)}"
                    )

    @staticmethod
    def _possible_codes(pod: Body) -> set[int]:
        # The Framework decided it, or the cache never showed the Pod.
        possible = {-220, -230, -260, -111}
        conditions = pod["status"].get("conditions") or ()
        stamps = [one["reason"] for one in conditions if one["type"] == "DisruptionTarget" and one["status"] == "True"]
        possible |= {DISRUPTIONS[reason].code for reason in stamps if reason in DISRUPTIONS}
        if is_deleting(pod):
            possible.add(-101)
        if pod["status"].get("phase") in _TERMINAL:
            exits = [
                item["state"]["terminated"]["exitCode"]
                for item in pod["status"].get("containerStatuses") or ()
                if "terminated" in item.get("state", {})
            ]
            if pod["status"]["phase"] == "Succeeded":
                possible.add(0)
            else:
                possible |= {-300, *(code for code in exits if code)}
        return possible


def _belongs(body: Body) -> tuple[object, ...]:
    """The metadata that names an object's owner. The volume binder writes the rest of a claim."""
    metadata = body["metadata"]
    marks = {key: value for key, value in (metadata.get("annotations") or {}).items() if key.startswith("FC_")}
    return metadata.get("labels") or {}, marks, metadata.get("ownerReferences") or []


def _decisions(status: FrameworkStatus) -> dict[str, tuple[object, ...]]:
    """The decisions of a status, without observations such as the creation of an object."""

    def decided(owner: FrameworkStatus | TaskStatus) -> tuple[object, ...]:
        state, completion = owner.state, owner.attempt.completion_status
        if state in (State.CREATION_REQUESTED, State.DELETION_REQUESTED):
            state = State.CREATION_PENDING if state is State.CREATION_REQUESTED else State.DELETION_PENDING
        return owner.attempt.id, state.value, None if completion is None else completion.code

    return {"the Framework": decided(status)} | {
        f"{role.name}[{task.index}]": (task.instance_uid, task.is_leaving, *decided(task))
        for role in status.attempt.roles
        for task in role.tasks
    }


def _target(kind: Kind, body: Body) -> Target:
    index = mark_of(body, names.TASK_INDEX)
    attempt = mark_of(body, names.FRAMEWORK_ATTEMPT_ID)
    return Target(
        kind,
        name_of(body),
        int(attempt) if attempt else 0,
        mark_of(body, names.TASKROLE_NAME),
        int(index) if index else -1,
        mark_of(body, names.TASK_UID),
    )


def _said(known: Body | None, body: Body | None) -> str:
    if body is None:
        return "is gone"
    words = [] if known is not None else ["is new," if "deletionTimestamp" not in body["metadata"] else ""]
    words.append(uid_of(body))
    if is_deleting(body):
        words.append("(being deleted)")
    phase = (body.get("status") or {}).get("phase")
    if phase:
        exits = [
            str(item["state"]["terminated"]["exitCode"])
            for item in body["status"].get("containerStatuses") or ()
            if "terminated" in item.get("state", {})
        ]
        words += [phase, *exits]
    if "taskRoles" in body.get("spec", {}):
        status = decode_status(body.get("status"))
        words.append(f"generation {body['metadata']['generation']}: {summary(status) if status else 'no status'}")
    return " ".join(words)
