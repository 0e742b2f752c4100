"""What is measured: each scenario for the controller and, where that says something, for the null client.

A scenario is one round. It returns figures by name, in seconds unless the name says otherwise. Those of the null client
have the same names: ratios are taken between equal ones.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final

import orjson

from benchmarks.world import Client, Running, Seen, World
from frameworkcontroller.kube.resources import PODS

Figures = dict[str, float]
Targets = Mapping[str, tuple[str, float]]

_CREATORS: Final = 20
_RUNNING: Final = "AttemptRunning"
_COMPLETED: Final = "Completed"
_STATUS: Final = "patch frameworks/status"


def _all_running(tasks: int) -> Callable[[Seen], bool]:
    return lambda seen: seen.states.get(_RUNNING, 0) == tasks == sum(seen.states.values())


def _is_completed(seen: Seen) -> bool:
    return seen.state == _COMPLETED


class _Meter:
    """What a part of a run took: the client's requests, bytes and CPU, and the API server's CPU."""

    def __init__(self, world: World, client: Client) -> None:
        self._world = world
        self._client = client

    async def begin(self) -> None:
        self._before = await self._client.counts()
        self._server = self._world.server_cpu_seconds

    async def end(self, prefix: str, *, pods: int, frameworks: int = 1) -> Figures:
        now, before = await self._client.counts(), self._before
        used = now.cpu_seconds - before.cpu_seconds
        figures = {
            f"{prefix}: CPU of the client, ms a Pod": used * 1000 / pods,
            f"{prefix}: CPU of the API server and etcd, ms a Pod": (
                (self._world.server_cpu_seconds - self._server) * 1000 / pods
            ),
            f"{prefix}: requests a Pod": (now.requests - before.requests).total() / pods,
            f"{prefix}: kB sent a Pod": (now.sent_bytes - before.sent_bytes) / 1000 / pods,
        }
        writes = now.requests[_STATUS] - before.requests[_STATUS]
        return {f"{prefix}: status writes of a Framework": writes / frameworks, **figures}


# --- one Framework, from its creation to its end ---------------------------------------------------------------------


async def launch(world: World, tasks: int, *, null: bool = False) -> Figures:
    """One Framework: all Pods exist; all are shown Running; all exit at once; Completed."""
    namespace = await world.namespace()
    key = f"{namespace}/f"
    async with AsyncExitStack() as stack:
        client: Client = world.null if null else await stack.enter_async_context(world.controller())
        meter = _Meter(world, client)
        await meter.begin()
        began = time.monotonic()
        body = await world.create(namespace, "f", tasks)
        if null:
            await world.null.call("launch", namespace=namespace, frameworks=[body])
        created = await world.node.call("when", namespace=namespace, what="created", count=tasks)
        running = await world.node.call("when", namespace=namespace, what="running", count=tasks)
        if null:
            await world.null.call("show", namespace=namespace)
        shown = await world.observer.when(key, _all_running(tasks))
        figures = {
            "all Pods exist": created - began,
            "all Pods run": running - began,
            "shown Running": shown - began,
            **await meter.end("launch", pods=tasks),
        }
        await meter.begin()
        began = time.monotonic()
        await world.node.call("end", namespace=namespace)
        ended = await world.node.call("when", namespace=namespace, what="ended", count=tasks)
        if null:
            await world.null.call("finish", namespace=namespace)
        completed = await world.observer.when(key, _is_completed)
        figures |= {"all Pods ended": ended - began, "Completed": completed - began}
        figures |= await meter.end("finish", pods=tasks)
        figures["peak MiB"] = client.usage.peak_memory_bytes / 2**20
        if isinstance(client, Running):
            figures |= await client.logs()
    await world.clear(namespace)
    return figures


# --- many Frameworks at once -----------------------------------------------------------------------------------------


async def _create_all(world: World, namespace: str, number: int, tasks: int, *, null: bool = False) -> dict[str, float]:
    """Create so many Frameworks; when each was sent, by its key. ``null``: the null client launches each at once."""
    names = iter([f"f{index}" for index in range(number)])
    at: dict[str, float] = {}

    async with asyncio.TaskGroup() as group:

        async def create() -> None:
            for name in names:
                at[f"{namespace}/{name}"] = time.monotonic()
                body = await world.create(namespace, name, tasks)
                if null:
                    group.create_task(world.null.call("launch", namespace=namespace, frameworks=[body], show=True))

        for _ in range(_CREATORS):
            group.create_task(create())
    return at


async def storm(world: World, number: int, *, null: bool = False) -> Figures:
    """So many Frameworks of 2 Tasks at once, whose Pods end as soon as they run: all Completed."""
    tasks = 2
    namespace = await world.namespace()
    await world.node.call("mode", namespace=namespace, lasting=0.0)
    completed: dict[str, float] = {}
    done = asyncio.Event()

    def listen(seen: Seen) -> None:
        if seen.key.startswith(namespace + "/") and _is_completed(seen):
            completed.setdefault(seen.key, seen.at)
            if len(completed) == number:
                done.set()

    world.observer.listeners.append(listen)
    async with AsyncExitStack() as stack:
        client: Client = world.null if null else await stack.enter_async_context(world.controller())
        meter = _Meter(world, client)
        await meter.begin()
        at = await _create_all(world, namespace, number, tasks, null=null)
        if null:
            await world.node.call("when", namespace=namespace, what="ended", count=number * tasks)
            await world.null.call("finish", namespace=namespace)
        await done.wait()
        took = sorted(completed[key] - at[key] for key in at)
        last = max(completed.values()) - min(at.values())
        figures = {
            "Frameworks a second": number / last,
            "median / last": statistics.median(took) / last,
            "one Framework: p50": statistics.median(took),
            "one Framework: p99": took[int(len(took) * 0.99) - 1],
            "last": last,
            **await meter.end("storm", pods=number * tasks, frameworks=number),
            "peak MiB": client.usage.peak_memory_bytes / 2**20,
        }
    world.observer.listeners.remove(listen)
    await world.clear(namespace)
    return figures


# --- changes of what runs --------------------------------------------------------------------------------------------


async def rescale(world: World, tasks: int, *, null: bool = False) -> Figures:
    """A Framework that runs: so many Tasks more; then so many fewer."""
    most = 2 * tasks
    namespace = await world.namespace()
    key = f"{namespace}/f"
    async with AsyncExitStack() as stack:
        client: Client = world.null if null else await stack.enter_async_context(world.controller())
        meter = _Meter(world, client)
        await _run(world, namespace, tasks, null=null)
        await meter.begin()
        began = time.monotonic()
        await world.scale(namespace, "f", most)
        if null:
            await world.null.call("grow", namespace=namespace, to=most)
        created = await world.node.call("when", namespace=namespace, what="created", count=most)
        await world.node.call("when", namespace=namespace, what="running", count=most)
        if null:
            await world.null.call("show", namespace=namespace)
        shown = await world.observer.when(key, _all_running(most))
        figures = {"up: all Pods exist": created - began, "up: shown Running": shown - began}
        figures |= await meter.end("up", pods=tasks)
        await meter.begin()
        began = time.monotonic()
        await world.scale(namespace, "f", tasks)
        if null:
            await world.null.call("shrink", namespace=namespace, to=tasks)
        gone = await world.node.call("when", namespace=namespace, what="gone", count=tasks)
        if null:
            await world.null.call("show", namespace=namespace)
        shown = await world.observer.when(key, _all_running(tasks))
        figures |= {"down: Pods gone": gone - began, "down: shown": shown - began}
        figures |= await meter.end("down", pods=tasks)
        figures["peak MiB"] = client.usage.peak_memory_bytes / 2**20
    await world.clear(namespace)
    return figures


async def recovery(world: World, tasks: int, *, null: bool = False) -> Figures:
    """All Pods of a Framework that runs are deleted at once by others: all Running again."""
    namespace = await world.namespace()
    key = f"{namespace}/f"
    async with AsyncExitStack() as stack:
        client: Client = world.null if null else await stack.enter_async_context(world.controller())
        meter = _Meter(world, client)
        await _run(world, namespace, tasks, null=null)
        await meter.begin()
        began = await world.node.call("delete", namespace=namespace)
        gone = await world.node.call("when", namespace=namespace, what="gone", count=tasks)
        if null:
            await world.null.call("replace", namespace=namespace)
        created = await world.node.call("when", namespace=namespace, what="created", count=2 * tasks)
        running = await world.node.call("when", namespace=namespace, what="running", count=2 * tasks)
        if null:
            await world.null.call("show", namespace=namespace)
        shown = await world.observer.when(key, lambda seen: _all_running(tasks)(seen) and seen.at > running)
        figures = {
            "Pods gone": gone - began,
            "all Pods exist again": created - began,
            "all Pods run again": running - began,
            "shown Running again": shown - began,
            **await meter.end("recovery", pods=tasks),
            "peak MiB": client.usage.peak_memory_bytes / 2**20,
        }
    await world.clear(namespace)
    return figures


async def _run(world: World, namespace: str, tasks: int, *, null: bool) -> None:
    """Have a Framework run."""
    body = await world.create(namespace, "f", tasks)
    if null:
        await world.null.call("launch", namespace=namespace, frameworks=[body])
        await world.node.call("when", namespace=namespace, what="running", count=tasks)
        await world.null.call("show", namespace=namespace)
    await world.observer.when(f"{namespace}/f", _all_running(tasks))


# --- what a change costs: the controller alone -----------------------------------------------------------------------


async def latency(world: World, frameworks: int) -> Figures:
    """From a Pod's phase change, as a bare watch shows it, to the status that shows it; so many Frameworks run."""
    namespace = await world.namespace()
    await world.node.call("mode", namespace=namespace, hold=True)
    async with world.controller():
        names = [f"f{index}" for index in range(frameworks)]
        await _create_all(world, namespace, frameworks, 2)
        await world.node.call("when", namespace=namespace, what="created", count=2 * frameworks)
        for name in names:
            await world.node.call("start", namespace=namespace, name=f"{name}-a-0")
        for name in names:
            await world.observer.when(f"{namespace}/{name}", lambda seen: seen.states.get(_RUNNING) == 1)
        await asyncio.sleep(2)
        watch, status = [], []
        for name in names:
            shown = asyncio.create_task(world.observer.when(f"{namespace}/{name}", _all_running(2)))
            await asyncio.sleep(0.03)
            answered, seen = await world.node.call("start", namespace=namespace, name=f"{name}-a-1")
            status.append(await shown - seen)
            watch.append(seen - answered)
    await world.clear(namespace)
    status.sort()
    return {
        "bare watch after the write: p50, ms": statistics.median(watch) * 1000,
        "status after the watch: p50, ms": statistics.median(status) * 1000,
        "status after the watch: p99, ms": status[int(len(status) * 0.99) - 1] * 1000,
    }


