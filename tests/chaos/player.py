"""Takes the steps of a story, lets everything come to a fair end, and judges the rest; on any cluster.

`tests.chaos.embedded` plays by virtual time on an embedded cluster, `tests.chaos.real` on a real control plane.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.codec import decode_status
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.commands.finalizers import held, let_go
from frameworkcontroller.commands.invocation import Invocation
from frameworkcontroller.config.config import Config, Kueue, KueueMode
from frameworkcontroller.config.historyconfig import History, HistorySinkKind, Logs, OnUnavailable
from frameworkcontroller.kube.client import JSON_PATCH, MERGE_PATCH, KubeClient
from frameworkcontroller.kube.errors import (
    AlreadyExists,
    ApiServerError,
    Conflict,
    Forbidden,
    KubeError,
    NotFound,
    TooManyRequests,
    TransportError,
)
from frameworkcontroller.kube.resources import (
    CONFIGMAPS,
    CRDS,
    NODES,
    PERSISTENTVOLUMECLAIMS,
    PODGROUPS,
    PODS,
    SERVICES,
    WORKLOADS,
    Resource,
)
from frameworkcontroller.local.kubelet.agent import DEFAULT_NODE_NAME
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.local.queues.setup import provide_queue
from frameworkcontroller.machine.kernel.model import KeepLogs
from tests.chaos.history import is_held
from tests.chaos.oddities import MAX_EXEC_LABEL, break_roles, mended_fields
from tests.chaos.oracle import why_claims_differ, why_not_at_end, why_not_served
from tests.chaos.proxy import Fault, FaultProxy, Kind
from tests.chaos.record import Circumstances, Replay, Write
from tests.chaos.snapshots import Snapshots
from tests.chaos.story import CLAIM_SPEC, OWNER, Story, with_life
from tests.support.frameworks import Frameworks, Json
from tests.support.historysink import ArchiveStandIn, Trouble
from tests.support.original import crd_spec
from tests.support.world import name_of, uid_of

CONFIG: Final = Config(
    framework_min_retry_delay_sec_for_transient_conflict_failed=5,
    framework_max_retry_delay_sec_for_transient_conflict_failed=20,
    task_min_retry_delay_sec=1,
    task_max_retry_delay_sec=10,
)


_TRIES_FOR_A_NAME: Final = 100
_HOLD: Final = "example.com/hold"
_LAST_DELETIONS: Final = {"f0": "Background", "f1": "Foreground", "f2": "Background"}
"""How each Framework is deleted in the end, where the history keeps it until nothing of it runs."""
_PLENTY: Final = 1000
"""Processors that are enough for every Framework of a story."""


def config_of(story: Story, sink: ArchiveStandIn | None) -> Config:
    """The configuration of the story's controllers. ``sink``: the destination of their history."""
    update: dict[str, object] = {
        "framework_completed_retain_sec": story.retain_sec,
        "large_framework_compression": story.compress,
    }
    if sink is not None:
        update["history"] = history_of(story, sink.records_url)
    if story.quota is not None:
        update["kueue"] = Kueue(mode=KueueMode.ENABLED)
    return CONFIG.model_copy(update=update)


def history_of(story: Story, url: str) -> History:
    """The section about the history of a story that has one."""
    logs = Logs(keep=KeepLogs.ALL, capture_seconds=5)
    return History(sink=HistorySinkKind.HTTP, url=url, on_unavailable=OnUnavailable(story.history or ""), logs=logs)


def _stalled_by_history(framework: Json) -> str | None:
    conditions = (framework.get("status") or {}).get("conditions") or ()
    reasons = [one["reason"] for one in conditions if one["type"] == "Stalled" and one["status"] == "True"]
    return next((f"it is Stalled, {reason}" for reason in reasons if reason.startswith("History")), None)


class Unfinished(AssertionError):
    """Something did not come to its end, or left something behind."""


@dataclass
class Outcome:
    """How a story ended. ``recovery``: seconds from the end of all faults until all was where it must be."""

    story: Story
    recovery: float = 0.0
    writes: int = 0
    injected: Counter[str] = field(default_factory=Counter)
    error: AssertionError | None = None


class Replica(Protocol):
    """One controller behind a proxy of its own, where it is killed and restarted."""

    name: str
    proxy: FaultProxy

    def start(self) -> None:
        """A new life, if it has none."""

    async def kill(self) -> None:
        """As SIGKILL does: no later byte of it gets anywhere. Raises Unfinished."""

    async def stop(self) -> None:
        """As SIGTERM does, and wait for its end. Raises Unfinished."""

    def why_ended(self) -> str:
        """The error that it ended with by itself; empty while it has not."""


