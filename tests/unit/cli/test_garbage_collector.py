"""The garbage collector of a controller: rarely while the caches fill, and later without their content."""

import asyncio
import gc
from collections.abc import Iterator
from contextlib import suppress
from typing import cast

import pytest

from frameworkcontroller.cli.runcontroller import _tune_when_ready
from frameworkcontroller.manager.app import Controller


class _Starting:
    def __init__(self) -> None:
        self.ready = asyncio.Event()

    async def wait_ready(self) -> None:
        await self.ready.wait()


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


async def test_caches_fill_with_few_collections_and_are_never_collected() -> None:
    starting = _Starting()
    tuning = asyncio.create_task(_tune_when_ready(cast("Controller", starting)))
    await asyncio.sleep(0)
    young, middle, _ = gc.get_threshold()
    assert young >= 50_000
    assert young * (middle + 1) <= 300_000

    frozen = gc.get_freeze_count()
    collections: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        collections.append(info["generation"])

    gc.callbacks.append(note)
    try:
        cache = [[number] for number in range(10_000)]
        starting.ready.set()
        await tuning
    finally:
        gc.callbacks.remove(note)
        with suppress(asyncio.CancelledError):
            tuning.cancel()
    assert not collections
    assert gc.get_freeze_count() >= frozen + len(cache)
