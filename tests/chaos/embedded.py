"""Plays a story on an embedded cluster, by virtual time: an hour takes a second, and always goes the same way."""

import asyncio
import gc
import io
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Final
from unittest.mock import patch

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.controller.driver import Driver
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.kube.kubeconfig import ServerAccess
from frameworkcontroller.kube.resources import CRDS, PERSISTENTVOLUMECLAIMS, PODGROUPS, SERVICES, WORKLOADS
from frameworkcontroller.local import podgroup_crd
from frameworkcontroller.local.apiserver.object_records import Change
from frameworkcontroller.local.apiserver.restserver import ApiServer
from frameworkcontroller.local.kubelet.agent import NodeAgent
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.local.queues.kueue_crds import definitions
from frameworkcontroller.local.queues.queue_controller import QueueController
from frameworkcontroller.local.queues.setup import provide_queue
from frameworkcontroller.logs import KlogFormatter, LineHandler
from frameworkcontroller.machine.kernel import batch
from frameworkcontroller.manager import app
from frameworkcontroller.manager.app import Controller
from tests.chaos.player import Outcome, Player, Unfinished, config_of
from tests.chaos.proxy import FaultProxy
from tests.chaos.record import KINDS, Write
from tests.chaos.snapshots import Snapshots
from tests.chaos.story import Story
from tests.support.framework_crd import crd_json
from tests.support.guarantees import is_lost
from tests.support.historysink import ArchiveStandIn
from tests.support.virtual_clock import run, wall
from tests.support.world import Violation

_PRODUCT: Final = "frameworkcontroller"

_NEVER_SEC: Final = 1e9
"""The resync would hide, after ten minutes, that something waits for ever: nothing may need it."""

_BUSIEST: Final = 200
"""Requests in a second of virtual time that no story needs: some fifty are the most that one has been seen to."""


def play(story: Story) -> Outcome:
    """Play it on a cluster and a loop of its own. The outcome's ``error`` is the finding."""
    gc.collect()
    files = _open_files()
    with patch.object(batch, "WIDTH", story.in_flight):
        outcome = run(_play(story))
    gc.collect()
    if outcome.error is None and (now := _open_files()) > files:
        outcome.error = Unfinished(f"{now - files} files or sockets are left open")
    return outcome


def failure_of(story: Story) -> str | None:
    """The kind of a story's error: its class and the first words that name no object."""
    error = play(story).error
    if error is None:
        return None
    words = str(error).partition("\n")[0].split()
    return " ".join([type(error).__name__, *(word for word in words[:6] if word.isalpha())])


def _open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def _play(story: Story) -> Outcome:
    outcome = Outcome(story)
    server = ApiServer(wall=wall, rng=random.Random(story.seed))
    await server.start()
    async with KubeClient(Connection.to_address(server.url)) as client:
        await client.create(CRDS, crd_json())
        if story.quota is not None:
            for definition in definitions():
                await client.create(CRDS, orjson.dumps(definition))
            await provide_queue(client, {"cpu": str(story.quota)})
        if story.gangs:
            await client.create(CRDS, orjson.dumps(podgroup_crd.definition()))
        player = EmbeddedPlayer(story, server, client)
        try:
            async with player.at_work():
                await player.play()
                await player.mend()
                outcome.recovery = await player.finish()
        except AssertionError as error:
            outcome.error = error
        try:
            player.check_record(player.writes)
        except AssertionError as error:
            # The violation came first, and is mostly the cause.
            outcome.error = error
        busiest = max(replica.proxy.busiest for replica in (player.a, player.b))
        if outcome.error is None and busiest > _BUSIEST:
            outcome.error = Unfinished(f"a controller has sent {busiest} requests in a second: it is in a circle")
        asked = {resource for replica in (player.a, player.b) for _, resource in replica.proxy.asked}
        if outcome.error is None and SERVICES.plural in asked and not story.has_network:
            outcome.error = Unfinished("a controller asks for Services, which no Framework needs")
        if outcome.error is None and PERSISTENTVOLUMECLAIMS.plural in asked and not story.has_claims:
            outcome.error = Unfinished("a controller asks for volume claims, which no Framework needs")
        if outcome.error is None and WORKLOADS.plural in asked and story.quota is None:
            outcome.error = Unfinished("a controller asks for Workloads, and no queue is configured")
        if outcome.error is None and PODGROUPS.plural in asked and not story.gangs:
            outcome.error = Unfinished("a controller asks for PodGroups, which no Framework needs")
    await player.server.stop()
    outcome.writes = len(player.writes)
    outcome.injected = player.injected
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    if left and outcome.error is None:
        outcome.error = Unfinished(f"tasks are left: {left}")
    return outcome


class _Disk(io.StringIO):
    """Where the log goes; it can be full. Lines with a snapshot are kept."""

    full = False

    def __init__(self, snapshots: Snapshots) -> None:
        super().__init__()
        self._snapshots = snapshots

    def write(self, text: str) -> int:
        has_snapshot = names.SNAPSHOT_MARK in text
        if self.full:
            self._snapshots.incomplete |= has_snapshot
            raise OSError(28, "No space left on device")
        if has_snapshot:
            self._snapshots.take(text)
        return len(text)


