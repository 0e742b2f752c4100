"""``frameworkcontroller dashboard``: the pages of a cluster, until a signal."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack

from frameworkcontroller.commands import program
from frameworkcontroller.commands.program import CommandError, UsageError
from frameworkcontroller.config.bindaddress import BindAddress, parse_bind_address
from frameworkcontroller.dashboard.live import LiveFrameworks
from frameworkcontroller.dashboard.past import PastSource, RemoteArchive
from frameworkcontroller.dashboard.serving import serve_pages
from frameworkcontroller.history.client import ArchiveClient, ArchiveURLError
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.connection import connect
from frameworkcontroller.webaccess.access import Access
from frameworkcontroller.webaccess.boundedserver import ServerError
from frameworkcontroller.webaccess.cluster_access import ClusterAccess
from frameworkcontroller.webaccess.loopback import is_loopback_address
from frameworkcontroller.webaccess.loopback_access import LoopbackAccess


def run(options: argparse.Namespace) -> int:
    """Serve them. Return the exit code."""
    return program.run_command(_run(options), interrupted=lambda _number: program.EXIT_OK)


async def _run(options: argparse.Namespace) -> int:
    address = listening_address(options.address)
    if options.namespace is not None and options.all_namespaces:
        raise UsageError("-n and -A exclude each other")
    kubeconfig = options.kubeconfig
    connection = await connect(kubeconfig=None if kubeconfig is None else str(kubeconfig), context=options.context)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(KubeClient(connection))
        past: PastSource | None = None
        if options.history is not None:
            past = RemoteArchive(await stack.enter_async_context(_archive(options.history)), options.history_token_file)
        live = LiveFrameworks(client, options.namespace)
        try:
            url, watch = await stack.enter_async_context(
                serve_pages(live, past, access_for(address, client, options.audience), address.host, address.port)
            )
        except ServerError as error:
            raise UsageError(f"--address {error}") from None
        print(f"The pages: {url}", flush=True)  # noqa: T201 - a command line speaks to its user
        if watch is None:
            raise RuntimeError("the pages have no watch")
        await watch
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


def access_for(address: BindAddress, client: KubeClient, audiences: Sequence[str] = ()) -> Access:
    """Return who may use a server on that address: on loopback this user, elsewhere those with a token."""
    return LoopbackAccess() if is_loopback_address(address.host) else ClusterAccess(client, audiences=audiences)


def _archive(url: str) -> ArchiveClient:
    """Return a client of the archive. Raise UsageError if the URL is invalid."""
    try:
        return ArchiveClient(url)
    except ArchiveURLError as error:
        raise UsageError(f"--history {url!r}: {error}") from None


async def open_browser(url: str) -> bool:
    """Open a browser at the URL. Return whether there is one."""
    import webbrowser

    # It may wait for the browser.
    return await asyncio.to_thread(webbrowser.open, url)
