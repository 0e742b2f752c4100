"""``frameworkcontroller local up`` and ``frameworkcontroller local run``: a cluster in this process."""

from __future__ import annotations

import argparse
import asyncio
import errno
import os
import shlex
import sys
import threading
import time
from collections.abc import AsyncIterator, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import yaml
from rich.text import Text

from frameworkcontroller.api import names
from frameworkcontroller.commands import program
from frameworkcontroller.commands.output import LinePrefixes, console
from frameworkcontroller.commands.program import CommandError, UsageError
from frameworkcontroller.commands.progress import (
    LineProgress,
    LiveProgress,
    Progress,
    cannot_start,
    ending,
    first_diagnosis,
    keep_diagnosing,
    progress_on,
)
from frameworkcontroller.config.bindaddress import BindAddress
from frameworkcontroller.config.config import (
    Config,
    ConfigurationError,
    Kueue,
    KueueMode,
    ProgressReports,
    load_config,
    shipped_config,
)
from frameworkcontroller.config.historyconfig import History, HistorySinkKind
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.kubeconfig import EXTENSION
from frameworkcontroller.local.apiserver.object_records import Change, ObjectRecord
from frameworkcontroller.local.cluster import ClusterError, LocalCluster
from frameworkcontroller.local.kubelet.pod import NodePod
from frameworkcontroller.local.kubelet.process import Printed
from frameworkcontroller.local.kubelet.volumes import parse_map
from frameworkcontroller.local.manifest_files import (
    DEFAULT_NAMESPACE,
    Manifest,
    ManifestError,
    create_all,
    read_manifests,
)
from frameworkcontroller.local.nvidiasmi import GpusUnknownError, find_gpus
from frameworkcontroller.local.queues.setup import CLUSTER_QUEUE, LOCAL_QUEUE, PRIORITIES
from frameworkcontroller.local.resource_lists import AUTO, parse_option, parse_resources
from frameworkcontroller.local.scratch import scratch_directory
from frameworkcontroller.logs import logging_to_file
from frameworkcontroller.manager.app import Controller
from frameworkcontroller.manager.web import WebError, WebServer
from frameworkcontroller.views.frameworkfollower import FrameworkFollower

if TYPE_CHECKING:
    from frameworkcontroller.dashboard.live import LiveFrameworks

T = TypeVar("T")

_HINT_AFTER_SEC: Final = 3.0
_SHOW_CHANGES_SEC: Final = 0.5
_LARGE_BYTES: Final = 65536
"""A large Framework takes long to read: only its last change of this time is shown."""

_UNWATCHED_SEC: Final = 3600.0
"""The default of ``local run --timeout`` without a terminal."""

_PORT_ERRORS: Final = frozenset({errno.EADDRINUSE, errno.EACCES, errno.EADDRNOTAVAIL})

_HOW_TO_USE: Final = """\
The pages: {pages}

A cluster runs at {url}: an API server, {nodes}, and the controller.
{runtime}

    export KUBECONFIG={kubeconfig}{path}
    kubectl apply -f examples/batch/batchsucceeded.yaml
    kubectl get frameworks --watch

    kubectl framework logs batchsucceeded
    kubectl framework history

The controller's log: {log}
The controller's metrics: {web}/metrics

Ctrl-C stops the cluster and its containers."""

_RUNTIMES: Final = {
    "process": "Containers run as processes of this user, with all permissions of this user.",
    "simulated": "Containers are simulated, as the annotations of their Pods describe.",
}

_QUEUE: Final = f"""\
Frameworks in namespace {DEFAULT_NAMESPACE} with the label kueue.x-k8s.io/queue-name: {LOCAL_QUEUE} share the quota
{{quota}} of ClusterQueue {CLUSTER_QUEUE}.
The label kueue.x-k8s.io/priority-class may be {", ".join(PRIORITIES)}."""


def up(options: argparse.Namespace) -> int:
    """Run a cluster until a signal. Return the exit code."""
    return program.run_command(_up(options), interrupted=lambda _number: program.EXIT_OK)


def run(options: argparse.Namespace) -> int:
    """Run the Frameworks of files until they complete. Return the exit code, 0 if all succeeded."""
    early = "stopped before all Frameworks had completed"
    return program.run_command(_run(options), interrupted=lambda number: program.fail(early, 128 + number))


