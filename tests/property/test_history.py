"""Random histories of a Framework whose history blocks: H and all other guarantees hold after every step.

Each attempt that was ever stored is in the status or in the sink, while sinks fail, hang, answer twice, or store and
give no answer; and everything comes to its end once the sink works. More of them:
``HISTORIES=2000 pytest tests/property/test_history.py``.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from tests.property.test_machine_histories import Histories, history_settings, specs
from tests.support.archive import MODES, ArchivedHistory


class ArchivedHistories(Histories):
    """One history, with a sink."""

    history: ArchivedHistory

    @initialize(seed=st.integers(0, 2**16), spec=specs())
    def begin(self, seed: int, spec: dict[str, Any]) -> None:
        self.history = ArchivedHistory(seed)
        self.history.create(spec)

    @rule(mode=st.sampled_from(MODES))
    def set_sink(self, mode: str) -> None:
        self.history.set_sink(mode)

    @rule(steps=st.sampled_from([1, 2, 20]))
    def step_sink(self, steps: int) -> None:
        self.history.step_sink(steps)

    @rule(which=st.integers(0, 1), steps=st.integers(1, 20))
    def store_and_follow(self, which: int, steps: int) -> None:
        """The sink answers, and a controller works."""
        self.history.step_sink(steps)
        self.follow(which, steps)

    @rule()
    def orphan(self) -> None:
        self.history.orphan()

    @rule(foreground=st.booleans(), which=st.integers(0, 1), steps=st.integers(1, 30))
    def break_and_delete(self, foreground: bool, which: int, steps: int) -> None:
        """An ignored Framework is deleted."""
        self.history.break_spec(broken=True)
        self.follow(which, steps)
        self.history.delete(foreground=foreground)
        self.follow(which, steps)

    @rule()
    def remove_finalizer(self) -> None:
        self.history.remove_finalizer()

    def teardown(self) -> None:
        if hasattr(self, "history") and not self.history.world.violated:
            self.history.end()


TestArchivedHistories = ArchivedHistories.TestCase
TestArchivedHistories.settings = history_settings()
