"""Nodes and a scheduler for histories of Tasks that avoid nodes, and the checks of that guarantee (A).

``AvoidingHistory`` is ``tests.support.history`` with three nodes, some of them closed. Its scheduler obeys required
node affinity, and says when no node fits a Pod.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from frameworkcontroller.api import names
from frameworkcontroller.api.codec import decode_status
from frameworkcontroller.api.spec import AvoidNodes
from frameworkcontroller.api.status import FrameworkStatus, TaskStatus
from frameworkcontroller.local.kubelet.nodeaffinity import matches, required_terms
from frameworkcontroller.machine.kernel.requests import Kind
from frameworkcontroller.machine.kernel.states import ENDED
from tests.support.history import History
from tests.support.world import Body, mark_of, name_of, uid_of

NODES: Final = ("node-1", "node-2", "node-3")
_NEVER: Final = {*range(-299, -99), -1003, *range(-1012, -1006), 210, 0} - {-260}
"""Codes in histories that no node causes. 210 is permanent, -1004 to -1006 do not occur."""

Nodes = tuple[tuple[str, int], ...]


class AvoidingHistory(History):
    """A history with three nodes."""

    def __init__(self, seed: int = 0, **options: Any) -> None:
        super().__init__(seed, **options)
        self.closed: set[str] = set()
        self.restarted = False
        """Whether another process may have continued."""
        self._turn = 0
        self._created: dict[str, float] = {}
        self._told: dict[str, float] = {}
        """By UID of a Pod, since when (monotonic seconds) it has been there, and has been known to fit on no node."""
        self._affine: dict[str, list[str]] = {}
        """By UID of a Pod, the nodes that it avoids."""
        self._known: dict[str, FrameworkStatus] = {}
        self.world.check_each(Kind.FRAMEWORK, self._check_status)
        self.world.check_each(Kind.POD, self._check_pod)

    # --- nodes ---

    def close(self, nodes: Sequence[str]) -> None:
        """These nodes take no Pods, the others do. One always does."""
        self.world.tell(f"nodes: {' and '.join(nodes) or 'none'} take no Pods")
        self.closed = set(nodes) if len(set(nodes)) < len(NODES) else set(nodes[1:])

    def node_of(self, pod: Body) -> str:
        """The node of a Pod: its own, or one that fits; "" if none does, which its condition then says."""
        bound: str = pod["spec"].get("nodeName") or ""
        if bound:
            return bound
        terms = required_terms(pod["spec"])
        fits = [one for one in NODES if one not in self.closed and (terms is None or matches(terms, one, {}))]
        self._turn += 1
        condition = {"type": "PodScheduled", "status": "True"}
        if not fits:
            condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        if condition not in pod["status"].get("conditions", ()):
            self.world.edit(Kind.POD, name_of(pod), lambda body: _set_condition(body, condition))
        if not fits:
            self._told.setdefault(uid_of(pod), self.world.clock)
            return ""
        return fits[self._turn % len(fits)]

    def crash(self, which: int) -> None:
        self.restarted = True
        super().crash(which)

    def take_over(self) -> None:
        self.restarted = True
        super().take_over()

    def start_second(self) -> None:
        self.restarted = True
        super().start_second()

    def finish(self) -> None:
        self.close(NODES[1:])
        super().finish()

    # --- checks ---

    def _check_pod(self, pod: Body) -> None:
        """A new Pod avoids the nodes of the stored status, by each term, and no others."""
        if uid_of(pod) in self._created:
            return
        self._created[uid_of(pod)] = self.world.clock
        uid = mark_of(pod, names.FRAMEWORK_UID)
        if uid not in self._known or not isinstance(pod["spec"], dict):
            return
        key = mark_of(pod, names.TASKROLE_NAME), int(mark_of(pod, names.TASK_INDEX))
        task = next((one for one in _tasks(self._known[uid]) if one.key == key), None)
        if task is None or task.instance_uid != mark_of(pod, names.TASK_UID):
            return
        found = self._affine[uid_of(pod)] = self._excluded(pod)
        wanted = [[] if one is None else _avoided(one, _nodes(task)) for one in self._policies(uid, key[0])]
        if found not in wanted:
            raise self.world.violation(f"A: {name_of(pod)} avoids {found}, and the status says {_nodes(task)}")

    def _excluded(self, pod: Body) -> list[str]:
        kept = [term for term in required_terms(pod["spec"]) or () if term]
        by_term = [
            [one["values"][0] for one in term.get("matchFields") or () if one["values"] != ["own"]] for term in kept
        ]
        if any(one != by_term[0] for one in by_term):
            raise self.world.violation(f"A: the terms of {name_of(pod)} avoid {by_term}")
        return by_term[0] if by_term else []

    def _check_status(self, body: Body) -> None:
        uid, after = uid_of(body), decode_status(body.get("status"))
        before = self._known.get(uid)
        if after is None:
            return
        self._known[uid] = after
        if before is None:
            for task in _tasks(after):
                self._require(not task.avoided_nodes, f"A: {task.key} is new, and avoids nodes")
        elif before.attempt.id != after.attempt.id:
            self._check_next_attempt(uid, before, after)
        else:
            olds = {task.key: task for task in _tasks(before)}
            for task in _tasks(after):
                self._check_task(uid, olds.get(task.key), task)

    def _check_task(self, uid: str, before: TaskStatus | None, after: TaskStatus) -> None:
        found = _nodes(after)
        if before is None or before.instance_uid != after.instance_uid:
            self._require(not found, f"A: {after.key} is new, and avoids nodes")
            return
        was = _nodes(before)
        ends = before.attempt.id == after.attempt.id and before.state not in ENDED and after.state in ENDED
        code, previous = _code(after), _code(before)
        if before.attempt.id == after.attempt.id and code == -261 and previous is None:
            self._check_early(uid, after)
        if not ends:
            self._require(found == was, f"A: {after.key} had {was}, has {found}, and no attempt has ended")
            return
        policies = self._policies(uid, after.role)
        node = after.attempt.pod_node_name
        wanted = [was if one is None else _after(one, was, node or "", code or 0) for one in policies]
        if after.is_leaving:
            wanted.append(was)
        self._require(found in wanted, f"A: {after.key} ended with {code} on {node}: {was} became {found}")

    def _check_early(self, uid: str, task: TaskStatus) -> None:
        """A node is given up only after the time, and for a Pod that avoids one."""
        pod = task.attempt.pod_uid or ""
        least = min(one.relax_after_seconds for one in self._policies(uid, task.role) if one is not None)
        waited = self.world.clock - (self._created if self.restarted else self._told)[pod]
        self._require(waited >= least - 1, f"A: {task.key} has given a node up after {waited:g}s of {least}s")
        # Of an adopted Pod, an earlier spec may have decided.
        self._require(bool(self._affine.get(pod, True)), f"A: {task.key} gave a node up, and its Pod avoids none")

    def _check_next_attempt(self, uid: str, before: FrameworkStatus, after: FrameworkStatus) -> None:
        olds = {task.key: task for task in _tasks(before)}
        completion = before.attempt.completion_status
        trigger = None if completion is None or completion.succeeded else completion.trigger
        for task in _tasks(after):
            own = _nodes(olds[task.key]) if task.key in olds else ()
            shared: Nodes = ()
            if trigger is not None and trigger.task_role_name == task.role:
                shared = _nodes(olds[task.role, trigger.task_index])
            found = dict(_nodes(task))
            policies = self._policies(uid, task.role)
            if None in policies:
                continue
            for name, failures in (*own, *shared):
                kept = found.get(name, 0) >= failures or len(found) >= min(one.limit for one in policies if one)
                self._require(kept, f"A: {task.key} has lost {name} in a new attempt: {own} {shared} {found}")
            self._require(found.keys() <= dict((*own, *shared)).keys(), f"A: {task.key} avoids another node")

    def _policies(self, uid: str, role: str) -> list[AvoidNodes | None]:
        """The policies of all specs so far, as the cache may have shown an older one."""
        specs = self.guarantees.task_specs(uid, role)
        return [one.retry_policy.avoid_nodes for one in specs] or [None]

    def _require(self, holds: bool, text: str) -> None:
        if not holds:
            raise self.world.violation(text)


def _set_condition(body: Body, condition: dict[str, str]) -> None:
    others = [one for one in body["status"].get("conditions", ()) if one["type"] != condition["type"]]
    body["status"]["conditions"] = [*others, condition]


def _tasks(status: FrameworkStatus) -> Iterator[TaskStatus]:
    for role in status.attempt.roles:
        yield from role.tasks


def _nodes(task: TaskStatus) -> Nodes:
    return tuple((one.name, one.failures) for one in task.avoided_nodes)


def _code(task: TaskStatus) -> int | None:
    completion = task.attempt.completion_status
    return None if completion is None else completion.code


def _avoided(policy: AvoidNodes, nodes: Nodes) -> list[str]:
    return [name for name, failures in nodes if failures >= policy.after][-policy.limit :]


def _after(policy: AvoidNodes, nodes: Nodes, node: str, code: int) -> Nodes:
    """The list after the end of an attempt."""
    if code == -261 or (code == -260 and not node):
        oldest = next(iter(_avoided(policy, nodes)), None)
        return tuple(one for one in nodes if one[0] != oldest)
    counts = code not in _NEVER if policy.on_codes is None else code != 0 and code in policy.on_codes
    if not node or not counts or (policy.on_codes is not None and code in (-210, -220, -230)):
        return nodes
    failures = 1 + sum(count for name, count in nodes if name == node)
    others = [one for one in nodes if one[0] != node]
    while len(others) > policy.limit - 1:
        counted = [one for one in others if one[1] < policy.after]
        others.remove((counted or others)[0])
    return (*others, (node, failures))
