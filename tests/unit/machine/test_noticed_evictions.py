"""Evictions by Kueue that wait for a checkpoint (docs/lifecycle.md, "Notice" and "Queues")."""

from __future__ import annotations

import orjson

from frameworkcontroller.api.codec import encode_status
from frameworkcontroller.api.status import State
from frameworkcontroller.machine.parts.notice.checkpointnotice import WITHDRAW_SEC
from tests.support.bench import role
from tests.support.progressbench import show_report
from tests.support.queuedbench import QueuedBench, live, running

GRACE = 300


def evicted() -> QueuedBench:
    """A training that Kueue has evicted, and that has seen the notice."""
    bench = running(role(number=2), checkpointGraceSeconds=GRACE, progress={})
    bench.evict_then_settle()
    return bench


def test_quota_is_kept_until_the_checkpoint() -> None:
    bench = evicted()
    assert bench.status.notice is not None
    assert (bench.status.notice.reason, bench.code(), bench.status.state) == ("Eviction", None, State.RUNNING)
    assert live(bench)["status"]["admission"] is not None
    bench.now += 5
    show_report(bench, int(bench.now))
    bench.settle()
    assert (bench.status.attempt.id, bench.status.admission) == (1, None)
    assert not live(bench)["status"].get("admission")


def test_the_grace_ends_the_wait() -> None:
    bench = evicted()
    bench.pass_time(GRACE)
    assert bench.code() == -241


def test_a_new_process_keeps_the_notice() -> None:
    """Until it has found out again that Kueue has evicted the Framework."""
    bench = evicted()
    given = bench.status.notice
    bench.now += 10
    bench.restart()
    bench.act()
    assert bench.status.notice == given
    bench.settle()
    assert (bench.status.notice, bench.code()) == (given, None)
    bench.pass_time(GRACE - 10)
    assert bench.code() == -241


def test_pods_that_are_as_admitted_again_continue() -> None:
    bench = running(role(number=2), checkpointGraceSeconds=GRACE)
    (before,) = bench.spec["taskRoles"]
    pod = {"spec": {"containers": [{"name": "main", "image": "other"}], "nodeSelector": {"zone": "a"}}}
    bench.edit({**before, "task": {**before["task"], "pod": pod}})
    bench.settle()
    assert "notice" in orjson.loads(encode_status("f", bench.status))
    bench.edit(before)
    bench.settle()
    bench.pass_time(WITHDRAW_SEC)
    bench.settle()
    assert (bench.status.notice, bench.code()) == (None, None)
