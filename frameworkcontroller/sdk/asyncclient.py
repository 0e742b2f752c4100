"""Clusters, for asyncio. The synchronous classes (syncclient.py) call these."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Self

import orjson

from frameworkcontroller import __version__
from frameworkcontroller.api import names
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.kube.connection import connect as connection_of
from frameworkcontroller.sdk.asyncrun import LOG_ERRORS, MANAGER, Run, no_logs
from frameworkcontroller.sdk.definitions import Framework
from frameworkcontroller.sdk.exceptions import NotFound
from frameworkcontroller.sdk.localprocess import LocalProcess
from frameworkcontroller.sdk.ownedobjects import check_kind, provide
from frameworkcontroller.sdk.podtemplates import Json
from frameworkcontroller.sdk.runstatus import Result
from frameworkcontroller.sdk.translation import translated
from frameworkcontroller.views.paging import each_object


def connect(context: str | None = None, namespace: str | None = None, *, kubeconfig: str | None = None) -> Cluster:
    """Return the cluster that kubectl would use, or within a Pod its own. ``kubeconfig``: a path."""
    return Cluster(partial(connection_of, kubeconfig=kubeconfig, context=context), namespace)


def local(*, nodes: int = 1, capacity: Mapping[str, str | int] | None = None, keep: bool = False) -> Cluster:
    """Return a cluster on this machine, whose containers are processes. It ends with this process, or before.

    ``capacity``: of each node, such as ``{"cpu": 8, "nvidia.com/gpu": "auto"}``; None: requests do not count.
    ``keep``: it continues until it is killed. Needs the extra ``local``.
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
        if getattr(sys.modules.get("__main__"), "framework_task_imports", False):
            text = 'a Task imports this file: connect below `if __name__ == "__main__":`, or each Task submits again'
            raise RuntimeError(text)
        with translated():
            self.connection = await self._connect()
        self._client = await self._stack.enter_async_context(
            KubeClient(self.connection, user_agent=f"{MANAGER}/{__version__}")
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
            RequestRefused: an object is neither a ConfigMap nor a Secret.
        """
        if framework.code is not None:
            framework = framework.replaced(code=await asyncio.to_thread(framework.code.resolved))
        body, objects = framework.to_dict(), framework.all_objects()
        for one in objects:
            check_kind(one)
        if not self._needs_images:
            _fill_images(body)
        if replace and framework.name is not None:
            with suppress(NotFound):
                await (await self.get(framework.name)).delete()
        with translated("create", names.PLURAL, name=framework.name or "", namespace=self.namespace):
            created: Json = orjson.loads(await self.client.create(FRAMEWORKS, orjson.dumps(body), self.namespace))
        run = Run(self, created)
        try:
            for one in objects:
                await provide(self.client, self.namespace, one, created)
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
            try:
                await run.print_logs()
            except LOG_ERRORS as error:
                print(no_logs(run.name, error), file=sys.stderr)  # noqa: T201 - where logs are asked for
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


def _fill_images(body: Json) -> None:
    for role in body["spec"]["taskRoles"]:
        spec = role["task"]["pod"].get("spec") or {}
        for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
            container.setdefault("image", "local")
