"""Nodes that the Pods of a Task avoid, as the Task has failed there: ``task.retryPolicy.avoidNodes``.

Source: docs/lifecycle.md, "Avoided nodes". The list of a Task changes together with the end of its attempt, in one
status write, which precedes the next Pod. If a Pod fits nowhere for too long, its attempt ends with -261, and the next
one avoids a node less: the same steps as for any other end of an attempt, so a crash between them is harmless.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Final

from frameworkcontroller.api.completion import (
    DISPLACED,
    PERMANENT,
    TASK_NODE_GIVEN_UP,
    TASK_PRE_RUNNING_DEADLINE_EXCEEDED,
    CompletionStatus,
)
from frameworkcontroller.api.objects import Framework, PodRecord
from frameworkcontroller.api.spec import MAX_AVOIDED_IN_ALL, AvoidNodes, FrameworkSpec, TaskRoleSpec
from frameworkcontroller.api.status import AvoidedNode, FrameworkAttemptStatus, TaskStatus
from frameworkcontroller.machine.kernel.agenda import TaskKey
from frameworkcontroller.machine.kernel.context import Context, summarize
from frameworkcontroller.machine.kernel.model import Limits, Urgency
from frameworkcontroller.machine.kernel.part import Part, PartState
from frameworkcontroller.machine.kernel.reasons import Reason, event
from frameworkcontroller.machine.kernel.tracker import Tracker

_OWN: Final = frozenset(range(-299, -99)) - {TASK_PRE_RUNNING_DEADLINE_EXCEEDED.code}
"""Codes of the controller, of ends that no node causes."""
_UNPLACED: Final = frozenset({TASK_NODE_GIVEN_UP.code, TASK_PRE_RUNNING_DEADLINE_EXCEEDED.code})
"""Codes of Pods that may have fitted nowhere because of the avoided nodes. The second one, if there was no node."""

Nodes = tuple[AvoidedNode, ...]


class NodeReason(Reason):
    """The reasons of ``avoidNodes``."""

    AVOIDED = event("NodeAvoided", "the next Pods of a Task avoid a node on which it has failed", "avoid a node after")
    GIVEN_UP = event(
        "AvoidedNodeGivenUp",
        "a Pod fits on no node, so the next Pods of its Task no longer avoid the oldest avoided one",
        "give up an avoided node after",
    )


@dataclass(frozen=True, slots=True)
class OtherNodes:
    """A required affinity to any node except these."""

    names: tuple[str, ...]

    def apply(self, metadata: dict[str, Any], spec: dict[str, Any], pod_name: str) -> None:
        """Add a requirement per node to each term, as one term that matches suffices. One has a single value.

        Empty terms match no node, and stay. A list without terms is invalid, and stays for the API server to refuse. A
        Pod that names its node is not scheduled, and its kubelet would refuse it.
        """
        if spec.get("nodeName"):
            return
        excluded = [{"key": "metadata.name", "operator": "NotIn", "values": [name]} for name in self.names]
        affinity = _object_in(spec, "affinity")
        of_nodes = None if affinity is None else _object_in(affinity, "nodeAffinity")
        if affinity is None or of_nodes is None:
            return
        if (required := of_nodes.get(_REQUIRED)) is None:
            required = {"nodeSelectorTerms": [{"matchFields": excluded}]}
        elif isinstance(required, dict) and isinstance(terms := required.get("nodeSelectorTerms"), list):
            required = {**required, "nodeSelectorTerms": [_restricted(term, excluded) for term in terms]}
        spec["affinity"] = {**affinity, "nodeAffinity": {**of_nodes, _REQUIRED: required}}


_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def _object_in(owner: dict[str, Any], key: str) -> dict[str, Any] | None:
    """The object with that key, {} if there is none, None if it has a wrong type."""
    found = owner.get(key)
    if found is None:
        return {}
    return found if isinstance(found, dict) else None


def _restricted(term: Any, excluded: list[dict[str, Any]]) -> Any:
    if not isinstance(term, dict) or not (term.get("matchExpressions") or term.get("matchFields")):
        return term
    own = term.get("matchFields")
    return {**term, "matchFields": [*(own or []), *excluded]} if own is None or isinstance(own, list) else term


class UnplacedPods(PartState):
    """Since when Pods fit on no node. After a restart, the time counts from when the Pod was first seen."""

    __slots__ = ("since", "undecided")
    of_attempt: ClassVar[bool] = True

    def __init__(self) -> None:
        self.undecided: set[TaskKey] = set()
        """Pods that were seen before the scheduler found no node, for example while a scheduling gate held them."""
        self.since: dict[TaskKey, int] = {}

    def forget(self, key: TaskKey) -> None:
        """Forget the Pod of a Task."""
        self.undecided.discard(key)
        self.since.pop(key, None)

    @staticmethod
    def avoid(tracker: Tracker, task: TaskStatus, nodes: Nodes) -> None:
        """Replace the nodes of a Task that ends, or of one of the attempt that begins with the next write."""
        task.avoided_nodes = nodes
        tracker.change(task, Urgency.LATER, of_attempt=False)

    def on_tasks_over(self) -> None:
        self.undecided.clear()
        self.since.clear()


class NodePart(Part):
    """The nodes that Tasks avoid."""

    reasons: ClassVar[type[Reason]] = NodeReason

    def is_off(self, framework: Framework, tracker: Tracker, limits: Limits) -> bool:
        return not framework.spec.avoids_nodes

    def shape_task(self, ctx: Context, task: TaskStatus) -> OtherNodes | None:
        """The affinity that keeps the Pod of a Task away from the avoided nodes."""
        rule = _Rule.of(ctx, task.role)
        found = () if rule is None else rule.avoided(task.avoided_nodes)
        return OtherNodes(tuple(one.name for one in found)) if found else None

    def why_end_task(self, ctx: Context, task: TaskStatus, pod: PodRecord) -> CompletionStatus | None:
        """The completion of an attempt whose Pod fits on no other node for relaxAfterSeconds."""
        rule = _Rule.of(ctx, task.role)
        found = () if rule is None else rule.avoided(task.avoided_nodes)
        if rule is None or not found or pod.node_name or ctx.ends or ctx.tracker.is_completing:
            return None
        unplaced, seconds = ctx.tracker.part(UnplacedPods), rule.policy.relax_after_seconds
        if pod.trouble is None or not pod.trouble.unschedulable:
            unplaced.undecided.add(task.key)
            return None
        if task.key in unplaced.undecided:
            unplaced.undecided.discard(task.key)
            unplaced.since[task.key] = ctx.env.second
        since = unplaced.since.get(task.key, task.transition_time)
        if not ctx.wait_out(task.key, since, seconds):
            return None
        nodes = "1 node" if len(found) == 1 else f"{len(found)} nodes"
        text = (
            f"Pod fitted on no node for retryPolicy.avoidNodes.relaxAfterSeconds {seconds} while it avoided {nodes}: "
            f"the next Pod may run on {found[0].name} again"
        )
        return CompletionStatus.of(TASK_NODE_GIVEN_UP, text)

    def pod_gone(self, ctx: Context, task: TaskStatus) -> None:
        """Count a failure on the node of the ended attempt, or give the oldest node up. Persisted with the end."""
        rule, completion = _Rule.of(ctx, task.role), task.attempt.completion_status
        if (unplaced := ctx.tracker.find_part(UnplacedPods)) is not None:
            unplaced.forget(task.key)
        if rule is None or completion is None or task.is_leaving:
            return
        node = task.attempt.pod_node_name
        if completion.is_one_of(_UNPLACED) and not node:
            if found := rule.avoided(task.avoided_nodes):
                others = tuple(one for one in task.avoided_nodes if one.name != found[0].name)
                UnplacedPods.avoid(ctx.tracker, task, others)
                text = f"The next Pods no longer avoid node {found[0].name}: {completion.diagnostics}"
                ctx.record(NodeReason.GIVEN_UP, text, task, warning=True, completion=completion)
            return
        if not node or not is_by_node(completion, rule.policy):
            return
        UnplacedPods.avoid(ctx.tracker, task, rule.with_failure(task.avoided_nodes, node))
        failures = task.avoided_nodes[-1].failures
        if failures >= rule.policy.after:
            often = "once" if failures == 1 else f"{failures:,} times"
            text = (
                f"The next Pods avoid node {node}: the Task has failed there {often}, now with {summarize(completion)}"
            )
            ctx.record(NodeReason.AVOIDED, text, task, completion=completion)

    def begin_attempt(self, ctx: Context, attempt: FrameworkAttemptStatus) -> None:
        """Let Tasks keep their nodes, and share the nodes of the Task that has ended the last attempt, in its role."""
        completion = ctx.attempt.completion_status
        trigger = None if completion is None or completion.succeeded else completion.trigger
        for role in attempt.roles:
            before, rule = ctx.tracker.roles.get(role.name), _Rule.of(ctx, role.name)
            if before is None or rule is None:
                continue
            shared: Nodes = ()
            if trigger is not None and trigger.task_role_name == role.name and trigger.task_index < len(before.tasks):
                shared = before.tasks[trigger.task_index].avoided_nodes
            for task in role.tasks:
                own = before.tasks[task.index].avoided_nodes if task.index < len(before.tasks) else ()
                UnplacedPods.avoid(ctx.tracker, task, rule.merged(own, shared))


def is_by_node(completion: CompletionStatus, policy: AvoidNodes) -> bool:
    """Whether the failure counts: by ``onCodes``, else if a node can cause it."""
    if not completion.unexpected:
        return False
    if policy.on_codes is not None:
        return completion.code in policy.on_codes
    return not (completion.has(PERMANENT) or completion.is_one_of(_OWN) or completion.is_one_of(DISPLACED))


@dataclass(frozen=True, slots=True)
class _Rule:
    """The policy of a role. ``limit``: the number of nodes for which the status of this Framework has room."""

    policy: AvoidNodes
    limit: int

    @classmethod
    def of(cls, ctx: Context, role: str) -> _Rule | None:
        """Return the rule of the role, None if its Tasks avoid no nodes."""
        spec = ctx.framework.spec.role(role)
        return None if spec is None else _rule_of(ctx.framework.spec, spec)

    def avoided(self, nodes: Nodes) -> Nodes:
        """The nodes with enough failures, the oldest first."""
        if not nodes:
            return ()
        return tuple(one for one in nodes if one.failures >= self.policy.after)[-self.limit :]

    def with_failure(self, nodes: Nodes, name: str) -> Nodes:
        """The nodes after a failure on this one, which comes last."""
        failures = next((one.failures for one in nodes if one.name == name), 0) + 1
        others = [one for one in nodes if one.name != name]
        return (*self._newest(others, self.limit - 1), AvoidedNode(name, failures))

    def merged(self, own: Nodes, shared: Nodes) -> Nodes:
        """The nodes of a Task and of another one together. The higher number of failures of a node counts."""
        return _merged(self, own, shared)

    def _newest(self, nodes: Sequence[AvoidedNode], limit: int) -> Nodes:
        """At most ``limit`` of the nodes. The oldest that is not avoided yet goes first, then the oldest."""
        kept = list(nodes)
        while len(kept) > limit:
            kept.remove(next((one for one in kept if one.failures < self.policy.after), kept[0]))
        return tuple(kept)


def _rule_of(spec: FrameworkSpec, role: TaskRoleSpec) -> _Rule | None:
    policy = role.task.retry_policy.avoid_nodes
    if policy is None:
        return None
    return _Rule(policy, min(policy.limit, max(1, MAX_AVOIDED_IN_ALL // max(1, spec.task_count))))


@lru_cache(maxsize=256)
def _merged(rule: _Rule, own: Nodes, shared: Nodes) -> Nodes:
    """Cached: of most Tasks, the lists are the same."""
    failures = {one.name: one.failures for one in own}
    added = [AvoidedNode(one.name, max(one.failures, failures.get(one.name, 0))) for one in shared]
    names = {one.name for one in added}
    return rule._newest([*(one for one in own if one.name not in names), *added], rule.limit)
