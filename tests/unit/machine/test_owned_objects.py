"""The rules of docs/lifecycle.md that ConfigMap and Pods share: creation, adoption, absence, and unrecorded objects."""

from dataclasses import dataclass, replace
from itertools import product
from typing import Final

import pytest

from frameworkcontroller.api.objects import ConfigMapRecord, Identity, PodRecord
from frameworkcontroller.api.status import State
from frameworkcontroller.machine.kernel.actions import ConfirmGone, Create, Delete, LeaveNewer, Relabel
from frameworkcontroller.machine.kernel.exchanges import Accepted, Exists, Gone, Remains, Result
from frameworkcontroller.machine.kernel.requests import Kind, Unanswered
from frameworkcontroller.machine.lifereasons import LifeReason
from tests.support.bench import UID, Bench, foreign, refused, role, running

PENDING: Final = State.CREATION_PENDING


@dataclass(frozen=True)
class Subject:
    """An object that a status records."""

    kind: Kind
    name: str
    deleted: int
    """The completion code if it is deleted by others."""
    unseen: int
    """The completion code if the cache never shows it."""

    @property
    def is_pod(self) -> bool:
        return self.kind is Kind.POD

    def begin(self, bench: Bench) -> Create:
        """Up to its creation."""
        if self.is_pod:
            bench.attempt()
        else:
            bench.plan()
        return bench.expect(Create)

    def state(self, bench: Bench) -> State:
        return bench.state() if self.is_pod else bench.status.state

    def code(self, bench: Bench) -> int | None:
        return bench.task_code() if self.is_pod else bench.code()

    def uid(self, bench: Bench) -> str | None:
        """The recorded UID."""
        return bench.task().attempt.pod_uid if self.is_pod else bench.status.attempt.configmap_uid

    def ours(self, bench: Bench) -> Identity:
        """One that was created for the pending attempt, and is not recorded."""
        if not self.is_pod:
            return Identity("lost", UID, (UID, "0"), False)
        attempt, task = bench.status.attempt, bench.task()
        configmap = attempt.configmap_uid or ""
        marks = (UID, f"0_{configmap}", attempt.roles[0].instance_uid, task.instance_uid, "0")
        return Identity("lost", configmap, marks, False)

    def later(self, bench: Bench) -> Identity:
        """One of the attempt after the pending one."""
        found = self.ours(bench)
        assert found.annotations is not None
        return replace(found, uid="later", annotations=(*found.annotations[:-1], "1"))

    def cache(self, bench: Bench, identity: Identity) -> None:
        """The cache has that one under the name."""
        if self.is_pod:
            bench.pods[self.name] = replace(_pod(bench), identity=identity)
            bench.touch(self.name)
        else:
            bench.configmap = replace(_configmap(bench), identity=identity)


def _pod(bench: Bench) -> PodRecord:
    return bench.pods["f-a-0"]


def _configmap(bench: Bench) -> ConfigMapRecord:
    assert bench.configmap is not None
    return bench.configmap


POD: Final = Subject(Kind.POD, "f-a-0", -101, -111)
CONFIGMAP: Final = Subject(Kind.CONFIGMAP, "f-attempt", -100, -110)
BOTH: Final = (POD, CONFIGMAP)
each = pytest.mark.parametrize("subject", BOTH, ids=["Pod", "ConfigMap"])
LEASE = Exists(None, 'leases "of-a-webhook" already exists')


def quoted(code: int, reason: str) -> str:
    """The API server's answer in the message of a refused ConfigMap."""
    words = '"message":"a webhook says \\u003cno\\u003e",' + (f'"reason":"{reason}",' if reason else "")
    return f'Failed to create ConfigMap: {{"ErrStatus":{{"metadata":{{}},{words}"code":{code}}}}}'


