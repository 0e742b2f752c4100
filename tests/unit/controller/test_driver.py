"""The driver: an error that nobody foresaw, even while its Framework is being put into quarantine."""

import asyncio
import contextlib
import gc
import random
from typing import Any, cast

import orjson
import pytest

from frameworkcontroller.api.codec import EncodedStatus
from frameworkcontroller.api.objects import FrameworkRecord
from frameworkcontroller.controller.driver import Driver
from frameworkcontroller.controller.reconcilers import Reconcilers
from frameworkcontroller.controller.recorder import EventRecorder
from frameworkcontroller.controller.snapshots import SnapshotLogger
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.errors import TransportError
from frameworkcontroller.machine.protocol import RequeueError
from tests.support.bench import limits


class BrokenClient:
    """Reads raise what no client should, once."""

    def __init__(self) -> None:
        self.reads = 0

    async def get(self, *_: Any, **__: Any) -> bytes:
        self.reads += 1
        if self.reads == 1:
            raise ZeroDivisionError
        metadata = {"namespace": "ns", "name": "f", "uid": "another", "resourceVersion": "1", "generation": 1}
        return orjson.dumps({"metadata": metadata, "spec": {}})


class Recorder:
    """Records nothing."""

    def record(self, *_: Any, **__: Any) -> None:
        """Do nothing."""


class LostClient:
    """Loses the answers to all requests."""

    async def patch(self, *_: Any, **__: Any) -> bytes:
        raise TransportError("no answer")


def driver_of(client: object, record: FrameworkRecord) -> Driver:
    return Driver(
        client=cast(KubeClient, client),
        reconcilers=Reconcilers(),
        frameworks=cast(Any, {record.key: record}),
        configmaps=cast(Any, {}),
        pods=cast(Any, {}),
        find_companion=lambda _kind, _key, _framework: None,
        list_claims=lambda _key, _needed: (),
        limits=limits(),
        wall=lambda: 0.0,
        clock=lambda: 0.0,
        rng=random.Random(1),
        recorder=cast(EventRecorder, Recorder()),
        snapshots=cast(SnapshotLogger, None),
        relist=lambda _: None,
        listed=lambda _: 0.0,
        wrote=lambda _result, _size: None,
        count_attempts=lambda _: None,
        status_not_stored=lambda _: None,
    )


async def test_an_error_during_quarantine_does_not_hang_the_next_pass() -> None:
    record = FrameworkRecord("ns/f", "ns", "f", "u", "1", 1, None, b"{}", b"{}", {"state": "none"})
    client = BrokenClient()
    driver = driver_of(client, record)
    with pytest.raises(ZeroDivisionError):
        await driver.reconcile(record.key)
    # It reads another Framework of the name the next time.
    async with asyncio.timeout(300):
        with pytest.raises(RequeueError):
            await driver.reconcile(record.key)
    assert client.reads == 2


async def test_a_failed_pass_leaves_no_reference_cycle() -> None:
    record = FrameworkRecord("ns/f", "ns", "f", "u", "1", 1, None, b"{}", b"{}", None)
    driver = driver_of(LostClient(), record)
    gc.collect()
    gc.disable()
    try:
        before = left_over()
        with contextlib.suppress(RequeueError):
            await driver.reconcile(record.key)
        # The status that was not written may be large.
        assert left_over() == before
    finally:
        gc.enable()


def left_over() -> int:
    """Number of statuses and errors in memory."""
    return sum(isinstance(one, EncodedStatus | RequeueError) for one in gc.get_objects())
