"""Checks of retry and completion policies that have no effect, or an unlikely one.

Source: docs/manual.md, "Retry" and "Completion".
"""

from __future__ import annotations

from collections.abc import Iterator

from frameworkcontroller.api.problems import KeyPath
from frameworkcontroller.api.spec import RETRY_ALWAYS, RETRY_ON_FAILURE, FrameworkSpec, RetryPolicy, TaskRoleSpec
from frameworkcontroller.commands.lint.findings import Finding, warning

_RESTARTS = ("Always", None)


def check_policies(spec: FrameworkSpec) -> Iterator[Finding]:
    """Check the policies of a valid spec."""
    for position, role in enumerate(spec.task_roles):
        yield from _role(role, ("spec", "taskRoles", position))
    yield from _whole(spec)


def _role(role: TaskRoleSpec, path: KeyPath) -> Iterator[Finding]:
    policy, retry = role.framework_attempt_completion_policy, role.task.retry_policy
    failed, succeeded = policy.min_failed_task_count, policy.min_succeeded_task_count
    too_few = f"the role has {role.task_number} Tasks"
    never_fails = (
        f"with task.retryPolicy.maxRetryCount {retry.max_retry_count} a Task that fails is retried and never counts as "
        "failed"
    )
    run_again = "with task.retryPolicy.maxRetryCount -2 a Task that succeeds is run again"
    for field, minimum, unreachable, reason in (
        ("minFailedTaskCount", failed, failed > role.task_number, too_few),
        ("minSucceededTaskCount", succeeded, succeeded > role.task_number, too_few),
        ("minFailedTaskCount", failed, failed >= 1 and not _can_fail(retry), never_fails),
        ("minSucceededTaskCount", succeeded, succeeded >= 1 and retry.max_retry_count == RETRY_ALWAYS, run_again),
    ):
        if unreachable:
            place = (*path, "frameworkAttemptCompletionPolicy", field)
            yield warning(place, f"can never be reached: {reason}", value=minimum)
    restart = _restart_policy(role)
    if restart in _RESTARTS and retry.max_retry_count != RETRY_ALWAYS and role.task_number > 0:
        value = "is Always" if restart else "is missing, which is Always"
        yield warning(
            (*path, "task", "pod", "spec", "restartPolicy"),
            f"{value}: containers that end are started again in place, so that no Task ever completes; "
            "retries and completion policies are for Never (or OnFailure)",
        )


def _whole(spec: FrameworkSpec) -> Iterator[Finding]:
    roles = [role for role in spec.task_roles if role.task_number > 0]
    ending = [role for role in roles if role.task.retry_policy.max_retry_count != RETRY_ALWAYS]
    can_fail = any(map(_fails_the_attempt, roles))
    by_policy = can_fail or any(map(_succeeds_the_attempt, roles))
    path: KeyPath = ("spec", "taskRoles")
    if not ending:
        return  # a service
    if len(ending) < len(roles) and not by_policy:
        endless = ", ".join(role.name for role in roles if role not in ending)
        yield warning(
            path,
            f"can never complete: {endless} is retried forever (maxRetryCount -2), and no other role has a completion "
            "policy that completes the attempt without it",
        )
    elif not by_policy and any(map(_has_no_policy, ending)):
        yield warning(
            path,
            "have no completion policy: the Framework succeeds once all Tasks have ended, even if "
            "all of them failed; minFailedTaskCount: 1 lets it fail",
        )
    retries = spec.retry_policy.max_retry_count
    if not can_fail and (retries >= 1 or retries == RETRY_ON_FAILURE):
        yield warning(
            ("spec", "retryPolicy", "maxRetryCount"),
            "has no effect: no role's minFailedTaskCount can make an attempt fail",
            value=retries,
        )


def _has_no_policy(role: TaskRoleSpec) -> bool:
    """Return whether the role has no completion policy. A minimum of -1 is one: it is a decision."""
    policy = role.framework_attempt_completion_policy
    return policy.min_failed_task_count == 0 and policy.min_succeeded_task_count == 0


def _can_fail(retry: RetryPolicy) -> bool:
    """Return whether a Task can complete as failed; with the fancy policy, a permanent failure always can."""
    return retry.fancy_retry_policy or retry.max_retry_count not in (RETRY_ALWAYS, RETRY_ON_FAILURE)


def _fails_the_attempt(role: TaskRoleSpec) -> bool:
    minimum = role.framework_attempt_completion_policy.min_failed_task_count
    return 1 <= minimum <= role.task_number and _can_fail(role.task.retry_policy)


def _succeeds_the_attempt(role: TaskRoleSpec) -> bool:
    minimum = role.framework_attempt_completion_policy.min_succeeded_task_count
    return 1 <= minimum <= role.task_number and role.task.retry_policy.max_retry_count != RETRY_ALWAYS


def _restart_policy(role: TaskRoleSpec) -> str | None:
    spec = role.task.pod.get("spec")
    if not isinstance(spec, dict):
        return "Never"  # an error, reported elsewhere
    found = spec.get("restartPolicy")
    return found if isinstance(found, str) else None
