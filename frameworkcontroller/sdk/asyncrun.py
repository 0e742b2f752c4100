"""Submitted Frameworks, for asyncio. The synchronous classes (syncclient.py) call these."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing, suppress
from dataclasses import replace
from io import StringIO
from typing import TYPE_CHECKING, Any, Final, Self, TextIO

from frameworkcontroller.api import names
from frameworkcontroller.api.causes import cause_in
from frameworkcontroller.api.problems import Problem, suggestion
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.api.status import Phase
from frameworkcontroller.api.timestamps import parse_time
from frameworkcontroller.history.reads import GetFramework
from frameworkcontroller.kube.errors import Conflict as KubeConflict
from frameworkcontroller.kube.errors import NotFound as ObjectGone
from frameworkcontroller.kube.resources import EVENTS
from frameworkcontroller.sdk.archives import archive_of
from frameworkcontroller.sdk.exceptions import (
    Forbidden,
    FrameworkFailed,
    InvalidSpec,
    LogUnavailable,
    NotFound,
    RequestRefused,
    WaitTimeout,
)
from frameworkcontroller.sdk.following import brought, check_watch
from frameworkcontroller.sdk.podtemplates import Json
from frameworkcontroller.sdk.runlogs import RunLogs
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
from frameworkcontroller.views.apiobjects import roles_of
from frameworkcontroller.views.diagnosis import read_view
from frameworkcontroller.views.frameworkfollower import FrameworkFollower
from frameworkcontroller.views.kubeevents import KubeEvent, read_event
from frameworkcontroller.views.paging import each_object
from frameworkcontroller.views.poddiagnosis import diagnose_pods
from frameworkcontroller.views.specpatch import ContentionError, patch_spec

if TYPE_CHECKING:
    from frameworkcontroller.sdk.asyncclient import Cluster

MANAGER: Final = "frameworkcontroller-sdk"
"""The field manager of its changes, and its user agent."""

LOG_ERRORS: Final = (Forbidden, LogUnavailable, RequestRefused)
"""Errors of logs that do not keep a caller from the result."""

_FINAL: Final = "final"
_POLL_SEC: Final = 0.5
_TAIL_LINES: Final = 20
_TAIL_SEC: Final = 15.0


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
        await self.delete()

    async def refresh(self) -> Status:
        """Read the status. Raises NotFound if the Framework is gone."""
        return self._keep(await self._read())

    async def watch(self) -> AsyncGenerator[Status, None]:
        """Yield the status, and then each change of it, until the end of the Framework.

        Outages of the API server are waited out, for five minutes.

        Raises:
            NotFound: it was deleted before its end.
        """
        bodies: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue()
        body = await self._read()
        client = self._cluster.client
        follower = FrameworkFollower(client, [body], lambda _key, one: bodies.put_nowait(one))

        async def check() -> None:
            selector = f"metadata.name={self.name}"
            await check_watch(client, FRAMEWORKS, self.namespace, follower.failing_since, field_selector=selector)

        async with aclosing(brought(bodies, follower.run(), check)) as changes:
            async for changed in changes:
                status = self._keep(changed)
                yield status
                if status.is_final:
                    return
        raise self._gone()

    async def wait(self, until: str = _FINAL, timeout: float | None = None) -> Status:
        """Wait until the Framework is in this phase, or over. ``until``: a phase, or "final". ``timeout``: seconds.

        Raises:
            WaitTimeout: it was not, in time.
            NotFound: it was deleted meanwhile.
            ValueError: there is no such phase.
        """
        if until not in (_FINAL, *Phase):
            raise ValueError(f"there is no phase {until!r}{suggestion(until, (_FINAL, *Phase))}")
        limit = asyncio.timeout(timeout)
        try:
            async with limit, aclosing(self.watch()) as changes:
                async for status in changes:
                    if status.is_final or status.phase == until:
                        return status
        except TimeoutError:
            if not limit.expired():
                raise
            raise WaitTimeout(f"{self.name} is not {until} within {timeout:g} s: {self.status}", self.status) from None
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
            failure = replace(failure, log_tail=await self._tail(failure))
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
    ) -> AsyncGenerator[LogLine, None]:
        """Yield the lines of the Tasks' logs, of Pods that are gone from the archive.

        ``role``: the first one by default, if ``task`` is given. ``attempt``: of the Framework, by default the last
        one. ``follow``: continue until its end, also with later attempts. ``tail``: only the last lines of each Task.

        Raises:
            LogUnavailable: there is none, and why.
            InvalidSpec: the Framework has no such role.
        """
        body = await self._read()
        roles = [one["name"] for one in roles_of(body)]
        if role is not None and role not in roles:
            raise InvalidSpec([_no_role(role, roles)])
        if task is not None and role is None:
            role = next(iter(roles), None)
        logs = RunLogs(self._cluster.client, self._cluster.connection, body, (role, task), tail)
        follow = follow and attempt is None and not read_status(body).is_final
        async with aclosing(logs.follow() if follow else logs.past(attempt)) as lines:
            async for line in lines:
                yield line

    async def print_logs(self, file: TextIO | None = None) -> None:
        """Print the lines of all Tasks, as they come, until the end of the Framework. Raises the errors of `logs`."""
        async with aclosing(self.logs(follow=True)) as lines:
            async for line in lines:
                print(line, file=file, flush=True)

    async def scale(self, **roles: int) -> None:
        """Change the numbers of Tasks: ``scale(worker=5)``. Raises InvalidSpec if a role is unknown or autoscaled."""

        def change(spec: Json) -> list[Json]:
            places = {one["name"]: place for place, one in enumerate(spec["taskRoles"])}
            if unknown := [_no_role(role, places) for role in roles if role not in places]:
                raise InvalidSpec(unknown)
            if fixed := [_autoscaled(role) for role in roles if spec["taskRoles"][places[role]].get("autoscaling")]:
                raise InvalidSpec(fixed)
            return [
                {"op": "add", "path": f"/spec/taskRoles/{places[role]}/taskNumber", "value": number}
                for role, number in roles.items()
            ]

        await self._patch(change)

    async def stop(self) -> None:
        """Stop it permanently: it ends as Stopped, and its record stays."""
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
                await self._cluster.client.delete(
                    FRAMEWORKS, self.name, self.namespace, uid=self.uid, propagation="Foreground"
                )
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
            pods = await diagnose_pods(self._cluster.client, body, time.time)
        made = StringIO()
        tree = framework_tree(read_view(body, pods), time.time(), math.inf)
        Console(file=made, width=200, color_system=None, highlight=False).print(tree, soft_wrap=True)
        return made.getvalue().rstrip()

    async def events(self) -> list[KubeEvent]:
        """Return the Kubernetes Events about it, its attempt and its Pods, the oldest first."""
        with translated("list", EVENTS.plural, namespace=self.namespace):
            each = each_object(self._cluster.client, EVENTS, self.namespace)
            found = [event async for body in each if (event := read_event(body)).concerns(self.name)]
        return sorted(found, key=lambda event: event.seen)

    async def attempts(self) -> list[Attempt]:
        """Return its attempts in order: the archive's, and the last one."""
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

    async def _patch(self, change: Callable[[Json], list[Json]]) -> None:
        with translated("patch", names.PLURAL, name=self.name, namespace=self.namespace):
            try:
                await patch_spec(
                    self._cluster.client, self._read, lambda body: (change(body["spec"]), None), manager=MANAGER
                )
            except ContentionError as error:
                raise RequestRefused(str(error)) from None
        await self.refresh()

    async def _tail(self, failure: TaskFailure) -> tuple[str, ...]:
        """Return the last lines of the failed Task's log; none if there is no log within some seconds."""
        found: list[str] = []
        with suppress(Exception):
            async with (
                asyncio.timeout(_TAIL_SEC),
                aclosing(self.logs(role=failure.role, task=failure.task, tail=_TAIL_LINES)) as lines,
            ):
                async for line in lines:
                    found.append(line.text)  # noqa: PERF401 - those before an error count
        return tuple(found[-_TAIL_LINES:])


