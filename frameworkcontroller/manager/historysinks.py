"""Makes the sink of the history that is configured. Imported only if there is one."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import Final

import orjson

from frameworkcontroller.api.historyrecords import Trigger
from frameworkcontroller.config.historyconfig import History, HistorySinkKind
from frameworkcontroller.controller.historysink import Destination, HistorySink
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.errors import ApiError
from frameworkcontroller.kube.resources import NAMESPACES
from frameworkcontroller.machine.kernel.model import KeepLogs

_log: Final = logging.getLogger(__name__)

DRAIN_SEC: Final = 5.0
"""A stopping controller waits at most this long until the records that are pending are stored."""


def open_sink(config: History, *, namespace: str | None, wall: Callable[[], float], rng: random.Random) -> HistorySink:
    """The configured sink. ``namespace``: the only one that the controller serves; None: all."""
    destination: Destination
    if config.sink is HistorySinkKind.HTTP:
        from frameworkcontroller.controller.httpsink import HttpDestination

        destination = HttpDestination(
            config.url,
            token_file=Path(config.token_file) if config.token_file else None,
            ca_file=Path(config.ca_file) if config.ca_file else None,
            namespace=namespace,
            wall=wall,
        )
    else:
        from frameworkcontroller.controller.filesink import FileDestination

        destination = FileDestination(Path(config.path), wall=wall)
    logs = frozenset[Trigger]() if config.kept_logs is KeepLogs.NONE else frozenset({Trigger.POD_LOG})
    listed = [*config.triggers, *(f"{trigger} ({config.kept_logs})" for trigger in logs)]
    _log.info("History: %s to %s", ", ".join(listed), destination.name)
    return HistorySink(
        destination,
        triggers=config.sink_triggers | logs,
        blocks=config.blocks,
        max_pending_bytes=config.max_pending_bytes,
        wall=wall,
        rng=rng,
    )


async def cluster_name(config: History, client: KubeClient) -> str:
    """The cluster in the records: the configured name, or the UID of the namespace kube-system, "" if not permitted.

    Raises:
        KubeError: the API server is unavailable.
    """
    if config.cluster:
        return config.cluster
    try:
        body = await client.get(NAMESPACES, "kube-system", metadata_only=True)
    except ApiError as error:
        if error.code not in (401, 403, 404):
            raise
        _log.info("History: records name no cluster (history.cluster): %s", error)
        return ""
    uid = orjson.loads(body)["metadata"]["uid"]
    return uid if isinstance(uid, str) else ""
