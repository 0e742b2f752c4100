"""Progress as the ConfigMap of an attempt has it: the report server writes it there, and the controller reads it."""

from __future__ import annotations

import math
from typing import Any, Final

import orjson

from frameworkcontroller.api.codec import decode_progress_status, encode_report
from frameworkcontroller.api.problems import ProblemError
from frameworkcontroller.api.status import ProgressStatus

MAX_BYTES: Final = 16 << 10
MAX_METRICS: Final = 20
MAX_NAME: Final = 63
MAX_COUNT: Final = (1 << 53) - 1
"""The largest step, and the most seconds: JSON has it exactly."""


def encode_progress(progress: ProgressStatus) -> str:
    """Return the value for the ConfigMap."""
    return orjson.dumps(encode_report(progress)).decode()


def decode_progress(text: Any, attempt_id: int) -> ProgressStatus | None:
    """Return the progress in a value of the ConfigMap. None if it is absent or invalid: users can edit it."""
    if not isinstance(text, str) or len(text) > MAX_BYTES:
        return None
    try:
        body = {**orjson.loads(text), "frameworkAttemptID": attempt_id}
        if metrics := body.get("metrics"):
            body["metrics"] = metrics[:MAX_METRICS]
        found: ProgressStatus = decode_progress_status(body)
    except (ValueError, TypeError, LookupError, ProblemError):
        return None
    return found if _is_in_range(found) else None


def _is_in_range(found: ProgressStatus) -> bool:
    counts = found.remaining_seconds, found.step, found.last_checkpoint_step
    return (
        0 <= (found.percentage or 0) <= 100
        and all(one is None or 0 <= one <= MAX_COUNT for one in counts)
        and all(0 < len(one.name) <= MAX_NAME and math.isfinite(one.value) for one in found.metrics)
    )
