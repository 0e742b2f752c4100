"""Measure the controller beside many objects: start, relist, resync, memory, and the latency of others meanwhile.

    python -m benchmarks scale                                                       # small
    python -m benchmarks scale --frameworks 10000 --tasks 10000 --pods 100000 --parts 0 0.1 0.3 1

A real API server's store is filled with running Frameworks of 2 Tasks, one Framework of many Tasks, and other Pods
with the label by which the controller selects what it watches. See ``benchmarks.stored`` for how. For each part of
these numbers the controller starts anew.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import itertools
import os
import random
import ssl
import statistics
import sys
import tempfile
import time
import urllib.error
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import orjson
import uvloop
import yaml

from benchmarks import stored
from benchmarks.jobs import framework
from benchmarks.node import pod_status
from benchmarks.rpc import Child
from benchmarks.usage import Usage, load
from benchmarks.wire import Pool
from frameworkcontroller.api.codec import EncodedStatus, decode_status
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.api.status import FrameworkStatus, State
from frameworkcontroller.kube.client import STRATEGIC_PATCH, KubeClient
from frameworkcontroller.kube.connection import connect
from frameworkcontroller.kube.errors import KubeError
from frameworkcontroller.kube.informer import Informer
from frameworkcontroller.kube.resources import NAMESPACES, PODS
from frameworkcontroller.manager.app import RESYNC_SEC
from tests.support.realcluster import ASSETS, VERSIONS, ControlPlane, find_assets

Figures = dict[str, float]

_SMALL: Final = "f00000"
_LARGE: Final = "xqz"
_STRANGER: Final = "g00000"
_NAMESPACES: Final = tuple(f"scale-{number:02}" for number in range(10))
_HOME: Final = _NAMESPACES[0]
_PROBES: Final = "probes"
_LAUNCHED: Final = 1001
"""Tasks of the large Framework that are launched; the others are copies of the last one, whose index has 4 digits."""

_IN_FLIGHT: Final = 24
_DEADLINE_SEC: Final = 600.0
_MIB: Final = 2**20


@dataclass(frozen=True, slots=True)
class Size:
    """So many Frameworks of 2 Tasks, Tasks of another one, and Pods in all."""

    frameworks: int
    tasks: int
    pods: int

    def part(self, part: float) -> Size:
        """This part of all of it."""
        return Size(*(round(number * part) for number in (self.frameworks, self.tasks, self.pods)))

    @property
    def strangers(self) -> int:
        """Pods of no Framework, in pairs."""
        return max(0, self.pods - 2 * self.frameworks - self.tasks) // 2


NOTHING: Final = Size(0, 0, 0)

PHASES: Final = ("steady", "comparison", "relist", "resync", "restarted")
"""What follows the start: a steady load; then a comparison of the caches with lists, new lists, a resync and a new API
server, each during that load."""


@dataclass(frozen=True, slots=True)
class Load:
    """What goes on beside: status changes of Pods, and new Frameworks of one Task whose times are taken, a second."""

    changes: float
    probes: float


# --- the controller --------------------------------------------------------------------------------------------------


class Watched:
    """A controller that runs, with figures from its inside."""

    def __init__(self, child: Child, started: float) -> None:
        self.child = child
        self.usage = Usage(child.pid)
        self.started = started

    async def figures(self) -> Figures:
        """See ``benchmarks.instrumented``."""
        figures: Figures = await self.child.call("figures")
        return figures

    async def until(self, holds: Callable[[Figures], bool], every: float = 0.05) -> Figures:
        """Wait until its figures are such; the longest turns of the loop are those since the call."""
        turns: Figures = {}
        async with asyncio.timeout(_DEADLINE_SEC):
            while True:
                now = await self.figures()
                for name, value in now.items():
                    if name.startswith("longest"):
                        turns[name] = max(value, turns.get(name, 0.0))
                if holds(now):
                    return now | turns
                await asyncio.sleep(every)

    def forget_peak(self) -> None:
        """Count the peak of the memory from here on."""
        Path(f"/proc/{self.child.pid}/clear_refs").write_text("5")


# --- the world -------------------------------------------------------------------------------------------------------


class Probes:
    """Frameworks made one after the other in a namespace of their own; a watch of it shows how long each one took."""

    def __init__(self, client: KubeClient, pool: Pool) -> None:
        self._client = client
        self._pool = pool
        self._numbers = itertools.count()
        self._pods: Informer[_Object] = Informer(client, PODS, _Object, namespace=_PROBES)
        self._frameworks: Informer[_Object] = Informer(client, FRAMEWORKS, _Object, namespace=_PROBES)
        self._waiting: dict[tuple[str, str], asyncio.Future[float]] = {}
        self._created: dict[str, float] = {}
        """When the request was sent, by name."""
        for informer in (self._pods, self._frameworks):
            informer.add_handler(on_add=self._seen, on_update=lambda _, new: self._seen(new))

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pods.run())
            group.create_task(self._frameworks.run())

    async def synced(self) -> None:
        """Wait until it watches."""
        await self._pods.wait_synced()
        await self._frameworks.wait_synced()

    async def create_anyhow(self) -> str:
        """Create a Framework, even if the API server is only starting."""
        while True:
            try:
                return await self.create()
            except KubeError:
                await asyncio.sleep(0.2)

    async def create(self, tasks: int = 1) -> str:
        """Create a Framework; its name."""
        name = f"p{next(self._numbers)}"
        self._created[name] = time.monotonic()
        await self._client.create(FRAMEWORKS, orjson.dumps(framework(name, tasks)), _PROBES, metadata_only=True)
        return name

    async def when(self, what: str, name: str) -> float:
        """When the Framework was first seen ``synced`` or ``running``, its Pod ``created`` or ``started``."""
        key = (what, name)
        if key not in self._waiting:
            self._waiting[key] = asyncio.get_running_loop().create_future()
        async with asyncio.timeout(_DEADLINE_SEC):
            return await self._waiting[key]

    async def measure(self) -> tuple[float, float]:
        """Seconds from a new Framework to its first Pod, and from the Pod's start to the status that shows it."""
        name = await self.create_anyhow()
        began = self._created[name]
        created = await self.when("created", name)
        pod = self._pods.lister.get(f"{_PROBES}/{name}-a-0")
        assert pod is not None
        await start_pod(self._pool, _PROBES, pod.name, pod.uid, "10.0.0.1")
        started, shown = await self.when("started", name), await self.when("running", name)
        return created - began, shown - started

    def _seen(self, seen: _Object) -> None:
        now = time.monotonic()
        for what in seen.shows:
            future = self._waiting.get((what, seen.framework))
            if future is None:
                future = self._waiting[what, seen.framework] = asyncio.get_running_loop().create_future()
            if not future.done():
                future.set_result(now)


