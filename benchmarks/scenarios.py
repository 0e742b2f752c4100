"""What is measured: each scenario once for the controller and, where that says something, once for the null client.

A scenario is one round. It returns figures by name, in seconds unless the name says otherwise; those of the null client
begin with ``null``, and what is to be compared with a target is a figure of its own.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from benchmarks.world import Counts, Running, Seen, World
from frameworkcontroller.kube.resources import PODS

Figures = dict[str, float]
Targets = Mapping[str, tuple[str, float]]

END_WITHIN_SEC: Final = 2.0
_CREATORS: Final = 20
_RUNNING: Final = "AttemptRunning"
_COMPLETED: Final = "Completed"


def _all_running(tasks: int) -> Callable[[Seen], bool]:
    return lambda seen: seen.states.get(_RUNNING, 0) == tasks == sum(seen.states.values())


def _is_completed(seen: Seen) -> bool:
    return seen.state == _COMPLETED


class _Meter:
    """What a part of a run took: the controller's requests, bytes and CPU, and the API server's CPU."""

    def __init__(self, world: World, controller: Running) -> None:
        self._world = world
        self._controller = controller
        self._before = Counts(Counter(), 0.0, 0.0)
        self._server = 0.0

    async def begin(self) -> None:
        self._before = await self._controller.counts()
        self._server = self._world.server_cpu_seconds

    async def end(self, prefix: str) -> Figures:
        now = await self._controller.counts()
        server = self._world.server_cpu_seconds - self._server
        requests = now.requests - self._before.requests
        figures = {
            f"{prefix}: controller CPU": now.cpu_seconds - self._before.cpu_seconds,
            f"{prefix}: API server CPU": server,
        }
        for what, number in sorted(requests.items()):
            figures[f"{prefix}: requests: {what}"] = number
        figures[f"{prefix}: MB sent"] = (now.sent_bytes - self._before.sent_bytes) / 1e6
        return figures


# --- one Framework, from its creation to its end ---------------------------------------------------------------------


async def launch_and_finish(world: World, tasks: int) -> Figures:
    """One Framework: all Pods created; all shown Running; all exit within 2 s; Completed."""
    figures: Figures = {}
    namespace = await world.namespace()
    async with world.controller() as controller:
        meter = _Meter(world, controller)
        await meter.begin()
        began = time.monotonic()
        await world.create(namespace, "f", tasks)
        created = await world.node.call("when", namespace=namespace, what="created", count=tasks)
        running = await world.node.call("when", namespace=namespace, what="running", count=tasks)
        shown = await world.observer.when(f"{namespace}/f", _all_running(tasks))
        figures |= {"created": created - began, "running": running - began, "shown after": shown - running}
        figures |= await meter.end("launch")
        await meter.begin()
        began = time.monotonic()
        await world.node.call("end", namespace=namespace, within=END_WITHIN_SEC)
        ended = await world.node.call("when", namespace=namespace, what="ended", count=tasks)
        completed = await world.observer.when(f"{namespace}/f", _is_completed)
        figures |= {"ended": ended - began, "completed": completed - began}
        figures |= await meter.end("finish")
        figures["peak MiB"] = controller.usage.peak_memory_bytes / 2**20
    await world.clear(namespace)

    namespace = await world.namespace()
    server = world.server_cpu_seconds
    counts = await world.null.call("counts")
    began = time.monotonic()
    await world.null.call("take", frameworks=[await world.create(namespace, "f", tasks)])
    _, ended = await world.null.call("launch")
    created = await world.node.call("when", namespace=namespace, what="created", count=tasks)
    running = await world.node.call("when", namespace=namespace, what="running", count=tasks)
    figures |= {"null created": ended - began, "null running": running - began}
    await world.null.call("show", state=_RUNNING)
    figures["null launch: API server CPU"] = world.server_cpu_seconds - server
    figures["null launch: CPU"] = (await world.null.call("counts"))["cpu"] - counts["cpu"]
    began = time.monotonic()
    server = world.server_cpu_seconds
    await world.node.call("end", namespace=namespace, within=END_WITHIN_SEC)
    ended = await world.node.call("when", namespace=namespace, what="ended", count=tasks)
    first, last = await world.null.call("finish")
    figures |= {"null ended": ended - began, "null deletes": last - first}
    figures["null finish: API server CPU"] = world.server_cpu_seconds - server
    await world.clear(namespace)
    figures["created / null"] = figures["created"] / figures["null created"]
    figures["(completed - ended) / null deletes"] = (figures["completed"] - figures["ended"]) / figures["null deletes"]
    budget = max(END_WITHIN_SEC, figures["null ended"]) + 1.25 * figures["null deletes"]
    figures["completed / (2 s or null ended + 1.25 null deletes)"] = figures["completed"] / budget
    return figures


# --- many Frameworks at once -----------------------------------------------------------------------------------------


async def _create_all(world: World, namespace: str, number: int, tasks: int) -> tuple[list[Any], dict[str, float]]:
    names = iter([f"f{index}" for index in range(number)])
    created: list[Any] = []
    at: dict[str, float] = {}

    async def create() -> None:
        for name in names:
            at[f"{namespace}/{name}"] = time.monotonic()
            created.append(await world.create(namespace, name, tasks))

    async with asyncio.TaskGroup() as group:
        for _ in range(_CREATORS):
            group.create_task(create())
    return created, at


async def storm(world: World, number: int) -> Figures:
    """So many Frameworks of 2 Tasks at once, whose Pods end as soon as they run: all Completed."""
    tasks = 2
    figures: Figures = {}
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
    async with world.controller() as controller:
        meter = _Meter(world, controller)
        await meter.begin()
        _, at = await _create_all(world, namespace, number, tasks)
        accepted = time.monotonic()
        await done.wait()
        began = min(at.values())
        took = sorted(completed[key] - at[key] for key in at)
        figures |= {
            "frameworks created": accepted - began,
            "completed": max(completed.values()) - began,
            "each: p50": statistics.median(took),
            "each: p99": took[int(len(took) * 0.99) - 1],
        }
        figures["p99 / p50"] = figures["each: p99"] / figures["each: p50"]
        figures |= await meter.end("storm")
        figures["peak MiB"] = controller.usage.peak_memory_bytes / 2**20
    world.observer.listeners.remove(listen)
    await world.clear(namespace)

    namespace = await world.namespace()
    await world.node.call("mode", namespace=namespace, lasting=0.0)
    server = world.server_cpu_seconds
    began = time.monotonic()
    created, _ = await _create_all(world, namespace, number, tasks)
    await world.null.call("take", frameworks=created)
    await world.null.call("launch")
    await world.node.call("when", namespace=namespace, what="ended", count=number * tasks)
    await world.null.call("finish")
    figures["null completed"] = time.monotonic() - began
    figures["null: API server CPU"] = world.server_cpu_seconds - server
    await world.clear(namespace)
    figures["rate / null's"] = figures["null completed"] / figures["completed"]
    return figures


# --- changes of what runs --------------------------------------------------------------------------------------------


async def rescale(world: World, tasks: int) -> Figures:
    """A Framework that runs: twice the Tasks; then half as many as at first."""
    up, down = 2 * tasks, tasks // 2
    figures: Figures = {}
    namespace = await world.namespace()
    key = f"{namespace}/f"
    async with world.controller() as controller:
        meter = _Meter(world, controller)
        await world.create(namespace, "f", tasks)
        await world.observer.when(key, _all_running(tasks))
        await meter.begin()
        began = time.monotonic()
        await world.scale(namespace, "f", up)
        created = await world.node.call("when", namespace=namespace, what="created", count=up)
        running = await world.node.call("when", namespace=namespace, what="running", count=up)
        shown = await world.observer.when(key, _all_running(up))
        figures |= {"up: created": created - began, "up: shown after": shown - running}
        figures |= await meter.end("up")
        await meter.begin()
        began = time.monotonic()
        await world.scale(namespace, "f", down)
        gone = await world.node.call("when", namespace=namespace, what="gone", count=up - down)
        shown = await world.observer.when(key, _all_running(down))
        figures |= {"down: gone": gone - began, "down: shown after": shown - gone}
        figures |= await meter.end("down")
        figures["peak MiB"] = controller.usage.peak_memory_bytes / 2**20
    await world.clear(namespace)

    namespace = await world.namespace()
    await world.null.call("take", frameworks=[await world.create(namespace, "f", tasks)])
    await world.null.call("launch")
    await world.node.call("when", namespace=namespace, what="running", count=tasks)
    began, ended = await world.null.call("grow", to=up)
    figures["null up: created"] = ended - began
    await world.node.call("when", namespace=namespace, what="running", count=up)
    began, _ = await world.null.call("shrink", to=down)
    gone = await world.node.call("when", namespace=namespace, what="gone", count=up - down)
    figures["null down: gone"] = gone - began
    await world.clear(namespace)
    figures["up: created / null"] = figures["up: created"] / figures["null up: created"]
    figures["down: gone / null"] = figures["down: gone"] / figures["null down: gone"]
    return figures


async def recovery(world: World, tasks: int) -> Figures:
    """All Pods of a Framework that runs are deleted at once by others: all Running again."""
    figures: Figures = {}
    namespace = await world.namespace()
    key = f"{namespace}/f"
    async with world.controller() as controller:
        meter = _Meter(world, controller)
        await world.create(namespace, "f", tasks)
        await world.observer.when(key, _all_running(tasks))
        await meter.begin()
        began = await world.node.call("delete", namespace=namespace)
        created = await world.node.call("when", namespace=namespace, what="created", count=2 * tasks)
        running = await world.node.call("when", namespace=namespace, what="running", count=2 * tasks)
        shown = await world.observer.when(key, lambda seen: _all_running(tasks)(seen) and seen.at > running)
        figures |= {"created": created - began, "running": running - began, "shown after": shown - running}
        figures |= await meter.end("recovery")
        figures["peak MiB"] = controller.usage.peak_memory_bytes / 2**20
    await world.clear(namespace)

    namespace = await world.namespace()
    await world.null.call("take", frameworks=[await world.create(namespace, "f", tasks)])
    await world.null.call("launch")
    await world.node.call("when", namespace=namespace, what="running", count=tasks)
    began = await world.node.call("delete", namespace=namespace)
    gone = await world.node.call("when", namespace=namespace, what="gone", count=tasks)
    _, ended = await world.null.call("replace")
    running = await world.node.call("when", namespace=namespace, what="running", count=2 * tasks)
    figures |= {"null gone": gone - began, "null created": ended - began, "null running": running - began}
    await world.clear(namespace)
    figures["running / null"] = figures["running"] / figures["null running"]
    return figures


# --- what a change costs ---------------------------------------------------------------------------------------------


async def latency(world: World, frameworks: int) -> Figures:
    """From a Pod's phase change, as a bare watch shows it, to the status that shows it; so many Frameworks run."""
    namespace = await world.namespace()
    await world.node.call("mode", namespace=namespace, hold=True)
    async with world.controller():
        created, _ = await _create_all(world, namespace, frameworks, 2)
        names = [body["metadata"]["name"] for body in created]
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
    created, _ = await _create_all(world, namespace, frameworks, tasks)
    await world.null.call("take", frameworks=created)
    await world.null.call("launch")
    await world.node.call("when", namespace=namespace, what="running", count=frameworks * tasks)
    await world.null.call("show", state=_RUNNING)
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

    run: Callable[[World, int], Awaitable[Figures]]
    small: tuple[int, ...]
    full: tuple[int, ...]
    targets: Targets


