"""Checks of a valid spec: policies, deadlines and orders without effect, or with an unlikely one.

Source: docs/failures-and-retries.md, "Retry" and "Completion".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from frameworkcontroller.api.completion import ENDING_ACTIONS, FailureAction
from frameworkcontroller.api.objects import DISRUPTION_TARGET
from frameworkcontroller.api.problems import KeyPath, shown, suggestion
from frameworkcontroller.api.spec import (
    MAX_AVOIDED_IN_ALL,
    RETRY_ALWAYS,
    RETRY_ON_FAILURE,
    DependencyStatus,
    ExecutionType,
    ExitCodePattern,
    FailureRule,
    FrameworkSpec,
    Operator,
    PodForceDeletionPolicy,
    RetryPolicy,
    TaskRoleSpec,
)
from frameworkcontroller.commands.lint.findings import Finding, mappings, warning

_TIME_TO_RUN_SEC: Final = 30
_TASKS_THAT_FIT: Final = 300
"""The status of this many always fits into an API object (docs/reference.md)."""

_ROLES: Final = ("spec", "taskRoles")


def check_spec(spec: FrameworkSpec) -> Iterator[Finding]:
    """Check the spec."""
    yield from _size_and_start(spec)
    yield from _gang(spec)
    yield from _backoff(spec.retry_policy, ("spec", "retryPolicy"))
    yield from _completion(spec)
    yield from _progress(spec)
    for position, role in enumerate(spec.task_roles):
        pod_spec = role.task.pod.decoded().get("spec")
        path = (*_ROLES, position)
        yield from _dependencies(spec, role, path)
        yield from _deadlines(spec, role, (*path, "task"))
        yield from _minima(role, (*path, "frameworkAttemptCompletionPolicy"))
        yield from _disruption_budget(role, (*path, "disruptionBudget", "maxUnavailable"))
        yield from _autoscaling(spec, role, (*path, "autoscaling"))
        yield from _task(role, (*path, "task"))
        yield from _avoided_nodes(spec, role, (*path, "task", "retryPolicy", "avoidNodes"))
        if isinstance(pod_spec, dict):  # else an error, reported elsewhere
            yield from _readiness(role, pod_spec.get("containers"), (*path, "updateStrategy"))
            yield from _failure_rules(role, pod_spec, (*path, "task", "podFailurePolicy", "rules"))
            yield from _restart_policy(role, pod_spec.get("restartPolicy"), (*path, "task", "pod", "spec"))


def _size_and_start(spec: FrameworkSpec) -> Iterator[Finding]:
    execution, tasks = spec.execution_type, spec.task_count
    if tasks == 0:
        yield warning(_ROLES, "have no Task: the Framework runs nothing, and never completes by itself")
    if tasks > _TASKS_THAT_FIT:
        yield warning(
            _ROLES,
            f"have {tasks:,} Tasks: beyond {_TASKS_THAT_FIT} or so a controller needs "
            "largeFrameworkCompression: true, or their status may not fit into an API object",
        )
    if execution is ExecutionType.STOP:
        yield warning(("spec", "executionType"), "is Stop: a Framework that is created so completes without running")
    if spec.ttl_seconds_after_finished == 0:
        text = "deletes the Framework as soon as it completes: only the history then has its result"
        yield warning(("spec", "ttlSecondsAfterFinished"), text, value=0)
    if not spec.suspend:
        return
    suspend: KeyPath = ("spec", "suspend")
    if execution is ExecutionType.CREATE:
        yield warning(suspend, "and executionType Create: it starts only after both are changed", value=True)
    if execution is ExecutionType.STOP:
        yield warning(suspend, "has no effect: executionType Stop completes the Framework", value=True)
    elif not spec.dependents and sum(role.task_number > 0 for role in spec.task_roles) > 1:
        text = "Tasks that had completed run again after a resume, in all TaskRoles at once: dependsOn keeps"
        yield warning(suspend, f"{text} their order", value=True)


def _gang(spec: FrameworkSpec) -> Iterator[Finding]:
    gang = None if spec.scheduling is None else spec.scheduling.scheduling_policy.gang
    if gang is None or gang.min_count is None:
        return
    sizes: Counter[str] = Counter()
    for role in spec.task_roles:
        sizes[spec.group_of("", role)] += role.task_number
    if gang.min_count > (largest := max(sizes.values())):
        path = ("spec", "scheduling", "schedulingPolicy", "gang", "minCount")
        text = f"is more than the {largest} Tasks that start together, and means all of them"
        yield warning(path, text, value=gang.min_count)


def _backoff(policy: RetryPolicy, path: KeyPath) -> Iterator[Finding]:
    if policy.backoff is not None and not policy.fancy_retry_policy and policy.max_retry_count == 0:
        yield warning((*path, "backoff"), "has no effect: with maxRetryCount 0 nothing is retried")


def _dependencies(spec: FrameworkSpec, role: TaskRoleSpec, path: KeyPath) -> Iterator[Finding]:
    for number, dependency in enumerate(role.depends_on):
        awaited = spec.role(dependency.name)
        if awaited is None or dependency.status is not DependencyStatus.COMPLETE or awaited.task_number == 0:
            continue
        minimum = awaited.framework_attempt_completion_policy.min_succeeded_task_count
        if (awaited.task.in_spec("restartPolicy") or "Always") == "Always":
            never = "its Pods never end (restartPolicy Always)"
        elif awaited.task.retry_policy.max_retry_count == RETRY_ALWAYS:
            never = "with task.retryPolicy.maxRetryCount -2 its Tasks are run again and again"
        elif 1 <= minimum <= awaited.task_number:
            never = f"its minSucceededTaskCount {minimum} completes the attempt before"
        else:
            continue
        text = f"{role.name} never starts, as {awaited.name} is never Complete: {never}"
        yield warning((*path, "dependsOn", number), text)


def _progress(spec: FrameworkSpec) -> Iterator[Finding]:
    if spec.progress is not None and spec.coordinator is None and len(spec.task_roles) > 1:
        text = "needs coordinator, which names the role that reports: without one the Pods of all roles do"
        yield warning(("spec", "progress"), text)


def _deadlines(spec: FrameworkSpec, role: TaskRoleSpec, path: KeyPath) -> Iterator[Finding]:
    active, before_running = spec.active_deadline_seconds, role.task.pre_running_deadline_seconds
    retry = role.task.retry_policy
    endless = retry.fancy_retry_policy or retry.max_retry_count in (RETRY_ALWAYS, RETRY_ON_FAILURE)
    if before_running is not None and before_running < _TIME_TO_RUN_SEC and endless:
        yield warning(
            (*path, "preRunningDeadlineSeconds"),
            "is shorter than many Pods take to be scheduled and to pull their images: with this retryPolicy they are "
            "deleted and created again without end",
            value=before_running,
        )
    for field, deadline in (
        (("preRunningDeadlineSeconds",), before_running),
        (("pod", "spec", "activeDeadlineSeconds"), role.task.in_spec("activeDeadlineSeconds")),
    ):
        if isinstance(deadline, int) and active is not None and deadline >= active:
            text = f"has no effect: the Framework ends before, by its activeDeadlineSeconds {active}"
            yield warning((*path, *field), text, value=deadline)


def _minima(role: TaskRoleSpec, path: KeyPath) -> Iterator[Finding]:
    policy, retries = role.framework_attempt_completion_policy, role.task.retry_policy.max_retry_count
    failed, succeeded = policy.min_failed_task_count, policy.min_succeeded_task_count
    too_few = f"the role has {role.task_number} Tasks"
    with_retries = f"with task.retryPolicy.maxRetryCount {retries} a Task that"
    never_fails = f"{with_retries} fails is retried and never counts as failed"
    for field, minimum, unreachable, reason in (
        ("minFailedTaskCount", failed, failed > role.task_number, too_few),
        ("minSucceededTaskCount", succeeded, succeeded > role.task_number, too_few),
        ("minFailedTaskCount", failed, failed >= 1 and not _can_fail(role), never_fails),
        (
            "minSucceededTaskCount",
            succeeded,
            succeeded >= 1 and retries == RETRY_ALWAYS,
            f"{with_retries} succeeds is run again",
        ),
    ):
        if unreachable:
            yield warning((*path, field), f"can never be reached: {reason}", value=minimum)


def _disruption_budget(role: TaskRoleSpec, path: KeyPath) -> Iterator[Finding]:
    if (budget := role.disruption_budget) is None or role.most_tasks == 0:
        return
    if (most := budget.max_unavailable) == 0:
        text = "forbids every eviction: kubectl drain of a node with a Pod of the role waits until the Pod ends"
        yield warning(path, text, value=most)
    elif most >= role.most_tasks:
        yield warning(path, f"has no effect: the role has at most {role.most_tasks} Tasks", value=most)


def _autoscaling(spec: FrameworkSpec, role: TaskRoleSpec, path: KeyPath) -> Iterator[Finding]:
    has_gang = spec.scheduling is not None and spec.scheduling.scheduling_policy.gang is not None
    if role.autoscaling is not None and has_gang:
        text = "with a gang: added Tasks are placed one by one, as its minimum grows only with the next attempt"
        yield warning(path, text)


def _readiness(role: TaskRoleSpec, containers: Any, path: KeyPath) -> Iterator[Finding]:
    if role.rolling_update is None or role.task_number < 2 or not isinstance(containers, list):
        return
    if not any(isinstance(container, dict) and container.get("readinessProbe") for container in containers):
        text = "replaces the next Task as soon as a container runs: no container has a readinessProbe"
        yield warning((*path, "type"), text, value=role.update_strategy.type.value)


def _task(role: TaskRoleSpec, path: KeyPath) -> Iterator[Finding]:
    force = role.task.pod_force_deletion_policy
    yield from _backoff(role.task.retry_policy, (*path, "retryPolicy"))
    if force is not PodForceDeletionPolicy.ALWAYS and role.task.pod_graceful_deletion_timeout_sec is None:
        text = "has no effect without podGracefulDeletionTimeoutSec: no Pod is force-deleted"
        yield warning((*path, "podForceDeletionPolicy"), text, value=force.value)


def _avoided_nodes(spec: FrameworkSpec, role: TaskRoleSpec, path: KeyPath) -> Iterator[Finding]:
    policy = role.task.retry_policy.avoid_nodes
    if policy is None:
        return
    retried = any(
        one.fancy_retry_policy or one.max_retry_count != 0 for one in (spec.retry_policy, role.task.retry_policy)
    )
    by_rule = any(rule.action in (FailureAction.IGNORE, FailureAction.RESTART_FRAMEWORK) for rule in _rules(role))
    if not retried and not by_rule:
        yield warning(path, "has no effect: neither the Task nor the Framework is retried")
    elif (node := role.task.in_spec("nodeName")) is not None:
        text = "has no effect: the Pods name their node, and no scheduler chooses another one"
        yield warning(path, f"{text} (pod.spec.nodeName {shown(node)})")
    largest = max(1, MAX_AVOIDED_IN_ALL // max(1, spec.task_count))
    if policy.limit > largest:
        text = (
            f"is more than a status has room for: with {spec.task_count:,} Tasks, each avoids at most {largest} nodes"
        )
        yield warning((*path, "limit"), text, value=policy.limit)
    deadline = role.task.pre_running_deadline_seconds
    if deadline is not None and deadline <= policy.relax_after_seconds:
        text = f"has no effect: preRunningDeadlineSeconds {deadline} ends the attempt before, which counts as a retry"
        yield warning((*path, "relaxAfterSeconds"), text, value=policy.relax_after_seconds)


def _restart_policy(role: TaskRoleSpec, restart: Any, path: KeyPath) -> Iterator[Finding]:
    place, retry = (*path, "restartPolicy"), role.task.retry_policy
    counts_failures = role.framework_attempt_completion_policy.min_failed_task_count >= 1
    if restart == "OnFailure" and (counts_failures or retry.max_retry_count > 0 or retry.fancy_retry_policy):
        yield warning(
            place,
            "is OnFailure: the kubelet restarts a container that fails in place, without a limit, so that neither "
            "retryPolicy nor minFailedTaskCount takes effect; with Never they do",
        )
    missing = not isinstance(restart, str)
    if (missing or restart == "Always") and retry.max_retry_count != RETRY_ALWAYS and role.task_number > 0:
        yield warning(
            place,
            f"is {'missing, which is ' if missing else ''}Always: containers that end are started again in place, so "
            "that no Task ever completes; retries and completion policies are for Never (or OnFailure)",
        )


def _failure_rules(role: TaskRoleSpec, pod_spec: Mapping[Any, Any], path: KeyPath) -> Iterator[Finding]:
    listed = [container for field in ("initContainers", "containers") for container in mappings(pod_spec.get(field))]
    known = {name for _, container in listed if isinstance(name := container.get("name"), str)}
    rules = _rules(role)
    for position, rule in enumerate(rules):
        for number, condition in enumerate(rule.on_pod_conditions):
            meant = suggestion(condition.type, (DISRUPTION_TARGET,))
            if meant and condition.type != DISRUPTION_TARGET:
                where = (*path, position, "onPodConditions", number, "type")
                yield warning(where, f"is not a condition that Kubernetes sets{meant}", value=condition.type)
        pattern, place = rule.on_exit_codes, (*path, position, "onExitCodes")
        if pattern is None:
            continue
        for earlier, before in enumerate(rules[:position]):
            if before.on_exit_codes is not None and _covers(before.on_exit_codes, pattern):
                text = f"never matches: rules[{earlier}] matches all of its exit codes before"
                yield warning((*path, position), text)
                break
        name = pattern.container_name
        if name is not None and name not in known:
            text = f"is not the name of a container of the Pod{suggestion(name, known)}"
            yield warning((*place, "containerName"), text, value=name)
        if pod_spec.get("restartPolicy") == "OnFailure":
            yield warning(
                place,
                "can hardly match: with restartPolicy OnFailure the kubelet restarts containers that fail, and the Pod "
                "does not fail",
            )


def _covers(before: ExitCodePattern, pattern: ExitCodePattern) -> bool:
    return (
        before.container_name == pattern.container_name
        and pattern.operator is Operator.IN
        and all(code in before for code in pattern.values)
    )


def _rules(role: TaskRoleSpec) -> tuple[FailureRule, ...]:
    return () if role.task.pod_failure_policy is None else role.task.pod_failure_policy.rules


def _completion(spec: FrameworkSpec) -> Iterator[Finding]:
    roles = [(role, role.framework_attempt_completion_policy) for role in spec.task_roles if role.task_number > 0]
    endless = [role.name for role, _ in roles if role.task.retry_policy.max_retry_count == RETRY_ALWAYS]
    ending = [(role, policy) for role, policy in roles if role.name not in endless]
    if not ending:
        return  # a service
    can_fail = any(
        (1 <= policy.min_failed_task_count <= role.task_number and _can_fail(role))
        or any(rule.action in ENDING_ACTIONS for rule in _rules(role))
        for role, policy in roles
    )
    by_policy = can_fail or any(1 <= policy.min_succeeded_task_count <= role.task_number for role, policy in ending)
    if endless and not by_policy:
        yield warning(
            _ROLES,
            f"can never complete: {', '.join(endless)} is retried forever (maxRetryCount -2), and no other role has a "
            "completion policy that completes the attempt without it",
        )
    # A minimum of -1 is a policy: it is a decision.
    elif not by_policy and any(
        policy.min_failed_task_count == policy.min_succeeded_task_count == 0 for _, policy in ending
    ):
        yield warning(
            _ROLES,
            "have no completion policy: the Framework succeeds once all Tasks have ended, even if "
            "all of them failed; minFailedTaskCount: 1 lets it fail",
        )
    retries = spec.retry_policy.max_retry_count
    if not can_fail and (retries >= 1 or retries == RETRY_ON_FAILURE):
        text = "has no effect: neither a role's minFailedTaskCount nor a failure rule can make an attempt fail"
        yield warning(("spec", "retryPolicy", "maxRetryCount"), text, value=retries)


def _can_fail(role: TaskRoleSpec) -> bool:
    """Return whether a Task can complete as failed; with the fancy policy, a permanent failure always can."""
    retry = role.task.retry_policy
    by_rule = role.task_number > 0 and any(rule.action is FailureAction.FAIL_TASK for rule in _rules(role))
    return retry.fancy_retry_policy or by_rule or retry.max_retry_count not in (RETRY_ALWAYS, RETRY_ON_FAILURE)
