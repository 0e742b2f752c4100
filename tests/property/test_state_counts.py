"""The totals over all Frameworks equal a new count of all."""

from hypothesis import given
from hypothesis import strategies as st

from frameworkcontroller.api.objects import FrameworkRecord
from frameworkcontroller.api.status import (
    FrameworkAttemptStatus,
    FrameworkStatus,
    Phase,
    State,
    TaskAttemptStatus,
    TaskStatus,
)
from frameworkcontroller.api.status import TaskRoleStatus as RoleStatus
from frameworkcontroller.controller.reconcilers import Machine
from frameworkcontroller.controller.statecounts import StateCounts
from frameworkcontroller.machine.kernel.holds import Stall, Wait
from frameworkcontroller.machine.kernel.reasons import RequestReason
from frameworkcontroller.machine.kernel.tracker import Tracker
from frameworkcontroller.machine.lifereasons import LifeReason
from frameworkcontroller.machine.reconciler import Reconciler

states = st.sampled_from(State)
changes = st.lists(
    st.tuples(
        st.sampled_from(["default/a", "default/b", "other/a"]),
        st.none()
        | st.tuples(st.none() | st.sampled_from(Phase), st.lists(states, max_size=4), st.booleans(), st.booleans()),
    ),
    max_size=30,
)


def entry(phase: Phase | None, tasks: list[State], stalled: bool, quarantined: bool) -> Machine:
    if phase is None:
        tracker = Tracker()
        tasks = []
    else:
        found = [
            TaskStatus(number, f"t{number}", 0, 0, TaskAttemptStatus(0, 0), state=one, role="r")
            for number, one in enumerate(tasks)
        ]
        attempt = FrameworkAttemptStatus(id=0, start_time=0, roles=[RoleStatus("r", "u", None, found)])
        tracker = Tracker(FrameworkStatus(start_time=0, transition_time=0, phase=phase, attempt=attempt))
    if stalled:
        tracker.holds.stalls[None] = Stall(RequestReason.NAMING_CONFLICT, "message")
        tracker.holds.wait(None, Wait(LifeReason.NOT_STARTED, "message"))
    made = Reconciler(FrameworkRecord("default/f", "default", "f", "uid", "1", 1, None, b"{}", b"{}", None))
    made.tracker = tracker
    made.quarantined = quarantined
    return made


@given(changes)
def test_totals(history: list[tuple[str, tuple[Phase | None, list[State], bool, bool] | None]]) -> None:
    counts = StateCounts()
    known: dict[str, tuple[Phase | None, list[State], bool, bool]] = {}
    for key, how in history:
        if how is None:
            known.pop(key, None)
            counts.update(key, None)
        else:
            known[key] = (how[0], how[1] if how[0] is not None else [], how[2], how[3])
            counts.update(key, entry(*how))
        assert counts.frameworks == {phase: sum(one[0] is phase for one in known.values()) for phase in Phase}
        assert counts.tasks == {state: sum(one[1].count(state) for one in known.values()) for state in State}
        assert sum(counts.waiting.values()) == counts.waiting[LifeReason.NOT_STARTED]
        assert counts.waiting[LifeReason.NOT_STARTED] == sum(counts.stalled.values())
        assert counts.stalled[RequestReason.NAMING_CONFLICT] == sum(one[2] for one in known.values())
        assert counts.quarantined == sum(one[3] for one in known.values())
