"""Rules of podFailurePolicy: which one matches a failed TaskAttempt, and the end of the FrameworkAttempt by one.

Source: docs/failures-and-retries.md, "Failure rules". A rule is found when the completion of the TaskAttempt is
decided, and stored in it: a later change of the rules changes no decision that clients may have seen.
"""

from __future__ import annotations

from dataclasses import replace

from frameworkcontroller.api.completion import CompletionStatus, DecidedRule, Trigger
from frameworkcontroller.api.objects import PodRecord
from frameworkcontroller.api.spec import ExitCodePattern, FailurePolicy, FailureRule, PodConditionPattern
from frameworkcontroller.machine.kernel.model import require
from frameworkcontroller.machine.kernel.tracker import Tracker


def with_rule(policy: FailurePolicy | None, completion: CompletionStatus, pod: PodRecord | None) -> CompletionStatus:
    """Return the completion of a TaskAttempt with the first rule that matches, if one does.

    ``pod``: the last state of its Pod. Exit codes count only if the completion was made from them: the deletion of a
    Pod by others may have caused them.
    """
    if policy is None or not completion.unexpected:
        return completion
    for position, rule in enumerate(policy.rules):
        if _matches(rule, completion, pod):
            return replace(completion, policy=DecidedRule(rule.action, position))
    return completion


def _matches(rule: FailureRule, completion: CompletionStatus, pod: PodRecord | None) -> bool:
    if rule.on_completion_codes is not None:
        return completion.code in rule.on_completion_codes
    if pod is None:
        return False
    if rule.on_exit_codes is not None:
        return completion.pod is not None and _has_exit_code(pod, rule.on_exit_codes)
    return any(_has_condition(pod, pattern) for pattern in rule.on_pod_conditions)


def _has_exit_code(pod: PodRecord, pattern: ExitCodePattern) -> bool:
    """Whether a container has ended with such a code. Sidecars end with their Pod, so they count only if named."""
    name = pattern.container_name
    containers = [one for one in pod.containers if (not one.sidecar if name is None else one.completion.name == name)]
    codes = (one.completion.code for one in containers if one.terminated)
    return any(code != 0 and code in pattern for code in codes)


def _has_condition(pod: PodRecord, pattern: PodConditionPattern) -> bool:
    return any(
        (condition.type, condition.status) == (pattern.type, pattern.status)
        and pattern.reason in (None, condition.reason)
        for condition in pod.conditions
    )


def end_by_rule(tracker: Tracker) -> CompletionStatus | None:
    """The completion of the FrameworkAttempt if a failure rule ends it, else None."""
    task = tracker.ended_by_rule
    if task is None:
        return None
    completion = require(task.attempt.completion_status, f"completionStatus of Task {task.role}[{task.index}]")
    text = str(require(completion.policy, "policy of the completionStatus"))
    return replace(completion, trigger=Trigger(text, task.role, task.index), pod=None)