# --- up ---


async def _up(options: argparse.Namespace) -> int:
    config = _config(options)
    async with _cluster(options, options.data, options.port) as (cluster, directory), AsyncExitStack() as stack:
        cluster.server.storage.observe(_lint_created)
        log = stack.enter_context(_quiet_log(options, directory / "controller.log"))
        # The controller stops before the archive, which takes its records, and that before the cluster.
        pages, history, live = await stack.enter_async_context(_archive(cluster, directory))
        path = options.kubeconfig or directory / "kubeconfig"
        archive = {"archive": pages.rpartition("/")[0], "tokenFile": history.token_file}
        kubeconfig = stack.enter_context(_kubeconfig(cluster, path, archive))
        controller = await stack.enter_async_context(Controller(_with_history(config, history), cluster.connect()))
        web = await stack.enter_async_context(_web(controller, config))
        # The controller has created the CRD.
        await stack.enter_async_context(program.background(live.run()))
        runtime = _RUNTIMES[options.runtime]
        if options.queue is not None:
            runtime += f"\n{_QUEUE.format(quota=options.queue)}"
        nodes = "one node" if options.nodes == 1 else f"{options.nodes} nodes"
        places = {
            "path": _path_of_plugin(),
            "pages": pages,
            "url": cluster.url,
            "kubeconfig": kubeconfig,
            "web": web.url,
            "log": log,
        }
        _say(_HOW_TO_USE.format(nodes=nodes, runtime=runtime, **places))
        if options.log_level is None:
            _print_changes(cluster)
        await _unless_one_fails(_until_told(options), controller, cluster)
    return program.EXIT_OK


async def _until_told(options: argparse.Namespace) -> None:
    """Wait without end, or with --until-stdin-closes for the end of the process that has the other end."""
    closed = asyncio.Event()
    if options.until_stdin_closes:
        loop = asyncio.get_running_loop()

        def read() -> None:
            # Not by sys.stdin: Python cannot end while a thread has its lock.
            while os.read(0, 4096):
                pass
            loop.call_soon_threadsafe(closed.set)

        threading.Thread(target=read, daemon=True).start()
    await closed.wait()


def _path_of_plugin() -> str:
    """Return the line that lets kubectl find its plugin in a virtual environment; else an empty text."""
    directory = Path(sys.executable).parent
    if sys.prefix == sys.base_prefix or not (directory / "kubectl-framework").exists():
        return ""
    return f"\n    export PATH={shlex.quote(str(directory))}:$PATH"


