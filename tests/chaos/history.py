"""H1, along the record of every write: an attempt that a stored status shows is in it, or in the archive.

Before a write drops an attempt from a Framework's status, the archive's stand-in must have acknowledged it. Before the
history's finalizer goes, it must have acknowledged every attempt of the status, and no object of it may be left.
"""

from collections.abc import Iterator, Mapping

from frameworkcontroller.api import names
from frameworkcontroller.api.codec import decode_status
from frameworkcontroller.api.status import State
from frameworkcontroller.machine.kernel.requests import Kind
from tests.support.historysink import ArchiveStandIn, Attempt, attempts_of
from tests.support.world import Body, World, controller_of, is_deleting, mark_of, name_of, uid_of


class ArchiveJudge:
    """Looks at each write before it takes effect in ``world``. ``sink`` None: the controllers keep no history."""

    def __init__(self, world: World, sink: ArchiveStandIn | None, *, blocks: bool) -> None:
        """``blocks``: the controllers forget nothing before it is acknowledged."""
        self._world = world
        self._sink = sink
        self._blocks = blocks
        self.released: set[str] = set()
        """UIDs of the Frameworks whose finalizer somebody else has removed."""
        self.orphaned: set[str] = set()
        """UIDs of those whose dependents a user wanted to stay."""
        self._let_go: set[str] = set()
        """UIDs of those whose finalizer was removed."""
        self._begun: set[str] = set()
        """UIDs of those that had a ConfigMap."""
        self._codes: dict[Attempt, int] = {}
        """What stored statuses said of each attempt that was decided."""

    def take(self, revision: int, kind: Kind, known: Body | None, body: Body | None, *, loose: bool) -> None:
        """Check one write: ``known`` becomes ``body``.

        Raises:
            Violation: something is forgotten.
        """
        if kind is Kind.CONFIGMAP and known is None and body is not None:
            self._judge_beginning(body, loose)
        if kind is not Kind.FRAMEWORK:
            return
        if body is not None and is_held(body) and not self._blocks:
            raise self._world.violation(f"{name_of(body)} has the finalizer of a history that holds nothing")
        self._note(body)
        if known is None or not self._blocks or uid_of(known) in self.released:
            return
        stays = body is not None and uid_of(body) == uid_of(known)
        if is_held(known) and not (body is not None and stays and is_held(body)):
            self._judge_removal(known, revision, loose)
            self._let_go.add(uid_of(known))
        if uid_of(known) in self._let_go:
            # It begins nothing again.
            return
        if not stays and not is_held(known):
            if uid_of(known) in self._begun:
                raise self._world.violation(f"H1: {name_of(known)} is gone, and had begun without the finalizer")
            return
        after = _shown(body) if stays else {}
        for attempt, code in _shown(known).items():
            if attempt not in after:
                self._require_archived(known, attempt, code, revision, "is forgotten")

    def check_end(self, *, loose: bool) -> None:
        """After all writes: the archive says nothing else than the statuses.

        Raises:
            Violation: it does.
        """
        if self._sink is None:
            return
        if self._sink.wrong:
            raise self._world.violation(f"the archive was sent: {self._sink.wrong[0]}")
        for attempt, codes in self._sink.codes.items():
            stored = self._codes.get(attempt)
            if stored is not None and codes != {stored} and not loose:
                raise self._world.violation(f"attempt {attempt} ended with {stored}, and the archive says {codes}")

    def _note(self, body: Body | None) -> None:
        for attempt, code in _shown(body).items():
            if code is not None:
                self._codes[attempt] = code

    def _judge_beginning(self, configmap: Body, loose: bool) -> None:
        uid = controller_of(configmap)
        if uid is None or not mark_of(configmap, names.FRAMEWORK_UID):
            return
        self._begun.add(uid)
        framework = self._world.find(Kind.FRAMEWORK, uid)
        if not self._blocks or loose or framework is None or uid in self.released:
            return
        if not is_held(framework):
            raise self._world.violation(f"H1: {name_of(framework)} begins without the finalizer")

    def _judge_removal(self, framework: Body, revision: int, loose: bool) -> None:
        name = name_of(framework)
        if not is_deleting(framework):
            raise self._world.violation(f"H1: the finalizer of {name} is removed, which nobody has deleted")
        left = None if loose else next(self._left(uid_of(framework)), None)
        if left is not None:
            raise self._world.violation(f"C4: the finalizer of {name} is removed, and {left} exists")
        for attempt, code in _shown(framework).items():
            self._require_archived(framework, attempt, code, revision, "goes")

    def _left(self, uid: str) -> Iterator[str]:
        """The live objects of a Framework."""
        if uid in self.orphaned:
            # A user wanted it to stay.
            return
        for kind in (Kind.POD, Kind.CONFIGMAP):
            for name, body in self._world.objects[kind].items():
                if mark_of(body, names.FRAMEWORK_UID) == uid and (kind is Kind.POD or controller_of(body) == uid):
                    yield f"{kind} {name}"

    def _require_archived(self, framework: Body, attempt: Attempt, code: int | None, revision: int, what: str) -> None:
        assert self._sink is not None
        said = self._sink.acknowledged.get(attempt, {})
        if said.get(code, revision + 1) <= revision:
            return
        whose = "Framework" if attempt[0] == uid_of(framework) else "Task"
        story = f"attempt {attempt[1]} of {whose} {attempt[0]} of {name_of(framework)} {what}"
        known = {found: moment for found, moment in said.items() if moment <= revision}
        state = _state(framework)
        raise self._world.violation(
            f"H1: {story} at {revision} (code {code}, the Framework is {state}), acknowledged are {known}, later {said}"
        )


def is_held(body: Body) -> bool:
    """Whether a Framework has the finalizer."""
    return names.HISTORY_FINALIZER in (body["metadata"].get("finalizers") or ())


def _shown(body: Body | None) -> Mapping[Attempt, int | None]:
    status = None if body is None else decode_status(body.get("status"))
    return {} if status is None or body is None else attempts_of(uid_of(body), status)


def _state(body: Body) -> State | None:
    status = decode_status(body.get("status"))
    return None if status is None else status.state
