"""``frameworkcontroller dashboard``: the pages of a cluster, until a signal."""

from __future__ import annotations

import argparse
from contextlib import AsyncExitStack
from typing import Final

from frameworkcontroller.cli.certificates import certificate_of
from frameworkcontroller.commands import program
from frameworkcontroller.commands.invocation import connect_as_kubectl
from frameworkcontroller.commands.program import CommandError, UsageError
from frameworkcontroller.config.bindaddress import BindAddress, parse_bind_address
from frameworkcontroller.dashboard.live import LiveFrameworks
from frameworkcontroller.dashboard.pages import Pages
from frameworkcontroller.history.archiveclient import ArchiveClient, ArchiveURLError
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.webaccess.boundedserver import BoundedServer, ListenError
from frameworkcontroller.webaccess.cluster_access import ClusterAccess
from frameworkcontroller.webaccess.loopback import is_loopback_address
from frameworkcontroller.webaccess.loopback_access import LoopbackAccess
from frameworkcontroller.webaccess.middleware import protect

_DRAIN_SEC: Final = 1.0


def run(options: argparse.Namespace) -> int:
    """Serve them. Return the exit code."""
    return program.run_command(_run(options), interrupted=lambda _number: program.EXIT_OK)


async def _run(options: argparse.Namespace) -> int:
    address = listening_address(options.address)
    certificate = certificate_of(options.tls_cert, options.tls_key)
    if options.namespace is not None and options.all_namespaces:
        raise UsageError("-n and -A exclude each other")
    connection = await connect_as_kubectl(options)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(KubeClient(connection))
        past = None if options.history is None else await stack.enter_async_context(_archive(options))
        live = LiveFrameworks(client, options.namespace)
        alone = LoopbackAccess() if is_loopback_address(address.host) else None
        access = alone or ClusterAccess(client, audiences=options.audience)
        app = Pages(live, past).application()
        protect(app, access)
        tls = None if certificate is None else certificate.context
        server = BoundedServer(app, address.host, address.port, tls=tls, drain_sec=_DRAIN_SEC)
        renewal = [] if certificate is None else [certificate.watch()]
        try:
            async with program.background(live.run(), *renewal) as (watch, *_), server:
                link = f"{server.url}/" if alone is None else alone.link(server.url)
                print(f"The pages: {link}", flush=True)  # noqa: T201 - a command line speaks to its user
                await watch
        except ListenError as error:
            raise UsageError(f"--address {error}") from None
    raise CommandError("the watch of Frameworks ended too early")


def listening_address(text: str) -> BindAddress:
    """Parse ``--address``. Raise UsageError if it is invalid."""
    try:
        address = parse_bind_address(text)
    except ValueError:
        address = None
    if address is None:
        raise UsageError(f"--address {text!r}: must be host:port, or :port for every address of this machine")
    return address


def _archive(options: argparse.Namespace) -> ArchiveClient:
    """Return a client of the archive. Raise UsageError if the URL is invalid."""
    try:
        return ArchiveClient(options.history, ca_file=options.history_ca_file, token_file=options.history_token_file)
    except ArchiveURLError as error:
        raise UsageError(f"--history {options.history!r}: {error}") from None