# --- creation -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subject", "result", "reason", "words"),
    [
        *(
            (subject, result, reason or f"{subject.kind}NotAnswered", words)
            for subject, (result, reason, words) in product(
                BOTH,
                [
                    (Unanswered("reset"), "", "reset"),
                    (refused(500), "", "no"),
                    (refused(429), "", "no"),
                    (refused(403, "exceeded quota: q"), "QuotaExceeded", "exceeded quota: q"),
                    (LEASE, "", 'leases "of-a-webhook" already exists'),
                    (Exists(foreign("x", "theirs")), "NamingConflict", "theirs"),
                    (Exists(foreign("x", "theirs", controller="another")), "NamingConflict", "theirs"),
                ],
            )
        ),
        *(
            (CONFIGMAP, refused(code, "a webhook says <no>", reason), "ConfigMapNotAnswered", quoted(code, reason))
            for code, reason in [(403, "Forbidden"), (422, "Invalid"), (400, ""), (403, "PolicyDenied"), (413, "")]
        ),
        (CONFIGMAP, refused(400), "ConfigMapNotAnswered", '"reason":"BadRequest","code":400'),
        (POD, refused(409, "the quota has been modified"), "PodNotAnswered", "409: the quota has been modified"),
        (POD, refused(400, "the object provided is unrecognized"), "PodNotAnswered", "400: the object provided is"),
        (POD, refused(403, "a webhook says no", "PolicyDenied"), "PodNotAnswered", "403: a webhook says no"),
        (POD, refused(400, "a webhook says no", ""), "PodNotAnswered", "400: a webhook says no"),
    ],
)
def test_a_failed_creation_is_retried_with_back_off_and_stalls_the_framework_until_it_succeeds(
    subject: Subject, result: Result, reason: str, words: str
) -> None:
    bench = Bench(role())
    action = subject.begin(bench)
    waits = []
    for number in range(12):
        assert bench.fold(action, result).requeue_after is not None
        assert (subject.state(bench), subject.code(bench)) == (PENDING, None)
        made = bench.idle()
        assert made.requeue_after is not None
        assert not bench.tracker.is_busy
        waits.append(made.requeue_after)
        assert bench.expect(Create, 60) == action
        if number == 2:
            found, message = bench.stall()
            assert found == reason
            assert words in message
            assert subject.name in message or reason != "NamingConflict"
    assert waits[0] < 1
    assert 5 < waits[-1] <= max(waits) <= 60
    bench.created(action)
    bench.plan()
    assert bench.stalls() == [("False", "Progressing")]
    assert subject.state(bench) is State.PREPARING


# --- objects that no status records -----------------------------------------------------------------------------------


@each
def test_the_object_of_exactly_the_pending_attempt_is_adopted(subject: Subject) -> None:
    bench = Bench(role())
    action = subject.begin(bench)
    bench.fold(action, Unanswered("reset"))
    assert bench.expect(Create, after=10) == action
    bench.fold(action, Exists(subject.ours(bench)))
    assert (subject.state(bench), subject.uid(bench)) == (State.CREATION_REQUESTED, "lost")


@each
def test_the_object_of_exactly_the_pending_attempt_is_adopted_from_the_cache(subject: Subject) -> None:
    bench = Bench(role())
    uid = bench.created(subject.begin(bench))
    bench.forget(pod=subject.is_pod)
    made = bench.plan()
    assert [action.target.name for action in made.actions] == ([] if subject.is_pod else ["f-a-0"])
    assert (subject.state(bench), subject.uid(bench)) == (State.PREPARING, uid)


@pytest.mark.parametrize(
    ("subject", "mark", "text"),
    [
        *((POD, mark, "other") for mark in range(5)),
        (POD, None, ""),
        (POD, 4, "9" * 5000),
        (CONFIGMAP, 0, "other"),
        (CONFIGMAP, 1, "x"),
        (CONFIGMAP, None, ""),
    ],
)
def test_a_controlled_object_of_another_attempt_is_deleted_and_its_end_awaited(
    subject: Subject, mark: int | None, text: str
) -> None:
    """The marks name Framework, FrameworkAttempt, TaskRole, Task and TaskAttempt. All must be equal."""
    bench = Bench(role())
    action = subject.begin(bench)
    ours = subject.ours(bench)
    marks = list(ours.annotations or ())
    if mark is not None:
        marks[mark] = text
    found = replace(ours, annotations=None if mark is None else tuple(marks))
    bench.fold(action, Exists(found))
    assert subject.state(bench) is PENDING
    deletion = bench.expect(Delete)
    assert deletion == Delete(action.target, "lost")
    # A live read of the Framework comes first.
    assert deletion.unrecorded
    bench.fold(deletion, Accepted())
    for deleting in (True, True):
        bench.idle()
        assert bench.expect(Create, 60) == action
        bench.fold(action, Exists(replace(found, deleting=deleting)))
    assert bench.idle().requeue_after is not None
    assert subject.uid(bench) is None


