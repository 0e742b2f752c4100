"""Reports of progress as a report server writes them into the ConfigMap of an attempt."""

from __future__ import annotations

from typing import Any

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.codec import encode_report
from frameworkcontroller.api.status import ProgressStatus
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.kube.resources import CONFIGMAPS
from tests.support.frameworks import Frameworks, Json


def report_text(progress: ProgressStatus) -> str:
    """The value of the key."""
    return orjson.dumps(encode_report(progress)).decode()


def with_report(configmap: Json, progress: ProgressStatus) -> Json:
    """The ConfigMap with this report."""
    return {**configmap, "data": {**(configmap.get("data") or {}), names.PROGRESS_KEY: report_text(progress)}}


async def write_report(
    frameworks: Frameworks, now: float, name: str = "f", *, checkpoint: bool = False, **fields: Any
) -> str:
    """Write a report with a change for a Framework on a cluster. Return its time. ``fields``: of `ProgressStatus`."""
    time = int(now)
    progress = ProgressStatus(
        last_report_time=time, last_change_time=time, last_checkpoint_time=time if checkpoint else None, **fields
    )
    change = {"data": {names.PROGRESS_KEY: report_text(progress)}}
    await frameworks.merge(CONFIGMAPS, names.configmap_name(name), change)
    return format_time(time)