async def task_event(world: World, tasks: int) -> Figures:
    """CPU for one Pod's change in a Framework of so many Tasks, the status write that shows it included."""
    number = 40
    namespace = await world.namespace()
    key = f"{namespace}/f"
    await world.node.call("mode", namespace=namespace, hold=True)
    async with world.controller() as controller:
        await world.create(namespace, "f", tasks)
        await world.node.call("when", namespace=namespace, what="created", count=tasks)
        await world.observer.when(key, lambda seen: seen.states.get("AttemptPreparing") == tasks)
        await asyncio.sleep(5)
        before, counts = controller.usage.cpu_seconds, await controller.counts()
        for index in range(number):
            await world.node.call("start", namespace=namespace, name=f"f-a-{index}")
            await asyncio.sleep(0.05)
        await world.observer.when(key, lambda seen: seen.states.get(_RUNNING) == number)
        await asyncio.sleep(0.5)
        used, after = controller.usage.cpu_seconds - before, await controller.counts()
    await world.clear(namespace)
    writes = after.requests["patch frameworks/status"] - counts.requests["patch frameworks/status"]
    return {"CPU ms per event": used * 1000 / number, "events": number, "status writes": writes}


async def foreign(world: World, pods: int) -> Figures:
    """CPU that unrelated Pods cost, which change 200 times a second."""
    seconds, rate = 20.0, 200.0
    namespace = await world.namespace()
    body = {"spec": {"nodeName": "bench", "containers": [{"name": "main", "image": "none"}]}}
    numbers = iter(range(pods))

    async def create() -> None:
        for number in numbers:
            pod = orjson.dumps({**body, "metadata": {"name": f"foreign-{number}", "labels": {"app": "other"}}})
            await world.client.create(PODS, pod, namespace, metadata_only=True)

    async with world.controller() as controller:
        async with asyncio.TaskGroup() as group:
            for _ in range(_CREATORS):
                group.create_task(create())
        await asyncio.sleep(2)
        before, began = controller.usage.cpu_seconds, time.monotonic()
        changes = await world.node.call("touch", namespace=namespace, count=pods, per_second=rate, seconds=seconds)
        took = time.monotonic() - began
        used = controller.usage.cpu_seconds - before
        peak = controller.usage.peak_memory_bytes
    await world.clear(namespace)
    return {"% of a core": 100 * used / took, "changes a second": changes / took, "peak MiB": peak / 2**20}


