"""The null client: sends the writes that running a Framework needs, as fast as it can, and does nothing else.

It watches nothing, decides nothing, and knows beforehand how everything ends. What it sends is what the controller has
to send: the same ConfigMap and Pods, byte for byte, and of status writes those that the contract requires to be
persisted, in the same sizes.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import orjson
import uvloop

from benchmarks.rpc import serve
from benchmarks.wire import Pool
from frameworkcontroller.api import names
from frameworkcontroller.api.codec import EncodedStatus
from frameworkcontroller.api.completion import POD_SUCCEEDED, CompletionStatus
from frameworkcontroller.api.objects import Framework
from frameworkcontroller.api.spec import parse_spec
from frameworkcontroller.api.status import FrameworkStatus, State, TaskStatus
from frameworkcontroller.config.config import Config
from frameworkcontroller.kube.client import JSON_PATCH
from frameworkcontroller.machine.framework import new_status
from frameworkcontroller.machine.manifests import PodTemplate, configmap_body
from frameworkcontroller.machine.model import Env
from frameworkcontroller.machine.scale import new_task

IN_FLIGHT: Final = 50

_GONE_EVERY_SEC: Final = 0.02
_SUCCEEDED: Final = CompletionStatus.of(POD_SUCCEEDED, "Pod succeeded")
_FOREGROUND: Final = orjson.dumps({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground"})


class _Job:
    """One Framework and its status as the null client writes it."""

    def __init__(self, body: dict[str, Any], env: Env) -> None:
        metadata = body["metadata"]
        self.framework = Framework(
            metadata["namespace"], metadata["name"], metadata["uid"], 1, False, parse_spec(body["spec"])
        )
        self.status: FrameworkStatus = new_status(self.framework, env)
        self.path = f"/apis/{names.API_VERSION}/namespaces/{metadata['namespace']}/frameworks/{metadata['name']}/status"
        self.core = f"/api/v1/namespaces/{metadata['namespace']}"

    @property
    def tasks(self) -> list[TaskStatus]:
        return self.status.attempt.roles[0].tasks

    def pod_path(self, task: TaskStatus) -> str:
        return f"{self.core}/pods/{names.pod_name(self.framework.name, 'a', task.index)}"

    @property
    def configmap_path(self) -> str:
        return f"{self.core}/configmaps/{names.configmap_name(self.framework.name)}"


class NullClient:
    """What is to be sent, command by command. Each returns when it began and ended (monotonic seconds)."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._env = Env(time.time(), time.monotonic(), random.Random(1), Config().plan_limits())
        self._jobs: list[_Job] = []

    # --- commands ---

    async def take(self, frameworks: list[dict[str, Any]]) -> None:
        """These are the Frameworks from now on, as the API server answered their creation."""
        self._env.now, self._env.clock = time.time(), time.monotonic()
        self._jobs = [_Job(body, self._env) for body in frameworks]

    async def launch(self) -> tuple[float, float]:
        """The first status, the ConfigMap, every Pod (ended is when all are there), and a status with their UIDs."""
        began = time.monotonic()
        ended = max(await self._all(self._launch))
        return began, ended

    async def show(self, state: str) -> tuple[float, float]:
        """A status that shows every Task in this state."""
        began = time.monotonic()
        for job in self._jobs:
            for task in job.tasks:
                _show(task, State(state))
            job.status.state = State.RUNNING
        await self._all(self._write)
        return began, time.monotonic()

    async def finish(self) -> tuple[float, float]:
        """Every Pod has ended: decide, delete the Pods, decide, delete the ConfigMap, show that it is Completed."""
        began = time.monotonic()
        await self._all(self._finish)
        return began, time.monotonic()

    async def replace(self) -> tuple[float, float]:
        """Every Pod is gone: show that, and make them anew."""
        began = time.monotonic()
        ended = max(await self._all(self._replace))
        return began, ended

    async def grow(self, to: int) -> tuple[float, float]:
        """Show that there are so many Tasks, and make the Pods of the new ones."""
        began = time.monotonic()
        job = self._jobs[0]
        added = [new_task("a", index, self._env) for index in range(len(job.tasks), to)]
        job.tasks.extend(added)
        await self._write(job)
        ended = await self._create_pods(job, added)
        await self._write(job)
        return began, ended

    async def shrink(self, to: int) -> tuple[float, float]:
        """Show that the surplus Tasks are to go, delete their Pods (which their node ends), show that they are gone."""
        began = time.monotonic()
        job = self._jobs[0]
        surplus = job.tasks[to:]
        for task in surplus:
            task.deletion_pending = True
            _show(task, State.DELETION_PENDING)
        await self._write(job)
        await self._pool.send_all(
            (self._pool.request("DELETE", job.pod_path(task)) for task in surplus), what="delete pods"
        )
        del job.tasks[to:]
        await self._write(job)
        return began, time.monotonic()

    async def counts(self) -> dict[str, Any]:
        """Requests and bytes sent so far, and CPU seconds used."""
        pool = self._pool
        return {"requests": dict(pool.sent), "bytes": dict(pool.sent_bytes), "cpu": time.process_time()}

    # --- inside ---

    async def _all(self, work: Callable[[_Job], Any]) -> list[Any]:
        return await asyncio.gather(*(work(job) for job in self._jobs))

    async def _launch(self, job: _Job) -> float:
        await self._write(job)
        attempt = job.status.attempt
        body = configmap_body(job.framework, attempt.id)
        answer = await self._pool.send(
            self._pool.request("POST", f"{job.core}/configmaps", body), what="create configmaps"
        )
        attempt.configmap_uid = answer.uid
        ended = await self._create_pods(job, job.tasks)
        job.status.state = State.PREPARING
        await self._write(job)
        return ended

    async def _create_pods(self, job: _Job, tasks: list[TaskStatus]) -> float:
        role = job.status.attempt.roles[0]
        template = PodTemplate(job.framework, job.status.attempt, job.framework.spec.task_roles[0], role.instance_uid)
        answers = await self._pool.send_all(
            (self._pool.request("POST", f"{job.core}/pods", template.render(task)) for task in tasks),
            what="create pods",
        )
        ended = time.monotonic()
        for task, answer in zip(tasks, answers, strict=True):
            task.attempt.pod_uid = answer.uid
            _show(task, State.CREATION_REQUESTED)
        return ended

    async def _replace(self, job: _Job) -> float:
        for task in job.tasks:
            task.attempt.completion_status = _SUCCEEDED
            _show(task, State.ATTEMPT_COMPLETED)
        await self._write(job)
        for task in job.tasks:
            task.attempt.completion_status = None
            task.attempt.pod_uid = None
            task.attempt.id += 1
            _show(task, State.CREATION_PENDING)
        await self._write(job)
        ended = await self._create_pods(job, job.tasks)
        await self._write(job)
        return ended

    async def _finish(self, job: _Job) -> None:
        attempt = job.status.attempt
        for task in job.tasks:
            task.attempt.completion_status = _SUCCEEDED
            _show(task, State.DELETION_PENDING)
        await self._write(job)
        await self._pool.send_all(
            (self._pool.request("DELETE", job.pod_path(task)) for task in job.tasks), what="delete pods", accept=(404,)
        )
        attempt.completion_status = _SUCCEEDED
        job.status.state = State.DELETION_PENDING
        for task in job.tasks:
            _show(task, State.COMPLETED)
        await self._write(job)
        await self._pool.send(self._pool.request("DELETE", job.configmap_path, _FOREGROUND), what="delete configmaps")
        # The garbage collector's part, which nobody is spared.
        look = self._pool.request("GET", job.configmap_path)
        while (await self._pool.send(look, what="get configmaps")).code != 404:  # noqa: ASYNC110 - another process
            await asyncio.sleep(_GONE_EVERY_SEC * max(1, len(self._jobs) // 20))
        job.status.state = State.COMPLETED
        await self._write(job)

    async def _write(self, job: _Job) -> None:
        status = EncodedStatus(job.framework.name, job.status, compress=True).body
        body = orjson.dumps([{"op": "add", "path": "/status", "value": orjson.Fragment(status)}])
        request = self._pool.request("PATCH", job.path, body, JSON_PATCH)
        answer = await self._pool.send(request, what="patch frameworks/status")
        if answer.code != 200:
            raise RuntimeError(f"status: {answer.text[:600]!r}")

    def handlers(self) -> dict[str, Callable[..., Any]]:
        """The commands by name."""
        commands: Iterable[Callable[..., Any]] = (
            self.take, self.launch, self.show, self.finish, self.replace, self.grow, self.shrink, self.counts,
        )  # fmt: skip
        return {command.__name__: command for command in commands}


def _show(task: TaskStatus, state: State) -> None:
    task.state = state
    task.encoded = None


async def _main(server: str, token: str, ca_file: str) -> None:
    await serve(NullClient(Pool(server, token, Path(ca_file), IN_FLIGHT)).handlers())


if __name__ == "__main__":
    uvloop.run(_main(*sys.argv[1:]))
