"""When a Pod got its node is persisted with its attempt, only for a history, in no write of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson

from frameworkcontroller.api.codec import decode_status, encode_status
from frameworkcontroller.api.status import State
from frameworkcontroller.api.timestamps import format_time
from tests.support.archive import ARCHIVED
from tests.support.bench import NOW, Bench, limits, role

BOUND = NOW + 7


def scheduled(seconds: int = BOUND, status: str = "True", **more: Any) -> dict[str, Any]:
    """The status of a Pod with a node since then."""
    condition = {"type": "PodScheduled", "status": status, "lastTransitionTime": format_time(seconds), **more}
    return {"nodeName": "node-1", "conditions": [condition]}


def created() -> Bench:
    """A Framework whose history blocks, and whose Pod is created."""
    bench = Bench(role(), limit=ARCHIVED)
    bench.held = True
    bench.all_pods()
    return bench


def stored(bench: Bench) -> Any:
    status = orjson.loads(encode_status("f", bench.status))
    return status["attemptStatus"]["taskRoleStatuses"][0]["taskStatuses"][0]["attemptStatus"]


def test_it_comes_with_the_node() -> None:
    bench = created()
    bench.show("f-a-0", **scheduled())
    bench.plan()
    assert stored(bench)["scheduledTime"] == format_time(BOUND)
    assert stored(bench)["podNodeName"] == "node-1"
    again = decode_status(orjson.loads(encode_status("f", bench.status)))
    assert again is not None
    assert again.attempt.roles[0].tasks[0].attempt.scheduled_time == BOUND


def test_a_pod_without_a_node_has_none() -> None:
    bench = created()
    bench.show("f-a-0", conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}])
    bench.plan()
    assert "scheduledTime" not in stored(bench)


def test_without_a_history_the_status_does_not_have_it() -> None:
    bench = Bench(role(), limit=limits())
    bench.all_pods()
    bench.show("f-a-0", **scheduled())
    bench.plan()
    assert bench.task().attempt.pod_node_name == "node-1"
    assert "scheduledTime" not in stored(bench)


def test_it_stays_after_a_restart_and_does_not_change() -> None:
    bench = created()
    bench.show("f-a-0", **scheduled())
    bench.plan()
    bench.restart()
    bench.show("f-a-0", phase="Running", **scheduled(BOUND + 100))
    bench.plan()
    assert bench.task().attempt.scheduled_time == BOUND


def test_the_next_attempt_has_its_own() -> None:
    bench = Bench(role(retryPolicy={"maxRetryCount": 1}), limit=replace(ARCHIVED, history_blocks=False))
    bench.all_pods()
    bench.show("f-a-0", **scheduled())
    bench.plan()
    bench.end("f-a-0", 1)
    assert bench.task().attempt.id == 1
    assert bench.task().attempt.scheduled_time is None


def test_a_pod_that_is_seen_first_when_it_ends() -> None:
    bench = created()
    bench.show("f-a-0", phase="Failed", **scheduled())
    bench.plan()
    assert bench.task().attempt.scheduled_time == BOUND


def test_a_pod_that_is_seen_first_when_others_delete_it() -> None:
    bench = created()
    bench.show("f-a-0", deleting=NOW + 30, **scheduled())
    bench.plan()
    assert bench.state() is State.DELETING
    assert bench.task().attempt.scheduled_time == BOUND


def test_a_pod_that_is_gone_when_it_is_first_seen() -> None:
    bench = created()
    bench.show("f-a-0", **scheduled())
    bench.drop("f-a-0", removed=True)
    bench.plan()
    assert bench.state() is State.ATTEMPT_COMPLETED
    assert bench.task().attempt.scheduled_time == BOUND
