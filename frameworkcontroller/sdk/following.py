"""Values that a background task brings, with its errors, until it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from typing import Any, Final, TypedDict, TypeVar, Unpack

from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.resources import Resource
from frameworkcontroller.sdk.exceptions import Unreachable
from frameworkcontroller.sdk.translation import translated

T = TypeVar("T")

CHECK_SEC: Final = 10.0
OUTAGE_SEC: Final = 300.0
"""An outage of the API server that lasts longer is reported."""

_END: Final = object()


class _Selectors(TypedDict, total=False):
    label_selector: str
    field_selector: str


async def brought(
    values: asyncio.Queue[T], work: Coroutine[Any, Any, None], check: Callable[[], Awaitable[None]]
) -> AsyncGenerator[T, None]:
    """Yield the values that ``work`` puts into the queue, until it ends. Raise its errors.

    ``check``: called while no value comes; may raise, too. Close the iterator to end the work.
    """
    queue: asyncio.Queue[Any] = values
    task = asyncio.create_task(work)
    task.add_done_callback(lambda _: queue.put_nowait(_END))
    try:
        while True:
            try:
                async with asyncio.timeout(CHECK_SEC):
                    value = await queue.get()
            except TimeoutError:
                await check()
                continue
            if value is _END:
                task.result()
                return
            yield value
    finally:
        task.cancel()
        await asyncio.wait([task])


async def check_watch(
    client: KubeClient,
    resource: Resource,
    namespace: str,
    failing_since: float | None,
    **selectors: Unpack[_Selectors],
) -> None:
    """Send the requests of a failing informer once. Raise the error if it is no outage, or a long one."""
    if failing_since is None:
        return
    try:
        with translated("list", resource.plural, namespace=namespace):
            await client.list(resource, namespace, limit=1, **selectors)
        with translated("watch", resource.plural, namespace=namespace):
            # Without a version, which may be lost: the answer is of no interest.
            async with client.watch(resource, namespace, resource_version="0", timeout_seconds=1, **selectors):
                pass
    except Unreachable:
        if asyncio.get_running_loop().time() - failing_since > OUTAGE_SEC:
            raise
