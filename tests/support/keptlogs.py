"""A controller that keeps all logs in an archive of the test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from frameworkcontroller.api.historyrecords import HistoryRecord, LogRecord, Trigger
from frameworkcontroller.config.config import Config
from frameworkcontroller.config.historyconfig import History, HistorySinkKind, Logs
from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.machine.kernel.model import KeepLogs
from frameworkcontroller.manager.app import Controller
from tests.support.archiveserver import ArchiveServer
from tests.support.clusters import Cluster
from tests.support.eventually import eventually

SAYS: Final = b"container main is simulated and prints nothing\n"
"""The log of a simulated container."""

FAILS: Final = {"run-seconds": 1, "exit-code": 1}


@asynccontextmanager
async def controller(
    cluster: Cluster, archive: ArchiveServer, connection: Connection | None = None, **logs: Any
) -> AsyncIterator[Controller]:
    """A controller with this archive. ``logs``: fields of history.logs."""
    kept = Logs(**{"keep": KeepLogs.ALL, **logs})
    config = Config(history=History(sink=HistorySinkKind.HTTP, url=archive.url, logs=kept))
    async with Controller(config, connection or await cluster.connection(), wall=cluster.wall) as made:
        yield made


def logs_of(records: list[HistoryRecord]) -> list[LogRecord]:
    """The logs among the records."""
    return [LogRecord.decode(one.object) for one in records if one.trigger is Trigger.POD_LOG]


async def until_logs(archive: ArchiveServer, count: int) -> list[LogRecord]:
    """Wait for that many logs in the archive."""

    async def probe() -> list[LogRecord]:
        found = logs_of([record for records in archive.records.values() for record in records])
        assert len(found) >= count
        return found

    return await eventually(probe, within=120, every=0.5)
