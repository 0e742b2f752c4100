"""Memory and pauses of a controller whose Frameworks have large Pod templates, on the embedded cluster.

    python -m benchmarks.largespecs [--frameworks 30] [--bytes 1200000] [--shape lists] [--against DIRECTORY]

Creates suspended Frameworks one by one. Then the controller starts again, and lists them. The longest pause is the
slowest answer of /healthz, which is asked every 5 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import aiohttp
import orjson
import uvloop
import yaml

from benchmarks.usage import Usage
from frameworkcontroller.api import names
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.config.config import Config
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.local.cluster import LocalCluster
from frameworkcontroller.manager.app import Controller
from tests.support.ports import unused_port

ROOT: Final = Path(__file__).parents[1]
_NAMESPACE: Final = "default"
_AT_REST_SEC: Final = 2.0
_IDLE_CPU_SEC: Final = 0.4
"""The answers to the health checks take some."""
_ROUND_SEC: Final = 1800.0

SHAPES: Final[Mapping[str, bytes]] = {"lists": b"[[]]", "objects": b'{"":{}}', "numbers": b"1000", "text": b'"text"'}
"""Values that a template repeats. The first takes the most memory for its text."""


def body(name: str, size: int, shape: str) -> bytes:
    """A suspended Framework with a template of that size."""
    value = SHAPES[shape]
    pod = {
        "spec": {"containers": [], "odd": orjson.Fragment(b"[%s]" % b",".join([value] * (size // (len(value) + 1))))}
    }
    spec = {"suspend": True, "taskRoles": [{"name": "a", "taskNumber": 1, "task": {"pod": pod}}]}
    metadata = {"name": name, "namespace": _NAMESPACE}
    return orjson.dumps({"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": metadata, "spec": spec})


@asynccontextmanager
async def controller(checkout: Path, server: str, folder: Path) -> AsyncIterator[tuple[Usage, list[float]]]:
    """Run the controller of a checkout. Yield its usage, and the times that it takes to answer its health check."""
    port, config, pauses = unused_port(), folder / "config.yaml", [0.0]
    settings = {"kubeApiServerAddress": server, "webAddress": f"127.0.0.1:{port}", "recordEvents": False}
    config.write_text(yaml.safe_dump(settings))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(  # noqa: ASYNC220 - a few milliseconds
            [sys.executable, "-m", "frameworkcontroller", "--config", str(config)],
            cwd=checkout,
            env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
            stdin=subprocess.DEVNULL,
            stderr=log,
        )

    async def look() -> None:
        async with aiohttp.ClientSession() as session:
            while True:
                began = time.monotonic()
                with suppress(aiohttp.ClientConnectionError):
                    async with session.get(f"http://127.0.0.1:{port}/healthz"):
                        pauses.append(time.monotonic() - began)
                await asyncio.sleep(0.005)

    looking = asyncio.create_task(look())
    try:
        yield Usage(process.pid), pauses
    finally:
        looking.cancel()
        process.kill()
        process.wait()


async def until_at_rest(usage: Usage) -> None:
    """Wait until the process has used no CPU for two seconds."""
    since, last = time.monotonic(), usage.cpu_seconds
    while time.monotonic() - since < _AT_REST_SEC:
        await asyncio.sleep(0.1)
        if (now := usage.cpu_seconds) - last > _IDLE_CPU_SEC:
            since, last = time.monotonic(), now


async def measure(checkout: Path, options: argparse.Namespace) -> dict[str, float]:
    """Create the Frameworks, and start the controller again. Return the figures."""
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with LocalCluster(folder, runtime="simulated") as cluster, KubeClient(cluster.connect()) as client:
            server = cluster.connect().server
            async with Controller(Config(web_address=""), cluster.connect()):
                # Creates the CRD.
                while not await _is_served(client):  # noqa: ASYNC110 - in another process it would be, too
                    await asyncio.sleep(0.1)
            async with asyncio.timeout(_ROUND_SEC):
                async with controller(checkout, server, folder) as (usage, pauses):
                    for number in range(options.frameworks):
                        text = body(f"f{number}", options.bytes, options.shape)
                        await client.create(FRAMEWORKS, text, _NAMESPACE)
                        while not await _is_suspended(client, f"f{number}"):  # noqa: ASYNC110 - as above
                            await asyncio.sleep(0.25)
                    await until_at_rest(usage)
                    figures["created: MiB at rest"] = usage.memory_bytes / 2**20
                    figures["created: peak MiB"] = usage.peak_memory_bytes / 2**20
                    figures["created: longest pause, ms"] = max(pauses) * 1000
                async with controller(checkout, server, folder) as (usage, pauses):
                    await until_at_rest(usage)
                    figures["started again: MiB at rest"] = usage.memory_bytes / 2**20
                    figures["started again: peak MiB"] = usage.peak_memory_bytes / 2**20
                    figures["started again: longest pause, ms"] = max(pauses) * 1000
    return figures


async def _is_served(client: KubeClient) -> bool:
    with suppress(Exception):
        await client.list(FRAMEWORKS, _NAMESPACE)
        return True
    return False


async def _is_suspended(client: KubeClient, name: str) -> bool:
    status: dict[str, Any] = orjson.loads(await client.get(FRAMEWORKS, name, _NAMESPACE)).get("status") or {}
    found = {one["type"]: one["status"] for one in status.get("conditions") or ()}
    return found.get("Suspended") == "True" or "Stalled" in found


def main() -> None:
    """Run as asked."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.largespecs", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--frameworks", type=int, default=30, metavar="N", help="default: 30")
    parser.add_argument("--bytes", type=int, default=1_200_000, metavar="N", help="of each template (default: 1200000)")
    parser.add_argument("--shape", choices=SHAPES, default="lists", help="default: lists")
    parser.add_argument(
        "--against", metavar="DIRECTORY", type=Path, action="append", default=[], help="another checkout, before this"
    )
    options = parser.parse_args()
    for checkout in (*options.against, ROOT):
        print(checkout if checkout != ROOT else "this version", flush=True)
        for what, value in uvloop.run(measure(checkout, options)).items():
            print(f"  {what:34} {value:8.1f}", flush=True)


if __name__ == "__main__":
    main()
