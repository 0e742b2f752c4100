"""The names of the SDK for asyncio: the same as in the package. Methods of `Cluster` and `Run` are coroutines.

async with frameworkcontroller.aio.connect() as cluster:
    result = await cluster.run(framework)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from frameworkcontroller.sdk.asyncclient import Cluster as Cluster
    from frameworkcontroller.sdk.asyncclient import connect as connect
    from frameworkcontroller.sdk.asyncclient import local as local
    from frameworkcontroller.sdk.asyncrun import Run as Run


def __getattr__(name: str) -> Any:
    from frameworkcontroller.sdk import ASYNC, PLACES, find

    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = find(name, PLACES | ASYNC)
    return value


def __dir__() -> list[str]:
    from frameworkcontroller.sdk import PLACES

    return sorted({*globals(), *PLACES})
