"""Binds pending Pods to a node that is neither cordoned nor has a taint that they do not tolerate.

A Pod also waits until its claims are bound and its scheduling gates are gone, and where nodes have a capacity until its
requests fit. It goes to the node with the fewest Pods. The Pods of a PodGroup with a minimum wait until that many of
them fit, and are bound together. nodeSelector and required node affinity count if there are several nodes. Other
affinity is ignored. So are Pods that name their node or another scheduler.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import orjson

from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.kube.client import MERGE_PATCH, STRATEGIC_PATCH, KubeClient
from frameworkcontroller.kube.errors import Conflict, NotFound
from frameworkcontroller.kube.informer import Informer
from frameworkcontroller.kube.resources import PERSISTENTVOLUMECLAIMS, PODS
from frameworkcontroller.local import taints
from frameworkcontroller.local.kubelet.node import NodeRecord
from frameworkcontroller.local.kubelet.nodeaffinity import matches
from frameworkcontroller.local.kubelet.nodeevents import NodeEvents
from frameworkcontroller.local.kubelet.placement import (
    INITIALLY_SCHEDULED,
    PlacedPodGroup,
    Rooms,
    decode_pod_group,
    insufficient,
    unavailable,
)
from frameworkcontroller.local.kubelet.pod import PENDING, TERMINAL, NodePod
from frameworkcontroller.local.kubelet.queueworkers import QueueWorkers
from frameworkcontroller.local.kubelet.volumebinder import VolumeClaim, decode_claim
from frameworkcontroller.local.podgroup_crd import PODGROUPS
from frameworkcontroller.local.resource_lists import ResourceList

NAME = "default-scheduler"
_GANG: Final = "gang:"
"""Prefix of the keys of groups in the work queue; no key of a Pod has it."""
_MEMBERS_SECONDS: Final = 5.0
_CORDON: Final = {"key": taints.UNSCHEDULABLE, "effect": taints.NO_SCHEDULE}


class Scheduler:
    """Binds Pods to nodes. ``concurrency`` bounds the requests in flight.

    ``capacities``: by node its resources, or None to ignore requests; other nodes are ignored. ``groups``: None to bind
    all Pods one by one; otherwise ``pods`` is indexed by group.
    """

    def __init__(
        self,
        client: KubeClient,
        pods: Informer[NodePod],
        nodes: Informer[NodeRecord],
        claims: Informer[VolumeClaim],
        groups: Informer[PlacedPodGroup] | None = None,
        *,
        capacities: Mapping[str, ResourceList | None],
        concurrency: int = 32,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._pods = pods
        self._nodes = nodes
        self._claims = claims
        self._of_claim: dict[str, set[str]] = {}
        """By claim: the Pods that wait for it."""
        self._events = NodeEvents(client, NAME, wall=wall)
        self._wall = wall
        self._rooms = Rooms(capacities)
        self._open = set(capacities)
        self._groups = groups
        self._binding: set[str] = set()
        """UIDs of Pods that are bound, or about to be, and that the informer does not show as bound."""
        self._looks_again = False
        self._incomplete: dict[str, tuple[int, float]] = {}
        """By group with too few Pods: how many there are, and since when."""
        self._workers = QueueWorkers("scheduler", self._process, concurrency=concurrency)
        pods.add_handler(
            on_add=self._seen, on_update=self._pod_updated, on_delete=lambda old, _: self._pod_gone(old.uid)
        )
        if groups is not None:
            groups.add_handler(
                on_add=lambda group: self._workers.add(_GANG + group.key),
                on_update=lambda _, group: self._workers.add(_GANG + group.key),
                on_delete=lambda group, _: self._forget_group(group.key),
            )
        claims.add_handler(
            on_add=self._claim_changed,
            on_update=lambda _, new: self._claim_changed(new),
            on_delete=lambda old, _: self._claim_changed(old),
        )
        nodes.add_handler(on_add=lambda _: self._look_again(), on_update=self._node_updated)

    def set_open(self, node: str, is_open: bool) -> None:
        """Set whether the node takes Pods. Pods that fit nowhere else are bound once it does."""
        (self._open.add if is_open else self._open.discard)(node)
        self._look_again()

    async def run(self) -> None:
        """Run until cancelled."""
        await self._workers.run()

    def _node_updated(self, old: NodeRecord, new: NodeRecord) -> None:
        if (old.taints, old.unschedulable, old.labels) != (new.taints, new.unschedulable, new.labels):
            self._look_again()

    def _claim_changed(self, claim: VolumeClaim) -> None:
        for key in self._of_claim.pop(claim.key, ()):
            self._workers.add(key)

    def _forget_group(self, key: str) -> None:
        self._incomplete.pop(key, None)

    def _look_again(self) -> None:
        self._looks_again = False
        for record in self._pods.lister.values():
            self._seen(record)

    def _pod_updated(self, old: NodePod, new: NodePod) -> None:
        if old.uid != new.uid:
            self._pod_gone(old.uid)
        self._seen(new)

    def _pod_gone(self, uid: str) -> None:
        self._binding.discard(uid)
        if self._rooms.release(uid) and not self._looks_again:
            self._looks_again = True
            asyncio.get_running_loop().call_soon(self._look_again)

    def _seen(self, record: NodePod) -> None:
        if record.node_name in self._rooms and record.phase not in TERMINAL:
            self._binding.discard(record.uid)
            self._rooms.hold(record, record.node_name)
        elif record.node_name:
            self._pod_gone(record.uid)
        elif _waits(record):
            grouped = record.group and self._groups is not None
            self._workers.add(_GANG + record.group if grouped else record.key)

    async def _process(self, key: str) -> None:
        if key.startswith(_GANG):
            await self._place_group(key.removeprefix(_GANG))
        else:
            await self._place(key)

    async def _place(self, key: str) -> None:
        record = self._pods.lister.get(key)
        if record is None or not self._is_unbound(record):
            return
        why = await self._obstacle(record)
        node = None
        if why is None and (node := self._rooms.choose(record, self._candidates(record))) is None:
            why = self._why_full(record)
        if why:
            await self._report(record, why)
        if node is not None:
            self._rooms.hold(record, node)
            await self._bind(record, node)

    async def _place_group(self, key: str) -> None:
        """Bind as many waiting Pods of a group as fit, if with those that are bound they are enough."""
        members = self._pods.lister.by_index(key).values()
        waiting = sorted((record for record in members if self._is_unbound(record)), key=lambda record: record.key)
        if not waiting or self._groups is None:
            return
        group = self._groups.lister.get(key)
        if group is None or group.deleting:
            if not await self._is_coming(waiting[0], key):
                for record in waiting:
                    await self._report(record, self._on_no_node(f'PodGroup "{_name(key)}" not found'))
            return
        if self._bound(key) + len(waiting) < group.minimum:
            await self._await_members(group, self._bound(key) + len(waiting))
            return
        self._incomplete.pop(key, None)
        obstacles = {record.uid: await self._obstacle(record) for record in waiting}
        # Other Pods may have been bound or deleted meanwhile. From here to the binding, nothing is awaited.
        waiting = [record for record in waiting if self._pods.lister.get(record.key) is record]
        if not self._open:
            return
        free = [record for record in waiting if obstacles[record.uid] is None and self._is_unbound(record)]
        taken, lacking = self._rooms.take(free, group.minimum - self._bound(key), self._candidates)
        why = ""
        if lacking:
            others = self._obstacles(next(record for record in free if set(self._candidates(record)) & lacking.keys()))
            why = unavailable({**others, **{node: insufficient(short) for node, short in lacking.items()}})
        results = await asyncio.gather(*(self._bind(record, node) for record, node in taken), return_exceptions=True)
        if not taken and (found := why or next(filter(None, obstacles.values()), "")):
            if self._bound(key) < group.minimum:
                found = f'{group.minimum} Pods of PodGroup "{group.name}" do not fit together: {found}'
            obstacles = dict.fromkeys(obstacles, found)
            await self._tell(group, found)
        bound = {record.uid for record, _ in taken}
        for record in waiting:
            if record.uid not in bound and (found := obstacles[record.uid] or why):
                await self._report(record, found)
        errors = [result for result in results if result is not None]
        if errors:
            raise errors[0]
        if taken:
            await self._tell(group, "")

    async def _await_members(self, group: PlacedPodGroup, count: int) -> None:
        """Say that Pods of a group are missing, once no more have come for a while."""
        loop = asyncio.get_running_loop()
        former, since = self._incomplete.get(group.key, (-1, 0.0))
        if former != count:
            self._incomplete[group.key] = count, loop.time()
            loop.call_later(_MEMBERS_SECONDS, self._workers.add, _GANG + group.key)
        elif loop.time() >= since + _MEMBERS_SECONDS - 0.1:
            await self._tell(group, f"only {count} of at least {group.minimum} Pods of the group exist")

    async def _is_coming(self, record: NodePod, group: str) -> bool:
        """Whether the group of a Pod exists, and the informer is about to show it."""
        try:
            body = orjson.loads(await self._client.get(PODGROUPS, _name(group), record.namespace))
        except NotFound:
            return False
        return not decode_pod_group(body).deleting

    async def _obstacle(self, record: NodePod) -> str | None:
        """Why the Pod cannot be bound, requests aside; None if it can, empty if soon."""
        why = self._why_not(record)
        for name in record.claims:
            if why is None:
                why = await self._claim_obstacle(record, name)
        return why

    def _is_unbound(self, record: NodePod) -> bool:
        return _waits(record) and record.uid not in self._binding

    def _bound(self, group: str) -> int:
        """How many Pods of the group are bound and have not ended."""
        return sum(
            1
            for record in self._pods.lister.by_index(group).values()
            if (record.node_name or record.uid in self._binding)
            and record.phase not in TERMINAL
            and record.deletion_grace is None
        )

    async def _bind(self, record: NodePod, node: str) -> None:
        """Bind a Pod to a node that has room for it."""
        self._binding.add(record.uid)
        try:
            await self._send_binding(record, node)
        except BaseException:
            # It may be bound nevertheless; the informer shows it then.
            self._pod_gone(record.uid)
            raise

    async def _send_binding(self, record: NodePod, node: str) -> None:
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": record.name, "namespace": record.namespace, "uid": record.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            await self._client.create(
                PODS, orjson.dumps(binding), record.namespace, name=record.name, subresource="binding"
            )
        except (NotFound, Conflict):
            # Deleted, replaced or bound concurrently; the informer will show it.
            self._pod_gone(record.uid)

    async def _claim_obstacle(self, record: NodePod, name: str) -> str | None:
        """Why a claim of the Pod cannot be used; None if it can, empty if it is about to be bound."""
        claim = self._claims.lister.get(f"{record.namespace}/{name}")
        if claim is not None and claim.bound and not claim.deleting:
            return None
        self._of_claim.setdefault(f"{record.namespace}/{name}", set()).add(record.key)
        if claim is None:
            # The informer may be behind: the claim is often created just before the Pod.
            try:
                claim = decode_claim(
                    orjson.loads(await self._client.get(PERSISTENTVOLUMECLAIMS, name, record.namespace))
                )
            except NotFound:
                return self._on_no_node(f'persistentvolumeclaim "{name}" not found')
        if claim.deleting:
            return self._on_no_node(f'persistentvolumeclaim "{name}" is being deleted')
        if claim.bound:
            return None  # newer than the informer's cache
        unbound = "pod has unbound immediate PersistentVolumeClaims"
        return self._on_no_node(f'{unbound}: "{name}": {claim.obstacle}') if claim.obstacle else ""

    def _on_no_node(self, why: str) -> str:
        return f"0/{len(self._rooms)} nodes are available: {why}."

    def _why_not(self, record: NodePod) -> str | None:
        """Why no node takes the Pod, requests aside; None if one does."""
        obstacles = self._obstacles(record)
        return None if obstacles and not all(obstacles.values()) else unavailable(obstacles)

    def _why_full(self, record: NodePod) -> str:
        """Why no node has room for the Pod; empty if one has and is not open."""
        obstacles = self._obstacles(record)
        for node in obstacles:
            obstacles[node] = obstacles[node] or insufficient(self._rooms.lacking(record, node))
        return unavailable(obstacles) if all(obstacles.values()) else ""

    def _candidates(self, record: NodePod) -> list[str]:
        """The open nodes that take the Pod if they have room."""
        return [node for node, found in self._obstacles(record).items() if not found and node in self._open]

    def _obstacles(self, record: NodePod) -> dict[str, list[str]]:
        """By existing node: why it does not take the Pod, requests aside. In kube-scheduler's words."""
        nodes = (self._nodes.lister.get(name) for name in self._rooms)
        return {node.name: self._obstacles_on(node, record) for node in nodes if node is not None}

    def _obstacles_on(self, node: NodeRecord, record: NodePod) -> list[str]:
        if node.unschedulable and taints.first_untolerated(record.tolerations, [_CORDON]) is not None:
            return ["node(s) were unschedulable"]
        taint = taints.first_untolerated(record.tolerations, node.taints)
        if taint is not None:
            return [f"node(s) had untolerated taint {{{taint.get('key')}: {taint.get('value') or ''}}}"]
        # The labels of a real cluster are not here: the only node takes every Pod.
        if len(self._rooms) > 1 and not _selects(record, node):
            return ["node(s) didn't match Pod's node affinity/selector"]
        return []

    async def _report(self, record: NodePod, why: str) -> None:
        if record.unschedulable == why:
            return
        about = {"apiVersion": "v1", "kind": "Pod", "name": record.name, "uid": record.uid}
        await self._events.warn(record.namespace, about, "FailedScheduling", why)
        now = format_time(int(self._wall()))
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}
        body = {
            "metadata": {"uid": record.uid},
            "status": {"conditions": [{**condition, "lastTransitionTime": now}]},
        }
        with suppress(NotFound, Conflict):
            await self._client.patch(
                PODS,
                record.name,
                orjson.dumps(body),
                record.namespace,
                content_type=STRATEGIC_PATCH,
                subresource="status",
                metadata_only=True,
            )

    async def _tell(self, group: PlacedPodGroup, why_not: str) -> None:
        """Say in the status of a group whether it was scheduled. Once it was, that is not taken back."""
        old = group.initially_scheduled
        status = "False" if why_not else "True"
        if old.get("status") == "True" or (old.get("status"), old.get("message")) == (status, why_not):
            return
        new: dict[str, Any] = {
            "type": INITIALLY_SCHEDULED,
            "status": status,
            "reason": "Unschedulable" if why_not else "Scheduled",
            "message": why_not or "the Pods of the group are scheduled",
            "lastTransitionTime": format_time(int(self._wall())),
        }
        if old.get("status") == status:
            new["lastTransitionTime"] = old["lastTransitionTime"]
        others = [one for one in group.conditions if one is not old]
        body = {
            "metadata": {"uid": group.uid, "resourceVersion": group.resource_version},
            "status": {"conditions": [*others, new]},
        }
        with suppress(NotFound, Conflict):
            # A conflict is a newer version, which the informer shows.
            await self._client.patch(
                PODGROUPS,
                group.name,
                orjson.dumps(body),
                group.namespace,
                content_type=MERGE_PATCH,
                subresource="status",
                metadata_only=True,
            )


def _name(key: str) -> str:
    return key.partition("/")[2]


def _selects(record: NodePod, node: NodeRecord) -> bool:
    if not record.node_selector.items() <= node.labels.items():
        return False
    return record.node_terms is None or matches(record.node_terms, node.name, node.labels)


def _waits(record: NodePod) -> bool:
    return (
        not record.node_name
        and not record.gated
        and record.scheduler_name == NAME
        and record.phase == PENDING
        and record.deletion_grace is None
    )
