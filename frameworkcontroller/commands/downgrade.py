"""``prepare-downgrade``: find the Frameworks that an older controller would mistreat, and hold those that wait.

Source: docs/migration.md, "Back". The controller never writes a spec; this command does, for the person who runs it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from rich.text import Text

from frameworkcontroller.api import names
from frameworkcontroller.api.codec import StatusError, decode_status
from frameworkcontroller.api.completion import (
    ALWAYS_RETRIED,
    ENDING_ACTIONS,
    FRAMEWORK_ACTIVE_DEADLINE_EXCEEDED,
    CompletionStatus,
    FailureAction,
)
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.api.spec import (
    ClaimRetentionPolicy,
    ExecutionType,
    FrameworkSpec,
    PodForceDeletionPolicy,
    SpecError,
    TaskRoleSpec,
    parse_spec,
)
from frameworkcontroller.api.status import FrameworkStatus, State, TaskStatus
from frameworkcontroller.commands import program
from frameworkcontroller.commands.historyfinalizer import find_held, let_go
from frameworkcontroller.commands.invocation import Invocation
from frameworkcontroller.commands.objects import Json, condition_of, is_suspended, key_of, state_of
from frameworkcontroller.commands.output import clean_line, counted, table
from frameworkcontroller.commands.workloads import (
    FORBIDDEN,
    Workload,
    find_workloads,
    read_framework,
    release,
    still_runs,
)
from frameworkcontroller.kube.errors import Forbidden

T = TypeVar("T")

_NEW_CODES: Final = ALWAYS_RETRIED | {FRAMEWORK_ACTIVE_DEADLINE_EXCEEDED.code}
"""Completion codes whose retry an older controller decides by the retryPolicy."""

_TERMINATING: Final = frozenset({State.DELETION_REQUESTED, State.DELETING})
_LARGEST_GROUP: Final = 3


@dataclass(frozen=True, slots=True)
class Subject:
    """A Framework as the command reads it. ``suspended``: nothing of it runs, as its condition says.

    ``queued``: it has the label of a queue. ``admitted``: it has quota.
    """

    spec: FrameworkSpec
    status: FrameworkStatus | None
    suspended: bool
    queued: bool
    admitted: bool

    @property
    def completed(self) -> bool:
        """Whether it has completed, so that no decision follows."""
        return self.status is not None and self.status.state is State.COMPLETED

    @property
    def starts(self) -> bool:
        """Whether an older controller would start it, if it has not begun."""
        return self.spec.execution_type is ExecutionType.START

    @property
    def waits_in_queue(self) -> bool:
        """Whether its attempt has not begun, as Kueue has not admitted it."""
        is_pending = self.status is None or self.status.state is State.CREATION_PENDING
        return self.queued and not self.admitted and is_pending and not self.ends

    @property
    def ends(self) -> bool:
        """Whether the completion of its attempt is decided."""
        return self.status is not None and self.status.attempt.completion_status is not None


Blocks = Callable[[Subject], Iterator[str]]


def _nothing(_: Subject) -> Iterator[str]:
    return iter(())


@dataclass(frozen=True, slots=True)
class NewField:
    """A field of the spec that the original controller, and each version before it, does not know.

    Attributes:
        name: the last part of its path.
        older: what an older controller does in its place.
        is_used: whether a spec has it.
        blocks: why an older controller must not take over now.
    """

    name: str
    older: str
    is_used: Callable[[FrameworkSpec], bool]
    blocks: Blocks = _nothing


def _by_role(is_used: Callable[[TaskRoleSpec], bool]) -> Callable[[FrameworkSpec], bool]:
    return lambda spec: any(map(is_used, spec.task_roles))


# --- what an older controller would mistreat ---


def _suspension(one: Subject) -> Iterator[str]:
    if not one.spec.suspend or one.spec.execution_type is ExecutionType.STOP:
        return
    # Without a status, no controller has begun.
    if not one.suspended and one.status is not None:
        yield "something of it may still run, though spec.suspend is true: wait until its condition Suspended is True"


def _waiting_roles(one: Subject) -> Iterator[str]:
    if one.spec.suspend or one.spec.execution_type is not ExecutionType.START or one.ends or one.status is None:
        return
    started = {role.name for role in one.status.attempt.roles if role.started}
    waiting = [role.name for role in one.spec.dependents if role.name not in started and role.task_number]
    if waiting:
        yield f"an older controller starts {_listed(waiting)} at once: wait for the start, or suspend the Framework"


def _decided_rules(one: Subject) -> Iterator[str]:
    if one.status is None:
        return
    final = one.status.attempt.completion_status
    if final is not None:
        if _action(final) is FailureAction.FAIL_FRAMEWORK:
            yield "its attempt ends by the rule FailFramework, and an older controller may retry it: wait for its end"
        return
    ruled = [
        f"{task.role}[{task.index}]"
        for task in _tasks(one.status)
        if (action := _action(task.attempt.completion_status)) not in (None, FailureAction.COUNT)
        and (action in ENDING_ACTIONS or task.state is not State.COMPLETED)
    ]
    if ruled:
        yield f"a failure rule decides what follows {_listed(ruled)}, which an older controller does not know: wait"


def _spared_pods(one: Subject) -> Iterator[str]:
    if one.status is None:
        return
    roles = [
        role
        for role in one.status.attempt.roles
        if role.pod_force_deletion_policy not in (None, PodForceDeletionPolicy.ALWAYS)
        and role.pod_graceful_deletion_timeout_sec is not None
    ]
    pods = [f"{role.name}[{task.index}]" for role in roles for task in role.tasks if task.state in _TERMINATING]
    if pods:
        yield f"an older controller force-deletes the Pod of {_listed(pods)} even if its node runs it: wait for its end"


def _claims(one: Subject) -> Iterator[str]:
    roles = [role.name for role in one.spec.task_roles if role.volume_claim_templates and role.task_number]
    if roles and one.spec.execution_type is ExecutionType.START and not one.spec.suspend:
        text = f"an older controller creates Pods of {_listed(roles)} without their volumes"
        yield f"{text}: suspend the Framework, or wait for its end"


def _quota(one: Subject) -> Iterator[str]:
    if one.admitted:
        text = "it has quota of Kueue, which an older controller never gives back"
        yield f"{text}: suspend the Framework, or wait for its end"


def _new_codes(one: Subject) -> Iterator[str]:
    final = None if one.status is None else one.status.attempt.completion_status
    if final is not None and final.is_one_of(_NEW_CODES):
        yield (
            f"its attempt ends with {final.code}, after which an older controller would follow the retryPolicy: wait "
            "until that is over"
        )


FIELDS: Final = (
    NewField("suspend", "starts it", lambda spec: spec.suspend, _suspension),
    NewField(
        "ttlSecondsAfterFinished",
        "keeps it for frameworkCompletedRetainSec",
        lambda spec: spec.ttl_seconds_after_finished is not None,
    ),
    NewField("activeDeadlineSeconds", "lets it run on after it", lambda spec: spec.active_deadline_seconds is not None),
    NewField(
        "preRunningDeadlineSeconds",
        "waits for a Pod without end",
        _by_role(lambda role: role.task.pre_running_deadline_seconds is not None),
    ),
    NewField(
        "podFailurePolicy",
        "follows the retryPolicy alone",
        _by_role(lambda role: role.task.pod_failure_policy is not None),
        _decided_rules,
    ),
    NewField(
        "backoff",
        "retries at once",
        lambda spec: any(policy.backoff is not None for policy in _retry_policies(spec)),
    ),
    NewField("dependsOn", "starts all roles at once", _by_role(lambda role: bool(role.depends_on)), _waiting_roles),
    NewField(
        "podForceDeletionPolicy",
        "force-deletes Pods on each node after podGracefulDeletionTimeoutSec",
        _by_role(lambda role: role.task.pod_force_deletion_policy is not PodForceDeletionPolicy.ALWAYS),
        _spared_pods,
    ),
    NewField(
        "volumeClaimTemplates",
        "creates Pods without these volumes, and leaves the claims",
        _by_role(lambda role: bool(role.volume_claim_templates)),
        _claims,
    ),
    NewField(
        "persistentVolumeClaimRetentionPolicy",
        "deletes no claim after a scale-down",
        _by_role(lambda role: role.persistent_volume_claim_retention_policy != ClaimRetentionPolicy()),
    ),
    NewField("network", "creates Pods without host names", lambda spec: spec.network is not None),
    NewField("coordinator", "leaves the new placeholders as they are", lambda spec: spec.coordinator is not None),
    NewField("scheduling", "creates Pods outside of their gang", lambda spec: spec.scheduling is not None),
)
"""The fields that an older controller ignores. tests/unit/commands/test_downgrade.py compares them with the spec."""


QUEUE: Final = NewField(names.QUEUE_NAME, "starts it at once, without quota", lambda _: False, _quota)
"""The label of a queue, which is not in the spec."""


def _retry_policies(spec: FrameworkSpec) -> Iterator[Any]:
    yield spec.retry_policy
    for role in spec.task_roles:
        yield role.task.retry_policy


def _tasks(status: FrameworkStatus) -> Iterator[TaskStatus]:
    for role in status.attempt.roles:
        yield from role.tasks


def _action(completion: CompletionStatus | None) -> FailureAction | None:
    return None if completion is None or completion.policy is None else completion.policy.action


def _listed(items: list[str]) -> str:
    more = len(items) - _LARGEST_GROUP
    return f"{', '.join(items[:_LARGEST_GROUP])}{f' and {more} more' if more > 0 else ''}"


# --- the command ---


@dataclass(frozen=True, slots=True)
class Finding:
    """A Framework that matters. ``hold``: whether it is to be set to executionType Create.

    ``suspend``: whether it is to be suspended before, as a Framework that has its executionType Start must be.
    """

    key: str
    fields: tuple[NewField, ...]
    blocks: tuple[str, ...]
    hold: bool
    suspend: bool = False

    @property
    def would_start(self) -> bool:
        """Whether it waits for something that an older controller does not know."""
        return self.hold or self.suspend


def examine(framework: Mapping[str, Any]) -> Finding:
    """Examine an API object."""
    key = key_of(framework)
    try:
        spec, status = parse_spec(framework.get("spec")), decode_status(framework.get("status"))
    except (SpecError, StatusError) as error:
        return Finding(key, (), (f"it cannot be read: {clean_line(str(error))}",), hold=False)
    one = Subject(
        spec,
        status,
        suspended=condition_of(framework, "Suspended").get("status") == "True",
        queued=bool((framework["metadata"].get("labels") or {}).get(names.QUEUE_NAME)),
        admitted=bool((framework.get("status") or {}).get("admission")),
    )
    fields = tuple(field for field in FIELDS if field.is_used(spec))
    if one.queued or one.admitted:
        fields = (*fields, QUEUE)
    if one.completed:
        return Finding(key, fields, (), hold=False)
    # A field that was removed may have decided before.
    blocks = tuple(text for each in (_new_codes, *(field.blocks for field in (*FIELDS, QUEUE))) for text in each(one))
    starts = one.starts and not blocks
    suspend = starts and not spec.suspend and one.waits_in_queue
    return Finding(key, fields, blocks, starts and spec.suspend, suspend)


async def run(invocation: Invocation, options: argparse.Namespace) -> int:
    """Show the findings, and with ``--yes`` hold those that wait. Return the exit code: 0 if all are ready."""
    everywhere = options.namespace is None
    found = [examine(body) async for body in invocation.each(FRAMEWORKS, all_namespaces=everywhere)]
    total, found = len(found), [one for one in found if one.fields or one.blocks]
    done = {one.key: await _hold(invocation, one) if options.yes and one.would_start else "" for one in found}
    _print(invocation, found, done)
    left = await _release_workloads(invocation, found, everywhere=everywhere, yes=options.yes)
    held = await _release_history(invocation, everywhere=everywhere, yes=options.yes)
    blocked = sum(bool(one.blocks or (done[one.key] and done[one.key] != _HELD)) for one in found)
    waiting = 0 if options.yes else sum(one.would_start for one in found)
    if blocked:
        invocation.print(f"not ready: {counted(blocked, 'Framework')} of {total:,} would be mistreated")
    if waiting:
        what = counted(waiting, "suspended or queued Framework")
        invocation.print(f"not ready: {what} would start; --yes suspends them, and sets them to Create")
    if left:
        which = "would stay" if options.yes else "would stay; --yes deletes those of which nothing runs"
        invocation.print(f"not ready: {counted(left, 'Workload')} of Kueue {which}")
    if held:
        what = f"{counted(held, 'Framework')} had" if options.yes else f"{counted(held, 'Framework')} would keep"
        again = "run this again" if options.yes else "--yes removes it, and gives up what is not archived"
        invocation.print(
            f"not ready: {what} the finalizer {names.HISTORY_FINALIZER}: set history.sink to none; {again}"
        )
    is_ready = not blocked and not waiting and not left and not held
    if is_ready:
        invocation.print(f"ready: an older controller can take over {counted(total, 'Framework')}")
    return program.EXIT_OK if is_ready else program.EXIT_FAILED


_HELD: Final = "set to Create"
_SUSPENDED: Final = "suspended"


async def _hold(invocation: Invocation, one: Finding) -> str:
    """Set a Framework that waits to executionType Create, unless it was changed meanwhile. Return the outcome."""
    namespace, _, name = one.key.partition("/")

    def change(framework: Json) -> tuple[list[Json], str]:
        now = examine(framework)
        if now.suspend:
            return [{"op": "add", "path": "/spec/suspend", "value": True}], _SUSPENDED
        if not now.hold:
            return [], "; ".join(now.blocks) or "was changed meanwhile: run this again"
        return [{"op": "add", "path": "/spec/executionType", "value": ExecutionType.CREATE}], _HELD

    there = replace(invocation, namespace=namespace)
    try:
        done = await there.patch_spec(name, change)
        # One that no controller has seen need not be waited for.
        return await there.patch_spec(name, change) if done == _SUSPENDED else done
    except program.CommandError as error:
        return str(error)


async def _release_workloads(invocation: Invocation, found: Sequence[Finding], *, everywhere: bool, yes: bool) -> int:
    """Delete the Workloads whose finalizer no older controller would remove. Return the number of those that stay.

    They would keep their place in the queue, and their quota once Kueue admits them.
    """
    try:
        workloads = await find_workloads(invocation, all_namespaces=everywhere)
    except Forbidden:
        invocation.note(FORBIDDEN)
        return sum(QUEUE in one.fields for one in found)
    left = 0
    for workload in workloads:
        if not workload.in_use:
            continue
        if not yes:
            left += 1
        elif why := await _why_in_use(invocation, workload):
            invocation.print(f"{workload.owner}: Workload {workload.name} stays: {why}")
            left += 1
        elif await release(invocation, workload):
            invocation.print(f"{workload.owner}: Workload {workload.name} was deleted, and its finalizer removed")
        else:
            invocation.print(f"{workload.owner}: Workload {workload.name} stays: other clients change it")
            left += 1
    return left


async def _release_history(invocation: Invocation, *, everywhere: bool, yes: bool) -> int:
    """Remove the finalizer of the history, which no older controller would. Return the number of those that had it.

    A controller that keeps a history adds it again, which the next run of the command shows.
    """
    found = await find_held(invocation, all_namespaces=everywhere, metadata_only=True)
    for one in found if yes else ():
        if why := await let_go(invocation, one):
            invocation.print(f"{one.key}: the finalizer {names.HISTORY_FINALIZER} stays: {why}")
    return len(found)


async def _why_in_use(invocation: Invocation, workload: Workload) -> str:
    """Return why the Workload must stay; "" if nothing runs with its quota, nor is to run."""
    body = await read_framework(invocation, workload)
    if body is not None:
        if (body.get("status") or {}).get("admission"):
            return "the Framework has its quota"
        # With executionType Create, its Pods are looked for below.
        spec = body.get("spec") or {}
        starts = (spec.get("executionType") or ExecutionType.START) == ExecutionType.START and not is_suspended(body)
        if starts and state_of(body) != State.COMPLETED:
            return "the Framework runs, or is to run"
    remains = await still_runs(invocation, workload)
    return f"{remains} of the Framework exists" if remains else ""


def _print(invocation: Invocation, found: list[Finding], done: Mapping[str, str]) -> None:
    if not found:
        return
    rows = table("FRAMEWORK", "READY", "USES")
    for one in sorted(found, key=lambda one: (not one.blocks, not one.would_start, one.key)):
        ready = done[one.key] or ("no" if one.blocks else "would start" if one.would_start else "yes")
        known = ready in ("no", "yes", "would start", _HELD)
        color = "green" if ready in ("yes", _HELD) else "red" if one.blocks or not known else "yellow"
        uses = ", ".join(field.name for field in one.fields) or "-"
        rows.add_row(one.key, Text(ready if known else "no", color), uses)
    invocation.print_table(rows)
    invocation.print()
    used = [field for field in (*FIELDS, QUEUE) if any(field in one.fields for one in found)]
    if used:
        legend = table("FIELD", "AN OLDER CONTROLLER")
        for field in used:
            legend.add_row(field.name, field.older)
        invocation.print_table(legend)
        invocation.print()
    for one in found:
        texts = one.blocks or ((done[one.key],) if done[one.key] not in ("", _HELD) else ())
        for text in texts:
            invocation.print(f"{one.key}: {text}")
