"""Plays stories on a real control plane: the controller is a process and killed as one, and so is kube-apiserver.

Several stories are played at once, each in a namespace of its own, behind a proxy of its own. Their record is etcd's.
"""

import asyncio
import ssl
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Final

import orjson
import yaml

from frameworkcontroller.api import names
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.connection import connect
from frameworkcontroller.kube.resources import NAMESPACES
from frameworkcontroller.local.kubelet.agent import NodeAgent
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from tests.chaos import etcd
from tests.chaos.player import Outcome, Player, Unfinished, history_of
from tests.chaos.proxy import FaultProxy
from tests.chaos.record import Write
from tests.chaos.story import Story
from tests.support.eventually import eventually
from tests.support.historysink import ArchiveStandIn
from tests.support.realcluster import ControlPlane

LENGTH: Final = 20.0
"""Seconds in which a story takes its steps here."""

_READY: Final = (
    "/readyz",
    "/api/v1/pods",
    "/api/v1/configmaps",
    f"/apis/{names.API_VERSION}/{names.PLURAL}",
)
_START_SEC: Final = 300.0
_STOP_SEC: Final = 300.0


async def play_all(stories: Sequence[Story], plane: ControlPlane, folder: Path) -> list[Outcome]:
    """Play them at once on ``plane``, which was started with `etcd.KEEPING_THE_RECORD`; ``folder`` gets the logs."""
    outcomes = [Outcome(story) for story in stories]
    async with AsyncExitStack() as stack:
        server = Server(plane, await asyncio.to_thread(etcd.now, plane.etcd_url))
        client = await stack.enter_async_context(
            KubeClient(await connect(kubeconfig=str(plane.kubeconfig), environ={}))
        )
        runtime = await stack.enter_async_context(_node(client))
        players = [
            await stack.enter_async_context(_at_work(RealPlayer(story, server, client, runtime, folder)))
            for story in stories
        ]
        await asyncio.gather(*(player.a.wait_ready() for player in players))
        await _each(players, outcomes, "play")
        await server.serve()
        await _each(players, outcomes, "mend")
        await _each(players, outcomes, "finish")
    await server.read_record()
    for player, outcome in zip(players, outcomes, strict=True):
        writes = server.record.get(player.namespace, [])
        outcome.writes, outcome.injected = len(writes), player.injected
        player.snapshots.incomplete = player.injected["disk_full"] > 0
        for log in (*player.a.logs(), *player.b.logs()):
            player.snapshots.take(log)
        with _noting(outcome):
            player.check_record(writes)
    return outcomes


async def _each(players: Sequence["RealPlayer"], outcomes: Sequence[Outcome], part: str) -> None:
    async def one(player: RealPlayer, outcome: Outcome) -> None:
        if outcome.error is None:
            with _noting(outcome):
                outcome.recovery = await getattr(player, part)() or 0.0

    await asyncio.gather(*map(one, players, outcomes))


