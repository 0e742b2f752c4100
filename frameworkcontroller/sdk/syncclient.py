"""Clusters and submitted Frameworks, without asyncio: each method calls the one of asyncclient.py or asyncrun.py."""

from __future__ import annotations

import sys
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Self, TypeVar

from frameworkcontroller.sdk import asyncclient, asyncrun, display
from frameworkcontroller.sdk.background import LoopThread, loop_thread
from frameworkcontroller.sdk.definitions import Framework
from frameworkcontroller.sdk.runstatus import Attempt, LogLine, Result, Status
from frameworkcontroller.views.kubeevents import KubeEvent

T = TypeVar("T")


def connect(context: str | None = None, namespace: str | None = None, *, kubeconfig: str | None = None) -> Cluster:
    """Return the cluster that kubectl would use, or within a Pod its own.

    ``kubeconfig``: a path. Raises Unreachable if no cluster is configured.
    """
    return Cluster(asyncclient.connect(context, namespace, kubeconfig=kubeconfig))


def local(*, nodes: int = 1, capacity: Mapping[str, str | int] | None = None, keep: bool = False) -> Cluster:
    """Start a cluster on this machine, whose containers are processes. It ends with this process, or with `close`.

    ``capacity``: of each node, such as ``{"cpu": 8, "nvidia.com/gpu": "auto"}``; None: requests do not count.
    ``keep``: it continues until it is killed. Needs the extra ``local``. Raises Unreachable if it cannot start.
    """
    return Cluster(asyncclient.local(nodes=nodes, capacity=capacity, keep=keep))


class Cluster:
    """A namespace of a cluster. `close` it, or use it within ``with``. Threads may share it."""

    def __init__(self, cluster: asyncclient.Cluster) -> None:
        """Use `connect` or `local`."""
        self._thread = loop_thread()
        self._cluster = cluster
        self._thread.call(cluster.__aenter__())
        self._thread.opened.add(cluster)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; a local cluster ends. After a fork, they stay with the parent."""
        if self._thread.works:
            self._thread.call(self._cluster.__aexit__())
            self._thread.opened.discard(self._cluster)

    @property
    def namespace(self) -> str:
        """The namespace of its Frameworks: as given, or of the kubeconfig's context."""
        return self._cluster.namespace

    def submit(self, framework: Framework, *, replace: bool = False) -> Run:
        """Create the Framework with its code. Return once the API server has it.

        ``replace``: delete one of the same name before, and wait until it is gone.

        Raises:
            InvalidSpec: the controller or the API server refuses it.
            AlreadyExists: one of its name exists, or an object that it brings.
        """
        return Run(self._thread, self._thread.call(self._cluster.submit(framework, replace=replace)))

    def run(self, framework: Framework, *, logs: bool = True, replace: bool = False) -> Result:
        """Submit the Framework, print the logs of its Tasks meanwhile unless ``logs`` is false, and return the result.

        An interrupt leaves it running. Raises FrameworkFailed if it has failed or was stopped.
        """
        run = self.submit(framework, replace=replace)
        if logs:
            try:
                for line in run.logs(follow=True):
                    print(line, flush=True)  # noqa: T201 - asked for
            except asyncrun.LOG_ERRORS as error:
                print(asyncrun.no_logs(run.name, error), file=sys.stderr)  # noqa: T201 - where logs are asked for
        return run.result()

    def get(self, name: str) -> Run:
        """Return the Framework of that name. Raises NotFound."""
        return Run(self._thread, self._thread.call(self._cluster.get(name)))

    def list(self, selector: str | None = None) -> list[Run]:
        """Return the Frameworks of the namespace, the oldest first. ``selector``: of labels, as kubectl's ``-l``."""
        return [Run(self._thread, run) for run in self._thread.call(self._cluster.list(selector))]


