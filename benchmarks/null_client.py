"""The null client: sends the writes that running a Framework needs, as fast as it can, and does nothing else.

It watches nothing, decides nothing, and knows beforehand how everything ends. What it sends is what the controller has
to send: the same ConfigMap and Pods, byte for byte, and status writes in the same sizes. A Framework has four: one
before its first Pod, one when all Pods run, one before its Pods are deleted, and Completed. A client that must learn
of each step before it acts needs more.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import orjson
import uvloop

from benchmarks.rpc import serve
from benchmarks.wire import LIST_METADATA_ONLY, Pool
from frameworkcontroller.api import names
from frameworkcontroller.api.codec import EncodedStatus
from frameworkcontroller.api.completion import POD_SUCCEEDED, CompletionStatus
from frameworkcontroller.api.objects import Framework
from frameworkcontroller.api.spec import parse_spec
from frameworkcontroller.api.status import FrameworkStatus, State, TaskStatus
from frameworkcontroller.config.config import Config
from frameworkcontroller.kube.client import JSON_PATCH
from frameworkcontroller.machine.kernel.manifests import PodTemplate, configmap_body
from frameworkcontroller.machine.kernel.model import Env
from frameworkcontroller.machine.nextattempt import new_status
from frameworkcontroller.machine.scale import new_task

IN_FLIGHT: Final = 64

_GONE_EVERY_SEC: Final = 0.02
_GONE_FACTOR: Final = 10.0
"""The pause between looks for ConfigMaps that are gone: at least, and as a multiple of the time that one took."""

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
    def configmap(self) -> str:
        return names.configmap_name(self.framework.name)


class NullClient:
    """What is to be sent for the Frameworks of a namespace, command by command."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._env = Env(time.time(), time.monotonic(), random.Random(1), Config().plan_limits())
        self._jobs: dict[str, list[_Job]] = {}

    # --- commands ---

    async def launch(self, namespace: str, frameworks: list[dict[str, Any]], *, show: bool = False) -> float:
        """The first status, the ConfigMap and the Pods of Frameworks, as the API server answered their creation.

        Returns when all Pods are there (monotonic seconds). ``show``: then a status that shows them Running.
        """
        self._env.now, self._env.clock = time.time(), time.monotonic()
        jobs = [_Job(body, self._env) for body in frameworks]
        self._jobs.setdefault(namespace, []).extend(jobs)

        async def work(job: _Job) -> float:
            ended = await self._launch(job)
            if show:
                await self._show(job)
            return ended

        return max(await asyncio.gather(*map(work, jobs)))

    async def show(self, namespace: str) -> float:
        """A status that shows every Task Running; when it is stored."""
        await asyncio.gather(*map(self._show, self._jobs[namespace]))
        return time.monotonic()

    async def finish(self, namespace: str) -> float:
        """Every Pod has ended: decide, delete Pods and ConfigMap, show that it is Completed; when that is stored."""
        jobs = self._jobs[namespace]
        gone = {job.configmap: asyncio.Event() for job in jobs}
        async with asyncio.TaskGroup() as group:
            group.create_task(self._look(jobs[0].core, gone))
            for job in jobs:
                group.create_task(self._finish(job, gone[job.configmap]))
        return time.monotonic()

    async def replace(self, namespace: str) -> float:
        """Every Pod is gone: show that, begin the next attempts, and make the Pods anew; when all are there."""
        job = self._jobs[namespace][0]
        for task in job.tasks:
            task.attempt.completion_status = _SUCCEEDED
            _set(task, State.ATTEMPT_COMPLETED)
        await self._write(job)
        for task in job.tasks:
            task.attempt.completion_status = None
            task.attempt.pod_uid = None
            task.attempt.id += 1
            _set(task, State.CREATION_PENDING)
        await self._write(job)
        return await self._create_pods(job, job.tasks)

    async def grow(self, namespace: str, to: int) -> float:
        """Show that there are so many Tasks, and make the Pods of the new ones; when all are there."""
        job = self._jobs[namespace][0]
        added = [new_task("a", index, self._env) for index in range(len(job.tasks), to)]
        job.tasks.extend(added)
        await self._write(job)
        return await self._create_pods(job, added)

    async def shrink(self, namespace: str, to: int) -> None:
        """Show that the surplus Tasks are to go, and delete their Pods, which their node ends."""
        job = self._jobs[namespace][0]
        surplus = job.tasks[to:]
        for task in surplus:
            task.is_leaving = True
            _set(task, State.DELETION_PENDING)
        await self._write(job)
        await self._delete_pods(job, surplus)
        del job.tasks[to:]

    async def forget(self, namespace: str) -> None:
        """The namespace is of no interest any more. The next one begins without connections, as a new controller."""
        self._jobs.pop(namespace, None)
        await self._pool.close()

    async def counts(self) -> dict[str, Any]:
        """Requests and bytes sent so far, and CPU seconds used."""
        pool = self._pool
        return {"requests": pool.sent, "bytes": pool.sent_bytes.total(), "cpu": time.process_time()}

    # --- inside ---

    async def _launch(self, job: _Job) -> float:
        await self._write(job)
        attempt = job.status.attempt
        body = configmap_body(job.framework, attempt.id, {})
        answer = await self._pool.send(
            self._pool.request("POST", f"{job.core}/configmaps", body), what="create configmaps"
        )
        attempt.configmap_uid = answer.uid
        return await self._create_pods(job, job.tasks)

    async def _show(self, job: _Job) -> None:
        for task in job.tasks:
            _set(task, State.RUNNING)
        job.status.state = State.RUNNING
        await self._write(job)

    async def _finish(self, job: _Job, gone: asyncio.Event) -> None:
        attempt = job.status.attempt
        for task in job.tasks:
            task.attempt.completion_status = _SUCCEEDED
            _set(task, State.DELETION_PENDING)
        attempt.completion_status = _SUCCEEDED
        job.status.state = State.DELETION_PENDING
        await self._write(job)
        await self._delete_pods(job, job.tasks)
        path = f"{job.core}/configmaps/{job.configmap}"
        await self._pool.send(self._pool.request("DELETE", path, _FOREGROUND), what="delete configmaps")
        # The garbage collector's part, which nobody is spared.
        await gone.wait()
        for task in job.tasks:
            _set(task, State.COMPLETED)
        job.status.state = State.COMPLETED
        await self._write(job)

    async def _look(self, core: str, gone: Mapping[str, asyncio.Event]) -> None:
        """Tell which ConfigMaps of the namespace are gone, until all are, by lists from the API server's cache."""
        look = self._pool.request("GET", f"{core}/configmaps?resourceVersion=0", accept=LIST_METADATA_ONLY)
        while waiting := [name for name, event in gone.items() if not event.is_set()]:
            began = time.monotonic()
            answer = await self._pool.send(look, what="list configmaps")
            there = {item["metadata"]["name"] for item in orjson.loads(answer.body)["items"] or ()}
            for name in waiting:
                if name not in there:
                    gone[name].set()
            if there:
                await asyncio.sleep(max(_GONE_EVERY_SEC, _GONE_FACTOR * (time.monotonic() - began)))

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
        return ended

    async def _delete_pods(self, job: _Job, tasks: list[TaskStatus]) -> None:
        requests = (self._pool.request("DELETE", job.pod_path(task)) for task in tasks)
        await self._pool.send_all(requests, what="delete pods", accept=(404,))

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
            self.launch, self.show, self.finish, self.replace, self.grow, self.shrink, self.forget, self.counts,
        )  # fmt: skip
        return {command.__name__: command for command in commands}


def _set(task: TaskStatus, state: State) -> None:
    task.state = state
    task.encoded = None


async def _main(server: str, token: str, ca_file: str) -> None:
    await serve(NullClient(Pool(server, token, Path(ca_file), IN_FLIGHT)).handlers())


if __name__ == "__main__":
    uvloop.run(_main(*sys.argv[1:]))
