"""Checks of a Framework: names, fields, types, bounds, and policies that have no effect or an unlikely one.

Source: docs/reference.md, "spec"; docs/manual.md, "Retry" and "Completion".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final, get_args

from pydantic import BaseModel, ValidationError

from frameworkcontroller.api import names
from frameworkcontroller.api.completion import ENDING_ACTIONS, FailureAction
from frameworkcontroller.api.inputmodel import whole
from frameworkcontroller.api.objects import DISRUPTION_TARGET
from frameworkcontroller.api.problems import KeyPath, shown, suggestion
from frameworkcontroller.api.spec import (
    RETRY_ALWAYS,
    RETRY_ON_FAILURE,
    DependencyStatus,
    ExitCodePattern,
    FailureRule,
    FrameworkSpec,
    Operator,
    PodForceDeletionPolicy,
    RetryPolicy,
    TaskRoleSpec,
    TaskSpec,
    check_hostnames,
    problems_of,
)
from frameworkcontroller.commands.lint import foreign
from frameworkcontroller.commands.lint.claims import check_claims
from frameworkcontroller.commands.lint.findings import Finding, error, warning
from frameworkcontroller.commands.lint.pods import DNS_LABEL, check_pod, fields_of
from frameworkcontroller.commands.lint.queues import check_queue

_TOP: Final = ("apiVersion", "kind", "metadata", "spec", "status")
_LONGEST_HOST_NAME: Final = 63
_GENERATED: Final = 5
_TIME_TO_RUN_SEC: Final = 30
_HOST_LIST_BYTES: Final = 100_000_000
"""Of all Pods. An API server stores and sends them, and etcd has room for 2 GiB by default."""

_TASKS_THAT_FIT: Final = 300
"""The status of this many always fits into an API object (docs/reference.md)."""


def check_framework(body: Mapping[Any, Any]) -> Iterator[Finding]:
    """Check an object of kind Framework."""
    yield from _unknown(body, _TOP, ())
    if body.get("apiVersion") != names.API_VERSION:
        yield error(("apiVersion",), f"must be {names.API_VERSION}", value=body.get("apiVersion"))
    if "status" in body:
        yield warning(("status",), "is written by the controller, and ignored when a Framework is created")
    yield from _metadata(body.get("metadata"))
    if "spec" not in body:
        yield error(("spec",), "is required: without one there is nothing to run")
        return
    spec = body["spec"]
    refused = list(_fields(spec))
    listed = spec.get("taskRoles") if isinstance(spec, dict) else ""
    roles = [] if listed is None else listed
    if not isinstance(roles, list) or not all(isinstance(role, dict) for role in roles):
        yield from refused
        return
    foreign_actions = {
        found.problem.path: found
        for position, role in enumerate(roles)
        for found in _foreign_actions(role, ("spec", "taskRoles", position))
    }
    # What a Framework has instead says more than the list of actions that it has.
    refused = [foreign_actions.get(found.problem.path, found) for found in refused]
    told = {(found.problem.path, found.problem.text) for found in refused}
    refused += [found for found in _role_names(roles) if (found.problem.path, found.problem.text) not in told]
    yield from refused
    if not roles:
        yield warning(("spec", "taskRoles"), "has no role: the Framework runs nothing, and never completes by itself")
        return
    yield from check_queue(body)
    metadata = body.get("metadata")
    framework = metadata.get("name") if isinstance(metadata, dict) else None
    networked = any(spec.get(field) is not None for field in ("network", "coordinator"))
    for position, role in enumerate(roles):
        yield from check_pod(role, ("spec", "taskRoles", position), networked=networked)
        yield from check_claims(role, ("spec", "taskRoles", position))
    if spec.get("network") is None:
        yield from _long_names(framework, roles)
    if not refused:
        parsed = FrameworkSpec.model_validate(spec, by_name=False, by_alias=True)
        # A wrong name is reported already, and says nothing of host names.
        if isinstance(framework, str) and names.is_valid_name(framework):
            if (unnamed := check_hostnames(framework, parsed)) is not None:
                yield Finding("error", unnamed)
            else:
                yield from _host_lists(framework, parsed)
        yield from _sizes(parsed)
        for position, valid in enumerate(parsed.task_roles):
            yield from _role_policies(valid, ("spec", "taskRoles", position))
            yield from _dependencies(parsed, valid, ("spec", "taskRoles", position))
        yield from _policies(parsed)
        yield from _deadlines(parsed)
        yield from _gangs(parsed)


def _metadata(metadata: Any) -> Iterator[Finding]:
    path: KeyPath = ("metadata",)
    if not isinstance(metadata, dict):
        yield error(path, "is required" if metadata is None else "must be a mapping")
        return
    yield from _unknown(metadata, fields_of("V1ObjectMeta"), path)
    name, prefix = metadata.get("name"), metadata.get("generateName")
    if name is None and prefix is None:
        yield error((*path, "name"), "is required")
    elif name is not None and not (isinstance(name, str) and names.is_valid_name(name)):
        yield error((*path, "name"), names.NAME_RULE, value=name)
    elif name is None and not (isinstance(prefix, str) and names.is_valid_name(prefix + "x" * _GENERATED)):
        yield error((*path, "generateName"), f"and {_GENERATED} characters more {names.NAME_RULE}", value=prefix)
    namespace = metadata.get("namespace")
    if namespace is not None and not (isinstance(namespace, str) and DNS_LABEL.fullmatch(namespace)):
        yield error((*path, "namespace"), "is not the name of a namespace", value=namespace)
    for field in ("labels", "annotations"):
        texts = metadata.get(field)
        if texts is not None and not isinstance(texts, dict):
            yield error((*path, field), "must be a mapping", value=texts)
            continue
        for key, value in (texts or {}).items():
            if not isinstance(value, str):
                yield error((*path, field, key), "must be text (put it in quotes)", value=value)


def _fields(spec: Any) -> Iterator[Finding]:
    """Find unknown fields of the spec, wrong types, and values out of bounds."""
    try:
        FrameworkSpec.model_validate(spec, by_name=False, by_alias=True)
    except ValidationError as refused:
        for problem in problems_of(refused, spec):
            yield Finding("error", problem)
    yield from _unknown_below(FrameworkSpec, spec, ("spec",))


def _unknown_below(model: type[BaseModel], value: Any, path: KeyPath) -> Iterator[Finding]:
    """Find fields that the API does not have, in this mapping and in those inside."""
    if not isinstance(value, dict):
        return
    fields = {info.alias or name: info.annotation for name, info in model.model_fields.items()}
    for found in value:
        if found not in fields:
            told = foreign.told(str(found)) if model in (FrameworkSpec, TaskRoleSpec, TaskSpec) else ""
            yield error((*path, found), told or f"unknown field{suggestion(str(found), fields)}")
    for key, annotation in fields.items():
        inner, here = value.get(key), (*path, key)
        for below in (annotation, *get_args(annotation)):
            if isinstance(below, type) and issubclass(below, BaseModel):
                yield from _unknown_below(below, inner, here)
                for position, item in enumerate(inner if isinstance(inner, list) else ()):
                    yield from _unknown_below(below, item, (*here, position))


def _unknown(mapping: Mapping[Any, Any], known: Any, path: KeyPath) -> Iterator[Finding]:
    for key in mapping:
        if key not in known:
            yield error((*path, key), f"unknown field{suggestion(str(key), known)}")


def _role_names(roles: list[dict[Any, Any]]) -> Iterator[Finding]:
    """Find all names of several roles. The spec's own check needs valid roles, and ends at the first name."""
    seen: dict[str, int] = {}
    for position, role in enumerate(roles):
        name = role.get("name")
        if isinstance(name, str) and seen.setdefault(name, position) != position:
            path = ("spec", "taskRoles", position, "name")
            yield error(path, f"is already the name of taskRoles[{seen[name]}]", value=name)


