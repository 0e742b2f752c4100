"""A busy day in minutes, for a picture of the dashboard: a real controller, a simulated cluster, a real Prometheus.

    python -m benchmarks.dashboard --minutes 5 --draw "python scripts/draw_dashboard.py {url} docs/dashboard.png"

The controller is the command itself in a process of its own; the embedded API server, its simulated node and the users
live in this one. Two thirds through, the API server is away for ten seconds. `prometheus` must be on PATH (Debian:
apt-get install prometheus). `--draw` is run at the end, while Prometheus still answers at {url}.
"""

import argparse
import asyncio
import random
import shlex
import sys
import tempfile
import time
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import orjson
import yaml

from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.kube.errors import KubeError
from frameworkcontroller.kube.resources import PODS
from frameworkcontroller.local.apiserver.restserver import ApiServer
from frameworkcontroller.local.kubelet.agent import NodeAgent
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.logs import configure_logging
from tests.support.frameworks import Frameworks, policy, role
from tests.support.pods import pod_manifest

_NAMESPACE = "default"
_CONTROLLER = "127.0.0.1:10299"
_PROMETHEUS = "127.0.0.1:10298"
_AWAY_SEC = 10.0


def any_framework(chance: random.Random) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The roles and other fields of some Framework: a batch, a fragile one, a gang that conflicts, a service."""
    seconds = chance.uniform(3, 40)
    match chance.choices(["batch", "fragile", "conflict", "workers"], [6, 3, 1, 2])[0]:
        case "batch":
            simulate = {"prepare-seconds": chance.uniform(0, 3), "run-seconds": seconds}
            return [role("w", chance.randint(1, 12), simulate=simulate)], {}
        case "fragile":
            code = chance.choice([1, 137, 139, 210, 200])
            simulate = {"run-seconds": seconds / 3, "exit-code": code}
            task = {"retryPolicy": {"fancyRetryPolicy": True, "maxRetryCount": 2}}
            frail = role("w", chance.randint(1, 4), task=task, simulate=simulate)
            return [{**frail, "frameworkAttemptCompletionPolicy": policy(1)}], {"retryPolicy": {"maxRetryCount": 1}}
        case "conflict":
            simulate = {"run-seconds": 2, "exit-code": 201}
            gang = role("w", 4, simulate=simulate, frameworkAttemptCompletionPolicy=policy(1))
            return [gang], {"retryPolicy": {"fancyRetryPolicy": True, "maxRetryCount": 0}}
        case _:
            servers = role("ps", 2)
            simulate = {"run-seconds": seconds}
            workers = role("w", 8, simulate=simulate, frameworkAttemptCompletionPolicy=policy(1, 8))
            return [servers, workers], {}


async def busy_users(frameworks: Frameworks, seconds: float, rate: float) -> None:
    """Create, rescale, stop and delete Frameworks for so long."""
    chance = random.Random(1)
    alive: list[str] = []
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    number = 0
    while loop.time() < end:
        # Busy and quiet times.
        swing = 1.7 if (end - loop.time()) % 100 < 40 else 0.5
        await asyncio.sleep(chance.expovariate(rate * swing))
        number += 1
        name = f"job{number}"
        with suppress(KubeError):
            roles, spec = any_framework(chance)
            await frameworks.create(name, *roles, **spec)
            alive.append(name)
            if number % 40 == 7:
                # Somebody else has a Pod of the name that one of the next will want.
                taken = pod_manifest(name=f"job{number + 1}-w-0", namespace=_NAMESPACE)
                await frameworks.client.create(PODS, orjson.dumps(taken), _NAMESPACE)
            if number % 9 == 0:
                await frameworks.set(chance.choice(alive), executionType="Stop")
            if number % 5 == 0:
                await frameworks.set(name, taskRoles__0__taskNumber=chance.randint(1, 15))
            if len(alive) > 150:
                await frameworks.delete(alive.pop(0))


async def serve_with_a_gap(server: ApiServer, before: float) -> None:
    """An API server that cannot be reached for a while. It runs until cancelled."""
    async with server:
        await asyncio.sleep(before)
    await asyncio.sleep(_AWAY_SEC)
    async with ApiServer(port=int(server.url.rpartition(":")[2]), storage=server.storage):
        await asyncio.Event().wait()


async def node_for_ever(client: KubeClient, runtime: SimulatedRuntime) -> None:
    """A node that outlives an outage."""
    while True:
        with suppress(KubeError):
            await NodeAgent(client, runtime, wall=time.time).run()
        await asyncio.sleep(1)


async def run(minutes: float, rate: float, draw: str) -> int:
    """Let it all happen. Returns the exit code of ``draw``."""
    seconds = minutes * 60
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = ApiServer()
        serving = asyncio.create_task(serve_with_a_gap(server, 5 + seconds * 0.66))
        stack.callback(serving.cancel)
        await asyncio.sleep(1)
        user, node = [await stack.enter_async_context(KubeClient(Connection.to_address(server.url))) for _ in "un"]
        config = folder / "config.yaml"
        keys = {"kubeApiServerAddress": server.url, "webAddress": _CONTROLLER, "frameworkCompletedRetainSec": 60}
        config.write_text(yaml.safe_dump(keys))
        scrape = {"job_name": "frameworkcontroller", "static_configs": [{"targets": [_CONTROLLER]}]}
        scraping = folder / "prometheus.yaml"
        scraping.write_text(yaml.safe_dump({"global": {"scrape_interval": "2s"}, "scrape_configs": [scrape]}))
        log = stack.enter_context((folder / "log").open("wb"))
        for command in (
            [sys.executable, "-m", "frameworkcontroller", "--config", str(config), "--log-level", "error"],
            [
                "prometheus",
                f"--config.file={scraping}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={_PROMETHEUS}",
            ],
        ):
            process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)
            stack.push_async_callback(process.wait)
            stack.callback(process.terminate)
        agent = asyncio.create_task(node_for_ever(node, SimulatedRuntime(wall=time.time)))
        stack.callback(agent.cancel)
        await asyncio.sleep(5)
        await busy_users(Frameworks(user, _NAMESPACE), seconds, rate)
        command = shlex.split(draw.format(url=f"http://{_PROMETHEUS}"))
        drawing = await asyncio.create_subprocess_exec(*command)
        return await drawing.wait()


def main() -> int:
    """Run as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--rate", type=float, default=1.0, help="Frameworks created per second, on average")
    parser.add_argument("--draw", required=True, help="a command; {url} in it is that of Prometheus")
    options = parser.parse_args()
    # The node tells of each request that fails while the API server is away.
    configure_logging("error")
    return asyncio.run(run(options.minutes, options.rate, options.draw))


if __name__ == "__main__":
    sys.exit(main())
