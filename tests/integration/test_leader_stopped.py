"""A leader whose process is stopped (SIGSTOP) in the middle of its work, and wakes up when another one leads.

Two processes, each before a front door of its own, which records the requests of each.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from frameworkcontroller.kube.resources import LEASES
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from tests.support.clusters import Cluster
from tests.support.eventually import until
from tests.support.exposure import Exposure
from tests.support.frameworks import Frameworks, Json, codes, role, tasks
from tests.support.frontdoor import FrontDoor, front_door
from tests.support.objects import read

pytestmark = pytest.mark.newest

LEASE = "fc"
DURATION, DEADLINE, RETRY = 15, 10, 1
"""Neither loses its Lease only because the machine is busy."""


@dataclass
class Replica:
    """A process that runs the controller."""

    door: FrontDoor
    process: asyncio.subprocess.Process
    log: Path

    def says(self, text: str) -> bool:
        return text in self.log.read_text()

    async def until_says(self, text: str) -> None:
        await until(lambda: self.says(text))

    def sent(self, since: float) -> list[str]:
        """All that it sent from that moment on that only a leader may send.

        Events do not count: they report actions of its term.
        """
        return [
            str(request)
            for request in self.door.since(since)
            if request.resource not in ("leases", "events") and request.verb not in ("list", "watch")
        ]


@asynccontextmanager
async def replica(cluster: Cluster, folder: Path, name: str, **config: Any) -> AsyncIterator[Replica]:
    """One that runs, and either leads or stands by."""
    async with front_door(await cluster.connection()) as door:
        election = {
            "enabled": True,
            "leaseName": LEASE,
            "leaseNamespace": cluster.namespace,
            "leaseDurationSec": DURATION,
            "renewDeadlineSec": DEADLINE,
            "retryPeriodSec": RETRY,
        }
        file = folder / f"{name}.yaml"
        file.write_text(
            yaml.safe_dump(
                {
                    "kubeApiServerAddress": door.connection.server,
                    "namespace": cluster.namespace,
                    "webAddress": "",
                    "leaderElection": election,
                    **config,
                }
            )
        )
        log = folder / f"{name}.log"
        with log.open("wb") as stderr:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "frameworkcontroller", "--config", str(file)),
                env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
                stdin=asyncio.subprocess.DEVNULL,
                stderr=stderr,
            )
        try:
            yield Replica(door, process, log)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def test_it_sends_nothing_when_it_wakes_up(cluster: Cluster, pods: SimulatedRuntime, tmp_path: Path) -> None:
    client = await cluster.client()
    frameworks = Frameworks(client, cluster.namespace)
    exposure = Exposure(client, cluster.namespace)
    loop = asyncio.get_running_loop()
    # So slow that it has most of its work before it when it is stopped.
    async with replica(cluster, tmp_path, "first", kubeClientQps=4, kubeClientBurst=12) as first:
        await first.until_says(": leading")
        async with replica(cluster, tmp_path, "second") as second, exposure.following():
            await second.until_says(": standing by")
            simulate = {"run-seconds": "0.4, 0.2, 0.1", "exit-code": "200, 200, 0"}
            await frameworks.create(
                "f", role(number=12, simulate=simulate, task={"retryPolicy": {"fancyRetryPolicy": True}})
            )
            await frameworks.until("f", lambda status: any(map(pod_uid, tasks(status))))
            first.process.send_signal(signal.SIGSTOP)
            stopped = loop.time()
            await second.until_says(": leading")
            assert loop.time() - stopped >= DURATION - DEADLINE
            await until(lambda: bool(second.sent(since=stopped)))
            woken = loop.time()
            first.process.send_signal(signal.SIGCONT)
            await first.until_says("now a standby")
            status = await frameworks.until_state("f", "Completed")
            assert codes(tasks(status)) == [0] * 12
            await frameworks.assert_nothing_left("f")
            assert first.sent(since=woken) == []
            # It is as good a standby as any other: the second one ends in order, and it leads again.
            second.process.terminate()
            assert await second.process.wait() == 0
            lease = await read(client, LEASES, LEASE, cluster.namespace)
            assert lease["spec"]["leaseTransitions"] >= 1
            await frameworks.create("g", role(number=2, simulate={"run-seconds": 0.1}))
            await frameworks.until_state("g", "Completed")
            assert first.sent(since=woken) != []
            first.process.terminate()
            assert await first.process.wait() == 0
            await until(lambda: len(exposure.pods) == 12 * 3 + 2)
    exposure.check()


def pod_uid(task: Json) -> str | None:
    uid: str | None = task["attemptStatus"]["podUID"]
    return uid
