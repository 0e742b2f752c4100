"""Runtime "process": the containers of a Pod are processes of this machine.

docs/local-cluster.md lists the differences from real containers.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import orjson

from frameworkcontroller.api.names import GPU
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.errors import KubeError, NotFound
from frameworkcontroller.kube.resources import SERVICES
from frameworkcontroller.local.addresses import AddressPool
from frameworkcontroller.local.kubelet.container import Termination
from frameworkcontroller.local.kubelet.containerlog import read_log
from frameworkcontroller.local.kubelet.devices import DeviceAllocator, device_requests, needed
from frameworkcontroller.local.kubelet.downward import DownwardApi
from frameworkcontroller.local.kubelet.execstreams import ExecStreams
from frameworkcontroller.local.kubelet.images import LocalImage
from frameworkcontroller.local.kubelet.pod import ContainerKind, NodePod
from frameworkcontroller.local.kubelet.podaccess import ApiAccess
from frameworkcontroller.local.kubelet.podfiles import PodFiles, remove_tree
from frameworkcontroller.local.kubelet.podhosts import Names, decode_service
from frameworkcontroller.local.kubelet.podsources import ContainerConfigError, PodSources
from frameworkcontroller.local.kubelet.podstatus import HOST_IP
from frameworkcontroller.local.kubelet.process_spec import (
    Machine,
    PodSurroundings,
    container_manifest,
    hosts,
    process_spec,
    refusal,
    resolves_names,
    user_of_all,
)
from frameworkcontroller.local.kubelet.runtime import RuntimeEvents
from frameworkcontroller.local.kubelet.supervisor import SPAWNER, Event, Exited, ProcessSpec, Started, Supervisor
from frameworkcontroller.local.kubelet.termination import (
    START_ERROR,
    START_ERROR_CODE,
    exit_code,
    start_failure,
    termination_message,
)
from frameworkcontroller.local.kubelet.volumes import (
    has_projected_configmaps,
    make_volumes,
    renew_configmaps,
    renew_tokens,
    renewal_sec,
)

LOG_LIMIT_BYTES: Final = 10 << 20
"""Maximum size of a container's log file; the older half is dropped."""

_LAST_LINES_SECONDS: Final = 1.0
_RENEW_AGAIN_SECONDS: Final = 10.0
_RENEW_DATA_SECONDS: Final = 5.0
"""Interval of looks at ConfigMaps in projected volumes. Kubelets take about a minute."""

