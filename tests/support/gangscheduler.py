"""Stand-ins for gang schedulers in the world of ``tests.support.world``, each with the rule of one that exists.

They bind the Pods of a group all at once or not at all, as the group's minimum says; they differ in the Pods that count
for the minimum. Source: ../shared/spec/next/queues-and-gangs.md, "F6. Gang scheduling".
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final

from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.machine.kernel.requests import Kind
from tests.support.world import ApiRefusal, Body, World, group_of, is_deleting, mark_of, name_of

_TERMINAL: Final = ("Succeeded", "Failed")


class Backend(Enum):
    """Which scheduler."""

    NATIVE_1_36 = "kube-scheduler 1.36, whose minimum is immutable"
    NATIVE_1_37 = "kube-scheduler 1.37"
    VOLCANO = "Volcano"
    COSCHEDULING = "scheduler-plugins"

    @property
    def kind(self) -> Kind:
        """The kind of its groups."""
        if self is Backend.VOLCANO:
            return Kind.VOLCANO_PODGROUP
        return Kind.COSCHEDULING_PODGROUP if self is Backend.COSCHEDULING else Kind.PODGROUP

    @property
    def is_native(self) -> bool:
        """Whether it is Kubernetes' own."""
        return self.kind is Kind.PODGROUP


class GangScheduler:
    """``capacity``: Pods that each Node holds."""

    def __init__(self, world: World, backend: Backend, capacity: int = 100, nodes: Iterable[str] = ("node-1",)) -> None:
        self.world = world
        self.backend = backend
        self.capacity = dict.fromkeys(nodes, capacity)
        if backend.is_native:
            world.served[Kind.PODGROUP] = "v1alpha2" if backend is Backend.NATIVE_1_36 else "v1beta1"
        if backend is Backend.NATIVE_1_36:
            world.webhooks[Kind.PODGROUP] = refuse_another_minimum

    def group_name(self, pod: Body) -> str:
        """The name of the group that a Pod refers to, "" if none."""
        if self.backend.is_native:
            return group_of(pod)
        if self.backend is Backend.VOLCANO:
            return mark_of(pod, "scheduling.k8s.io/group-name")
        return str((pod["metadata"].get("labels") or {}).get("scheduling.x-k8s.io/pod-group") or "")

    def minimum(self, group: Body) -> int:
        """The stored minimum."""
        return minimum_of(self.backend.kind, group)

    # --- acts of the scheduler ---------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Bind the next group, or Pod of none, that it can; False if there is none."""
        waiting = [pod for pod in self._pods() if _is_bindable(pod)]
        for name in sorted({self.group_name(pod) for pod in waiting}):
            members = [pod for pod in waiting if self.group_name(pod) == name]
            group = self.world.objects[self.backend.kind].get(name) if name else None
            if name and (group is None or is_deleting(group)):
                continue
            nodes = self._free()[: len(members)]
            enough = group is None or self._counted(name, len(nodes)) >= self.minimum(group)
            told = group is not None and self._tell(group, scheduled=enough)
            if not enough:
                if told:
                    return True
                continue
            for pod, node in zip(members, nodes, strict=False):
                self.world.tell(f"scheduler: {name_of(pod)} is bound")
                self.world.pod(name_of(pod), node=node)
            if nodes or told:
                return True
        return False

    def stuck(self) -> list[str]:
        """Pods that wait though there is room for all: at rest there must be none."""
        waiting = [pod for pod in self._pods() if _is_bindable(pod)]
        return [name_of(pod) for pod in waiting] if len(self._free()) >= len(waiting) else []

    def _pods(self) -> list[Body]:
        return sorted(self.world.objects[Kind.POD].values(), key=name_of)

    def _free(self) -> list[str]:
        """Nodes, each as often as a Pod fits there."""
        used = [pod["spec"].get("nodeName") for pod in self._pods() if pod["status"]["phase"] not in _TERMINAL]
        return [node for node, capacity in self.capacity.items() for _ in range(capacity - used.count(node))]

    def _counted(self, name: str, bindable: int) -> int:
        """The number that counts for the minimum if ``bindable`` more Pods are bound."""
        members = [pod for pod in self._pods() if self.group_name(pod) == name]
        bound = [pod for pod in members if pod["spec"].get("nodeName")]
        running = [pod for pod in bound if pod["status"]["phase"] not in _TERMINAL]
        match self.backend:
            case Backend.VOLCANO:
                succeeded = [pod for pod in members if pod["status"]["phase"] == "Succeeded"]
                return len(running) + len(succeeded) + bindable
            case Backend.COSCHEDULING:
                # PreFilter counts existing Pods, Permit assigned ones.
                return min(len(members), len(running) + bindable)
            case _:
                return len([pod for pod in running if not is_deleting(pod)]) + bindable

    def _tell(self, group: Body, *, scheduled: bool) -> bool:
        """Write the group's status. Return whether it differs."""
        if self.backend in (Backend.VOLCANO, Backend.COSCHEDULING):
            status: Body = {"phase": "Running" if scheduled else "Pending"}
            status = {**(group.get("status") or {}), **status}
        else:
            kind = "PodGroupScheduled" if self.backend is Backend.NATIVE_1_36 else "PodGroupInitiallyScheduled"
            known = {one["type"]: one["status"] for one in (group.get("status") or {}).get("conditions", ())}
            if known.get(kind) in ("True", str(scheduled)):
                # Terminal: the condition never reverts.
                return False
            condition = {
                "type": kind,
                "status": str(scheduled),
                "reason": "Scheduled" if scheduled else "Unschedulable",
                "message": "" if scheduled else "not enough Pods can be placed",
                "lastTransitionTime": format_time(int(self.world.now)),
            }
            status = {"conditions": [condition]}
        if status == group.get("status"):
            return False
        self.world.tell(f"scheduler: PodGroup {name_of(group)}: scheduled is {scheduled}")
        self.world.edit(self.backend.kind, name_of(group), lambda body: body.update(status=status))
        return True


def minimum_of(kind: Kind, group: Body) -> int:
    """The minimum of a group of that kind; 0 if Pods are bound one by one."""
    if kind is Kind.PODGROUP:
        return int(((group["spec"].get("schedulingPolicy") or {}).get("gang") or {}).get("minCount", 0))
    return int(group["spec"].get("minMember", 0))


def _is_bindable(pod: Body) -> bool:
    gated = pod["spec"].get("schedulingGates")
    ended = pod["status"]["phase"] in _TERMINAL
    return not (pod["spec"].get("nodeName") or is_deleting(pod) or gated or ended)


def refuse_another_minimum(before: Body, after: Body) -> None:
    """Refuse to change the minimum of a native group.

    Raises:
        ApiRefusal: 422.
    """
    if minimum_of(Kind.PODGROUP, before) != minimum_of(Kind.PODGROUP, after):
        text = f'PodGroup "{name_of(before)}" is invalid: spec.schedulingPolicy.gang.minCount: field is immutable'
        raise ApiRefusal(422, "Invalid", text)
