"""Attempts in which Tasks fail on nodes with clocks of their own, and the check of the first failure (F).

The controller sees each end some time later, in any order, and may be replaced by a new process at any time. Whom it
has not seen to end, it stops. The truth is known: the time at which each container really failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from frameworkcontroller.api.status import FirstFailure, State
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.config.config import shipped_config
from frameworkcontroller.machine.kernel.actions import ConfirmGone, Create, Delete
from frameworkcontroller.machine.kernel.exchanges import Accepted, Gone
from frameworkcontroller.machine.parts.firstfailure.firstfailures import SKEW_SEC
from tests.support.bench import NOW, Bench, limits, role, running

GLOO: Final = (
    "[rank3]:   work.wait()\n[rank3]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:535] "
    "Read error [10.1.3.122]:42916: Connection reset by peer"
)
NCCL: Final = (
    "terminate called after throwing an instance of 'c10::DistBackendError'\n  what():  [PG ID 0 PG GUID 0 Rank 5] "
    "Process group watchdog thread terminated with exception: [Rank 5] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=9141, OpType=_ALLGATHER_BASE, NumelIn=19008, NumelOut=152064, Timeout(ms)=600000) ran for 600020 "
    "milliseconds before timing out.\nException raised from checkTimeout at ProcessGroupNCCL.cpp:609"
)
CAUSE: Final = "Traceback (most recent call last):\nValueError: bad batch"


def bench_of(*roles: Any, **spec: Any) -> Bench:
    return running(*roles, limit=limits(*shipped_config().pod_failure_spec), **spec)


def end(name: str = "main", code: int = 1, after: float = 0, message: str = "", **more: Any) -> dict[str, Any]:
    """A container that has ended."""
    terminated = {"exitCode": code, "finishedAt": format_time(int(NOW + after)), "message": message, **more}
    return {"name": name, "state": {"terminated": terminated}}


def fail(bench: Bench, pod: str, *ends: dict[str, Any], node: str = "node-1", **status: Any) -> None:
    """The Pod fails like that; all that follows by itself is done, and the last states of Pods are seen."""
    bench.show(pod, phase="Failed", nodeName=node, containerStatuses=list(ends), **status)
    go_on(bench)


def go_on(bench: Bench) -> None:
    """Deletions are accepted, and Pods go in the state that they have."""
    for _ in range(50):
        made = bench.plan()
        for action in made.actions:
            if isinstance(action, ConfirmGone):
                bench.fold(action, Gone())
            elif isinstance(action, Create):
                bench.created(action)
            elif isinstance(action, Delete):
                bench.fold(action, Accepted())
                if action.target.name in bench.pods:
                    bench.drop(action.target.name, removed=True)
                elif action.target.name.endswith("-attempt"):
                    for name in list(bench.pods):
                        bench.drop(name, removed=True)
                    bench.vanish()
        if not made.actions and not bench.tracker.is_busy:
            return
    raise AssertionError("it does not settle")


@dataclass(frozen=True, slots=True)
class Fate:
    """The end of a Task. ``end``: seconds from the start, by true time; None: it runs until it is stopped.

    ``words``: its log's. ``lag``: until the controller sees it. ``stop_code``: its exit code when it is stopped.
    ``seen``: whether the last state of its Pod is seen, if its end was not before the others are stopped.
    """

    node: int = 0
    end: float | None = None
    words: str = CAUSE
    code: int = 1
    lag: float = 0.0
    stop_code: int = 143
    seen: bool = True

    @property
    def is_cause(self) -> bool:
        """Whether it fails by itself."""
        return self.end is not None and self.words not in (GLOO, NCCL)


class FailingAttempt:
    """An attempt of one role, which ends once the controller has seen ``failed`` Tasks fail."""

    def __init__(
        self,
        fates: Sequence[Fate],
        clocks: Sequence[float] = (),
        restarts: frozenset[int] = frozenset(),
        *,
        failed: int = 1,
    ) -> None:
        """``clocks``: by how much the clock of each node is ahead. ``restarts``: steps before which a process ends.

        ``failed``: number of failed Tasks that ends the attempt.
        """
        self.fates, self._clocks, self._restarts = fates, [*clocks, *[0.0] * len(fates)], restarts
        limit = limits(*shipped_config().pod_failure_spec)
        self.bench = Bench(role(number=len(fates), failed=failed), limit=limit, checked=len(fates) < 100)
        self.bench.all_pods()
        for index, fate in enumerate(fates):
            self.bench.show(f"f-a-{index}", phase="Running", nodeName=f"node-{fate.node}", podIP=f"10.0.0.{index}")
        self.bench.plan()
        self._steps, self._now = 0, 0.0
        self._shown: set[int] = set()
        """The Tasks whose ends were seen before the others were stopped."""
        self.restarted_late = False
        """Whether a new process has begun after the end of the attempt was decided."""
        self.stopped_at: float | None = None
        """When (seconds from the start) running containers are stopped."""

    @property
    def first(self) -> FirstFailure | None:
        """The first failure in the status."""
        return self.bench.status.first_failure

    def play(self) -> FailingAttempt:
        """All ends are seen, until the attempt is over. Then F holds."""
        ended = [one for one, fate in enumerate(self.fates) if fate.end is not None]
        for index in sorted(ended, key=self._seen_at):
            if self.stopped_at is not None:
                break
            self._go_on(self._seen_at(index))
            self._show(index)
            self._shown.add(index)
            self._plan()
        assert self.stopped_at is not None
        self._end()
        self.check()
        return self

    def check(self) -> None:
        """Assert that the status names the first failure, and does not say so without certainty."""
        first, causes = self.first, [one for one, fate in enumerate(self.fates) if self._has_failed(fate)]
        assert first is not None, "F: no first failure"
        if not causes:
            assert not first.certain, "F: a consequence is said to be certainly the first"
            return
        earliest = min(causes, key=self._true_end)
        named = self.fates[first.task_index]
        if first.certain:
            assert first.task_index == earliest, f"F: names {first.key}, and a[{earliest}] has failed first"
            return
        all_seen = all(fate.seen or one in self._shown for one, fate in enumerate(self.fates))
        if not all_seen or self.restarted_late or any(self._clocks):
            return
        assert self._has_ended(named) or named.stop_code not in (137, 143), "F: names a Task that was stopped"
        assert self._true_end(first.task_index) - self._true_end(earliest) < 1, "F: names a later failure"
        rivals = [one for one in causes if one != earliest]
        stopped = [fate for fate in self.fates if not self._has_ended(fate) and fate.stop_code not in (0, 137, 143)]
        is_early = self.stopped_at is not None and self._true_end(earliest) // 1 < self.stopped_at // 1 - SKEW_SEC
        if stopped or not (is_early or earliest in self._shown):
            return
        # Nothing else could have been earlier.
        is_close = any(self._true_end(one) - self._true_end(earliest) <= SKEW_SEC + 1 for one in rivals)
        assert is_close, "F: says that it is not certain"

    # --- steps ---

    def _plan(self) -> None:
        if self._steps in self._restarts:
            self.bench.restart()
            self.restarted_late |= self.stopped_at is not None
        self._steps += 1
        for _ in range(20):
            made = self.bench.plan()
            for action in made.actions:
                if isinstance(action, Delete) and action.target.name.endswith("-attempt"):
                    self.stopped_at = self._now
                if isinstance(action, ConfirmGone):
                    self.bench.fold(action, Gone())
                elif isinstance(action, Delete):
                    self.bench.fold(action, Gone() if action.confirm else Accepted())
                    if action.target.name in self.bench.pods and not action.target.name.endswith("-attempt"):
                        self._show(action.target.index, deleting=self.bench.now)
                        self.bench.drop(action.target.name, removed=True)
            if not made.actions and not self.bench.tracker.is_busy:
                return
        raise AssertionError("it does not settle")

    def _end(self) -> None:
        """The garbage collector deletes the Pods, in the order of their last events."""
        for index in sorted(range(len(self.fates)), key=self._gone_at):
            name, fate = f"f-a-{index}", self.fates[index]
            if name not in self.bench.pods:
                continue
            self._go_on(self._gone_at(index))
            if fate.seen:
                self._show(index, deleting=self.bench.now)
                self.bench.drop(name, removed=True)
            else:
                self.bench.show(name, deleting=self.bench.now)
                self.bench.drop(name)
            self._plan()
        self.bench.vanish()
        self._plan()
        assert self.bench.status.state in (State.ATTEMPT_COMPLETED, State.COMPLETED)

    def _show(self, index: int, *, deleting: float | None = None) -> None:
        fate, is_own = self.fates[index], self._has_ended(self.fates[index])
        code, words = (fate.code, fate.words) if is_own else (fate.stop_code, "")
        time = NOW + self._true_end(index) + self._clocks[fate.node]
        end = {"exitCode": code, "message": words, "finishedAt": format_time(int(time // 1))}
        status = [{"name": "main", "state": {"terminated": end}}]
        phase = "Failed" if code else "Succeeded"
        self.bench.show(f"f-a-{index}", deleting=deleting, grace=0, phase=phase, containerStatuses=status)

    def _go_on(self, seconds: float) -> None:
        self._now = max(self._now, seconds)
        self.bench.now = NOW + self._now

    # --- the truth ---

    def _has_ended(self, fate: Fate) -> bool:
        return fate.end is not None and (self.stopped_at is None or fate.end <= self.stopped_at)

    def _has_failed(self, fate: Fate) -> bool:
        return fate.is_cause and self._has_ended(fate)

    def _true_end(self, index: int) -> float:
        fate = self.fates[index]
        if fate.end is not None and self._has_ended(fate):
            return fate.end
        assert self.stopped_at is not None
        return self.stopped_at + 0.5

    def _seen_at(self, index: int) -> float:
        return self._true_end(index) + self.fates[index].lag

    def _gone_at(self, index: int) -> float:
        assert self.stopped_at is not None
        return max(self.stopped_at, self._true_end(index)) + 1.0 + self.fates[index].lag
