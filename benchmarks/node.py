"""A simulated node, in a process of its own: Pods bound to it run, end and go as it is told.

Leaner than ``frameworkcontroller.local.kubelet`` (one status write where that makes one, but as ready-made bytes), so
that it takes as little as possible of a machine on which it is not what is measured. Its Pods name it (``nodeName``),
so that nobody has to bind them.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson
import uvloop

from benchmarks.kubelet import log_endpoint
from benchmarks.rpc import serve
from benchmarks.wire import Answer, Pool
from frameworkcontroller.api import names
from frameworkcontroller.kube.client import STRATEGIC_PATCH, KubeClient
from frameworkcontroller.kube.connection import connect
from frameworkcontroller.kube.informer import Informer
from frameworkcontroller.kube.resources import PODS

NAME: Final = "bench"
IN_FLIGHT: Final = 24

_TERMINAL: Final = frozenset({"Succeeded", "Failed"})
_TIME: Final = "2026-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class _Pod:
    key: str
    uid: str
    resource_version: str
    phase: str
    deleting: bool


def _decode(body: dict[str, Any]) -> _Pod:
    metadata = body["metadata"]
    return _Pod(
        f"{metadata['namespace']}/{metadata['name']}",
        metadata["uid"],
        metadata["resourceVersion"],
        body["status"].get("phase", ""),
        metadata.get("deletionTimestamp") is not None,
    )


@dataclass
class _Tally:
    """When the n-th Pod of a namespace was first seen so (monotonic seconds, which all processes share)."""

    seen: dict[str, dict[str, float]] = field(default_factory=dict)
    waiting: list[tuple[str, int, asyncio.Future[float]]] = field(default_factory=list)

    def note(self, what: str, uid: str) -> None:
        times = self.seen.setdefault(what, {})
        if uid in times:
            return
        times[uid] = time.monotonic()
        for waiter in [one for one in self.waiting if one[0] == what and len(times) >= one[1]]:
            self.waiting.remove(waiter)
            waiter[2].set_result(times[uid])


class Node:
    """What runs the Pods of every namespace, each as its mode says."""

    def __init__(self, client: KubeClient, pool: Pool) -> None:
        self._pool = pool
        self.port = 0
        """Of its log endpoint, 0 without one."""
        self._pods = Informer(client, PODS, _decode, label_selector=names.FRAMEWORK_NAME)
        self._pods.add_handler(on_add=self._added, on_update=self._updated, on_delete=self._deleted)
        self._tallies: dict[str, _Tally] = {}
        self._held: set[str] = set()
        self._lasting: dict[str, float] = {}
        self._asked: set[tuple[str, str]] = set()
        self._tasks: set[asyncio.Task[Answer]] = set()

    async def run(self) -> None:
        """Run until cancelled."""
        await self._pods.run()

    # --- commands ---

    async def synced(self) -> None:
        """Wait until the Pods that exist are known."""
        await self._pods.wait_synced()

    async def log_port(self) -> int:
        """The port of its log endpoint."""
        return self.port

    async def mode(self, namespace: str, *, hold: bool = False, lasting: float | None = None) -> None:
        """``hold``: start nothing by itself. ``lasting``: Pods succeed so many seconds after they ran."""
        (self._held.add if hold else self._held.discard)(namespace)
        self._lasting.pop(namespace, None)
        if lasting is not None:
            self._lasting[namespace] = lasting

    async def when(self, namespace: str, what: str, count: int) -> float:
        """Wait until so many Pods were seen ``created``, ``running``, ``ended`` or ``gone``; since when."""
        tally = self._tally(namespace)
        times = tally.seen.get(what, {})
        if len(times) >= count:
            return sorted(times.values())[count - 1]
        future: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        tally.waiting.append((what, count, future))
        return await future

    async def times(self, namespace: str, what: str) -> list[float]:
        """When each Pod was first seen so."""
        return sorted(self._tally(namespace).seen.get(what, {}).values())

    async def start(self, namespace: str, name: str) -> tuple[float, float]:
        """Let a held Pod run; when its status was accepted, and when the watch showed it."""
        pod = self._pods.lister.get(f"{namespace}/{name}")
        assert pod is not None, name
        await self._write(pod, "Running")
        answered = time.monotonic()
        while pod.uid not in self._tally(namespace).seen.get("running", {}):  # noqa: ASYNC110 - for some microseconds
            await asyncio.sleep(0)
        return answered, self._tally(namespace).seen["running"][pod.uid]

    async def end(self, namespace: str) -> None:
        """Let every running Pod of the namespace succeed."""
        for pod in self._in(namespace):
            if pod.phase == "Running" and not pod.deleting:
                self._do(pod, "Succeeded")

    async def delete(self, namespace: str) -> float:
        """Delete every Pod of the namespace, as somebody else would; when the first request was sent."""
        began = time.monotonic()
        await self._pool.send_all(
            (self._pool.request("DELETE", _path(pod)) for pod in self._in(namespace)), what="delete", accept=(404,)
        )
        return began

    async def touch(self, namespace: str, count: int, per_second: float, seconds: float) -> int:
        """Write so many times a second a new status of one of ``count`` Pods ``foreign-N``; how many writes it were."""
        began = time.monotonic()
        done = 0
        while (elapsed := time.monotonic() - began) < seconds:
            while done < elapsed * per_second:
                body = orjson.dumps({"status": {"message": f"change {done}"}})
                path = f"/api/v1/namespaces/{namespace}/pods/foreign-{done % count}/status"
                self._spawn(self._pool.send(self._pool.merge_patch(path, body), what="touch"))
                done += 1
            await asyncio.sleep(0.005)
        return done

    async def forget(self, namespace: str) -> None:
        """The namespace is of no interest any more."""
        self._tallies.pop(namespace, None)

    # --- what the Pods do ---

    def _added(self, pod: _Pod) -> None:
        self._note("created", pod)
        self._look(pod)

    def _updated(self, _old: _Pod, pod: _Pod) -> None:
        self._look(pod)

    def _deleted(self, pod: _Pod, _final: _Pod | None) -> None:
        self._note("gone", pod)
        self._asked = {one for one in self._asked if one[0] != pod.uid} if len(self._asked) > 100_000 else self._asked

    def _look(self, pod: _Pod) -> None:
        namespace = pod.key.partition("/")[0]
        if pod.deleting:
            if pod.phase not in _TERMINAL:
                self._do(pod, "deleted")
        elif pod.phase == "Pending" and namespace not in self._held:
            self._do(pod, "Running")
        elif pod.phase == "Running":
            self._note("running", pod)
            if namespace in self._lasting:
                asyncio.get_running_loop().call_later(self._lasting[namespace], self._do, pod, "Succeeded")
        elif pod.phase in _TERMINAL:
            self._note("ended", pod)

    def _do(self, pod: _Pod, what: str) -> None:
        if (pod.uid, what) not in self._asked:
            self._asked.add((pod.uid, what))
            if what == "deleted":
                self._spawn(self._pool.send(self._pool.request("DELETE", _path(pod), _NOW), what="delete"))
            else:
                self._spawn(self._write(pod, what))

    async def _write(self, pod: _Pod, phase: str) -> Answer:
        body = orjson.dumps({"metadata": {"uid": pod.uid}, "status": pod_status(pod.uid, phase)})
        request = self._pool.request("PATCH", _path(pod) + "/status", body, STRATEGIC_PATCH)
        answer = await self._pool.send(request, what="status")
        if answer.code not in (200, 404, 409):
            raise RuntimeError(f"status of {pod.key}: {answer.text[:600]!r}")
        return answer

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Answer]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            print(f"node: {task.exception()!r}", file=sys.stderr)

    def _in(self, namespace: str) -> list[_Pod]:
        return [pod for pod in self._pods.lister.values() if pod.key.startswith(namespace + "/")]

    def _tally(self, namespace: str) -> _Tally:
        return self._tallies.setdefault(namespace, _Tally())

    def _note(self, what: str, pod: _Pod) -> None:
        self._tally(pod.key.partition("/")[0]).note(what, pod.uid)

    def handlers(self) -> dict[str, Callable[..., Any]]:
        """The commands by name."""
        commands: Iterable[Callable[..., Any]] = (
            self.synced, self.log_port, self.mode, self.when, self.times, self.start, self.end, self.delete, self.touch,
            self.forget,
        )  # fmt: skip
        return {command.__name__: command for command in commands}


_NOW: Final = orjson.dumps({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})


def _path(pod: _Pod) -> str:
    namespace, _, name = pod.key.partition("/")
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def pod_status(uid: str, phase: str) -> dict[str, Any]:
    """About what a kubelet writes of a Pod with one container."""
    number = int(uid[:6], 16)
    address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    over = phase in _TERMINAL
    reason = {"reason": "PodCompleted"} if over else {}
    running = {"running": {"startedAt": _TIME}}
    terminated = {
        "terminated": {
            "exitCode": 0,
            "reason": "Completed",
            "startedAt": _TIME,
            "finishedAt": _TIME,
            "containerID": f"sim://{uid}",
        }
    }
    return {
        "phase": phase,
        "hostIP": "10.255.0.1",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": _TIME,
        "conditions": [
            {
                "type": kind,
                "status": "False" if over and "Ready" in kind else "True",
                "lastProbeTime": None,
                "lastTransitionTime": _TIME,
                **reason,
            }
            for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
        ],
        "containerStatuses": [
            {
                "name": "main",
                "image": "none",
                "imageID": "sim://none",
                "containerID": f"sim://{uid}",
                "restartCount": 0,
                "ready": not over,
                "started": not over,
                "lastState": {},
                "state": terminated if over else running,
            }
        ],
    }


async def _main(kubeconfig: str, server: str, token: str, ca_file: str, folder: str = "") -> None:
    """``folder``: for the certificates of its log endpoint, "" for none."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(KubeClient(await connect(kubeconfig=kubeconfig, environ={})))
        node = Node(client, Pool(server, token, Path(ca_file), IN_FLIGHT))
        if folder:
            node.port = await stack.enter_async_context(log_endpoint(Path(folder)))
        running = asyncio.create_task(node.run())
        await serve(node.handlers())
        running.cancel()


if __name__ == "__main__":
    uvloop.run(_main(*sys.argv[1:]))