def _foreign_actions(role: Mapping[Any, Any], path: KeyPath) -> Iterator[Finding]:
    """Find actions of failure rules that were copied from another kind."""
    task = role.get("task")
    policy = task.get("podFailurePolicy") if isinstance(task, dict) else None
    rules = policy.get("rules") if isinstance(policy, dict) else None
    for position, rule in enumerate(rules if isinstance(rules, list) else ()):
        action = rule.get("action") if isinstance(rule, dict) else None
        if isinstance(action, str) and action in foreign.ACTIONS:
            kind, ours = foreign.ACTIONS[action]
            place = (*path, "task", "podFailurePolicy", "rules", position, "action")
            yield error(place, f"is an action of {kind}; that of a Framework is {ours}", value=action)


def _long_names(framework: Any, roles: list[dict[Any, Any]]) -> Iterator[Finding]:
    for position, role in enumerate(roles):
        name, number = role.get("name"), whole(role.get("taskNumber", 1))
        if isinstance(framework, str) and isinstance(name, str) and type(number) is int and number > 0:
            longest = names.pod_name(framework, name, number - 1)
            if len(longest) > _LONGEST_HOST_NAME:
                yield warning(
                    ("spec", "taskRoles", position, "name"),
                    f"makes Pod names of up to {len(longest)} characters ({shown(longest)}): as host names they are "
                    f"cut after {_LONGEST_HOST_NAME}, and several Pods may get the same",
                )


