"""Plays a story on an embedded cluster, by virtual time, lets it come to a fair end, and judges what is left."""

import asyncio
import gc
import io
import logging
import random
from collections import Counter
from collections.abc import Coroutine
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

import orjson
import yaml

from frameworkcontroller.api import names
from frameworkcontroller.app import Controller
from frameworkcontroller.config import Config
from frameworkcontroller.controller.executor import FRAMEWORKS
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.kube.errors import KubeError
from frameworkcontroller.kube.kubeconfig import Access
from frameworkcontroller.kube.resources import CONFIGMAPS, CRDS, PODS
from frameworkcontroller.local.apiserver.records import Change
from frameworkcontroller.local.apiserver.server import ApiServer
from frameworkcontroller.local.kubelet.agent import NodeAgent
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.logs import KlogFormatter, LineHandler
from tests.chaos.oracle import why_not_at_end
from tests.chaos.proxy import Fault, FaultProxy, Kind
from tests.chaos.record import KINDS, Circumstances, Replay, Write
from tests.chaos.story import Story
from tests.support.frameworks import Frameworks, Json
from tests.support.realcluster import CRD
from tests.support.virtual_clock import run, wall

NAMESPACE: Final = "default"
PATIENCE: Final = 20_000.0
"""Virtual seconds after which a Framework that is not where it must be never will be. A lost event takes an hour."""

CONFIG: Final = Config(
    framework_min_retry_delay_sec_for_transient_conflict_failed=5,
    framework_max_retry_delay_sec_for_transient_conflict_failed=20,
)


class Unfinished(AssertionError):
    """Something did not come to its end, or left something behind."""


@dataclass
class Outcome:
    """How a story ended. ``recovery``: virtual seconds from the end of all faults until all was where it must be."""

    story: Story
    recovery: float = 0.0
    writes: int = 0
    injected: Counter[str] = field(default_factory=Counter)
    error: AssertionError | None = None


def play(story: Story) -> Outcome:
    """Play it on a cluster and a loop of its own. What was found wrong is the outcome's ``error``."""
    gc.collect()
    files = _open_files()
    outcome = run(_play(story))
    gc.collect()
    if outcome.error is None and (now := _open_files()) > files:
        outcome.error = Unfinished(f"{now - files} files or sockets are left open")
    return outcome


def _open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def _play(story: Story) -> Outcome:
    outcome = Outcome(story)
    player = Player(story)
    try:
        async with player:
            await player.play()
            outcome.recovery = await player.finish()
        player.check_record()
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        if left:
            raise Unfinished(f"tasks are left: {left}")
    except AssertionError as error:
        outcome.error = error
    outcome.writes = len(player.writes)
    outcome.injected = player.injected
    return outcome


class _Disk(io.StringIO):
    """Where the log goes; it can be full."""

    def __init__(self) -> None:
        super().__init__()
        self.full = False
        self.refused = 0

    def write(self, text: str) -> int:
        if self.full:
            self.refused += 1
            raise OSError(28, "No space left on device")
        return len(text)


class Replica:
    """One controller behind a proxy of its own: it is killed and started anew there."""

    def __init__(self, player: "Player", name: str) -> None:
        self._player = player
        self.name = name
        self.proxy = FaultProxy(player.server.url)
        self.offset = 0.0
        self._lives = 0
        self._running: asyncio.Task[None] | None = None
        self._controller: Controller | None = None

    def start(self) -> None:
        """A new life, if it has none."""
        if self._running is None:
            self._lives += 1
            self._controller = Controller(
                CONFIG,
                _renewable(self.proxy.url),
                wall=lambda: wall() + self.offset,
                rng=random.Random(f"{self._player.story.seed} {self.name} {self._lives}"),
            )
            self._running = asyncio.create_task(self._controller.run(), name=f"controller {self.name}")

    async def kill(self) -> None:
        """As SIGKILL does: not a byte of what it does from now on gets anywhere."""
        if self._running is not None:
            running, self._running = self._running, None
            await self.proxy.refuse()
            running.cancel()
            await asyncio.wait([running])
            # What it ended with is nobody's business, but for what no controller may end with.
            if not running.cancelled() and (error := running.exception()) is not None:
                raise Unfinished(f"controller {self.name} ended with {error!r}")

    async def stop(self) -> None:
        """As SIGTERM does."""
        if self._running is not None and self._controller is not None:
            running, self._running = self._running, None
            self._controller.stop()
            await running

    @property
    def ended(self) -> BaseException | None:
        """What it ended with by itself."""
        if self._running is not None and self._running.done() and not self._running.cancelled():
            return self._running.exception() or Unfinished(f"controller {self.name} ended by itself")
        return None


