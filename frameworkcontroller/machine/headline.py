"""Phase, reason and message of a status: one word for how the Framework is, and one line for why.

They are derived when a status is encoded, so they never cost a write. Exception: ``observe`` asks for one when a Pod
cannot start or restarts its containers, since nothing else of the status changes then.

Source: docs/running.md, "Phase". The first rule of ``_RULES`` with an answer gives reason and message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from frameworkcontroller.api.causes import failure_sentence, one_line, task_sentence
from frameworkcontroller.api.completion import CompletionStatus
from frameworkcontroller.api.objects import Framework, PodRecord, PodTrouble
from frameworkcontroller.api.phases import QUEUE_CONDITIONS, UPDATED_CONDITION, framework_phase
from frameworkcontroller.api.status import Condition, FirstFailure, FrameworkStatus, Phase, State, TaskStatus
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.model import Urgency
from frameworkcontroller.machine.kernel.reasons import EventPolicy
from frameworkcontroller.machine.kernel.tracker import Tracker
from frameworkcontroller.machine.lifereasons import LifeReason

STUCK_SEC: Final = 10
"""Time after which a Pod that does not start is shown. Most image pulls and volume mounts are over by then."""

_TASKS_FAILED: Final = "TasksFailed"
_NOT_STARTED: Final = "PodsNotStarted"
_WITH_TROUBLE: Final = frozenset({State.PREPARING, State.RUNNING})


class Explanation(NamedTuple):
    """A CamelCase reason, and a sentence."""

    reason: str
    message: str


class _Subject:
    """A tracked Framework, as the rules read it. ``framework`` is None before its spec is read."""

    def __init__(self, tracker: Tracker, status: FrameworkStatus, framework: Framework | None) -> None:
        self.tracker, self.status, self.framework = tracker, status, framework
        self.conditions = {one.type: one for one in status.conditions}
        self.completion = status.attempt.completion_status
        self.phase = self._phase()

    def condition(self, kind: str, value: str) -> Condition | None:
        """The condition, if it has that status."""
        found = self.conditions.get(kind)
        return found if found is not None and found.status == value else None

    def queue_condition(self) -> Condition | None:
        """The condition of a queue that has not admitted the attempt."""
        found = (self.condition(kind, "False") for kind in QUEUE_CONDITIONS)
        return next((one for one in found if one is not None), None)

    def first_failure(self) -> FirstFailure | None:
        """The first failure of the attempt, if it has failed by one."""
        first, attempt = self.status.first_failure, self.status.attempt
        is_its = first is not None and first.framework_attempt_id == attempt.id
        return first if is_its and self.completion is not None and self.completion.unexpected else None

    def _phase(self) -> Phase:
        status = self.status
        return framework_phase(
            status.state,
            None if self.completion is None else self.completion.outcome,
            suspended=self.condition("Suspended", "True") is not None,
            queued=self.queue_condition() is not None,
            retry_decided=status.retry.retry_delay_sec is not None,
            some_succeeded=self.tracker.counts.succeeded > 0,
        )


def set_headline(tracker: Tracker, status: FrameworkStatus, framework: Framework | None) -> None:
    """Set phase, reason and message of the tracked status."""
    subject = _Subject(tracker, status, framework)
    tracker.set_headline(subject.phase, *_explain(subject))


def _explain(subject: _Subject) -> Explanation:
    found = next((found for rule in _RULES if (found := rule(subject)) is not None), Explanation("", ""))
    return Explanation(found.reason, one_line(found.message))


def observe(ctx: Context, task: TaskStatus, pod: PodRecord) -> None:
    """Note that the recorded Pod of a Task cannot start, or restarts its containers, and have that shown.

    Costs the same for each Pod: all Pods of a Framework may restart at once.
    """
    troubled, trouble = ctx.tracker.life.troubled, pod.trouble
    before = troubled.get(task.key) if troubled else None
    if trouble is None or task.state not in _WITH_TROUBLE:
        if before is not None:
            del troubled[task.key]
            _show(ctx, is_due=not troubled and ctx.status.reason in (_NOT_STARTED, LifeReason.CONTAINERS_RESTARTED))
        return
    if not trouble.restarts and not ctx.wait_out(task.key, task.transition_time, STUCK_SEC):
        return
    troubled[task.key] = trouble
    is_new = before is None or not before.restarts
    if trouble.restarts and is_new and ctx.status.reason != LifeReason.CONTAINERS_RESTARTED:
        text = f"The Task has {trouble.restarted}. No retry policy applies to that, and the Task does not end by it"
        ctx.record(LifeReason.CONTAINERS_RESTARTED, text, task, warning=True)
    _show(ctx, is_due=trouble != before and _is_news(ctx, task, trouble))


def _is_news(ctx: Context, task: TaskStatus, trouble: PodTrouble) -> bool:
    """Whether the written message is to change. The number of stuck or restarting Tasks waits for other changes."""
    shown = ctx.status.reason
    if ctx.tracker.holds.stalls or shown in (_TASKS_FAILED, _NOT_STARTED):
        # Rules that come first.
        return False
    if not trouble.restarts or shown != LifeReason.CONTAINERS_RESTARTED:
        return True
    # Of the Task in the message. Its writes grow with the logarithm of its restarts.
    is_power_of_two = trouble.restarts & (trouble.restarts - 1) == 0
    message = ctx.status.message
    return is_power_of_two and message.startswith(f"{task.role}[{task.index}] ") and trouble.restarted not in message


def _show(ctx: Context, *, is_due: bool) -> None:
    if is_due:
        # For its readers: nothing else of the status changes.
        ctx.tracker.urgency = max(ctx.tracker.urgency, Urgency.SHOWN)


# --- rules: the first one with an answer counts -------------------------------------------------------------------


def _stalled(subject: _Subject) -> Explanation | None:
    stalled = subject.condition("Stalled", "True")
    if stalled is None or subject.phase.is_final:
        return None
    return Explanation(stalled.reason, stalled.message)


def _suspended(subject: _Subject) -> Explanation | None:
    suspended = subject.condition("Suspended", "True")
    if suspended is None or subject.phase is not Phase.SUSPENDED:
        return None
    return Explanation(suspended.reason, suspended.message)


def _queued(subject: _Subject) -> Explanation | None:
    queue = subject.queue_condition() if subject.phase is Phase.QUEUED else None
    return None if queue is None else Explanation(queue.reason, queue.message)


def _retry(subject: _Subject) -> Explanation | None:
    """The next attempt of the Framework, and why the last one ended."""
    retry, completion = subject.status.retry, subject.completion
    if subject.status.state is not State.ATTEMPT_COMPLETED or retry.retry_delay_sec is None or completion is None:
        return None
    most = 0 if subject.framework is None else subject.framework.spec.retry_policy.max_retry_count
    number = f"retry {retry.total_retried_count + 1}{f' of {most}' if most > 0 else ''}"
    when = f" in {retry.retry_delay_sec} s" if retry.retry_delay_sec else ""
    return Explanation(LifeReason.FRAMEWORK_RETRY_SCHEDULED, f"{number}{when} after {_cause(subject, completion)}")


def _ended(subject: _Subject) -> Explanation | None:
    """Why the attempt has ended, or ends."""
    completion = subject.completion
    if completion is None:
        return None
    reason = completion.phrase if completion.phrase.isalnum() else completion.type_name
    if completion.succeeded:
        return Explanation(reason, _failed_tasks(subject) or "")
    return Explanation(reason, _cause(subject, completion))


def _not_begun(subject: _Subject) -> Explanation | None:
    """Why the attempt has not begun."""
    if subject.status.state is not State.CREATION_PENDING:
        return None
    return _waits(subject.tracker, EventPolicy.WAIT, EventPolicy.WAIT_OF_ROLE, EventPolicy.RETRY)


def _some_failed(subject: _Subject) -> Explanation | None:
    """Tasks have failed without a retry while others continue."""
    message = _failed_tasks(subject)
    return None if message is None else Explanation(_TASKS_FAILED, message)


def _cannot_start(subject: _Subject) -> Explanation | None:
    tracker = subject.tracker
    stuck = [(task, one) for task, one in _troubled(tracker) if not one.restarts]
    if not stuck:
        return None
    task, trouble = min(stuck, key=_by_key)
    total = tracker.counts.total
    pods = f"{len(stuck):,} of {total:,} Pods" if total > 1 else "its Pod"
    return Explanation(_NOT_STARTED, f"waiting for {pods}: {task_sentence(task, trouble.waiting)}")


def _restarted(subject: _Subject) -> Explanation | None:
    tracker = subject.tracker
    restarting = [(task, one) for task, one in _troubled(tracker) if one.restarts]
    if not restarting:
        return None
    task, trouble = min(restarting, key=_by_key)
    others = len(restarting) - 1
    more = f"; and {others:,} more {'Task' if others == 1 else 'Tasks'}" if others else ""
    return Explanation(LifeReason.CONTAINERS_RESTARTED, f"{task.role}[{task.index}] {trouble.restarted}{more}")


def _role_waits(subject: _Subject) -> Explanation | None:
    return _waits(subject.tracker, EventPolicy.WAIT_OF_ROLE, EventPolicy.WAIT)


def _task_retry(subject: _Subject) -> Explanation | None:
    """The next attempt of a Task."""
    waiting = subject.tracker.holds.waiters(LifeReason.TASK_RETRY_SCHEDULED)
    task = next((task for key in waiting if (task := subject.tracker.task(key)) is not None), None)
    if task is None or task.attempt.completion_status is None:
        return None
    number, delay = task.retry.total_retried_count + 1, task.retry.retry_delay_sec
    more = f"{len(waiting):,} Tasks wait for a retry; first: " if len(waiting) > 1 else ""
    return Explanation(
        LifeReason.TASK_RETRY_SCHEDULED, f"{more}retry {number} in {delay} s after {task_sentence(task)}"
    )


def _updating(subject: _Subject) -> Explanation | None:
    """Tasks that get a changed template, and the one that is waited for."""
    updated = subject.condition(UPDATED_CONDITION, "False") if subject.phase is Phase.RUNNING else None
    return None if updated is None else Explanation(updated.reason, updated.message)


def _mistake(subject: _Subject) -> Explanation | None:
    mistake = subject.tracker.process.mistake
    return Explanation(LifeReason.LIKELY_MISTAKE, mistake) if mistake else None


_RULES: Final[tuple[Callable[[_Subject], Explanation | None], ...]] = (
    _stalled,
    _suspended,
    _queued,
    _retry,
    _ended,
    _not_begun,
    _some_failed,
    _cannot_start,
    _restarted,
    _role_waits,
    _task_retry,
    _updating,
    _mistake,
)


# --- sentences ------------------------------------------------------------------------------------------------------


def _cause(subject: _Subject, completion: CompletionStatus) -> str:
    """Why the attempt ended without success: its first failure, if Tasks have ended it."""
    return completion.diagnostics if completion.trigger is None else _failed_tasks(subject) or completion.diagnostics


def _failed_tasks(subject: _Subject) -> str | None:
    """How many Tasks failed, while the attempt continues without a retry, and the first of them; None if there is none.

    Costs the number of Tasks at the end of an attempt, and while no recorded failure is final.
    """
    tracker, counts, is_over = subject.tracker, subject.tracker.counts, subject.completion is not None
    first = subject.first_failure()
    if not counts.failed and first is None:
        return None
    # At the end of the attempt no Task is retried.
    failed = [task for task in tracker.tasks() if _has_failed(task)] if is_over else []
    count = len(failed) if is_over else counts.failed
    if first is not None and all(task.key != first.key for task in failed):
        # It was stopped before its failure was seen.
        count += 1
    sentence = _first_sentence(subject, first)
    if sentence is None or (count == 1 and (counts.total == 1 or is_over)):
        return sentence
    doubt = "probably " if first is not None and not first.certain else ""
    return f"{count:,} of {counts.total:,} Tasks failed; {doubt}first: {sentence}"


def _first_sentence(subject: _Subject, first: FirstFailure | None) -> str | None:
    tracker, is_over = subject.tracker, subject.completion is not None

    def counts(task: TaskStatus | None) -> bool:
        return task is not None and _has_failed(task) and (is_over or task.state is State.COMPLETED)

    for known in (*([] if first is None else [first]), *subject.status.earliest_failures):
        if known is first or counts(tracker.task(known.key)):
            return failure_sentence(known)
    # A status of an earlier version.
    task = min(filter(counts, tracker.tasks()), key=tracker.completed_at, default=None)
    return None if task is None else task_sentence(task)


def _has_failed(task: TaskStatus) -> bool:
    completion = task.attempt.completion_status
    return not task.is_leaving and completion is not None and completion.unexpected


def _troubled(tracker: Tracker) -> Iterator[tuple[TaskStatus, PodTrouble]]:
    for key, trouble in tracker.life.troubled.items():
        if (task := tracker.task(key)) is not None and task.state in _WITH_TROUBLE:
            yield task, trouble


def _by_key(found: tuple[TaskStatus, PodTrouble]) -> tuple[str, int]:
    return found[0].key


def _waits(tracker: Tracker, *policies: EventPolicy) -> Explanation | None:
    """The wait by one of these policies, the first policy first."""
    waits = tracker.holds.waits().values()
    found = next((one for policy in policies for one in waits if one.reason.event is policy), None)
    return None if found is None else Explanation(found.reason, found.message)