_LAUNCH: Final[Targets] = {
    "created / null": ("<=", 1.25),
    "shown after": ("<=", 1.0),
    "completed / (2 s or null ended + 1.25 null deletes)": ("<=", 1.0),
}

SCENARIOS: Final[Mapping[str, Scenario]] = {
    "launch": Scenario(launch_and_finish, (100,), (100, 1000, 5000), _LAUNCH),
    "storm": Scenario(storm, (100,), (1000,), {"rate / null's": (">=", 0.8), "p99 / p50": ("<=", 3.0)}),
    "rescale": Scenario(
        rescale,
        (100,),
        (1000,),
        {
            "up: created / null": ("<=", 1.25),
            "up: shown after": ("<=", 1.0),
            "down: gone / null": ("<=", 1.25),
            "down: shown after": ("<=", 1.0),
        },
    ),
    "recovery": Scenario(recovery, (100,), (1000,), {"running / null": ("<=", 1.25), "shown after": ("<=", 1.0)}),
    "latency": Scenario(
        latency,
        (20,),
        (200,),
        {"status after the watch: p50, ms": ("<=", 20.0), "status after the watch: p99, ms": ("<=", 100.0)},
    ),
    "event": Scenario(task_event, (100,), (100, 1000, 10000), {}),
    "foreign": Scenario(foreign, (500,), (5000,), {"% of a core": ("<=", 1.0)}),
    "restart": Scenario(
        restart,
        (50,),
        (1000,),
        {"again: first sync after": ("<=", 3.0), "again: peak MiB": ("<=", 150.0), "again: MiB": ("<=", 150.0)},
    ),
}
