"""The API server: store, rules and controllers behind a loopback socket, on the running event loop."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import random
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self

import yaml
from aiohttp import web

from frameworkcontroller.local.apiserver import builtin_resources
from frameworkcontroller.local.apiserver.accounttokens import AccountTokens
from frameworkcontroller.local.apiserver.api_resources import ApiResource
from frameworkcontroller.local.apiserver.authentication import Authenticator
from frameworkcontroller.local.apiserver.claim_protection import ClaimProtection, ClaimStrategy
from frameworkcontroller.local.apiserver.crd_controller import Definitions, DefinitionStrategy
from frameworkcontroller.local.apiserver.disruption_budgets import BudgetStrategy, DisruptionController
from frameworkcontroller.local.apiserver.endpoints import Endpoint, Endpoints
from frameworkcontroller.local.apiserver.event_expiry import EventExpiry
from frameworkcontroller.local.apiserver.gc import GarbageCollector
from frameworkcontroller.local.apiserver.handlers import ResourceHandlers
from frameworkcontroller.local.apiserver.http_api import HttpApi, Served
from frameworkcontroller.local.apiserver.http_bodies import MAX_BODY_BYTES
from frameworkcontroller.local.apiserver.listening import accept_no_more
from frameworkcontroller.local.apiserver.metadata import Identities
from frameworkcontroller.local.apiserver.namespaces import (
    INITIAL_NAMESPACES,
    NamespaceController,
    NamespaceLifecycle,
    NamespaceStrategy,
)
from frameworkcontroller.local.apiserver.node_lifecycle import NodeLifecycle
from frameworkcontroller.local.apiserver.options import Call
from frameworkcontroller.local.apiserver.pod_disruption import PodGc, TaintEviction
from frameworkcontroller.local.apiserver.pod_logs import PodLogs
from frameworkcontroller.local.apiserver.pod_strategy import PodStrategy
from frameworkcontroller.local.apiserver.quotas import Quotas
from frameworkcontroller.local.apiserver.registry import Registry
from frameworkcontroller.local.apiserver.reviews import Reviews
from frameworkcontroller.local.apiserver.service_addresses import ServiceStrategy
from frameworkcontroller.local.apiserver.storage import ObjectStorage
from frameworkcontroller.local.apiserver.strategies import plain_strategy
from frameworkcontroller.local.apiserver.strategy import Strategy
from frameworkcontroller.local.apiserver.worker import ObjectController

_KEEP_ALIVE: Final = 3600.0
"""Longer than any client keeps an idle connection, so that the client closes it."""
_MAX_LINE: Final = 64 << 10
_BACKLOG: Final = 1024

_log = logging.getLogger(__name__)


class ApiServer:
    """A Kubernetes API server in this process.

    Its state is in :attr:`storage`: a new server on the same storage continues after a stop, as after a restart.
    """

    def __init__(
        self,
        *,
        wall: Callable[[], float] = time.time,
        host: str = "127.0.0.1",
        port: int = 0,
        storage: ObjectStorage | None = None,
        history: int = 10_000,
        bookmark_interval: float = 60.0,
        authenticator: Authenticator | None = None,
        rng: random.Random | None = None,
        logs: PodLogs | None = None,
        gc_delay: float = 0.0,
        node_lifecycle: bool = False,
        audit: bool = False,
        observe: Callable[[Served], None] | None = None,
    ) -> None:
        """Create a server without starting it.

        Args:
            wall: the time of day, in seconds since the epoch.
            host: a loopback address. Raises ValueError for others.
            port: 0 for any free one.
            storage: of an earlier server; None for an empty one.
            history: number of changes kept per resource; watches from older ones get 410.
            bookmark_interval: seconds between the bookmarks of a watch.
            authenticator: authentication; None for this process's user, root, and a random token.
            rng: source of uids and generated names; seed it for reproducible runs.
            logs: reads the logs of Pods.
            gc_delay: the garbage collector's delay in seconds.
            node_lifecycle: mark nodes without heartbeats as lost, and delete the Pods of tainted and removed nodes.
            audit: keep every accepted write in ``storage.audit``.
            observe: called with each answered request.
        """
        if not ipaddress.ip_address(host).is_loopback:
            raise ValueError(f"the embedded API server serves loopback addresses only, not {host}")
        self.storage = storage if storage is not None else ObjectStorage(history=history, audit=audit)
        self._host = host
        self._port = port
        self.authenticator = authenticator if authenticator is not None else Authenticator()
        source = rng if rng is not None else random.Random()
        endpoints = Endpoints(Endpoint(t, _strategy(t, self.storage)) for t in builtin_resources.BUILTIN_RESOURCES)
        self.registry = Registry(self.storage, endpoints, wall, Identities(source))
        self._definitions = Definitions(self.registry)
        self._quotas = Quotas(self.registry)
        self._namespaces = NamespaceController(self.registry)
        self.gc = GarbageCollector(self.registry, delay=gc_delay)
        self._expiry = EventExpiry(self.storage)
        self._controllers: tuple[ObjectController[Any], ...] = (
            self._definitions,
            self._quotas,
            self._namespaces,
            self.gc,
            ClaimProtection(self.registry),
            DisruptionController(self.registry),
        )
        if node_lifecycle:
            of_nodes = NodeLifecycle(self.registry), TaintEviction(self.registry), PodGc(self.registry)
            self._controllers = (*self._controllers, *of_nodes)
        self.registry.admission = [NamespaceLifecycle(self.registry), self._definitions, self._quotas]
        self._handlers = ResourceHandlers(self.registry, source, bookmark_interval)
        self.reviews = Reviews(self.authenticator.token, {}, AccountTokens(self.registry, wall))
        self._api = HttpApi(
            self.registry, self._handlers, self.authenticator, reviews=self.reviews, logs=logs, observe=observe
        )
        self._runner: web.ServerRunner | None = None
        self._listeners: tuple[socket.socket, ...] = ()
        self._provide_namespaces()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen and start to work. A server starts only once. Raises OSError if the port is taken."""
        server = web.Server(
            self._api.handle,
            request_factory=self._request,
            # Cancels watches whose clients have gone.
            handler_cancellation=True,
            keepalive_timeout=_KEEP_ALIVE,
            max_line_size=_MAX_LINE,
            max_field_size=_MAX_LINE,
            access_log=None,
            tcp_keepalive=False,
        )
        runner = web.ServerRunner(server, handle_signals=False, shutdown_timeout=1.0)
        await runner.setup()
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        listener = socket.create_server((self._host, self._port), family=family, backlog=_BACKLOG)
        self._port = listener.getsockname()[1]
        site = web.SockSite(runner, listener, backlog=_BACKLOG)
        await site.start()
        self._runner = runner
        self._listeners = (listener,)
        for controller in self._controllers:
            controller.start()
        self._expiry.start()

    async def stop(self, *, abort: bool = False) -> None:
        """End all watches and connections, and stop working.

        ``abort`` cuts off answers in progress, as if the process was killed.
        """
        for part in (self._expiry, *reversed(self._controllers)):
            part.stop()
        runner, self._runner = self._runner, None
        if runner is None:
            return
        await accept_no_more(self._listeners)
        if abort and runner.server is not None:
            for connection in runner.server.connections:
                if connection.transport is not None:
                    connection.transport.abort()
        self._handlers.end_watches()
        await runner.cleanup()

    def settle(self) -> None:
        """Do all pending work of the server's controllers now, without the event loop."""
        while any(controller.drain() for controller in self._controllers):
            pass

    @property
    def logs(self) -> PodLogs | None:
        """The reader of Pod logs; may be set while the server runs."""
        return self._api.logs

    @logs.setter
    def logs(self, logs: PodLogs | None) -> None:
        self._api.logs = logs

    @property
    def url(self) -> str:
        """``http://ADDRESS:PORT``, once started."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}"

    @property
    def watches(self) -> int:
        """The number of active watches."""
        return self._handlers.watches

    def kubeconfig(self, name: str = "frameworkcontroller-local") -> str:
        """A kubeconfig for this server, as YAML; ``name`` is its only context."""
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": self.url}}],
            "users": [{"name": name, "user": {"token": self.authenticator.token}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}],
            "current-context": name,
        }
        return yaml.safe_dump(document, sort_keys=False)

    def write_kubeconfig(self, path: Path) -> None:
        """Write :meth:`kubeconfig` to a file that only its owner can read."""
        path.touch(mode=0o600)
        path.chmod(0o600)
        path.write_text(self.kubeconfig(), encoding="utf-8")

    def _request(
        self,
        message: object,
        payload: object,
        protocol: object,
        writer: object,
        task: asyncio.Task[None],
    ) -> web.BaseRequest:
        return web.BaseRequest(
            message,  # type: ignore[arg-type]  # aiohttp names these types nowhere in public
            payload,  # type: ignore[arg-type]  # as above
            protocol,  # type: ignore[arg-type]  # as above
            writer,  # type: ignore[arg-type]  # as above
            task,
            asyncio.get_running_loop(),
            client_max_size=MAX_BODY_BYTES,
        )

    def _provide_namespaces(self) -> None:
        endpoint = self.registry.endpoints.of_resource(builtin_resources.NAMESPACES.resource)
        if endpoint is None:
            return
        for name in INITIAL_NAMESPACES:
            if self.storage.get(endpoint.resource, name) is None:
                self.registry.create(endpoint, "", {"metadata": {"name": name}}, Call("create", "kube-apiserver"))


def _strategy(t: ApiResource, storage: ObjectStorage) -> Strategy:
    match t.resource:
        case builtin_resources.PODS.resource:
            return PodStrategy()
        case builtin_resources.NAMESPACES.resource:
            return NamespaceStrategy()
        case builtin_resources.SERVICES.resource:
            return ServiceStrategy(storage)
        case builtin_resources.PODDISRUPTIONBUDGETS.resource:
            return BudgetStrategy()
        case builtin_resources.PERSISTENTVOLUMECLAIMS.resource:
            return ClaimStrategy()
        case builtin_resources.CRDS.resource:
            return DefinitionStrategy()
    return plain_strategy(t)
