"""``prepare-downgrade``: find the Frameworks that an older controller would mistreat, and hold the suspended ones.

Source: docs/migration.md, "Back". The controller never writes a spec; this command does, for the person who runs it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from rich.text import Text

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
from frameworkcontroller.commands.invocation import Invocation
from frameworkcontroller.commands.objects import Json, condition_of, key_of
from frameworkcontroller.commands.output import clean_line, counted, table

T = TypeVar("T")

_NEW_CODES: Final = ALWAYS_RETRIED | {FRAMEWORK_ACTIVE_DEADLINE_EXCEEDED.code}
"""Completion codes whose retry an older controller decides by the retryPolicy."""

_TERMINATING: Final = frozenset({State.DELETION_REQUESTED, State.DELETING})
_LARGEST_GROUP: Final = 3


@dataclass(frozen=True, slots=True)
class Subject:
    """A Framework as the command reads it. ``suspended``: nothing of it runs, as its condition says."""

    spec: FrameworkSpec
    status: FrameworkStatus | None
    suspended: bool

    @property
    def completed(self) -> bool:
        """Whether it has completed, so that no decision follows."""
        return self.status is not None and self.status.state is State.COMPLETED

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


def _new_codes(one: Subject) -> Iterator[str]:
    final = None if one.status is None else one.status.attempt.completion_status
    if final is not None and final.code in _NEW_CODES:
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
)
"""The fields that an older controller ignores. tests/unit/commands/test_downgrade.py compares them with the spec."""


def _retry_policies(spec: FrameworkSpec) -> Iterator[Any]:
    yield spec.retry_policy
    for role in spec.task_roles:
        yield role.task.retry_policy


def _tasks(status: FrameworkStatus) -> Iterator[TaskStatus]:
    for role in status.attempt.roles:
        yield from role.tasks


def _action(completion: CompletionStatus | None) -> FailureAction | None:
    return None if completion is None or completion.policy is None else completion.policy.action


def _listed(names: list[str]) -> str:
    more = len(names) - _LARGEST_GROUP
    return f"{', '.join(names[:_LARGEST_GROUP])}{f' and {more} more' if more > 0 else ''}"


# --- the command ---


@dataclass(frozen=True, slots=True)
class Finding:
    """A Framework that matters. ``hold``: whether it is to be set to executionType Create."""

    key: str
    fields: tuple[NewField, ...]
    blocks: tuple[str, ...]
    hold: bool


def examine(framework: Mapping[str, Any]) -> Finding:
    """Examine an API object."""
    key = key_of(framework)
    try:
        spec, status = parse_spec(framework.get("spec")), decode_status(framework.get("status"))
    except (SpecError, StatusError) as error:
        return Finding(key, (), (f"it cannot be read: {clean_line(str(error))}",), hold=False)
    one = Subject(spec, status, suspended=condition_of(framework, "Suspended").get("status") == "True")
    fields = tuple(field for field in FIELDS if field.is_used(spec))
    if one.completed:
        return Finding(key, fields, (), hold=False)
    # A field that was removed may have decided before.
    blocks = tuple(text for each in (_new_codes, *(field.blocks for field in FIELDS)) for text in each(one))
    hold = spec.suspend and spec.execution_type is ExecutionType.START and not blocks
    return Finding(key, fields, blocks, hold)


async def run(invocation: Invocation, options: argparse.Namespace) -> int:
    """Show the findings, and with ``--yes`` hold those that are suspended. Return the exit code: 0 if all are ready."""
    everywhere = options.namespace is None
    found = [examine(body) async for body in invocation.each(FRAMEWORKS, all_namespaces=everywhere)]
    total, found = len(found), [one for one in found if one.fields or one.blocks]
    done = {one.key: await _hold(invocation, one) if options.yes and one.hold else "" for one in found}
    _print(invocation, found, done)
    blocked = sum(bool(one.blocks or (done[one.key] and done[one.key] != _HELD)) for one in found)
    waiting = 0 if options.yes else sum(one.hold for one in found)
    if blocked:
        invocation.print(f"not ready: {counted(blocked, 'Framework')} of {total:,} would be mistreated")
    if waiting:
        invocation.print(f"not ready: {counted(waiting, 'suspended Framework')} would start; --yes sets them to Create")
    if not blocked and not waiting:
        invocation.print(f"ready: an older controller can take over {counted(total, 'Framework')}")
    return program.EXIT_FAILED if blocked or waiting else program.EXIT_OK


_HELD: Final = "set to Create"


async def _hold(invocation: Invocation, one: Finding) -> str:
    """Set a suspended Framework to executionType Create, unless it was changed meanwhile. Return the outcome."""
    namespace, _, name = one.key.partition("/")

    def change(framework: Json) -> tuple[list[Json], str]:
        now = examine(framework)
        if not now.hold:
            return [], "; ".join(now.blocks) or "was changed meanwhile: run this again"
        return [{"op": "add", "path": "/spec/executionType", "value": ExecutionType.CREATE}], _HELD

    try:
        return await replace(invocation, namespace=namespace).patch_spec(name, change)
    except program.CommandError as error:
        return str(error)


def _print(invocation: Invocation, found: list[Finding], done: Mapping[str, str]) -> None:
    if not found:
        return
    rows = table("FRAMEWORK", "READY", "USES")
    for one in sorted(found, key=lambda one: (not one.blocks, not one.hold, one.key)):
        ready = done[one.key] or ("no" if one.blocks else "would start" if one.hold else "yes")
        known = ready in ("no", "yes", "would start", _HELD)
        color = "green" if ready in ("yes", _HELD) else "red" if one.blocks or not known else "yellow"
        uses = ", ".join(field.name for field in one.fields) or "-"
        rows.add_row(one.key, Text(ready if known else "no", color), uses)
    invocation.print_table(rows)
    invocation.print()
    used = [field for field in FIELDS if any(field in one.fields for one in found)]
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