def no_logs(name: str, error: Exception) -> str:
    """Return the text for one of LOG_ERRORS."""
    return f"{name}: no more logs: {error}"


def _archived_attempt(one: Mapping[str, Any]) -> Attempt:
    begin, end = (None if one[key] is None else parse_time(one[key]) for key in ("started", "completed"))
    words = "" if one["code"] in (None, 0) else cause_in(one["diagnostics"] or "")
    return Attempt(one["id"], begin, end, one["code"], one["phrase"] or "", words)


def _no_role(role: str, roles: Iterable[str]) -> Problem:
    return Problem(("roles",), f"there is no such role{suggestion(role, roles)}", role)


def _autoscaled(role: str) -> Problem:
    return Problem(("roles",), "the role has autoscaling: scale its FrameworkRoleScaler", role)


def _notes(run: Run, result: Result) -> Iterator[str]:
    failure = result.first_failure
    if failure is not None:
        where = f" on {failure.node}" if failure.node else ""
        doubt = "" if failure.certain else " (another Task may have failed earlier)"
        yield f"first failure: {failure.name}{where}, attempt {failure.attempt}: {failure.message}{doubt}"
        if failure.rule:
            yield f"rule: {failure.rule}"
        if failure.log_tail:
            yield "\n".join(["last lines:", *(f"    {line}" for line in failure.log_tail)])
    yield f"retries: {result.retries}; more: kubectl framework status {run.name} -n {run.namespace}"
