"""Restart a controller where many Frameworks exist, on recorded answers: no control plane takes part in the figures.

    python -m benchmarks.restarts [--frameworks 1000] [--tasks 10] [--completed 0] [--against REVISION]

The embedded cluster runs one Framework, whose objects are then served many times under other names. Figures for two
new Frameworks, one in the first list and one that arrives while the others are synced for the first time: the seconds
and the controller's CPU seconds from its start to the write of their first status. Then its CPU and memory at rest.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import orjson
import uvloop
import yaml
from aiohttp import web

from benchmarks.jobs import framework
from benchmarks.usage import Usage
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.config.config import Config
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.resources import CONFIGMAPS, CRDS, PODS, Resource
from frameworkcontroller.local.cluster import LocalCluster
from frameworkcontroller.local.kubelet.simulation import PREFIX
from frameworkcontroller.manager.app import Controller

ROOT: Final = Path(__file__).parents[1]
_NAMESPACE: Final = "default"
_AT_REST_SEC: Final = 2.0
_IDLE_CPU_SEC: Final = 0.02
_ROUND_SEC: Final = 120.0


async def record(tasks: int) -> tuple[bytes, dict[str, dict[str, list[bytes]]]]:
    """Run a Framework in the embedded cluster. Return the CRD, and its objects by state and resource."""
    found: dict[str, dict[str, list[bytes]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        async with (
            LocalCluster(Path(folder), runtime="simulated") as cluster,
            KubeClient(cluster.connect()) as client,
            Controller(Config(web_address=""), cluster.connect()),
        ):
            for state, name in (("running", "templater"), ("completed", "templatec")):
                body = framework(name, tasks)
                pod = body["spec"]["taskRoles"][0]["task"]["pod"]
                del pod["spec"]["nodeName"]
                seconds = "0.1" if state == "completed" else "3600"
                pod["metadata"]["annotations"] = {f"{PREFIX}run-seconds": seconds}
                await client.create(FRAMEWORKS, orjson.dumps(body), _NAMESPACE)
                while not await _is(client, name, state, tasks):  # noqa: ASYNC110 - in another process it would be, too
                    await asyncio.sleep(0.1)
                found[state] = {
                    resource.plural: [orjson.dumps(item) for item in await _list(client, resource, name)]
                    for resource in (FRAMEWORKS, CONFIGMAPS, PODS)
                }
            crd = await client.get(CRDS, f"{FRAMEWORKS.plural}.{FRAMEWORKS.group}")
    return crd, found


async def _is(client: KubeClient, name: str, state: str, tasks: int) -> bool:
    status = orjson.loads(await client.get(FRAMEWORKS, name, _NAMESPACE)).get("status") or {}
    if state == "completed":
        return bool(status.get("state") == "Completed")
    roles = (status.get("attemptStatus") or {}).get("taskRoleStatuses") or [{"taskStatuses": []}]
    return [task["state"] for task in roles[0]["taskStatuses"]] == ["AttemptRunning"] * tasks


async def _list(client: KubeClient, resource: Resource, name: str) -> list[Any]:
    items = orjson.loads(await client.list(resource, _NAMESPACE))["items"]
    return [item for item in items if item["metadata"]["name"].startswith(name)]


# --- the server ------------------------------------------------------------------------------------------------------

_UID_TAIL: Final = re.compile(rb"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{6})[0-9a-f]{6}")


def copies(templates: Mapping[str, list[bytes]], name: str, count: int, first: int) -> dict[str, list[bytes]]:
    """The objects of ``count`` Frameworks like the one called ``name``, by resource."""
    made: dict[str, list[bytes]] = {resource: [] for resource in templates}
    for number in range(first, first + count):
        mine, tail = f"f{number:08}".encode(), rb"\g<1>" + f"{number:06x}".encode()
        for resource, bodies in templates.items():
            made[resource] += [_UID_TAIL.sub(tail, body.replace(name.encode(), mine)) for body in bodies]
    return made


def new_framework(template: bytes, name: str) -> bytes:
    """A Framework without a status."""
    body = orjson.loads(template)
    body.pop("status", None)
    body["metadata"] |= {"name": name, "uid": name, "resourceVersion": "2000000", "generation": 1}
    return orjson.dumps(body)


class Server:
    """Serves lists in pages, and watches without an event but the new Framework. Nothing is stored."""

    def __init__(self, crd: bytes, objects: Mapping[str, list[bytes]], late: bytes) -> None:
        self._crd = crd
        self._objects = objects
        self._late = late
        self.written: dict[str, asyncio.Event] = {}
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        self.url = ""

    async def start(self) -> None:
        """Listen on a free port."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = "http://{}:{}".format(*self._runner.addresses[0][:2])

    async def stop(self) -> None:
        """Close all connections."""
        await self._runner.cleanup()

    def begin(self, *names: str) -> None:
        """Forget what was written."""
        self.written = {name: asyncio.Event() for name in names}

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        parts = request.path.strip("/").split("/")
        if "customresourcedefinitions" in parts:
            return web.Response(body=self._crd, content_type="application/json")
        if request.method == "GET" and parts[-1] in self._objects:
            return await (self._watch if "watch" in request.query else self._page)(request, parts[-1])
        if request.method == "PATCH" and parts[-1] == "status" and parts[-2] in self.written:
            self.written[parts[-2]].set()
        body = {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}
        return web.json_response(body, status=404)

    async def _page(self, request: web.Request, resource: str) -> web.Response:
        first, limit = int(request.query.get("continue", "0")), int(request.query.get("limit", "500"))
        objects = self._objects[resource]
        more = str(first + limit) if first + limit < len(objects) else ""
        head = orjson.dumps({"kind": "List", "metadata": {"resourceVersion": "1000000", "continue": more}})
        items = b",".join(objects[first : first + limit])
        return web.Response(body=head[:-1] + b',"items":[' + items + b"]}", content_type="application/json")

    async def _watch(self, request: web.Request, resource: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        if resource == FRAMEWORKS.plural:
            await response.write(b'{"type":"ADDED","object":' + self._late + b"}\n")
        await asyncio.sleep(3600)
        return response


# --- a round ---------------------------------------------------------------------------------------------------------


async def measure(server: Server, checkout: Path, folder: Path) -> dict[str, float]:
    """Run the controller of the checkout until it is at rest. Return the figures."""
    server.begin("newlisted", "newwatched")
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump({"kubeApiServerAddress": server.url, "webAddress": "", "recordEvents": False}))
    began = time.monotonic()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(  # noqa: ASYNC220 - a few milliseconds
            [sys.executable, "-m", "frameworkcontroller", "--config", str(config)],
            cwd=checkout,
            env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
            stdin=subprocess.DEVNULL,
            stderr=log,
        )
    usage = Usage(process.pid)
    figures: dict[str, float] = {}

    async def watch(name: str, what: str) -> None:
        await server.written[name].wait()
        figures[f"{what}: s"], figures[f"{what}: CPU s"] = time.monotonic() - began, usage.cpu_seconds

    try:
        async with asyncio.timeout(_ROUND_SEC), asyncio.TaskGroup() as group:
            group.create_task(watch("newlisted", "new one in the list"))
            group.create_task(watch("newwatched", "new one after the list"))
        rest_since, last = time.monotonic(), usage.cpu_seconds
        while time.monotonic() - rest_since < _AT_REST_SEC:
            await asyncio.sleep(0.1)
            if (now := usage.cpu_seconds) - last > _IDLE_CPU_SEC:
                rest_since, last = time.monotonic(), now
        figures["at rest: CPU s"] = last
        figures["at rest: MiB"] = usage.memory_bytes / 2**20
        figures["peak MiB"] = usage.peak_memory_bytes / 2**20
    finally:
        process.kill()
        process.wait()
    return figures


