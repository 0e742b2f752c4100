"""The work queue against a model, under random histories."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from frameworkcontroller.backoff import Backoff
from frameworkcontroller.kube.workqueue import WorkQueue

KEYS = st.sampled_from("abcd")
DELAYS = st.one_of(st.integers(1, 20), st.just(10_000)).map(float)


class Recorded(WorkQueue[str]):
    """Keeps the time at which its timer would be."""

    armed: float | None = None

    def _rearm(self) -> None:
        self.armed = self.next_due


class QueueMachine(RuleBasedStateMachine):
    """Models the ready keys (in order), the keys added while processing, the delays and the failures."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.core = Recorded(lambda: self.now, retry=Backoff(1.0, 16.0, jitter=0.0))
        self.ready: list[str] = []
        self.again: set[str] = set()
        self.processing: dict[str, float] = {}
        self.due: dict[str, float] = {}
        self.failures: dict[str, int] = {}
        self.shut_down = False

    def expect_added(self, key: str) -> None:
        if self.shut_down:
            return
        if key in self.processing:
            self.again.add(key)
        elif key not in self.ready:
            self.become_ready(key)

    def become_ready(self, key: str) -> None:
        self.core._changed.clear()
        self.ready.append(key)

    @rule(key=KEYS)
    def add(self, key: str) -> None:
        self.expect_added(key)
        self.core.add(key)

    @rule(key=KEYS, seconds=DELAYS)
    def add_after(self, key: str, seconds: float) -> None:
        self.expect_delayed(key, seconds)
        self.core.add_after(key, seconds)

    def expect_delayed(self, key: str, seconds: float) -> None:
        if not self.shut_down:
            self.due[key] = min(self.due.get(key, float("inf")), self.now + seconds)

    @rule(key=KEYS, at_least=st.sampled_from([0.0, 3.0, 30.0]))
    def add_rate_limited(self, key: str, at_least: float) -> None:
        self.failures[key] = self.failures.get(key, 0) + 1
        self.expect_delayed(key, max(at_least, min(16.0, 2.0 ** (self.failures[key] - 1))))
        self.core.add_rate_limited(key, at_least=at_least)

    @rule(key=KEYS)
    def forget(self, key: str) -> None:
        self.failures.pop(key, None)
        self.core.forget(key)

    @rule()
    def get(self) -> None:
        key = self.core.get_nowait()
        assert key == (self.ready.pop(0) if self.ready else None)
        if key is not None:
            self.processing[key] = self.now

    @precondition(lambda self: self.processing)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.processing)))
        del self.processing[key]
        if key in self.again:
            self.again.remove(key)
            self.become_ready(key)
        self.core.done(key)

    @rule(seconds=st.one_of(st.integers(0, 5), st.just(20_000)))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds
        promoted = sorted((when, key) for key, when in self.due.items() if when <= self.now)
        self.core.promote_due()
        # The model does not keep the order of keys of the same time.
        came = list(self.core._ready)[len(self.ready) :]
        for _, key in promoted:
            del self.due[key]
        expected = [key for _, key in promoted if key not in self.ready and key not in self.processing]
        assert sorted(came) == sorted(expected)
        when = {key: due for due, key in promoted}
        assert [when[key] for key in came] == sorted(when[key] for key in came)
        self.ready += came
        self.core._rearm()
        self.again |= {key for _, key in promoted if key in self.processing}

    @rule()
    def shut(self) -> None:
        self.core.shut_down()
        self.shut_down = True
        self.due.clear()

    @invariant()
    def agrees_with_the_model(self) -> None:
        core = self.core
        assert list(core._ready) == self.ready
        assert set(core._dirty) == set(self.ready) | self.again
        assert set(core._processing) == set(self.processing)
        assert not set(self.ready) & set(self.processing)
        assert core._changed.is_set() or not self.ready
        assert core.armed == core.next_due == min(self.due.values(), default=None)
        assert core.delayed == len(self.due)
        assert len(core._due._heap) <= 2 * len(self.due) + 65
        assert core.longest_running_seconds == self.now - min(self.processing.values(), default=self.now)
        assert core.unfinished_seconds == sum(self.now - since for since in self.processing.values())


TestQueue = QueueMachine.TestCase