class Player:
    """All users of the Frameworks of one namespace, and all who start and kill their controllers.

    ``a`` works from beginning to end, except when it is killed, ``b`` for a while. A subclass provides both, and kills
    and starts the API server.
    """

    a: Replica
    b: Replica
    mends_watches: bool
    """Whether the fair end brings what watches lost, too (`FaultProxy.calm`)."""
    patience: float
    """Seconds after which a Framework that is not where it must be never will be."""
    glance: float
    """Seconds between two looks at it."""

    def __init__(
        self,
        story: Story,
        client: KubeClient,
        namespace: str,
        runtime: SimulatedRuntime,
        wall: Callable[[], float],
    ) -> None:
        self.story = story
        self.circumstances = Circumstances()
        self.snapshots = Snapshots()
        self.injected: Counter[str] = Counter()
        self.sink = None if story.history is None else ArchiveStandIn(self._moment)
        self._client = client
        self._namespace = namespace
        self._runtime = runtime
        self._wall = wall
        self._frameworks = Frameworks(client, namespace)
        self._others: dict[str, tuple[Resource, Json]] = {}
        """Objects that have taken a name that a Framework needs, by UID."""
        self._touched_claims: set[str] = set()
        """Names of claims that somebody has deleted, or taken the labels off."""
        self._let_loose: set[str] = set()
        """Frameworks (by UID) whose ConfigMap was once deleted so that it waited for no Pod."""
        self._later: set[asyncio.Task[None]] = set()

    # --- the course of things ---------------------------------------------------------------------------------------

    async def play(self) -> None:
        """Take every step at its time."""
        began = asyncio.get_running_loop().time()
        for step in self.story.steps:
            await asyncio.sleep(max(0.0, began + step.at - asyncio.get_running_loop().time()))
            act = getattr(self, step.act)
            # A user who is refused, or not answered, gives up.
            with suppress(KubeError):
                await act(*step.args)
            self._alive()
        await asyncio.sleep(1)

    async def mend(self) -> None:
        """All faults stop, and one controller is at work."""
        await self.forget_what_was_to_come()
        await self.b.kill()
        await self.serve()
        self._runtime.restore_node()
        for name in await self._all():
            await self._mend_spec(name)
        if self.story.quota is not None:
            for name in await self._all():
                with suppress(NotFound):
                    await self.set_label(name, MAX_EXEC_LABEL, None)
            await self._open_queue()
        await self.a.proxy.calm(mend_watches=self.mends_watches)
        if self.sink is not None:
            await self.sink.calm()
            for name in await self._all():
                await self._let_go(name)
        for resource, taken in self._others.values():
            await self._give_name_back(resource, taken)
        self.a.start()

    async def finish(self) -> float:
        """Everything comes to its end, and goes. Returns how long the first took, in seconds."""
        clock = asyncio.get_running_loop().time
        began = clock()
        before = {name: body.get("status") for name, body in (await self._all()).items()}
        await self._until(lambda: self._who_is_not_at_end(before))
        recovery = clock() - began
        self.circumstances.settled_at = await self._revision()
        for name in await self._all():
            # The end of its retention may be now.
            with suppress(NotFound):
                if self.story.broken_end:
                    await self._break_spec(name, 0.0)
                await self._frameworks.set(name, executionType="Stop")
        await self._until(lambda: self._who_is_not_at_end({}))
        await self._until(self._what_is_left)
        for name in await self._all():
            with suppress(NotFound):
                await self.delete(name, "Foreground" if self.story.history is None else _LAST_DELETIONS[name])
        await self._until(self._what_is_left)
        await self._until(self._who_is_there)
        await self._until(self._which_companions_are_left)
        await self._until(self._what_the_history_misses)
        await self.a.stop()
        return recovery

    def check_record(self, writes: list[Write]) -> None:
        """Check every write, and each deletion that the controllers sent.

        Raises:
            Violation: something promised was not kept.
        """
        replay = Replay(self.circumstances, config_of(self.story, self.sink).plan_limits(), self.sink)
        changes = sorted(
            (*self.a.proxy.changes_of_workloads, *self.b.proxy.changes_of_workloads), key=lambda one: one.moment
        )
        for moment, write in enumerate([*writes, None]):
            while changes and changes[0].moment <= moment:
                replay.judge_change(changes.pop(0))
            if write is not None:
                replay.take(write)
        for deletion in (*self.a.proxy.deletions, *self.b.proxy.deletions):
            replay.judge_deletion(deletion)
        replay.history.check_end(loose=self.circumstances.loose)
        self.snapshots.check(writes, self.circumstances)

    async def _moment(self) -> int:
        """The revision of the next write, or less."""
        raise NotImplementedError

    async def forget_what_was_to_come(self) -> None:
        """Cancel the events that were due later."""
        for task in list(self._later):
            task.cancel()
        if self._later:
            await asyncio.wait(self._later)

    def _alive(self) -> None:
        if why := self.a.why_ended() or self.b.why_ended():
            raise Unfinished(why)

    async def _until(self, why_not: Callable[[], Awaitable[str]]) -> None:
        """Wait until ``why_not()`` says nothing more."""
        clock = asyncio.get_running_loop().time
        end = clock() + self.patience
        while why := await why_not():
            self._alive()
            if clock() > end:
                stories = "\n".join(orjson.dumps(body).decode() for body in (await self._all()).values())
                raise Unfinished(f"after {self.patience:g} s without any fault: {why}\n{stories}")
            await asyncio.sleep(self.glance)

    async def _all(self) -> dict[str, Json]:
        items = orjson.loads(await self._client.list(FRAMEWORKS, self._namespace))["items"]
        return {item["metadata"]["name"]: item for item in items}

    async def _list(self, resource: Resource) -> dict[str, Json]:
        items = orjson.loads(await self._client.list(resource, self._namespace))["items"]
        return {item["metadata"]["name"]: item for item in items}

    async def _revision(self) -> int:
        return int(orjson.loads(await self._client.list(PODS, self._namespace))["metadata"]["resourceVersion"])

    async def _who_is_not_at_end(self, before: dict[str, Json | None]) -> str:
        if self.story.quota is not None:
            # The queue may have deactivated a Workload by its old bound of execution.
            await self._activate_all()
        pods = {pod["metadata"]["uid"]: pod for pod in (await self._frameworks.pods()).values()}
        services, claims = await self._list(SERVICES), await self._list(PERSISTENTVOLUMECLAIMS)
        for name, body in (await self._all()).items():
            if "deletionTimestamp" in body["metadata"]:
                return f"{name} is being deleted"
            if (why := _stalled_by_history(body)) is not None:
                return f"{name}: {why}"
            if why := why_not_at_end(body, pods, before.get(name)) or why_not_served(body, services):
                return f"{name}: {why}"
            if why := why_claims_differ(body, claims, self._touched_claims):
                return f"{name}: {why}"
        return ""

    async def _what_is_left(self) -> str:
        if self.circumstances.orphaned:
            await self._delete_orphans()
        left = [
            f"{resource.plural}/{item['metadata']['name']}"
            for resource in (PODS, CONFIGMAPS)
            for item in orjson.loads(await self._client.list(resource, self._namespace))["items"]
            if names.FRAMEWORK_NAME in (item["metadata"].get("labels") or {})
        ]
        return f"left over: {left}" if left else ""

    async def _which_companions_are_left(self) -> str:
        left = [
            f"{resource.plural}/{name}"
            for resource in self._companions()
            for name, body in (await self._list(resource)).items()
            if body["metadata"].get("ownerReferences")
        ]
        return f"left over: {left}" if left else ""

    def _companions(self) -> list[Resource]:
        """The kinds of a Framework's objects, except ConfigMaps and Pods."""
        queues = [] if self.story.quota is None else [WORKLOADS]
        return [SERVICES, PERSISTENTVOLUMECLAIMS, *queues, *([PODGROUPS] if self.story.gangs else [])]

    async def _what_the_history_misses(self) -> str:
        """A silent watch shows a deletion only by the next list."""
        return ""

    async def _who_is_there(self) -> str:
        return ", ".join(await self._all())

    def spawn(self, seconds: float, then: Callable[[], Awaitable[object]]) -> None:
        """Have this happen later."""

        async def wait() -> None:
            await asyncio.sleep(seconds)
            await then()

        task = asyncio.create_task(wait(), name="later")
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    # --- users ------------------------------------------------------------------------------------------------------

    async def create(self, name: str, roles: list[Json], spec: Json) -> None:
        while True:
            try:
                await self._set_owners(roles)
                await self._frameworks.create(name, *roles, **spec)
            except (TransportError, ApiServerError, TooManyRequests, Forbidden, NotFound):
                # The API server is down, or only just up: it knows neither rules nor definitions for a while. Without
                # a Framework there is no story.
                await asyncio.sleep(0.5)
            except AlreadyExists:
                # An answer was lost.
                return
            else:
                return

    async def _set_owners(self, roles: list[Json]) -> None:
        """Set the UID of the owner in templates, which is created with the first of them."""
        found = (item["task"]["pod"]["metadata"].get("ownerReferences") or () for item in roles)
        if owners := [one for references in found for one in references]:
            client, namespace = self._frameworks.client, self._frameworks.namespace
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": OWNER}}
            with suppress(AlreadyExists):
                await client.create(CONFIGMAPS, orjson.dumps(body), namespace)
            uid = orjson.loads(await client.get(CONFIGMAPS, OWNER, namespace))["metadata"]["uid"]
            for owner in owners:
                owner["uid"] = uid

    async def _change_roles(self, name: str, change: Any) -> None:
        spec = (await self._frameworks.get(name))["spec"]
        roles = change(spec["taskRoles"])
        named = {item["name"] for item in roles}
        for item in roles:
            if "dependsOn" in item:
                # A role that waits for one that is not there is an invalid spec.
                item["dependsOn"] = [one for one in item["dependsOn"] or () if one["name"] in named]
        fields: Json = {"taskRoles": roles}
        numbers = {item["name"]: item.get("taskNumber", 1) for item in roles}
        coordinator = spec.get("coordinator")
        if coordinator and coordinator.get("taskIndex", 0) >= numbers.get(coordinator["taskRole"], 0):
            # A coordinator that is no Task is an invalid spec.
            fields["coordinator"] = None
        await self._frameworks.set(name, **fields)

    async def break_spec(self, name: str, which: float, seconds: float) -> None:
        """A user makes the spec invalid for this time."""
        await self._break_spec(name, which)
        self.spawn(seconds, partial(self._mend_spec, name))

    async def _break_spec(self, name: str, which: float) -> None:
        spec = (await self._frameworks.get(name))["spec"]
        queued = self.story.quota is not None
        await self._frameworks.set(name, **break_roles(random.Random(which), spec["taskRoles"], queued=queued))
        self.injected["invalid_spec"] += 1

    async def _mend_spec(self, name: str) -> None:
        """Repeat it until it succeeds."""
        while True:
            try:
                fields = mended_fields((await self._frameworks.get(name))["spec"])
                if fields:
                    await self._frameworks.set(name, **fields)
            except NotFound:
                return
            except KubeError:
                await asyncio.sleep(0.5)
            else:
                return

    async def rescale(self, name: str, role_name: str, number: int) -> None:
        await self._change_roles(
            name,
            lambda roles: [item | {"taskNumber": number} if item["name"] == role_name else item for item in roles],
        )

    async def drop_role(self, name: str, role_name: str) -> None:
        await self._change_roles(name, lambda roles: [item for item in roles if item["name"] != role_name])

    async def add_role(self, name: str, added: Json) -> None:
        def change(roles: list[Json]) -> list[Json]:
            # The policy of retries stays, by which Tasks may be over already: the oracle knows but one.
            policies = [item["task"].get("retryPolicy") for item in roles if item["name"] == added["name"]]
            kept = {} if not any(policies) else {"retryPolicy": policies[0]}
            others = [item for item in roles if item["name"] != added["name"]]
            return [*others, added | {"task": added["task"] | kept}]

        await self._set_owners([added])
        await self._change_roles(name, change)

    async def set_completion(self, name: str, role_name: str, ends: Json) -> None:
        await self._change_roles(
            name,
            lambda roles: [
                item | {"frameworkAttemptCompletionPolicy": ends} if item["name"] == role_name else item
                for item in roles
            ],
        )

    async def set_timeout(self, name: str, role_name: str, seconds: int | None, force: str | None = None) -> None:
        def change(roles: list[Json]) -> list[Json]:
            task = {"podGracefulDeletionTimeoutSec": seconds, "podForceDeletionPolicy": force or "Always"}
            return [item | {"task": item["task"] | task} if item["name"] == role_name else item for item in roles]

        await self._change_roles(name, change)

    async def set_spec(self, name: str, fields: Json) -> None:
        await self._frameworks.set(name, **fields)

    async def set_task(self, name: str, role_name: str, fields: Json) -> None:
        await self._change_roles(
            name,
            lambda roles: [
                item | {"task": with_life(item["task"], fields)} if item["name"] == role_name else item
                for item in roles
            ],
        )

    async def execute(self, name: str, execution: str) -> None:
        spec = (await self._frameworks.get(name))["spec"]
        if (spec.get("executionType", "Start"), execution) in (
            ("Create", "Start"),
            ("Create", "Stop"),
            ("Start", "Stop"),
        ):
            await self._frameworks.set(name, executionType=execution)

    async def delete(self, name: str, propagation: str) -> None:
        found = await self._frameworks.get(name)
        uid, held = uid_of(found), is_held(found)
        if (
            not held
            and uid in self._let_loose
            and any(names.framework_of(pod) == name for pod in await self._frameworks.pods())
        ):
            # Its ConfigMap was to wait for them (docs/guarantees.md, Limits).
            return
        self.circumstances.deleted_by_others.setdefault(uid, self._wall())
        if propagation == "Orphan":
            self.circumstances.orphaned.add(uid)
        if propagation == "Orphan" or (propagation != "Foreground" and not held):
            # Even after one in the foreground: it takes that one's finalizer away.
            self.circumstances.abandoned.add(uid)
        await self._frameworks.delete(name, propagation)

    async def annotate(self, name: str) -> None:
        patch = [{"op": "add", "path": "/metadata/annotations", "value": {"seen": str(self._wall())}}]
        await self._client.patch(FRAMEWORKS, name, orjson.dumps(patch), self._namespace, content_type=JSON_PATCH)

    # --- the history ------------------------------------------------------------------------------------------------

    async def delete_all(self, propagation: str) -> None:
        """A user deletes all Frameworks at once."""
        for name in await self._all():
            await self.delete(name, propagation)

    async def trouble_sink(self, trouble: Trouble) -> None:
        """The next requests to the sink meet this."""
        if self.sink is not None:
            self.sink.arm(trouble)

    async def stop_sink(self, seconds: float) -> None:
        """The sink is down for this time."""
        if self.sink is not None:
            await self.sink.refuse()
            self.injected["sink_down"] += 1
            self.spawn(seconds, self.sink.accept)

    async def refuse_records(self, which: int, seconds: float) -> None:
        """The sink refuses some records for this time."""
        if (sink := self.sink) is not None:
            sink.poison(which)

            async def accept() -> None:
                sink.poison(None)

            self.spawn(seconds, accept)

    async def give_history_up(self, name: str) -> None:
        """A user gives up the history of the Framework."""
        if (found := held(await self._frameworks.get(name))) is not None:
            self.circumstances.released.add(found.uid)
            self.injected["released"] += 1
            await let_go(Invocation(self._client, self._namespace), found)

    async def hold(self, name: str, first: bool, seconds: float) -> None:
        """Another client keeps the Framework for this time, by a finalizer before or after all others."""
        finalizers = (await self._frameworks.get(name))["metadata"].get("finalizers") or []
        place = "0" if first and finalizers else "-" if finalizers else ""
        value: object = _HOLD if finalizers else [_HOLD]
        path = f"/metadata/finalizers{'/' if place else ''}{place}"
        patch = [{"op": "add", "path": path, "value": value}]
        await self._client.patch(FRAMEWORKS, name, orjson.dumps(patch), self._namespace, content_type=JSON_PATCH)
        self.spawn(seconds, partial(self._let_go, name))

    async def _let_go(self, name: str) -> None:
        """Repeat it until it succeeds."""
        while True:
            try:
                finalizers = (await self._frameworks.get(name))["metadata"].get("finalizers") or []
                if _HOLD not in finalizers:
                    return
                path = f"/metadata/finalizers/{finalizers.index(_HOLD)}"
                patch = [{"op": "test", "path": path, "value": _HOLD}, {"op": "remove", "path": path}]
                await self._client.patch(
                    FRAMEWORKS, name, orjson.dumps(patch), self._namespace, content_type=JSON_PATCH
                )
            except NotFound:
                return
            except KubeError:
                await asyncio.sleep(0.5)

    async def _delete_orphans(self) -> None:
        """Who wanted the dependents of a Framework to stay deletes them himself."""
        for found in (await self._list(CONFIGMAPS)).values():
            is_orphan = names.FRAMEWORK_NAME in (found["metadata"].get("labels") or {}) and not found["metadata"].get(
                "ownerReferences"
            )
            if is_orphan and "deletionTimestamp" not in found["metadata"]:
                with suppress(NotFound, Conflict):
                    await self._delete(CONFIGMAPS, found)

    # --- nodes, and others ------------------------------------------------------------------------------------------

    async def _pod(self, which: int, *, running: bool = False) -> Json | None:
        pods = await self._frameworks.pods()
        there = [name for name in sorted(pods) if not running or f"{self._namespace}/{name}" in self._runtime.running()]
        return pods[there[which % len(there)]] if there else None

    async def fail_pod(self, which: int, code: int) -> None:
        if (pod := await self._pod(which, running=True)) is not None:
            with suppress(KeyError):
                self._runtime.fail(f"{self._namespace}/{pod['metadata']['name']}", code)

    async def evict_pod(self, which: int) -> None:
        if (pod := await self._pod(which, running=True)) is not None:
            with suppress(KeyError):
                self._runtime.fail_pod(f"{self._namespace}/{pod['metadata']['name']}", "Evicted", "chaos")

    async def evict(self, which: int) -> None:
        """A client uses the eviction API, which sets a condition before it deletes the Pod."""
        if (pod := await self._pod(which)) is not None:
            name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
            self.circumstances.deleted_by_others.setdefault(uid, self._wall())
            eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
            await self._client.create(PODS, orjson.dumps(eviction), self._namespace, name=name, subresource="eviction")

    async def call_disruption_off(self, which: int) -> None:
        """Kubernetes was about to evict a Pod, and does not."""
        if (pod := await self._pod(which)) is not None:
            condition = {"type": "DisruptionTarget", "status": "False", "reason": "EvictionByEvictionAPI"}
            body = orjson.dumps({"status": {"conditions": [*(pod["status"].get("conditions") or ()), condition]}})
            name = pod["metadata"]["name"]
            await self._client.patch(PODS, name, body, self._namespace, subresource="status", content_type=MERGE_PATCH)

    async def delete_pod(self, which: int) -> None:
        if (pod := await self._pod(which)) is not None:
            await self._delete(PODS, pod)

    async def unlabel(self, which: int) -> None:
        """A user removes the labels of a Pod."""
        if (pod := await self._pod(which)) is not None:
            bare = orjson.dumps({"metadata": {"labels": None}})
            name = pod["metadata"]["name"]
            await self._client.patch(PODS, name, bare, self._namespace, content_type=MERGE_PATCH)

    async def replace_crd(self) -> None:
        """A user applies the original's CRD, without a status subresource, over ours."""
        crd = orjson.loads(await self._client.get(CRDS, names.CRD_NAME))
        await self._client.replace(CRDS, names.CRD_NAME, orjson.dumps({**crd, "spec": crd_spec("v1")}))
        self.injected["replaced_crd"] += 1

    async def take_name(self, which: int, labelled: bool, seconds: float) -> None:
        """A client takes a Pod's name for this time, once it is free; in the cache if ``labelled``."""
        if (pod := await self._pod(which)) is not None:
            metadata = pod["metadata"]
            labels = (metadata.get("labels") or {}) if labelled else {}
            spec = {"containers": [{"name": "main", "image": "none", "command": ["work"]}]}
            body = {"metadata": {"name": metadata["name"], "labels": labels}, "spec": spec}
            self.spawn(0.0, partial(self._take_name, PODS, body, seconds))

    async def _take_name(self, resource: Resource, body: Json, seconds: float) -> None:
        for _ in range(_TRIES_FOR_A_NAME):
            with suppress(KubeError):
                taken = orjson.loads(await self._client.create(resource, orjson.dumps(body), self._namespace))
                self._others[taken["metadata"]["uid"]] = resource, taken
                self.injected["taken_name"] += 1
                break
            await asyncio.sleep(0.1)
        else:
            return
        await asyncio.sleep(seconds)
        await self._give_name_back(resource, taken)

    async def _give_name_back(self, resource: Resource, taken: Json) -> None:
        while True:
            try:
                await self._delete(resource, taken)
            except (NotFound, Conflict):
                return
            except KubeError:
                await asyncio.sleep(0.5)
            else:
                return

    async def delete_service(self, name: str) -> None:
        """A user deletes a Service. Without its labels only a resync would show that, and there is none."""
        if (found := (await self._list(SERVICES)).get(name)) is not None and found["metadata"].get("labels"):
            await self._delete(SERVICES, found)

    async def delete_service_always(self, name: str, pause: float, seconds: float) -> None:
        """A user deletes a Service as often as it is created."""

        async def delete() -> None:
            for _ in range(round(seconds / pause)):
                with suppress(KubeError):
                    await self.delete_service(name)
                await asyncio.sleep(pause)

        self.spawn(0.0, delete)

    async def take_service(self, name: str, labelled: bool, seconds: float) -> None:
        """A client takes a Service's name for this time, once it is free."""
        labels = {names.FRAMEWORK_NAME: name} if labelled else {}
        spec = {"clusterIP": "None", "selector": {"app": "other"}}
        self.spawn(
            0.0,
            partial(self._take_name, SERVICES, {"metadata": {"name": name, "labels": labels}, "spec": spec}, seconds),
        )

    async def unlabel_service(self, name: str) -> None:
        """A user removes the labels of a Framework's Service."""
        found = (await self._list(SERVICES)).get(name)
        if found is not None and found["metadata"].get("ownerReferences"):
            bare = orjson.dumps({"metadata": {"uid": uid_of(found), "labels": None}})
            await self._client.patch(SERVICES, name, bare, self._namespace, content_type=MERGE_PATCH)

    async def _claim(self, which: int) -> Json | None:
        """A claim of a Framework that a controller sees."""
        found = await self._list(PERSISTENTVOLUMECLAIMS)
        seen = [
            one
            for one in found.values()
            if one["metadata"].get("labels") and names.FRAMEWORK_UID in one["metadata"].get("annotations", {})
        ]
        return seen[which % len(seen)] if seen else None

    async def delete_claim(self, which: int) -> None:
        if (found := await self._claim(which)) is not None:
            self._touched_claims.add(name_of(found))
            await self._delete(PERSISTENTVOLUMECLAIMS, found)

    async def unlabel_claim(self, which: int) -> None:
        """A user removes the labels of a claim."""
        if (found := await self._claim(which)) is not None:
            self._touched_claims.add(name_of(found))
            bare = orjson.dumps({"metadata": {"uid": uid_of(found), "labels": None}})
            resource = PERSISTENTVOLUMECLAIMS
            await self._client.patch(resource, name_of(found), bare, self._namespace, content_type=MERGE_PATCH)

    async def take_claim(self, name: str, labels: Json, annotations: Json, seconds: float) -> None:
        """A client takes a claim's name for this time, once it is free."""
        metadata = {"name": name, "labels": labels, "annotations": annotations}
        body = {"metadata": metadata, "spec": CLAIM_SPEC}
        self.spawn(0.0, partial(self._take_name, PERSISTENTVOLUMECLAIMS, body, seconds))

    # --- queues ----------------------------------------------------------------------------------------------------

    async def _workload(self, which: int) -> Json | None:
        found = list((await self._list(WORKLOADS)).values())
        return found[which % len(found)] if found else None

    async def _set_active(self, found: Json, active: bool) -> None:
        body = orjson.dumps({"metadata": {"uid": uid_of(found)}, "spec": {"active": active}})
        await self._client.patch(WORKLOADS, name_of(found), body, self._namespace, content_type=MERGE_PATCH)

    async def deactivate_workload(self, which: int, seconds: float) -> None:
        """A user deactivates a Workload, and activates it again."""
        if (found := await self._workload(which)) is None:
            return
        await self._set_active(found, False)

        async def activate() -> None:
            with suppress(KubeError):
                await self._set_active(found, True)

        self.spawn(seconds, activate)

    async def delete_workload(self, which: int) -> None:
        if (found := await self._workload(which)) is not None:
            await self._delete(WORKLOADS, found)

    async def set_label(self, name: str, label: str, value: str | None) -> None:
        """A user sets a label of a Framework, or removes it."""
        body = orjson.dumps({"metadata": {"labels": {label: value}}})
        await self._client.patch(FRAMEWORKS, name, body, self._namespace, content_type=MERGE_PATCH)

    async def set_quota(self, cpu: int) -> None:
        """The quota of the queue becomes this."""
        await provide_queue(self._client, {"cpu": str(cpu)}, namespace=self._namespace)

    async def _open_queue(self) -> None:
        """Everything that waits is admitted from now on."""
        await self.set_quota(_PLENTY)
        await self._activate_all()

    async def _activate_all(self) -> None:
        for found in (await self._list(WORKLOADS)).values():
            if not found["spec"].get("active", True):
                with suppress(NotFound):
                    await self._set_active(found, True)

    async def set_retention(self, name: str, role_name: str, retention: Json) -> None:
        await self._change_roles(
            name,
            lambda roles: [
                item | {"persistentVolumeClaimRetentionPolicy": retention} if item["name"] == role_name else item
                for item in roles
            ],
        )

    async def deny(self, resource: str, verbs: tuple[str, ...], seconds: float) -> None:
        """The controller lacks this permission for this time."""
        self.a.proxy.deny(resource, *verbs)
        self.injected["denied"] += 1

        async def permit() -> None:
            self.a.proxy.deny(resource)

        self.spawn(seconds, permit)

    async def delete_configmap(self, name: str, propagation: str = "") -> None:
        """``propagation``: Foreground, Background or Orphan; "" as the ConfigMap's finalizer says."""
        if propagation == "Orphan" and (self.story.gangs or not await self._are_pods_recorded(name)):
            # An orphan that no status records has no owner, and keeps its name (docs/guarantees.md, Limits).
            propagation = "Background"
        found = await self._client.get(CONFIGMAPS, names.configmap_name(name), self._namespace)
        if propagation in ("Background", "Orphan"):
            self._let_loose.add(uid_of(await self._frameworks.get(name)))
        await self._delete(CONFIGMAPS, orjson.loads(found), propagation or None)

    async def _are_pods_recorded(self, name: str) -> bool:
        """Whether the stored status records each Pod of the Framework."""
        status = decode_status((await self._frameworks.get(name)).get("status"))
        tasks = () if status is None else [task for role in status.attempt.roles for task in role.tasks]
        recorded = {task.attempt.pod_uid for task in tasks}
        pods = (await self._frameworks.pods()).values()
        return {uid_of(pod) for pod in pods if names.framework_of(name_of(pod)) == name} <= recorded

    async def _delete(self, resource: Resource, body: Json, propagation: str | None = None) -> None:
        name, uid = body["metadata"]["name"], body["metadata"]["uid"]
        self.circumstances.deleted_by_others.setdefault(uid, self._wall())
        await self._client.delete(resource, name, self._namespace, uid=uid, propagation=propagation)

    async def lose_node(self, seconds: float, found_after: float | None = None) -> None:
        """The node is lost; after ``found_after`` seconds Kubernetes says so."""
        self._runtime.lose_node()

        async def find() -> None:
            with suppress(KubeError):
                await self._taint("node.kubernetes.io/unreachable")

        async def back() -> None:
            self._runtime.restore_node()
            with suppress(KubeError):
                await self._taint()

        if found_after is not None:
            self.spawn(found_after, find)
        self.spawn(seconds, back)

    async def _taint(self, *keys: str) -> None:
        """The Node has these taints, and no others."""
        taints = [{"key": key, "effect": "NoExecute"} for key in keys]
        body = orjson.dumps({"spec": {"taints": taints or None}})
        await self._client.patch(NODES, DEFAULT_NODE_NAME, body, content_type=MERGE_PATCH)

    # --- killers ----------------------------------------------------------------------------------------------------

    async def kill_server(self) -> None:
        """Kill the API server."""
        raise NotImplementedError

    async def serve(self) -> None:
        """Restart the API server on its stored data, if it was killed."""
        raise NotImplementedError

    async def restart_server(self, seconds: float) -> None:
        await self.kill_server()
        self.spawn(seconds, self.serve)

    async def kill_controller(self, seconds: float) -> None:
        await self.a.kill()
        self.spawn(seconds, self._start_anew)

    async def second_controller(self, seconds: float) -> None:
        self.circumstances.loose = True
        await self.b.proxy.accept()
        self.b.start()
        self.spawn(seconds, self.b.kill)

    async def kill_at_write(self, number: int, executed: bool, seconds: float) -> None:
        async def die() -> None:
            await self.kill_controller(seconds)

        self.a.proxy.kill_at(number, executed=executed, strike=lambda: self.spawn(0.0, die))

    async def _start_anew(self) -> None:
        await self.a.proxy.accept()
        self.a.start()

    async def refuse_connections(self, seconds: float) -> None:
        await self.a.proxy.refuse()
        self.spawn(seconds, self.a.proxy.accept)

    async def slow_down(self, resource: str, before: float, after: float) -> None:
        for replica in (self.a, self.b):
            replica.proxy.slow_down(resource, before, after)

    async def fault(self, fault: Fault) -> None:
        if fault.kind is Kind.LATE:
            self.circumstances.loose = True
        self.a.proxy.arm(fault)