Printed = Callable[[NodePod, str, bytes], None]
"""Called with Pod, container and each line that it prints, without the newline."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Pod:
    record: NodePod
    inside: PodSurroundings
    containers: dict[str, _Container] = field(default_factory=dict)
    preparing: asyncio.Task[None] | None = None
    renewing: asyncio.Task[None] | None = None
    updating: asyncio.Task[None] | None = None
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    reporting: set[asyncio.Task[None]] = field(default_factory=set)


@dataclass(slots=True)
class _Container:
    """One instance of a container; ``process_id`` is None until its process is requested."""

    name: str
    instance: int
    ended: asyncio.Future[None]
    starting: asyncio.Task[None] | None = None
    process_id: str | None = None
    request: ProcessSpec | None = None
    started: float | None = None
    stop_due: float | None = None
    killer: asyncio.TimerHandle | None = None
    terminating: asyncio.Task[None] | None = None
    commands: dict[str, ExecStreams] = field(default_factory=dict)
    """By process id: the commands that are executed in it."""
    status: int | None = None
    """The exit status of its own processes, which have ended: it takes no more commands."""


class ProcessRuntime:
    """Implements `Runtime`, `PodLogs` and `PodCommands`.

    ``client`` reads the ConfigMaps and Secrets that Pods refer to, ``access`` is the Pods' access to the API server.
    ``directory`` is exclusive to the runtime; ``path`` is the PATH of the processes, by default this one's.
    ``mounts=False`` disables mount namespaces. ``close_grace``: seconds for the processes to end by themselves on
    close. ``printed`` gets the output of containers. ``gpus``: by node, the GPUs to hand out; containers of other nodes
    see all of the machine.
    """

    name = "process"
    needs_manifest = True
    lost_reason = "The Pod's processes ended when the local cluster that ran them did."

    def __init__(
        self,
        client: KubeClient,
        access: ApiAccess,
        directory: Path,
        *,
        images: Mapping[str, LocalImage] | None = None,
        path: str | None = None,
        mounts: bool = True,
        close_grace: float = 2.0,
        log_limit: int = LOG_LIMIT_BYTES,
        printed: Printed | None = None,
        volumes: Mapping[str, Path] | None = None,
        gpus: Mapping[str, Sequence[object]] | None = None,
        wall: Callable[[], float] = time.time,
        rng: random.Random | None = None,
    ) -> None:
        self._client = client
        search = path or os.environ.get("PATH") or os.defpath
        self._machine = Machine(access, images or {}, search, log_limit, volumes or {})
        self._directory = directory
        self._close_grace = close_grace
        self._printed = printed
        self._wall = wall
        self._rng = rng
        self._files = directory / "pods"
        self._claims = self._files / "claims"
        self._supervisor = Supervisor(directory / "spawner", self._files, mounts=mounts)
        self._reviving = asyncio.Lock()
        self._addresses: AddressPool | None = None
        self._gpus = {node: DeviceAllocator(devices) for node, devices in (gpus or {}).items()}
        self._events: RuntimeEvents | None = None
        self.names = Names()
        self._pods: dict[str, _Pod] = {}
        self._removing: set[asyncio.Task[None]] = set()
        self._closing = False

    # --- Runtime ------------------------------------------------------------------------------------------------------

    def attach(self, events: RuntimeEvents) -> None:
        self._events = events

    async def open(self) -> None:
        """Start the spawner. Raises SupervisorError or OSError."""
        self._directory.mkdir(parents=True, exist_ok=True)
        if os.geteuid() == 0:
            # A Pod's processes may run as another user, who must be able to enter it.
            self._directory.chmod(self._directory.stat().st_mode | 0o011)
        await self._supervisor.open()
        await asyncio.to_thread(remove_tree, self._files)
        self._files.mkdir()
        # Contains claims, Secrets and tokens. Other users may enter it only where Pods may run as other users.
        self._files.chmod(0o711 if os.geteuid() == 0 else 0o700)
        self._addresses = AddressPool(self._rng)

    async def close(self) -> None:
        """Stop all processes, kill those that do not end in time, and remove all files."""
        self._closing = True
        live = [item for pod in self._pods.values() for item in pod.containers.values() if not item.ended.done()]
        for item in live:
            if item.process_id is not None:
                self._supervisor.terminate(item.process_id)
        running = [item.ended for item in live if item.process_id is not None]
        if running:
            await asyncio.wait(running, timeout=self._close_grace)
        await self._supervisor.close()
        for pod in list(self._pods.values()):
            await self.release(pod.record)
        await self.names.published()
        await asyncio.gather(*self._removing, return_exceptions=True)
        for directory in (self._files, self._directory / "spawner"):
            await asyncio.to_thread(remove_tree, directory)
        if self._addresses is not None:
            self._addresses.close()

    def adopt(self, pod: NodePod) -> bool:  # noqa: ARG002 - the protocol's
        """Always False: no process outlives the runtime that started it."""
        return False

    def prepare(self, pod: NodePod) -> None:
        state = self._pods.get(pod.uid)
        if state is None:
            address = HOST_IP if pod.host_network else self._pool.allocate(pod.uid)
            manifest = orjson.loads(pod.manifest)
            inside = PodSurroundings(
                manifest,
                PodFiles(self._files, pod.uid),
                DownwardApi(manifest, address),
                PodSources(self._client, pod.namespace),
            )
            state = self._pods[pod.uid] = _Pod(pod, inside)
        if (gpus := self._gpus.get(pod.node_name)) is not None:
            requests = device_requests(state.inside.manifest)
            state.inside.gpus = gpus.allocate(pod.uid, requests)
            if state.inside.gpus is None:
                # As after the forced deletion of a Pod that still runs.
                lacking = f"{needed(requests)} of {GPU} are needed, {gpus.free} of {gpus.count} are free"
                self._kubelet.unprepared(pod.uid, "InsufficientDevices", lacking)
                return
        state.preparing = self._run(state, self._prepare(state))

    def start(self, pod: NodePod, container: str, instance: int) -> None:
        state = self._pods[pod.uid]
        item = _Container(container, instance, asyncio.get_running_loop().create_future())
        state.containers[container] = item
        item.starting = self._run(state, self._start(state, item))

    def stop(self, pod: NodePod, container: str, grace: float) -> None:
        state = self._pods.get(pod.uid)
        item = None if state is None else state.containers.get(container)
        if state is None or item is None or item.ended.done():
            return
        if item.process_id is None:
            if item.starting is not None:
                item.starting.cancel()
            self._end(state, item, Termination(137, "Error", self._wall(), message="ended before it was started"))
            return
        loop = asyncio.get_running_loop()
        due = loop.time() + grace
        if item.stop_due is not None and due >= item.stop_due:
            return
        item.stop_due = due
        if item.killer is not None:
            item.killer.cancel()
        if grace <= 0:
            self._supervisor.kill(item.process_id)
            return
        item.killer = loop.call_at(due, self._supervisor.kill, item.process_id)
        if item.terminating is None:
            item.terminating = self._run(state, self._terminate(state, item, item.process_id))

    def ended(self, pod: NodePod) -> None:
        if (gpus := self._gpus.get(pod.node_name)) is not None:
            gpus.release(pod.uid)

    async def release(self, pod: NodePod) -> None:
        state = self._pods.get(pod.uid)
        if state is None:
            return
        for task in state.tasks:
            task.cancel()
        await asyncio.gather(*state.tasks, return_exceptions=True)
        for task in await _unfinished(state.reporting):
            task.cancel()
        self.names.remove_pod(pod.uid)
        await asyncio.to_thread(state.inside.files.remove)
        self._pool.release(pod.uid)
        self.ended(pod)
        self._pods.pop(pod.uid, None)

    def remove_claim(self, uid: str) -> None:
        removing = asyncio.create_task(asyncio.to_thread(remove_tree, self._claims / uid))
        self._removing.add(removing)
        removing.add_done_callback(self._removing.discard)

    async def all_printed(self) -> None:
        """Wait until ``printed`` has got all output of Pods without running containers."""
        over = [pod for pod in self._pods.values() if all(item.ended.done() for item in pod.containers.values())]
        await _unfinished([task for pod in over for task in pod.reporting])

    @property
    def mounts_work(self) -> bool:
        """Whether volumes are mounted at their mountPath; otherwise paths are rewritten."""
        return self._supervisor.mounts_work

    @property
    def limitation(self) -> str:
        """Features that do not work on this machine, for its user; empty if all work."""
        if self._supervisor.mounts_work:
            return ""
        return (
            f"no namespaces ({self._supervisor.why_no_mounts}): the names of Pods and Services do not resolve, and "
            "volumes are not mounted; paths in commands are rewritten instead"
        )

    @property
    def spawner_pid(self) -> int:
        """The process ID of the spawner, the ancestor of all containers; 0 while there is none."""
        return self._supervisor.pid

    # --- logs ---------------------------------------------------------------------------------------------------------

    async def read(
        self,
        namespace: str,
        name: str,
        container: str,
        *,
        follow: bool,
        tail_lines: int | None,
        since_seconds: float | None,
        limit_bytes: int | None,
        timestamps: bool,
        previous: bool,
    ) -> AsyncIterator[bytes]:
        """Read a log as `PodLogs` does. Raises LookupError."""
        pod = self._find(namespace, name)
        if pod is None:
            raise LookupError(f'pod "{name}" has no containers here')
        if all(spec.name != container for spec in pod.record.containers):
            raise LookupError(f"container {container} is not valid for pod {name}")
        item = pod.containers.get(container)
        if item is None:
            reason = (
                "PodInitializing" if pod.record.containers[0].kind is not ContainerKind.MAIN else "ContainerCreating"
            )
            raise LookupError(f'container "{container}" in pod "{name}" is waiting to start: {reason}')
        if previous and item.instance == 0:
            raise LookupError(f'previous terminated container "{container}" in pod "{name}" not found')
        chunks = read_log(
            pod.inside.files.log(container, item.instance - 1 if previous else item.instance),
            item.ended.done if not previous else lambda: True,
            follow=follow,
            tail_lines=tail_lines,
            since=None if since_seconds is None else self._wall() - since_seconds,
            limit_bytes=limit_bytes,
            timestamps=timestamps,
        )
        async with aclosing(chunks):
            async for chunk in chunks:
                yield chunk

    # --- commands -----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def execute(
        self, namespace: str, name: str, container: str, command: Sequence[str], *, stdin: bool, tty: bool
    ) -> AsyncIterator[ExecStreams]:
        """Execute a command as `PodCommands` does. Raises LookupError or OSError."""
        pod = self._find(namespace, name)
        item = None if pod is None else pod.containers.get(container)
        if pod is None or item is None or item.request is None or item.started is None or item.status is not None:
            raise LookupError(f'container "{container}" in pod "{name}" is not running')
        streams, files = ExecStreams(pod.inside.files.directory, stdin=stdin, tty=tty), pod.inside.files
        request = item.request._replace(
            argv=list(command),
            env={**({"TERM": "xterm"} if tty else {}), **item.request.env},
            log=files.hook_log(item.name),
            mounts=(),
            hostname="",
            join=item.process_id,
            streams=tuple(streams.paths),
            tty=tty,
        )

        def heard(event: Event) -> None:
            if isinstance(event, Started):
                streams.started()
                return
            if isinstance(event, Exited):
                streams.end(exit_code(event.status))
            else:
                streams.end(start_failure(event, request.argv, request.directory))
            del item.commands[process_id]
            if item.status is not None and not item.commands:
                self._finish(pod, item, item.status)

        process_id = self._supervisor.start(request, heard)
        item.commands[process_id] = streams
        try:
            yield streams
        finally:
            self._supervisor.kill(process_id)
            streams.close()

    # --- inside -------------------------------------------------------------------------------------------------------

    def _find(self, namespace: str, name: str) -> _Pod | None:
        """The newest Pod of a name: on a lost node, another one may still run."""
        key = f"{namespace}/{name}"
        return next((pod for pod in reversed(self._pods.values()) if pod.record.key == key), None)

    @property
    def _kubelet(self) -> RuntimeEvents:
        if self._events is None:
            raise RuntimeError("the runtime is attached to no kubelet")
        return self._events

    @property
    def _pool(self) -> AddressPool:
        if self._addresses is None:
            raise RuntimeError("the runtime is not open")
        return self._addresses

    def _run(self, state: _Pod, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        state.tasks.add(task)
        task.add_done_callback(state.tasks.discard)
        return task

    async def _prepare(self, state: _Pod) -> None:
        uid = state.record.uid
        if (refused := refusal(self._machine, state.inside.manifest)) is not None:
            never_ran = Termination(START_ERROR_CODE, START_ERROR, self._wall(), message=refused.message)
            self._kubelet.fail_pod(uid, refused.reason, refused.message, (refused.container, never_ran))
            return
        inside, access, namespace = state.inside, self._machine.access, state.record.namespace
        address = inside.downward.address
        try:
            await self._learn_service(state.record)
            inside.files.make(partial(self._hosts, state.record, inside))
            inside.volumes = await make_volumes(
                inside.manifest,
                inside.files.volumes,
                self._claims,
                inside.downward,
                inside.sources,
                access.service_account(namespace),
                user_of_all(inside.manifest),
                self._machine.volumes,
            )
        except (ContainerConfigError, KubeError) as error:
            self._kubelet.unprepared(uid, "FailedMount", str(error))
        except OSError as error:
            self._kubelet.unprepared(uid, "FailedCreatePodSandBox", str(error))
        else:
            # Another Pod may look it up as soon as it is reported.
            await self.names.published()
            self._kubelet.prepared(uid, address)
            if (seconds := renewal_sec(inside.manifest)) is not None:
                state.renewing = self._run(state, self._renew_tokens(state, seconds))
            if has_projected_configmaps(inside.manifest):
                state.updating = self._run(state, self._renew_configmaps(state))

    async def _renew_tokens(self, state: _Pod, seconds: float) -> None:
        inside = state.inside
        delay = seconds
        while True:
            await asyncio.sleep(delay)
            try:
                await renew_tokens(inside.manifest, inside.volumes, inside.sources, user_of_all(inside.manifest))
                delay = seconds
            except (ContainerConfigError, KubeError, OSError) as error:
                log.warning("[%s]: Cannot renew the tokens: %s", state.record.key, error)
                delay = _RENEW_AGAIN_SECONDS

    async def _renew_configmaps(self, state: _Pod) -> None:
        inside = state.inside
        while True:
            await asyncio.sleep(_RENEW_DATA_SECONDS)
            try:
                await renew_configmaps(inside.manifest, inside.volumes, inside.sources)
            except (ContainerConfigError, KubeError, OSError) as error:
                log.debug("[%s]: Cannot update the data of ConfigMaps: %s", state.record.key, error)

    async def _learn_service(self, pod: NodePod) -> None:
        """Look for the Service of the Pod's subdomain, unless the informer has shown it already."""
        if pod.subdomain and not self.names.has_service(pod.namespace, pod.subdomain):
            with suppress(NotFound):
                body = await self._client.get(SERVICES, pod.subdomain, pod.namespace)
                self.names.set_service(decode_service(orjson.loads(body)))

    def _hosts(self, pod: NodePod, inside: PodSurroundings) -> str:
        head = hosts(inside.manifest, inside.downward.address)
        if not self._supervisor.mounts_work:
            return head
        path = inside.files.hosts if resolves_names(inside.manifest) else None
        return self.names.add_pod(pod, inside.downward.address, path, head)

    async def _start(self, state: _Pod, item: _Container) -> None:
        uid = state.record.uid
        try:
            await self._revive()
            item.request = await process_spec(
                self._machine, state.inside, item.name, item.instance, mounts_work=self._supervisor.mounts_work
            )
        except (ContainerConfigError, KubeError) as error:
            item.ended.set_result(None)
            self._kubelet.refused(uid, item.name, "CreateContainerConfigError", str(error))
        except Exception as error:
            log.exception("cannot start container %s of Pod %s", item.name, state.record.key)
            item.ended.set_result(None)
            self._kubelet.refused(uid, item.name, "CreateContainerError", str(error) or repr(error))
        else:
            if not self._closing:
                item.process_id = self._supervisor.start(item.request, partial(self._on_event, state, item))

    async def _revive(self) -> None:
        """Restart the spawner if it has ended; its containers were then reported as ended."""
        async with self._reviving:
            if not self._supervisor.alive and not self._closing:
                await self._supervisor.close()
                await self._supervisor.open()

    def _on_event(self, state: _Pod, item: _Container, event: Event) -> None:
        if isinstance(event, Started):
            item.started = self._wall()
            if self._printed is not None:
                state.reporting.add(asyncio.create_task(self._report_lines(state, item, self._printed)))
            self._kubelet.started(state.record.uid, item.name)
        elif isinstance(event, Exited):
            item.status = event.status
            for process_id in item.commands:
                self._supervisor.kill(process_id)
            if not item.commands:
                self._finish(state, item, event.status)
        elif event.what == SPAWNER:
            item.ended.set_result(None)
            self._kubelet.refused(state.record.uid, item.name, "CreateContainerError", event.message)
        else:
            request = item.request
            message = start_failure(event, request.argv if request else [], request.directory if request else "/")
            self._end(state, item, Termination(START_ERROR_CODE, START_ERROR, self._wall(), message=message))

    def _finish(self, state: _Pod, item: _Container, status: int) -> None:
        """Report the end of a container. All of its processes and commands have ended."""
        code = exit_code(status)
        manifest, files = container_manifest(state.inside.manifest, item.name), state.inside.files
        message = termination_message(
            files.termination(item.name, item.instance),
            files.log(item.name, item.instance),
            fallback=code != 0 and manifest.get("terminationMessagePolicy") == "FallbackToLogsOnError",
        )
        reason = "Completed" if code == 0 else "Error"
        self._end(state, item, Termination(code, reason, self._wall(), item.started, message))

    async def _report_lines(self, state: _Pod, item: _Container, printed: Printed) -> None:
        rest = b""
        async for chunk in read_log(state.inside.files.log(item.name, item.instance), item.ended.done, follow=True):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                printed(state.record, item.name, line)

    def _end(self, state: _Pod, item: _Container, termination: Termination) -> None:
        if item.ended.done():
            return
        item.ended.set_result(None)
        if item.killer is not None:
            item.killer.cancel()
        if item.terminating is not None:
            item.terminating.cancel()
        if not self._closing:
            self._kubelet.exited(state.record.uid, item.name, termination)

    async def _terminate(self, state: _Pod, item: _Container, process_id: str) -> None:
        """Run the container's preStop hook, then send SIGTERM. The container's end cancels a slow hook."""
        manifest = container_manifest(state.inside.manifest, item.name)
        hook = (manifest.get("lifecycle") or {}).get("preStop") or {}
        if command := (hook.get("exec") or {}).get("command"):
            await self._hook(state, item, process_id, command)
        elif pause := (hook.get("sleep") or {}).get("seconds"):
            await asyncio.sleep(pause)
        self._supervisor.terminate(process_id)

    async def _hook(self, state: _Pod, item: _Container, process_id: str, command: list[str]) -> None:
        if item.request is None:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def heard(event: Event) -> None:
            if not isinstance(event, Started) and not done.done():
                done.set_result(None)

        request = item.request._replace(
            argv=list(command), log=state.inside.files.hook_log(item.name), mounts=(), hostname="", join=process_id
        )
        name = self._supervisor.start(request, heard)
        try:
            await done
        finally:
            self._supervisor.kill(name)


async def _unfinished(reporting: Collection[asyncio.Task[None]]) -> Collection[asyncio.Task[None]]:
    """Wait briefly for the tasks that report last lines; return the unfinished ones."""
    return (await asyncio.wait(reporting, timeout=_LAST_LINES_SECONDS))[1] if reporting else ()