class _Replica:
    """A controller in this process. Its wall clock is ``offset`` seconds ahead of the cluster's."""

    def __init__(self, name: str, story: Story, server: ApiServer, sink: ArchiveStandIn | None) -> None:
        self.name = name
        self._sink = sink
        self.proxy = FaultProxy(server.url, wall=wall)
        self.offset = 0.0
        self._story = story
        self._lives = 0
        self._running: asyncio.Task[None] | None = None
        self._controller: Controller | None = None

    def start(self) -> None:
        if self._running is None:
            self._lives += 1
            access = ServerAccess(server=self.proxy.url)

            async def renew() -> ServerAccess:
                return access

            with patch.object(app, "Driver", partial(Driver, max_in_flight=self._story.in_flight)):
                self._controller = Controller(
                    config_of(self._story, self._sink),
                    Connection(access, origin="chaos", renew=renew),
                    wall=lambda: wall() + self.offset,
                    rng=random.Random(f"{self._story.seed} {self.name} {self._lives}"),
                    resync_sec=_NEVER_SEC,
                )
            self._running = asyncio.create_task(self._controller.run(), name=f"controller {self.name}")

    async def kill(self) -> None:
        if self._running is not None:
            await self.proxy.refuse()
            why = self.why_ended()
            running, self._running = self._running, None
            running.cancel()
            await asyncio.wait([running])
            if why:
                raise Unfinished(why)

    async def stop(self) -> None:
        if self._running is not None and self._controller is not None:
            running, self._running = self._running, None
            self._controller.stop()
            await running

    def why_ended(self) -> str:
        if self._running is None or not self._running.done() or self._running.cancelled():
            return ""
        return f"controller {self.name} ended with {self._running.exception()!r}"


class EmbeddedPlayer(Player):
    """A story on a cluster of its own. ``writes`` is the API server's record."""

    a: _Replica
    b: _Replica
    mends_watches = False
    # An event that a watch lost is made up for within ten minutes; retries and timeouts may follow.
    patience = 20_000.0
    glance = 5.0

    def __init__(self, story: Story, server: ApiServer, client: KubeClient) -> None:
        runtime = SimulatedRuntime(wall=wall)
        super().__init__(story, client, "default", runtime, wall)
        self.writes: list[Write] = []
        self.server = server
        self.server.storage.observe(self._stored)
        self._rng = random.Random(story.seed)
        self._agent = NodeAgent(client, runtime, gangs=story.gangs, wall=wall, rng=self._rng)
        self._queue: asyncio.Task[None] | None = None
        self.a, self.b = (_Replica(name, story, server, self.sink) for name in "AB")
        for replica in (self.a, self.b):
            replica.proxy.moment = lambda: len(self.writes)
        self._disk = _Disk(self.snapshots)
        self._server_is_down = False
        self._starting: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """A node and a controller are there within; nothing is afterwards."""
        handler = LineHandler(self._disk, KlogFormatter())
        logger = logging.getLogger(_PRODUCT)
        level = logger.level
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        # Other handlers would keep every line.
        logger.propagate = False
        self._node = asyncio.create_task(self._agent.run(), name="node")
        if self.story.quota is not None:
            rng = random.Random(f"{self.story.seed} queue")
            self._queue = asyncio.create_task(QueueController(self._client, wall=wall, rng=rng).run(), name="queue")
        try:
            async with self.a.proxy, self.b.proxy, nullcontext() if self.sink is None else self.sink:
                await self._agent.wait_ready()
                self.a.start()
                try:
                    yield
                finally:
                    await self.forget_what_was_to_come()
                    for replica in (self.a, self.b):
                        self.injected.update({kind.name.lower(): number for kind, number in replica.proxy.met()})
                        with suppress(Unfinished):
                            await replica.kill()
                    if self.sink is not None:
                        self.injected.update({f"sink_{name}": number for name, number in self.sink.met.items()})
        finally:
            others = [task for task in (self._node, self._queue) if task is not None]
            for task in others:
                task.cancel()
            await asyncio.wait(others)
            # Formatted as usual, to show errors of logging.
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = True

    def _stored(self, change: Change) -> None:
        if change.record.resource == "nodes":
            self.circumstances.nodes.append((wall(), is_lost(None if change.new is None else change.new.document())))
        kind = KINDS.get(change.record.resource.partition(".")[0])
        if kind is not None:
            new = None if change.new is None else change.new.document()
            self.writes.append(Write(change.revision, kind, change.record.name, new, wall()))

    async def _moment(self) -> int:
        return self.writes[-1].revision + 1 if self.writes else 0

    async def _what_the_history_misses(self) -> str:
        try:
            self.snapshots.check(self.writes, self.circumstances)
        except Violation as missed:
            return str(missed)
        return ""

    async def mend(self) -> None:
        self._disk.full = False
        await super().mend()
        await self._taint()

    def _alive(self) -> None:
        super()._alive()
        for task in (self._node, self._queue):
            if task is not None and task.done():
                task.result()

    async def kill_server(self) -> None:
        if not self._server_is_down:
            self._server_is_down = True
            await self.server.stop(abort=True)

    async def serve(self) -> None:
        if self._server_is_down:
            self._server_is_down = False
            old, port = self.server, int(self.server.url.rpartition(":")[2])
            rng = random.Random(self._rng.getrandbits(64))
            self.server = ApiServer(wall=wall, rng=rng, storage=old.storage, authenticator=old.authenticator, port=port)
            self._starting = asyncio.create_task(self.server.start(), name="starting the API server")
        if self._starting is not None:
            # To the end, even if the fair end comes in between: half a server would answer, and collect no garbage.
            await asyncio.shield(self._starting)

    async def compact(self) -> None:
        self.server.storage.compact()

    async def step_clock(self, seconds: float) -> None:
        self.circumstances.clock_stepped = True
        self.a.offset += seconds

    async def fill_disk(self, seconds: float) -> None:
        self._disk.full = True
        self.injected["disk_full"] += 1

        async def space() -> None:
            self._disk.full = False

        self.spawn(seconds, space)
