"""The history in controllers' logs, held against every status that was ever stored.

Each attempt that a stored status shows as ended must be in a snapshot, with the same code, and in none with another.
One of two controllers may log the status that it was about to write when it finds the Framework gone. The last stored
attempts are exempt if other clients deleted their Framework: no controller need have seen it.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.codec import decode_status
from frameworkcontroller.api.status import FrameworkStatus
from frameworkcontroller.machine.kernel.requests import Kind
from tests.chaos.record import Circumstances, Write
from tests.support.world import Body, Violation, uid_of

Attempt = tuple[str, int]
"""UID of a Framework or of a Task instance, and the attempt's id."""

_ENDED: Final = ("AttemptCompleted", "Completed")


class Snapshots:
    """Attempts that ended, as the snapshots in controllers' logs have them."""

    def __init__(self) -> None:
        self._codes: dict[Attempt, set[int]] = {}
        self.incomplete = False
        """Whether a line with a snapshot could not be written: nothing is missed then."""

    def take(self, text: str) -> None:
        """Read the records of a log."""
        for line in text.splitlines():
            _, mark, tail = line.partition(names.SNAPSHOT_MARK)
            if mark:
                self._take(orjson.loads(tail))

    def _take(self, body: Mapping[str, Any]) -> None:
        if body["kind"] == names.KIND:
            status = decode_status(body["status"])
            if status is not None:
                for attempt, code in _ended(body["metadata"]["uid"], status).items():
                    self._codes.setdefault(attempt, set()).add(code)
        elif body["kind"] == "Task":
            attempt = body["status"]["attemptStatus"]
            code = attempt["completionStatus"]["code"]
            self._codes.setdefault((body["metadata"]["uid"], attempt["id"]), set()).add(code)

    def check(self, writes: Iterable[Write], circumstances: Circumstances) -> None:
        """Look for every attempt that ended.

        Raises:
            Violation: one is in no snapshot, or with another code.
        """
        if self.incomplete:
            return
        for framework, name, ended in _ended_in(writes, circumstances):
            for attempt, code in ended.items():
                what = "Framework" if attempt[0] == framework else "Task"
                if attempt not in self._codes:
                    raise Violation(f"history: attempt {attempt[1]} of {what} {attempt[0]} of {name} is in no snapshot")
                found = self._codes[attempt]
                if code not in found or not (found == {code} or circumstances.loose):
                    raise Violation(
                        f"history: attempt {attempt[1]} of {what} {attempt[0]} of {name} ended with {code}, "
                        f"and its snapshots say {sorted(found)}"
                    )


def _ended(framework: str, status: FrameworkStatus) -> dict[Attempt, int]:
    ended = {}
    if status.state.value in _ENDED and status.attempt.completion_status is not None:
        ended[framework, status.attempt.id] = status.attempt.completion_status.code
    for role in status.attempt.roles:
        for task in role.tasks:
            if task.state.value in _ENDED and task.attempt.completion_status is not None:
                ended[task.instance_uid, task.attempt.id] = task.attempt.completion_status.code
    return ended


def _ended_in(writes: Iterable[Write], circumstances: Circumstances) -> Iterator[tuple[str, str, dict[Attempt, int]]]:
    """For each Framework its UID, its name, and the attempts that must be in snapshots by now."""
    last: dict[str, tuple[str, Body]] = {}
    ended: dict[str, dict[Attempt, int]] = {}
    stored_last: dict[str, dict[Attempt, int]] = {}
    settled_at = None if circumstances.stopped_unseen else circumstances.settled_at
    for write in writes:
        if write.kind is not Kind.FRAMEWORK:
            continue
        if write.body is not None:
            uid = uid_of(write.body)
            last[write.name] = (uid, write.body)
            status = decode_status(write.body.get("status"))
            if status is not None:
                stored_last[uid] = _ended(uid, status)
                ended.setdefault(uid, {}).update(stored_last[uid])
        elif write.name in last:
            uid, _ = last.pop(write.name)
            unseen = uid in circumstances.deleted_by_others and (settled_at is None or write.revision <= settled_at)
            exempt = stored_last.get(uid, {}) if unseen else {}
            yield uid, write.name, {key: code for key, code in ended.pop(uid, {}).items() if key not in exempt}
    for uid, body in last.values():
        kept = stored_last.get(uid, {})
        yield uid, body["metadata"]["name"], {k: code for k, code in ended.get(uid, {}).items() if k not in kept}
