"""Retry and completion policies.

Source: docs/failures-and-retries.md, "Retry" and "Completion".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from frameworkcontroller.api.completion import (
    ALWAYS_RETRIED,
    CONFLICT,
    DISRUPTIONS,
    NEVER_RETRIED,
    PERMANENT,
    POD_CREATION_UNKNOWN_ERROR,
    POD_SUCCEEDED,
    REQUESTED,
    TASK_PRE_RUNNING_DEADLINE_EXCEEDED,
    TRANSIENT,
    CompletionStatus,
    FailureAction,
    Trigger,
)
from frameworkcontroller.api.spec import RETRY_ALWAYS, RETRY_ON_FAILURE, FrameworkSpec, RetryPolicy
from frameworkcontroller.api.status import FrameworkStatus, State, TaskStatus
from frameworkcontroller.backoff import exponential
from frameworkcontroller.machine.kernel.model import Limits, require
from frameworkcontroller.machine.kernel.tracker import Tracker

_DISRUPTED: Final = frozenset(code.code for code in DISRUPTIONS.values())


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """Whether to retry, whether that counts against maxRetryCount, the delay in seconds, and the reason in words."""

    retry: bool
    accountable: bool = False
    delay_sec: int = 0
    reason: str = ""


def decide_retry(
    policy: RetryPolicy, completion: CompletionStatus, accountable_retried_count: int, conflict_delay_sec: int
) -> RetryDecision:
    """Decide by ``policy`` whether an attempt that ended with ``completion`` is retried.

    ``conflict_delay_sec``: the delay after a transient conflict. Frameworks draw it at random, to not conflict again;
    for Tasks it is 0.
    """
    if completion.is_one_of(ALWAYS_RETRIED):
        return RetryDecision(True, reason="it was only interrupted")
    if completion.is_one_of(NEVER_RETRIED):
        requested = completion.is_one_of(REQUESTED)
        return RetryDecision(False, reason="its end was requested" if requested else "its deadline has expired")
    if completion.policy is not None and completion.policy.action is FailureAction.FAIL_FRAMEWORK:
        return RetryDecision(False, reason=str(completion.policy))
    if policy.fancy_retry_policy and completion.failed:
        if completion.has(TRANSIENT):
            if completion.has(CONFLICT):
                return RetryDecision(True, delay_sec=conflict_delay_sec, reason="the failure is a transient conflict")
            return RetryDecision(True, reason="the failure is transient")
        if completion.has(PERMANENT):
            return RetryDecision(False, reason="the failure is permanent")
    limit = policy.max_retry_count
    if limit == RETRY_ALWAYS:
        return RetryDecision(True, accountable=True, reason="maxRetryCount is -2: always")
    if completion.succeeded:
        return RetryDecision(False, reason="it succeeded")
    if limit == RETRY_ON_FAILURE:
        return RetryDecision(True, accountable=True, reason="maxRetryCount is -1: on every failure")
    if accountable_retried_count < limit:
        return RetryDecision(True, accountable=True, reason=f"{accountable_retried_count} of {limit} retries were used")
    return RetryDecision(False, reason=f"all of its {limit} retries were used" if limit else "maxRetryCount is 0")


def decide_task_retry(
    policy: RetryPolicy, completion: CompletionStatus, accountable_retried_count: int
) -> RetryDecision:
    """Decide whether an attempt of a Task is retried: by the failure rule in ``completion``, then by ``policy``."""
    rule = completion.policy
    if rule is not None and rule.action is not FailureAction.COUNT:
        return RetryDecision(rule.action is FailureAction.IGNORE, reason=str(rule))
    return decide_retry(policy, completion, accountable_retried_count, 0)


RETRIES_AT_ONCE: Final = 3
"""Retries in a row without delay, if the policy has no back-off of its own, and after early disruptions."""

ROW_ENDS_AFTER_SEC: Final = 600
"""Run time of an attempt after which earlier retries no longer count."""

_EARLY_SEC: Final = 30
"""Time from the start of an attempt in which its disruption counts, too."""


@dataclass(frozen=True, slots=True)
class RetryBackOff:
    """The delays of retries in a row: none for ``at_once`` of them, then ``base_sec``, doubled up to ``max_sec``."""

    base_sec: int
    max_sec: int
    at_once: int = 0

    def delay_sec(self, in_a_row: int, completion: CompletionStatus, *, early: bool = False) -> int:
        """Seconds before the retry of an attempt that ended with ``completion``, after ``in_a_row`` retries."""
        if not self.counts(completion, early=early):
            return 0
        at_once = max(self.at_once, RETRIES_AT_ONCE) if completion.is_one_of(_DISRUPTED) else self.at_once
        return exponential(self.base_sec, self.max_sec, in_a_row - at_once + 1)

    def counts(self, completion: CompletionStatus, *, early: bool = False) -> bool:
        """Whether a retry after ``completion`` waits and counts. ``early``: the attempt had only just started.

        Even after a success, which maxRetryCount -2 retries forever. Not after a suspension or a disruption: the
        program did not cause it, and the scheduler looks for another node. An early disruption counts, since a Pod that
        names a tainted node is deleted at once, each time.
        """
        if self.base_sec == 0 or completion.is_one_of(ALWAYS_RETRIED):
            return False
        return early or not completion.is_one_of(_DISRUPTED)

    def row_after(self, in_a_row: int, completion: CompletionStatus, *, early: bool = False) -> int:
        """Number of retries in a row after the retry of an attempt that ended with ``completion``."""
        return in_a_row + self.counts(completion, early=early)


NO_BACK_OFF: Final = RetryBackOff(0, 0)


def framework_back_off(policy: RetryPolicy, completion: CompletionStatus, limits: Limits) -> RetryBackOff:
    """The back-off of a Framework: by ``policy``, by the configuration, or none.

    The configured one applies after the action RestartFramework, and if a Pod never ran. Exception: under
    fancyRetryPolicy, a transient conflict has a delay of its own.
    """
    restarted = _action(completion) is FailureAction.RESTART_FRAMEWORK
    has_own_delay = policy.fancy_retry_policy and completion.has(CONFLICT)
    return _back_off(policy, limits, default=restarted or (_never_ran(completion) and not has_own_delay))


def task_back_off(policy: RetryPolicy, completion: CompletionStatus, limits: Limits) -> RetryBackOff:
    """The back-off of a Task: by ``policy``, by the configuration, or none.

    The configured one applies under fancyRetryPolicy and after the action Ignore, as these retries have no end, and if
    the Pod never ran.
    """
    ignored = _action(completion) is FailureAction.IGNORE
    return _back_off(policy, limits, default=policy.fancy_retry_policy or ignored or _never_ran(completion))


def _back_off(policy: RetryPolicy, limits: Limits, *, default: bool) -> RetryBackOff:
    if (given := policy.backoff) is not None:
        return RetryBackOff(given.base_seconds, given.max_seconds)
    if default:
        return RetryBackOff(limits.task_min_retry_delay_sec, limits.task_max_retry_delay_sec, RETRIES_AT_ONCE)
    return NO_BACK_OFF


def _action(completion: CompletionStatus) -> FailureAction | None:
    return None if completion.policy is None else completion.policy.action


def _never_ran(completion: CompletionStatus) -> bool:
    """Whether the Pod did not start in time, or the API server cannot decode it.

    Not if a webhook or RBAC refuses it: that may end at any time, and ``Holds.hold_retry`` waits for at most 15 s.
    """
    if completion.is_one_of({POD_CREATION_UNKNOWN_ERROR.code}):
        # In the API server's answer, which the diagnostics quote as JSON.
        return '"reason":"BadRequest"' in completion.diagnostics
    return completion.is_one_of({TASK_PRE_RUNNING_DEADLINE_EXCEEDED.code})


def ended_early(subject: FrameworkStatus | TaskStatus) -> bool:
    """Whether the completed attempt had only just started."""
    ended = subject.attempt.completion_time
    return ended is not None and ended - subject.attempt.start_time < _EARLY_SEC


def made_progress(spec: FrameworkSpec, status: FrameworkStatus, task: TaskStatus | None = None) -> bool:
    """Whether the ended attempt of a Task or (None) the Framework has made progress.

    That is a checkpoint, or deadlineSeconds between its first report and its last change. Reports are of the Framework:
    for a Task, those count that came while it ran.
    """
    progress, ran_since = status.progress, status.attempt.run_time if task is None else task.attempt.run_time
    if progress is None or progress.framework_attempt_id != status.attempt.id or ran_since is None:
        return False
    checkpoint = progress.last_checkpoint_time
    if checkpoint is not None and (task is None or checkpoint > ran_since):
        return True
    first, last = progress.first_report_time, progress.last_change_time
    if spec.progress is None or spec.progress.deadline_seconds is None or first is None or last is None:
        return False
    return last - max(first, ran_since) >= spec.progress.deadline_seconds


def retries_in_a_row(subject: FrameworkStatus | TaskStatus) -> int:
    """Number of retries in a row before the completed attempt."""
    ran_since, ended = subject.attempt.run_time, subject.attempt.completion_time
    if ran_since is not None and ended is not None and ended - ran_since >= ROW_ENDS_AFTER_SEC:
        return 0
    return subject.retry.recent_retried_count


def evaluate_completion(spec: FrameworkSpec, tracker: Tracker) -> CompletionStatus | None:
    """The completion of the attempt by the completion policies; None while no policy is met.

    Reads only counters until a policy is met. Of policies met at the same moment the first in the spec counts,
    minFailedTaskCount before minSucceededTaskCount.
    """
    met: list[tuple[TaskStatus, str]] = []
    roles = [role for role in spec.task_roles if role.name in tracker.roles]
    for role in roles:
        counts, policy = tracker.role_counts[role.name], role.framework_attempt_completion_policy
        for kind, count, minimum in (
            ("Failed", counts.unsuccessful, policy.min_failed_task_count),
            ("Succeeded", counts.succeeded, policy.min_succeeded_task_count),
        ):
            if 1 <= minimum <= count:
                task = completed_tasks(tracker, role.name, kind)[minimum - 1]
                met.append((task, f"{kind}TaskCount {count} has reached Min{kind}TaskCount {minimum} in the TaskRole"))
    if met:
        task, text = min(met, key=lambda one: tracker.completed_at(one[0]))
        completion = require(task.attempt.completion_status, f"completionStatus of Task {task.role}[{task.index}]")
        # Another rule is one for the Task alone.
        rule = completion.policy if completion.ends_framework_attempt else None
        return replace(completion, trigger=Trigger(text, task.role, task.index), pod=None, policy=rule)
    total, completed = spec.task_count, tracker.counts.completed
    if not 1 <= total <= completed or tracker.ended_by_rule is not None:
        # A rule that ends the attempt also does if its Task was the last one.
        return None
    text = (
        f"CompletedTaskCount {completed} has reached TotalTaskCount {total} and no user specified conditions in "
        "FrameworkAttemptCompletionPolicy have ever been triggered"
    )
    last_of_roles = [tasks[-1] for role in roles if (tasks := completed_tasks(tracker, role.name))]
    last = max(last_of_roles, key=tracker.completed_at, default=None)
    trigger = None if last is None else Trigger(text, last.role, last.index)
    return CompletionStatus.of(POD_SUCCEEDED, text, trigger=trigger)


def completed_tasks(tracker: Tracker, role: str, kind: str | None = None) -> list[TaskStatus]:
    """The role's completed Tasks in the order of their completions, or by index if that is unknown.

    ``kind``: only Tasks that Succeeded or Failed.
    """
    tasks = [
        task
        for task in tracker.roles[role].tasks
        if task.state is State.COMPLETED
        and not task.is_leaving
        and task.attempt.completion_status is not None
        and kind in (None, "Succeeded" if task.attempt.completion_status.succeeded else "Failed")
    ]
    return sorted(tasks, key=tracker.completed_at)