async def _run(options: argparse.Namespace, checkouts: Mapping[str, Path]) -> None:
    crd, found = await record(options.tasks)
    objects = copies(found["running"], "templater", options.frameworks, 0)
    for resource, bodies in copies(found["completed"], "templatec", options.completed, options.frameworks).items():
        objects[resource] += bodies
    template = found["running"][FRAMEWORKS.plural][0]
    objects[FRAMEWORKS.plural].append(new_framework(template, "newlisted"))
    size = sum(map(len, itertools.chain.from_iterable(objects.values())))
    number = f"{options.frameworks} running and {options.completed} completed Frameworks"
    print(f"{number} of {options.tasks} Tasks, {size / 1e6:.1f} MB")
    server = Server(crd, objects, new_framework(template, "newwatched"))
    await server.start()
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in checkouts}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.rounds):
            for name, checkout in checkouts.items():
                rounds[name].append(await measure(server, checkout, Path(folder)))
    await server.stop()
    for name, figures in rounds.items():
        print(name)
        for what in figures[0]:
            values = [one[what] for one in figures]
            print(f"  {what:26} {statistics.median(values):8.2f}   {min(values):.2f} .. {max(values):.2f}")


def main() -> None:
    """Run as asked."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.restarts", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--frameworks", type=int, default=1000, metavar="N", help="that run (default: 1000)")
    parser.add_argument("--completed", type=int, default=0, metavar="N", help="that are completed (default: 0)")
    parser.add_argument("--tasks", type=int, default=10, metavar="N", help="of each (default: 10)")
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    parser.add_argument(
        "--against",
        metavar="DIRECTORY",
        type=Path,
        action="append",
        default=[],
        help="another checkout, in turns with this one",
    )
    options = parser.parse_args()
    checkouts = {str(path): path for path in options.against} | {"this version": ROOT}
    uvloop.run(_run(options, checkouts))


if __name__ == "__main__":
    main()