@contextmanager
def _quiet_log(options: argparse.Namespace, path: Path) -> Iterator[str]:
    """Log to a file, unless --log-level asks for a log on stderr. Yield the place of the log.

    The log has a snapshot of each object that is replaced or deleted, which no terminal can show.
    """
    if options.log_level is not None:
        yield "on stderr"
        return
    try:
        with logging_to_file(path, options.log_format):
            yield str(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from None


def _print_changes(cluster: LocalCluster) -> None:
    """Print a line on stderr for each change of a Framework's state, and for each failed attempt of a Task."""
    progress = LineProgress(console(sys.stderr), time.time, brief=True)
    changed: dict[str, ObjectRecord] = {}
    loop = asyncio.get_running_loop()

    def show() -> None:
        for key, record in changed.items():
            progress.show(key, record.document())
        changed.clear()

    def on_change(change: Change) -> None:
        record = change.record
        if record.resource != names.CRD_NAME:
            return
        if change.type == "DELETED":
            show()
            progress.forget(record.key)
            return
        changed[record.key] = record
        loop.call_later(_SHOW_CHANGES_SEC if len(record.body) > _LARGE_BYTES else 0, show)

    cluster.server.storage.observe(on_change)


@asynccontextmanager
async def _archive(cluster: LocalCluster, directory: Path) -> AsyncIterator[tuple[str, History, LiveFrameworks]]:
    """Run an archive in the directory, with the pages.

    Yield their address, how a controller sends records there, and the live Frameworks of the pages, yet to be run.
    """
    # Late imports: `local run` needs none of it.
    from frameworkcontroller.dashboard.live import LiveFrameworks
    from frameworkcontroller.dashboard.pages import Pages
    from frameworkcontroller.history.archive import HistoryArchive
    from frameworkcontroller.history.archiveapi import application, new_metrics
    from frameworkcontroller.history.archiveerrors import ArchiveError
    from frameworkcontroller.webaccess.boundedserver import BoundedServer
    from frameworkcontroller.webaccess.loopback_access import LoopbackAccess, TokenFileError, token_in

    token_file = directory / "history-token"
    try:
        access = LoopbackAccess(token_in(token_file))
    except TokenFileError as error:
        raise CommandError(str(error)) from None
    try:
        archive = await HistoryArchive.open(f"sqlite:///{directory}/history.db")
    except ArchiveError as error:
        raise CommandError(f"cannot open the archive: {error}") from None
    async with archive, KubeClient(cluster.connect()) as client:
        live, metrics = LiveFrameworks(client), new_metrics()
        app = application(archive, access, metrics=metrics, mounts=[Pages(live, archive).add_to])
        async with BoundedServer(app, "127.0.0.1", 0, connected=metrics.connected) as server:
            sink = History(sink=HistorySinkKind.HTTP, url=f"{server.url}/v1/records", token_file=str(token_file))
            yield access.link(server.url), sink, live


def _with_history(config: Config, history: History) -> Config:
    """Send records to this archive, unless the configuration names another sink."""
    if config.history.sink_triggers:
        return config
    return config.model_copy(update={"history": history.model_copy(update={"logs": config.history.logs})})


@asynccontextmanager
async def _web(controller: Controller, config: Config) -> AsyncIterator[WebServer]:
    """Serve metrics and health at the configured address, or else on a free port of 127.0.0.1."""
    address = config.web if "web_address" in config.model_fields_set else None
    try:
        async with WebServer(controller, address or BindAddress("127.0.0.1", 0), debug=config.web_debug) as web:
            yield web
    except WebError as error:
        raise UsageError(f"webAddress: {error}") from None


@contextmanager
def _kubeconfig(cluster: LocalCluster, path: Path, extension: Mapping[str, Any]) -> Iterator[Path]:
    """Write the kubeconfig, and remove it at the end. Replace only a kubeconfig of a local cluster.

    ``extension``: the values for this project's commands.
    """
    try:
        former = path.read_text(encoding="utf-8") if path.exists() else None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--kubeconfig {path}: cannot be read: {error}") from None
    config = yaml.safe_load(cluster.server.kubeconfig())
    config["clusters"][0]["cluster"]["extensions"] = [{"name": EXTENSION, "extension": dict(extension)}]
    ours = yaml.safe_dump(config, sort_keys=False)
    if former is not None and not _is_of_a_local_cluster(former, ours):
        raise UsageError(f"--kubeconfig {path}: exists and is not of a local cluster; name another file")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.chmod(0o600)
        path.write_text(ours, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--kubeconfig {path}: cannot be written: {error.strerror}") from None
    try:
        yield path
    finally:
        with suppress(OSError):
            # Another local cluster may have replaced it.
            if path.read_text(encoding="utf-8") == ours:
                path.unlink()


def _is_of_a_local_cluster(former: str, ours: str) -> bool:
    """Return whether the kubeconfig has the same context as ours, and no other one."""
    try:
        found, own = yaml.safe_load(former), yaml.safe_load(ours)
        return [one["name"] for one in found["contexts"]] == [one["name"] for one in own["contexts"]]
    except (yaml.YAMLError, TypeError, KeyError):
        return False


# --- run ---


async def _run(options: argparse.Namespace) -> int:
    try:
        manifests = read_manifests(options.files)
    except ManifestError as error:
        raise UsageError(str(error)) from None
    frameworks = [manifest for manifest in manifests if _is_framework(manifest)]
    config = _config(options, reports=any(_has_progress(manifest.body) for manifest in frameworks))
    if not frameworks:
        raise UsageError("the files contain no Framework")
    if options.logs and options.runtime != "process":
        raise UsageError(f"--logs: containers of --runtime {options.runtime} write nothing")
    for manifest in frameworks:
        _lint(str(manifest), manifest.body, errors=True)
    output = _Output()
    async with (
        _cluster(options, printed=output if options.logs else None) as (cluster, _),
        Controller(config, cluster.connect()) as controller,
        KubeClient(cluster.connect()) as client,
    ):
        following = _follow(client, manifests, options.timeout, cluster, output)
        return await _unless_one_fails(following, controller, cluster)


class _Output:
    """Prints the output of containers while there is a display."""

    def __init__(self) -> None:
        self.progress: Progress | None = None
        self._prefixes = LinePrefixes()

    def __call__(self, pod: NodePod, container: str, line: bytes) -> None:
        if self.progress is None:
            return
        attempt = pod.annotations.get(names.TASK_ATTEMPT_ID, "0")
        label = pod.name if attempt == "0" else f"{pod.name}#{attempt}"
        if len(pod.containers) > 1:
            label += f"/{container}"
        text = Text.from_ansi(line.rstrip(b"\r").decode("utf-8", "replace"))
        try:
            self.progress.print(self._prefixes.make(label, pod.name).append_text(text))
        except BrokenPipeError:  # it ends the command, too (program.run_command)
            self.progress = None


async def _follow(
    client: KubeClient,
    manifests: Sequence[Manifest],
    timeout: float | None,
    cluster: LocalCluster,
    output: _Output,
) -> int:
    try:
        created = await create_all(client, manifests)
    except ManifestError as error:
        raise CommandError(str(error)) from None
    frameworks = [body for manifest, body in created if _is_framework(manifest)]
    screen = console(sys.stdout)
    late = False
    # A pipe may have no user to interrupt it.
    limit = _UNWATCHED_SEC if timeout is None and not screen.is_terminal else timeout
    async with progress_on(screen, time.time) as progress, program.background() as tasks:
        follower = FrameworkFollower(client, frameworks, progress.show, until=cannot_start)
        if isinstance(progress, LiveProgress):
            tasks.append(asyncio.create_task(keep_diagnosing(client, follower, progress, time.time)))
        output.progress = progress
        try:
            async with asyncio.timeout(limit):
                await follower.run()
            await cluster.all_printed()
        except TimeoutError:
            late = True
        finally:
            output.progress = None
    endings = [ending(key, last) for key, last in follower.last.items()]
    _say()
    for end, last in zip(endings, follower.last.values(), strict=True):
        _say(end.text)
        if late and last:
            pod, why = await first_diagnosis(client, last, time.time)
            if why not in end.text:
                _say(f"    {pod}: {why}")
    if late and limit is not None:
        default = " (--timeout extends this default)" if timeout is None else ""
        raise program.too_late("not all Frameworks completed", limit, default)
    return program.EXIT_OK if all(end.succeeded for end in endings) else program.EXIT_FAILED


def _is_framework(manifest: Manifest) -> bool:
    return manifest.kind == names.KIND and manifest.api_version == names.API_VERSION


def _has_progress(framework: Mapping[str, Any]) -> bool:
    spec = framework.get("spec")
    return isinstance(spec, dict) and spec.get("progress") is not None


# --- both ---


def _lint_created(change: Change) -> None:
    """Print lint's warnings for a new Framework."""
    record = change.record
    if change.type == "ADDED" and record.resource == names.CRD_NAME:
        place = record.key.removeprefix(f"{DEFAULT_NAMESPACE}/")
        body = {"apiVersion": names.API_VERSION, "kind": names.KIND, **record.document()}
        asyncio.get_running_loop().call_soon(_lint, place, body)


def _lint(place: str, framework: Mapping[str, Any], *, errors: bool = False) -> None:
    """Print lint's warnings, such as a Framework that never ends. ``errors``: also errors, before warnings."""
    # A late import: `local up` may never need it.
    from frameworkcontroller.commands.lint.frameworks import check_framework

    for finding in sorted(check_framework(framework), key=lambda finding: finding.severity):
        if errors or finding.severity == "warning":
            text = program.line("note", f"{place}: {finding}")
            print(text, file=sys.stderr, flush=True)  # noqa: T201 - a command line speaks to its user


def _config(options: argparse.Namespace, *, reports: bool = True) -> Config:
    """Load the named configuration only: ./frameworkcontroller.yaml is for another cluster.

    ``reports``: whether Pods report progress.
    """
    if options.config is not None:
        try:
            config = load_config(options.config, required=True)
        except ConfigurationError as error:
            raise UsageError(str(error)) from None
    else:
        # The API server has no other clients.
        config = shipped_config().model_copy(update={"kube_client_qps": 10000.0, "kube_client_burst": 10000})
    config = config.model_copy(update={"history": config.history.with_all_logs()})
    if reports and config.progress_reports.address is None:
        config = config.model_copy(update={"progress_reports": ProgressReports(bind_address="127.0.0.1:0")})
    if options.queue is not None:
        config = config.model_copy(update={"kueue": Kueue(mode=KueueMode.ENABLED)})
    return config


@asynccontextmanager
async def _cluster(
    options: argparse.Namespace, data: Path | None = None, port: int = 0, printed: Printed | None = None
) -> AsyncIterator[tuple[LocalCluster, Path]]:
    """Run a cluster, with its files in ``data`` or in a directory that is removed at the end."""
    capacity, gpus = await _capacity(options.capacity)
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(_directory(data))
        cluster = LocalCluster(
            directory,
            runtime=options.runtime,
            port=port,
            printed=printed,
            quota=_resources("--queue", options.queue),
            nodes=options.nodes,
            capacity=capacity,
            gpus=gpus,
            volumes=_volumes(options.map_volume),
        )
        hint = f"waiting to start: does another cluster use {directory}?"
        waiting = asyncio.get_running_loop().call_later(_HINT_AFTER_SEC, program.fail, hint)
        try:
            await stack.enter_async_context(cluster)
        except ClusterError as error:
            raise CommandError(f"cannot start a cluster: {error}") from None
        except OSError as error:
            place = f"port {port}" if error.errno in _PORT_ERRORS else str(error.filename or directory)
            raise UsageError(f"cannot start a cluster: {place}: {os.strerror(error.errno or 0)}") from None
        finally:
            waiting.cancel()
        if cluster.limitation:
            _say(f"Note: {cluster.limitation}")
        yield cluster, directory


def _resources(option: str, text: str | None, auto: Collection[str] = ()) -> dict[str, str] | None:
    try:
        return None if text is None else parse_option(text, auto=auto)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


async def _capacity(text: str | None) -> tuple[Mapping[str, str] | None, Sequence[str] | None]:
    """The amounts of --capacity, and the GPUs of this machine if it asks for them."""
    capacity, gpus = _resources("--capacity", text, {names.GPU}), None
    if capacity is not None and names.GPU in capacity:
        if capacity[names.GPU] == AUTO:
            try:
                gpus = await find_gpus()
            except GpusUnknownError as error:
                raise CommandError(f"--capacity {names.GPU}={AUTO}: {error}") from None
            capacity[names.GPU] = str(len(gpus))
        elif parse_resources(capacity)[names.GPU] % 1:
            raise UsageError(f"--capacity: {names.GPU}: must be a whole number: {capacity[names.GPU]!r}")
    return capacity, gpus


def _volumes(texts: Sequence[str]) -> dict[str, Path]:
    try:
        return dict(map(parse_map, texts))
    except ValueError as error:
        raise UsageError(f"--map-volume: {error}") from None


@contextmanager
def _directory(named: Path | None) -> Iterator[Path]:
    if named is not None:
        try:
            named.mkdir(mode=0o700, parents=True, exist_ok=True)
        except FileExistsError:
            raise UsageError(f"--data {named}: is not a directory") from None
        except OSError as error:
            raise UsageError(f"--data {named}: {error.strerror}") from None
        yield named.resolve()
    else:
        with scratch_directory() as directory:
            yield directory


async def _unless_one_fails(work: Coroutine[Any, Any, T], controller: Controller, cluster: LocalCluster) -> T:
    """Return the result of ``work``, or raise the error of the controller or the cluster if one ends before."""
    async with program.background(controller.wait_stopped(), cluster.wait(), work) as tasks:
        *parts, working = tasks
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for part, name in zip(parts, ("controller", "cluster"), strict=True):
            if part in done and working not in done:
                part.result()
                raise CommandError(f"the {name} ended too early")
        result: T = await working
        return result


def _say(text: str = "") -> None:
    print(text, flush=True)  # noqa: T201 - a command line speaks to its user