@each
def test_a_controlled_object_of_another_attempt_in_the_cache_is_deleted_once_and_its_end_awaited(
    subject: Subject,
) -> None:
    bench = Bench(role())
    action = subject.begin(bench)
    bench.created(action)
    uid = subject.uid(bench)
    bench.forget(pod=subject.is_pod)
    del bench.bodies[subject.name]["metadata"]["annotations"]
    bench.show(subject.name)
    deletion = bench.expect(Delete)
    assert deletion == Delete(action.target, uid or "")
    bench.fold(deletion, Accepted())
    for _ in range(5):
        bench.idle()
    assert not bench.tracker.is_busy
    bench.show(subject.name, deleting=bench.now + 30)
    bench.idle(after=5)
    bench.hide(subject.name)
    assert bench.expect(Create).target == action.target


@each
def test_an_object_of_a_later_attempt_proves_the_status_old_and_is_never_deleted(subject: Subject) -> None:
    bench = Bench(role())
    action = subject.begin(bench)
    for _ in range(3):
        bench.fold(action, Exists(subject.later(bench)))
        leave = bench.expect(LeaveNewer)
        assert leave == LeaveNewer(action.target)
        # If the live read had shown a newer status, it would be tracked now.
        bench.fold(leave, Remains("as old"))
        bench.idle()
        assert bench.expect(Create, 60) == action
    reason, message = bench.stall()
    assert reason == "StatusOutdated"
    assert subject.name in message
    bench.created(action)
    bench.plan()
    assert bench.stalls() == [("False", "Progressing")]


@each
@pytest.mark.parametrize("ended", [False, True])
def test_an_object_of_a_later_attempt_in_the_cache_is_never_deleted(subject: Subject, ended: bool) -> None:
    bench = Bench(role(), *([role("b")] if subject.is_pod else []))
    bench.all_pods() if ended or subject.is_pod else bench.attempt()
    shown = bench.configmap
    if ended:
        pods = dict(bench.pods)
        bench.end()
        bench.configmap, bench.pods = shown, pods
    else:
        bench.forget(pod=subject.is_pod)
    later = subject.later(bench)
    subject.cache(bench, later)
    for _ in range(3):
        bench.fold(bench.expect(LeaveNewer, 60), Remains("as old"))
    assert bench.stall()[0] == "StatusOutdated"
    if ended:
        bench.hide(subject.name)
        bench.wait(60)
        assert bench.stalls() == [("False", "Progressing")]


def test_another_clients_pod_in_the_cache_does_not_count_as_the_tasks_pod() -> None:
    bench = Bench(role())
    action = POD.begin(bench)
    bench.created(action)
    bench.forget(pod=True)
    POD.cache(bench, Identity("theirs", "another", None, False))
    assert bench.expect(Create).target == action.target


# --- recorded and absent ----------------------------------------------------------------------------------------------


def unseen(bench: Bench, subject: Subject) -> ConfirmGone:
    """The cache has not shown the created object in time; the live read of it."""
    uid = bench.created(subject.begin(bench), show=False)
    assert bench.idle().requeue_after == 300
    bench.idle(after=299)
    action = bench.expect(ConfirmGone, after=1)
    assert (action.target.name, action.uid) == (subject.name, uid)
    return action


@each
def test_a_created_object_that_does_not_exist_after_the_wait_for_the_cache_ends_the_attempt(subject: Subject) -> None:
    bench = Bench(role())
    bench.fold(unseen(bench, subject), Gone())
    if subject is CONFIGMAP:
        bench.plan(write=False)
        assert bench.task_codes() == [-220]
    assert (subject.state(bench), subject.code(bench)) == (State.ATTEMPT_COMPLETED, subject.unseen)


@each
def test_a_created_object_that_exists_is_brought_into_the_cache_by_one_list(subject: Subject) -> None:
    bench = Bench(role())
    action = unseen(bench, subject)
    assert bench.fold(action, Remains("it is there")).relist == {subject.kind}
    # It is confirmed again until the list was made.
    assert bench.expect(ConfirmGone, 60) == action
    assert not bench.fold(action, Remains("it is there")).relist
    bench.listed = bench.now
    bench.show_then_plan(subject.name)
    assert subject.state(bench) is State.PREPARING


@each
def test_a_created_object_that_no_list_brings_into_the_cache_is_deleted(subject: Subject) -> None:
    bench = Bench(role())
    action = unseen(bench, subject)
    bench.fold(action, Remains("it is there"))
    bench.listed = bench.now
    deletion = bench.expect(Delete, 1)
    assert deletion == Delete(action.target, action.uid, confirm=True)
    bench.fold(deletion, Remains("still there"))
    assert subject.state(bench) is State.CREATION_REQUESTED
    assert bench.expect(Delete, 5) == deletion
    bench.fold(deletion, Gone())
    bench.plan(write=False)
    assert subject.code(bench) == subject.unseen


