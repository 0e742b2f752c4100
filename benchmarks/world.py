"""What every scenario runs on: a real control plane, a simulated node, the null client, and the controller.

Each is a process of its own. The benchmark itself only asks for Frameworks and watches them.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import aiohttp
import orjson
import yaml
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.jobs import framework
from benchmarks.rpc import Child
from benchmarks.usage import Usage
from frameworkcontroller.api.codec import decompress_roles
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.kube.client import JSON_PATCH, KubeClient
from frameworkcontroller.kube.connection import connect
from frameworkcontroller.kube.errors import ApiServerError
from frameworkcontroller.kube.informer import Informer
from frameworkcontroller.kube.resources import CONFIGMAPS, NAMESPACES, PODS
from tests.support.realcluster import ROOT, ControlPlane

_START_UP_SEC: Final = 60.0
_PROFILER_SEC: Final = 60.0


@dataclass(frozen=True, slots=True)
class Seen:
    """A Framework as the watch showed it. ``states``: how many of its Tasks are in which state."""

    key: str
    uid: str
    resource_version: str
    at: float
    state: str
    states: Mapping[str, int]


def _decode(body: dict[str, Any]) -> Seen:
    metadata = body["metadata"]
    status = body.get("status") or {}
    attempt = status.get("attemptStatus") or {}
    roles = attempt.get("taskRoleStatuses")
    if roles is None and attempt.get("taskRoleStatusesCompressed"):
        roles = decompress_roles(attempt["taskRoleStatusesCompressed"])
    return Seen(
        f"{metadata['namespace']}/{metadata['name']}",
        metadata["uid"],
        metadata["resourceVersion"],
        time.monotonic(),
        status.get("state", ""),
        Counter(task["state"] for role in roles or () for task in role["taskStatuses"]),
    )


class Observer:
    """The Frameworks as a watching client sees them, and when."""

    def __init__(self, client: KubeClient) -> None:
        self._informer = Informer(client, FRAMEWORKS, _decode)
        self._informer.add_handler(on_add=self._seen, on_update=lambda _, new: self._seen(new))
        self._waiting: list[tuple[Callable[[Seen], bool], asyncio.Future[float]]] = []
        self.listeners: list[Callable[[Seen], None]] = []

    async def run(self) -> None:
        """Run until cancelled."""
        await self._informer.run()

    async def when(self, key: str, holds: Callable[[Seen], bool]) -> float:
        """Wait until the Framework is such; since when."""
        known = self._informer.lister.get(key)
        if known is not None and holds(known):
            return known.at
        future: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._waiting.append((lambda seen: seen.key == key and holds(seen), future))
        return await future

    def _seen(self, seen: Seen) -> None:
        for listener in self.listeners:
            listener(seen)
        for waiter in [one for one in self._waiting if one[0](seen)]:
            self._waiting.remove(waiter)
            if not waiter[1].done():
                waiter[1].set_result(seen.at)


@dataclass(frozen=True, slots=True)
class Counts:
    """What a client has done so far: requests by verb and resource, bytes of bodies sent, CPU seconds used."""

    requests: Counter[str]
    sent_bytes: float
    cpu_seconds: float


class Client(Protocol):
    """A controller, or the null client in its place."""

    usage: Usage

    async def counts(self) -> Counts:
        """What it has done so far."""


class NullClient:
    """The null client, in its process."""

    def __init__(self, child: Child) -> None:
        self.call = child.call
        self.usage = Usage(child.pid)

    async def counts(self) -> Counts:
        """What it says of itself."""
        counts = await self.call("counts")
        return Counts(Counter(counts["requests"]), counts["bytes"], counts["cpu"])


@dataclass
class Running:
    """A controller that runs. ``started``: when its process was started (monotonic seconds)."""

    process: subprocess.Popen[bytes]
    metrics_url: str
    started: float
    usage: Usage = field(init=False)

    def __post_init__(self) -> None:
        self.usage = Usage(self.process.pid)

    async def counts(self) -> Counts:
        """What it says of itself in its metrics."""
        cpu_seconds = self.usage.cpu_seconds
        async with aiohttp.ClientSession() as session, session.get(self.metrics_url) as response:
            text = await response.text()
        requests: Counter[str] = Counter()
        sent = 0.0
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == "frameworkcontroller_api_requests_total":
                    resource, _, subresource = sample.labels["resource"].partition("/")
                    what = f"{sample.labels['verb']} {resource.partition('.')[0]}"
                    requests[f"{what}/{subresource}" if subresource else what] += int(sample.value)
                elif sample.name == "frameworkcontroller_api_transferred_bytes_total":
                    sent += sample.value if sample.labels["direction"] == "sent" else 0
        return Counts(requests, sent, cpu_seconds)

    async def logs(self) -> dict[str, float]:
        """The logs that it has read, and how long deletions waited for them; nothing without a history."""
        async with aiohttp.ClientSession() as session, session.get(self.metrics_url) as response:
            text = await response.text()
        figures: dict[str, float] = {}
        waits: list[tuple[float, float]] = []
        for sample in (one for family in text_string_to_metric_families(text) for one in family.samples):
            if sample.name == "frameworkcontroller_history_logs_total":
                figures[f"logs {sample.labels['result']}"] = sample.value
            elif sample.name == "frameworkcontroller_history_log_wait_seconds_bucket":
                waits.append((float(sample.labels["le"]), sample.value))
            elif sample.name == "frameworkcontroller_api_transferred_bytes_total":
                figures[f"MB {sample.labels['direction']}"] = sample.value / 10**6
        if not waits:
            return {}
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            figures[f"deletions waited, {name}, at most"] = next(
                bound for bound, count in waits if count >= share * waits[-1][1]
            )
        return figures

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()


class World:
    """Everything but the controller, which comes and goes."""

    def __init__(
        self,
        plane: ControlPlane,
        folder: Path,
        client: KubeClient,
        node: Child,
        null: Child,
        config: Mapping[str, Any],
        profile: Path | None,
    ) -> None:
        """``config``: of the controller. ``profile``: where py-spy is to write the last controller's flame graph."""
        self.plane = plane
        self._config = config
        self._profile = profile
        self.client = client
        self.node = node
        self.null = NullClient(null)
        self.checkout = ROOT
        """Where the code of the controllers is that are started."""
        self.observer = Observer(client)
        self._folder = folder
        self._server = [Usage(plane.pid(program)) for program in ("etcd", "kube-apiserver")]
        self._numbers = itertools.count(1)

    async def namespace(self) -> str:
        """A new namespace."""
        name = f"bench-{next(self._numbers)}"
        await self.client.create(NAMESPACES, orjson.dumps({"metadata": {"name": name}}))
        return name

    async def create(self, namespace: str, name: str, tasks: int, *, execution: str = "Start") -> dict[str, Any]:
        """Create a Framework; it as the API server answers."""
        body = orjson.dumps(framework(name, tasks, execution=execution))
        created: dict[str, Any] = orjson.loads(await self.client.create(FRAMEWORKS, body, namespace))
        return created

    async def scale(self, namespace: str, name: str, tasks: int) -> float:
        """Change the Framework's taskNumber; when that was accepted."""
        body = orjson.dumps([{"op": "replace", "path": "/spec/taskRoles/0/taskNumber", "value": tasks}])
        await self.client.patch(FRAMEWORKS, name, body, namespace, content_type=JSON_PATCH, metadata_only=True)
        return time.monotonic()

    async def clear(self, namespace: str) -> None:
        """Remove everything from a namespace, and wait until it is gone."""
        # An API server gives up on a deletion of thousands after 34 s, and goes on with it all the same.
        with suppress(ApiServerError):
            await self.client.raw("DELETE", FRAMEWORKS.path(namespace), query={"propagationPolicy": "Background"})
        # What is left of it would slow down the next round.
        for resource, options in ((PODS, {"gracePeriodSeconds": "0"}), (CONFIGMAPS, {})):
            while True:
                with suppress(ApiServerError):
                    await self.client.raw("DELETE", resource.path(namespace), query=options)
                if not orjson.loads(await self.client.list(resource, namespace, limit=1, metadata_only=True))["items"]:
                    break
                await asyncio.sleep(0.1)
        await self.client.delete(NAMESPACES, namespace)
        await self.node.call("forget", namespace=namespace)
        await self.null.call("forget", namespace=namespace)

    @asynccontextmanager
    async def controller(self, *, ready: bool = True) -> AsyncIterator[Running]:
        """The controller, killed at the end. ``ready``: only once it has synced a Framework."""
        number = next(self._numbers)
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"127.0.0.1:{free.getsockname()[1]}"
        config_file = self._folder / f"controller-{number}.yaml"
        config_file.write_text(yaml.safe_dump({"webAddress": address, **self._config}))
        log_file = self._folder / f"controller-{number}.log"
        with log_file.open("wb") as log:
            process = subprocess.Popen(  # noqa: ASYNC220 - a few milliseconds, and nothing else goes on
                [sys.executable, "-m", "frameworkcontroller", "--config", str(config_file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.checkout,
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": "", "KUBECONFIG": str(self.plane.kubeconfig)},
            )
        running = Running(process, f"http://{address}/metrics", time.monotonic())
        profiler: subprocess.Popen[bytes] | None = None
        try:
            if ready:
                await self.synced()
            if self._profile is not None:
                style = "flamegraph" if self._profile.suffix == ".svg" else "raw"
                profiler = subprocess.Popen(  # noqa: ASYNC220 - see above
                    [
                        "py-spy",
                        "record",
                        "--nonblocking",
                        "-r",
                        "200",
                        "-f",
                        style,
                        "-o",
                        self._profile,
                        "-p",
                        str(process.pid),
                    ],
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            yield running
        finally:
            if profiler is not None:
                # Before its controller is gone: one that is killed while it is looked at has hung both.
                profiler.send_signal(signal.SIGINT)
                await asyncio.to_thread(profiler.wait, _PROFILER_SEC)
            running.kill()
            if os.environ.get("BENCH_LOGS"):
                shutil.copy(log_file, os.environ["BENCH_LOGS"])

    @property
    def server_cpu_seconds(self) -> float:
        """CPU time of the API server and its etcd so far: what a client costs them, however busy the machine is."""
        return sum(usage.cpu_seconds for usage in self._server)

    async def synced(self) -> float:
        """Have the controller sync a new Framework; when its status was seen."""
        namespace = await self.namespace()
        await self.create(namespace, "probe", 0, execution="Create")
        async with asyncio.timeout(_START_UP_SEC):
            at = await self.observer.when(f"{namespace}/probe", lambda seen: bool(seen.state))
        await self.clear(namespace)
        return at


@asynccontextmanager
async def world(
    plane: ControlPlane, config: Mapping[str, Any], profile: Path | None = None, logs: str | None = None
) -> AsyncIterator[World]:
    """Start the processes, and end them. ``logs``: the logs that the controller keeps, None without a history."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        access = (plane.url, plane.token, str(plane.ca_file))
        if logs is not None:
            (Path(folder) / "history").mkdir()
            config = {**config, "history": {"sink": "file", "path": f"{folder}/history", "logs": {"keep": logs}}}
        endpoint = () if logs is None else (folder,)
        node = await Child.start("benchmarks.node", str(plane.kubeconfig), *access, *endpoint)
        null = await Child.start("benchmarks.null_client", *access)
        async with KubeClient(await connect(kubeconfig=str(plane.kubeconfig), environ={})) as client:
            here = World(plane, Path(folder), client, node, null, config, profile)
            observing = asyncio.create_task(here.observer.run())
            try:
                # So that the node's Pods can name it.
                body: dict[str, Any] = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "bench"}}
                if port := await node.call("log_port"):
                    body["status"] = {
                        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
                    }
                await client.raw("POST", "/api/v1/nodes", body=orjson.dumps(body))
                await node.call("synced")
                yield here
            finally:
                observing.cancel()
                with suppress(asyncio.CancelledError):
                    await observing
                await null.close()
                await node.close()