async def restart(world: World, frameworks: int) -> Figures:
    """A controller that starts where so many Frameworks of 10 Tasks run: first sync of a new one, memory."""
    tasks = 10
    namespace = await world.namespace()
    await _create_all(world, namespace, frameworks, tasks, null=True)
    await world.node.call("when", namespace=namespace, what="running", count=frameworks * tasks)
    figures: Figures = {}
    for when in ("first", "again"):
        async with world.controller(ready=False) as controller:
            synced = await world.synced()
            figures[f"{when}: first sync after"] = synced - controller.started
            figures[f"{when}: CPU at first sync"] = controller.usage.cpu_seconds
            await asyncio.sleep(10)
            figures[f"{when}: CPU after 10 s more"] = controller.usage.cpu_seconds
            figures[f"{when}: MiB"] = controller.usage.memory_bytes / 2**20
            figures[f"{when}: peak MiB"] = controller.usage.peak_memory_bytes / 2**20
            counts = await controller.counts()
            figures[f"{when}: status writes"] = counts.requests["patch frameworks/status"]
    await world.clear(namespace)
    return figures


@dataclass(frozen=True, slots=True)
class Scenario:
    """What to run, with which sizes, and what is to be reached."""

    run: Callable[..., Awaitable[Figures]]
    """Takes the world and the size; with ``null=True`` the null client takes the controller's place."""
    small: tuple[int, ...]
    full: tuple[int, ...]
    ratios: Targets = field(default_factory=dict)
    """Bounds of figures as multiples of those of the null client. Without any, the null client does not run."""
    targets: Targets = field(default_factory=dict)