@pytest.mark.parametrize("how", ["scale-down", "stop"])
def test_an_object_that_is_no_longer_needed_is_deleted_without_a_wait_for_the_cache(how: str) -> None:
    subject, edit, code = (POD, {}, -230) if how == "scale-down" else (CONFIGMAP, {"executionType": "Stop"}, -210)
    bench = Bench(role())
    uid = bench.created(subject.begin(bench), show=False)
    bench.edit(*([] if edit else [role(number=0)]), **edit)
    bench.plan(write=False)
    assert bench.plan(write=False).actions == []
    bench.write()
    deletion = bench.expect(Delete)
    assert (deletion.uid, deletion.confirm) == (uid, True)
    bench.fold(deletion, Gone())
    if subject is CONFIGMAP:
        bench.plan(write=False)
    assert (subject.state(bench), subject.code(bench)) == (State.ATTEMPT_COMPLETED, code)


@each
def test_a_created_object_without_the_label_gets_it(subject: Subject) -> None:
    bench = Bench(role())
    action = unseen(bench, subject)
    assert not bench.fold(action, Remains("it is there", unlabelled=True)).relist
    assert bench.expect(Relabel) == Relabel(action.target, action.uid, "f")


@each
def test_an_object_that_loses_its_label_gets_it_back_with_a_warning(subject: Subject) -> None:
    bench = running()
    bench.drop(subject.name)
    action = bench.expect(ConfirmGone)
    assert (action.uid, subject.code(bench)) == (subject.uid(bench), None)
    assert not bench.fold(action, Remains("it is there", unlabelled=True)).records
    restore = bench.expect(Relabel)
    assert restore == Relabel(action.target, action.uid, "f")
    (record,) = bench.fold(restore, Accepted()).records
    of_task = ("a", 0) if subject.is_pod else (None, None)
    assert (record.reason, record.warning, record.role, record.index) == (LifeReason.LABEL_RESTORED, True, *of_task)
    bench.show_then_plan(subject.name)
    assert subject.state(bench) is State.RUNNING


@each
@pytest.mark.parametrize("then", ["labelled by another client", "gone"])
def test_a_refused_label_stalls_until_the_object_has_it_or_is_gone(subject: Subject, then: str) -> None:
    bench = running()
    bench.drop(subject.name)
    for _ in range(4):
        bench.fold(bench.expect(ConfirmGone, 30), Remains("it is there", unlabelled=True))
        bench.fold(bench.expect(Relabel, 30), refused(403, "it is forbidden"))
    bench.plan()
    text = f"Cannot label {subject.kind} {subject.name}: 403: it is forbidden"
    assert bench.stall() == (f"{subject.kind}NotAnswered", text)
    if then == "gone":
        bench.fold(bench.expect(ConfirmGone, 30), Gone())
    else:
        bench.show(subject.name)
    bench.plan()
    assert subject.code(bench) == (subject.deleted if then == "gone" else None)
    assert then == "gone" or bench.stalls() == [("False", "Progressing")]


@each
def test_after_a_restart_an_absent_object_is_confirmed_by_live_reads(subject: Subject) -> None:
    bench = running()
    uid = subject.uid(bench)
    shown, pods = bench.configmap, dict(bench.pods)
    bench.restart()
    if subject.is_pod:
        bench.pods.clear()
    else:
        bench.configmap = None
    action = bench.expect(ConfirmGone)
    assert (action.target.name, action.uid) == (subject.name, uid)
    bench.fold(action, Remains("it is there"))
    assert subject.state(bench) is State.RUNNING
    bench.idle()
    assert bench.expect(ConfirmGone, 60) == action
    # The cache shows it, and another process finds it gone.
    bench.configmap, bench.pods = shown, pods
    bench.touch("f-a-0")
    bench.plan()
    assert subject.state(bench) is State.RUNNING
    bench.vanish()
    bench.restart()
    while subject.code(bench) is None:
        bench.fold(bench.expect(ConfirmGone, 0), Gone())
        bench.plan(write=False)
    assert bench.task_codes() == [-220] or subject.code(bench) == -101
    assert bench.code() in (None, -100)


@each
def test_an_object_of_the_name_with_another_uid_is_not_the_recorded_one(subject: Subject) -> None:
    bench = running()
    if not subject.is_pod:
        bench.hide("f-a-0")
    subject.cache(bench, Identity("other", None, None, False))
    bench.plan(write=False)
    assert (subject.state(bench), subject.code(bench)) == (State.ATTEMPT_COMPLETED, subject.deleted)