@cache
def _crd() -> bytes:
    return orjson.dumps(yaml.safe_load(CRD.read_text()))


def _renewable(url: str) -> Connection:
    """A connection whose credentials are renewed when they are refused, as those of a kubeconfig are."""
    access = Access(server=url)

    async def renew() -> Access:
        return access

    return Connection(access, origin="chaos", renew=renew)


class Player:
    """The cluster, the controllers, and everybody who does anything to them."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.writes: list[Write] = []
        self.circumstances = Circumstances()
        self.injected: Counter[str] = Counter()
        self.server = ApiServer(wall=wall, rng=random.Random(story.seed))
        self._rng = random.Random(story.seed)
        self._stack = AsyncExitStack()
        self._later: set[asyncio.Task[None]] = set()
        self._disk = _Disk()
        self._server_is_down = False

    async def __aenter__(self) -> "Player":
        self._log()
        await self.server.start()
        self.server.storage.observe(self._stored)
        self._client = await self._stack.enter_async_context(KubeClient(Connection.to_address(self.server.url)))
        await self._client.create(CRDS, _crd())
        self._runtime = SimulatedRuntime(wall=wall)
        agent = NodeAgent(self._client, self._runtime, wall=wall, rng=self._rng)
        self._node = asyncio.create_task(agent.run(), name="node")
        await agent.wait_ready()
        self._frameworks = Frameworks(self._client, NAMESPACE)
        self._a, self._b = Replica(self, "A"), Replica(self, "B")
        for replica in (self._a, self._b):
            await self._stack.enter_async_context(replica.proxy)
        self._a.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        for task in list(self._later):
            task.cancel()
        if self._later:
            await asyncio.wait(self._later)
        try:
            for replica in (self._a, self._b):
                with suppress(Unfinished):
                    await replica.kill()
        finally:
            self._node.cancel()
            await asyncio.wait([self._node])
            await self._stack.aclose()
            await self.server.stop()
            logging.getLogger(names.__name__.partition(".")[0]).removeHandler(self._handler)

    def _log(self) -> None:
        # Formatted as ever, so that what cannot be logged shows.
        self._handler = LineHandler(self._disk, KlogFormatter())
        logger = logging.getLogger(names.__name__.partition(".")[0])
        logger.addHandler(self._handler)

    def _stored(self, change: Change) -> None:
        kind = KINDS.get(change.record.resource.partition(".")[0])
        if kind is not None:
            new = None if change.new is None else change.new.document()
            self.writes.append(Write(change.revision, kind, change.record.name, new, wall()))

    # --- the course of things ---------------------------------------------------------------------------------------

    async def play(self) -> None:
        """Take every step at its time."""
        began = asyncio.get_running_loop().time()
        for step in self.story.steps:
            await asyncio.sleep(max(0.0, began + step.at - asyncio.get_running_loop().time()))
            act = getattr(self, step.act)
            # A user who is refused, or not answered, gives up.
            with suppress(KubeError):
                await act(*step.args)
            self._alive()
        await asyncio.sleep(1)

    def _alive(self) -> None:
        for replica in (self._a, self._b):
            if (error := replica.ended) is not None:
                raise Unfinished(f"controller {replica.name} ended with {error!r}")
        if self._node.done():
            self._node.result()

    async def finish(self) -> float:
        """All faults stop: everything comes to its end, and goes. Returns how long the first took, in seconds."""
        clock = asyncio.get_running_loop().time
        for task in list(self._later):
            task.cancel()
        if self._later:
            await asyncio.wait(self._later)
        await self._serve()
        self._disk.full = False
        self._runtime.restore_node()
        await self._b.kill()
        await self._a.proxy.calm()
        self._a.start()
        began = clock()
        before = {name: body.get("status") for name, body in (await self._all()).items()}
        await self._until(lambda: self._who_is_not_at_end(before))
        recovery = clock() - began
        for name in await self._all():
            await self._frameworks.set(name, executionType="Stop")
        await self._until(lambda: self._who_is_not_at_end({}))
        await self._until(self._what_is_left)
        for name in await self._all():
            await self.delete(name, "Foreground")
        await self._until(self._what_is_left)
        await self._until(self._who_is_there)
        for replica in (self._a, self._b):
            self.injected.update({kind.name.lower(): count for kind, count in replica.proxy.injected.items()})
        await self._a.stop()
        return recovery

    async def _until(self, why_not: Any) -> None:
        """Wait until ``why_not()`` says nothing more."""
        clock = asyncio.get_running_loop().time
        end = clock() + PATIENCE
        while why := await why_not():
            self._alive()
            if clock() > end:
                raise Unfinished(f"after {PATIENCE:g} s without any fault: {why}\n{self._status_of_all()}")
            await asyncio.sleep(5)

    async def _all(self) -> dict[str, Json]:
        items = orjson.loads(await self._client.list(FRAMEWORKS, NAMESPACE))["items"]
        return {item["metadata"]["name"]: item for item in items}

    async def _who_is_not_at_end(self, before: dict[str, Json | None]) -> str:
        pods = {pod["metadata"]["uid"]: pod for pod in (await self._frameworks.pods()).values()}
        for name, body in (await self._all()).items():
            if "deletionTimestamp" in body["metadata"]:
                return f"{name} is being deleted"
            if why := why_not_at_end(body, pods, before.get(name)):
                return f"{name}: {why}"
        return ""

    async def _what_is_left(self) -> str:
        left = [
            f"{resource.plural}/{item['metadata']['name']}"
            for resource in (PODS, CONFIGMAPS)
            for item in orjson.loads(await self._client.list(resource, NAMESPACE))["items"]
            if names.FRAMEWORK_NAME in (item["metadata"].get("labels") or {})
        ]
        return f"left over: {left}" if left else ""

    async def _who_is_there(self) -> str:
        return ", ".join(await self._all())

    def _status_of_all(self) -> str:
        last = {write.name: write.body for write in self.writes if write.kind.value == "Framework"}
        return "\n".join(orjson.dumps(body).decode()[:3000] for body in last.values() if body is not None)

    def check_record(self) -> None:
        """Look at every write.

        Raises:
            Violation: something promised was not kept.
        """
        replay = Replay(self.circumstances, CONFIG.plan_limits())
        for write in self.writes:
            replay.take(write)

    def _spawn(self, seconds: float, then: Coroutine[Any, Any, None]) -> None:
        async def wait() -> None:
            try:
                await asyncio.sleep(seconds)
            except BaseException:
                then.close()
                raise
            await then

        task = asyncio.create_task(wait(), name="later")
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    # --- users ------------------------------------------------------------------------------------------------------

    async def create(self, name: str, roles: list[Json], spec: Json) -> None:
        await self._frameworks.create(name, *roles, **spec)

    async def _change_roles(self, name: str, change: Any) -> None:
        spec = (await self._frameworks.get(name))["spec"]
        await self._frameworks.set(name, taskRoles=change(spec["taskRoles"]))

    async def rescale(self, name: str, role_name: str, number: int) -> None:
        await self._change_roles(
            name,
            lambda roles: [item | {"taskNumber": number} if item["name"] == role_name else item for item in roles],
        )

    async def drop_role(self, name: str, role_name: str) -> None:
        await self._change_roles(name, lambda roles: [item for item in roles if item["name"] != role_name])

    async def add_role(self, name: str, added: Json) -> None:
        await self._change_roles(
            name, lambda roles: [*(item for item in roles if item["name"] != added["name"]), added]
        )

    async def set_completion(self, name: str, role_name: str, ends: Json) -> None:
        await self._change_roles(
            name,
            lambda roles: [
                item | {"frameworkAttemptCompletionPolicy": ends} if item["name"] == role_name else item
                for item in roles
            ],
        )

    async def execute(self, name: str, execution: str) -> None:
        spec = (await self._frameworks.get(name))["spec"]
        if (spec.get("executionType", "Start"), execution) in (
            ("Create", "Start"),
            ("Create", "Stop"),
            ("Start", "Stop"),
        ):
            await self._frameworks.set(name, executionType=execution)

    async def delete(self, name: str, propagation: str) -> None:
        body = await self._frameworks.get(name)
        uid = body["metadata"]["uid"]
        self.circumstances.deleted_by_others.add(uid)
        if propagation != "Foreground" and "deletionTimestamp" not in body["metadata"]:
            self.circumstances.abandoned.add(uid)
        await self._frameworks.delete(name, propagation)

    async def annotate(self, name: str) -> None:
        patch = [{"op": "add", "path": "/metadata/annotations", "value": {"seen": str(wall())}}]
        body, kind = orjson.dumps(patch), "application/json-patch+json"
        await self._client.patch(FRAMEWORKS, name, body, NAMESPACE, content_type=kind)

    # --- nodes, and others ------------------------------------------------------------------------------------------

    async def _pod(self, which: int, *, running: bool = False) -> Json | None:
        pods = await self._frameworks.pods()
        there = [name for name in sorted(pods) if not running or f"{NAMESPACE}/{name}" in self._runtime.running()]
        return pods[there[which % len(there)]] if there else None

    async def fail_pod(self, which: int, code: int) -> None:
        if (pod := await self._pod(which, running=True)) is not None:
            with suppress(KeyError):
                self._runtime.fail(f"{NAMESPACE}/{pod['metadata']['name']}", code)

    async def evict_pod(self, which: int) -> None:
        if (pod := await self._pod(which, running=True)) is not None:
            with suppress(KeyError):
                self._runtime.fail_pod(f"{NAMESPACE}/{pod['metadata']['name']}", "Evicted", "chaos")

    async def delete_pod(self, which: int) -> None:
        if (pod := await self._pod(which)) is not None:
            self.circumstances.deleted_by_others.add(pod["metadata"]["uid"])
            await self._frameworks.delete_pod(pod["metadata"]["name"])

    async def delete_configmap(self, name: str) -> None:
        body = orjson.loads(await self._client.get(CONFIGMAPS, names.configmap_name(name), NAMESPACE))
        self.circumstances.deleted_by_others.add(body["metadata"]["uid"])
        await self._client.delete(CONFIGMAPS, names.configmap_name(name), NAMESPACE)

    async def lose_node(self, seconds: float) -> None:
        self._runtime.lose_node()

        async def back() -> None:
            self._runtime.restore_node()

        self._spawn(seconds, back())

    # --- killers ----------------------------------------------------------------------------------------------------

    async def kill_controller(self, seconds: float) -> None:
        await self._a.kill()
        self._spawn(seconds, self._start_anew())

    async def kill_at_write(self, number: int, executed: bool, seconds: float) -> None:
        async def die() -> None:
            await self.kill_controller(seconds)

        def strike() -> None:
            self._spawn(0.0, die())

        self._a.proxy.kill_at(number, executed=executed, strike=strike)

    async def _start_anew(self) -> None:
        await self._a.proxy.accept()
        self._a.start()

    async def second_controller(self, seconds: float) -> None:
        self.circumstances.loose = True
        await self._b.proxy.accept()
        self._b.start()
        self._spawn(seconds, self._b.kill())

    async def restart_server(self, seconds: float) -> None:
        """The API server is killed, and started anew on the same storage."""
        if not self._server_is_down:
            self._server_is_down = True
            await self.server.stop(abort=True)
            self._spawn(seconds, self._serve())

    async def _serve(self) -> None:
        if self._server_is_down:
            self._server_is_down = False
            port = int(self.server.url.rpartition(":")[2])
            old, rng = self.server, random.Random(self._rng.getrandbits(64))
            self.server = ApiServer(wall=wall, rng=rng, storage=old.storage, callers=old.callers, port=port)
            await self.server.start()

    async def refuse_connections(self, seconds: float) -> None:
        await self._a.proxy.refuse()
        self._spawn(seconds, self._a.proxy.accept())

    async def compact(self) -> None:
        self.server.storage.compact()

    async def step_clock(self, seconds: float) -> None:
        self.circumstances.clock_stepped = True
        self._a.offset += seconds

    async def fill_disk(self, seconds: float) -> None:
        self._disk.full = True
        self.injected["disk_full"] += 1

        async def space() -> None:
            self._disk.full = False

        self._spawn(seconds, space())

    # --- faults -----------------------------------------------------------------------------------------------------

    async def fault(self, fault: Fault) -> None:
        if fault.kind is Kind.LATE:
            self.circumstances.loose = True
        self._a.proxy.arm(fault)


def failure_of(story: Story) -> str | None:
    """What kind of error the story ends in: its class and the first words that name no object."""
    error = play(story).error
    if error is None:
        return None
    words = str(error).partition("\n")[0].split()
    return " ".join([type(error).__name__, *(word for word in words[:6] if word.isalpha())])