SCENARIOS: Final[Mapping[str, Scenario]] = {
    "launch": Scenario(
        launch,
        (100,),
        (100, 1000, 5000),
        {"all Pods exist": ("<=", 1.2), "shown Running": ("<=", 1.2), "Completed": ("<=", 1.2)},
        {"launch: CPU of the client, ms a Pod": ("<=", 0.9)},
    ),
    "storm": Scenario(
        storm,
        (100,),
        (100, 300, 1000),
        {"Frameworks a second": (">=", 0.75)},
        {"median / last": ("<=", 0.6), "storm: status writes of a Framework": ("<=", 5)},
    ),
    "rescale": Scenario(rescale, (100,), (1000,), {"up: all Pods exist": ("<=", 1.2), "down: Pods gone": ("<=", 1.2)}),
    "recovery": Scenario(recovery, (100,), (1000,), {"all Pods run again": ("<=", 1.2)}),
    "latency": Scenario(
        latency,
        (20,),
        (200,),
        targets={"status after the watch: p50, ms": ("<=", 20.0), "status after the watch: p99, ms": ("<=", 100.0)},
    ),
    "event": Scenario(task_event, (100,), (100, 1000, 10000)),
    "foreign": Scenario(foreign, (500,), (5000,), targets={"% of a core": ("<=", 1.0)}),
    "restart": Scenario(
        restart,
        (50,),
        (1000,),
        targets={"again: first sync after": ("<=", 3.0), "again: peak MiB": ("<=", 150.0), "again: MiB": ("<=", 150.0)},
    ),
}
