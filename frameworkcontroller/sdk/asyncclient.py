"""Clusters and submitted Frameworks, for asyncio. The synchronous classes (syncclient.py) call these."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from io import StringIO
from typing import Any, Final, Self, TextIO, TypeVar

import orjson

from frameworkcontroller import __version__
from frameworkcontroller.api import names
from frameworkcontroller.api.causes import cause_in
from frameworkcontroller.api.problems import Problem, suggestion
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.api.status import Phase
from frameworkcontroller.api.timestamps import parse_time
from frameworkcontroller.history.reads import GetFramework
from frameworkcontroller.kube.client import JSON_PATCH, KubeClient
from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.kube.connection import connect as connection_of
from frameworkcontroller.kube.errors import AlreadyExists as ObjectExists
from frameworkcontroller.kube.errors import ApiError, Invalid
from frameworkcontroller.kube.errors import Conflict as KubeConflict
from frameworkcontroller.kube.errors import NotFound as ObjectGone
from frameworkcontroller.kube.podlog import NotALog
from frameworkcontroller.kube.resources import CONFIGMAPS, PODS, SECRETS, Resource
from frameworkcontroller.sdk.archives import archive_of
from frameworkcontroller.sdk.definitions import Framework
from frameworkcontroller.sdk.exceptions import (
    AlreadyExists,
    FrameworkFailed,
    InvalidSpec,
    LogUnavailable,
    NotFound,
    RequestRefused,
    Unreachable,
    WaitTimeout,
)
from frameworkcontroller.sdk.localprocess import LocalProcess
from frameworkcontroller.sdk.podtemplates import Json
from frameworkcontroller.sdk.runstatus import (
    Attempt,
    LogLine,
    Result,
    Status,
    TaskFailure,
    read_attempt,
    read_result,
    read_status,
)
from frameworkcontroller.sdk.translation import translated
from frameworkcontroller.views.apiobjects import attempt_of, pod_selector
from frameworkcontroller.views.archivedlogs import ArchivedLogs
from frameworkcontroller.views.containerlogs import ArchivedLog, newest, of_default_containers
from frameworkcontroller.views.diagnosis import read_view
from frameworkcontroller.views.frameworkfollower import FrameworkFollower
from frameworkcontroller.views.logfollower import LogFollower
from frameworkcontroller.views.loglines import Line, read_lines, sources_of
from frameworkcontroller.views.paging import each_object
from frameworkcontroller.views.poddiagnosis import diagnose_pods

T = TypeVar("T")

_MANAGER: Final = "frameworkcontroller-sdk"
_OBJECTS: Final[Mapping[str, Resource]] = {"ConfigMap": CONFIGMAPS, "Secret": SECRETS}
_HASHED: Final = ("framework-code-", "framework-ssh-")
"""Prefixes of the names that say their objects' content: several Frameworks may own one of them."""

_GONE_SEC: Final = 120.0
_POLL_SEC: Final = 0.5
_CHECK_SEC: Final = 10.0
_OUTAGE_SEC: Final = 300.0
"""An API server that has not answered for so long is reported."""

_TAIL_LINES: Final = 20
_TAIL_SEC: Final = 15.0
_IN_FLIGHT: Final = 20
_TRIES: Final = 10


def connect(context: str | None = None, namespace: str | None = None, *, kubeconfig: str | None = None) -> Cluster:
    """Return the cluster that kubectl would use, or within a Pod its own. ``kubeconfig``: a path."""
    return Cluster(partial(connection_of, kubeconfig=kubeconfig, context=context), namespace)


def local(*, nodes: int = 1, capacity: Mapping[str, str | int] | None = None, keep: bool = False) -> Cluster:
    """Return a cluster on this machine, whose containers are processes. It ends with this process, or before.

    ``capacity``: of each node, such as ``{"cpu": 8, "nvidia.com/gpu": "auto"}``; None: requests do not count.
    ``keep``: it goes on until it is killed. Needs the extra ``local``.
    """
    process = LocalProcess(nodes=nodes, capacity=capacity, keep=keep)
    return Cluster(process.connect, needs_images=False, closed=process.stop)


