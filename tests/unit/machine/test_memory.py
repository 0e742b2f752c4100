"""Memory of a Framework with a large spec: its reconciler keeps text, which takes fifty times as much once decoded."""

from __future__ import annotations

from typing import Any, Final

import orjson
import pytest

from tests.support.bench import role
from tests.support.oneframework import Driver, OneFramework
from tests.support.queuedbench import QueuedBench
from tests.support.reachable import reachable_bytes

SIZE: Final = 200_000
FIXED: Final = 64 << 10
"""Bytes of a reconciler without a large spec, and of a small status."""

SHAPES: Final[dict[str, str]] = {
    "lists": "[[]]",
    "objects": '{"":{}}',
    "numbers": "1000",
    "text": '"text"',
}


def large(part: str, shape: str) -> dict[str, Any]:
    """A role, of which one part has many small values."""
    value = SHAPES[shape]
    values = orjson.loads("[" + ",".join([value] * (SIZE // (len(value) + 1))) + "]")
    made = role("a", 1)
    claim: dict[str, Any] = {"metadata": {"name": "c"}}
    if part == "pod":
        made["task"]["pod"]["spec"]["odd"] = values
        return made
    if part == "claim":
        claim["spec"] = {"odd": values}
    else:
        claim["metadata"]["labels"] = {f"{number:x}": "" for number in range(SIZE // 10)}
    return {**made, "volumeClaimTemplates": [claim]}


STATES: Final[dict[str, dict[str, Any]]] = {
    "suspended": {"suspend": True},
    "created": {"executionType": "Create"},
    "running": {},
    "stopped": {"executionType": "Stop"},
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("shape", SHAPES)
def test_at_rest_a_template_is_text(state: str, shape: str) -> None:
    driver = Driver(OneFramework(large("pod", shape), **STATES[state]))
    driver.run_all()
    # The text, and that of the rendered template while an attempt runs.
    assert reachable_bytes(driver.reconciler) < 2.2 * SIZE + FIXED


@pytest.mark.parametrize("part", ["claim", "labels"])
def test_at_rest_a_claim_template_is_text(part: str) -> None:
    driver = Driver(OneFramework(large(part, "lists"), suspend=True))
    driver.run_all()
    assert reachable_bytes(driver.reconciler) < 1.5 * SIZE + FIXED


@pytest.mark.parametrize("field", ["labels", "nodeAffinity"])
def test_in_a_queue_the_pod_sets_are_text(field: str) -> None:
    made = role("a", 1)
    if field == "labels":
        made["task"]["pod"]["metadata"] = {"labels": {f"{number:x}": "" for number in range(SIZE // 10)}}
    else:
        made["task"]["pod"]["spec"]["affinity"] = {"odd": [[[]]] * (SIZE // 5)}
    bench = QueuedBench(made)
    bench.enter()
    assert reachable_bytes(bench.tracker.queueing) < 1.2 * SIZE + FIXED