class _Object:
    """A Pod or a Framework of a probe, and what its state shows."""

    def __init__(self, body: dict[str, Any]) -> None:
        metadata, status = body["metadata"], body.get("status") or {}
        self.name: str = metadata["name"]
        self.key = f"{metadata['namespace']}/{self.name}"
        self.uid: str = metadata["uid"]
        self.resource_version: str = metadata["resourceVersion"]
        self.framework = self.name.partition("-")[0]
        if "taskRoles" in body["spec"]:
            self.shows = ["synced"] * bool(status.get("state"))
            roles = (status.get("attemptStatus") or {}).get("taskRoleStatuses") or ()
            tasks = [task["state"] for role in roles for task in role["taskStatuses"]]
            self.shows += ["running"] * (bool(tasks) and set(tasks) == {"AttemptRunning"})
        else:
            self.shows = ["created"] + ["started"] * (status.get("phase") == "Running")


async def start_pod(pool: Pool, namespace: str, name: str, uid: str, address: str) -> None:
    """Write the status that a kubelet writes when the containers run."""
    status = pod_status(uid, "Running") | {"podIP": address, "podIPs": [{"ip": address}]}
    body = orjson.dumps({"metadata": {"uid": uid}, "status": status})
    path = PODS.path(namespace, name, "status")
    answer = await pool.send(pool.request("PATCH", path, body, STRATEGIC_PATCH))
    if answer.code != 200:
        raise RuntimeError(f"status of {name}: {answer.text[:600]!r}")