class _noting(suppress):  # noqa: N801 - a context manager, named as those are
    """Takes an AssertionError for the outcome's."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(AssertionError)
        self._outcome = outcome

    def __exit__(self, kind: object, error: object, trace: object) -> bool:
        if isinstance(error, AssertionError) and self._outcome.error is None:
            self._outcome.error = error
        return super().__exit__(kind, error, trace)  # type: ignore[arg-type]


@asynccontextmanager
async def _node(client: KubeClient) -> AsyncIterator[SimulatedRuntime]:
    runtime = SimulatedRuntime()
    agent = NodeAgent(client, runtime)
    running = asyncio.create_task(agent.run(), name="node")
    try:
        await agent.wait_ready()
        yield runtime
    finally:
        running.cancel()
        await asyncio.wait([running])


@asynccontextmanager
async def _at_work(player: "RealPlayer") -> AsyncIterator["RealPlayer"]:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": player.namespace}}
    await player.client.create(NAMESPACES, orjson.dumps(namespace))
    async with player.a.proxy, player.b.proxy, nullcontext() if player.sink is None else player.sink:
        player.a.start()
        try:
            yield player
        finally:
            await player.forget_what_was_to_come()
            for replica in (player.a, player.b):
                player.injected.update({kind.name.lower(): number for kind, number in replica.proxy.met()})
                with suppress(Unfinished):
                    await replica.kill()
            if player.sink is not None:
                player.injected.update({f"sink_{name}": number for name, number in player.sink.met.items()})


class Server:
    """The control plane's kube-apiserver, which all stories share, and its etcd."""

    def __init__(self, plane: ControlPlane, revision: int) -> None:
        """``revision``: of the first write that is of interest."""
        self.plane = plane
        self.record: dict[str, list[Write]] = {}
        """All writes so far as they were read, by namespace."""
        self._next = revision
        self._reading = asyncio.Lock()
        self._down = False

    async def read_record(self) -> None:
        """Read the lines since the last call."""
        async with self._reading:
            found, last = await asyncio.to_thread(etcd.read_record, self.plane.etcd_url, self._next)
            self._next = last + 1
            for namespace, writes in found.items():
                self.record.setdefault(namespace, []).extend(writes)

    async def compact(self) -> None:
        """Have etcd forget its history; it is read before."""
        await self.read_record()
        await asyncio.to_thread(etcd.compact, self.plane.etcd_url, self._next - 1)

    def kill(self) -> None:
        """As `kill -9` does."""
        if not self._down:
            self._down = True
            self.plane.kill("kube-apiserver")

    async def serve(self) -> None:
        """Start it again, on the same etcd, and wait until it serves."""
        if self._down:
            self._down = False
            self.plane.start_again("kube-apiserver")

        async def ready() -> None:
            try:
                # It says that it is ready before its caches are.
                for path in _READY:
                    await asyncio.to_thread(self.plane.request, "GET", path)
            except OSError as error:
                raise AssertionError(f"kube-apiserver is not ready: {error}\n{self.plane.logs()}") from error

        await eventually(ready, within=60, every=0.2)


