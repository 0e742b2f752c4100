"""Makes the report server of a controller. Imported only where one is configured."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Protocol

from frameworkcontroller.api.objects import PodRecord
from frameworkcontroller.config.config import Config, ConfigurationError
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.informer import Informer
from frameworkcontroller.kube.ratelimiter import RateLimiter
from frameworkcontroller.reports.authority import AuthorityError
from frameworkcontroller.reports.service import BURST, QPS, ListenError, ReportService


class MakeClient(Protocol):
    """Makes a client, which the controller closes."""

    def __call__(self, *, limiter: RateLimiter) -> KubeClient: ...


def open_service(
    config: Config,
    client: MakeClient,
    usual_namespace: str | None,
    pods: Informer[PodRecord],
    *,
    wall: Callable[[], float],
    rng: random.Random,
    trusted_changed: Callable[[str], None],
    leading: Callable[[], bool],
    watched_since: Callable[[], float | None],
) -> ReportService:
    """Make the report server. ``usual_namespace``: of the controller. The last three: see `ReportService`.

    Raises:
        ConfigurationError: no namespace is known for its Secret.
    """
    address = config.progress_reports.address
    if address is None:
        raise AssertionError("no report server is configured")

    def exists(namespace: str, name: str, uid: str) -> bool | None:
        if pods.current_since is None:
            return None
        record = pods.lister.get(f"{namespace}/{name}")
        return record is not None and record.uid == uid

    namespace = usual_namespace or config.leader_election.lease_namespace or config.namespace
    if namespace is None and address.is_loopback:
        # A controller of this machine.
        namespace = "default"
    if namespace is None:
        raise ConfigurationError(
            "progressReports: the Secret of its certificate has no known namespace: set leaderElection.leaseNamespace"
        )
    return ReportService(
        client(limiter=RateLimiter(QPS, BURST)),
        namespace,
        address.host,
        address.port,
        config.progress_reports.url_in(namespace),
        wall=wall,
        rng=rng,
        exists=exists,
        trusted_changed=trusted_changed,
        leading=leading,
        watched_since=watched_since,
    )


async def prepare(service: ReportService) -> None:
    """Get the certificate.

    Raises:
        ConfigurationError: the Secret has no authority.
        KubeError: the API server does not allow it, or not now.
    """
    try:
        await service.prepare()
    except AuthorityError as error:
        raise ConfigurationError(f"progressReports: {error}") from None


async def start(service: ReportService) -> None:
    """Listen.

    Raises:
        ConfigurationError: that is not possible at the configured address.
    """
    try:
        await service.start()
    except ListenError as error:
        raise ConfigurationError(f"progressReports.bindAddress: {error}") from None
