"""Progress as the ConfigMap of an attempt has it: the report server writes it there, and the controller reads it."""

from __future__ import annotations

import math
from typing import Any, Final

import orjson

from frameworkcontroller.api import fields
from frameworkcontroller.api.problems import ProblemError
from frameworkcontroller.api.status import ProgressMetric, ProgressStatus

KEY: Final = "progress"
"""The key in the data of the ConfigMap."""

MAX_BYTES: Final = 16 << 10
MAX_METRICS: Final = 20
MAX_NAME: Final = 63

_decode: Final = fields.Schema(keys={}, needed=(), prepare={}).decoder(ProgressStatus)


def decode_progress(text: Any, attempt_id: int) -> ProgressStatus | None:
    """Return the progress in a value of the ConfigMap. None if it is absent or invalid: users can edit it."""
    if not isinstance(text, str) or len(text) > MAX_BYTES:
        return None
    try:
        body = orjson.loads(text)
        metrics = [_metric(one) for one in (body.pop("metrics", None) or [])[:MAX_METRICS]]
        found = _decode({**body, "metrics": [], "frameworkAttemptId": attempt_id})
    except (ValueError, TypeError, AttributeError, LookupError, ProblemError):
        return None
    found.metrics.extend(metrics)
    return found if _is_in_range(found) else None


def _metric(body: Any) -> ProgressMetric:
    name, value = body["name"], float(body["value"])
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME or not math.isfinite(value):
        raise ValueError(name)
    return ProgressMetric(name, value)


def _is_in_range(found: ProgressStatus) -> bool:
    values = found.remaining_seconds, found.step, found.last_checkpoint_step
    return 0 <= (found.percentage or 0) <= 100 and all(one is None or 0 <= one < 1 << 53 for one in values)