class Run:
    """A submitted Framework. As a context manager it is deleted at the end of the block."""

    def __init__(self, thread: LoopThread, run: asyncrun.Run) -> None:
        """Use the methods of a cluster."""
        self._thread = thread
        self._run = run
        self._is_entered = False
        self.name: Final = run.name
        self.namespace: Final = run.namespace
        self.uid: Final = run.uid

    @property
    def status(self) -> Status:
        """The last status that was read."""
        return self._run.status

    def __repr__(self) -> str:
        return repr(self._run)

    def _repr_html_(self) -> str:
        return display.html(self.name, self.status)

    def __enter__(self) -> Self:
        self._is_entered = True
        return self

    def __exit__(self, *exc: object) -> None:
        self._call(self._run.__aexit__(*exc))

    def refresh(self) -> Status:
        """Read the status. Raises NotFound if the Framework is gone."""
        return self._call(self._run.refresh())

    def watch(self) -> Iterator[Status]:
        """Yield the status, and then each change of it, until the end of the Framework.

        Outages of the API server are waited out, for five minutes. Raises NotFound if it was deleted before its end.
        """
        with self._noted():
            yield from self._thread.iterate(self._run.watch())

    def logs(
        self,
        *,
        role: str | None = None,
        task: int | None = None,
        attempt: int | None = None,
        follow: bool = False,
        tail: int | None = None,
    ) -> Iterator[LogLine]:
        """Yield the lines of the Tasks' logs, of Pods that are gone from the archive.

        ``attempt``: of the Framework, by default the last one. ``follow``: continue until its end, also with later
        attempts. ``tail``: only the last lines of each Task. Raises LogUnavailable if there is none.
        """
        lines = self._run.logs(role=role, task=task, attempt=attempt, follow=follow, tail=tail)
        with self._noted():
            yield from self._thread.iterate(lines)

    def wait(self, until: str = "final", timeout: float | None = None) -> Status:
        """Wait until the Framework is in this phase, or over. ``until``: a phase, or "final". ``timeout``: seconds.

        Raises:
            WaitTimeout: it was not, in time.
            NotFound: it was deleted meanwhile.
        """
        return self._call(self._run.wait(until, timeout))

    def result(self, timeout: float | None = None) -> Result:
        """Wait for the end, and return the result.

        Raises:
            FrameworkFailed: it has failed or was stopped.
            WaitTimeout: it has not ended in time.
        """
        return self._call(self._run.result(timeout))

    def scale(self, **roles: int) -> None:
        """Change the numbers of Tasks: ``scale(worker=5)``. Raises InvalidSpec if a role is unknown."""
        self._call(self._run.scale(**roles))

    def stop(self) -> None:
        """Stop it permanently: it ends as Stopped, and its record stays."""
        self._call(self._run.stop())

    def suspend(self) -> None:
        """Stop its Pods until `resume`, at no retry."""
        self._call(self._run.suspend())

    def resume(self) -> None:
        """Let a suspended Framework run."""
        self._call(self._run.resume())

    def delete(self, *, wait: bool = True) -> None:
        """Delete it with its Pods. ``wait``: until all of it is gone. Nothing happens if it is gone."""
        self._call(self._run.delete(wait=wait))

    def explain(self) -> str:
        """Return how it is and why, as ``kubectl framework status`` shows it."""
        return self._call(self._run.explain())

    def events(self) -> list[KubeEvent]:
        """Return the Kubernetes Events about it, its attempt and its Pods, the oldest first."""
        return self._call(self._run.events())

    def attempts(self) -> list[Attempt]:
        """Return its attempts, the first one first: those that the archive has, and the last one."""
        return self._call(self._run.attempts())

    def show(self) -> None:
        """Show it until its end: one picture that changes, in notebooks and terminals; else a line for each change."""
        display.show(self.name, self.watch())

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        with self._noted():
            return self._thread.call(work)

    @contextmanager
    def _noted(self) -> Iterator[None]:
        """Note at an interrupt how to find the Framework, unless a ``with`` block deletes it."""
        try:
            yield
        except KeyboardInterrupt as interrupt:
            if not self._is_entered:
                where = f"kubectl framework status {self.name} -n {self.namespace}"
                interrupt.add_note(f"{self.name} continues: {where}, or connect().get({self.name!r})")
            raise