def _host_lists(framework: str, spec: FrameworkSpec) -> Iterator[Finding]:
    sizes = {position: (path, place, size) for position, path, place, size in spec.host_list_sizes(framework)}
    for position, (path, place, size) in sizes.items():
        number = spec.task_roles[position].task_number
        if number * size > _HOST_LIST_BYTES:
            yield warning(
                path,
                f"each of {number:,} Pods has a list of {size:,} bytes, {number * size // 10**6} MB in all: the "
                "barrier writes the addresses of all Tasks into files",
                value=place.text,
            )


def _sizes(spec: FrameworkSpec) -> Iterator[Finding]:
    if spec.task_count == 0:
        yield warning(("spec", "taskRoles"), "have no Task: the Framework runs nothing, and never completes by itself")
    if spec.task_count > _TASKS_THAT_FIT:
        yield warning(
            ("spec", "taskRoles"),
            f"have {spec.task_count:,} Tasks: beyond {_TASKS_THAT_FIT} or so a controller needs "
            "largeFrameworkCompression: true, or their status may not fit into an API object",
        )
    if spec.execution_type == "Stop":
        yield warning(("spec", "executionType"), "is Stop: a Framework that is created so completes without running")
    if spec.execution_type == "Create" and spec.suspend:
        yield warning(
            ("spec", "suspend"),
            "and executionType Create: it starts only after both are changed",
            value=True,
        )
    if spec.execution_type == "Stop" and spec.suspend:
        yield warning(("spec", "suspend"), "has no effect: executionType Stop completes the Framework", value=True)
    elif spec.suspend and not spec.dependents and sum(role.task_number > 0 for role in spec.task_roles) > 1:
        yield warning(
            ("spec", "suspend"),
            "Tasks that had completed run again after a resume, in all TaskRoles at once: dependsOn keeps their order",
            value=True,
        )


def _deadlines(spec: FrameworkSpec) -> Iterator[Finding]:
    active = spec.active_deadline_seconds
    if spec.ttl_seconds_after_finished == 0:
        yield warning(
            ("spec", "ttlSecondsAfterFinished"),
            "deletes the Framework as soon as it completes: only the history then has its result",
            value=0,
        )
    for position, role in enumerate(spec.task_roles):
        yield from _tight_deadline(role, ("spec", "taskRoles", position, "task"))
        here, path = role.task.pre_running_deadline_seconds, ("spec", "taskRoles", position, "task")
        if here is not None and active is not None and here >= active:
            yield warning(
                (*path, "preRunningDeadlineSeconds"),
                f"has no effect: the Framework ends before, by its activeDeadlineSeconds {active}",
                value=here,
            )
        pod_spec = role.task.pod.decoded().get("spec")
        of_pod = pod_spec.get("activeDeadlineSeconds") if isinstance(pod_spec, dict) else None
        if isinstance(of_pod, int) and active is not None and of_pod >= active:
            yield warning(
                (*path, "pod", "spec", "activeDeadlineSeconds"),
                f"has no effect: the Framework ends before, by its activeDeadlineSeconds {active}",
                value=of_pod,
            )


