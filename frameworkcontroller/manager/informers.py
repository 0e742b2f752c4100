"""The informers of one controller: what it watches, how often it lists again, and which handlers get the events."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, TypeVarTuple

from frameworkcontroller.api import names
from frameworkcontroller.api.objects import (
    ConfigMapRecord,
    FrameworkRecord,
    PodRecord,
    configmap_record,
    framework_record,
    pod_record,
)
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.controller.eventhandlers import EventHandlers, framework_key
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.informer import Informer
from frameworkcontroller.kube.resources import CONFIGMAPS, PODS
from frameworkcontroller.machine.requests import Kind

Ts = TypeVarTuple("Ts")

RELIST_SEC: Final = 600.0
RELIST_MAX_SEC: Final = 3600.0
RELIST_SEC_PER_OBJECT: Final = 0.3
"""A list recovers events that a watch has lost, such as the last one of a Pod. For each Pod it costs 11 us here and 7
KB from the API server. So the interval grows with the cache, to at most three Pods a second, and up to an hour."""


def relist_sec(objects: int) -> float:
    """Seconds until a cache of ``objects`` objects is compared with a list."""
    return min(RELIST_MAX_SEC, max(RELIST_SEC, objects * RELIST_SEC_PER_OBJECT))


class Informers:
    """The informers of Frameworks, ConfigMaps and Pods."""

    def __init__(
        self,
        client: KubeClient,
        handlers: EventHandlers,
        *,
        namespace: str | None,
        rng: random.Random,
        acting: Callable[[], bool],
        on_undecodable: Callable[[str, Exception, dict[str, Any]], None],
    ) -> None:
        """``namespace`` None: all. ``acting``: whether this replica runs syncs. ``on_undecodable``: for Frameworks."""

        def when_acting(handler: Callable[[*Ts], None]) -> Callable[[*Ts], None]:
            """A standby drops the events of its warm caches: a new leader syncs every Framework anyway."""

            def handle(*event: *Ts) -> None:
                if acting():
                    handler(*event)

            return handle

        informer = partial(Informer, client, namespace=namespace, rng=rng, relist_seconds=relist_sec)
        self.frameworks: Informer[FrameworkRecord] = informer(
            FRAMEWORKS, framework_record, on_undecodable=on_undecodable
        )
        self.configmaps: Informer[ConfigMapRecord] = informer(
            CONFIGMAPS, configmap_record, label_selector=names.FRAMEWORK_NAME
        )
        self.pods: Informer[PodRecord] = informer(
            PODS,
            pod_record,
            label_selector=names.FRAMEWORK_NAME,
            index=framework_key,
            on_deleted_object=when_acting(handlers.pod_object_deleted),
        )
        self.frameworks.add_handler(
            on_add=handlers.framework_added, on_update=handlers.framework_updated, on_delete=handlers.framework_deleted
        )
        self.configmaps.add_handler(
            on_add=when_acting(handlers.configmap_added),
            on_update=when_acting(handlers.configmap_updated),
            on_delete=when_acting(handlers.configmap_deleted),
        )
        self.pods.add_handler(
            on_add=when_acting(handlers.pod_changed),
            on_update=when_acting(handlers.pod_updated),
            on_delete=when_acting(handlers.pod_deleted),
        )

    def __iter__(self) -> Iterator[Informer[Any]]:
        return iter((self.frameworks, self.configmaps, self.pods))

    def of(self, kind: Kind) -> Informer[Any]:
        """The informer of the owned objects of that kind."""
        return self.configmaps if kind is Kind.CONFIGMAP else self.pods