class Cluster:
    """A namespace of a cluster, used within ``async with``. Belongs to one event loop."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[Connection]],
        namespace: str | None = None,
        *,
        needs_images: bool = True,
        closed: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Use `connect` or `local`. ``needs_images``: False for the local cluster. ``closed``: called at the end."""
        self._connect = connect
        self._namespace = namespace
        self._needs_images = needs_images
        self._closed = closed
        self._stack = AsyncExitStack()
        self._client: KubeClient | None = None
        self.connection: Connection

    @classmethod
    def of(cls, client: KubeClient, namespace: str) -> Self:
        """Return a cluster that uses an open client. Frameworks can be submitted; archives are not found."""

        async def connect() -> Connection:
            raise RuntimeError("the cluster has a client already")

        made = cls(connect, namespace)
        made._client = client
        return made

    async def __aenter__(self) -> Self:
        """Connect. Raises Unreachable if no cluster is configured; sends no request yet."""
        with translated():
            self.connection = await self._connect()
        self._client = await self._stack.enter_async_context(
            KubeClient(self.connection, user_agent=f"{_MANAGER}/{__version__}")
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        try:
            await self._stack.aclose()
        finally:
            self._client = None
            if self._closed is not None:
                await self._closed()

    @property
    def namespace(self) -> str:
        """The namespace of its Frameworks: as given, or of the kubeconfig's context."""
        return self._namespace or self.connection.access.namespace or "default"

    @property
    def client(self) -> KubeClient:
        """The connections to the API server. Raises RuntimeError if it is closed."""
        if self._client is None:
            raise RuntimeError("the cluster is not open: use it within `with`")
        return self._client

    async def submit(self, framework: Framework, *, replace: bool = False) -> Run:
        """Create the Framework with its code. Return once the API server has it.

        ``replace``: delete one of the same name before, and wait until it is gone.

        Raises:
            InvalidSpec: the controller or the API server refuses it.
            AlreadyExists: one of its name exists, or an object that it brings.
        """
        if framework.code is not None:
            framework = framework.replaced(code=await asyncio.to_thread(framework.code.resolved))
        body = framework.to_dict()
        if not self._needs_images:
            _fill_images(body)
        if replace and framework.name is not None:
            with suppress(NotFound):
                await (await self.get(framework.name)).delete()
        with translated("create", names.PLURAL, name=framework.name or "", namespace=self.namespace):
            created: Json = orjson.loads(await self.client.create(FRAMEWORKS, orjson.dumps(body), self.namespace))
        run = Run(self, created)
        try:
            for one in framework.all_objects():
                await self._provide(one, created)
        except BaseException:
            # Its Pods would wait for the objects.
            await asyncio.shield(run.delete(wait=False))
            raise
        return run

    async def run(self, framework: Framework, *, logs: bool = True, replace: bool = False) -> Result:
        """Submit the Framework, print the logs of its Tasks meanwhile unless ``logs`` is false, and return the result.

        Raises:
            FrameworkFailed: it has failed or was stopped.
        """
        run = await self.submit(framework, replace=replace)
        if logs:
            await run.print_logs()
        return await run.result()

    async def get(self, name: str) -> Run:
        """Return the Framework of that name. Raises NotFound."""
        return Run(self, await self.read(name))

    async def list(self, selector: str | None = None) -> list[Run]:
        """Return the Frameworks of the namespace, the oldest first. ``selector``: of labels, as kubectl's ``-l``."""
        with translated("list", names.PLURAL, namespace=self.namespace):
            each = each_object(self.client, FRAMEWORKS, self.namespace, label_selector=selector)
            found = [Run(self, body) async for body in each]
        return sorted(found, key=lambda run: (run.status.object["metadata"]["creationTimestamp"], run.name))

    async def read(self, name: str) -> Json:
        """Return the API object of a Framework. Raises NotFound."""
        with translated("get", names.PLURAL, name=name, namespace=self.namespace):
            if not names.is_valid_name(name):
                raise NotFound(f'"{name}" is not the name of a Framework: it {names.NAME_RULE}')
            body: Json = orjson.loads(await self.client.get(FRAMEWORKS, name, self.namespace))
        return body

    async def _provide(self, body: Json, owner: Json) -> None:
        """Create an object that the Framework owns, or make it one of the owners of one with the same content."""
        metadata = owner["metadata"]
        reference = {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": metadata["name"]}
        reference |= {"uid": metadata["uid"]}
        resource = _OBJECTS.get(str(body.get("kind")))
        name = str((body.get("metadata") or {}).get("name"))
        if resource is None:
            raise RequestRefused(f"{body.get('kind')} {name}: a Framework brings only {' and '.join(_OBJECTS)}s")
        made = {**body, "metadata": {**body["metadata"], "ownerReferences": [reference]}}
        deadline = time.monotonic() + _GONE_SEC
        while True:
            with translated("create", resource.plural, name=name, namespace=self.namespace):
                try:
                    await self.client.create(resource, orjson.dumps(made), self.namespace)
                except ObjectExists:
                    if await self._take_over(resource, name, reference):
                        return
                else:
                    return
            if time.monotonic() > deadline:
                raise AlreadyExists(f'a {body["kind"]} "{name}" exists already in namespace "{self.namespace}"')
            await asyncio.sleep(_POLL_SEC)

    async def _take_over(self, resource: Resource, name: str, reference: Json) -> bool:
        """Return whether the object that exists is this Framework's now, and not one that is to be collected.

        Raises:
            AlreadyExists: it is somebody else's.
        """
        try:
            found = orjson.loads(await self.client.get(resource, name, self.namespace, metadata_only=True))["metadata"]
            owners = found.get("ownerReferences") or []
            if reference in owners:
                return True
            if name.startswith(_HASHED) and not found.get("deletionTimestamp"):
                patch = [
                    {"op": "test", "path": "/metadata/resourceVersion", "value": found["resourceVersion"]},
                    {"op": "add", "path": "/metadata/ownerReferences", "value": [*owners, reference]},
                ]
                body = orjson.dumps(patch)
                await self.client.patch(resource, name, body, self.namespace, content_type=JSON_PATCH)
                return True
        except (ObjectGone, KubeConflict, Invalid):
            # It was changed or collected meanwhile.
            return False
        former = [one for one in owners if one.get("kind") == names.KIND and one.get("name") == reference["name"]]
        if not former:
            raise AlreadyExists(f'{resource.plural} "{name}" exists already in namespace "{self.namespace}"')
        return False


class Run:
    """A submitted Framework. As a context manager it is deleted at the end of the block."""

    def __init__(self, cluster: Cluster, body: Json) -> None:
        """Use the methods of a cluster."""
        self._cluster = cluster
        self.name: Final[str] = body["metadata"]["name"]
        self.namespace: Final[str] = body["metadata"]["namespace"]
        self.uid: Final[str] = body["metadata"]["uid"]
        self.status = read_status(body)
        """The last status that was read."""

    def __repr__(self) -> str:
        return f"<Run {self.namespace}/{self.name}: {self.status}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        with suppress(NotFound):
            await self.delete()

    async def refresh(self) -> Status:
        """Read the status. Raises NotFound if the Framework is gone."""
        return self._keep(await self._read())

    async def watch(self) -> AsyncIterator[Status]:
        """Yield the status, and then each change of it, until the end of the Framework.

        Outages of the API server are waited out, for five minutes.

        Raises:
            NotFound: it was deleted before its end.
        """
        changes: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue()
        body = await self._read()
        follower = FrameworkFollower(self._client, [body], lambda _key, one: changes.put_nowait(one))
        async with _running(follower.run()) as following:
            while True:
                getting = asyncio.ensure_future(changes.get())
                done, _ = await asyncio.wait(
                    (getting, following), timeout=_CHECK_SEC, return_when=asyncio.FIRST_COMPLETED
                )
                if getting in done:
                    status = self._keep(getting.result())
                    yield status
                    if status.is_final:
                        return
                    continue
                getting.cancel()
                if following in done:
                    following.result()
                    raise self._gone()
                await self._check(follower)

    async def wait(self, until: str = "final", timeout: float | None = None) -> Status:
        """Wait until the Framework is in this phase, or over. ``until``: a phase, or "final". ``timeout``: seconds.

        Raises:
            WaitTimeout: it was not, in time.
            NotFound: it was deleted meanwhile.
        """
        wanted = None if until == "final" else Phase(until)
        try:
            async with asyncio.timeout(timeout):
                async for status in self.watch():
                    if status.is_final or status.phase is wanted:
                        return status
        except TimeoutError:
            last = self.status
            raise WaitTimeout(f"{self.name} is not {until} within {timeout:g} s: {last}", last) from None
        raise self._gone()

    async def result(self, timeout: float | None = None) -> Result:
        """Wait for the end, and return the result.

        Raises:
            FrameworkFailed: it has failed or was stopped.
            WaitTimeout: it has not ended in time.
        """
        status = await self.wait(timeout=timeout)
        result = read_result(status)
        if status.phase is Phase.SUCCEEDED:
            return result
        failure = result.first_failure
        if failure is not None:
            failure = _with_tail(failure, await self._tail(failure))
            result = replace(result, first_failure=failure)
        error = FrameworkFailed(f"{self.name}: {status}", result)
        for note in _notes(self, result):
            error.add_note(note)
        if failure is not None and failure.error is not None:
            raise error from failure.error
        raise error

    async def logs(
        self,
        *,
        role: str | None = None,
        task: int | None = None,
        attempt: int | None = None,
        follow: bool = False,
        tail: int | None = None,
    ) -> AsyncIterator[LogLine]:
        """Yield the lines of the Tasks' logs, of Pods that are gone from the archive.

        ``attempt``: of the Framework, by default the last one. ``follow``: go on until its end, also with later
        attempts. ``tail``: only the last lines of each Task.

        Raises:
            LogUnavailable: there is none, and why.
        """
        if task is not None and role is None:
            role = next(iter(self.status.roles), None) or (await self._read())["spec"]["taskRoles"][0]["name"]
        body = await self._read()
        if follow and attempt is None and not read_status(body).is_final:
            async for line in self._follow(body, role, task, tail):
                yield line
            return
        with translated("get", "pods/log", namespace=self.namespace):
            async for line in self._past(body, role, task, attempt, tail):
                yield line

    async def print_logs(self, file: TextIO | None = None) -> None:
        """Print the lines of all Tasks, as they come, until the end of the Framework."""
        async for line in self.logs(follow=True):
            print(line, file=file, flush=True)

    async def scale(self, **roles: int) -> None:
        """Change the numbers of Tasks: ``scale(worker=5)``. Raises InvalidSpec if a role is unknown."""

        def change(spec: Json) -> list[Json]:
            places = {one["name"]: place for place, one in enumerate(spec["taskRoles"])}
            for role in roles:
                if role not in places:
                    raise InvalidSpec([_problem(role, places)])
            return [
                {"op": "add", "path": f"/spec/taskRoles/{places[role]}/taskNumber", "value": number}
                for role, number in roles.items()
            ]

        await self._patch(change)

    async def stop(self) -> None:
        """Stop it for good: it ends as Stopped, and its record stays."""
        await self._patch(lambda _spec: [{"op": "add", "path": "/spec/executionType", "value": "Stop"}])

    async def suspend(self) -> None:
        """Stop its Pods until `resume`, at no retry."""
        await self._patch(lambda _spec: [{"op": "add", "path": "/spec/suspend", "value": True}])

    async def resume(self) -> None:
        """Let a suspended Framework run."""
        await self._patch(lambda _spec: [{"op": "add", "path": "/spec/suspend", "value": False}])

    async def delete(self, *, wait: bool = True) -> None:
        """Delete it with its Pods. ``wait``: until all of it is gone. Nothing happens if it is gone."""
        with translated("delete", names.PLURAL, name=self.name, namespace=self.namespace):
            with suppress(ObjectGone, KubeConflict):
                await self._client.delete(FRAMEWORKS, self.name, self.namespace, uid=self.uid, propagation="Foreground")
            while wait:
                try:
                    await self._read()
                except NotFound:
                    return
                await asyncio.sleep(_POLL_SEC)

    async def explain(self) -> str:
        """Return how it is and why, as ``kubectl framework status`` shows it."""
        from rich.console import Console

        from frameworkcontroller.views.tree import framework_tree

        body = await self._read()
        with translated("list", "pods", namespace=self.namespace):
            pods = await diagnose_pods(self._client, body, time.time)
        made = StringIO()
        tree = framework_tree(read_view(body, pods), time.time(), math.inf)
        Console(file=made, width=200, color_system=None, highlight=False).print(tree, soft_wrap=True)
        return made.getvalue().rstrip()

    async def attempts(self) -> list[Attempt]:
        """Return its attempts, the first one first: those that the archive has, and the last one."""
        body = await self._read()
        last = read_attempt(body)
        found: dict[int, Attempt] = {}
        async with archive_of(self._cluster.connection) as archive:
            answer = None if archive is None else await archive.read(GetFramework(self.uid))
            for one in () if answer is None else answer["attempts"]:
                found[one["id"]] = _archived_attempt(one)
        if last is not None:
            found[last.number] = last
        return [found[number] for number in sorted(found)]

    # --- inside ---

    @property
    def _client(self) -> KubeClient:
        return self._cluster.client

    async def _read(self) -> Json:
        body = await self._cluster.read(self.name)
        if body["metadata"]["uid"] != self.uid:
            raise self._gone()
        return body

    def _keep(self, body: Mapping[str, Any]) -> Status:
        self.status = read_status(body)
        return self.status

    def _gone(self) -> NotFound:
        return NotFound(f'Framework "{self.name}" in namespace "{self.namespace}" was deleted')

    async def _check(self, follower: FrameworkFollower) -> None:
        """Raise the error of a watch that fails for a reason that does not pass."""
        since = follower.failing_since
        if since is None:
            return
        try:
            await self._read()
        except Unreachable:
            if asyncio.get_running_loop().time() - since > _OUTAGE_SEC:
                raise

    async def _patch(self, change: Callable[[Json], list[Json]]) -> None:
        for _ in range(_TRIES):
            body = await self._read()
            tests = [
                {"op": "test", "path": f"/metadata/{key}", "value": body["metadata"][key]}
                for key in ("uid", "generation")
            ]
            patch = orjson.dumps([*tests, *change(body["spec"])])
            with translated("patch", names.PLURAL, name=self.name, namespace=self.namespace):
                try:
                    answer = await self._client.patch(
                        FRAMEWORKS, self.name, patch, self.namespace, content_type=JSON_PATCH, field_manager=_MANAGER
                    )
                except (KubeConflict, Invalid):
                    # A failed test looks the same as a refused spec.
                    now = (await self._read())["metadata"]
                    if now["generation"] == body["metadata"]["generation"]:
                        raise
                else:
                    self._keep(orjson.loads(answer))
                    return
        raise RequestRefused(f"{self.name}: not changed: other clients changed it {_TRIES} times meanwhile")

    async def _follow(self, body: Json, role: str | None, task: int | None, tail: int | None) -> AsyncIterator[LogLine]:
        lines: asyncio.Queue[Line] = asyncio.Queue(maxsize=0)
        query = {} if tail is None else {"tailLines": tail}
        following = LogFollower(self._client, body, lines.put_nowait, target=(role, task), query=query)
        async with _running(following.run()) as run:
            while True:
                getting = asyncio.ensure_future(lines.get())
                done, _ = await asyncio.wait((getting, run), timeout=_CHECK_SEC, return_when=asyncio.FIRST_COMPLETED)
                if getting in done:
                    yield _line(getting.result())
                    continue
                getting.cancel()
                if run in done:
                    run.result()
                    break
                await self._check(following.follower)
        async with archive_of(self._cluster.connection) as archive:
            if archive is not None:
                kept = ArchivedLogs(archive, self.namespace, self.name)
                missed = await kept.missed(body, following, (role, task))
                async for line in _archived_lines(kept, self.uid, missed, tail):
                    yield line

    async def _past(
        self, body: Json, role: str | None, task: int | None, attempt: int | None, tail: int | None
    ) -> AsyncIterator[LogLine]:
        """Yield the lines of Pods that exist, by time, and those of the others from the archive."""
        current = max(attempt_of(body), 0)
        wanted = current if attempt is None else attempt
        read: set[tuple[str, int]] = set()
        if wanted == current:
            selector = pod_selector(self.name, role, task)
            each = each_object(self._client, PODS, self.namespace, label_selector=selector)
            sources = [source async for pod in each for source in sources_of(pod, None)]
            query = {} if tail is None else {"tailLines": tail}
            limit = asyncio.Semaphore(_IN_FLIGHT)
            logs: list[Line] = []

            async def read_one(source: Any) -> None:
                async with limit:
                    # A Pod that has just gone is in the archive.
                    with suppress(ApiError, NotALog):
                        logs.extend([line async for line in read_lines(self._client, source, follow=False, **query)])
                        read.add((source.role, source.index))

            await asyncio.gather(*map(read_one, sources))
            for line in sorted(logs, key=lambda one: one.stamp):
                yield _line(line)
        async with archive_of(self._cluster.connection) as archive:
            if archive is None:
                if not read:
                    raise LogUnavailable(
                        f"{self.name}: no Pod of attempt {wanted} has a log now, and no archive is named "
                        "($FRAMEWORK_HISTORY_URL, or the kubeconfig)"
                    )
                return
            kept = ArchivedLogs(archive, self.namespace, self.name)
            found = of_default_containers(await kept.logs(self.uid, wanted, role, task), body)
            some = [log for log in newest(found) if log.task not in read]
            if not some and not read:
                raise LogUnavailable(f"{self.name}: no Pod of attempt {wanted} has a log now, and the archive has none")
            async for archived in _archived_lines(kept, self.uid, some, tail):
                yield archived

    async def _tail(self, failure: TaskFailure) -> tuple[str, ...]:
        """Return the last lines of the failed Task's log; none if there is no log within some seconds."""
        found: list[str] = []
        with suppress(Exception):
            async with asyncio.timeout(_TAIL_SEC):
                lines = self.logs(role=failure.role, task=failure.task, tail=_TAIL_LINES)
                found += [line.text async for line in lines]
        return tuple(found[-_TAIL_LINES:])


@asynccontextmanager
async def _running(work: Any) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _archived_lines(
    kept: ArchivedLogs, uid: str, logs: Sequence[ArchivedLog], tail: int | None
) -> AsyncIterator[LogLine]:
    async for log, lines in kept.lines(uid, logs, tail):
        for text in lines:
            yield LogLine("", *log.task, log.item["attempt"], text.rstrip(b"\r").decode("utf-8", "replace"))


def _line(line: Line) -> LogLine:
    text = line.text.rstrip(b"\r").decode("utf-8", "replace")
    return LogLine(line.stamp, line.source.role, line.source.index, line.source.attempt, text)


def _archived_attempt(one: Mapping[str, Any]) -> Attempt:
    begin, end = (None if one[key] is None else parse_time(one[key]) for key in ("started", "completed"))
    words = "" if one["code"] in (None, 0) else cause_in(one["diagnostics"] or "")
    return Attempt(one["id"], begin, end, one["code"], one["phrase"] or "", words)


def _problem(role: str, roles: Iterable[str]) -> Problem:
    return Problem(("roles",), f"there is no such role{suggestion(role, roles)}", role)


def _with_tail(failure: TaskFailure, lines: tuple[str, ...]) -> TaskFailure:
    return replace(failure, log_tail=lines)


def _notes(run: Run, result: Result) -> Iterator[str]:
    failure = result.first_failure
    if failure is not None:
        where = f" on {failure.node}" if failure.node else ""
        yield f"first failure: {failure.name}{where}, attempt {failure.attempt}: {failure.message}"
        if failure.rule:
            yield f"rule: {failure.rule}"
        if failure.log_tail:
            yield "\n".join(["last lines:", *(f"    {line}" for line in failure.log_tail)])
    yield f"retries: {result.retries}; more: kubectl framework status {run.name} -n {run.namespace}"


def _fill_images(body: Json) -> None:
    for role in body["spec"]["taskRoles"]:
        for container in role["task"]["pod"]["spec"].get("containers") or ():
            container.setdefault("image", "local")
