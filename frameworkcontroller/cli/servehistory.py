"""``frameworkcontroller history serve``: run the archive until a signal."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import shutil
import time
from collections.abc import Coroutine
from contextlib import AsyncExitStack, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final

from frameworkcontroller.api.quantities import parse_quantity
from frameworkcontroller.cli.certificates import certificate_of
from frameworkcontroller.cli.dashboard import listening_address
from frameworkcontroller.commands import program
from frameworkcontroller.commands.program import UsageError
from frameworkcontroller.dashboard.live import LiveFrameworks
from frameworkcontroller.dashboard.pages import Pages
from frameworkcontroller.history.archive import HistoryArchive
from frameworkcontroller.history.archiveapi import application, new_metrics
from frameworkcontroller.history.archiveerrors import ArchiveError, FolderError
from frameworkcontroller.history.archivemetrics import ArchiveMetrics
from frameworkcontroller.history.folderfollower import FolderFollower
from frameworkcontroller.history.reads import CostKey, CountCost, CountFailures, FailureKey
from frameworkcontroller.history.suspectnodes import is_suspect, ranked
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.connection import connect
from frameworkcontroller.webaccess.boundedserver import BoundedServer, ListenError
from frameworkcontroller.webaccess.cluster_access import ClusterAccess
from frameworkcontroller.webaccess.loopback import is_loopback_address
from frameworkcontroller.webaccess.loopback_access import LoopbackAccess, TokenFileError, token_in
from frameworkcontroller.webaccess.viewers import WebAccess

_log: Final = logging.getLogger(__name__)

DATABASE: Final = "sqlite:///frameworkcontroller-history.db"
DATABASE_VARIABLE: Final = "FRAMEWORK_HISTORY_DATABASE"
"""Its URL may have a password, which arguments would show to all users of the machine."""

SAMPLE_SEC: Final = 60.0
NODES_SEC: Final = 600.0
_MOST_NODES: Final = 20
PRUNE_SEC: Final = 600.0
_DAY_SEC: Final = 86400
_MIN_BYTES: Final = 2**20


def serve(options: argparse.Namespace) -> int:
    """Run the archive until a signal. Return the exit code."""
    return program.run(_serve(options))


async def _serve(options: argparse.Namespace) -> int:
    address = listening_address(options.address)
    retention_bytes = _size("--retention-bytes", options.retention_bytes)
    retention_logs_bytes = _size("--retention-logs-bytes", options.retention_logs_bytes)
    if options.retention_days == 0:
        raise UsageError("--retention-days 0: must be at least 1")
    database, named = options.database, "--database"
    if database is None and (database := os.environ.get(DATABASE_VARIABLE)):
        named = f"${DATABASE_VARIABLE}"
    database = database or DATABASE
    certificate = certificate_of(options.tls_cert, options.tls_key)
    tls = None if certificate is None else certificate.context
    alone = is_loopback_address(address.host)
    if options.token_file is not None and not alone:
        _check_token_file(options.token_file)
    stop = asyncio.Event()
    program.stop_on_signals(lambda _number: stop.set())
    async with AsyncExitStack() as stack:
        client = None if alone and not options.live else await _client(options, stack)
        try:
            archive = await stack.enter_async_context(await HistoryArchive.open(database, reserve=True))
        except ArchiveError as error:
            raise UsageError(f"{named}: {error}") from None
        access: WebAccess
        if client is None or alone:
            access = LoopbackAccess(_token(options.token_file, archive))
        else:
            access = ClusterAccess(client, audiences=options.audience, writer_token_file=options.token_file)
        metrics = new_metrics()
        followers = [_follower(folder, archive, metrics) for folder in options.follow]
        if followers:
            metrics.watch_folders(
                lambda: sum(one.unread_bytes for one in followers), lambda: max(one.lag_seconds for one in followers)
            )
        live = LiveFrameworks(client) if client is not None and options.live else None
        mounts = () if options.no_pages else (Pages(live, archive).add_to,)
        app = application(archive, access, metrics=metrics, mounts=mounts)
        server = BoundedServer(app, address.host, address.port, tls=tls, connected=metrics.connected)
        work: list[Coroutine[Any, Any, Any]] = [
            _sample(archive, metrics),
            _sample_nodes(archive, metrics),
            *(one.run() for one in followers),
        ]
        if certificate is not None:
            work.append(certificate.watch())
        if live is not None:
            work.append(live.run())
        if options.retention_days is not None or retention_bytes is not None:
            work.append(_prune(archive, metrics, options.retention_days, retention_bytes))
        if options.retention_logs_age is not None or retention_logs_bytes is not None:
            work.append(_prune_logs(archive, metrics, options.retention_logs_age, retention_logs_bytes))
        try:
            # The server stops first: the requests in progress need the archive.
            async with program.background(*work) as running, server:
                everywhere = "" if address.host else " and all other addresses of this machine"
                _log.info("Serving the archive on %s%s", server.url, everywhere)
                if isinstance(access, LoopbackAccess) and not options.no_pages:
                    print(f"The pages: {access.link(server.url)}", flush=True)  # noqa: T201 - not for a log
                stopped = asyncio.create_task(stop.wait())
                running.append(stopped)
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for one in done:
                    one.result()
        except ListenError as error:
            raise UsageError(f"--address {error}") from None
    return program.EXIT_OK


async def _client(options: argparse.Namespace, stack: AsyncExitStack) -> KubeClient:
    """Connect to the cluster of the options."""
    kubeconfig = None if options.kubeconfig is None else str(options.kubeconfig)
    connection = await connect(kubeconfig=kubeconfig, context=options.context)
    _log.info("The cluster is %s (%s)", connection.server, connection.origin)
    return await stack.enter_async_context(KubeClient(connection))


async def _sample(archive: HistoryArchive, metrics: ArchiveMetrics) -> None:
    """Keep the metrics of the database's size, and of the costs of the last day, up to date."""
    while True:
        try:
            usage = await archive.usage()
            last_day = CountCost(CostKey.NAMESPACE, since=int(time.time()) - _DAY_SEC, until=int(time.time()))
            metrics.show_costs(await archive.read(last_day))
        except ArchiveError as error:
            _log.warning("The database cannot be used: %s", error)
            metrics.database_up.set(0)
        else:
            metrics.database_up.set(1)
            metrics.bytes.set(usage.bytes)
            metrics.frameworks.set(usage.frameworks)
        if archive.path is not None:
            with suppress(OSError):
                volume = shutil.disk_usage(archive.path.parent)
                metrics.volume_bytes.set(volume.total)
                metrics.volume_free_bytes.set(volume.free)
        await asyncio.sleep(SAMPLE_SEC)


