"""The guarantees, checked along the record that the API server's own storage keeps of every write.

Neither the controller's word nor what it was shown through the proxy counts here: an embedded API server is asked for
what it stored (`Storage.observe`), a real one's etcd for its history. Each write is replayed into a `World`, on which
`tests.support.guarantees` looks as it does on the model's.
"""

import math
from dataclasses import dataclass, field
from typing import Final

from frameworkcontroller.api import names
from frameworkcontroller.api.codec import decode_status
from frameworkcontroller.machine.model import Delete, Kind, Limits, Target
from tests.support.guarantees import Guarantees, summary
from tests.support.world import Body, Violation, World, controller_of, is_deleting, mark_of, name_of, uid_of

KINDS: Final = {"frameworks": Kind.FRAMEWORK, "configmaps": Kind.CONFIGMAP, "pods": Kind.POD}
_TOLD: Final = 60
"""Lines of a story that are worth reading."""
_TERMINAL: Final = ("Succeeded", "Failed")


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
    """What has to be known of a history to judge its record."""

    deleted_by_others: set[str] = field(default_factory=set)
    """UIDs of the objects that a user, or anybody else, has deleted."""
    abandoned: set[str] = field(default_factory=set)
    """UIDs of the Frameworks that were deleted without foreground propagation."""
    loose: bool = False
    """Two controllers worked at once, or a request was executed after its sender had given it up."""
    clock_stepped: bool = False


class Replay(World):
    """The world as the record tells it, write by write."""

    def __init__(self, circumstances: Circumstances, limits: Limits) -> None:
        super().__init__()
        self.circumstances = circumstances
        self.guarantees = Guarantees(self, limits)
        self.guarantees.hasty = True
        self.guarantees.loose = circumstances.loose
        self.guarantees.clock_was_put_back = circumstances.clock_stepped
        self.guarantees.abandoned |= circumstances.abandoned
        self._last_pods: dict[str, Body] = {}
        """The last state of every Pod there ever was, by UID."""
        self._judged: set[tuple[str, str]] = set()

    def tell(self, text: str) -> None:
        """Add a line to the story."""
        self.story.append(text)

    def violation(self, text: str) -> Violation:
        """What to raise when ``text`` is so: with what came right before."""
        self.story = self.story[-_TOLD:]
        return super().violation(text)

    def take(self, write: Write) -> None:
        """Check one write.

        Raises:
            Violation: with the story so far.
        """
        self.now = math.inf if self.circumstances.clock_stepped else write.at
        known = self.objects[write.kind].get(write.name)
        self.tell(f"{write.revision}: {write.kind} {write.name} {_said(known, write.body)}")
        if write.body is None:
            if known is not None:
                if not is_deleting(known):
                    self._deletion_begins(write.kind, known)
                del self.objects[write.kind][write.name]
                self.gone.add(uid_of(known))
                if write.kind is Kind.POD:
                    known["metadata"].setdefault("deletionTimestamp", "")
        else:
            self._put(write.kind, write.name, known, write.body)
        self.watcher()
        if write.kind is Kind.FRAMEWORK and write.body is not None:
            self._judge_ends(write.body)

    def _put(self, kind: Kind, name: str, known: Body | None, body: Body) -> None:
        if kind is Kind.FRAMEWORK:
            metadata = body["metadata"]
            self.specs.setdefault((metadata["uid"], metadata["generation"]), body["spec"])
        elif known is None and mark_of(body, names.FRAMEWORK_UID):
            self.guarantees.creating(mark_of(body, names.FRAMEWORK_UID), _target(kind, body), body)
            self.guarantees.created(body)
        if known is not None and is_deleting(body) and not is_deleting(known):
            self._deletion_begins(kind, known)
        self.objects[kind][name] = body
        if kind is Kind.POD:
            self._last_pods[uid_of(body)] = body

    def _deletion_begins(self, kind: Kind, body: Body) -> None:
        """It must be justified, unless somebody else did it: a user, or the garbage collector."""
        uid = uid_of(body)
        if uid in self.circumstances.deleted_by_others or self._is_collected(body):
            return
        framework = uid if kind is Kind.FRAMEWORK else mark_of(body, names.FRAMEWORK_UID)
        self.guarantees.deleting(framework, Delete(_target(kind, body), uid), uid)

    def _is_collected(self, body: Body) -> bool:
        owner = controller_of(body)
        if owner is None:
            return False
        found = self.find(Kind.CONFIGMAP, owner) or self.find(Kind.FRAMEWORK, owner)
        return found is None or is_deleting(found)

    # --- why attempts ended -----------------------------------------------------------------------------------------

    def _judge_ends(self, framework: Body) -> None:
        """Each TaskAttempt that is decided must say of its Pod what the record says of it."""
        status = decode_status(framework.get("status"))
        if status is None:
            return
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
        # Decided from above, whatever the Pod did; or the cache never showed it.
        possible = {-220, -230, -111}
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
