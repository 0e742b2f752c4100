"""Readiness probes: whether a container that runs listens on its port."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TcpProbe:
    """A readinessProbe with tcpSocket. Times are in seconds; an empty ``host`` is the Pod."""

    host: str
    port: int
    initial_delay: float
    period: float
    timeout: float
    success_threshold: int
    failure_threshold: int


def decode_readiness(container: Mapping[str, Any]) -> TcpProbe | None:
    """The probe of a container; None if it has none, or one of another kind."""
    probe = container.get("readinessProbe") or {}
    socket = probe.get("tcpSocket")
    if socket is None:
        return None
    port = socket["port"]
    if isinstance(port, str):
        named = {one.get("name"): one["containerPort"] for one in container.get("ports") or ()}
        port = named.get(port, 0)  # as by a real kubelet, an unknown name is never ready
    return TcpProbe(
        host=socket.get("host") or "",
        port=port,
        initial_delay=probe.get("initialDelaySeconds") or 0,
        period=probe.get("periodSeconds") or 10,
        timeout=probe.get("timeoutSeconds") or 1,
        success_threshold=probe.get("successThreshold") or 1,
        failure_threshold=probe.get("failureThreshold") or 3,
    )


async def watch_readiness(probe: TcpProbe, address: str, report: Callable[[bool], None]) -> None:
    """Report each change until cancelled; the container is not ready at first."""
    ready, differing = False, 0
    await asyncio.sleep(probe.initial_delay)
    while True:
        differing = 0 if await _listens(probe, address) == ready else differing + 1
        if differing == (probe.failure_threshold if ready else probe.success_threshold):
            ready, differing = not ready, 0
            report(ready)
        await asyncio.sleep(probe.period)


async def _listens(probe: TcpProbe, address: str) -> bool:
    try:
        async with asyncio.timeout(probe.timeout):
            _, writer = await asyncio.open_connection(probe.host or address, probe.port)
    except OSError:
        return False
    writer.close()
    return True