async def _sample_nodes(archive: HistoryArchive, metrics: ArchiveMetrics) -> None:
    """Keep the metric of suspect nodes up to date."""
    while True:
        with suppress(ArchiveError):
            counted = await archive.read(CountFailures(FailureKey.NODE, since=int(time.time()) - _DAY_SEC))
            suspects = filter(is_suspect, ranked(counted["items"]))
            metrics.set_suspect_nodes({one["key"]: one["taskAttempts"] for one in islice(suspects, _MOST_NODES)})
        await asyncio.sleep(NODES_SEC)


async def _prune(archive: HistoryArchive, metrics: ArchiveMetrics, days: int | None, most_bytes: int | None) -> None:
    """Delete Frameworks beyond the age or size limit, now and every ten minutes."""
    while True:
        before = None if days is None else int(time.time()) - days * _DAY_SEC
        try:
            removed = await archive.prune(before=before, max_bytes=most_bytes)
        except ArchiveError as error:
            _log.warning("Cannot remove old Frameworks: %s", error)
        else:
            metrics.removed.labels("framework").inc(removed.frameworks)
            metrics.removed.labels("attempt").inc(removed.attempts)
            if removed.frameworks:
                _log.info("Removed %d old Frameworks with %d attempts", removed.frameworks, removed.attempts)
        await asyncio.sleep(PRUNE_SEC)


async def _prune_logs(
    archive: HistoryArchive, metrics: ArchiveMetrics, age: float | None, most_bytes: int | None
) -> None:
    """Delete logs beyond the age or size limit, now and every ten minutes."""
    while True:
        before = None if age is None else int(time.time() - age)
        try:
            removed = await archive.prune_logs(before=before, max_bytes=most_bytes)
        except ArchiveError as error:
            _log.warning("Cannot remove old logs: %s", error)
        else:
            metrics.removed.labels("log").inc(removed)
            if removed:
                _log.info("Removed %d old logs", removed)
        await asyncio.sleep(PRUNE_SEC)


# --- options ---


def _size(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        size = int(parse_quantity(text))
    except ValueError:
        raise UsageError(f'{option} "{text}": must be a number of bytes, such as 50Gi') from None
    if size < _MIN_BYTES:
        raise UsageError(f'{option} "{text}": must be at least 1Mi')
    return size


def _token(path: Path | None, archive: HistoryArchive) -> str | None:
    """Return the token of a server on loopback, read from a file (by default next to the database); None for a new one.

    Raises:
        UsageError: the file cannot be used.
    """
    if path is None and archive.path is not None:
        path = archive.path.with_name(f"{archive.path.name}.token")
    try:
        return None if path is None else token_in(path)
    except TokenFileError as error:
        raise UsageError(f"--token-file {error}") from None


def _check_token_file(path: Path) -> None:
    try:
        if not path.read_bytes().strip():
            raise UsageError(f"--token-file {path}: is empty")
    except OSError as error:
        raise UsageError(f"--token-file {path}: cannot be read: {error.strerror}") from None


def _follower(folder: Path, archive: HistoryArchive, metrics: ArchiveMetrics) -> FolderFollower:
    try:
        return FolderFollower(folder, archive.store, metrics)
    except FolderError as error:
        raise UsageError(f"--follow {error}") from None
