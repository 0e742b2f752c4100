"""The resources that an attempt of a Task held, and from when to when, from its archived objects.

Source: docs/history.md, "Cost". Everything or nothing is known of an attempt: `holding` returns all columns of
the span, or none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.quantities import pod_requests

CPU: Final = "cpu"
MEMORY: Final = "memory"

_MAX_RESOURCES: Final = 16
_MAX_CHARS: Final = 1024
"""Of the requests, which are in an index: PostgreSQL refuses entries that are too large."""
_MAX_NAME: Final = 253
_MOST: Final = 2**63 - 1

_USER: Final = (("annotations", names.USER), ("labels", names.USER), ("labels", "userName"))
"""The last one is OpenPAI's. The metadata of an object do not have the user who created it."""


class Holding(NamedTuple):
    """The time in which a Pod held its requests: it got them at ``held``, ran from ``busy`` on, and freed them.

    ``held`` <= ``busy`` <= ``freed``, in seconds since the epoch. ``requests``: JSON, see `requests_of`.
    """

    held: int
    busy: int
    freed: int
    requests: str


COLUMNS: Final = Holding._fields


def requests_of(pod_spec: Any) -> str | None:
    """Return the requests of a Pod as JSON, whole numbers by resource; None if they are too many.

    As the scheduler counts: thousandths of a CPU, bytes of memory, units of other resources, each rounded up.
    """
    amounts = {
        name: min(math.ceil(amount * (1000 if name == CPU else 1)), _MOST)
        for name, amount in sorted(pod_requests(pod_spec).by_name.items())
        if amount > 0
    }
    text = orjson.dumps(amounts).decode()
    return text if len(amounts) <= _MAX_RESOURCES and len(text) <= _MAX_CHARS and text.isascii() else None


def holding(
    status: Mapping[str, Any], requests: str | None, *, scheduled: int | None, ran: int | None, ended: int | None
) -> Holding | None:
    """Return the span and the requests of an attempt of a Task; None if it held nothing, or that is not known.

    ``status``: its attemptStatus. Clocks of scheduler and controller may differ, so times are brought into order.
    """
    if scheduled is None or scheduled < 0 or ended is None or requests is None:
        return None
    freed = max(scheduled, ended)
    if ran is None:
        # The controller first saw its containers when they had ended.
        ran = scheduled if _has_run(status) else freed
    return Holding(scheduled, min(max(scheduled, ran), freed), freed, requests)


def _has_run(status: Mapping[str, Any]) -> bool:
    completion = status.get("completionStatus")
    pod = completion.get("pod") if isinstance(completion, dict) else None
    return isinstance(pod, dict) and bool(pod.get("containers"))


def queue_of(namespace: str, framework: Mapping[str, Any]) -> str:
    """Return the queue of a Framework, "" without one: ``namespace/name`` of Kueue's LocalQueue, or Volcano's name."""
    admission = _at(framework, "status", "admission", "queueName")
    local = admission or _at(framework, "metadata", "labels", names.QUEUE_NAME)
    if isinstance(local, str) and local:
        return f"{namespace}/{local[:_MAX_NAME]}"
    queue = _at(framework, "spec", "scheduling", "queue")
    return queue[:_MAX_NAME] if isinstance(queue, str) else ""


def user_of(framework: Mapping[str, Any]) -> str:
    """Return the user of a Framework in its metadata, which are not verified; "" if they have none."""
    for kind, key in _USER:
        found = _at(framework, "metadata", kind, key)
        if isinstance(found, str) and found:
            return found[:_MAX_NAME]
    return ""


def _at(content: Any, *path: str) -> Any:
    for key in path:
        content = content.get(key) if isinstance(content, Mapping) else None
    return content