def _gangs(spec: FrameworkSpec) -> Iterator[Finding]:
    gang = None if spec.scheduling is None else spec.scheduling.scheduling_policy.gang
    if gang is None or gang.min_count is None:
        return
    sizes: Counter[str] = Counter()
    for role in spec.task_roles:
        sizes[spec.group_of("", role)] += role.task_number
    if gang.min_count > (largest := max(sizes.values(), default=0)):
        yield warning(
            ("spec", "scheduling", "schedulingPolicy", "gang", "minCount"),
            f"is more than the {largest} Tasks that start together, and means all of them",
            value=gang.min_count,
        )


def _tight_deadline(role: TaskRoleSpec, path: KeyPath) -> Iterator[Finding]:
    deadline, retry = role.task.pre_running_deadline_seconds, role.task.retry_policy
    endless = retry.fancy_retry_policy or retry.max_retry_count in (RETRY_ALWAYS, RETRY_ON_FAILURE)
    if deadline is not None and deadline < _TIME_TO_RUN_SEC and endless:
        yield warning(
            (*path, "preRunningDeadlineSeconds"),
            "is shorter than many Pods take to be scheduled and to pull their images: with this retryPolicy they are "
            "deleted and created again without end",
            value=deadline,
        )


def _role_policies(role: TaskRoleSpec, path: KeyPath) -> Iterator[Finding]:
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
        ("minFailedTaskCount", failed, failed >= 1 and not _can_fail(role), never_fails),
        ("minSucceededTaskCount", succeeded, succeeded >= 1 and retry.max_retry_count == RETRY_ALWAYS, run_again),
    ):
        if unreachable:
            place = (*path, "frameworkAttemptCompletionPolicy", field)
            yield warning(place, f"can never be reached: {reason}", value=minimum)
    yield from _backoff(retry, (*path, "task", "retryPolicy"))
    force = role.task.pod_force_deletion_policy
    if force is not PodForceDeletionPolicy.ALWAYS and role.task.pod_graceful_deletion_timeout_sec is None:
        yield warning(
            (*path, "task", "podForceDeletionPolicy"),
            "has no effect without podGracefulDeletionTimeoutSec: no Pod is force-deleted",
            value=force.value,
        )
    pod_spec = role.task.pod.decoded().get("spec")
    if not isinstance(pod_spec, dict):
        return  # an error, reported elsewhere
    yield from _failure_rules(role, pod_spec, (*path, "task", "podFailurePolicy", "rules"))
    restart = pod_spec.get("restartPolicy")
    if restart == "OnFailure" and (failed >= 1 or retry.max_retry_count > 0 or retry.fancy_retry_policy):
        yield warning(
            (*path, "task", "pod", "spec", "restartPolicy"),
            "is OnFailure: the kubelet restarts a container that fails in place, without a limit, so that neither "
            "retryPolicy nor minFailedTaskCount takes effect; with Never they do",
        )
    missing = not isinstance(restart, str)
    if (missing or restart == "Always") and retry.max_retry_count != RETRY_ALWAYS and role.task_number > 0:
        yield warning(
            (*path, "task", "pod", "spec", "restartPolicy"),
            f"is {'missing, which is ' if missing else ''}Always: containers that end are started again in place, so "
            "that no Task ever completes; retries and completion policies are for Never (or OnFailure)",
        )


def _failure_rules(role: TaskRoleSpec, pod_spec: Mapping[Any, Any], path: KeyPath) -> Iterator[Finding]:
    listed = [pod_spec.get(field) or () for field in ("initContainers", "containers")]
    known = {one.get("name") for part in listed if isinstance(part, list) for one in part if isinstance(one, dict)}
    for position, rule in enumerate(_rules(role)):
        for number, condition in enumerate(rule.on_pod_conditions):
            meant = suggestion(condition.type, (DISRUPTION_TARGET,))
            if meant and condition.type != DISRUPTION_TARGET:
                where = (*path, position, "onPodConditions", number, "type")
                yield warning(where, f"is not a condition that Kubernetes sets{meant}", value=condition.type)
        pattern = rule.on_exit_codes
        if pattern is None:
            continue
        for earlier, before in enumerate(_rules(role)[:position]):
            if before.on_exit_codes is not None and _covers(before.on_exit_codes, pattern):
                yield warning(
                    (*path, position), f"never matches: rules[{earlier}] matches all of its exit codes before"
                )
                break
        name, place = pattern.container_name, (*path, position, "onExitCodes")
        if name is not None and name not in known:
            text = f"is not the name of a container of the Pod{suggestion(name, filter(None, known))}"
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
    policy = role.task.pod_failure_policy
    return () if policy is None else policy.rules