class ControllerProcess:
    """`frameworkcontroller`, behind a proxy, about one namespace."""

    def __init__(
        self, name: str, namespace: str, plane: ControlPlane, folder: Path, story: Story, sink: ArchiveStandIn | None
    ) -> None:
        self.name = name
        self._namespace = namespace
        self._story = story
        self._sink = sink
        self.proxy = FaultProxy(plane.url, tls=ssl.create_default_context(cafile=str(plane.ca_file)))
        self.disk_is_full = False
        self._lives = 0
        self._token = plane.token
        self._folder = folder
        self._process: asyncio.subprocess.Process | None = None
        self._starting: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._process is None and self._starting is None:
            self._starting = asyncio.create_task(self._start(), name=f"starting {self.name}")

    async def _start(self) -> None:
        try:
            kubeconfig, config = self._folder / f"{self.name}.kubeconfig", self._folder / f"{self.name}.yaml"
            user, cluster = {"token": self._token}, {"server": self.proxy.url}
            context = {"cluster": "c", "user": "u"}
            kubeconfig.write_text(
                yaml.safe_dump(
                    {
                        "clusters": [{"name": "c", "cluster": cluster}],
                        "users": [{"name": "u", "user": user}],
                        "contexts": [{"name": "c", "context": context}],
                        "current-context": "c",
                    }
                )
            )
            settings: dict[str, object] = {
                "kubeConfigFilePath": str(kubeconfig),
                "namespace": self._namespace,
                "webAddress": "0",
                "frameworkMinRetryDelaySecForTransientConflictFailed": 1,
                "frameworkMaxRetryDelaySecForTransientConflictFailed": 3,
                "frameworkCompletedRetainSec": self._story.retain_sec,
            }
            if self._sink is not None:
                settings["history"] = history_of(self._story, self._sink.records_url).model_dump(
                    mode="json", by_alias=True, include={"sink", "url", "on_unavailable"}
                )
            config.write_text(yaml.safe_dump(settings))
            self._lives += 1
            log = Path("/dev/full") if self.disk_is_full else self._log
            with log.open("ab") as stderr:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "frameworkcontroller", "--config", str(config),
                    stdin=asyncio.subprocess.DEVNULL, stdout=stderr, stderr=stderr,
                )  # fmt: skip
        finally:
            self._starting = None

    async def kill(self) -> None:
        if self._starting is not None:
            await self._starting
        if self._process is not None:
            process, self._process = self._process, None
            why = self._why(process)
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            await self.proxy.refuse()
            if why:
                raise Unfinished(why)

    async def stop(self) -> None:
        if self._starting is not None:
            await self._starting
        if self._process is not None:
            await self.wait_ready()
            process, self._process = self._process, None
            process.terminate()
            try:
                async with asyncio.timeout(_STOP_SEC):
                    code = await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
                raise Unfinished(f"{self.name} did not end within {_STOP_SEC:g} s of SIGTERM") from None
            if code != 0:
                raise Unfinished(f"{self.name} ended with {code} upon SIGTERM: {self._tail()}")

    async def wait_ready(self) -> None:
        """Wait until it is at work. Raises AssertionError."""

        async def ready() -> None:
            said = self._log.read_text(errors="replace") if self._log.exists() else ""
            assert "] Ready: " in said, self.why_ended() or "it is not ready"

        await eventually(ready, within=_START_SEC)

    def logs(self) -> list[str]:
        """The output of each of its processes."""
        files = (self._folder / f"{self.name}-{life}.log" for life in range(1, self._lives + 1))
        return [file.read_text(errors="replace") for file in files if file.exists()]

    def why_ended(self) -> str:
        return "" if self._process is None else self._why(self._process)

    def _why(self, process: asyncio.subprocess.Process) -> str:
        return "" if process.returncode is None else f"{self.name} ended with {process.returncode}: {self._tail()}"

    def _tail(self) -> str:
        return self._log.read_text(errors="replace")[-2000:] if self._log.exists() else ""

    @property
    def _log(self) -> Path:
        return self._folder / f"{self.name}-{self._lives}.log"


class RealPlayer(Player):
    """A story in a namespace of a real control plane."""

    a: ControllerProcess
    b: ControllerProcess
    mends_watches = True
    # More than objectLocalCacheCreationTimeoutSec, the wait for a Pod that loses its label before it is seen.
    patience = 600.0
    glance = 0.5

    def __init__(
        self, story: Story, server: Server, client: KubeClient, runtime: SimulatedRuntime, folder: Path
    ) -> None:
        self.namespace = f"chaos{story.seed}-{time.time_ns() // 1000 % 10**9}"
        super().__init__(story, client, self.namespace, runtime, time.time)
        # etcd does not record the time of a write.
        self.circumstances.clock_stepped = True
        # Real time: the API server is asked faster than the watch tells.
        self.circumstances.stopped_unseen = True
        self.client = client
        self.a, self.b = (
            ControllerProcess(name, self.namespace, server.plane, folder, story, self.sink)
            for name in (self.namespace, f"{self.namespace}-b")
        )
        self._server = server

    async def _moment(self) -> int:
        return await asyncio.to_thread(etcd.now, self._server.plane.etcd_url)

    async def kill_server(self) -> None:
        self._server.kill()

    async def serve(self) -> None:
        await self._server.serve()

    async def compact(self) -> None:
        await self._server.compact()

    async def mend(self) -> None:
        if self.a.disk_is_full:
            self.a.disk_is_full = False
            await self.a.kill()
        await super().mend()

    async def fill_disk(self, seconds: float) -> None:
        """A controller whose log has no room is one that is started on such a disk."""
        self.a.disk_is_full = True
        self.injected["disk_full"] += 1
        await self.kill_controller(0.0)