class Scale:
    """A control plane with as many objects as asked for, and what is measured beside them."""

    def __init__(
        self, plane: ControlPlane, folder: Path, client: KubeClient, pool: Pool, resync_sec: float = RESYNC_SEC
    ) -> None:
        """``resync_sec``: of the controller, which spreads a resync over a tenth of that."""
        self.plane = plane
        self.resync_sec = resync_sec
        self.probes = Probes(client, pool)
        self.size = NOTHING
        self._folder = folder
        self._client = client
        self._pool = pool
        self._changers = Pool(plane.url, plane.token, plane.ca_file, _IN_FLIGHT)
        self._numbers = itertools.count()
        self._server = Usage(plane.pid("kube-apiserver"))
        self._ended_servers = 0.0

    @property
    def server_cpu_seconds(self) -> float:
        """CPU time of the API server so far, of the ones that were stopped, too."""
        return self._ended_servers + self._server.cpu_seconds

    # --- what exists ---

    async def open(self) -> None:
        """Create the namespaces."""
        for name in (*_NAMESPACES, _PROBES):
            await self._client.create(NAMESPACES, orjson.dumps({"metadata": {"name": name}}))

    async def prepare(self, tasks: int) -> None:
        """Have the controller run one Framework of each kind, to be copied."""
        launched = {_SMALL: 2, _LARGE: max(1, min(tasks, _LAUNCHED))}
        for name, number in launched.items():
            await self._client.create(FRAMEWORKS, orjson.dumps(framework(name, number)), _HOME)
        async with self.controller():
            started: set[str] = set()
            addresses = map(_address, itertools.count())
            while True:
                pods = await self._listed(PODS.path(_HOME))
                await asyncio.gather(
                    *(
                        start_pod(self._pool, _HOME, pod["metadata"]["name"], pod["metadata"]["uid"], next(addresses))
                        for pod in pods
                        if pod["metadata"]["uid"] not in started
                    )
                )
                started |= {pod["metadata"]["uid"] for pod in pods}
                statuses = [decode_status(body.get("status")) for body in await self._listed(FRAMEWORKS.path(_HOME))]
                if len(statuses) == len(launched) and all(_runs(status) for status in statuses):
                    break
                await asyncio.sleep(0.2)
        self.size = Size(1, launched[_LARGE], 2 + launched[_LARGE])

    async def grow(self, size: Size) -> int:
        """Have so many objects, at least as many as before; how many were written."""
        self._stop_server()
        try:
            return stored.write(self.plane.etcd_url, self._missing(size))
        finally:
            await self._start_server()
            self.size = size

    def _missing(self, size: Size) -> Iterator[stored.Pair]:
        """What is to be written, as copies of what the controller has run."""
        folder = f"/registry/{FRAMEWORKS.group}/{FRAMEWORKS.plural}/{_HOME}/"
        frameworks = dict(stored.read(self.plane.etcd_url, folder))
        pods = dict(stored.read(self.plane.etcd_url, f"/registry/pods/{_HOME}/"))
        pod = f"/registry/pods/{_HOME}/{{}}-a-{{}}".format

        small = frameworks[f"{folder}{_SMALL}".encode()]
        status = _decoded(small)
        tasks = [_pair(pods, pod(_SMALL, task.index)) for task in status.attempt.roles[0].tasks]
        addresses = [task.attempt.pod_ip or "" for task in status.attempt.roles[0].tasks]
        uids = _uids(small, status)
        tokens = (_SMALL, _HOME, *uids, *addresses)
        configmaps = stored.read(self.plane.etcd_url, f"/registry/configmaps/{_HOME}/{_SMALL}-")
        objects = [(f"{folder}{_SMALL}".encode(), small), *configmaps, *tasks]
        for letter, pairs, numbers in (
            ("f", objects, range(max(1, self.size.frameworks), size.frameworks)),
            ("g", tasks, range(self.size.strangers, size.strangers)),
        ):
            template = stored.Template(pairs, tokens)
            for number in numbers:
                yield from template.copy(
                    f"{letter}{number:05}",
                    _namespace(number),
                    *(_copied(uid, letter, number) for uid in uids),
                    *(_address(2 * number + index) for index in range(len(addresses))),
                )

        if size.tasks > self.size.tasks:
            large = frameworks[f"{folder}{_LARGE}".encode()]
            status = _decoded(large)
            role = status.attempt.roles[0]
            last = role.tasks[_LAUNCHED - 1]
            assert last.attempt.pod_uid is not None
            assert last.attempt.pod_ip is not None
            own = (last.instance_uid, last.attempt.pod_uid, last.attempt.pod_ip, f"{last.index}")
            others = [uid for uid in _uids(large, status) if uid not in own]
            template = stored.Template([_pair(pods, pod(_LARGE, last.index))], (*own, *others[:3]))
            for index in range(len(role.tasks), size.tasks):
                uid, pod_uid = (_copied(one, "e", index) for one in own[:2])
                attempt = replace(last.attempt, pod_uid=pod_uid, pod_ip=_address(index))
                role.tasks.append(replace(last, index=index, instance_uid=uid, attempt=attempt))
                yield from template.copy(uid, pod_uid, _address(index), f"{index}", *others[:3])
            assert status.task_counts is not None
            status.task_counts = replace(status.task_counts, total=size.tasks, running=size.tasks)
            body = orjson.loads(large)
            body["spec"]["taskRoles"][0]["taskNumber"] = size.tasks
            body["status"] = orjson.Fragment(EncodedStatus(_LARGE, status, compress=True).body)
            yield f"{folder}{_LARGE}".encode(), orjson.dumps(body)

    async def _listed(self, path: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = orjson.loads(await self._client.raw("GET", path))["items"]
        return items

    def _stop_server(self) -> None:
        self._ended_servers += self._server.cpu_seconds
        self.plane.kill("kube-apiserver")

    async def restart_server(self) -> None:
        """End the API server and start it anew; wait until it is ready."""
        self._stop_server()
        await self._start_server()

    async def _start_server(self) -> None:
        self.plane.start_again("kube-apiserver")
        self._server = Usage(self.plane.pid("kube-apiserver"))
        async with asyncio.timeout(_DEADLINE_SEC):
            while True:
                with suppress(urllib.error.URLError, ConnectionError, ssl.SSLError):
                    await asyncio.to_thread(self.plane.request, "GET", "/readyz")
                    return
                await asyncio.sleep(0.1)

    # --- what goes on ---

    @asynccontextmanager
    async def controller(self) -> AsyncIterator[Watched]:
        """The controller, killed at the end."""
        number = next(self._numbers)
        config = self._folder / f"controller-{number}.yaml"
        log = self._folder / f"controller-{number}.log"
        settings = {
            "webAddress": "",
            "largeFrameworkCompression": True,
            "kubeConfigFilePath": str(self.plane.kubeconfig),
        }
        config.write_text(yaml.safe_dump(settings))
        started = time.monotonic()
        child = await Child.start("benchmarks.instrumented", str(config), str(log), str(self.resync_sec))
        try:
            yield Watched(child, started)
        finally:
            await child.close()
            if logs := os.environ.get("BENCH_LOGS"):
                with open(logs, "ab") as kept:  # noqa: ASYNC230, PTH123 - nothing else goes on
                    kept.write(log.read_bytes())

    @asynccontextmanager
    async def changes(self, per_second: float) -> AsyncIterator[Callable[[], int]]:
        """Write so many status changes a second that mean nothing to the controller, to Pods that it watches.

        Yields what tells how many those are.
        """
        rng = random.Random(0)
        pods = [
            *((_namespace(number), f"f{number:05}-a-0") for number in range(self.size.frameworks)),
            *((_HOME, f"{_LARGE}-a-{index}") for index in range(self.size.tasks)),
            *((_namespace(number), f"g{number:05}-a-0") for number in range(self.size.strangers)),
        ]

        written = 0

        async def change(number: int) -> None:
            nonlocal written
            path = PODS.path(*rng.choice(pods), "status")
            body = orjson.dumps({"status": {"message": f"change {number}"}})
            with suppress(ConnectionError):
                await self._changers.send(self._changers.merge_patch(path, body))
                written += 1

        async with _often(per_second if pods else 0.0, change):
            yield lambda: written

    async def probed(self, per_second: float, until: asyncio.Future[Any]) -> Figures:
        """Create Frameworks until that is done; how long they took."""
        created: list[float] = []
        shown: list[float] = []

        async def probe(_number: int) -> None:
            times = await self.probes.measure()
            created.append(times[0])
            shown.append(times[1])

        async with _often(per_second, probe):
            await until
        figures: Figures = {"probes": len(created)}
        for what, seconds in (("Framework to first Pod", created), ("Pod's start to status", shown)):
            seconds.sort()
            figures[f"{what}: p50, ms"] = statistics.median(seconds) * 1000
            figures[f"{what}: p99, ms"] = seconds[round(len(seconds) * 0.99) - 1] * 1000
            figures[f"{what}: most, ms"] = seconds[-1] * 1000
        return figures


@asynccontextmanager
async def _often(per_second: float, do: Callable[[int], Any]) -> AsyncIterator[None]:
    """Begin ``do(number)`` so often while inside, less often if many are under way; then wait until all are done."""
    running: set[asyncio.Task[Any]] = set()

    async def begin() -> None:
        for number in itertools.count():
            if len(running) < _IN_FLIGHT:
                task = asyncio.create_task(do(number))
                running.add(task)
                task.add_done_callback(ended)
            await asyncio.sleep(1 / per_second)

    def ended(task: asyncio.Task[Any]) -> None:
        if task.cancelled() or task.exception() is None:
            running.discard(task)

    beginning = asyncio.create_task(begin()) if per_second else None
    try:
        yield
    finally:
        if beginning is not None:
            beginning.cancel()
        await asyncio.gather(*running)


def _namespace(number: int) -> str:
    return _NAMESPACES[number % len(_NAMESPACES)]


def _address(number: int) -> str:
    """An address of always the same length."""
    return f"10.{100 + number // 10_000 % 100}.{100 + number // 100 % 100}.{100 + number % 100}"


def _copied(uid: str, kind: str, number: int) -> str:
    return f"{kind}{number:07x}{uid[8:]}"


def _runs(status: FrameworkStatus | None) -> bool:
    if status is None or status.state is not State.RUNNING:
        return False
    return all(task.state is State.RUNNING for role in status.attempt.roles for task in role.tasks)


def _decoded(text: bytes) -> FrameworkStatus:
    status = decode_status(orjson.loads(text)["status"])
    assert status is not None
    return status


def _uids(text: bytes, status: FrameworkStatus) -> list[str]:
    """Those of the Framework, its ConfigMap and its role; then of its Tasks and Pods."""
    role = status.attempt.roles[0]
    uids = [orjson.loads(text)["metadata"]["uid"], status.attempt.configmap_uid or "", role.instance_uid]
    for task in role.tasks:
        uids += (task.instance_uid, task.attempt.pod_uid or "")
    return uids


def _pair(pairs: dict[bytes, bytes], key: str) -> stored.Pair:
    return key.encode(), pairs[key.encode()]


# --- what is measured ------------------------------------------------------------------------------------------------


class _Meter:
    """CPU time of the controller and the API server, the peak of its memory, and its longest turns, from here on."""

    def __init__(self, scale: Scale, controller: Watched) -> None:
        self._scale = scale
        self._controller = controller
        self._cpu = controller.usage.cpu_seconds
        self._server = scale.server_cpu_seconds
        self._began = time.monotonic()
        self._before = controller.usage.memory_bytes
        controller.forget_peak()

    def end(self, turns: Figures) -> Figures:
        usage = self._controller.usage
        return {
            "seconds": time.monotonic() - self._began,
            "controller CPU": usage.cpu_seconds - self._cpu,
            "API server CPU": self._scale.server_cpu_seconds - self._server,
            "MiB before": self._before / _MIB,
            "MiB after": usage.memory_bytes / _MIB,
            "peak MiB": usage.peak_memory_bytes / _MIB,
            "longest turn, CPU ms": turns["longest turn, CPU"] * 1000,
            "longest turn, ms": turns["longest turn"] * 1000,
        }


async def measure(
    scale: Scale, load: Load, lock: Callable[[], Any], seconds: float, phases: Collection[str]
) -> Figures:
    """The start and these phases, once, beside what exists. ``seconds``: how long the steady load lasts."""
    figures: Figures = {}

    def note(phase: str, found: Figures) -> None:
        figures.update({f"{phase}: {name}": value for name, value in found.items()})

    async with contextlib.AsyncExitStack() as stack:
        async with lock():
            controller = await stack.enter_async_context(scale.controller())
            server = scale.server_cpu_seconds
            probe = await scale.probes.create()
            ready = await controller.until(lambda now: bool(now["ready"]))
            figures |= {
                "start: ready after": time.monotonic() - controller.started,
                "start: ready, CPU": controller.usage.cpu_seconds,
            }
            figures["start: first sync after"] = await scale.probes.when("synced", probe) - controller.started
            figures["start: first sync, CPU"] = controller.usage.cpu_seconds
            idle = await controller.until(lambda now: not now["queue"])
            figures |= {
                "start: all synced after": time.monotonic() - controller.started,
                "start: all synced, CPU": controller.usage.cpu_seconds,
                "start: API server CPU": scale.server_cpu_seconds - server,
                "start: peak MiB": controller.usage.peak_memory_bytes / _MIB,
                "start: longest turn, CPU ms": 1000 * max(one["longest turn, CPU"] for one in (ready, idle)),
                "start: status writes": idle["status writes"],
                "Pods": idle["cached pods"],
                "Frameworks": idle["cached frameworks"],
            }
            cpu = controller.usage.cpu_seconds
            await asyncio.sleep(seconds / 4)
            figures["idle: % of a core"] = 100 * (controller.usage.cpu_seconds - cpu) / (seconds / 4)
            figures["idle: MiB"] = controller.usage.memory_bytes / _MIB

        async def phase(name: str, work: Callable[[], Any]) -> None:
            await controller.figures()
            meter = _Meter(scale, controller)
            async with scale.changes(load.changes) as written:
                note(name, await scale.probed(load.probes, asyncio.ensure_future(work())))
                note(name, {"changes": written(), **meter.end(await controller.figures())})

        async def relisted(before: Figures) -> None:
            await controller.until(
                lambda now: all(now[name] > before[name] for name in before if name.startswith("lists of"))
            )

        async def listed(name: str, call: str) -> None:
            before, began = await controller.figures(), time.monotonic()
            await controller.child.call(call)
            await relisted(before)
            figures[f"{name}: done after"] = time.monotonic() - began

        async def resync() -> None:
            await controller.child.call("resync")
            await asyncio.sleep(scale.resync_sec / 10)

        async def restart() -> None:
            before = await controller.figures()
            await scale.restart_server()
            began = time.monotonic()
            probe = await scale.probes.create_anyhow()
            figures["restarted: first sync after"] = await scale.probes.when("synced", probe) - began
            now = await controller.figures()
            figures["restarted: lists"] = sum(now[name] - before[name] for name in now if name.startswith("lists of"))

        for name, work in (
            ("steady", lambda: asyncio.sleep(seconds)),
            ("comparison", lambda: listed("comparison", "compare")),
            ("relist", lambda: listed("relist", "relist")),
            ("resync", resync),
            ("restarted", restart),
        ):
            if name in phases:
                async with lock():
                    await phase(name, work)
    return figures


# --- the command -----------------------------------------------------------------------------------------------------


def _locked(file: Path | None) -> Callable[[], Any]:
    @asynccontextmanager
    async def lock() -> AsyncIterator[None]:
        if file is None:
            yield
            return
        with file.open("rb") as held:
            await asyncio.to_thread(fcntl.flock, held, fcntl.LOCK_EX)
            yield

    return lock


def report(figures: Figures) -> str:
    """The figures as lines."""
    width = max(map(len, figures))
    return "\n".join(f"  {name:{width}}  {value:>12,.4g}" for name, value in figures.items())


async def _measure(options: argparse.Namespace, plane: ControlPlane) -> None:
    # There is nothing to collect: it would only read 100,000 Pods, too.
    plane.kill("kube-controller-manager")
    whole = Size(options.frameworks, options.tasks, options.pods)
    results = []
    with tempfile.TemporaryDirectory(prefix="scale-") as folder:
        async with KubeClient(await connect(kubeconfig=str(plane.kubeconfig), environ={})) as client:
            pool = Pool(plane.url, plane.token, plane.ca_file, _IN_FLIGHT)
            scale = Scale(plane, Path(folder), client, pool, options.resync)
            await scale.open()
            prepared = False
            probing = asyncio.create_task(scale.probes.run())
            await scale.probes.synced()
            for part in sorted(options.parts):
                if part and not prepared:
                    await scale.prepare(whole.tasks)
                    prepared = True
                if part:
                    began = time.monotonic()
                    written = await scale.grow(whole.part(part))
                    print(f"{written} objects written in {time.monotonic() - began:.0f} s ({load()})", file=sys.stderr)
                beside = Load(options.changes, options.probes)
                figures = await measure(scale, beside, _locked(options.lock), options.seconds, options.phases)
                print(f"{part:g} of {whole}, beside {load()}")
                print(report(figures), flush=True)
                results.append({"scenario": "scale", "part": part, "cluster": options.cluster, "figures": figures})
                if options.json is not None:
                    options.json.write_bytes(orjson.dumps(results, option=orjson.OPT_INDENT_2))
            probing.cancel()
            with suppress(asyncio.CancelledError):
                await probing


def main(arguments: Iterable[str] | None = None) -> None:
    """Run as asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks scale", description=__doc__.partition("\n")[0])
    parser.add_argument("--frameworks", type=int, default=200, help="of 2 Tasks (default: 200)")
    parser.add_argument("--tasks", type=int, default=100, help="of one more Framework, at most 10000 (default: 100)")
    parser.add_argument("--pods", type=int, default=2000, help="watched in all (default: 2000)")
    parser.add_argument("--parts", type=float, nargs="+", default=[1.0], help="of these numbers, each measured")
    parser.add_argument("--phases", choices=PHASES, nargs="*", default=PHASES, help="after the start (default: all)")
    parser.add_argument("--changes", type=float, default=20.0, help="of Pods a second, beside (default: 20)")
    parser.add_argument("--probes", type=float, default=4.0, help="new Frameworks a second (default: 4)")
    parser.add_argument("--seconds", type=float, default=10.0, help="of the steady load (default: 10)")
    parser.add_argument("--resync", type=float, default=RESYNC_SEC, help="interval in seconds, a tenth is measured")
    parser.add_argument("--cluster", choices=(*VERSIONS, ASSETS), default="1.20", help="control plane (default: 1.20)")
    parser.add_argument("--lock", type=Path, metavar="FILE", help="lock it while measuring")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args(None if arguments is None else list(arguments))
    if options.tasks > 10_000:
        parser.error("--tasks: at most 10000, as a copy's index has four digits")
    assets = find_assets(options.cluster)
    if assets is None:
        parser.exit(2, f"no control plane {options.cluster} on this machine\n")
    with ControlPlane(assets) as plane:
        uvloop.run(_measure(options, plane))


if __name__ == "__main__":
    main()