def _has_action(role: TaskRoleSpec, *actions: FailureAction) -> bool:
    return role.task_number > 0 and any(rule.action in actions for rule in _rules(role))


def _backoff(policy: RetryPolicy, path: KeyPath) -> Iterator[Finding]:
    if policy.backoff is not None and not policy.fancy_retry_policy and policy.max_retry_count == 0:
        yield warning((*path, "backoff"), "has no effect: with maxRetryCount 0 nothing is retried")


def _dependencies(spec: FrameworkSpec, role: TaskRoleSpec, path: KeyPath) -> Iterator[Finding]:
    for number, dependency in enumerate(role.depends_on):
        awaited = spec.role(dependency.name)
        if awaited is None or dependency.status is not DependencyStatus.COMPLETE or awaited.task_number == 0:
            continue
        minimum = awaited.framework_attempt_completion_policy.min_succeeded_task_count
        never = ""
        pod_spec = awaited.task.pod.decoded().get("spec")
        if isinstance(pod_spec, dict) and pod_spec.get("restartPolicy", "Always") == "Always":
            never = "its Pods never end (restartPolicy Always)"
        elif awaited.task.retry_policy.max_retry_count == RETRY_ALWAYS:
            never = "with task.retryPolicy.maxRetryCount -2 its Tasks are run again and again"
        elif 1 <= minimum <= awaited.task_number:
            never = f"its minSucceededTaskCount {minimum} completes the attempt before"
        if never:
            text = f"{role.name} never starts, as {awaited.name} is never Complete: {never}"
            yield warning((*path, "dependsOn", number), text)


def _policies(spec: FrameworkSpec) -> Iterator[Finding]:
    yield from _backoff(spec.retry_policy, ("spec", "retryPolicy"))
    roles = [
        (role, role.framework_attempt_completion_policy, role.task.retry_policy)
        for role in spec.task_roles
        if role.task_number > 0
    ]
    ending = [(role, policy) for role, policy, retry in roles if retry.max_retry_count != RETRY_ALWAYS]
    if not ending:
        return  # a service
    can_fail = any(
        1 <= policy.min_failed_task_count <= role.task_number and _can_fail(role) for role, policy, _ in roles
    ) or any(_has_action(role, *ENDING_ACTIONS) for role, _, _ in roles)
    by_policy = can_fail or any(1 <= policy.min_succeeded_task_count <= role.task_number for role, policy in ending)
    path: KeyPath = ("spec", "taskRoles")
    endless = ", ".join(role.name for role, _, retry in roles if retry.max_retry_count == RETRY_ALWAYS)
    if endless and not by_policy:
        yield warning(
            path,
            f"can never complete: {endless} is retried forever (maxRetryCount -2), and no other role has a completion "
            "policy that completes the attempt without it",
        )
    # A minimum of -1 is a policy: it is a decision.
    elif not by_policy and any(
        policy.min_failed_task_count == policy.min_succeeded_task_count == 0 for _, policy in ending
    ):
        yield warning(
            path,
            "have no completion policy: the Framework succeeds once all Tasks have ended, even if "
            "all of them failed; minFailedTaskCount: 1 lets it fail",
        )
    retries = spec.retry_policy.max_retry_count
    if not can_fail and (retries >= 1 or retries == RETRY_ON_FAILURE):
        yield warning(
            ("spec", "retryPolicy", "maxRetryCount"),
            "has no effect: neither a role's minFailedTaskCount nor a failure rule can make an attempt fail",
            value=retries,
        )


def _can_fail(role: TaskRoleSpec) -> bool:
    """Return whether a Task can complete as failed; with the fancy policy, a permanent failure always can."""
    retry = role.task.retry_policy
    if retry.fancy_retry_policy or _has_action(role, FailureAction.FAIL_TASK):
        return True
    return retry.max_retry_count not in (RETRY_ALWAYS, RETRY_ON_FAILURE)
