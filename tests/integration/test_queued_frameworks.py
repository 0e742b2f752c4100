"""Frameworks on a local cluster with a queue: they compete, are preempted, and continue. No quota is used twice."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from frameworkcontroller.api.quantities import parse_quantity
from frameworkcontroller.config.config import Kueue, KueueMode, shipped_config
from frameworkcontroller.local.apiserver.object_records import Change
from tests.support.frameworks import Json, condition, policy, states
from tests.support.localqueue import in_queue, needing
from tests.support.site import LocalSite, local_site

pytestmark = pytest.mark.virtual_clock

QUOTA = 8


@dataclass
class World(LocalSite):
    """A local cluster with a queue. ``most``: the most processors that Pods requested at a time."""

    most: Decimal = Decimal(0)
    _pods: dict[str, Decimal] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cluster.server.storage.observe(self._observe)

    def _observe(self, change: Change) -> None:
        if change.record.resource == "pods":
            if change.new is None:
                self._pods.pop(change.record.key, None)
            else:
                (container,) = change.new.document()["spec"]["containers"]
                self._pods[change.record.key] = parse_quantity(container["resources"]["requests"]["cpu"])
            self.most = max(self.most, sum(self._pods.values(), Decimal(0)))

    async def create(
        self, name: str, tasks: int, cpu: object, *, priority: str = "", seconds: object = 60, **spec: Any
    ) -> None:
        """Create a Framework that needs ``cpu`` processors for each Task, and runs for ``seconds``."""
        simulate = {"run-seconds": seconds, "stop-seconds": 5}
        made = needing(cpu, tasks, simulate=simulate, **policy(succeeded=tasks))
        await self.frameworks.create(name, made, metadata=in_queue(priority), **spec)

    async def until_condition(self, name: str, kind: str, status: str, message: str = "") -> None:
        await self.frameworks.until(
            name,
            lambda found: (
                condition(found, kind).get("status") == status and message in condition(found, kind).get("message", "")
            ),
        )


@asynccontextmanager
async def running(path: Path, *, capacity: dict[str, str] | None = None) -> AsyncIterator[World]:
    config = shipped_config().model_copy(update={"kueue": Kueue(mode=KueueMode.ENABLED)})
    quota = {"cpu": str(QUOTA)}
    async with local_site(path, World, config, quota=quota, capacity=capacity) as world:
        yield world


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with running(tmp_path) as world:
        yield world
        assert world.most <= QUOTA


async def test_quota_of_completed_tasks_goes_to_the_next_one_while_others_run(world: World) -> None:
    """Of eight processors, six would be idle until the end of the longest Task."""
    kinds = {"short": 6, "long": 2}
    roles = [
        {**needing(1, number, simulate={"run-seconds": 20 if name == "short" else 600}), "name": name}
        for name, number in kinds.items()
    ]
    await world.frameworks.create("first", *roles, metadata=in_queue())
    await world.frameworks.until_running("first", 8)
    await world.create("second", 3, 2)
    await world.frameworks.until("second", lambda found: states(found).count("AttemptRunning") == 3, within=120)
    assert sum(name.startswith("first-") for name in await world.frameworks.pods()) == 2
    await world.frameworks.until_state("second", "Completed", within=120)
    status = await world.frameworks.until_state("first", "Completed", within=900)
    assert status["retryPolicyStatus"]["totalRetriedCount"] == 0


async def test_a_gang_waits_for_quota_and_then_for_room(tmp_path: Path) -> None:
    """The quota admits both, and the node holds one of them."""
    async with running(tmp_path, capacity={"cpu": "4"}) as world:
        gang: Json = {"scheduling": {"schedulingPolicy": {"gang": {}}}}
        await world.create("first", 3, 1, seconds=300, **gang)
        await world.frameworks.until_running("first", 3)
        await world.create("second", 3, 1, seconds=10, **gang)
        await world.until_condition("second", "Admitted", "True")
        await world.frameworks.until(
            "second",
            lambda status: "do not fit together" in condition(status, "Running").get("message", ""),
        )
        pods = await world.frameworks.pods()
        assert [name for name in pods if name.startswith("second") and pods[name]["spec"].get("nodeName")] == []
        await world.frameworks.until_state("second", "Completed", within=600)
        assert world.most == 6
