"""Progress in the ConfigMap of an attempt, and in the status."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from frameworkcontroller.api.codec import encode_report
from frameworkcontroller.api.progressreports import MAX_BYTES, decode_progress
from frameworkcontroller.api.status import ProgressMetric, ProgressStatus

BODY = {
    "percentage": 42,
    "remainingSeconds": 90,
    "step": 1200,
    "metrics": [{"name": "loss", "value": 0.25}],
    "lastReportTime": "2026-11-28T05:00:00Z",
    "lastChangeTime": "2026-11-28T04:59:00Z",
    "lastCheckpointTime": "2026-11-28T04:50:00Z",
    "lastCheckpointStep": 1100,
}


def test_a_report_keeps_all_values() -> None:
    found = decode_progress(orjson.dumps(BODY).decode(), 3)
    assert found is not None
    assert (found.framework_attempt_id, found.percentage, found.step) == (3, 42, 1200)
    assert found.metrics == [ProgressMetric("loss", 0.25)]
    assert encode_report(found) == BODY


def test_only_the_first_metrics_count() -> None:
    metrics = [{"name": f"m{number}", "value": number} for number in range(30)]
    found = decode_progress(orjson.dumps({"metrics": metrics}).decode(), 0)
    assert found is not None
    assert [one.name for one in found.metrics] == [f"m{number}" for number in range(20)]


def test_an_empty_report_is_a_report() -> None:
    assert decode_progress("{}", 1) == ProgressStatus(framework_attempt_id=1)


@pytest.mark.parametrize(
    "text",
    [
        None,
        7,
        "",
        "[]",
        "null",
        "{",
        '{"percentage": 101}',
        '{"percentage": -1}',
        '{"percentage": "half"}',
        '{"step": -1}',
        '{"step": 9007199254740992}',
        '{"lastCheckpointStep": -1}',
        '{"metrics": {"loss": 1}}',
        '{"metrics": [{"name": "", "value": 1}]}',
        '{"metrics": [{"name": "loss"}]}',
        '{"metrics": [{"name": "loss", "value": "x"}]}',
        '{"lastReportTime": "yesterday"}',
        '{"percentage": ' + " " * MAX_BYTES + "1}",
    ],
)
def test_an_invalid_value_is_no_report(text: Any) -> None:
    assert decode_progress(text, 0) is None
